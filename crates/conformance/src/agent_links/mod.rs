//! `holdover conformance --agent-links`: how soon connections resume after an outage of a link that has carrier, neighbours or a
//! late path, without the agent, with it, and with a warning, on this machine's kernel.
//!
//! Unlike `--agent`, which drives the engine alone over a wire, this runs the whole daemon in the phone's network namespace. It
//! learns of the link from the kernel, as on a real machine.

mod cells;
mod kinds;
mod page;
mod place;
mod world;

use holdover_agent::engine::Engine;
use holdover_host::log::with_causes;
use holdover_testbed::Lateness;

use crate::grid::watch_lateness;
use crate::results::Results;
use crate::{Grid, GridOptions, Head, Outcome, Unable};
use cells::Cell;
use page::Report;
use place::Place;
use world::{LinksError, Run};

/// The grid of links and outages.
#[derive(Clone, Copy, Debug)]
pub struct AgentLinksGrid;

impl Grid for AgentLinksGrid {
    type Place = Place;
    type Machine = Lateness;
    type Run = Run;
    type Error = LinksError;
    type Report = Report;

    fn name(&self) -> &'static str {
        "agent-links"
    }

    fn places(&self, options: &GridOptions) -> Vec<Place> {
        place::places(options.path, options.only.as_deref())
    }

    fn examine(&self) -> Result<Lateness, Unable> {
        Engine::probe()
            .map_err(|why| Unable(format!("the agent cannot attach to an interface: {}", with_causes(&why))))?;
        watch_lateness()
    }

    fn run(&self, place: Place, machine: &Lateness) -> Result<Run, LinksError> {
        world::run(place, machine)
    }

    fn report(&self, _: Lateness, outcome: Outcome<Place, Run>, head: Head) -> Report {
        Report::new(Results::new(Cell::all(&outcome.runs), outcome.failures), head)
    }
}
