//! `holdover reproduce hip-uto-rt --real`: a sample of the paper's disconnections (figures 10 to 12) between kernels, with daemons of
//! `holdover hip`, beside the simulator's and the printed net times.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use holdover_conformance::moves::disconnections::{CONNECTED, Cell, DisconnectionsGrid, NetTime};
use holdover_conformance::{GridReport as _, measure};
use holdover_lab::reproduce::catalogue::{Catalogue, CatalogueError};
use holdover_report::{FlowMetrics, StatusName};
use holdover_scenario::{Override, Scenario, ScenarioError};
use holdover_sim::{World, WorldError};

use crate::command_support::{exit_on_signals, print, print_error, print_json, scratch_directory, with_causes};
use crate::conformance::{Bar, about};

/// The paper.
pub(super) const PAPER: &str = "hip-uto-rt";
/// The scenario of its single disconnections.
const SCENARIO: &str = "grid";

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
pub(super) fn run(json: bool) -> ExitCode {
    if let Err(error) = exit_on_signals("nothing was kept".to_owned()) {
        print_error(&format_args!("cannot watch for Ctrl-C: {error}"));
        return ExitCode::FAILURE;
    }
    let cells = DisconnectionsGrid::cells();
    let simulated = match simulate(&cells) {
        Ok(simulated) => simulated,
        Err(error) => {
            print_error(&with_causes(&error));
            return ExitCode::FAILURE;
        }
    };
    let holdover = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("holdover"));
    let grid = DisconnectionsGrid { holdover, directory: scratch_directory, simulated };
    let bar = Bar::new("transfers");
    match measure(&grid, &DisconnectionsGrid::options(), &cells, about(), &|progress| bar.show(progress)) {
        Ok(report) => {
            let printed = if json { print_json(&report) } else { print(&report.markdown()) };
            if report.is_sound() { printed } else { ExitCode::FAILURE }
        }
        Err(error) => {
            print_error(&with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

/// The cells in the simulator, at the setting at which the paper's page judges claims.
fn simulate(cells: &[Cell]) -> Result<BTreeMap<Cell, NetTime>, SimulationError> {
    let papers = Catalogue::all(None)?;
    let paper = papers.iter().find(|paper| paper.name == PAPER);
    let paper = paper.ok_or_else(|| SimulationError::Missing("catalogue".to_owned()))?;
    let fitted = paper.fitted.as_ref().map(|fitted| fitted.setting.overrides(&paper.inputs, SCENARIO));
    let scenario = paper.scenario(SCENARIO)?.with(&fitted.unwrap_or_default())?;
    cells.iter().map(|&cell| Ok((cell, simulate_cell(&scenario, cell)?))).collect()
}

fn simulate_cell(scenario: &Scenario, cell: Cell) -> Result<NetTime, SimulationError> {
    let outage =
        |field: &str, seconds: u64| Override::new(format!("link.first.outages.{field}"), format!("{seconds} s"));
    let scenario =
        scenario.with(&[outage("connected", CONNECTED.as_secs()), outage("disconnected", cell.disconnected_s)])?;
    let missing = |what: &str| SimulationError::Missing(format!("{what} for {cell}"));
    let variant = scenario.variants().iter().find(|variant| variant.name() == cell.variant.name());
    let variant = variant.ok_or_else(|| missing("variant"))?;
    let mut world = World::new(variant.world(scenario.seed())?)?;
    world.advance_to(world.config().time_limit);
    let flow = FlowMetrics::of_world(&world).into_iter().next().ok_or_else(|| missing("flow"))?;
    Ok(match flow.status {
        StatusName::Completed => NetTime::Completed(flow.net_duration_s),
        StatusName::Failed => NetTime::Aborted,
        StatusName::Unfinished => NetTime::Unfinished,
    })
}

#[cfg(test)]
mod tests {
    use holdover_conformance::moves::disconnections::Variant;

    use super::*;

    /// As on the paper's page: with the trigger the net time is flat; standard TCP waits for its timer, or aborts.
    #[test]
    fn the_simulators_net_times_are_those_of_the_papers_page() {
        let cells = [26, 208].map(|disconnected_s| Variant::ALL.map(|variant| Cell { disconnected_s, variant }));
        let cells = cells.as_flattened();
        let simulated = simulate(cells).unwrap();
        let is_within = |index: usize, least: f64, most: f64| match simulated[&cells[index]] {
            NetTime::Completed(seconds) => (least..most).contains(&seconds),
            NetTime::Aborted | NetTime::Unfinished => false,
        };
        assert!(is_within(2, 24.0, 27.0) && is_within(5, 24.0, 27.0), "{simulated:?}");
        assert!(is_within(0, 28.0, 60.0) && is_within(1, 28.0, 60.0), "{simulated:?}");
        assert!(simulated[&cells[3]] == NetTime::Aborted && is_within(4, 28.0, 145.0), "{simulated:?}");
    }
}
