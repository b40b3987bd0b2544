//! Routers that follow links, configured routes, and the errors of routers that cannot forward.

use holdover_base::{Duration, Instant};
use holdover_link::{InFlightFate, LinkConfig, Outage, OutagePolicy, Outages, QueuedFate};
use holdover_sim::{
    BlackHole, Dropped, FlowId, Frame, LinkDetection, LinkId, Medium, NodeId, Observer, Place, Route, Routing, Transit,
    World, WorldConfig, WorldError, WorldEvent, black_holes,
};
use holdover_wire::{Payload, Unreachable};

use crate::support::{Log, at_ms, bulk_bytes, bulk_for, flow, host, link, ms, router, secs, wire};

const SERVER: NodeId = NodeId(1);
const EDGE: NodeId = NodeId(2);
const CORE: NodeId = NodeId(3);
const MAST: NodeId = NodeId(4);
const FIBRE: LinkId = LinkId(1);
const UP_MAST: LinkId = LinkId(2);
const RADIO: LinkId = LinkId(3);

/// A link that drops everything from 3 s to 9 s.
fn cut(link: LinkConfig) -> LinkConfig {
    LinkConfig {
        outages: Outages::List(vec![Outage { down: at_ms(3_000), up: at_ms(9_000) }]),
        outage_policy: OutagePolicy { queued: QueuedFate::Dropped, in_flight: InFlightFate::Dropped },
        ..link
    }
}

/// A client at the router "edge" and a server at "core", with a fibre between them that is cut, and a mast as a backup.
fn site(routing: Routing) -> WorldConfig {
    WorldConfig {
        seed: 1,
        nodes: vec![host("client"), host("server"), router("edge"), router("core"), router("mast")],
        links: vec![
            link("lan", 0, EDGE.0, wire(100_000, ms(1), 100)),
            link("fibre", EDGE.0, CORE.0, cut(wire(10_000, ms(5), 100))),
            link("up-mast", EDGE.0, MAST.0, wire(100_000, ms(1), 100)),
            link("radio", MAST.0, CORE.0, wire(4_000, ms(20), 60)),
            link("backbone", CORE.0, SERVER.0, wire(100_000, ms(4), 100)),
        ],
        routing,
        flows: vec![flow("upload", 0, SERVER.0, bulk_bytes(12_000_000))],
        time_limit: Instant::from_secs(60),
        ..WorldConfig::default()
    }
}

/// The same without the mast.
fn without_backup(routing: Routing) -> WorldConfig {
    let mut config = site(routing);
    config.nodes.pop();
    config.links.retain(|link| !["up-mast", "radio"].contains(&link.name.as_str()));
    config
}

fn follows(detection: LinkDetection) -> Routing {
    Routing { detection: Some(detection), routes: Vec::new() }
}

fn bfd() -> Routing {
    follows(LinkDetection::default())
}

fn route(router: NodeId, to: Option<NodeId>, link: LinkId, metric: u32) -> Route {
    Route { router, to, link, metric }
}

fn run(config: WorldConfig) -> (Log, World) {
    let mut log = Log::default();
    let mut world = World::new(config).unwrap();
    world.run(&mut log);
    (log, world)
}

/// ICMP errors that arrive at hosts.
#[derive(Default)]
struct Errors(Vec<(Instant, NodeId, Unreachable)>);

impl Observer for Errors {
    fn packet(&mut self, at: Instant, place: Place, frame: &Frame) {
        if let (Transit::In, NodeId(0 | 1), Payload::IcmpError(error)) =
            (place.transit, place.node, &frame.packet().payload)
        {
            assert_eq!(NodeId::of(frame.packet().dst), Some(place.node));
            self.0.push((at, place.node, error.kind));
        }
    }
}

fn errors(config: WorldConfig) -> (Errors, World) {
    let mut errors = Errors::default();
    let mut world = World::new(config).unwrap();
    world.run(&mut errors);
    (errors, world)
}

// Claim: Routers that follow links use the backup path once they have detected a cut, and return afterwards; routes with metrics
// likewise; a black hole is reported where routers do not follow links.
// Tests: `routing::detection_and_recovery_take_their_time`, `routing::routes_set_by_hand_are_taken_by_metric_and_by_link_state`,
// `routing::black_holes_are_found_and_gone_where_routers_follow_links`
#[test]
fn routers_that_follow_links_send_by_the_backup_path_and_back_again() {
    let (log, world) = run(site(bfd()));
    assert_eq!(log.when(|event| *event == WorldEvent::LinkAvoided(FIBRE)), [3_150.0]);
    assert_eq!(log.when(|event| *event == WorldEvent::LinkUsedAgain(FIBRE)), [9_150.0]);
    let report = &world.report()[0];
    // Data continues by radio with the first retransmission after the detection.
    let pause = report.longest_pause.unwrap();
    assert!((ms(150)..secs(1)).contains(&pause), "{pause}");
    let sent = |link, node| {
        let place = Place { node, medium: Medium::Link(link), transit: Transit::Out };
        log.packets.get(&place).copied().unwrap_or(0)
    };
    // Some 4 Mbit/s of 1500 bytes for some 5.5 s of uptime, and ACKs in the other direction.
    assert!(sent(RADIO, MAST) > 1_500, "{}", sent(RADIO, MAST));
    assert!(sent(RADIO, CORE) > 700, "ACKs: {}", sent(RADIO, CORE));
    // No packet goes by radio while the fibre is up: neither before the cut nor after its return.
    let by_radio = |at: Instant| at < at_ms(3_150) || at > at_ms(9_300);
    let first = log.first_packets.iter().filter(|(_, place)| place.medium == Medium::Link(RADIO)).count();
    assert_eq!(first, 0, "of the first hundred packets");
    assert!(log.drops.iter().all(|(at, _)| !by_radio(*at) || *at < at_ms(3_150) || *at > at_ms(9_000)));
    assert!(report.completed_at.is_some());
    let (_, static_world) = run(site(Routing::default()));
    assert!(static_world.report()[0].longest_pause.unwrap() > secs(6), "without following, the fibre is waited for");
}

#[test]
fn detection_and_recovery_take_their_time() {
    let detection = LinkDetection { down_after: secs(2), up_after: ms(500) };
    let (log, world) = run(site(follows(detection)));
    assert_eq!(log.when(|event| *event == WorldEvent::LinkAvoided(FIBRE)), [5_000.0]);
    assert_eq!(log.when(|event| *event == WorldEvent::LinkUsedAgain(FIBRE)), [9_500.0]);
    let pause = world.report()[0].longest_pause.unwrap();
    assert!((secs(2)..secs(6)).contains(&pause), "{pause}");
    // An outage shorter than the detection time is never detected.
    let (log, _) = run(site(follows(LinkDetection { down_after: secs(7), up_after: ms(500) })));
    assert_eq!(log.when(|event| matches!(event, WorldEvent::LinkAvoided(_) | WorldEvent::LinkUsedAgain(_))), [0.0; 0]);
}

#[test]
fn routes_set_by_hand_are_taken_by_metric_and_by_link_state() {
    let routes = vec![
        route(EDGE, None, FIBRE, 10),
        route(EDGE, None, UP_MAST, 20),
        route(CORE, Some(NodeId(0)), RADIO, 20),
        route(CORE, Some(NodeId(0)), FIBRE, 10),
    ];
    let routing = Routing { detection: Some(LinkDetection::default()), routes: routes.clone() };
    let (by_hand, _) = run(site(routing));
    let (automatic, _) = run(site(bfd()));
    assert_eq!(by_hand.hash, automatic.hash, "they say what is done without them");
    // With the roles reversed, the backup is the main path.
    let swapped = routes.iter().map(|route| Route { metric: 30 - route.metric, ..*route }).collect();
    let (log, _) = run(site(Routing { detection: None, routes: swapped }));
    let by_fibre = log.packets.iter().filter(|(place, _)| place.medium == Medium::Link(FIBRE)).count();
    assert_eq!(by_fibre, 0);
}

// Claim: Routers answer packets that they cannot forward with ICMP errors, six at once and one a second, and senders react to
// them (RFC 6069).
// Tests: `routing::a_loop_ends_in_time_exceeded`, `registration::packets_after_a_binding_expires_are_unreachable`
#[test]
fn a_router_without_a_route_says_so_and_the_sender_does_not_back_off() {
    let (errors, world) = errors(without_backup(bfd()));
    assert!(!errors.0.is_empty());
    let allowed = |(at, node, kind): &(Instant, NodeId, Unreachable)| {
        (at_ms(3_150)..at_ms(9_300)).contains(at) && *node == NodeId(0) && *kind == Unreachable::Network
    };
    assert!(errors.0.iter().all(allowed), "{:?}", errors.0);
    // Six errors at once and then one a second (RFC 1812 section 4.3.2.8).
    assert!(errors.0.len() <= 6 + 6, "{}", errors.0.len());
    let (_, silent) = run(without_backup(Routing::default()));
    let timeouts = |world: &World| world.report()[0].sender.as_ref().unwrap().timeouts;
    // RFC 6069: each error that quotes a retransmitted segment undoes one doubling.
    assert!(timeouts(&world) > timeouts(&silent) + 3, "{} and {}", timeouts(&world), timeouts(&silent));
    let gap = |world: &World| world.report()[0].longest_pause.unwrap();
    assert!(gap(&world) < gap(&silent), "{} and {}", gap(&world), gap(&silent));
}

#[test]
fn a_loop_ends_in_time_exceeded() {
    // While the fibre is down, the edge sends packets to the mast, and the mast sends them back.
    let mut routing = bfd();
    routing.routes =
        vec![route(EDGE, None, FIBRE, 1), route(EDGE, None, UP_MAST, 2), route(MAST, Some(SERVER), UP_MAST, 1)];
    let (log, _) = run(site(routing.clone()));
    assert!(log.drops.iter().any(|(_, why)| matches!(why, Dropped::HopLimit(EDGE | MAST))));
    let (errors, _) = errors(site(routing));
    let exceeded = |error: &&(Instant, NodeId, Unreachable)| error.2 == Unreachable::TimeExceeded { code: 0 };
    assert!(errors.0.iter().filter(exceeded).count() > 0, "{:?}", errors.0);
    // A world with a routing loop from the start is refused.
    let mut config = site(Routing::default());
    config.routing.routes = vec![route(EDGE, Some(SERVER), UP_MAST, 0), route(MAST, Some(SERVER), UP_MAST, 0)];
    assert!(matches!(World::new(config), Err(WorldError::Unreachable { .. })));
}

#[test]
fn black_holes_are_found_and_gone_where_routers_follow_links() {
    let hole = |from, to| BlackHole { flow: FlowId(0), link: FIBRE, from: NodeId(from), to: NodeId(to) };
    assert_eq!(black_holes(&site(Routing::default())).unwrap(), [hole(0, 1), hole(1, 0)]);
    assert_eq!(black_holes(&site(bfd())).unwrap(), []);
    assert_eq!(black_holes(&without_backup(Routing::default())).unwrap(), [], "there is no other way");
    let routes = vec![route(EDGE, None, FIBRE, 1), route(EDGE, None, UP_MAST, 2)];
    let only_up = Routing { detection: None, routes };
    assert_eq!(black_holes(&site(only_up)).unwrap(), [hole(0, 1), hole(1, 0)], "metrics alone do not help");
    // A host with two links uses the other one, because all nodes learn of the outage at once.
    let mut config = site(Routing::default());
    config.links[1].forward.outages = Outages::Never;
    config.links[0].forward = cut(config.links[0].forward.clone());
    config.links.push(link("second", 0, MAST.0, wire(4_000, ms(20), 60)));
    assert_eq!(black_holes(&config).unwrap(), []);
    // It does not, however, if the failed link is the one behind its first link.
    let mut config = site(Routing::default());
    config.links.retain(|link| link.name != "up-mast");
    config.links.push(link("second", 0, MAST.0, wire(4_000, ms(20), 60)));
    config.flows[0].traffic = bulk_for(Duration::from_secs(1));
    assert_eq!(black_holes(&config).unwrap(), [hole(0, 1), hole(1, 0)]);
}

#[test]
fn routes_that_cannot_be_are_refused() {
    let refused = |routes: Vec<Route>| World::new(site(Routing { detection: None, routes })).unwrap_err();
    assert!(matches!(refused(vec![route(SERVER, None, FIBRE, 0)]), WorldError::NotARouter { .. }));
    assert!(matches!(refused(vec![route(EDGE, None, LinkId(9), 0)]), WorldError::NoSuchLink { link: 9, .. }));
    assert!(matches!(refused(vec![route(EDGE, None, RADIO, 0)]), WorldError::RouteBySomeLink { .. }));
    assert!(matches!(refused(vec![route(EDGE, Some(NodeId(9)), FIBRE, 0)]), WorldError::NoSuchNode { .. }));
    assert!(matches!(refused(vec![route(EDGE, Some(SERVER), LinkId(0), 0)]), WorldError::RouteThroughHost { .. }));
}
