//! Connections older than the agent, which has not seen the window scales of their SYNs.

use std::time::Duration as StdDuration;

use holdover_agent::engine::EngineOptions;
use holdover_base::Duration;
use holdover_mobility::Direction;
use holdover_testbed::{Congestion, ImpairmentConfig, Namespace};

use super::process::EngineThread;
use super::traffic::{Kind, Traffic};
use crate::wire::{INTERFACE, Wire};

/// Without the agent a sender's next attempt is 6.2 s after the cut: its RTO of at least 200 ms has doubled five times.
const OUTAGE: StdDuration = StdDuration::from_millis(3300);
/// The round trip is 20 ms.
const RESUMED_WITHIN: Duration = Duration::from_millis(200);

// Claim: Attached in the middle of a transfer with scaled windows, at once before an outage: the download and the upload resume
// within 200 ms.
// Tests: `older::an_upload_older_than_the_agent_is_woken`
pub(crate) fn a_download_older_than_the_agent_is_woken(near: &Namespace) {
    is_woken(near, Direction::Incoming);
}

pub(crate) fn an_upload_older_than_the_agent_is_woken(near: &Namespace) {
    is_woken(near, Direction::Outgoing);
}

fn is_woken(near: &Namespace, way: Direction) {
    let impairment = ImpairmentConfig { delay: Duration::from_millis(10), ..ImpairmentConfig::default() };
    let wire = Wire::impaired(near, &impairment);
    let traffic = Traffic::start(near, &wire.far, &[Kind::bulk(Congestion::Cubic, way)]);
    traffic.wait_for(1_000_000);
    let engine = EngineThread::attach(near, INTERFACE, EngineOptions::default());
    let resumed = traffic.resume_after_outages(&wire, &engine, OUTAGE, RESUMED_WITHIN);
    eprintln!("{way:?}: resumed {resumed:?} after the link was up");
    assert!(resumed.last().is_some_and(|&after| after < RESUMED_WITHIN), "{resumed:?}");
    traffic.finish();
}
