//! The engine behind `holdover sweep`.
//!
//! A sweep is the product of points (combinations of the axes' values), variants and replications. A [`Plan`] defines the runs and is
//! checked before any of them; [`engine::run`] makes them on several threads; each finished run is appended to a journal; [`tables`] and
//! [`summary`] write the results.
//!
//! All decisions during a sweep depend on scenario and seed alone. A run's seed is derived from the scenario's seed and the replication's
//! number, so that all variants and points use common random numbers. Whether a cell (a variant at a point) needs another replication is
//! decided on its first `n` runs by number, independent of the threads and of the order of completion; runs beyond the last counted one are
//! discarded.

pub mod columns;
pub mod compare;
mod directory;
pub mod driver;
pub mod engine;
mod error;
mod family;
#[cfg(test)]
mod family_tests;
mod findings;
mod finished_runs;
mod journal;
mod ledger;
mod measure;
mod parquet;
mod plan;
mod runs_table;
mod schedule;
mod single;
pub mod summary;
pub mod table;
mod table_writer;
pub mod tables;
#[cfg(test)]
mod tests;

pub use crate::journal::JournalError;
pub use directory::{DirectoryError, SweepDir};
pub use error::SweepError;
pub use findings::{CellFindings, Findings, FindingsError, PointFindings};
pub use finished_runs::FinishedRuns;
pub use ledger::Ledger;
pub use measure::unit_suffix;
pub use plan::{Finished, Plan, PlanError};
pub use schedule::{Progress, Unit};
#[cfg(test)]
pub(crate) use single::make as make_run;
