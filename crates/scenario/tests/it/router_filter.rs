//! A mechanism that is written for a gateway, at a router of a scenario: a filter of the test's own in place of the router's chain.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdover_base::{Duration, Instant};
use holdover_filter::{Chain, Direction, Injected, LinkEvent, Presence, SegmentFilter, Verdict};
use holdover_scenario::Builtin;
use holdover_sim::{FlowReport, NoObserver, World};
use holdover_wire::Packet;

/// Keeps packets to a mobile host while it is away.
#[derive(Debug, Default)]
struct KeepWhileAway {
    is_away: bool,
    waiting: VecDeque<Packet>,
    /// All packets that were ever kept; the test reads it.
    kept: Arc<AtomicUsize>,
}

impl SegmentFilter for KeepWhileAway {
    fn handle_packet(&mut self, _now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        if !self.is_away || direction == Direction::Incoming {
            return Verdict::Pass;
        }
        self.waiting.push_back(packet.clone());
        self.kept.fetch_add(1, Ordering::Relaxed);
        Verdict::Keep
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {
        panic!("a router's mechanisms get the presence of mobile hosts");
    }

    fn handle_mobile(&mut self, _now: Instant, _mobile: IpAddr, presence: Presence) {
        self.is_away = presence == Presence::Away;
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        let packet = if self.is_away { None } else { self.waiting.pop_front() };
        packet.map(|packet| Injected { direction: Direction::Outgoing, packet })
    }
}

/// Runs the variant of the built-in scenario "gateway"; `filter` takes the place of the router's own mechanisms.
fn download(variant: &str, filter: Option<KeepWhileAway>) -> FlowReport {
    let scenario = Builtin::find("gateway").unwrap().scenario().unwrap();
    let variant = scenario.variants().iter().find(|known| known.name() == variant).unwrap();
    let config = variant.world(scenario.seed()).unwrap();
    let router = config.gateways.first().map(|gateway| gateway.node);
    let mut world = World::new(config).unwrap();
    if let Some(filter) = filter {
        let is_known = world.edit_chain(router.expect("the variant gives the router mechanisms"), |chain| {
            *chain = Chain::new();
            chain.push(Box::new(filter));
        });
        assert!(is_known);
    }
    world.run(&mut NoObserver);
    world.report().remove(0)
}

// Claim: A filter that is written for a gateway runs at a router of a scenario: it gets the presence of the mobile host, keeps packets
// while that is away and sends them on its return, upon which the download continues within 100 ms.
#[test]
fn a_filter_for_a_gateway_runs_at_a_router() {
    let kept = Arc::new(AtomicUsize::new(0));
    let plain = download("plain", None);
    let kept_packets = download("freeze", Some(KeepWhileAway { kept: Arc::clone(&kept), ..KeepWhileAway::default() }));
    let longest = |report: &FlowReport| report.reconnections.iter().map(|back| back.idle.unwrap()).max().unwrap();
    assert!(kept.load(Ordering::Relaxed) > 0, "nothing came while the phone was away");
    assert_eq!(kept_packets.bytes_received, plain.bytes_received);
    assert!(longest(&plain) > Duration::from_secs(1), "{}", longest(&plain));
    assert!(longest(&kept_packets) <= Duration::from_millis(100), "{}", longest(&kept_packets));
}

/// Counts packets by direction, and changes none.
#[derive(Debug)]
struct CountDirections([Arc<AtomicUsize>; 2]);

impl SegmentFilter for CountDirections {
    fn handle_packet(&mut self, _now: Instant, direction: Direction, packet: &mut Packet) -> Verdict {
        let is_data = packet.tcp().is_some_and(|segment| !segment.payload.is_empty());
        assert!(!is_data || direction == Direction::Incoming, "the server sends the data");
        self.0[usize::from(direction == Direction::Outgoing)].fetch_add(1, Ordering::Relaxed);
        Verdict::Pass
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {
        panic!("a router's mechanisms get the presence of mobile hosts");
    }

    fn handle_mobile(&mut self, _now: Instant, _mobile: IpAddr, presence: Presence) {
        panic!("the server's link has no outages: {presence:?}");
    }
}

// Claim: A router's filter serves any hosts that the scenario names, also one at a wired link that never leaves: what comes from it is
// incoming, and what goes to it outgoing.
#[test]
fn a_router_serves_a_host_that_is_not_mobile() {
    let scenario = Builtin::find("gateway").unwrap().scenario().unwrap();
    let variant = scenario.variants().iter().find(|known| known.name() == "freeze").unwrap();
    let mut config = variant.world(scenario.seed()).unwrap();
    let server = config.flows[0].from;
    let router = config.gateways[0].node;
    config.gateways[0].mobiles = vec![server];
    let mut world = World::new(config).unwrap();
    let counts = [Arc::default(), Arc::default()];
    let filter = CountDirections(counts.clone());
    assert!(world.edit_chain(router, |chain| {
        *chain = Chain::new();
        chain.push(Box::new(filter));
    }));
    world.run(&mut NoObserver);
    assert!(world.report().remove(0).bytes_received > 20_000_000);
    let [incoming, outgoing] = counts.map(|count| count.load(Ordering::Relaxed));
    assert!(incoming > 20_000 && outgoing > 5_000, "{incoming} segments of data, {outgoing} others");
}
