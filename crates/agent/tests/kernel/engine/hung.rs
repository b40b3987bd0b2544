//! A process that hangs.

use std::thread::sleep;
use std::time::Duration as StdDuration;

use holdover_base::Duration;
use holdover_host::clock;
use holdover_mobility::Direction;
use holdover_testbed::{Congestion, ImpairmentConfig, Namespace};
use rustix::process::Signal;

use super::traffic::{Kind, Traffic};
use crate::other_process::OtherProcess;
use crate::wire::Wire;

/// The link is reported down, but is up: all ACKs are withheld.
// Claim: Stopped (SIGSTOP) while it withholds all ACKs, because the link is reported down or a cut is near: packets pass 1.5 s
// later or sooner, and when the process continues all is exact.
// Tests: `hung::hung_in_a_fading_it_lets_packets_pass`
pub(crate) fn hung_while_the_link_is_down_it_lets_packets_pass(near: &Namespace) {
    // Longer than 1.5 s by the sender's RTO at that time, and by a slow machine's delays.
    stop_after(near, "down", Duration::from_secs(8));
}

/// A predicted cut that does not come.
pub(crate) fn hung_in_a_fading_it_lets_packets_pass(near: &Namespace) {
    stop_after(near, "fading 600", Duration::from_secs(8));
}

fn stop_after(near: &Namespace, event: &str, within: Duration) {
    let impairment = ImpairmentConfig { delay: Duration::from_millis(10), ..ImpairmentConfig::default() };
    let wire = Wire::impaired(near, &impairment);
    let kinds = Direction::BOTH.map(|way| Kind::bulk(Congestion::Cubic, way));
    let traffic = Traffic::start(near, &wire.far, &kinds);
    let mut engine = OtherProcess::engine(None);
    traffic.wait_for(500_000);
    let before = engine.tell("up");
    engine.tell(event);
    // The download uses up its window.
    let download = &traffic.streams[1];
    let deadline = clock::now() + Duration::from_millis(900);
    let mut last = 0;
    while clock::now() < deadline && download.received() != last {
        last = download.received();
        sleep(StdDuration::from_millis(60));
    }
    engine.signal(Signal::STOP);
    let stopped_at = clock::now();
    download.watch_from(stopped_at);
    let passed = download.first_after().saturating_since(stopped_at);
    eprintln!("{event}: packets pass {passed} after the stop");
    assert!(passed < within, "{passed}");
    traffic.wait_for(1_000_000);
    engine.signal(Signal::CONT);
    sleep(StdDuration::from_millis(300));
    let after = engine.tell("up");
    assert!(after.withheld > before.withheld, "{before:?}, {after:?}");
    traffic.wait_for(1_000_000);
    traffic.finish();
}
