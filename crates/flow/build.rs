//! Compiles the flow path and selectors (`c/`) for this machine, and generates Rust for its structures, flags and counters.

#[path = "build/layout.rs"]
mod layout;
#[path = "build/table.rs"]
mod table;

use layout::{Headers, fail, out, write};

const HEADERS: Headers<'static> = Headers {
    described: &["c/state.h", "c/packet.h", "c/selector.h", "c/course.h"],
    imported: &[],
    // `src/flow.rs` and `src/entry.rs` define them.
    not_zero: &["half_core", "flow", "side", "entry"],
};

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=build");
    let layout = HEADERS.generate();
    write("layout_table.rs", &table::in_rust(&layout));
    write("layout_table.h", &table::in_c(&layout));
    compile();
}

fn compile() {
    let mut build = cc::Build::new();
    build.file("c/native.c").include("c").include(out()).opt_level(2).std("gnu11").warnings(true).extra_warnings(true);
    // No C library: the flow path depends on nothing but its arguments.
    build.flag("-ffreestanding").flag("-nostdinc").flag("-fno-strict-aliasing");
    if let Err(error) = build.try_compile("holdover_flow") {
        fail(&format!(
            "the flow path is written in C, and needs gcc or clang. On Debian: apt-get install gcc; on Fedora: dnf install gcc; \
             or set CC to the compiler. {error}"
        ));
    }
}
