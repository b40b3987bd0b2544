//! Measures how this machine's kernel behaves around outages, and how it does with the agent, the gateway and host identity.
//!
//! [`kernel`] runs the experiments of `holdover_testbed::experiments` and compares the kernel with the profiles that copy it. The others
//! are grids of transfers on kernels in network namespaces, each a [`Grid`] with bounds: [`agent`] across outages, [`agent_links`] on
//! links with carrier and neighbours, [`gateway`] across absences, and [`moves`] to other addresses. [`measure`] makes the runs of a grid.
//! [`kernel_matrix`] makes transfers between Holdover's TCP and the kernel's under combinations of settings. Every result is a report: a
//! page, a table, and JSON.
//!
//! The caller supplies the commands of the daemons that run as processes, and enters the namespaces that it needs (`Privilege::acquire`
//! of the test bed) before its first thread.

// Runs are real kernels on threads, with journals and clocks.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

pub mod agent;
pub mod agent_links;
pub mod gateway;
mod grid;
mod journal;
pub mod kernel;
pub mod kernel_matrix;
pub mod moves;
mod origin;
mod page;
mod progress;
mod results;
mod routed;

pub use grid::{Failure, Grid, GridError, GridOptions, GridPlace, GridReport, Head, Outcome, Runs, Unable, measure};
pub use progress::Progress;

/// How a report was made, besides the machine.
#[derive(Clone, Debug)]
pub struct About {
    /// The command that makes it again.
    pub command: String,
    /// The date, as ISO 8601 has it.
    pub date: String,
}
