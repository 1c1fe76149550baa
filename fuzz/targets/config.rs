//! See `snap_fuzz::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snap_fuzz::config(data));
