//! The finished runs of a sweep: appended to the journal in the order of completion, and to the table of runs in the order of cells.

use std::sync::atomic::{AtomicBool, Ordering};

use super::directory::SweepDir;
use super::error::SweepError;
use super::finished_runs::{FinishedRuns, read_cell, unit_of};
use super::journal::Row;
use super::plan::Plan;
use super::runs_table::RunsTable;
use super::schedule::{Progress, Schedule, Unit};
use crate::journal::{Journal, JournalError, Line, Lines, Place};

/// The finished and missing runs of a sweep.
///
/// Only the place in the journal of each counted run is in memory.
#[derive(Debug)]
pub struct Ledger {
    journal: Journal,
    schedule: Schedule,
    table: Option<RunsTable>,
}

/// The number of cells added to the table at a time.
const CELLS_AT_A_TIME: usize = 100;

impl Ledger {
    /// Opens the ledger of the sweep of `plan` in `directory`, new or resumed. The table of runs is written during the sweep.
    ///
    /// # Errors
    ///
    /// If the journal cannot be used or belongs to another sweep, or the table cannot be written.
    pub fn open(plan: &Plan, directory: &SweepDir) -> Result<Self, SweepError> {
        let mut ledger = Self::without_table(plan, directory)?;
        ledger.begin_table(plan, directory)?;
        Ok(ledger)
    }

    /// Starts writing the table of runs, from its beginning.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn begin_table(&mut self, plan: &Plan, directory: &SweepDir) -> Result<(), SweepError> {
        self.table = Some(RunsTable::create(plan, directory.path())?);
        Ok(())
    }

    /// Opens the ledger without a table of runs.
    ///
    /// # Errors
    ///
    /// If the journal cannot be used or belongs to another sweep.
    pub fn without_table(plan: &Plan, directory: &SweepDir) -> Result<Self, JournalError> {
        let mut schedule = Schedule::new(plan);
        let journal = Journal::open(&directory.journal(), &plan.header(), |row: Row, place| {
            let unit = unit_of(plan, &row)?;
            schedule.record(unit, place, plan.deciding(&row), plan.is_random(unit.cell));
            Ok(())
        })?;
        Ok(Self { journal, schedule, table: None })
    }

    /// Stores a run with its journal line `line`. Returns whether its cell is complete.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(super) fn keep(&mut self, plan: &Plan, unit: Unit, row: &Row, line: &Line) -> Result<bool, JournalError> {
        let place = self.journal.append(line)?;
        Ok(self.schedule.record(unit, place, plan.deciding(row), plan.is_random(unit.cell)))
    }

    /// Takes the table: the engine writes it without holding the ledger's lock.
    pub(super) const fn take_table(&mut self) -> Option<RunsTable> {
        self.table.take()
    }

    /// Returns the table.
    pub(super) fn give_table(&mut self, table: Option<RunsTable>) {
        self.table = table;
    }

    /// The completed cells, in order, that a table of `from` cells lacks; at most [`CELLS_AT_A_TIME`].
    pub(super) fn pending_cells(&self, from: usize) -> PendingCells {
        let index = self.schedule.index();
        let cells = (from..index.cells()).take(CELLS_AT_A_TIME).map(|cell| index.of(cell).into()).collect();
        PendingCells { lines: self.journal.lines().clone(), cells }
    }

    /// Adds the next indexed cells to the table.
    ///
    /// # Errors
    ///
    /// If they cannot be read or written.
    pub(super) fn write_table(&mut self, plan: &Plan) -> Result<(), SweepError> {
        let Some(mut table) = self.table.take() else { return Ok(()) };
        let written = self.pending_cells(table.cells()).write(plan, &mut table);
        self.table = Some(table);
        written
    }

    /// The schedule of the remaining runs.
    pub(super) const fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }

    /// The progress of the sweep.
    pub fn progress(&self) -> Progress {
        self.schedule.progress()
    }

    /// Whether every cell is complete.
    pub const fn is_complete(&self) -> bool {
        self.schedule.is_complete()
    }

    /// The runs of a complete sweep, after completing the table of runs. `None` if the sweep is incomplete, or `stop` becomes true before
    /// the table is complete.
    ///
    /// # Errors
    ///
    /// If the table cannot be written.
    pub fn into_runs(mut self, plan: &Plan, stop: &AtomicBool) -> Result<Option<FinishedRuns>, SweepError> {
        let is_behind = |ledger: &Self| ledger.table.as_ref().is_some_and(|table| table.cells() < plan.cells());
        while self.is_complete() && is_behind(&self) && !stop.load(Ordering::Relaxed) {
            self.write_table(plan)?;
        }
        if !self.is_complete() || is_behind(&self) {
            return Ok(None);
        }
        if let Some(table) = self.table {
            table.finish()?;
        }
        Ok(Some(FinishedRuns { journal: self.journal, index: self.schedule.into_index() }))
    }
}

/// Completed cells that the table of runs lacks: the places of their runs in the journal.
#[derive(Debug)]
pub(super) struct PendingCells {
    lines: Lines,
    cells: Vec<Box<[Place]>>,
}

impl PendingCells {
    /// Whether there are no such cells.
    pub(super) const fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Adds them to the table.
    ///
    /// # Errors
    ///
    /// If they cannot be read or written.
    pub(super) fn write(self, plan: &Plan, table: &mut RunsTable) -> Result<(), SweepError> {
        let Self { lines, cells } = self;
        cells.iter().try_for_each(|places| {
            let runs = read_cell(plan, &lines, table.cells(), places);
            table.push(plan, runs)
        })
    }
}
