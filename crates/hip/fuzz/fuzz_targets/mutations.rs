#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdover_hip::fuzz::run_mutation(data));
