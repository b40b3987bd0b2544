//! The demo: the same transfers over the same outages, with and without the gateway, side by side.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::between::between_gateways;
use super::{Cut, MakeCommand, Process, Transfer, TransferError, World, WorldError};

/// An outage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Case {
    /// The name.
    pub name: &'static str,
    /// How the link is cut.
    pub cut: Cut,
    /// The length of the outage, in ms.
    pub cut_ms: u64,
    /// The incident during the outage.
    pub incident: Incident,
}

/// An incident during an outage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Incident {
    /// Nothing else.
    None,
    /// The daemon is killed, and started again.
    Killed,
    /// The mobile host comes back at another gateway.
    Handoff,
    /// The cluster's store is stopped before, and started again after it.
    StoreAway,
    /// The daemon is killed for good, the network's routes change to another gateway's, and the mobile host comes back
    /// there.
    TakenOver,
}

/// The cases of the demo.
pub const CASES: [Case; 5] = [
    Case { name: "silent cut of 0.3 s", cut: Cut::Silent, cut_ms: 300, incident: Incident::None },
    Case { name: "silent cut of 3 s", cut: Cut::Silent, cut_ms: 3000, incident: Incident::None },
    Case { name: "carrier lost for 3 s", cut: Cut::Carrier, cut_ms: 3000, incident: Incident::None },
    Case { name: "kill -9 in a silent cut of 4 s", cut: Cut::Silent, cut_ms: 4000, incident: Incident::Killed },
    Case { name: "handoff after a cut of 3 s", cut: Cut::Silent, cut_ms: 3000, incident: Incident::Handoff },
];

/// The cases of the demo of a cluster.
pub const CLUSTER_CASES: [Case; 3] = [
    Case { name: "handoff after a cut of 3 s", cut: Cut::Silent, cut_ms: 3000, incident: Incident::Handoff },
    Case { name: "silent cut of 3 s, etcd down", cut: Cut::Silent, cut_ms: 3000, incident: Incident::StoreAway },
    Case { name: "gateway dead, other after 6 s", cut: Cut::Silent, cut_ms: 6000, incident: Incident::TakenOver },
];

/// A direction, with or without the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Way {
    /// Whether the mobile host sends.
    pub is_upload: bool,
    /// Whether the daemon runs on the router.
    pub has_gateway: bool,
}

/// The result of one transfer.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The outage.
    pub case: Case,
    /// The transfer.
    #[serde(flatten)]
    pub way: Way,
    /// From link-up to the first new data at the receiver.
    pub first_data_s: f64,
    /// From the first byte to the last one.
    pub total_s: f64,
}

/// The demo has failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The hosts cannot be created, or the daemon does not run.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A transfer did not continue, or its bytes were wrong.
    #[error("a transfer: {0}")]
    Transfer(#[from] TransferError),
    /// It was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// A thread has panicked.
    #[error("a part of the demo has panicked")]
    Panicked,
}

/// Before the outage, and in total. Some 4 MB flow in a second.
pub(super) const BEFORE_BYTES: u64 = 2_000_000;
pub(super) const ALL_BYTES: u64 = 8_000_000;

/// Between the fixed host and the router.
pub const ROUND_TRIP: holdover_base::Duration = holdover_base::Duration::from_millis(40);

const NAP: Duration = Duration::from_millis(50);

/// Runs one outage in all four variants at once. `directory` is for the daemons' files and must exist; `cluster` is
/// the number of gateways that agree in a store, if there is one. Ends early once `stop` is true, and cleans up in any
/// case.
///
/// # Errors
/// The kernel refuses, a transfer does not end properly, or the demo was stopped.
pub fn run(
    case: Case,
    cluster: Option<u8>,
    directory: &Path,
    command: MakeCommand,
    stop: &AtomicBool,
) -> Result<Vec<Outcome>, DemoError> {
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    let ways = ways.map(|(is_upload, has_gateway)| Way { is_upload, has_gateway });
    let outcomes = std::thread::scope(|scope| {
        let threads = ways.map(|way| {
            let place = directory.join(format!("{}-{}", way.is_upload, way.has_gateway));
            scope.spawn(move || match case.incident {
                Incident::None | Incident::Killed => transfer(case, way, place, command, stop),
                _ => between_gateways(case, way, cluster, &place, command, stop),
            })
        });
        threads.map(|thread| thread.join().unwrap_or(Err(DemoError::Panicked)))
    });
    // A daemon that is interrupted at the same time is no failure.
    go_on_unless(stop)?;
    outcomes.into_iter().collect()
}

pub(super) fn go_on_unless(stop: &AtomicBool) -> Result<(), DemoError> {
    if stop.load(Ordering::Relaxed) { Err(DemoError::Interrupted) } else { Ok(()) }
}

pub(super) fn sleep_until(at: Instant, stop: &AtomicBool) -> Result<(), DemoError> {
    loop {
        go_on_unless(stop)?;
        match at.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return Ok(()),
            left => sleep(left.min(NAP)),
        }
    }
}

/// Waits for so many more bytes.
pub(super) fn await_bytes(transfer: &Transfer, bytes: u64, stop: &AtomicBool) -> Result<(), DemoError> {
    let all = transfer.received() + bytes;
    while transfer.received() < all {
        go_on_unless(stop)?;
        transfer.resumes_unless(stop, || {})?;
    }
    Ok(())
}

fn transfer(
    case: Case,
    way: Way,
    directory: PathBuf,
    command: MakeCommand,
    stop: &AtomicBool,
) -> Result<Outcome, DemoError> {
    let world = World::with_round_trip(1, ROUND_TRIP)?;
    let mut gateway = match way.has_gateway {
        true => Some(Process::start(world.router(), directory, "", command)?),
        false => None,
    };
    let began = Instant::now();
    let transfer = Transfer::start(&world, 0, way.is_upload)?;
    await_bytes(&transfer, BEFORE_BYTES, stop)?;
    let returns_at = Instant::now() + Duration::from_millis(case.cut_ms);
    world.set_cut(case.cut, true)?;
    // The link is restored in time, whether or not the next daemon runs.
    let first_data = std::thread::scope(|scope| {
        let killed = gateway.as_mut().filter(|_| case.incident == Incident::Killed).map(|gateway| {
            scope.spawn(move || {
                sleep_until(Instant::now() + returns_at.saturating_duration_since(Instant::now()) / 2, stop)?;
                gateway.kill();
                gateway.restart()?;
                Ok::<_, DemoError>(())
            })
        });
        sleep_until(returns_at, stop)?;
        let mut made_whole = Ok(());
        let first_data = transfer.resumes_unless(stop, || made_whole = world.set_cut(case.cut, false))?;
        made_whole?;
        killed.map_or(Ok(Ok(())), std::thread::ScopedJoinHandle::join).map_err(|_| DemoError::Panicked)??;
        Ok::<_, DemoError>(first_data)
    })?;
    await_bytes(&transfer, ALL_BYTES.saturating_sub(transfer.received()), stop)?;
    let total = began.elapsed();
    transfer.ends_exact()?;
    Ok(Outcome { case, way, first_data_s: first_data.as_secs_f64(), total_s: total.as_secs_f64() })
}
