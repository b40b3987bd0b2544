//! `holdover conformance --moves`: how soon connections resume after a host has got another address, with plain TCP, `holdover hip`,
//! `wireguard-go` and MPTCP, between kernels in network namespaces. Daemons run as processes, as on real hosts.

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

use holdover_testbed::Lateness;

use crate::grid::watch_lateness;
use crate::results::Results;
use crate::{Grid, GridOptions, Head, Outcome, Unable};
use cells::Cell;
use page::Report;
use place::Place;
use run::{MovesError, Run};

/// The grid of moves.
#[derive(Clone, Debug)]
pub struct MovesGrid {
    /// The programs that carry connections.
    pub programs: Programs,
    /// The directory with this name for the files of a run, which creates and removes it.
    pub directory: fn(&str) -> PathBuf,
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
    type Machine = Lateness;
    type Run = Run;
    type Error = MovesError;
    type Report = Report;

    fn name(&self) -> &'static str {
        "moves"
    }

    fn places(&self, options: &GridOptions) -> Vec<Place> {
        place::places(options.path, options.only.as_deref(), options.with_long)
    }

    fn examine(&self) -> Result<Lateness, Unable> {
        watch_lateness()
    }

    fn run(&self, place: Place, machine: &Lateness) -> Result<Run, MovesError> {
        let misses = |run: &Run| !Cell::new(place, std::slice::from_ref(run)).misses.is_empty();
        run::run(place, self, machine, misses)
    }

    fn report(&self, _: Lateness, outcome: Outcome<Place, Run>, head: Head) -> Report {
        let version = means::wireguard_version(&self.programs.wireguard_go).ok();
        Report::new(Results::new(Cell::all(&outcome.runs), outcome.failures), version, head)
    }
}
