//! Compiles the flow path (`c/`) for this machine, and generates Rust for its structures, flags and counters.

#[path = "build/layout.rs"]
mod layout;

use std::path::{Path, PathBuf};
use std::{env, fs, process};

/// The headers with structures for Rust.
const DESCRIBED: [&str; 2] = ["c/state.h", "c/packet.h"];

fn main() {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=build");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_else(|| fail("OUT_DIR is not set: run cargo")));
    let headers =
        DESCRIBED.map(|name| fs::read_to_string(name).unwrap_or_else(|error| fail(&format!("{name}: {error}"))));
    let layout = layout::Layout::parse(&headers.concat()).unwrap_or_else(|error| fail(&error));
    write(&out.join("layout.rs"), &layout.to_rust());
    write(&out.join("layout_table.h"), &layout.to_c_table());
    compile(&out);
}

fn compile(out: &Path) {
    let mut build = cc::Build::new();
    build.file("c/native.c").include("c").include(out).opt_level(2).std("gnu11").warnings(true).extra_warnings(true);
    // No C library: the flow path depends on nothing but its arguments.
    build.flag("-ffreestanding").flag("-nostdinc").flag("-fno-strict-aliasing");
    if let Err(error) = build.try_compile("holdover_flow") {
        fail(&format!(
            "the flow path is written in C, and needs gcc or clang. On Debian: apt-get install gcc; on Fedora: dnf install gcc; \
             or set CC to the compiler. {error}"
        ));
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| fail(&format!("{}: {error}", path.display())));
}

fn fail(problem: &str) -> ! {
    println!("cargo::error=holdover-flow: {problem}");
    process::exit(1);
}
