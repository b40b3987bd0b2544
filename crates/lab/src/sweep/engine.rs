//! Makes the runs of a plan on several threads.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time;

use holdover_scenario::Scenario;

use super::error::SweepError;
use super::family::{self, Scenarios};
use super::finished_runs::FinishedRuns;
use super::journal::Row;
use super::ledger::Ledger;
use super::plan::{Cell, Plan};
use super::runs_table::RunsTable;
use super::schedule::{Progress, Unit};
use super::single::make;
use crate::journal::Line;

/// The end of a sweep.
#[derive(Debug)]
pub enum Outcome {
    /// All runs were made.
    Complete(FinishedRuns),
    /// The sweep was interrupted.
    Interrupted(Progress),
}

/// Makes the runs that the ledger lacks on `jobs` threads. `stop` ends it early and discards the runs in progress. `watch` is called with
/// the progress after each run, by one thread at a time.
///
/// # Errors
///
/// If a finished run cannot be stored.
pub fn run(
    plan: &Plan,
    mut ledger: Ledger,
    jobs: usize,
    stop: &AtomicBool,
    watch: &(dyn Fn(Progress) + Sync),
) -> Result<Outcome, SweepError> {
    let shared = Shared {
        plan,
        jobs: jobs.max(1),
        stop,
        watch,
        decided: (0..plan.cells()).map(|_| AtomicBool::new(false)).collect(),
        failed: AtomicBool::new(false),
        table: Mutex::new(ledger.take_table()),
        most_members: plan.has_families().then(|| family::most_members(plan, jobs)),
        claimed: Mutex::default(),
        state: Mutex::new(State { ledger, error: None }),
    };
    std::thread::scope(|scope| {
        for _ in 0..shared.jobs {
            scope.spawn(|| shared.work());
        }
    });
    // A panic of a worker ends the scope above.
    let table = shared.table.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    match state.error {
        Some(error) => Err(error),
        None => {
            state.ledger.give_table(table);
            let progress = state.ledger.progress();
            let runs = state.ledger.into_runs(plan, stop)?;
            Ok(runs.map_or(Outcome::Interrupted(progress), Outcome::Complete))
        }
    }
}

/// The scenarios that a worker has parsed last: that of a point, or those of a family.
#[derive(Default)]
struct At {
    point: Option<(usize, Scenario)>,
    scenarios: Scenarios,
}

struct Shared<'a> {
    plan: &'a Plan,
    jobs: usize,
    stop: &'a AtomicBool,
    watch: &'a (dyn Fn(Progress) + Sync),
    /// Completed cells, whose further runs do not count.
    decided: Vec<AtomicBool>,
    failed: AtomicBool,
    /// The most runs of a family, if families are made together.
    most_members: Option<usize>,
    /// The runs that a worker makes or has made, where families are made together.
    claimed: Mutex<BTreeSet<(usize, u32)>>,
    /// The table of runs, written by one worker at a time while the others continue. A worker that needs both locks takes this one first.
    table: Mutex<Option<RunsTable>>,
    state: Mutex<State>,
}

struct State {
    ledger: Ledger,
    error: Option<SweepError>,
}

/// The target duration of a worker's batch of runs: short runs are taken in batches, so that workers neither wait for each other nor parse
/// the scenario of a point twice.
const BUSY_FOR: time::Duration = time::Duration::from_millis(20);

/// The maximum size of a batch.
const MOST_AT_A_TIME: usize = 64;

impl Shared<'_> {
    fn work(&self) {
        // A panic ends the other workers at once.
        let _fail = FailAtPanic(&self.failed);
        let mut at = At::default();
        let mut most = 1;
        while !self.is_over() {
            let units = self.take(most);
            if units.is_empty() {
                return;
            }
            let began = time::Instant::now();
            let count = units.len();
            if let Err(error) = units.into_iter().try_for_each(|unit| self.make(unit, &mut at)) {
                self.failed.store(true, Ordering::Relaxed);
                self.state().error.get_or_insert(error);
            }
            let each = began.elapsed().as_secs_f64() / count as f64;
            most = (BUSY_FOR.as_secs_f64() / each.max(1e-9)) as usize;
            most = most.clamp(1, MOST_AT_A_TIME);
        }
    }

    /// Takes the next runs, at most `most`, and leaves enough for the other workers; a run that may turn out to be superfluous only if
    /// there is no other.
    fn take(&self, most: usize) -> Vec<Unit> {
        let mut state = self.state();
        let Progress { done, expected } = state.ledger.progress();
        let most = most.min((expected - done) as usize / (4 * self.jobs)).max(1);
        let schedule = state.ledger.schedule();
        let mut units: Vec<Unit> = std::iter::from_fn(|| schedule.next_wanted()).take(most).collect();
        if units.is_empty() {
            units.extend(schedule.next());
        }
        units
    }

    /// Makes a run and stores it, unless it is no longer needed.
    fn make(&self, unit: Unit, at: &mut At) -> Result<(), SweepError> {
        let unwanted = || self.is_over() || self.decided[unit.cell].load(Ordering::Relaxed);
        if unwanted() {
            return Ok(());
        }
        if let Some(most) = self.most_members {
            let others = self.claim(unit, most);
            if others.first() != Some(&unit) {
                return Ok(());
            }
            let is_over = || self.is_over();
            let mut keep = |unit, row: &Row| self.keep(unit, row);
            return family::make(self.plan, &others, &mut at.scenarios, &is_over, &mut keep).map(drop);
        }
        match make(self.plan, unit, &mut at.point, unwanted)? {
            Some(row) => self.keep(unit, &row),
            None => Ok(()),
        }
    }

    /// Claims a run and those of its family that were neither claimed nor made yet; none if the run was claimed.
    fn claim(&self, unit: Unit, most: usize) -> Vec<Unit> {
        let cell = self.plan.cell(unit.cell);
        let points = family::points_like(self.plan, cell.point, most);
        let of_point = |point| Unit { cell: self.plan.index(Cell { point, ..cell }), run: unit.run };
        let others = points.into_iter().map(of_point).filter(|&other| other != unit);
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        if !claimed.insert((unit.cell, unit.run)) {
            return Vec::new();
        }
        let mut state = self.state();
        let schedule = state.ledger.schedule();
        let is_free = |other: &Unit| !schedule.is_finished(*other) && claimed.insert((other.cell, other.run));
        std::iter::once(unit).chain(others.filter(is_free)).collect()
    }

    fn keep(&self, unit: Unit, row: &Row) -> Result<(), SweepError> {
        let line = Line::new(row).map_err(|error| SweepError::Answer(error.to_string()))?;
        let mut state = self.state();
        if self.is_over() {
            return Ok(());
        }
        let is_decided = state.ledger.keep(self.plan, unit, row, &line)?;
        if is_decided {
            self.decided[unit.cell].store(true, Ordering::Relaxed);
        }
        (self.watch)(state.ledger.progress());
        drop(state);
        if is_decided { self.write_table() } else { Ok(()) }
    }

    /// Writes all completed cells in order to the table, unless another worker is doing so.
    fn write_table(&self) -> Result<(), SweepError> {
        let Ok(mut table) = self.table.try_lock() else { return Ok(()) };
        let Some(table) = table.as_mut() else { return Ok(()) };
        while !self.is_over() {
            let pending = self.state().ledger.pending_cells(table.cells());
            if pending.is_empty() {
                break;
            }
            pending.write(self.plan, table)?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the flag when dropped during a panic.
struct FailAtPanic<'a>(&'a AtomicBool);

impl Drop for FailAtPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
