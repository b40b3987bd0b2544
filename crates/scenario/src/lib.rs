//! Scenario files: the description of a run, read from TOML and checked before anything runs.
//!
//! A [`Scenario`] is read from a file ([`Scenario::read`]) or a text ([`Scenario::parse`]). What is wrong in it is one
//! [`ScenarioError`] that names the file, line, column and field, what was found and what would be accepted. What was read is
//! whole: each of its [variants](Scenario::variants) makes a [world](Variant::world) for every seed, and every value of its
//! [sweep](Scenario::sweep) was tried.
//!
//! The road of a field: the text becomes a tree whose parts know their places; variants, sweeps and `--set` change the tree
//! by [paths](Override); the tree is read into the form of a file, and that is built into a
//! [`WorldConfig`](holdover_sim::WorldConfig). A problem found anywhere on it is led back to its place through the tree.
//!
//! Apart from [`Scenario::read`] and [`Scenario::open`], nothing here touches a file: traces come through [`Files`].

#![forbid(unsafe_code)]

mod build;
mod builtin;
mod deserialize;
mod error;
mod file;
mod interval;
mod output;
mod path;
mod problem;
mod quantity;
mod read;
mod render;
mod scenario;
mod schema;
pub mod statistics;
mod suggest;
mod sweep;
mod traces;
mod tree;
mod word;

pub use builtin::Builtin;
pub use error::{Diagnostic, ErrorKind, Location, ScenarioError};
pub use interval::{Interval, IntervalError};
pub use output::{CaptureFormat, Captures, Output, Plot};
pub use render::Style;
pub use scenario::{Override, Scenario, Variant};
pub use schema::schema;
pub use sweep::{Axis, Compare, Label, Measure, Metric, Point, Replicate, Sweep};
pub use traces::{Files, NoFiles};
