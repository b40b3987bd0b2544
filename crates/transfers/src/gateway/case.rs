//! The cases of the demo, and what a transfer of one waits for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdover_testbed::gateway::{Cut, Transfer, TransferError, WorldError};
use serde::Serialize;

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

/// Waits until `bytes` more have arrived.
pub(super) fn await_bytes(transfer: &Transfer, bytes: u64, stop: &AtomicBool) -> Result<(), DemoError> {
    let all = transfer.received() + bytes;
    while transfer.received() < all {
        go_on_unless(stop)?;
        transfer.resumes_unless(stop, || {})?;
    }
    Ok(())
}
