//! Hosts with several links that use one at a time.

use holdover_base::Instant;
use holdover_link::{Outage, Outages};
use holdover_mobility::{Chain, Direction, EndpointMechanism, LinkEvent, SegmentFilter, Verdict};
use holdover_sim::{FlowStatus, LinkId, NodeId, World, WorldConfig, WorldEvent};
use holdover_tcp::Endpoint;
use holdover_wire::Packet;

use crate::support::*;

/// Host 0 has a link to each of two routers, which are both connected to the router of host 4.
fn two_ways() -> WorldConfig {
    let down = |from, to| Outages::List(vec![Outage { down: Instant::from_secs(from), up: Instant::from_secs(to) }]);
    let cut = |name, a, b, from, to| {
        let mut link = link(name, a, b, wire(2_000, ms(10), 50));
        link.forward.outages = down(from, to);
        link
    };
    let fast = wire(10_000, ms(5), 50);
    WorldConfig {
        seed: 1,
        nodes: vec![host("mobile"), router("wlan"), router("umts"), router("core"), host("server")],
        links: vec![
            cut("first", 0, 1, 2, 5),
            cut("second", 0, 2, 4, 7),
            link("a", 1, 3, fast.clone()),
            link("b", 2, 3, fast.clone()),
            link("c", 3, 4, fast),
        ],
        time_limit: Instant::from_secs(60),
        ..WorldConfig::default()
    }
}

#[test]
fn the_first_link_that_is_up_carries_everything() {
    let mut config = two_ways();
    config.flows = vec![flow("up", 0, 4, bulk_for(secs(10))), flow("down", 4, 0, bulk_for(secs(10)))];
    let mut log = Log::default();
    let mut world = World::new(config).unwrap();
    world.run(&mut log);
    // The first is down from 2 to 5 s, the second from 4 to 7 s.
    let changes: Vec<(u64, Option<LinkId>)> = log
        .events
        .iter()
        .filter_map(|(at, event)| match event {
            WorldEvent::AccessLink(NodeId(0), link) => Some((at.as_millis(), *link)),
            _ => None,
        })
        .collect();
    assert_eq!(changes, [(2_000, Some(LinkId(1))), (4_000, None), (5_000, Some(LinkId(0)))]);
    for report in world.report() {
        assert_eq!(report.status, FlowStatus::Completed);
        assert_eq!(report.outage, secs(1), "one of them was up all the other time");
        assert_eq!(report.reconnections.iter().map(|r| r.up_at).collect::<Vec<_>>(), [Instant::from_secs(5)]);
        assert_eq!(report.ideal, None);
    }
    let second = world.link_statistics(LinkId(1)).unwrap();
    // Two seconds at 2 Mb/s are 333 packets of 1500 bytes; slow start after the change uses some of that time.
    assert!(second[0].delivered.packets > 100 && second[1].delivered.packets > 100, "{second:?}");
}

#[test]
fn mechanisms_hear_when_the_access_changes() {
    let mut world =
        World::new(WorldConfig { flows: vec![flow("up", 0, 4, bulk_for(secs(10)))], ..two_ways() }).unwrap();
    let (mobile, server) = (Notes::default(), Notes::default());
    assert!(world.edit_chain(NodeId(0), |chain| *chain = mobile.chain()));
    assert!(world.edit_chain(NodeId(4), |chain| *chain = server.chain()));
    world.run(&mut holdover_sim::NoObserver);
    assert_eq!(
        mobile.heard(),
        [
            (2_000, LinkEvent::Up { symmetric: false, moved: true }),
            (4_000, LinkEvent::Down),
            (5_000, LinkEvent::Up { symmetric: false, moved: true }),
        ]
    );
    assert!(server.heard().is_empty(), "the server's own link is up all the time");
}

#[test]
fn a_mechanism_may_steer_the_endpoint_at_once() {
    #[derive(Debug)]
    struct AbortAll(bool);
    impl SegmentFilter for AbortAll {
        fn handle_packet(&mut self, _now: Instant, _direction: Direction, _packet: &mut Packet) -> Verdict {
            Verdict::Pass
        }

        fn handle_link(&mut self, _now: Instant, event: LinkEvent) {
            self.0 = event == (LinkEvent::Up { symmetric: true, moved: false });
        }
    }
    impl EndpointMechanism for AbortAll {
        fn steer(&mut self, _now: Instant, endpoint: &mut Endpoint) {
            if self.0 {
                let ids: Vec<_> = endpoint.connections().map(|(id, _)| id).collect();
                for id in ids {
                    endpoint.connection_mut(id).expect("a connection").abort();
                }
            }
        }
    }
    let mut chain = Chain::new();
    chain.push_endpoint(Box::new(AbortAll(false)));
    let mut wire = wire(2_000, ms(10), 50);
    wire.outages = Outages::List(vec![Outage { down: Instant::from_secs(1), up: Instant::from_secs(2) }]);
    let mut world = World::new(pair(wire, vec![flow("bulk", 0, 1, bulk_for(secs(10)))], secs(20))).unwrap();
    assert!(world.edit_chain(NodeId(0), |own| *own = chain));
    world.run(&mut holdover_sim::NoObserver);
    let report = &world.report()[0];
    assert_eq!(report.status, FlowStatus::Failed(holdover_tcp::ConnectionError::Aborted));
    assert_eq!(report.failed_at, Some(Instant::from_secs(2)));
    assert_eq!((report.duration(), report.outage), (secs(2), secs(1)));
}

#[test]
fn wired_outages_count_once_and_reconnections_are_noted() {
    let mut wire = wire(2_000, ms(10), 50);
    wire.outages = Outages::periodic(secs(2), ms(500));
    let mut flow = flow("bulk", 0, 1, bulk_for(secs(10)));
    flow.start = at_ms(2_300);
    let mut world = World::new(pair(wire, vec![flow], secs(60))).unwrap();
    world.run(&mut holdover_sim::NoObserver);
    let report = &world.report()[0];
    // The flow begins in the middle of the first outage, 200 ms before its end.
    let first = report.reconnections[0];
    assert_eq!(first.up_at, at_ms(2_500));
    let down = |at: u64| (0..at).filter(|ms| ms % 2_500 >= 2_000).count() as u64;
    let end = report.completed_at.unwrap();
    let expected = ms(down(end.as_millis()) - 300);
    let difference = report.outage.as_secs_f64() - expected.as_secs_f64();
    assert!(difference.abs() < 0.001, "{} {expected}", report.outage);
}

/// Each outage of half a second makes the sender's timer expire.
#[test]
fn the_sender_is_noted_at_a_break_and_at_the_first_new_data_after_it() {
    let mut wire = wire(2_000, ms(10), 50);
    wire.outages = Outages::periodic(secs(2), ms(500));
    let mut flow = flow("bulk", 0, 1, bulk_for(secs(10)));
    flow.start = at_ms(2_300);
    let mut world = World::new(pair(wire, vec![flow], secs(60))).unwrap();
    world.run(&mut holdover_sim::NoObserver);
    let reconnections = &world.report()[0].reconnections;
    // The flow begins in the middle of the first outage.
    assert_eq!((reconnections[0].before, reconnections[0].idle_before), (None, None));
    for outage in &reconnections[1..4] {
        let (before, after) = (outage.before.expect("a sender"), outage.after.expect("it went on"));
        assert!(before.rto >= ms(200) && before.cwnd > 4, "{outage:?}");
        assert!(after.rto > before.rto, "backed off: {outage:?}");
        assert!(after.cwnd > 0 && after.ssthresh.is_some(), "{outage:?}");
        assert!(outage.idle_before.is_some(), "{outage:?}");
    }
    assert!(reconnections[1].idle_before < Some(ms(20)), "data flowed until the break: {:?}", reconnections[1]);
}
