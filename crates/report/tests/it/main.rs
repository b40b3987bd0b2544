//! Recorded runs, checked through their files.

// Tests read files and start programs.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod captures;
mod exports;
mod figures;
mod files;
mod page;
mod worlds;
