//! See `snap_fuzz::bundle`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snap_fuzz::bundle(data));
