//! Disconnections as in "Protocol Enhancements for Intermittently Connected Hosts", between kernels in network namespaces with daemons of
//! `holdover hip`: a transfer from the mobile host is cut once (figures 10 to 12) or periodically (figure 13), and goes on over another
//! access network each time.

mod cell;
mod claims;
mod machine;
mod page;
mod run;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration as WallDuration;

use holdover_base::{BitRate, ByteCount, Duration};
use holdover_lab::reproduce::catalogue::Catalogue;
use holdover_transfers::NetPath;

use super::run::MovesError;
use crate::grid::watch_lateness;
use crate::{Grid, GridOptions, Head, Outcome, Unable};
pub use cell::{Cell, Cuts, Repeat, Variant};
pub use machine::Machine;
pub use page::Report;
pub use run::{NetTime, Run, Transferred};

/// The paper's bottleneck, and its round trip of 100 ms.
const PATH: NetPath = NetPath { rate: BitRate::from_mbps(10), delay: Duration::from_millis(50), queue: 75 };
const USER_TIMEOUT: WallDuration = WallDuration::from_secs(15 * 60);

/// What the paper transfers.
pub const fn published_amount(repeat: Repeat) -> ByteCount {
    match repeat {
        Repeat::Once => ByteCount(25_000_000),
        Repeat::Periodic => ByteCount(600_000_000),
    }
}

/// The transfers of each cell.
pub type Transfers = BTreeMap<Cell, Vec<Transferred>>;

/// The grid.
#[derive(Clone, Debug)]
pub struct DisconnectionsGrid {
    /// `holdover`, for its command `hip`.
    pub holdover: PathBuf,
    /// The directory with this name for the files of a run, which creates and removes it.
    pub directory: fn(&str) -> PathBuf,
    /// What is transferred with periodic disconnections.
    pub amount: ByteCount,
    /// The paper, whose claims are judged.
    pub paper: Catalogue,
    /// The same cells in the simulator.
    pub simulated: Transfers,
    /// Those with periodic disconnections in the simulator with the paper's amount, if that is another one.
    pub simulated_in_full: Transfers,
}

impl DisconnectionsGrid {
    /// All cells once, over the paper's path.
    pub const fn options() -> GridOptions {
        GridOptions { only: None, with_long: false, path: PATH, repeat: 1, jobs: None, journal: None }
    }
}

impl Grid for DisconnectionsGrid {
    type Place = Cell;
    type Machine = Machine;
    type Run = Run;
    type Error = MovesError;
    type Report = Report;

    fn name(&self) -> &'static str {
        "disconnections"
    }

    fn places(&self, options: &GridOptions) -> Vec<Cell> {
        let is_selected = |cell: &Cell| options.only.as_ref().is_none_or(|text| cell.to_string().contains(text));
        Cell::all(self.amount).into_iter().filter(is_selected).collect()
    }

    fn examine(&self) -> Result<Machine, Unable> {
        Ok(Machine::new(watch_lateness()?))
    }

    fn run(&self, cell: Cell, machine: &Machine) -> Result<Run, MovesError> {
        let connected = machine.begin();
        run::World::new(self, cell.variant)?.run(cell, machine, connected)
    }

    fn report(&self, _: Machine, outcome: Outcome<Cell, Run>, head: Head) -> Report {
        Report::new(self, outcome, head)
    }
}
