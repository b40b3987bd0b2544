//! Single messages sent in an outage: a keystroke, or the answer to an earlier request. No ACK of such connections is
//! held.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::thread::sleep;
use std::time::Duration as StdDuration;

use holdover_agent::engine::EngineOptions;
use holdover_base::Duration;
use holdover_host::clock;
use holdover_mobility::LinkEvent;
use holdover_testbed::{Congestion, ImpairmentConfig, KernelStream, Lateness, Namespace, SocketOptions};

use super::process::{EngineThread, UP};
use crate::wire::{FAR, FAR_V6, INTERFACE, Wire, socket};

/// Without the agent the next attempt is 6 s after the first: an RTO of at least 200 ms has doubled five times.
const OUTAGE: StdDuration = StdDuration::from_millis(3500);
const ARRIVES_WITHIN: Duration = Duration::from_millis(300);

/// Data of the near host: its own TCP is poked. Data of the far host: the far TCP is poked, over the link.
// Claim: A single write during an outage of 3.5 s, by either end, over IPv4 and IPv6, arrives within 300 ms of the outage's end.
// (Repeated only if the machine's timers were late.)
pub(crate) fn data_written_in_an_outage_arrive_at_once(near: &Namespace) {
    over_both_versions(near, Duration::from_millis(10), |wire, engine, [mut ours, mut theirs]| {
        converse(&mut ours, &mut theirs, 3);
        for is_near in [true, false] {
            let took = Lateness::repeat_until_below(ARRIVES_WITHIN, || {
                wire.cut(true);
                engine.link(LinkEvent::Down);
                sleep(StdDuration::from_millis(100));
                let (from, at) = if is_near { (&mut ours, &mut theirs) } else { (&mut theirs, &mut ours) };
                from.write_all(b"x").unwrap();
                sleep(OUTAGE);
                wire.cut(false);
                let up_at = clock::now();
                engine.link(UP);
                at.read_exact(&mut [0]).unwrap();
                let after = clock::now().saturating_since(up_at);
                // A few round trips reset the RTO after the outage.
                converse(&mut ours, &mut theirs, 20);
                after
            });
            assert_in_time(&took, if is_near { "of the near host" } else { "of the far host" });
        }
    });
}

/// After a poke Linux retransmits a timeout after its last retransmission, here more than 600 ms: the round trip is 200 ms.
/// A copy of the segment does not wait for that.
// Claim: A key arrives within 300 ms of the link's return, even if the host's TCP has retransmitted just before it: IPv4 and
// IPv6, round trip 200 ms, timeout 400 ms and more. (Repeated only if the machine's timers were late.)
pub(crate) fn a_key_does_not_wait_for_the_timer_of_the_host(near: &Namespace) {
    over_both_versions(near, Duration::from_millis(100), |wire, engine, [mut ours, mut theirs]| {
        converse(&mut ours, &mut theirs, 1);
        let took = Lateness::repeat_until_below(ARRIVES_WITHIN, || {
            wire.cut(true);
            engine.link(LinkEvent::Down);
            ours.write_all(b"x").unwrap();
            // The link is back just after a retransmission.
            sent_again(&ours, 2);
            wire.cut(false);
            let up_at = clock::now();
            engine.link(UP);
            theirs.read_exact(&mut [0]).unwrap();
            let after = clock::now().saturating_since(up_at);
            // It is one byte, and the connection goes on.
            converse(&mut ours, &mut theirs, 5);
            after
        });
        assert_in_time(&took, "after a retransmission");
    });
}

/// Nobody has told the engine of the outage, which ends 0.45 s after the host's second retransmission of a key, and more than
/// 0.5 s before its third: the first probe of the peer is the key.
// Claim: A key that the host has retransmitted before anything was noticed of the outage is kept until it is acknowledged: 0.45 s
// after the retransmission the first probe delivers it, IPv4 and IPv6.
pub(crate) fn a_key_that_was_sent_again_is_the_probe(near: &Namespace) {
    over_both_versions(near, Duration::from_millis(100), |wire, engine, [mut ours, mut theirs]| {
        converse(&mut ours, &mut theirs, 1);
        let took = Lateness::repeat_until_below(ARRIVES_WITHIN, || {
            // The key before, and its acknowledgement.
            sleep(StdDuration::from_millis(300));
            let survey = engine.with(|engine| engine.survey());
            assert!(survey.unanswered.is_empty(), "{survey:?}");
            wire.cut(true);
            ours.write_all(b"x").unwrap();
            sent_again(&ours, 2);
            // The engine renews its state meanwhile, and forgets acknowledged segments.
            sleep(StdDuration::from_millis(450));
            wire.cut(false);
            let back_at = clock::now();
            let survey = engine.with(|engine| engine.survey());
            let [unanswered] = survey.unanswered[..] else { panic!("{survey:?}") };
            assert!(unanswered.is_sent_again, "{survey:?}");
            engine.with(move |engine| engine.ask_peer(clock::now(), unanswered.connection));
            theirs.read_exact(&mut [0]).unwrap();
            let after = clock::now().saturating_since(back_at);
            converse(&mut ours, &mut theirs, 5);
            after
        });
        assert_in_time(&took, "as a probe");
    });
}

/// Runs `test` with an engine and a connection over IPv4, and then over IPv6. The path has this delay each way.
fn over_both_versions(near: &Namespace, delay: Duration, test: impl Fn(&Wire, &EngineThread, [KernelStream; 2])) {
    let wire = Wire::impaired(near, &ImpairmentConfig { delay, ..ImpairmentConfig::default() });
    let engine = EngineThread::attach(near, INTERFACE, EngineOptions::default());
    for (port, to) in [(5001, FAR), (5002, FAR_V6)] {
        let to: SocketAddr = (to.parse::<IpAddr>().unwrap(), port).into();
        eprintln!("to {to}:");
        let (ours, theirs) = wire.connect_with(near, to, &SocketOptions::new(Congestion::Cubic));
        test(&wire, &engine, [ours, theirs]);
    }
}

/// Fails if a byte did not arrive soon enough after the link's return, at the last attempt.
fn assert_in_time(took: &[Duration], what: &str) {
    eprintln!("{what}: arrived {took:?} after the link was up");
    assert!(took.last().is_some_and(|&after| after < ARRIVES_WITHIN), "{what}: {took:?}");
}

/// Waits until the host has retransmitted so often by its timer, and has done so just now.
fn sent_again(stream: &KernelStream, times: u8) {
    loop {
        let info = socket(stream).info;
        if info.tcpi_backoff >= times && info.tcpi_last_data_sent < Duration::from_millis(20) {
            return;
        }
        assert!(info.tcpi_backoff < 8, "no retransmission was seen within 20 ms: {info:?}");
        sleep(StdDuration::from_millis(1));
    }
}

/// Messages of both ends, in turn.
fn converse(ours: &mut KernelStream, theirs: &mut KernelStream, times: u32) {
    for _ in 0..times {
        tell(ours, theirs);
        tell(theirs, ours);
    }
}

fn tell(from: &mut KernelStream, at: &mut KernelStream) {
    let mut read = [0];
    from.write_all(b"y").unwrap();
    at.read_exact(&mut read).unwrap();
    assert_eq!(read, *b"y");
}
