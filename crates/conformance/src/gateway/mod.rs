//! `holdover conformance --gateway`: how soon transfers resume after a mobile host was away, and what share of the ideal they reach,
//! without and with the gateway's daemon on the router, on this machine's kernel. The hosts are unmodified.

mod cells;
mod page;
mod place;
mod world;

use std::path::{Path, PathBuf};
use std::process::Command;

use holdover_gatewayd::config::Config;
use holdover_gatewayd::features;
use holdover_testbed::Lateness;

use crate::grid::watch_lateness;
use crate::results::Results;
use crate::{Grid, GridOptions, Head, Outcome, Unable};
use cells::Cell;
use page::Report;
use place::Place;
use world::{GatewayError, Run};

/// The grid of absences.
#[derive(Clone, Copy, Debug)]
pub struct GatewayGrid {
    /// The command of the daemon, given the directory with `gateway.toml`, in which it creates `gateway.sock`.
    pub daemon: fn(&Path) -> Command,
    /// The directory with this name for a daemon. Its run creates and removes it.
    pub directory: fn(&str) -> PathBuf,
}

impl Grid for GatewayGrid {
    type Place = Place;
    type Machine = Lateness;
    type Run = Run;
    type Error = GatewayError;
    type Report = Report;

    fn name(&self) -> &'static str {
        "gateway"
    }

    fn places(&self, options: &GridOptions) -> Vec<Place> {
        place::places(options.path, options.only.as_deref(), options.with_long)
    }

    fn examine(&self) -> Result<Lateness, Unable> {
        let missing = features::examine(&Config::default()).into_iter().find(|feature| feature.needed && !feature.fine);
        if let Some(missing) = missing {
            return Err(Unable(format!("the gateway cannot work here; {}: {}", missing.name, missing.found)));
        }
        watch_lateness()
    }

    fn run(&self, place: Place, machine: &Lateness) -> Result<Run, GatewayError> {
        world::run(self, place, machine)
    }

    fn report(&self, _: Lateness, outcome: Outcome<Place, Run>, head: Head) -> Report {
        Report::new(Results::new(Cell::all(&outcome.runs), outcome.failures), head)
    }
}
