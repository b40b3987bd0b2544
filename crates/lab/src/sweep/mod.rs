//! The engine behind `holdover sweep`.
//!
//! A sweep is the product of points (combinations of the axes' values), variants and replications. A [`Plan`] says what has to
//! be run and is checked before anything is; [`engine::run`] runs it on several threads; each run that is finished is appended
//! to a journal; [`tables`] and [`summary`] turn the finished runs into files.
//!
//! What is decided along the way depends on scenario and seed alone. A run's seed is drawn from the scenario's seed and the
//! number of the replication, so that all variants and points meet the same randomness. Whether a cell (a variant at a point)
//! needs another replication is decided on its first `n` runs in the order of their numbers, whichever threads made them and
//! whichever ended first; a run beyond the last one that counts is thrown away.

pub mod compare;
mod directory;
pub mod driver;
pub mod engine;
mod findings;
mod journal;
mod ledger;
mod measure;
mod parquet;
mod plan;
mod runs_table;
mod schedule;
pub mod summary;
pub mod table;
pub mod tables;
#[cfg(test)]
mod tests;

pub use crate::journal::JournalError;
pub use directory::{DirectoryError, SweepDir};
pub use findings::{CellFindings, Findings, FindingsError, PointFindings};
pub use ledger::{FinishedRuns, Ledger};
pub use measure::unit_suffix;
pub use plan::{Finished, Plan, PlanError};
pub use schedule::{Progress, Unit};
