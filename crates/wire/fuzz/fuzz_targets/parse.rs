#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdover_wire::fuzz::parse_any(data));
