//! Runs what a plan needs, on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use holdover_base::{Duration, Instant};
use holdover_report::FlowMetrics;
use holdover_scenario::{Scenario, ScenarioError};
use holdover_sim::{Ending, NoObserver, World, WorldConfig, WorldError};

use super::journal::{Journal, JournalError, Row};
use super::plan::{Finished, Plan};
use super::schedule::{Progress, Schedule, Unit};

/// How a run is called in the journal that ended because every flow came to its end.
pub(super) const ALL_DONE: &str = "all-done";

/// Why a sweep ended early.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A finished run could not be kept.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// A scenario that was checked before the first run could not be built.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    /// The same of a world.
    #[error("{0}")]
    World(#[from] WorldError),
    /// Another process has made something else than the run that it was asked for.
    #[error(
        "a worker's answer is not the run that it was asked for: {0}; all workers need the version of Holdover that the sweep was begun with"
    )]
    Answer(String),
}

/// How a sweep ended.
#[derive(Debug)]
pub enum Outcome {
    /// Everything has been run: for each cell of the plan, the runs that count.
    Complete(Vec<Vec<Finished>>),
    /// It was asked to stop.
    Interrupted(Progress),
}

/// Opens the journal: what is in it need not be run again.
pub fn open_journal(plan: &Plan, path: &std::path::Path) -> Result<(Journal, Schedule), JournalError> {
    let mut schedule = Schedule::new(plan);
    let journal = Journal::open(path, &plan.header(), |row| {
        let unit = unit_of(plan, &row)?;
        schedule.record(unit, plan.reduce(&row));
        Ok(())
    })?;
    Ok((journal, schedule))
}

/// Which run of the plan a row is of.
pub(super) fn unit_of(plan: &Plan, row: &Row) -> Result<Unit, String> {
    let variant = plan.variants.iter().position(|name| *name == row.variant);
    let variant = variant.ok_or_else(|| format!("there is no variant \"{}\"", row.variant))?;
    if row.point >= plan.points.len() {
        return Err(format!("there is no point {}", row.point));
    }
    if row.seed != plan.seed(row.run) {
        return Err(format!("the seed of run {} is not {}", row.run, row.seed));
    }
    Ok(Unit { cell: plan.index(super::plan::Cell { point: row.point, variant }), run: row.run })
}

/// Runs on `jobs` threads what is left of `schedule`. `stop` ends it early, at the loss of the runs under way. `watch` is told
/// after each run how far it has come.
pub fn run(
    plan: &Plan,
    journal: Journal,
    schedule: Schedule,
    jobs: usize,
    stop: &AtomicBool,
    watch: &(dyn Fn(Progress) + Sync),
) -> Result<Outcome, SweepError> {
    let shared = Shared {
        plan,
        stop,
        watch,
        decided: (0..plan.cells()).map(|_| AtomicBool::new(false)).collect(),
        failed: AtomicBool::new(false),
        state: Mutex::new(State { journal, schedule, error: None }),
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| shared.work());
        }
    });
    // A worker that panics ends the scope above.
    let state = shared.state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    match state.error {
        Some(error) => Err(error),
        None if state.schedule.is_complete() => Ok(Outcome::Complete(state.schedule.into_runs())),
        None => Ok(Outcome::Interrupted(state.schedule.progress())),
    }
}

/// Makes one run; `None` if it becomes unwanted on the way. `at` is the point of the caller's last run, and its scenario: it is kept from run
/// to run, because a scenario is read anew for each point.
///
/// # Errors
///
/// None that [`Plan::new`] has not found already.
pub fn make(
    plan: &Plan,
    unit: Unit,
    at: &mut Option<(usize, Scenario)>,
    unwanted: impl Fn() -> bool,
) -> Result<Option<Row>, SweepError> {
    let cell = plan.cell(unit.cell);
    let scenario = match at.take() {
        Some((point, scenario)) if point == cell.point => scenario,
        _ => plan.scenario.at(&plan.points[cell.point])?,
    };
    let world = plan.world(&scenario, cell.variant, unit.run)?;
    *at = Some((cell.point, scenario));
    let Some((world, ending)) = simulate(world, unwanted)? else { return Ok(None) };
    Ok(Some(Row {
        point: cell.point,
        variant: plan.variants[cell.variant].clone(),
        run: unit.run,
        seed: world.config().seed,
        ending: ending.to_owned(),
        ended_at_s: world.now().as_secs_f64(),
        flows: FlowMetrics::of_world(&world),
    }))
}

struct Shared<'a> {
    plan: &'a Plan,
    stop: &'a AtomicBool,
    watch: &'a (dyn Fn(Progress) + Sync),
    /// Cells of which no more runs count.
    decided: Vec<AtomicBool>,
    failed: AtomicBool,
    state: Mutex<State>,
}

struct State {
    journal: Journal,
    schedule: Schedule,
    error: Option<SweepError>,
}

impl Shared<'_> {
    fn work(&self) {
        let mut at = None;
        while !self.is_over() {
            let Some(unit) = self.state().schedule.next() else { return };
            let ended = match self.row(unit, &mut at) {
                Ok(Some(row)) => self.keep(unit, &row),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                self.failed.store(true, Ordering::Relaxed);
                self.state().error.get_or_insert(error);
            }
        }
    }

    /// Makes a run; `None` if nobody wants it any more. `at` is the point that this worker was at, and its scenario.
    fn row(&self, unit: Unit, at: &mut Option<(usize, Scenario)>) -> Result<Option<Row>, SweepError> {
        let unwanted = || self.is_over() || self.decided[unit.cell].load(Ordering::Relaxed);
        make(self.plan, unit, at, unwanted)
    }

    fn keep(&self, unit: Unit, row: &Row) -> Result<(), SweepError> {
        let finished = self.plan.reduce(row);
        let mut state = self.state();
        if self.is_over() {
            return Ok(());
        }
        state.journal.append(row)?;
        if state.schedule.record(unit, finished) {
            self.decided[unit.cell].store(true, Ordering::Relaxed);
        }
        (self.watch)(state.schedule.progress());
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Runs a world to its end, unless it becomes unwanted on the way.
fn simulate(config: WorldConfig, unwanted: impl Fn() -> bool) -> Result<Option<(World, &'static str)>, WorldError> {
    const STEP: Duration = Duration::from_secs(1);
    let limit = config.time_limit;
    let mut world = World::new(config)?;
    let mut until = Instant::ZERO;
    loop {
        until = if limit.saturating_since(until) > STEP { until + STEP } else { limit };
        // The time limit itself may have events; the last step is the one that runs to the end.
        let ending =
            if until < limit { world.run_to(until, &mut NoObserver) } else { Some(world.run(&mut NoObserver)) };
        match ending {
            Some(ending) => return Ok(Some((world, name(ending)))),
            None if unwanted() => return Ok(None),
            None => {}
        }
    }
}

const fn name(ending: Ending) -> &'static str {
    match ending {
        Ending::AllDone => ALL_DONE,
        Ending::TimeLimit => "time-limit",
        Ending::Idle => "idle",
    }
}
