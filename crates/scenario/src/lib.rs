//! Scenario files: the description of a run, read from TOML and checked before anything runs.
//!
//! A [`Scenario`] is read from a file ([`Scenario::read`]) or a text ([`Scenario::parse`]). An error is one [`ScenarioError`] with the
//! file, line, column and field, the value found and the accepted values. A scenario that was read is valid: each of its
//! [variants](Scenario::variants) makes a [world](Variant::world) for every seed, and every value of its [sweep](Scenario::sweep) was
//! tried.
//!
//! The stages of reading: the text is parsed into a tree with positions; variants, sweeps and `--set` change the tree by [paths](Override);
//! the tree is deserialized into the form of a file, from which a [`WorldConfig`](holdover_sim::WorldConfig) is built. The tree maps a
//! problem of any stage to its position.
//!
//! Only [`Scenario::read`] and [`Scenario::open`] access files; traces are read through [`Files`].

#![forbid(unsafe_code)]

mod build;
mod builtin;
mod deserialize;
mod error;
mod file;
mod interval;
mod output;
mod overrides;
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
pub use overrides::Override;
pub use render::Style;
pub use scenario::{Scenario, Variant};
pub use schema::schema;
pub use sweep::{Axis, Compare, Label, Measure, Metric, Point, Replicate, Subject, Sweep};
pub use traces::{Files, NoFiles};
