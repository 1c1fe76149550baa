//! See `snap_fuzz::chunk_list`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| snap_fuzz::chunk_list(data));
