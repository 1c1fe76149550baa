//! See `snap_fuzz::tree`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snap_fuzz::tree(data));
