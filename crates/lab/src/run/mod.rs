//! Runs of scenarios in the simulator and on real kernels: every variant is recorded to a directory, with plots and a page.

mod all;
mod error;
mod kernels;
mod parallel;
mod report;
mod simulate;

pub use all::{Done, Runs};
pub use error::{KernelError, RunError};
pub use kernels::{KernelOptions, Kernels, warnings};
pub(crate) use parallel::in_order;
pub use report::{
    new_results_directory, plot_kinds, recorder_options, results_directory, write_report, write_scenario,
};
pub use simulate::{AS_DESCRIBED, Equip, WHOLE};
