//! Connections that were there before the agent: what their SYNs have said of windows, it has not seen.

use std::thread::sleep;
use std::time::Duration as StdDuration;

use holdover_agent::clock;
use holdover_agent::engine::EngineOptions;
use holdover_base::Duration;
use holdover_mobility::{Direction, LinkEvent};
use holdover_testbed::{Congestion, ImpairmentConfig, Namespace};

use super::process::{EngineThread, UP};
use super::traffic::{Kind, Traffic};
use crate::wire::{INTERFACE, Wire};

/// Without the agent a sender's next attempt is 6.2 s after the cut: its RTO of 200 ms or more has doubled five times.
const OUTAGE: StdDuration = StdDuration::from_millis(3300);
/// The round trip is 20 ms.
const RESUMED_WITHIN: Duration = Duration::from_millis(200);
/// On a machine with other work one outage of several may be noticed late.
const ATTEMPTS: usize = 3;

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
    let mut resumed = Vec::new();
    for _ in 0..ATTEMPTS {
        traffic.wait_for(1_000_000);
        wire.cut(true);
        engine.link(LinkEvent::Down);
        sleep(OUTAGE);
        wire.cut(false);
        let up_at = clock::now();
        traffic.streams[0].watch_from(up_at);
        engine.link(UP);
        resumed.push(traffic.streams[0].first_after().saturating_since(up_at));
        if resumed.last().is_some_and(|&after| after < RESUMED_WITHIN) {
            break;
        }
    }
    eprintln!("{way:?}: resumed {resumed:?} after the link was up");
    assert!(resumed.last().is_some_and(|&after| after < RESUMED_WITHIN), "{resumed:?}");
    traffic.finish();
}
