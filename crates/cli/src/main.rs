//! Holdover.
fn main() {}
