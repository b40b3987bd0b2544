#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    holdover_hipd::fuzz::look_up_by(data);
});
