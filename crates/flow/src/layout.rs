//! The structures, flags and counters of `c/state.h`, `c/packet.h`, `c/selector.h` and `c/course.h`, as `build.rs` has written them.

// Some are of the kernel only; those that are not exported are public for their modules.
#![allow(dead_code, unreachable_pub)]
// C has one namespace for all enumerations.
#![allow(clippy::enum_variant_names)]

include!(concat!(env!("OUT_DIR"), "/layout.rs"));
#[cfg(test)]
include!(concat!(env!("OUT_DIR"), "/layout_table.rs"));
