//! Generates Rust for the structures and counters that the eBPF programs share with the agent beside those of the flow path.

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
    // Nothing needs a default copy.
    let path = layout::Headers { described: &["bpf/path/records.h"], imported: &[], not_zero: &["sent_copy"] };
    path.generate_as("path_records.rs");
}
