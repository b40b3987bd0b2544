//! Sizes and offsets of all structures, once as the C compiler has them and once as Rust's has: a test compares them.

use std::fmt::Write as _;

use crate::layout::{Layout, Structure, camel_case};

/// A table in Rust.
pub(crate) fn in_rust(layout: &Layout) -> String {
    let entries: usize = layout.structures.iter().map(|it| it.members.len() + 1).sum();
    let mut out = format!("pub(crate) const LAYOUT: [u32; {entries}] = [\n");
    for structure in &layout.structures {
        let name = camel_case(&structure.name);
        let _ = writeln!(out, "    size_of::<{name}>() as u32,");
        for member in &structure.members {
            let _ = writeln!(out, "    core::mem::offset_of!({name}, {}) as u32,", member.name);
        }
    }
    out + "];\n"
}

/// A table in C.
pub(crate) fn in_c(layout: &Layout) -> String {
    let mut out = String::from("const u32 flow_layout[] = {\n");
    for Structure { name, members, .. } in &layout.structures {
        let _ = writeln!(out, "\tsizeof(struct {name}),");
        for member in members {
            let _ = writeln!(out, "\t__builtin_offsetof(struct {name}, {}),", member.name);
        }
    }
    out + "};\n"
}
