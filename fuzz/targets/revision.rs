//! See `snap_fuzz::revision`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snap_fuzz::revision(data));
