//! Measurements of a gateway's process from outside: what its maps hold and its programs cost, and programs to compare these with.

mod baseline;
mod tables;

pub use baseline::Baseline;
pub use tables::{Tables, Usage, count_runs};

use std::io;

use holdover_host::NamespaceError;

use crate::path::PathError;

/// A measurement is not possible.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel refuses programs or maps.
    #[error(transparent)]
    Programs(#[from] PathError),
    /// What the kernel shows of a process cannot be read.
    #[error("what the kernel shows of the daemon")]
    Shown(#[from] io::Error),
    /// The process is no gateway's.
    #[error("the daemon: it has no table of connections")]
    NoTable,
}
