//! See `snap_fuzz::ignore`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snap_fuzz::ignore(data));
