//! Generates Rust for the structures and counters that the eBPF programs for user timeouts share with the agent.

#[path = "../flow/build/layout.rs"]
mod layout;

fn main() {
    println!("cargo::rerun-if-changed=../flow/build/layout.rs");
    let headers = layout::Headers {
        described: &["bpf/user_timeout/records.h"],
        imported: &["../flow/c/selector.h"],
        not_zero: &[],
    };
    headers.generate();
}
