//! A mobile router with a network behind it: the gateway's daemon serves all of its hosts as one mobile host.

use core::net::IpAddr;

use holdover_base::Instant;
use holdover_filter::{Chain, Direction, Presence, Verdict};
use holdover_gateway::Mechanisms;
use holdover_gateway::daemon::{DaemonConfig, Mode};
use holdover_gateway::prefixes::Prefixes;
use holdover_link::LinkConfig;
use holdover_sim::{
    FlowConfig, FlowReport, FlowStatus, GatewayMechanisms, LinkBetween, NoObserver, NodeConfig, NodeId, Role, World,
};
use holdover_tcp::Profile;
use holdover_wire::Packet;

use crate::script::{FIXED, segment};
use crate::support::*;

/// Two hosts behind one mobile router, and one behind another.
const HOSTS: [IpAddr; 3] = [host(7, 2), host(7, 3), host(8, 2)];

const fn host(network: u8, last: u8) -> IpAddr {
    IpAddr::V4(core::net::Ipv4Addr::new(10, 3, network, last))
}

struct Router {
    chain: Chain,
    now: Instant,
}

impl Router {
    /// Each network of 24 bits is that of one mobile router.
    fn new(mode: Mode) -> Self {
        let mut prefixes = Prefixes::default();
        prefixes.add([10, 3, 0, 0].into(), 16, 24);
        let config = DaemonConfig { mode, prefixes, ..DaemonConfig::default() };
        let mechanisms = Mechanisms { daemon: Some(config), ..Mechanisms::default() };
        Self { chain: mechanisms.chain([7; 16]), now: Instant::ZERO }
    }

    /// Passes a packet; returns what leaves.
    fn pass(&mut self, direction: Direction, mut packet: Packet) -> Vec<(IpAddr, u32)> {
        let passes = self.chain.handle_packet(self.now, direction, &mut packet) == Verdict::Pass;
        passes.then_some(packet).into_iter().map(|packet| what(&packet)).chain(self.made()).collect()
    }

    /// 100 bytes for a host.
    fn data(&mut self, host: IpAddr, seq: u32) -> Vec<(IpAddr, u32)> {
        self.pass(Direction::Outgoing, Packet::new(FIXED, host, segment((80, 1000), seq, 1, 500, 100)))
    }

    fn ack(&mut self, host: IpAddr, ack: u32) -> Vec<(IpAddr, u32)> {
        self.pass(Direction::Incoming, Packet::new(host, FIXED, segment((1000, 80), 1, ack, 500, 0)))
    }

    fn at(&mut self, millis: u64) {
        self.now = at_ms(millis);
        self.chain.handle_timeout(self.now);
    }

    fn report(&mut self, host: IpAddr, presence: Presence) -> Vec<(IpAddr, u32)> {
        self.chain.handle_mobile(self.now, host, presence);
        self.made()
    }

    fn made(&mut self) -> Vec<(IpAddr, u32)> {
        core::iter::from_fn(|| self.chain.poll_transmit()).map(|made| what(&made.packet)).collect()
    }
}

/// Where a packet goes, and its sequence number; for the fixed host, its window.
fn what(packet: &Packet) -> (IpAddr, u32) {
    let segment = packet.tcp().expect("a segment");
    (packet.dst, if packet.dst == FIXED { segment.window.into() } else { segment.seq.value() })
}

// Claim: Hosts with one prefix are one mobile host of the gateway: what is reported of one holds for all, packets for all of them wait in one
// queue, in the order of their arrival, and a packet from any of them releases it. Hosts of other prefixes are not affected.
#[test]
fn hosts_behind_a_mobile_router_leave_and_return_together() {
    let [one, other, elsewhere] = HOSTS;
    let mut router = Router::new(Mode::Buffer);
    assert_eq!(router.data(one, 1), [(one, 1)]);
    router.at(10);
    assert_eq!(router.report(one, Presence::Away), []);
    router.at(20);
    assert_eq!(router.data(other, 1), []);
    assert_eq!(router.data(one, 101), []);
    assert_eq!(router.data(elsewhere, 1), [(elsewhere, 1)]);
    assert_eq!(router.data(other, 101), []);
    router.at(500);
    let mut released = router.ack(other, 1);
    released.retain(|&(to, _)| to != FIXED);
    assert_eq!(released, [(other, 1), (one, 101), (other, 101)]);
    assert_eq!(router.data(one, 201), [(one, 201)]);
}

// Claim: A gateway in the modes that freeze shuts the windows of the senders to all hosts with the prefix of one that is reported away, and of
// no others.
#[test]
fn senders_to_all_hosts_of_a_prefix_are_frozen() {
    let mut router = Router::new(Mode::Freeze);
    for host in HOSTS {
        for number in [1, 101] {
            router.data(host, number);
        }
        router.ack(host, 101);
    }
    router.at(10);
    let shut = router.report(HOSTS[1], Presence::Away);
    assert_eq!(shut, [(FIXED, 0), (FIXED, 0)]);
    router.at(1_000);
    assert_eq!(router.report(HOSTS[0], Presence::Present), [(FIXED, 500), (FIXED, 500)]);
}

/// The radio's other end is a mobile router; two hosts are behind it, and download.
fn network(mechanisms: Option<Mechanisms>) -> Vec<FlowReport> {
    let mut config = world(Profile::Linux6Cubic, 3_000_000, &[(4_000, 14_000)]);
    config.nodes[0].role = Role::Router;
    let hosts = [NodeId(3), NodeId(4)];
    for (host, name) in hosts.into_iter().zip(["one", "other"]) {
        config.nodes.push(NodeConfig { name: name.into(), role: Role::Host });
        config.links.push(LinkBetween::wire(name, MOBILE, host, LinkConfig::default()));
    }
    let flow = |host: NodeId| FlowConfig { name: format!("to {}", host.0), to: host, ..config.flows[0].clone() };
    config.flows = hosts.map(flow).into();
    let mechanisms = mechanisms.map(|mechanisms| GatewayMechanisms {
        node: TOWER,
        mechanisms,
        mobiles: hosts.into(),
        hears_links: true,
    });
    config.gateways = mechanisms.into_iter().collect();
    let mut world = World::new(config).expect("a world");
    world.run(&mut NoObserver);
    world.report()
}

// Claim: A base station keeps packets for the hosts behind a mobile router, each or as one prefix, over a cut of 10 s of its link: both
// downloads go on within 0.3 s, in place of more than 3 s.
#[test]
fn downloads_of_hosts_behind_a_mobile_router_go_on_at_once() {
    let idle = |report: &FlowReport| report.reconnections.last().and_then(|last| last.idle).expect("it went on");
    let plain = network(None);
    assert!(plain.iter().any(|report| idle(report) > ms(3_000)), "{:?}", plain.iter().map(idle).collect::<Vec<_>>());
    let mut prefixes = Prefixes::default();
    let address = NodeId(3).address(false);
    prefixes.add(address, 24, 24);
    for prefixes in [Prefixes::default(), prefixes] {
        let config = DaemonConfig { prefixes, ..DaemonConfig::default() };
        let reports = network(Some(Mechanisms { daemon: Some(config), ..Mechanisms::default() }));
        for report in reports {
            assert_eq!(report.status, FlowStatus::Completed);
            assert!(idle(&report) < ms(300), "{}", idle(&report));
        }
    }
}
