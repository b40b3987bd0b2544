//! Runs of scenarios in the simulator: every variant, recorded to a directory, with plots and a page.

mod report;
mod simulate;

pub use report::{plot_kinds, recorder_options, write_report, write_scenario};
pub use simulate::{AS_DESCRIBED, Equip, Plan, SimulateError, WHOLE, bytes_to_come, in_parallel, part_done, simulate};
