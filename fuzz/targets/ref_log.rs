//! See `snap_fuzz::ref_log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snap_fuzz::ref_log(data));
