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
    /// By QEMU without hardware support: some ten times slower.
    is_emulated: bool,
    date: String,
}

impl Origin {
    /// On this machine.
    pub(super) fn new(about: About) -> Self {
        Self {
            command: about.command,
            kernel: kernel_release(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            is_emulated: is_emulated(),
            date: about.date,
        }
    }
}

/// Whether QEMU's code generator (TCG) emulates the processor.
fn is_emulated() -> bool {
    std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("QEMU TCG"))
}

/// Prints `Made by ... on ... with ... cores`.
impl Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, cores, date, is_emulated, .. } = self;
        let emulated = if *is_emulated { "emulated " } else { "" };
        write!(f, "Made by `{command}` on {date} with {cores} {emulated}cores")
    }
}
