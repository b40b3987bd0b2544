//! What has been run of a sweep: kept in the journal as each run ends, and put into the table of runs in the order of the cells.

use super::directory::{DirectoryError, SweepDir};
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

/// The runs of a sweep that is complete.
#[derive(Debug)]
pub struct Runs {
    journal: Journal,
    index: Index,
}

impl Ledger {
    /// The ledger of the sweep of `plan` in `directory`, begun or gone on with. The [table of runs](RunsTable) is written along the way.
    ///
    /// # Errors
    ///
    /// If the journal cannot be used, or is of another sweep; if the table cannot be written.
    pub fn open(plan: &Plan, directory: &SweepDir) -> Result<Self, SweepError> {
        let mut ledger = Self::without_table(plan, directory)?;
        ledger.table = Some(RunsTable::create(plan, directory.path()).map_err(DirectoryError::from)?);
        ledger.write_table(plan)?;
        Ok(ledger)
    }

    /// The same without a table of runs.
    ///
    /// # Errors
    ///
    /// If the journal cannot be used, or is of another sweep.
    pub fn without_table(plan: &Plan, directory: &SweepDir) -> Result<Self, JournalError> {
        let mut schedule = Schedule::new(plan);
        let journal = Journal::open(&directory.journal(), &plan.header(), |row, place| {
            schedule.record(unit_of(plan, row)?, place, plan.deciding(row));
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
        let decided = self.schedule.record(unit, place, plan.deciding(row));
        if decided {
            self.write_table(plan)?;
        }
        Ok(decided)
    }

    /// Adds to the table the cells that have come into the index.
    fn write_table(&mut self, plan: &Plan) -> Result<(), SweepError> {
        let Some(table) = &mut self.table else { return Ok(()) };
        while table.cells() < self.schedule.index().cells() {
            let places = self.schedule.index().of(table.cells());
            let rows = places.iter().map(|&place| self.journal.read(place)).collect::<Result<Vec<Row>, _>>()?;
            table.push(plan, &rows).map_err(DirectoryError::from)?;
        }
        Ok(())
    }

    /// What is to be run.
    pub(super) const fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }

    /// How far it has come.
    pub const fn progress(&self) -> Progress {
        self.schedule.progress()
    }

    /// Whether every cell has been run often enough.
    pub const fn is_complete(&self) -> bool {
        self.schedule.is_complete()
    }

    /// The runs of a sweep that is complete. The table of runs is whole then.
    ///
    /// # Errors
    ///
    /// If the table cannot be written.
    pub fn into_runs(self) -> Result<Runs, SweepError> {
        if let Some(table) = self.table {
            table.finish().map_err(DirectoryError::from)?;
        }
        Ok(Runs { journal: self.journal, index: self.schedule.into_index() })
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
