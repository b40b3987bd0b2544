//! `holdover conformance --moves`: how soon connections go on after a host has got another address, with plain TCP, `holdover hip`,
//! `wireguard-go` and MPTCP, between kernels in network namespaces. Daemons run as processes, as on real hosts.

mod cells;
mod exchange;
mod kinds;
mod means;
mod page;
mod run;
mod transfer;

use std::process::ExitCode;

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
    let machine = match Lateness::watch_links() {
        Ok(machine) => machine,
        Err(why) => {
            print_error(&with_causes(&why));
            return ExitCode::FAILURE;
        }
    };
    let wireguard = args.wireguard_go.clone();
    // Without it the cells fail, and say why.
    let version = means::wireguard_version(&wireguard).ok();
    grid::measure(
        args,
        "moves",
        &places,
        |place| run::run(place, &wireguard, &machine),
        |outcome, head| Report::new(Cell::all(&places, &outcome.runs), version.clone(), outcome.failures, head),
    )
}
