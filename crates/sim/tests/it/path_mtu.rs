//! Links with an MTU: routers that report it, black holes, and TCPs that find out.

use std::collections::BTreeSet;

use holdover_base::{Duration, Instant};
use holdover_gateway::Mechanisms;
use holdover_gateway::m_tcp::MTcpConfig;
use holdover_gateway::split::SplitConfig;
use holdover_sim::{
    Dropped, FlowConfig, FlowReport, FlowStatus, Frame, GatewayMechanisms, HostAddressing, LinkBetween, LinkMtu,
    NodeId, Observer, Place, Transit, World, WorldConfig, WorldError,
};
use holdover_tcp::{MtuProbing, Profile, Reason};

use crate::support::*;

const NEAR: NodeId = NodeId(2);
const MTU: u32 = 1400;
const BLACK_HOLE: LinkMtu = LinkMtu { bytes: MTU, is_reported: false };

/// A client and a server, and between their routers a tunnel with an MTU.
fn world(mtu: Option<LinkMtu>, flow: FlowConfig) -> WorldConfig {
    WorldConfig {
        seed: 1,
        nodes: vec![host("client"), host("server"), router("near"), router("far")],
        links: vec![
            link("access", 0, 2, wire(100_000, ms(1), 1000)),
            LinkBetween { mtu, ..link("tunnel", 2, 3, wire(10_000, ms(10), 2000)) },
            link("rest", 3, 1, wire(100_000, ms(1), 1000)),
        ],
        flows: vec![flow],
        time_limit: Instant::from_secs(60),
        ..WorldConfig::default()
    }
}

fn upload(probing: MtuProbing) -> FlowConfig {
    let mut config = Profile::Linux6Cubic.config();
    config.path_mtu.probing = probing;
    with_stack(flow("upload", 0, 1, bulk_bytes(2_000_000)), config)
}

/// Notes how much data the packets of each end carry, and drops.
#[derive(Default)]
struct Sizes {
    from_client: BTreeSet<usize>,
    from_server: BTreeSet<usize>,
    drops: Vec<(Instant, Dropped)>,
    first_data: Option<Instant>,
}

impl Observer for Sizes {
    fn packet(&mut self, at: Instant, place: Place, frame: &Frame) {
        let len = frame.packet().tcp().map_or(0, |segment| segment.payload.len());
        if place.transit == Transit::Out && len > 0 {
            match place.node {
                NodeId(0) => _ = self.from_client.insert(len),
                NodeId(1) => _ = self.from_server.insert(len),
                _ => {}
            }
        } else if place.node == NodeId(1) && len > 0 {
            self.first_data.get_or_insert(at);
        }
    }

    fn dropped(&mut self, at: Instant, why: Dropped, _: &Frame) {
        self.drops.push((at, why));
    }
}

fn run(config: WorldConfig) -> (Sizes, FlowReport, World) {
    let mut sizes = Sizes::default();
    let mut world = World::new(config).unwrap();
    world.run(&mut sizes);
    let report = world.report().remove(0);
    (sizes, report, world)
}

// Claim: A router drops a packet that exceeds the next link's MTU, and reports that MTU by ICMP (RFC 1191) and ICMPv6 (RFC 4443); the sender
// repairs it without a timeout, and sends segments that fit.
#[test]
fn a_router_reports_the_mtu_and_the_sender_follows() {
    for (ipv6, most) in [(false, 1348), (true, 1328)] {
        let (sizes, report, world) =
            run(world(Some(LinkMtu::new(MTU)), FlowConfig { ipv6, ..upload(MtuProbing::Off) }));
        assert_eq!(report.status, FlowStatus::Completed);
        let sender = report.sender.unwrap();
        assert_eq!((sender.timeouts, sender.recoveries, report.bytes_received), (0, 0, 2_000_000), "IPv6: {ipv6}");
        let too_big = sizes.drops.iter().filter(|(_, why)| *why == Dropped::TooBig(NEAR)).count();
        // The initial window of ten segments left before the first report.
        assert_eq!((too_big, sizes.drops.len()), (10, 10));
        assert_eq!(sizes.from_client.iter().rev().take(2).copied().collect::<Vec<_>>(), [1448, most]);
        let [forth, _] = world.link_statistics(holdover_sim::LinkId(1)).unwrap();
        assert_eq!(forth.dropped.total().packets, 0, "they never entered the link");
    }
}

// Claim: A link whose MTU is not reported is a black hole: the handshake succeeds, and no data ever arrives, unless TCP probes the path.
#[test]
fn a_black_hole_lets_the_handshake_through_and_nothing_else() {
    let (sizes, report, _) = run(world(Some(BLACK_HOLE), upload(MtuProbing::Off)));
    assert!(report.connected_at.is_some_and(|at| at < Instant::from_millis(50)));
    assert_eq!((report.status, report.bytes_received, sizes.first_data), (FlowStatus::Unfinished, 0, None));
    assert!(sizes.drops.len() > 10 && sizes.drops.iter().all(|(_, why)| *why == Dropped::TooBig(NEAR)));
    assert_eq!(Dropped::TooBig(NEAR).name(), "too-big");
}

// Claim: With Linux's `tcp_mtu_probing` = 1 a sender detects a black hole after some 4 s of timeouts, and then finds the path MTU by probes.
#[test]
fn timeouts_reveal_a_black_hole_and_probes_the_path_mtu() {
    let (sizes, report, _) = run(world(Some(BLACK_HOLE), upload(MtuProbing::AfterBlackHole)));
    assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 2_000_000));
    // Retransmissions after 0.2, 0.4, 0.8 and 1.6 s; the timeout after that is more than 3 s after the first.
    let first_data = sizes.first_data.unwrap().saturating_since(Instant::ZERO);
    assert!((Duration::from_millis(3_000)..Duration::from_millis(5_000)).contains(&first_data), "{first_data}");
    let sender = report.sender.unwrap();
    assert!(sender.sent(Reason::MtuProbe) >= 3, "{}", sender.sent(Reason::MtuProbe));
    // The search stops within 8 bytes of the path MTU.
    let largest = sizes.from_client.range(..=1348).next_back().copied();
    assert!(largest.is_some_and(|len| len > 1348 - 8), "{largest:?}");
}

// Claim: With `tcp_mtu_probing` = 2 a black hole costs a connection no timeout: segments begin at `tcp_base_mss`, and lost probes do not
// reduce the window.
#[test]
fn a_search_from_the_beginning_meets_no_black_hole() {
    for mtu in [Some(BLACK_HOLE), Some(LinkMtu::new(MTU)), None] {
        let (sizes, report, _) = run(world(mtu, upload(MtuProbing::Always)));
        assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 2_000_000), "{mtu:?}");
        let sender = report.sender.unwrap();
        assert_eq!((sender.timeouts, sender.recoveries), (0, 0), "{mtu:?}");
        let largest = *sizes.from_client.range(..=mtu.map_or(1448, |_| 1348)).next_back().unwrap();
        assert!(largest > mtu.map_or(1448, |_| 1348) - 8, "{mtu:?}: {largest}");
        let is_lost_probe = |(_, why): &(Instant, Dropped)| *why == Dropped::TooBig(NEAR);
        assert!(sizes.drops.iter().all(is_lost_probe) && sizes.drops.len() <= 4, "{:?}", sizes.drops);
    }
}

// Claim: The MTU of a host's own link bounds its MSS, which also bounds the peer's segments: nothing is dropped.
#[test]
fn a_hosts_own_link_bounds_its_segments_and_its_peers() {
    for (ipv6, most) in [(false, 1348), (true, 1328)] {
        let exchange = FlowConfig { ipv6, ..flow("exchange", 0, 1, exchanges(3, ms(10))) };
        let mut config = world(None, exchange);
        config.links[0].mtu = Some(BLACK_HOLE);
        let (sizes, report, _) = run(config);
        assert_eq!((report.status, sizes.drops.len()), (FlowStatus::Completed, 0), "IPv6: {ipv6}");
        assert_eq!(sizes.from_server.last(), Some(&most));
    }
}

// Claim: A router that terminates connections (`split`, `m_tcp`) sends and accepts segments that fit its own links, like a host.
#[test]
fn a_router_that_terminates_connections_knows_the_mtu_of_its_links() {
    let split = || SplitConfig::with(Profile::Linux6Cubic.config());
    let none = Mechanisms::default;
    for mechanisms in
        [Mechanisms { split: Some(split()), ..none() }, Mechanisms { m_tcp: Some(MTcpConfig::with(split())), ..none() }]
    {
        for (ipv6, most) in [(false, 1348), (true, 1328)] {
            let mut config = world(Some(BLACK_HOLE), FlowConfig { ipv6, ..upload(MtuProbing::Off) });
            let (mechanisms, mobiles) = (mechanisms.clone(), vec![NodeId(0)]);
            config.gateways = vec![GatewayMechanisms { node: NEAR, mechanisms, mobiles, hears_links: false }];
            let (sizes, report, _) = run(config);
            assert_eq!((report.status, report.bytes_received), (FlowStatus::Completed, 2_000_000), "IPv6: {ipv6}");
            assert_eq!((sizes.drops.len(), sizes.from_client.last()), (0, Some(&most)), "IPv6: {ipv6}");
        }
    }
}

// Claim: Datagrams are not fragmented: a host drops those that exceed the MTU of its link, a router reports them.
#[test]
fn datagrams_are_not_fragmented() {
    let mut bursts = flow("bursts", 0, 1, bursts());
    if let holdover_sim::Traffic::OnOff(on_off) = &mut bursts.traffic {
        on_off.datagram = holdover_base::ByteCount(1_373);
    }
    for (at, node) in [(0, NodeId(0)), (1, NEAR)] {
        let mut config = world(None, bursts.clone());
        config.links[at].mtu = Some(LinkMtu::new(MTU));
        config.time_limit = Instant::from_secs(5);
        let (sizes, report, _) = run(config.clone());
        assert_eq!(report.bytes_received, 0);
        assert!(!sizes.drops.is_empty() && sizes.drops.iter().all(|(_, why)| *why == Dropped::TooBig(node)));
        config.links[at].mtu = Some(LinkMtu::new(MTU + 1));
        assert!(run(config).1.bytes_received > 0);
    }
}

// Claim: An MTU that no packet exceeds changes nothing: all events, packets and times are the same.
#[test]
fn an_mtu_that_no_packet_exceeds_changes_nothing() {
    let logged = |mtu| {
        let mut log = Log::default();
        World::new(world(mtu, upload(MtuProbing::Off))).unwrap().run(&mut log);
        log
    };
    assert!(logged(None) == logged(Some(LinkMtu::new(1500))));
}

/// The largest segments of all, over a path that carries them and over one that takes the least.
#[test]
fn extreme_mtus_carry_transfers() {
    for (bytes, most) in [(LinkMtu::MOST, 65_483), (LinkMtu::LEAST_IPV4, 524)] {
        for probing in [MtuProbing::Off, MtuProbing::AfterBlackHole, MtuProbing::Always] {
            let mut config = Profile::Linux6Cubic.config();
            config.mss = 65_495;
            config.path_mtu.probing = probing;
            let upload = with_stack(flow("upload", 0, 1, bulk_bytes(2_000_000)), config);
            let (sizes, report, _) = run(world(Some(LinkMtu::new(bytes)), upload));
            assert_eq!(
                (report.status, report.bytes_received),
                (FlowStatus::Completed, 2_000_000),
                "{bytes} {probing:?}"
            );
            assert!(sizes.from_client.contains(&most) || probing == MtuProbing::Always, "{bytes} {probing:?}");
        }
    }
}

#[test]
fn impossible_mtus_are_refused() {
    let error = |config: WorldConfig| World::new(config).expect_err("this world cannot be").to_string();
    let of = |bytes, ipv6| world(Some(LinkMtu::new(bytes)), FlowConfig { ipv6, ..upload(MtuProbing::Off) });
    assert_eq!(error(of(575, false)), "link tunnel has an MTU of 575 bytes, expected 576 to 65535");
    assert_eq!(error(of(1279, true)), "link tunnel has an MTU of 1279 bytes, expected 1280 to 65535");
    assert_eq!(error(of(65_536, false)), "link tunnel has an MTU of 65536 bytes, expected 576 to 65535");
    let mut config = of(MTU, false);
    config.addressing.push(HostAddressing {
        node: NodeId(0),
        addresses: holdover_sim::Addresses::One,
        identity: Some(holdover_sim::HostIdentity::default()),
    });
    let refused = WorldError::MtuAndIdentity { link: "tunnel".into(), node: "client".into() };
    assert_eq!(World::new(config).unwrap_err(), refused);
}
