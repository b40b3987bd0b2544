//! Split connections between two real ends, packet by packet.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::{Direction, SegmentFilter, Verdict};
use holdover_gateway::split::{Split, SplitConfig};
use holdover_tcp::{Config, ConnectionError, ConnectionId, Endpoint, EndpointConfig, Event, Profile, State};
use holdover_wire::{Flags, Packet, Segment, Seq};

use crate::script::{FIXED, PHONE, change};

fn config() -> Arc<Config> {
    Arc::new(Profile::Linux6Reno.config())
}

/// A fixed host, the node, and a mobile host, 1 ms apart.
struct Ends {
    now: Instant,
    fixed: Endpoint,
    node: Split,
    phone: Endpoint,
    /// The packets in flight, with their directions.
    wire: VecDeque<(Direction, Packet)>,
    events: Vec<(bool, ConnectionId, Event)>,
}

impl Ends {
    fn new(config: SplitConfig) -> Self {
        let end =
            |address: IpAddr, secret| Endpoint::new(EndpointConfig { addresses: vec![address], secret: [secret; 16] });
        Self {
            now: Instant::ZERO,
            fixed: end(FIXED, 1),
            node: Split::new(config, [3; 16]),
            phone: end(PHONE, 2),
            wire: VecDeque::new(),
            events: Vec::new(),
        }
    }

    fn listening() -> Self {
        let mut ends = Self::new(SplitConfig::with(Profile::Linux6Reno.config()));
        ends.phone.listen(80, config(), 16).unwrap();
        ends
    }

    fn connect(&mut self, port: u16) -> ConnectionId {
        let (local, remote) = (SocketAddr::new(FIXED, port), SocketAddr::new(PHONE, 80));
        self.fixed.connect(self.now, config(), Some(local), remote).unwrap()
    }

    /// Passes a packet through the node.
    fn pass(&mut self, direction: Direction, mut packet: Packet) {
        if self.node.handle_packet(self.now, direction, &mut packet) == Verdict::Pass {
            self.deliver(direction, &packet);
        }
        while let Some(made) = self.node.poll_transmit(self.now) {
            self.deliver(made.direction, &made.packet);
        }
    }

    fn deliver(&mut self, direction: Direction, packet: &Packet) {
        match direction {
            Direction::Outgoing => self.phone.handle_packet(self.now, packet),
            Direction::Incoming => self.fixed.handle_packet(self.now, packet),
        }
        self.collect();
    }

    fn collect(&mut self) {
        while let Some((id, event)) = self.fixed.poll_event() {
            self.events.push((true, id, event));
        }
        while let Some((id, event)) = self.phone.poll_event() {
            self.events.push((false, id, event));
        }
        while let Some(out) = self.fixed.poll_transmit(self.now) {
            self.wire.push_back((Direction::Outgoing, out.packet));
        }
        while let Some(out) = self.phone.poll_transmit(self.now) {
            self.wire.push_back((Direction::Incoming, out.packet));
        }
    }

    /// Lets this much time pass.
    fn run(&mut self, span: Duration) {
        let until = self.now + span;
        while self.now < until {
            self.collect();
            for _ in 0..self.wire.len() {
                let Some((direction, packet)) = self.wire.pop_front() else { break };
                self.pass(direction, packet);
            }
            self.now += Duration::from_millis(1);
            self.fixed.handle_timeout(self.now);
            self.phone.handle_timeout(self.now);
            self.node.handle_timeout(self.now);
            while let Some(made) = self.node.poll_transmit(self.now) {
                self.deliver(made.direction, &made.packet);
            }
        }
    }

    /// The phone's half of the newest connection.
    fn accepted(&self) -> ConnectionId {
        let connected = |(is_fixed, id, event): &(bool, ConnectionId, Event)| {
            (!is_fixed && *event == Event::Connected).then_some(*id)
        };
        self.events.iter().rev().find_map(connected).expect("the phone has accepted it")
    }
}

const SOON: Duration = Duration::from_millis(50);

// Claim: Between two real ends: a refused or unknown connection leaves no state of a split connection; ports can be reused; each
// side may close first; a flood of SYNs takes no more than its limit.
// Tests: `split::a_handshake_that_fails_on_one_side_leaves_nothing_on_the_other`,
// `split::ports_that_are_used_again_begin_a_new_connection`, `split::half_closed_connections_go_on_the_other_way`,
// `split::a_flood_of_syns_takes_no_more_than_it_may`
#[test]
fn a_connection_refused_by_the_far_end_is_refused_and_forgotten() {
    let mut ends = Ends::new(SplitConfig::with(Profile::Linux6Reno.config()));
    let id = ends.connect(1000);
    ends.run(SOON);
    assert_eq!(ends.fixed.connection(id).and_then(|half| half.error()), Some(ConnectionError::Refused));
    assert_eq!(ends.node.connections(), 0);
}

/// The client does not know the connection of the SYN-ACK: its RST ends both halves.
#[test]
fn a_handshake_that_fails_on_one_side_leaves_nothing_on_the_other() {
    let mut ends = Ends::listening();
    let syn = Segment { src_port: 1000, dst_port: 80, seq: Seq::new(7), flags: Flags::SYN, ..Segment::default() };
    // No socket of the fixed host sent it, so the host resets any answer.
    ends.pass(Direction::Outgoing, Packet::new(FIXED, PHONE, syn));
    ends.run(SOON);
    let id = ends.accepted();
    assert_eq!(ends.node.connections(), 0);
    assert!(ends.phone.connection(id).is_none_or(|half| half.is_closed()), "the phone's half is over");
}

#[test]
fn ports_that_are_used_again_begin_a_new_connection() {
    let mut ends = Ends::listening();
    for round in 0..3_u8 {
        let id = ends.connect(1000);
        ends.run(SOON);
        let (now, accepted) = (ends.now, ends.accepted());
        ends.fixed.connection_mut(id).unwrap().write(now, Bytes::from(vec![round; 10]));
        ends.run(SOON);
        let got = ends.phone.connection_mut(accepted).unwrap().read(now).expect("data");
        assert_eq!(got, vec![round; 10], "round {round}");
        // The server closes first, so that the client is not in TIME-WAIT, but the node's half towards it is.
        ends.phone.connection_mut(accepted).unwrap().close(now);
        ends.run(SOON);
        ends.fixed.connection_mut(id).unwrap().close(now);
        ends.run(SOON);
        assert!(matches!(ends.fixed.connection(id).map(|half| half.state()), Some(State::Closed)));
        ends.fixed.release(id);
    }
}

#[test]
fn a_flood_of_syns_takes_no_more_than_it_may() {
    let mut ends = Ends::new(SplitConfig { most: 100, ..SplitConfig::with(Profile::Linux6Reno.config()) });
    for port in 1..2_000 {
        let syn = Segment { src_port: port, dst_port: 80, seq: Seq::new(7), flags: Flags::SYN, ..Segment::default() };
        let mut packet = Packet::new(FIXED, PHONE, syn);
        let _ = ends.node.handle_packet(ends.now, Direction::Outgoing, &mut packet);
        while ends.node.poll_transmit(ends.now).is_some() {}
    }
    assert_eq!(ends.node.connections(), 100);
    // The host is absent: the node gives the halves up, and removes them.
    for _ in 0..400 {
        ends.now += Duration::from_secs(1);
        ends.node.handle_timeout(ends.now);
        while ends.node.poll_transmit(ends.now).is_some() {}
    }
    assert_eq!(ends.node.connections(), 0);
}

#[test]
fn half_closed_connections_go_on_the_other_way() {
    let mut ends = Ends::listening();
    let id = ends.connect(1000);
    ends.run(SOON);
    let (now, accepted) = (ends.now, ends.accepted());
    ends.phone.connection_mut(accepted).unwrap().shutdown_write();
    ends.run(SOON);
    assert_eq!(ends.fixed.connection(id).map(|half| half.state()), Some(State::CloseWait));
    ends.fixed.connection_mut(id).unwrap().write(now, Bytes::from_static(b"the rest"));
    ends.run(SOON);
    assert_eq!(ends.phone.connection_mut(accepted).unwrap().read(now).unwrap(), Bytes::from_static(b"the rest"));
    ends.fixed.connection_mut(id).unwrap().shutdown_write();
    ends.run(Duration::from_secs(70));
    assert_eq!(ends.node.connections(), 0);
}

#[test]
fn an_unknown_connection_passes_unchanged() {
    let mut ends = Ends::listening();
    let stray = change(crate::script::data(100, 10), |segment| segment.flags = Flags::ACK);
    ends.pass(Direction::Outgoing, stray);
    ends.run(SOON);
    assert_eq!(ends.node.connections(), 0);
    assert_eq!(ends.phone.strays(holdover_tcp::Disposition::NoConnection), 1, "the phone has got it");
}
