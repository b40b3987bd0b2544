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
use holdover_testbed::{Lateness, Privilege};

use super::{ConformanceArgs, grid};
use crate::command_support::{exit_on_signals, print, print_error, with_causes};
use cells::Cell;
use page::Report;

/// Runs the grid and prints or writes the result. Fails if a case misses its bound.
pub(super) fn run(args: &ConformanceArgs) -> ExitCode {
    let places = cells::places(args.only.as_deref());
    if places.is_empty() {
        print_error(&format_args!(
            "no case of the grid has \"{}\" in its name",
            args.only.as_deref().unwrap_or_default()
        ));
        return ExitCode::from(2);
    }
    if args.list {
        return print(&places.iter().map(|place| format!("{place}\n")).collect::<String>());
    }
    // Before the first thread: this may have to enter a user namespace.
    if let Err(error) = Privilege::acquire() {
        print_error(&format_args!("conformance needs network namespaces: {error}"));
        return ExitCode::FAILURE;
    }
    if let Err(why) = Engine::probe() {
        print_error(&format_args!("the agent cannot attach to an interface: {}", with_causes(&why)));
        return ExitCode::FAILURE;
    }
    if let Err(error) = exit_on_signals(grid::kept(args)) {
        print_error(&format_args!("cannot watch for Ctrl-C: {error}"));
        return ExitCode::FAILURE;
    }
    let journal = match grid::journal(args, "agent-links") {
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
