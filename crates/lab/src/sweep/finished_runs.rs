//! Runs in the journal: those of a complete sweep, and those of a cell.

use super::journal::Row;
use super::plan::{Cell, Finished, Plan};
use super::schedule::{Index, Unit};
use crate::journal::{Journal, JournalError, Lines, Place};

/// The runs of a complete sweep.
#[derive(Debug)]
pub struct FinishedRuns {
    pub(super) journal: Journal,
    pub(super) index: Index,
}

impl FinishedRuns {
    /// The number of counted runs.
    pub const fn len(&self) -> usize {
        self.index.runs()
    }

    /// Whether there are no counted runs.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counted runs of a cell, reduced, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub fn of(&self, plan: &Plan, cell: usize) -> Result<Vec<Finished>, JournalError> {
        let runs = read_cell(plan, self.journal.lines(), cell, self.index.of(cell));
        runs.map(|row| Ok(plan.reduce(cell, &row?))).collect()
    }
}

/// The runs of a cell, in the order of their numbers.
pub(super) fn read_cell<'a>(
    plan: &'a Plan,
    lines: &'a Lines,
    cell: usize,
    places: &'a [Place],
) -> impl Iterator<Item = Result<Row, JournalError>> + 'a {
    (0..).zip(places).map(move |(run, &place)| {
        let asked = Unit { cell, run };
        lines.read(place, |row| match unit_of(plan, row)? {
            unit if unit == asked => Ok(()),
            _ => Err(format!("it is of another run, number {} of {} at point {}", row.run, row.variant, row.point)),
        })
    })
}

/// The run of the plan that a row belongs to.
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
