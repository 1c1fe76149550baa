//! See `snap_fuzz::commit`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snap_fuzz::commit(data));
