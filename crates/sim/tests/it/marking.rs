//! Queues that mark congestion instead of dropping, and TCP's reaction (RFC 3168).

use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_link::{CoDel, DropCause, Statistics};
use holdover_sim::{FlowStatus, LinkId, NoObserver, World, WorldConfig};
use holdover_tcp::{Ecn, Profile};

use crate::support::*;

/// 10 MB over 10 Mbit/s and 25 ms each way with a queue of 200 packets, managed by `manage`. Returns the duration, the retransmitted bytes
/// and the link's counters.
fn transfer(
    profile: Profile,
    ecn: Ecn,
    manage: impl Fn(&mut holdover_link::LinkConfig),
) -> (Duration, u64, Statistics) {
    let mut forward = wire(10_000, ms(25), 200);
    manage(&mut forward);
    let mut path = link("path", 0, 1, wire(10_000, ms(25), 200));
    path.forward = forward;
    let mut bulk = flow("bulk", 0, 1, bulk_bytes(10_000_000));
    let mut config = profile.config();
    config.ecn = ecn;
    bulk.sender = Arc::new(config.clone());
    bulk.receiver = Arc::new(config);
    let config = WorldConfig {
        seed: 1,
        nodes: vec![host("a"), host("b")],
        links: vec![path],
        flows: vec![bulk],
        time_limit: Instant::from_secs(100),
        ..WorldConfig::default()
    };
    let mut world = World::new(config).expect("a valid world");
    world.run(&mut NoObserver);
    let report = &world.report()[0];
    assert_eq!(report.status, FlowStatus::Completed);
    let again = report.sender.as_ref().expect("it has counters").bytes_retransmitted.0;
    let [forward, _] = world.link_statistics(LinkId(0)).expect("a link");
    (report.duration(), again, forward)
}

fn codel(link: &mut holdover_link::LinkConfig) {
    link.codel = Some(CoDel::default());
}

fn mean_queue(took: Duration, statistics: &Statistics) -> f64 {
    statistics.queue.mean_packets(took)
}

/// With ECN, CoDel marks: nothing is dropped or retransmitted, and the queue stays short. Without ECN, it drops.
// Claim: CoDel keeps a queue of 200 packets below a third of its mean, marks ECN-capable packets, so that none is dropped, and
// drops others; with a step threshold (`ce_threshold`) none is dropped either. (The link alone, with RFC 8289's spacing:
// `crates/link/tests/it/codel.rs`.)
// Tests: `marking::a_step_threshold_keeps_the_queue_below_it`
#[test]
fn codel_marks_what_takes_part_in_ecn_and_drops_the_rest() {
    for profile in [Profile::Linux6Cubic, Profile::Linux6Reno] {
        let (plain_took, _, plain) = transfer(profile, Ecn::Request, |_| {});
        let (marked_took, again, marked) = transfer(profile, Ecn::Request, codel);
        let (dropped_took, dropped_again, dropped) = transfer(profile, Ecn::Off, codel);
        assert_eq!((again, marked.dropped.total().packets), (0, 0), "{profile}");
        assert!(marked.marked.packets > 0 && plain.marked.packets == 0, "{profile}");
        assert!(dropped.dropped.of(DropCause::CoDel).packets > 0 && dropped.marked.packets == 0, "{profile}");
        assert!(dropped_again >= 1_448 * dropped.dropped.of(DropCause::CoDel).packets, "{profile}");
        let queues = [(plain_took, plain), (marked_took, marked), (dropped_took, dropped)];
        let [plain, marked, dropped] = queues.map(|(took, statistics)| mean_queue(took, &statistics));
        assert!(marked < plain / 3.0 && dropped < plain / 3.0, "{profile}: {plain} {marked} {dropped}");
        // Reno halves a window that is hardly larger than the product: three quarters of the path remain.
        assert!(marked_took < plain_took * 4 / 3, "{profile}: {marked_took} for {plain_took}");
    }
}

/// `ce_threshold` marks every packet that has waited longer: the window is reduced once per round trip.
#[test]
fn a_step_threshold_keeps_the_queue_below_it() {
    let step = |link: &mut holdover_link::LinkConfig| link.ce_threshold = Some(ms(20));
    let (took, again, statistics) = transfer(Profile::Linux6Reno, Ecn::Request, step);
    assert_eq!((again, statistics.dropped.total().packets), (0, 0));
    // 20 ms correspond to 17 packets.
    let mean = mean_queue(took, &statistics);
    assert!(mean < 17.0, "{mean}");
    let (_, _, unmarked) = transfer(Profile::Linux6Reno, Ecn::Off, step);
    assert_eq!(unmarked.marked.packets, 0);
    assert!(unmarked.dropped.of(DropCause::QueueFull).packets > 0);
}
