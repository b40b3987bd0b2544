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
use crate::command_support::{print_error, with_causes};
use cells::Cell;
use page::Report;

/// Runs the grid and prints or writes the result. Fails if a case misses its bound.
pub(super) fn run(args: &ConformanceArgs) -> ExitCode {
    let places = cells::places(args.path(), args.only.as_deref(), args.long);
    if let Err(code) = grid::begin(args, &places) {
        return code;
    }
    let missing = features::examine(&Config::default()).into_iter().find(|feature| feature.needed && !feature.fine);
    if let Some(missing) = missing {
        print_error(&format_args!("the gateway cannot work here; {}: {}", missing.name, missing.found));
        return ExitCode::FAILURE;
    }
    let machine = match Lateness::watch_links() {
        Ok(machine) => machine,
        Err(why) => {
            print_error(&with_causes(&why));
            return ExitCode::FAILURE;
        }
    };
    grid::measure(
        args,
        "gateway",
        &places,
        |place| world::run(place, &machine),
        |outcome, head| Report::new(Cell::all(&places, &outcome.runs), outcome.failures, head),
    )
}
