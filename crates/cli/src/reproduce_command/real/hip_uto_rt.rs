//! `holdover reproduce hip-uto-rt --real`: a sample of the paper's single disconnections (figures 10 to 12), and its periodic ones (figure
//! 13), between kernels, with daemons of `holdover hip`, beside the simulator's and the printed results.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use holdover_base::ByteCount;
use holdover_conformance::moves::disconnections::{
    Cell, DisconnectionsGrid, NetTime, Repeat, Transferred, Transfers, published_amount,
};
use holdover_conformance::{Grid as _, GridOptions, GridReport as _};
use holdover_lab::reproduce::catalogue::{Catalogue, CatalogueError};
use holdover_report::{FlowMetrics, StatusName};
use holdover_scenario::{Override, Scenario, ScenarioError};
use holdover_sim::{World, WorldError};

use super::{ReproduceArgs, TransferArgs};
use crate::command_support::{print, print_error, print_json, scratch_directory, with_causes};
use crate::conformance::{kept, measured, no_name_has, watch_for_signals};

/// The paper.
pub(super) const PAPER: &str = "hip-uto-rt";
/// The scenario of its single disconnections. That of the periodic ones differs in the outages and the amount alone, and has no variant with
/// the user timeout.
const SCENARIO: &str = "grid";
/// More disconnections than a transfer has within [`TIME_LIMIT`].
const MANY: i64 = 1000;
/// That of the scenario with periodic disconnections.
const TIME_LIMIT: &str = "3 h";
/// The defaults of `--runs` and `--amount`.
const RUNS: u16 = 3;
const AMOUNT: ByteCount = ByteCount(160_000_000);

/// The paper's scenario could not be simulated.
#[derive(Debug, thiserror::Error)]
enum SimulationError {
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    World(#[from] WorldError),
    /// An entry that the paper's files should have.
    #[error("{PAPER} has no {0}")]
    Missing(String),
}

/// Measures and prints it. Fails if a run could not be made.
pub(super) fn run(args: &ReproduceArgs) -> ExitCode {
    measure(args).unwrap_or_else(|code| code)
}

fn measure(args: &ReproduceArgs) -> Result<ExitCode, ExitCode> {
    let TransferArgs { amount, only, journal } = &args.transfers;
    let runs = u32::from(args.runs.unwrap_or(RUNS));
    watch_for_signals(kept(journal.as_deref(), &[]))?;
    let failed = |error: SimulationError| {
        print_error(&with_causes(&error));
        ExitCode::FAILURE
    };
    let mut grid = DisconnectionsGrid {
        holdover: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("holdover")),
        directory: scratch_directory,
        amount: amount.unwrap_or(AMOUNT),
        paper: paper().map_err(failed)?,
        simulated: Transfers::new(),
        simulated_in_full: Transfers::new(),
    };
    let (only, journal) = (only.clone(), journal.clone());
    let options = GridOptions { only, repeat: runs, jobs: args.jobs, journal, ..DisconnectionsGrid::options() };
    let cells = grid.places(&options);
    if cells.is_empty() {
        return Err(no_name_has("transfer", options.only.as_deref()));
    }
    let is_shortened = |cell: &&Cell| cell.amount != published_amount(cell.cuts.repeat);
    let in_full = |cell: &Cell| Cell { amount: published_amount(Repeat::Periodic), ..*cell };
    let full: Vec<Cell> = cells.iter().filter(is_shortened).map(in_full).collect();
    grid.simulated = simulate(&grid.paper, &cells, runs).map_err(failed)?;
    // Only for claims, which are judged with all cells.
    if options.only.is_none() {
        grid.simulated_in_full = simulate(&grid.paper, &full, runs).map_err(failed)?;
    }
    let report = measured(&grid, &options, &cells)?;
    let printed = if args.json { print_json(&report) } else { print(&report.markdown()) };
    Ok(if report.is_sound() { printed } else { ExitCode::FAILURE })
}

fn paper() -> Result<Catalogue, SimulationError> {
    let paper = Catalogue::all(None)?.into_iter().find(|paper| paper.name == PAPER);
    paper.ok_or_else(|| SimulationError::Missing("catalogue".to_owned()))
}

/// The cells in the simulator, at the setting at which the paper's page judges claims, on all cores.
fn simulate(paper: &Catalogue, cells: &[Cell], runs: u32) -> Result<Transfers, SimulationError> {
    let fitted = paper.fitted.as_ref().map(|fitted| fitted.setting.overrides(&paper.inputs, SCENARIO));
    let scenario = paper.scenario(SCENARIO)?.with(&fitted.unwrap_or_default())?;
    let (next, simulated) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let transfers = simulate_cell(&scenario, cell, runs);
                    simulated.lock().unwrap_or_else(PoisonError::into_inner).insert(cell, transfers);
                }
            });
        }
    });
    let simulated = simulated.into_inner().unwrap_or_else(PoisonError::into_inner);
    simulated.into_iter().map(|(cell, transfers)| Ok((cell, transfers?))).collect()
}

fn simulate_cell(scenario: &Scenario, cell: Cell, runs: u32) -> Result<Vec<Transferred>, SimulationError> {
    let outage = |field: &str| format!("link.first.outages.{field}");
    let count = if cell.cuts.repeat == Repeat::Once { 1 } else { MANY };
    let scenario = scenario.with(&[
        Override::new(outage("connected"), format!("{} s", cell.cuts.connected_s)),
        Override::new(outage("disconnected"), format!("{} s", cell.cuts.disconnected_s)),
        Override::new(outage("count"), count),
        Override::new("flow.transfer.bulk", cell.amount.to_string()),
        Override::new("time_limit", TIME_LIMIT),
    ])?;
    let missing = |what: &str| SimulationError::Missing(format!("{what} for {cell}"));
    let variant = scenario.variants().iter().find(|variant| variant.name() == cell.variant.name());
    let variant = variant.ok_or_else(|| missing("variant"))?;
    let transfer = |run| {
        let mut world = World::new(variant.world(scenario.replication_seed(run))?)?;
        world.advance_to(world.config().time_limit);
        let flow = FlowMetrics::of_world(&world).into_iter().next().ok_or_else(|| missing("flow"))?;
        let net_time = match flow.status {
            StatusName::Completed => NetTime::Completed(flow.net_duration_s),
            StatusName::Failed => NetTime::Aborted,
            StatusName::Unfinished => NetTime::Unfinished,
        };
        Ok(Transferred { net_time, idle_s: flow.idle_times_s().collect() })
    };
    (0..runs).map(transfer).collect()
}

#[cfg(test)]
mod tests {
    use holdover_conformance::moves::disconnections::{Cuts, Variant};

    use super::*;

    fn simulated(cuts: Cuts, amount: ByteCount) -> [NetTime; 3] {
        let cells = Variant::ALL.map(|variant| Cell { cuts, amount, variant });
        let simulated = simulate(&paper().unwrap(), &cells, 1).unwrap();
        cells.map(|cell| simulated[&cell][0].net_time)
    }

    fn is_within(net_time: NetTime, least: f64, most: f64) -> bool {
        net_time.seconds().is_some_and(|seconds| (least..most).contains(&seconds))
    }

    /// As on the paper's page: with the trigger the net time is flat; standard TCP waits for its timer, or aborts.
    #[test]
    fn the_simulators_net_times_are_those_of_the_papers_page() {
        let amount = published_amount(Repeat::Once);
        let [short, long] = [26, 208].map(|disconnected_s| simulated(Cuts::once(disconnected_s), amount));
        assert!(is_within(short[2], 24.0, 27.0) && is_within(long[2], 24.0, 27.0), "{short:?}, {long:?}");
        assert!(is_within(short[0], 28.0, 60.0) && is_within(short[1], 28.0, 60.0), "{short:?}");
        assert!(long[0] == NetTime::Aborted && is_within(long[1], 28.0, 145.0), "{long:?}");
    }

    /// Those of the page's figure 13, which has another scenario: 585.9 and 549.3 s.
    #[test]
    fn periodic_disconnections_are_those_of_the_papers_scenario() {
        let net_times = simulated(Cuts::periodic(67, 37), published_amount(Repeat::Periodic));
        assert!(is_within(net_times[0], 575.0, 597.0), "{net_times:?}");
        assert!(is_within(net_times[2], 546.0, 552.0), "{net_times:?}");
    }
}
