//! One run: a transfer between a mobile host and a server, with the daemon on the router between them.

use std::sync::atomic::{AtomicU32, Ordering};

use holdover_base::{Duration, Instant};
use holdover_link::{LinkConfig, Outage, Outages};
use holdover_sim::{Amount, Bulk, Layer2, LinkKind, Opener, Traffic, WorldConfig};
use holdover_testbed::Lateness;
use holdover_testbed::gateway::{GatewayProcess, WorldError};
use holdover_testbed::world::{RealError, RealOptions, RealWorld};
use holdover_transfers::{CUT_AT, TRANSFER_TIME, TransferDirection, Watcher};
use serde::{Deserialize, Serialize};

use super::GatewayGrid;
use super::place::{Mode, Place};
use crate::grid;
use crate::routed::{self, ACCESS, PHONE, ROUTER, SERVER};

/// The result of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    /// From the mobile host's return to the first data at the receiver's interface that it did not have.
    #[serde(with = "holdover_transfers::nanos::optional")]
    pub(super) first_data: Option<Duration>,
    /// From the beginning to the last byte.
    #[serde(with = "holdover_transfers::nanos::optional")]
    pub(super) total: Option<Duration>,
    pub(super) timeouts: u32,
    pub(super) sent_again: u64,
    /// The longest that a thread waited for a processor between the return and the first new data; see [`Lateness`].
    #[serde(with = "holdover_transfers::nanos")]
    pub(super) lateness: Duration,
    /// How often the run was made until it counted.
    pub(super) tries: u32,
    /// See [`Watcher::trace`].
    pub(super) trace: Vec<String>,
}

/// A run could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error(transparent)]
    Real(#[from] RealError),
    #[error("the gateway")]
    Gateway(#[from] WorldError),
    #[error("the router has no kernel")]
    NoRouter,
    #[error("no run was made")]
    None,
}

/// Runs the world of `place` on kernels, with the daemon on the router except for [`Mode::Plain`]; again, if new data came too late and the
/// machine was late meanwhile by [`Lateness::EXCUSE`] or more.
pub(super) fn run(grid: &GatewayGrid, place: Place, machine: &Lateness) -> Result<Run, GatewayError> {
    let is_spoiled = |run: &Run| {
        place.mode.has_bounds()
            && place.is_late(run.first_data)
            && place.cut.is_some()
            && run.lateness >= Lateness::EXCUSE
    };
    grid::counted(|tries| run_once(grid, place, machine, tries).map(Some), is_spoiled)?.ok_or(GatewayError::None)
}

fn run_once(grid: &GatewayGrid, place: Place, machine: &Lateness, tries: u32) -> Result<Run, GatewayError> {
    let config = config(place);
    let back_at = CUT_AT + place.cut.unwrap_or(Duration::ZERO);
    let mut watcher = Watcher::new(&config.flows, back_at);
    let options = RealOptions { congestion: Some(place.sender.congestion()), ..RealOptions::default() };
    let mut real = RealWorld::new(config, &options)?;
    let gateway = if place.mode == Mode::Plain { None } else { Some(start_gateway(grid, &real, place.mode)?) };
    real.run(&mut watcher, |_| true)?;
    let report = real.world().report().swap_remove(0);
    let lateness = routed::lateness(machine, &real, back_at, watcher.new_data());
    drop(gateway);
    let sender = report.sender.as_ref();
    Ok(Run {
        first_data: watcher.new_data(),
        total: report.completed_at.map(|at| at.saturating_since(report.started_at)),
        timeouts: sender.map_or(0, |sender| sender.timeouts),
        sent_again: sender.map_or(0, |sender| sender.bytes_retransmitted.0),
        lateness,
        tries,
        trace: watcher.trace().to_vec(),
    })
}

/// The daemon with its defaults, except for settings that leave something behind or open a port.
fn start_gateway(grid: &GatewayGrid, real: &RealWorld, mode: Mode) -> Result<GatewayProcess, GatewayError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = (grid.directory)(&number.to_string());
    let router = real.namespace(ROUTER).ok_or(GatewayError::NoRouter)?;
    let interface = real.router_interface(ROUTER, ACCESS).ok_or(GatewayError::NoRouter)?;
    let (mode, phone) = (mode.name(), PHONE.address(false));
    let sections = format!(
        "[mobiles]\ninterface = \"{interface}\"\nmode = \"{mode}\"\nnetworks = [\"{phone}/32\"]\n\
         [programs]\npinned = false\n[metrics]\nenabled = false\n"
    );
    Ok(GatewayProcess::start(router, directory, &sections, grid.daemon)?)
}

fn config(place: Place) -> WorldConfig {
    let outage = place.cut.map(|cut| Outage { down: CUT_AT, up: CUT_AT + cut });
    let access = LinkConfig {
        outages: outage.map_or(Outages::Never, |outage| Outages::List(vec![outage])),
        outage_policy: place.link.policy(),
        ..routed::access(place.path)
    };
    let bulk = |opener| Traffic::Bulk(Bulk { amount: Amount::Bytes(place.path.amount(TRANSFER_TIME)), opener });
    let (ends, traffic) = match place.direction {
        TransferDirection::Download => ([SERVER, PHONE], bulk(Opener::Receiver)),
        TransferDirection::Upload => ([PHONE, SERVER], bulk(Opener::Sender)),
    };
    let flow = routed::flow(place.direction.name(), ends, traffic, false);
    let time_limit = Instant::ZERO + grid::time_limit(place.cut.unwrap_or(Duration::ZERO));
    routed::world(place.path, access, Layer2::new(LinkKind::Ethernet, place.link.outage()), vec![flow], time_limit)
}
