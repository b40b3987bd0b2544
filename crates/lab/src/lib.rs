//! Runs and sweeps of scenarios, and reproductions of papers' experiments.
//!
//! [`run`] runs the variants of a scenario and writes the report. [`sweep`] runs a scenario over every combination of its axes' values,
//! with as many replications as its means need. [`reproduce`] sweeps the scenarios of a paper and judges the paper's claims by the results.
//! [`journal`] lets all of them, and grids of measurements, continue after an interruption.

// Results are files, progress is wall-clock time, and runs execute on threads.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
#![forbid(unsafe_code)]

pub mod journal;
pub mod reproduce;
pub mod run;
pub mod sweep;
