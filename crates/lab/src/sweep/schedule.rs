//! Which run comes next, and which cells are finished.

use std::collections::{BTreeMap, BTreeSet};

use holdover_scenario::statistics::Mean;

use super::plan::{Finished, Plan, Stop};

/// A run to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// The number of the cell.
    pub cell: usize,
    /// The number of the replication, from 0.
    pub run: u32,
}

/// How far a sweep has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// Runs that are finished and count.
    pub done: u64,
    /// Runs that will have been made in the end, as far as that is known.
    pub expected: u64,
}

/// What has been run of each cell and what has not.
///
/// Runs are handed out in the order of cells and replications as long as they are surely or probably needed. Only a worker
/// that would have nothing to do otherwise goes beyond that.
#[derive(Debug)]
pub struct Schedule {
    stop: Stop,
    cells: Vec<CellState>,
    /// Cells that are not decided and of which a run can be begun.
    open: BTreeSet<usize>,
    undecided: usize,
    progress: Progress,
}

#[derive(Debug, Default)]
struct CellState {
    finished: BTreeMap<u32, Finished>,
    /// The first run that has not been begun.
    next: u32,
    /// So many runs from the first are finished without a gap, and their mean.
    prefix: u32,
    mean: Mean,
    expected: u32,
    /// How many runs count, once that is known.
    decided: Option<u32>,
}

impl Schedule {
    /// Nothing of `plan` has been run.
    pub fn new(plan: &Plan) -> Self {
        let cell = || CellState { expected: plan.stop.min, ..CellState::default() };
        let cells: Vec<CellState> = (0..plan.cells()).map(|_| cell()).collect();
        let expected = cells.iter().map(|cell| u64::from(cell.expected)).sum();
        Self {
            stop: plan.stop,
            open: (0..cells.len()).collect(),
            undecided: cells.len(),
            cells,
            progress: Progress { done: 0, expected },
        }
    }

    /// The run to make next; `None` if all that may be needed are finished or under way.
    pub fn next(&mut self) -> Option<Unit> {
        self.next_wanted().or_else(|| self.open.first().copied().map(|cell| self.begin(cell)))
    }

    /// The next run that is surely or probably needed; `None` if all of these are finished or under way.
    pub fn next_wanted(&mut self) -> Option<Unit> {
        let wanted = |&&cell: &&usize| self.cells[cell].next < self.cells[cell].expected;
        let cell = *self.open.iter().find(wanted)?;
        Some(self.begin(cell))
    }

    fn begin(&mut self, cell: usize) -> Unit {
        let state = &mut self.cells[cell];
        let run = state.next;
        state.skip_to_next(self.stop);
        if state.next >= self.stop.max {
            self.open.remove(&cell);
        }
        Unit { cell, run }
    }

    /// A run is finished. Returns whether its cell is decided.
    pub fn record(&mut self, unit: Unit, finished: Finished) -> bool {
        let state = &mut self.cells[unit.cell];
        if state.decided.is_some() || unit.run >= self.stop.max || state.finished.contains_key(&unit.run) {
            return state.decided.is_some();
        }
        let before = state.counted();
        state.finished.insert(unit.run, finished);
        if unit.run == state.next {
            state.skip_to_next(self.stop);
        }
        state.advance(self.stop);
        let after = state.counted();
        self.progress.done = self.progress.done + after.done - before.done;
        self.progress.expected = self.progress.expected + after.expected - before.expected;
        let decided = state.decided.is_some();
        if decided {
            self.undecided -= 1;
        }
        if decided || state.next >= self.stop.max {
            self.open.remove(&unit.cell);
        }
        decided
    }

    /// How far it has come.
    pub const fn progress(&self) -> Progress {
        self.progress
    }

    /// Whether every cell has been run often enough.
    pub const fn is_complete(&self) -> bool {
        self.undecided == 0
    }

    /// The runs of each cell that count, in the order of their numbers.
    pub fn into_runs(self) -> Vec<Vec<Finished>> {
        self.cells.into_iter().map(|cell| cell.finished.into_values().collect()).collect()
    }
}

impl CellState {
    /// Puts `next` on the first run after it that has not been begun.
    fn skip_to_next(&mut self, stop: Stop) {
        self.next += 1;
        while self.next < stop.max && self.finished.contains_key(&self.next) {
            self.next += 1;
        }
    }

    /// Takes the runs into account that have no gap before them any more, one after the other: the first number of runs that
    /// is enough is where the cell ends.
    fn advance(&mut self, stop: Stop) {
        while let Some(run) = self.finished.get(&self.prefix) {
            if let Some(value) = run.values.first().copied().flatten() {
                self.mean.push(value);
            }
            self.prefix += 1;
            if stop.is_met(self.prefix, &self.mean) {
                self.decided = Some(self.prefix);
                let _beyond = self.finished.split_off(&self.prefix);
                return;
            }
        }
        self.expected = stop.expected(self.prefix, &self.mean);
    }

    fn counted(&self) -> Progress {
        let finished = self.finished.len() as u64;
        let expected = self.decided.map_or_else(|| u64::from(self.expected).max(finished), u64::from);
        Progress { done: finished, expected }
    }
}
