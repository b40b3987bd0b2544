//! Generates Rust for the structures and counters that the eBPF programs share with the daemon.

#[path = "../flow/build/layout.rs"]
mod layout;

fn main() {
    println!("cargo::rerun-if-changed=../flow/build/layout.rs");
    let headers = layout::Headers {
        described: &["bpf/gateway/records.h"],
        imported: &["../flow/c/state.h", "../flow/c/packet.h", "../flow/c/selector.h", "../flow/c/course.h"],
        not_zero: &[],
    };
    headers.generate();
}
