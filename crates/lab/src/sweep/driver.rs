//! A sweep whose runs are made by other processes, on this machine or others.
//!
//! A [`Driver`] says which runs to make and takes their rows as JSON; a [`Worker`] makes runs. What counts, and when a cell has
//! enough, is decided by the driver in the order of the runs' numbers, as on one machine, so that results do not depend on who made which
//! run, in which order they came, or whether some came twice.

use std::collections::BTreeSet;
use std::path::Path;

use holdover_scenario::Scenario;

use super::engine::{SweepError, make, open_journal, unit_of};
use super::journal::{Journal, JournalError, Row};
use super::plan::{Finished, Plan, PlanError};
use super::schedule::{Progress, Schedule, Unit};

/// Hands out runs and keeps what comes back.
#[derive(Debug)]
pub struct Driver {
    plan: Plan,
    journal: Journal,
    schedule: Schedule,
    under_way: BTreeSet<(usize, u32)>,
}

impl Driver {
    /// Begins the sweep of `plan`, or goes on with what the journal at `path` has of it.
    ///
    /// # Errors
    ///
    /// If the journal cannot be used, or is of another sweep.
    pub fn open(plan: Plan, path: &Path) -> Result<Self, JournalError> {
        let (journal, schedule) = open_journal(&plan, path)?;
        Ok(Self { plan, journal, schedule, under_way: BTreeSet::new() })
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
            let unit = if guess { self.schedule.next() } else { self.schedule.next_wanted() };
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
        let row: Row = serde_json::from_str(row).map_err(|error| SweepError::Answer(error.to_string()))?;
        let unit = unit_of(&self.plan, &row).map_err(SweepError::Answer)?;
        if self.under_way.remove(&(unit.cell, unit.run)) {
            self.journal.append(&row)?;
            self.schedule.record(unit, self.plan.reduce(&row));
        }
        Ok(())
    }

    /// How far it has come.
    pub const fn progress(&self) -> Progress {
        self.schedule.progress()
    }

    /// Whether every cell has been run often enough.
    pub const fn is_complete(&self) -> bool {
        self.schedule.is_complete()
    }

    /// The plan, and the runs of each cell that count.
    pub fn into_runs(self) -> (Plan, Vec<Vec<Finished>>) {
        (self.plan, self.schedule.into_runs())
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
