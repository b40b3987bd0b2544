//! `holdover conformance --agent-links`: how soon connections go on after an outage of a link that has carrier, neighbours or a
//! late path, without the agent, with it, and with a warning, on this machine's kernel.
//!
//! Unlike `--agent`, which drives the engine alone over a wire, this runs the whole daemon in the phone's network namespace. It
//! learns of the link from the kernel, as on a real machine.

mod cells;
mod kinds;
mod page;
mod world;

use std::process::ExitCode;

use holdover_agent::engine::Engine;
use holdover_testbed::Lateness;

use super::{ConformanceArgs, grid};
use crate::command_support::{print_error, with_causes};
use cells::Cell;
use page::Report;

/// Runs the grid and prints or writes the result. Fails if a case misses its bound.
pub(super) fn run(args: &ConformanceArgs) -> ExitCode {
    let places = cells::places(args.path(), args.only.as_deref());
    if let Err(code) = grid::begin(args, &places) {
        return code;
    }
    if let Err(why) = Engine::probe() {
        print_error(&format_args!("the agent cannot attach to an interface: {}", with_causes(&why)));
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
        "agent-links",
        &places,
        |place| world::run(place, &machine),
        |outcome, head| Report::new(Cell::all(&places, &outcome.runs), outcome.failures, head),
    )
}
