//! `holdover conformance --gateway`: how soon transfers go on after a mobile host was away, and what share of the ideal they reach,
//! without and with the gateway's daemon on the router, on this machine's kernel. The hosts are unmodified.

mod cells;
mod page;
mod world;

use std::process::ExitCode;

use holdover_gatewayd::config::Config;
use holdover_gatewayd::features;
use holdover_testbed::Lateness;

use super::{ConformanceArgs, grid};
use crate::command_support::print_error;
use cells::Cell;
use page::Report;

/// Runs the grid and prints or writes the result. Fails if a case misses its bound.
pub(super) fn run(args: &ConformanceArgs) -> ExitCode {
    let places = cells::places(args.only.as_deref(), args.long);
    if let Err(code) = grid::begin(args, &places) {
        return code;
    }
    let missing = features::examine(&Config::default()).into_iter().find(|feature| feature.needed && !feature.fine);
    if let Some(missing) = missing {
        print_error(&format_args!("the gateway cannot work here; {}: {}", missing.name, missing.found));
        return ExitCode::FAILURE;
    }
    let journal = match grid::journal(args, "gateway") {
        Ok(journal) => journal,
        Err(code) => return code,
    };
    let (started, machine) = (std::time::Instant::now(), Lateness::watch());
    match grid::run_all(&places, args, journal, |place| world::run(place, &machine)) {
        Ok(outcome) => {
            let cells = Cell::all(&places, &outcome.runs);
            grid::conclude(args, &Report::new(cells, outcome.failures, started.elapsed()))
        }
        Err(grid::Failure { place, error }) => {
            eprintln!("error: {place}: {error}");
            ExitCode::FAILURE
        }
    }
}
