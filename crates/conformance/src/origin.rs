//! How and where a report was made.

use std::fmt::{self, Display};

use holdover_testbed::kernel_release;
use serde::Serialize;

use crate::About;

/// The command, the machine and the date of a report.
#[derive(Debug, Serialize)]
pub(super) struct Origin {
    command: String,
    pub(super) kernel: String,
    /// Of this machine, as far as this process may use them.
    cores: usize,
    date: String,
}

impl Origin {
    /// On this machine.
    pub(super) fn new(about: About) -> Self {
        Self {
            command: about.command,
            kernel: kernel_release(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            date: about.date,
        }
    }
}

/// Prints `Made by ... on ... with ... cores`.
impl Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, cores, date, .. } = self;
        write!(f, "Made by `{command}` on {date} with {cores} cores")
    }
}
