//! A sweep whose runs are made by other processes, on this machine or others.
//!
//! A [`Driver`] says which runs to make and takes their rows as JSON; a [`Worker`] makes runs. What counts, and when a cell has
//! enough, is decided by the driver in the order of the runs' numbers, as on one machine, so that results do not depend on who made which
//! run, in which order they came, or whether some came twice.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use holdover_scenario::Scenario;

use super::directory::SweepDir;
use super::engine::{SweepError, make};
use super::journal::Row;
use super::ledger::{FinishedRuns, Ledger, unit_of};
use super::plan::{Plan, PlanError};
use super::schedule::{Progress, Unit};
use crate::journal::Line;

/// Hands out runs and keeps what comes back.
#[derive(Debug)]
pub struct Driver {
    plan: Plan,
    ledger: Ledger,
    under_way: BTreeSet<(usize, u32)>,
}

impl Driver {
    /// Begins the sweep of `plan`, or goes on with what `directory` has of it.
    ///
    /// # Errors
    ///
    /// If the directory's journal cannot be used, or is of another sweep; if files cannot be written.
    pub fn open(plan: Plan, directory: &SweepDir) -> Result<Self, SweepError> {
        let ledger = Ledger::open(&plan, directory)?;
        Ok(Self { plan, ledger, under_way: BTreeSet::new() })
    }

    /// What is swept.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The next runs to make, at most `most`. Runs that may turn out not to be needed are given only if nothing else is left
    /// and nothing is under way.
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

    /// Takes the row of a run, one JSON object, and keeps it. A row that has come before is left out.
    ///
    /// # Errors
    ///
    /// If the text is not the row of a run of this sweep, or it cannot be kept.
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

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.ledger.progress()
    }

    /// Whether every cell has been run often enough.
    pub const fn is_complete(&self) -> bool {
        self.ledger.is_complete()
    }

    /// The plan, and the runs that count, of a sweep that is complete; `None` if it is not, or `stop` is true before the table of runs is whole.
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
    /// A worker for the sweep of `scenario`, which the [`Driver`]'s side has checked.
    ///
    /// # Errors
    ///
    /// If it has no sweep.
    pub fn new(scenario: Scenario) -> Result<Self, PlanError> {
        Ok(Self { plan: Plan::of_checked(scenario)?, at: None })
    }

    /// Makes a run and gives its row for [`Driver::take`].
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
