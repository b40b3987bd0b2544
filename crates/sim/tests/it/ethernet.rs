//! Links with a second layer: neighbour resolution, late forwarding, outages of one family, addresses restored late.

use holdover_base::Instant;
use holdover_link::{Alternating, InFlightFate, Length, LinkConfig, Outage, OutagePolicy, Outages, QueuedFate};
use holdover_sim::{
    AddressLoss, Dropped, Families, FlowConfig, FlowReport, FlowStatus, Layer2, LinkBetween, LinkId, LinkKind,
    OutageKind, World, WorldConfig, WorldError, WorldEvent,
};

use crate::support::*;

const ETHERNET: Layer2 = Layer2 {
    kind: LinkKind::Ethernet,
    outage: OutageKind::Silent,
    families: Families::Both,
    addresses: AddressLoss::Kept,
    nat: false,
    slaac: false,
};
const ACCESS: LinkId = LinkId(0);

/// A phone, 5 ms of Ethernet, a router, 10 ms of wire, a server. Sending takes no time.
fn world(layer2: Layer2, access: LinkConfig, flows: Vec<FlowConfig>) -> WorldConfig {
    let config = LinkConfig { delay: ms(5), ..access };
    let rest = LinkConfig { delay: ms(10), ..LinkConfig::default() };
    WorldConfig {
        seed: 1,
        nodes: vec![host("phone"), host("server"), router("router")],
        links: vec![LinkBetween { layer2, ..link("access", 0, 2, config) }, link("rest", 2, 1, rest)],
        flows,
        time_limit: Instant::from_secs(60),
        ..WorldConfig::default()
    }
}

fn cut(down: u64, up: u64, forwards_after: u64) -> LinkConfig {
    LinkConfig {
        outages: Outages::List(vec![Outage { down: at_ms(down), up: at_ms(up) }]),
        outage_policy: OutagePolicy { queued: QueuedFate::Dropped, in_flight: InFlightFate::Dropped },
        forwards_after: ms(forwards_after),
        ..wire(10_000, ms(0), 60)
    }
}

fn starting(at: u64, flow: FlowConfig) -> FlowConfig {
    FlowConfig { start: at_ms(at), ..flow }
}

fn run(config: WorldConfig) -> (Log, Vec<FlowReport>) {
    let (mut log, mut world) = (Log::default(), World::new(config).expect("a valid world"));
    world.run(&mut log);
    (log, world.report())
}

/// The SYN waits for a round trip on the Ethernet, and later packets do not: the router has learnt the sender's
/// address.
#[test]
fn the_first_packet_waits_until_its_neighbour_is_found() {
    for ipv6 in [false, true] {
        let flow = FlowConfig { ipv6, ..flow("up", 0, 1, bulk_bytes(100_000)) };
        for (kind, connected) in [(LinkKind::Ethernet, 40), (LinkKind::RawIp, 30), (LinkKind::Wire, 30)] {
            let layer2 = Layer2 { kind, ..ETHERNET };
            let (log, reports) = run(world(layer2, LinkConfig::default(), vec![flow.clone()]));
            assert_eq!(reports[0].connected_at, Some(at_ms(connected)), "{kind:?} {ipv6}");
            assert_eq!(reports[0].status, FlowStatus::Completed);
            assert!(log.drops.is_empty());
        }
    }
}

/// Carrier from 2 s on, forwarding from 2.5 s on: a request at 2.1 s is lost, and the next one is sent a second later.
// Claim: A link with a second layer behaves in the simulator as on kernels, to the millisecond: a packet waits for its neighbour,
// and requests are repeated once a second and abandoned after three.
// Tests: `frames_sent_before_the_link_forwards_are_dropped`
#[test]
fn a_request_that_is_lost_is_repeated_after_a_second() {
    let carrier = Layer2 { outage: OutageKind::Carrier, ..ETHERNET };
    let flows = vec![flow("early", 0, 1, bulk_bytes(1_000)), starting(2_100, flow("late", 0, 1, bulk_bytes(1_000)))];
    let (log, reports) = run(world(carrier, cut(1_000, 2_000, 500), flows.clone()));
    assert!(reports[1].connected_at.is_some_and(|at| at.as_millis() == 3_140), "{:?}", reports[1].connected_at);
    assert_eq!(log.when(|event| *event == WorldEvent::LinkUp(ACCESS)), [2_000.0]);
    assert_eq!(log.when(|event| *event == WorldEvent::LinkCarries(ACCESS)), [2_500.0]);
    // Without a loss of carrier the neighbour entry is kept, and the SYN leaves when TCP retransmits it.
    let (_, reports) = run(world(ETHERNET, cut(1_000, 2_000, 500), flows));
    assert!(reports[1].connected_at.is_some_and(|at| at.as_millis() == 3_130), "{:?}", reports[1].connected_at);
}

#[test]
fn waiting_packets_are_dropped_after_three_requests() {
    let (log, reports) = run(world(ETHERNET, cut(0, 10_000, 0), vec![flow("up", 0, 1, bulk_bytes(1_000))]));
    let unresolved = |why: Dropped| matches!(why, Dropped::Unresolved(_));
    let first = log.drops.iter().find(|(_, why)| unresolved(*why)).expect("it gives up");
    assert_eq!(first.0, at_ms(3_000));
    assert!(log.drops.iter().all(|(_, why)| unresolved(*why)), "{:?}", log.drops);
    assert_eq!(reports[0].status, FlowStatus::Completed);
}

#[test]
fn one_family_fails_and_the_other_does_not_notice() {
    let six_only = Layer2 { families: Families::Ipv6, ..ETHERNET };
    let flows = vec![
        flow("four", 1, 0, bulk_bytes(3_000_000)),
        FlowConfig { ipv6: true, ..flow("six", 1, 0, bulk_bytes(3_000_000)) },
    ];
    let (log, reports) = run(world(six_only, cut(1_000, 3_000, 0), flows));
    assert!(reports.iter().all(|report| report.status == FlowStatus::Completed));
    assert_eq!((reports[0].outage, reports[0].reconnections.len()), (ms(0), 0));
    assert_eq!(reports[1].outage, ms(2_000));
    assert_eq!(reports[1].reconnections.iter().map(|back| back.up_at).collect::<Vec<_>>(), [at_ms(3_000)]);
    assert_eq!(log.when(|event| *event == WorldEvent::FamilyLost(ACCESS, Families::Ipv6)), [1_000.0]);
    assert_eq!(log.when(|event| *event == WorldEvent::LinkCarries(ACCESS)), [3_000.0]);
    assert!(log.when(|event| matches!(event, WorldEvent::LinkDown(_) | WorldEvent::LinkUp(_))).is_empty());
    // The ideal time of the flow that fails includes the outage.
    let [four, six] = [&reports[0], &reports[1]].map(|report| report.ideal.expect("the path is fixed"));
    assert!(six > four + ms(1_900), "{four} {six}");
}

#[test]
fn a_link_carries_when_addresses_are_back() {
    for (families, outage) in [(Families::Both, OutageKind::Carrier), (Families::Ipv4, OutageKind::Silent)] {
        for after in [0, 700] {
            let addresses = AddressLoss::Lost { after: ms(after), other: false };
            let layer2 = Layer2 { families, outage, addresses, ..ETHERNET };
            let config = world(layer2, cut(1_000, 2_000, 300), vec![flow("down", 1, 0, bulk_bytes(3_000_000))]);
            let carries = at_ms(2_300 + after);
            assert_eq!(config.links[0].carries_at(at_ms(2_000)), carries);
            let (log, reports) = run(config);
            assert_eq!(log.when(|event| *event == WorldEvent::LinkCarries(ACCESS)), [2_300.0 + after as f64]);
            assert_eq!(reports[0].reconnections.iter().map(|back| back.up_at).collect::<Vec<_>>(), [carries]);
            assert_eq!(reports[0].status, FlowStatus::Completed);
        }
    }
}

#[test]
fn a_second_layer_is_between_a_host_and_a_router() {
    let mut config = world(ETHERNET, LinkConfig::default(), vec![flow("up", 0, 1, bulk_bytes(1_000))]);
    config.links[1].layer2 = ETHERNET;
    assert!(World::new(config.clone()).is_ok());
    config.links.push(LinkBetween { layer2: ETHERNET, ..link("direct", 0, 1, LinkConfig::default()) });
    assert!(matches!(World::new(config), Err(WorldError::Layer2Ends { .. })));
}

#[test]
fn the_same_world_takes_the_same_course() {
    let outages = Outages::Alternating(Alternating {
        initial_connected: None,
        connected: Length::Exponential { mean: secs(2) },
        disconnected: Length::Uniform { min: ms(100), max: ms(2_000) },
        count: None,
    });
    let layer2 = Layer2 {
        outage: OutageKind::CarrierNear,
        addresses: AddressLoss::Lost { after: ms(50), other: false },
        ..ETHERNET
    };
    let access = LinkConfig { outages, ..cut(0, 1, 120) };
    let flows = vec![
        flow("up", 0, 1, bulk_bytes(10_000_000)),
        FlowConfig { ipv6: true, ..flow("down", 1, 0, bulk_bytes(10_000_000)) },
    ];
    let config = world(layer2, access, flows);
    let ((one, reports), (other, again)) = (run(config.clone()), run(config));
    assert_eq!((one.lines, one.hash, &reports), (other.lines, other.hash, &again));
    assert!(reports.iter().all(|report| report.reconnections.len() > 1));
}
