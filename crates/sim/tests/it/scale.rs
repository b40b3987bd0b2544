//! Many connections at once, and long runs.

use std::sync::Arc;

use holdover_base::Instant;
use holdover_sim::{
    Attachment, FlowConfig, FlowStatus, Holdings, Movement, NoObserver, Registration, Repeat, World, WorldConfig,
};

use crate::support::*;

/// This many connections over one link, each with its share.
fn crowd(connections: u32) -> WorldConfig {
    let one = flow("0", 0, 1, bulk_bytes(30_000));
    let flows = (0..connections).map(|n| FlowConfig {
        name: format!("{n}"),
        start: Instant::from_millis(u64::from(n) % 1_000),
        sender: Arc::clone(&one.sender),
        receiver: Arc::clone(&one.receiver),
        ..one.clone()
    });
    let rate = u64::from(connections) * 100;
    pair(wire(rate, ms(20), connections * 2), flows.collect(), secs(120))
}

fn all_complete(connections: u32) {
    let mut world = World::new(crowd(connections)).unwrap();
    world.run(&mut NoObserver);
    let report = world.report();
    assert_eq!(report.len(), connections as usize);
    assert!(report.iter().all(|report| report.status == FlowStatus::Completed && report.bytes_received == 30_000));
}

#[test]
fn a_thousand_connections_at_once_come_to_their_end() {
    all_complete(1_000);
}

/// Slow without optimization; `holdover bench sim-many` runs the same and prints figures.
#[test]
#[ignore = "ten times the size of the test above, for a release build"]
fn ten_thousand_connections_at_once_come_to_their_end() {
    all_complete(10_000);
}

fn endless(config: WorldConfig, until: u64) -> Vec<(Holdings, u64)> {
    let mut world = World::new(config).unwrap();
    let mut seen = Vec::new();
    for second in 1..=until {
        assert_eq!(world.run_to(Instant::from_secs(second), &mut NoObserver), None);
        seen.push((world.holdings(), world.events()));
    }
    seen
}

// Claim: The memory of a run does not grow with simulated time.
#[test]
fn memory_does_not_grow_with_the_run() {
    let mut lossy = wire(2_000, ms(20), 30);
    lossy.loss = holdover_link::Loss::Independent(0.01);
    lossy.outages = holdover_link::Outages::periodic(secs(3), ms(400));
    let flows = vec![flow("bulk", 0, 1, bulk_for(secs(5_000))), flow("noise", 1, 0, bursts())];
    let wired = pair(lossy, flows, secs(6_000));
    let path = holdover_sim::Path { repeat: Repeat::BackAndForth, ..line(&[30.0, 50.0], 5.0, 0) };
    let mut moving = cellular(Movement::Path(path), Attachment::Registration(Registration::through(GATEWAY)));
    moving.flows = vec![flow("down", FIXED, MOBILE, bulk_for(secs(5_000))), flow("noise", FIXED, NEIGHBOUR, bursts())];
    moving.time_limit = Instant::from_secs(6_000);
    for config in [wired, moving] {
        let seen = endless(config, 1_000);
        // The most memory in the first 10 s, and in the last 10 of 1000: a send buffer of bulk data is full in both.
        let most =
            |range: core::ops::Range<usize>, of: fn(&Holdings) -> u64| seen[range].iter().map(|(h, _)| of(h)).max();
        for (name, of) in [
            ("packets", (|h| h.packets) as fn(&Holdings) -> u64),
            ("connections", |h| h.connections),
            ("buffered bytes", |h| h.buffered_bytes),
        ] {
            let (early, late) = (most(0..10, of).unwrap(), most(990..1_000, of).unwrap());
            assert!(late <= early * 2 + 10, "{name}: {early} in the first 10 s, {late} after 1000 s");
        }
        assert!(seen[999].1 > 50 * seen[9].1, "the run has not come to a halt");
    }
}
