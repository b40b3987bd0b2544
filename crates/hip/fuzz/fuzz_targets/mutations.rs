#![no_main]

use holdover_hip::fuzz::Mutations;

std::thread_local! {
    // Rehearsed once.
    static MUTATIONS: Mutations = Mutations::new();
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| MUTATIONS.with(|mutations| _ = mutations.run(data)));
