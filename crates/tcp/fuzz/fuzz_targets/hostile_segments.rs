#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdover_tcp::fuzz::hostile_segments(data));
