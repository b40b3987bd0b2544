//! What has been run of a sweep: kept in the journal as each run ends, and put into the table of runs in the order of the cells.

use std::sync::atomic::{AtomicBool, Ordering};

use super::directory::SweepDir;
use super::engine::SweepError;
use super::journal::{Journal, JournalError, Line, Row};
use super::plan::{Cell, Finished, Plan};
use super::runs_table::RunsTable;
use super::schedule::{Index, Progress, Schedule, Unit};

/// The runs of a sweep that are finished, and those that are not.
///
/// Of each run that counts no more than its place in the journal is in memory.
#[derive(Debug)]
pub struct Ledger {
    journal: Journal,
    schedule: Schedule,
    table: Option<RunsTable>,
}

/// Cells that come into the table with one that is decided. Where more wait, because one took long that comes before them, they follow with the
/// next.
const CELLS_AT_A_TIME: usize = 100;

/// The runs of a sweep that is complete.
#[derive(Debug)]
pub struct Runs {
    journal: Journal,
    index: Index,
}

impl Ledger {
    /// The ledger of the sweep of `plan` in `directory`, begun or gone on with. The table of runs is written along the way.
    ///
    /// # Errors
    ///
    /// If the journal cannot be used, or is of another sweep; if the table cannot be written.
    pub fn open(plan: &Plan, directory: &SweepDir) -> Result<Self, SweepError> {
        let mut ledger = Self::without_table(plan, directory)?;
        ledger.begin_table(plan, directory)?;
        Ok(ledger)
    }

    /// Has the table of runs written along the way from now on, from its beginning.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn begin_table(&mut self, plan: &Plan, directory: &SweepDir) -> Result<(), SweepError> {
        self.table = Some(RunsTable::create(plan, directory.path())?);
        Ok(())
    }

    /// The same without a table of runs.
    ///
    /// # Errors
    ///
    /// If the journal cannot be used, or is of another sweep.
    pub fn without_table(plan: &Plan, directory: &SweepDir) -> Result<Self, JournalError> {
        let mut schedule = Schedule::new(plan);
        let journal = Journal::open(&directory.journal(), &plan.header(), |row, place| {
            let unit = unit_of(plan, row)?;
            schedule.record(unit, place, plan.deciding(row), plan.is_random(unit.cell));
            Ok(())
        })?;
        Ok(Self { journal, schedule, table: None })
    }

    /// Keeps a run, whose line in the journal is `line`. Returns whether its cell is decided.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(super) fn keep(&mut self, plan: &Plan, unit: Unit, row: &Row, line: &Line) -> Result<bool, SweepError> {
        let place = self.journal.append(line)?;
        let decided = self.schedule.record(unit, place, plan.deciding(row), plan.is_random(unit.cell));
        if decided {
            self.write_table(plan, CELLS_AT_A_TIME)?;
        }
        Ok(decided)
    }

    /// Adds to the table the cells that have come into the index, at most so many: others wait for the ledger meanwhile.
    fn write_table(&mut self, plan: &Plan, most: usize) -> Result<(), SweepError> {
        let Some(table) = &mut self.table else { return Ok(()) };
        let index = self.schedule.index();
        for _ in 0..most.min(index.cells() - table.cells()) {
            let runs = index.of(table.cells()).iter().map(|&place| self.journal.read(place));
            table.push(plan, runs)?;
        }
        Ok(())
    }

    /// What is to be run.
    pub(super) const fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.schedule.progress()
    }

    /// Whether every cell has been run often enough.
    pub const fn is_complete(&self) -> bool {
        self.schedule.is_complete()
    }

    /// The runs of a sweep that is complete; the table of runs is whole then. `None` if it is not complete, or `stop` is true before the table
    /// is whole.
    ///
    /// # Errors
    ///
    /// If the table cannot be written.
    pub fn into_runs(mut self, plan: &Plan, stop: &AtomicBool) -> Result<Option<Runs>, SweepError> {
        let is_behind = |ledger: &Self| ledger.table.as_ref().is_some_and(|table| table.cells() < plan.cells());
        while self.is_complete() && is_behind(&self) && !stop.load(Ordering::Relaxed) {
            self.write_table(plan, CELLS_AT_A_TIME)?;
        }
        if !self.is_complete() || is_behind(&self) {
            return Ok(None);
        }
        if let Some(table) = self.table {
            table.finish()?;
        }
        Ok(Some(Runs { journal: self.journal, index: self.schedule.into_index() }))
    }
}

impl Runs {
    /// How many runs count.
    pub const fn len(&self) -> usize {
        self.index.runs()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the runs of a cell that count say, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub fn of(&self, plan: &Plan, cell: usize) -> Result<Vec<Finished>, JournalError> {
        let places = self.index.of(cell).iter();
        places.map(|&place| Ok(plan.reduce(cell, &self.journal.read(place)?))).collect()
    }
}

/// Which run of the plan a row is of.
pub(super) fn unit_of(plan: &Plan, row: &Row) -> Result<Unit, String> {
    let variant = plan.variants.iter().position(|name| *name == row.variant);
    let variant = variant.ok_or_else(|| format!("there is no variant \"{}\"", row.variant))?;
    if row.point >= plan.points() {
        return Err(format!("there is no point {}", row.point));
    }
    if row.seed != plan.seed(row.run) {
        return Err(format!("the seed of run {} is not {}", row.run, row.seed));
    }
    Ok(Unit { cell: plan.index(Cell { point: row.point, variant }), run: row.run })
}
