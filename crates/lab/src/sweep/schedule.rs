//! The schedule of a sweep: the next run, and the completed cells.

use std::collections::{BTreeMap, BTreeSet};

use holdover_scenario::statistics::Mean;

use super::plan::{Plan, Stop};
use crate::journal::Place;

/// A run to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// The index of the cell.
    pub cell: usize,
    /// The number of the replication, from 0.
    pub run: u32,
}

/// The progress of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// Finished runs that count.
    pub done: u64,
    /// The expected total number of runs.
    pub expected: u64,
}

/// The finished and missing runs of each cell.
///
/// Runs are handed out in the order of cells and replications as long as they are certainly or probably needed; other runs only to a worker
/// that would otherwise be idle. Cells are therefore completed nearly in order, and only the cells between the first incomplete and the
/// last started one need more memory than the places of their runs in the journal.
#[derive(Debug)]
pub(super) struct Schedule {
    stop: Stop,
    cells: usize,
    /// Cells started and incomplete.
    active: BTreeMap<usize, CellState>,
    /// Completed cells that are not in the index because an earlier cell is incomplete, with the places of their runs.
    decided: BTreeMap<usize, Box<[Place]>>,
    /// Active cells with a run left to start.
    open: BTreeSet<usize>,
    /// Active cells with a certainly or probably needed run left to start.
    wanted: BTreeSet<usize>,
    /// The first cell not started.
    fresh: usize,
    index: Index,
    undecided: usize,
    /// The counted and the expected runs of the started cells.
    begun: Progress,
    /// The runs of completed cells.
    decided_runs: u64,
}

/// The places in the journal of the counted runs of all cells before the first incomplete one.
#[derive(Debug, Default)]
pub(super) struct Index {
    places: Vec<Place>,
    /// The end of each cell's places.
    ends: Vec<usize>,
}

#[derive(Debug, Default)]
struct CellState {
    finished: BTreeMap<u32, (Place, Option<f64>)>,
    /// The first run not started.
    next: u32,
    /// The number of finished runs without a gap from the first, and their mean.
    prefix: u32,
    mean: Mean,
    expected: u32,
}

impl Index {
    /// The number of cells.
    pub(super) const fn cells(&self) -> usize {
        self.ends.len()
    }

    /// The number of counted runs.
    pub(super) const fn runs(&self) -> usize {
        self.places.len()
    }

    /// The counted runs of a cell, in the order of their numbers.
    pub(super) fn of(&self, cell: usize) -> &[Place] {
        let Some(&end) = self.ends.get(cell) else { return &[] };
        let start = cell.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.places[start..end]
    }

    fn push(&mut self, places: &[Place]) {
        self.places.extend_from_slice(places);
        self.ends.push(self.places.len());
    }
}

impl Schedule {
    /// Creates the schedule of `plan` without finished runs.
    pub(super) fn new(plan: &Plan) -> Self {
        Self::of_cells(plan.cells(), plan.stop)
    }

    fn of_cells(cells: usize, stop: Stop) -> Self {
        Self {
            stop,
            cells,
            active: BTreeMap::new(),
            decided: BTreeMap::new(),
            open: BTreeSet::new(),
            wanted: BTreeSet::new(),
            fresh: 0,
            index: Index::default(),
            undecided: cells,
            begun: Progress::default(),
            decided_runs: 0,
        }
    }

    /// The next run to make; `None` if all possibly needed runs are finished or in progress.
    pub(super) fn next(&mut self) -> Option<Unit> {
        self.next_wanted().or_else(|| self.open.first().copied().map(|cell| self.begin(cell)))
    }

    /// The next run that is certainly or probably needed; `None` if all of these are finished or in progress.
    pub(super) fn next_wanted(&mut self) -> Option<Unit> {
        let fresh = (self.fresh < self.cells).then_some(self.fresh);
        let cell = self.wanted.first().copied().into_iter().chain(fresh).min()?;
        Some(self.begin(cell))
    }

    fn begin(&mut self, cell: usize) -> Unit {
        let stop = self.stop;
        let state = self.state(cell);
        let run = state.next;
        state.skip_to_next(stop);
        self.note(cell);
        Unit { cell, run }
    }

    /// The state of an incomplete cell, which is started if it was not.
    fn state(&mut self, cell: usize) -> &mut CellState {
        let expected = self.stop.min;
        if !self.active.contains_key(&cell) {
            self.begun.expected += u64::from(expected);
        }
        self.active.entry(cell).or_insert_with(|| CellState { expected, ..CellState::default() })
    }

    /// Updates the sets of a cell: whether one of its runs can be started, and whether one is wanted.
    fn note(&mut self, cell: usize) {
        let state = self.active.get(&cell);
        let is_open = state.is_some_and(|state| state.next < self.stop.max);
        let is_wanted = state.is_some_and(|state| is_open && state.next < state.expected);
        for (cells, belongs) in [(&mut self.open, is_open), (&mut self.wanted, is_wanted)] {
            if belongs {
                cells.insert(cell);
            } else {
                cells.remove(&cell);
            }
        }
        while self.is_begun(self.fresh) {
            self.fresh += 1;
        }
    }

    fn is_begun(&self, cell: usize) -> bool {
        cell < self.index.cells() || self.active.contains_key(&cell) || self.decided.contains_key(&cell)
    }

    /// Records a finished run with its value of the deciding quantity; `is_random` states whether the cell's runs contain randomness.
    /// Returns whether the cell is complete.
    pub(super) fn record(&mut self, unit: Unit, place: Place, value: Option<f64>, is_random: bool) -> bool {
        if unit.cell < self.index.cells() || self.decided.contains_key(&unit.cell) {
            return true;
        }
        let stop = self.stop;
        let state = self.state(unit.cell);
        let before = state.counted();
        if unit.run < stop.max && !state.finished.contains_key(&unit.run) {
            state.finished.insert(unit.run, (place, value));
            if unit.run == state.next {
                state.skip_to_next(stop);
            }
        }
        let is_decided = state.advance(stop, is_random);
        let mut after = state.counted();
        if is_decided {
            after.expected = after.done;
            let places: Box<[Place]> = state.finished.values().map(|(place, _)| *place).collect();
            self.active.remove(&unit.cell);
            self.decided.insert(unit.cell, places);
            self.undecided -= 1;
            self.decided_runs += after.done;
            self.settle();
        }
        self.begun.done = self.begun.done + after.done - before.done;
        self.begun.expected = self.begun.expected + after.expected - before.expected;
        self.note(unit.cell);
        is_decided
    }

    /// Whether a run is recorded, or its cell complete without it.
    pub(super) fn is_finished(&self, unit: Unit) -> bool {
        let is_recorded = |state: &CellState| state.finished.contains_key(&unit.run);
        unit.cell < self.index.cells()
            || self.decided.contains_key(&unit.cell)
            || self.active.get(&unit.cell).is_some_and(is_recorded)
    }

    /// Moves completed cells, up to the first incomplete one, into the index.
    fn settle(&mut self) {
        while let Some(places) = self.decided.remove(&self.index.cells()) {
            self.index.push(&places);
        }
    }

    /// The progress. Cells not started are expected to need as many runs as completed ones.
    pub(super) fn progress(&self) -> Progress {
        let decided = self.cells - self.undecided;
        let each = if decided == 0 { f64::from(self.stop.min) } else { self.decided_runs as f64 / decided as f64 };
        let not_begun = self.undecided - self.active.len();
        let expected = self.begun.expected + (not_begun as f64 * each).ceil() as u64;
        Progress { expected, ..self.begun }
    }

    /// Whether every cell is complete.
    pub(super) const fn is_complete(&self) -> bool {
        self.undecided == 0
    }

    /// The counted runs of all cells before the first incomplete one.
    pub(super) const fn index(&self) -> &Index {
        &self.index
    }

    /// Converts into the index once the sweep is complete.
    pub(super) fn into_index(self) -> Index {
        self.index
    }
}

impl CellState {
    /// Advances `next` to the following run that has not been started.
    fn skip_to_next(&mut self, stop: Stop) {
        self.next += 1;
        while self.next < stop.max && self.finished.contains_key(&self.next) {
            self.next += 1;
        }
    }

    /// Processes finished runs without gaps in order, until the stopping rule is met. Returns whether it is; later runs are then discarded.
    fn advance(&mut self, stop: Stop, is_random: bool) -> bool {
        while let Some((_, value)) = self.finished.get(&self.prefix) {
            if let Some(value) = *value {
                self.mean.push(value);
            }
            self.prefix += 1;
            if stop.is_met(self.prefix, &self.mean, is_random) {
                let _beyond = self.finished.split_off(&self.prefix);
                return true;
            }
        }
        self.expected = stop.expected(self.prefix, &self.mean, is_random);
        false
    }

    fn counted(&self) -> Progress {
        let finished = self.finished.len() as u64;
        Progress { done: finished, expected: u64::from(self.expected).max(finished) }
    }
}

#[cfg(test)]
mod tests {
    use holdover_base::Rng;

    use super::*;

    /// With any order of completion, and with some runs present from the start, each cell ends up with the same runs in order, and a single
    /// worker has at most one cell in progress.
    // Claim: With any order of completion and any runs from before, each cell has the same runs. With one worker, at most one
    // cell at a time has more in memory than the offsets of its runs in the journal; where axes vary outages, up to 256 cells of
    // each variant.
    #[test]
    fn the_index_has_the_same_runs_in_whatever_order_they_end() {
        let stop = Stop { min: 3, max: 9, relative_error: Some(0.05) };
        let value = |unit: Unit| {
            let mut rng = Rng::split(7, &format!("{} {}", unit.cell, unit.run));
            Some(10.0 + rng.next_f64() * if unit.cell.is_multiple_of(3) { 0.1 } else { 3.0 })
        };
        let place = |unit: Unit| Place(unit.cell as u64 * 100 + u64::from(unit.run));
        let ended = |seed: u64, workers: usize, before: usize| {
            let mut rng = Rng::new(seed);
            let mut schedule = Schedule::of_cells(200, stop);
            for _ in 0..before {
                let unit = Unit { cell: rng.below(200) as usize, run: rng.below(9) as u32 };
                schedule.record(unit, place(unit), value(unit), true);
            }
            let mut under_way = Vec::new();
            let mut most = 0;
            while !schedule.is_complete() {
                while under_way.len() < workers
                    && let Some(unit) = schedule.next()
                {
                    under_way.push(unit);
                }
                let unit = under_way.swap_remove(rng.below(under_way.len() as u64) as usize);
                schedule.record(unit, place(unit), value(unit), true);
                most = most.max(schedule.active.len() + schedule.decided.len());
            }
            assert_eq!(schedule.progress().done, schedule.progress().expected);
            assert_eq!(schedule.progress().done, schedule.index().runs() as u64);
            let index = schedule.into_index();
            ((0..200).map(|cell| index.of(cell).to_vec()).collect::<Vec<_>>(), most)
        };
        let (alone, most) = ended(1, 1, 0);
        assert_eq!(most, 1, "one worker has one cell under way");
        assert!(alone.iter().any(|places| places.len() == 3) && alone.iter().any(|places| places.len() > 3));
        for (seed, workers, before) in [(2, 2, 0), (3, 16, 0), (4, 5, 300), (5, 1, 1500)] {
            assert_eq!(ended(seed, workers, before).0, alone);
        }
    }

    #[test]
    fn cells_to_come_are_expected_to_take_what_the_others_took() {
        let mut schedule = Schedule::of_cells(10, Stop { min: 2, max: 50, relative_error: Some(0.01) });
        assert_eq!(schedule.progress(), Progress { done: 0, expected: 20 });
        while schedule.index().cells() < 2 {
            let unit = schedule.next().expect("cells to come");
            let value = 1.0 + f64::from(unit.run % 2);
            schedule.record(unit, Place(0), Some(value), true);
        }
        assert_eq!(schedule.progress(), Progress { done: 100, expected: 500 });
    }
}
