//! Errors that end a sweep.

use holdover_scenario::ScenarioError;
use holdover_sim::WorldError;

use super::table::TableError;
use crate::journal::JournalError;

/// Errors that end a sweep.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A finished run could not be stored.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// The table of runs could not be written.
    #[error("{0}")]
    Table(#[from] TableError),
    /// A scenario could not be built although it was checked before the first run.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    /// A world could not be built although it was checked before the first run.
    #[error("{0}")]
    World(#[from] WorldError),
    /// The row of a worker does not match the requested run.
    #[error(
        "a worker's answer is not the run that it was asked for: {0}; all workers need the version of Holdover that the sweep was begun with"
    )]
    Answer(String),
}
