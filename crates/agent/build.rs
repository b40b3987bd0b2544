//! Generates Rust for the structures and counters that the eBPF programs for user timeouts share with the agent.

#[path = "../flow/build/layout.rs"]
mod layout;

fn main() {
    println!("cargo::rerun-if-changed=../flow/build/layout.rs");
    layout::Headers { described: &["bpf/user_timeout/records.h"], imported: &[], not_zero: &[] }.generate();
}
