//! Makes a single run, and reduces it to a row of the journal.

use holdover_base::Duration;
use holdover_report::FlowMetrics;
use holdover_scenario::Scenario;
use holdover_sim::{Ending, World};

use super::error::SweepError;
use super::journal::{LinkTraffic, RouterState, Row};
use super::plan::Plan;
use super::schedule::Unit;

/// Makes one run; `None` if it becomes unwanted meanwhile. `at` caches the point of the caller's last run and its scenario, because a
/// scenario is parsed again for each point.
///
/// # Errors
///
/// Only errors that [`Plan::new`] reports already.
pub(crate) fn make(
    plan: &Plan,
    unit: Unit,
    at: &mut Option<(usize, Scenario)>,
    unwanted: impl Fn() -> bool,
) -> Result<Option<Row>, SweepError> {
    let cell = plan.cell(unit.cell);
    let scenario = match at.take() {
        Some((point, scenario)) if point == cell.point => scenario,
        _ => plan.scenario.at(&plan.point(cell.point))?,
    };
    let world = plan.world(&scenario, cell.variant, unit.run)?;
    *at = Some((cell.point, scenario));
    let mut world = World::new(world)?;
    Ok(run_to_end(&mut world, unwanted).map(|ending| row_of(plan, unit, &world, ending)))
}

/// The row of a run that has ended.
pub(super) fn row_of(plan: &Plan, unit: Unit, world: &World, ending: Ending) -> Row {
    let cell = plan.cell(unit.cell);
    Row {
        point: cell.point,
        variant: plan.variants[cell.variant].clone(),
        run: unit.run,
        seed: world.config().seed,
        ending: name(ending).to_owned(),
        ended_at_s: world.now().as_secs_f64(),
        flows: FlowMetrics::of_world(world),
        links: LinkTraffic::of_world(world),
        routers: RouterState::of_world(world),
    }
}

/// Runs a world to its end, unless it becomes unwanted meanwhile.
pub(super) fn run_to_end(world: &mut World, unwanted: impl Fn() -> bool) -> Option<Ending> {
    const STEP: Duration = Duration::from_secs(1);
    let limit = world.config().time_limit;
    let mut until = world.now();
    loop {
        until = if limit.saturating_since(until) > STEP { until + STEP } else { limit };
        // The time limit itself may have events, so the last step runs to the end.
        let ending = world.advance_to(until).or_else(|| (until >= limit).then_some(Ending::TimeLimit));
        match ending {
            Some(ending) => return Some(ending),
            None if unwanted() => return None,
            None => {}
        }
    }
}

/// The name of an ending in the journal.
const fn name(ending: Ending) -> &'static str {
    match ending {
        Ending::AllDone => "all-done",
        Ending::TimeLimit => "time-limit",
        Ending::Idle => "idle",
    }
}
