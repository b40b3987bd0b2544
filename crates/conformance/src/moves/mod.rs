//! `holdover conformance --moves`: how soon connections resume after a host has got another address, with plain TCP, `holdover hip`,
//! `wireguard-go`, the kernel's WireGuard and MPTCP, between kernels in network namespaces. Daemons run as processes, as on real hosts.

mod cells;
pub mod disconnections;
mod exchange;
mod kinds;
mod means;
mod page;
mod place;
mod run;
mod transfer;

use std::path::PathBuf;

use holdover_base::Duration;
use holdover_host::log::with_causes;
use holdover_testbed::Lateness;

use crate::grid::watch_lateness;
use crate::results::Results;
use crate::{Grid, GridOptions, Head, Outcome, Unable};
use cells::Cell;
use page::Report;
use place::Place;
pub use place::{Means, TOLERANCE};
use run::{MovesError, Run};

/// The grid of moves.
#[derive(Clone, Debug)]
pub struct MovesGrid {
    /// The programs that carry connections.
    pub programs: Programs,
    /// The directory with this name for the files of a run, which creates and removes it.
    pub directory: fn(&str) -> PathBuf,
    /// The means to compare; empty for all.
    pub means: Vec<Means>,
    /// What the bounds allow the machine: [`TOLERANCE`], or more on a slow one.
    pub tolerance: Duration,
}

/// This machine.
#[derive(Debug)]
pub struct Machine {
    lateness: Lateness,
    /// Why its kernel has no WireGuard, if it is to be compared and there is none.
    lacks_wireguard: Option<String>,
}

/// The programs that carry connections.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `holdover`, for its command `hip`.
    pub holdover: PathBuf,
    /// `wireguard-go`. Cells with it fail if it cannot be run.
    pub wireguard_go: PathBuf,
}

impl Grid for MovesGrid {
    type Place = Place;
    type Machine = Machine;
    type Run = Run;
    type Error = MovesError;
    type Report = Report;

    fn name(&self) -> &'static str {
        "moves"
    }

    fn places(&self, options: &GridOptions) -> Vec<Place> {
        let mut places = place::places(options.path, options.only.as_deref(), options.with_long);
        places.retain(|place| self.means.is_empty() || self.means.contains(&place.means));
        places.iter_mut().for_each(|place| place.tolerance = self.tolerance);
        places
    }

    fn examine(&self) -> Result<Machine, Unable> {
        let lacks_wireguard = if self.means.is_empty() || self.means.contains(&Means::WireGuard) {
            means::lacks_wireguard().map_err(|why| Unable(with_causes(&why)))?
        } else {
            None
        };
        Ok(Machine { lateness: watch_lateness()?, lacks_wireguard })
    }

    fn obstacle(&self, place: Place, machine: &Machine) -> Option<String> {
        let why = machine.lacks_wireguard.as_ref().filter(|_| place.means == Means::WireGuard)?;
        Some(format!("this kernel has no WireGuard: {why}"))
    }

    fn run(&self, place: Place, machine: &Machine) -> Result<Run, MovesError> {
        let misses = |run: &Run| !Cell::new(place, std::slice::from_ref(run)).misses.is_empty();
        run::run(place, self, machine, misses)
    }

    fn report(&self, machine: Machine, outcome: Outcome<Place, Run>, head: Head) -> Report {
        let version = means::wireguard_version(&self.programs.wireguard_go).ok();
        let results = Results::new(Cell::all(&outcome.runs), outcome.failures);
        Report::new(results, version, machine.lacks_wireguard, self.tolerance, head)
    }
}
