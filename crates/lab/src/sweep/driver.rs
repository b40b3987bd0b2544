//! Sweeps whose runs are made by other processes, on this machine or others.
//!
//! A [`Driver`] hands out runs and takes their rows as JSON; a [`Worker`] makes runs. The driver decides which runs count and when a cell
//! is complete in the order of run numbers, as on one machine, so results do not depend on the worker, the order of arrival or duplicates.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use holdover_scenario::Scenario;

use super::directory::SweepDir;
use super::error::SweepError;
use super::finished_runs::{FinishedRuns, unit_of};
use super::journal::Row;
use super::ledger::Ledger;
use super::plan::{Plan, PlanError};
use super::schedule::{Progress, Unit};
use super::single::make;
use crate::journal::Line;

/// Hands out runs and stores their rows.
#[derive(Debug)]
pub struct Driver {
    plan: Plan,
    ledger: Ledger,
    under_way: BTreeSet<(usize, u32)>,
}

impl Driver {
    /// Begins the sweep of `plan` in `directory`, or resumes it.
    ///
    /// # Errors
    ///
    /// If the directory's journal cannot be used or belongs to another sweep, or files cannot be written.
    pub fn open(plan: Plan, directory: &SweepDir) -> Result<Self, SweepError> {
        let ledger = Ledger::open(&plan, directory)?;
        Ok(Self { plan, ledger, under_way: BTreeSet::new() })
    }

    /// The plan of the sweep.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The next runs to make, at most `most`. Runs that may turn out to be superfluous are handed out only if nothing else is left and
    /// nothing is in progress.
    pub fn next(&mut self, most: usize) -> Vec<Unit> {
        let mut units = Vec::new();
        while units.len() < most {
            let guess = units.is_empty() && self.under_way.is_empty();
            let schedule = self.ledger.schedule();
            let unit = if guess { schedule.next() } else { schedule.next_wanted() };
            let Some(unit) = unit else { break };
            self.under_way.insert((unit.cell, unit.run));
            units.push(unit);
        }
        units
    }

    /// Takes the row of a run, one JSON object, and stores it. Duplicates are ignored.
    ///
    /// # Errors
    ///
    /// If the text is not the row of a run of this sweep, or cannot be stored.
    pub fn take(&mut self, row: &str) -> Result<(), SweepError> {
        let wrong = |error: serde_json::Error| SweepError::Answer(error.to_string());
        let row: Row = serde_json::from_str(row).map_err(wrong)?;
        let unit = unit_of(&self.plan, &row).map_err(SweepError::Answer)?;
        let is_new = self.under_way.remove(&(unit.cell, unit.run));
        if is_new && self.ledger.keep(&self.plan, unit, &row, &Line::new(&row).map_err(wrong)?)? {
            self.ledger.write_table(&self.plan)?;
        }
        Ok(())
    }

    /// The progress of the sweep.
    pub fn progress(&self) -> Progress {
        self.ledger.progress()
    }

    /// Whether every cell is complete.
    pub const fn is_complete(&self) -> bool {
        self.ledger.is_complete()
    }

    /// The plan and the counted runs of a complete sweep; `None` if it is incomplete, or `stop` becomes true before the table of runs is
    /// complete.
    ///
    /// # Errors
    ///
    /// If the table of runs cannot be written.
    pub fn into_runs(self, stop: &AtomicBool) -> Result<Option<(Plan, FinishedRuns)>, SweepError> {
        let runs = self.ledger.into_runs(&self.plan, stop)?;
        Ok(runs.map(|runs| (self.plan, runs)))
    }
}

/// Makes runs of a sweep.
#[derive(Debug)]
pub struct Worker {
    plan: Plan,
    at: Option<(usize, Scenario)>,
}

impl Worker {
    /// Creates a worker for the sweep of `scenario`, which was checked by the [`Driver`]'s side.
    ///
    /// # Errors
    ///
    /// If it has no sweep.
    pub fn new(scenario: Scenario) -> Result<Self, PlanError> {
        Ok(Self { plan: Plan::of_checked(scenario)?, at: None })
    }

    /// Makes a run and returns its row for [`Driver::take`].
    ///
    /// # Errors
    ///
    /// If the plan has no such run.
    pub fn make(&mut self, unit: Unit) -> Result<String, SweepError> {
        if unit.cell >= self.plan.cells() {
            return Err(SweepError::Answer(format!("there is no cell {}", unit.cell)));
        }
        let row = make(&self.plan, unit, &mut self.at, || false)?;
        serde_json::to_string(&row).map_err(|error| SweepError::Answer(error.to_string()))
    }
}
