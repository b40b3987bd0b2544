//! Control messages between mechanisms: datagrams on the simulated links, between routers and between a router and a host.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use holdover_base::Instant;
use holdover_filter::ControlMessage;
use holdover_gateway::Mechanisms;
use holdover_gateway::blocking_buffer::BlockingBufferConfig;
use holdover_link::{Jitter, JitterDistribution, LinkConfig};
use holdover_mobility::{Chain, Direction, LinkEvent, SegmentFilter, Verdict};
use holdover_sim::{Dropped, GatewayMechanisms, NodeId, World, WorldConfig};
use holdover_wire::Packet;

use crate::support::*;

const HOST: NodeId = NodeId(0);
const ROUTERS: [NodeId; 2] = [NodeId(1), NodeId(2)];

/// Sends numbered messages to a peer, one every 10 ms, and records those that arrive.
#[derive(Clone, Debug)]
struct Correspondent {
    peer: IpAddr,
    numbers: std::ops::Range<u16>,
    next_at: Instant,
    ready: Vec<ControlMessage>,
    /// The sender, number and time of each.
    heard: Arc<Mutex<Vec<(IpAddr, u16, Instant)>>>,
}

impl Correspondent {
    fn new(peer: IpAddr, count: u16) -> Self {
        Self { peer, numbers: 0..count, next_at: at_ms(10), ready: Vec::new(), heard: Arc::default() }
    }

    fn chain(&self) -> Chain {
        let mut chain = Chain::new();
        chain.push(Box::new(self.clone()));
        chain
    }

    fn heard(&self) -> Vec<(IpAddr, u16, Instant)> {
        self.heard.lock().unwrap().clone()
    }
}

impl SegmentFilter for Correspondent {
    fn handle_packet(&mut self, _now: Instant, _direction: Direction, _packet: &mut Packet) -> Verdict {
        Verdict::Pass
    }

    fn handle_link(&mut self, _now: Instant, _event: LinkEvent) {}

    fn handle_control(&mut self, now: Instant, message: &ControlMessage) -> bool {
        let Ok(number) = <[u8; 2]>::try_from(&message.payload[..]) else { return false };
        self.heard.lock().unwrap().push((message.peer, u16::from_be_bytes(number), now));
        true
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(number) = self.numbers.next() {
            let payload = Bytes::copy_from_slice(&number.to_be_bytes());
            self.ready.push(ControlMessage { peer: self.peer, payload });
            self.next_at = now + ms(10);
        }
    }

    fn poll_control(&mut self) -> Option<ControlMessage> {
        self.ready.pop()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.numbers.is_empty()).then_some(self.next_at)
    }
}

/// A host, two routers and another host in a row; both routers have mechanisms, which a test replaces.
fn row(between: LinkConfig) -> WorldConfig {
    let access = wire(10_000, ms(1), 50);
    let mechanisms = Mechanisms { blocking_buffer: Some(BlockingBufferConfig::default()), ..Mechanisms::default() };
    let gateway =
        |node| GatewayMechanisms { node, mechanisms: mechanisms.clone(), mobiles: vec![HOST], hears_links: true };
    WorldConfig {
        seed: 3,
        nodes: vec![host("phone"), router("one"), router("other"), host("server")],
        links: vec![link("radio", 0, 1, access.clone()), link("between", 1, 2, between), link("wan", 2, 3, access)],
        gateways: ROUTERS.map(gateway).to_vec(),
        flows: vec![flow("idle", 3, 0, bulk_for(secs(20)))],
        time_limit: Instant::from_secs(20),
        ..WorldConfig::default()
    }
}

fn run(config: WorldConfig, nodes: [(NodeId, &Correspondent); 2]) -> Log {
    let mut world = World::new(config).expect("a valid world");
    for (node, correspondent) in nodes {
        assert!(world.edit_chain(node, |chain| *chain = correspondent.chain()));
    }
    let mut log = Log::default();
    world.run(&mut log);
    log
}

// Claim: Control messages between mechanisms take the time of their packets, can be lost, duplicated and reordered; a message
// that no mechanism can parse is dropped.
// Tests: `control::they_get_lost_and_come_twice_and_out_of_order`, `control::a_host_takes_part_and_unread_messages_are_dropped`
#[test]
fn they_cross_links_in_both_families_and_take_the_time_of_a_packet() {
    for ipv6 in [false, true] {
        let [one, other] = ROUTERS.map(|node| node.address(ipv6));
        let (near, far) = (Correspondent::new(other, 1), Correspondent::new(one, 0));
        let quiet = WorldConfig { flows: vec![flow("idle", 3, 0, exchanges(1, ms(1)))], ..row(wire(8, ms(50), 50)) };
        let start = WorldConfig {
            flows: vec![holdover_sim::FlowConfig { start: at_ms(1_000), ..quiet.flows[0].clone() }],
            ..quiet
        };
        run(start, [(ROUTERS[0], &near), (ROUTERS[1], &far)]);
        // Two bytes with the headers of UDP and IP at 8 kbit/s, and a delay of 50 ms, sent at 10 ms.
        let bytes = 2 + 8 + if ipv6 { 40 } else { 20 };
        assert_eq!(far.heard(), [(one, 0, at_ms(10 + bytes + 50))]);
        assert_eq!(near.heard(), []);
    }
}

#[test]
fn they_get_lost_and_come_twice_and_out_of_order() {
    let jitter = Jitter { amplitude: ms(100), distribution: JitterDistribution::Uniform, reorder: true };
    let between = LinkConfig {
        loss: holdover_link::Loss::Independent(0.2),
        duplicate: 0.2,
        jitter: Some(jitter),
        ..wire(100_000, ms(150), 500)
    };
    let [one, other] = ROUTERS.map(|node| node.address(false));
    let (near, far) = (Correspondent::new(other, 500), Correspondent::new(one, 500));
    run(row(between), [(ROUTERS[0], &near), (ROUTERS[1], &far)]);
    for (heard, from) in [(near.heard(), other), (far.heard(), one)] {
        let numbers: Vec<u16> = heard.iter().map(|heard| heard.1).collect();
        let distinct: BTreeSet<u16> = numbers.iter().copied().collect();
        assert!(heard.iter().all(|heard| heard.0 == from) && distinct.iter().all(|&number| number < 500));
        assert!((350..450).contains(&distinct.len()), "{} of 500 arrived, a fifth is lost", distinct.len());
        // 500 x 0.8 x 0.2 x 0.8 on average, with a standard deviation of 7.5.
        let twice = numbers.len() - distinct.len();
        assert!((34..=94).contains(&twice), "{twice} of 500 came twice");
        assert!(!numbers.is_sorted(), "some were overtaken");
    }
}

/// A host's mechanism receives them, too, over the link of its data; one that no mechanism can parse is dropped.
#[test]
fn a_host_takes_part_and_unread_messages_are_dropped() {
    let (phone, server) = (HOST.address(false), NodeId(3).address(false));
    let mut router = Correspondent::new(phone, 5);
    let mut on_phone = Correspondent::new(ROUTERS[0].address(false), 3);
    run(row(wire(10_000, ms(5), 50)), [(ROUTERS[0], &router), (HOST, &on_phone)]);
    assert_eq!(on_phone.heard().len(), 5);
    assert_eq!(router.heard().len(), 3);
    // The server has no mechanism, and the other router one that parses no message.
    (router.heard, on_phone.heard) = (Arc::default(), Arc::default());
    (router.peer, on_phone.peer) = (server, ROUTERS[1].address(false));
    let log = run(row(wire(10_000, ms(5), 50)), [(ROUTERS[0], &router), (HOST, &on_phone)]);
    let unread = |node| log.drops.iter().filter(|(_, why)| *why == Dropped::NoListener(node)).count();
    assert_eq!((unread(NodeId(3)), unread(ROUTERS[1])), (5, 3));
}
