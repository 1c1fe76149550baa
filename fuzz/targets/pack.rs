//! See `snap_fuzz::pack`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snap_fuzz::pack(data));
