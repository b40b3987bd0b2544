//! Packet scripts: a chain of mechanisms between a host's TCP and a link. The test plays both.

use core::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use holdover_base::Instant;
use holdover_mobility::{Action, Chain, Direction, Injected, LinkEvent, Mechanisms, Verdict};
use holdover_wire::{Flags, Packet, Segment, Seq, TcpOptions, Timestamps};

use crate::support::at_ms;

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// A segment from the host's TCP: a pure ACK, unless changed.
pub(crate) fn from_host(ack: u32, window: u16) -> Packet {
    Packet::new(HOST, PEER, segment((1000, 80), 1, ack, window, 0))
}

/// A segment from the peer with `len` bytes.
pub(crate) fn from_peer(seq: u32, len: usize) -> Packet {
    Packet::new(PEER, HOST, segment((80, 1000), seq, 1, 500, len))
}

fn segment((src_port, dst_port): (u16, u16), seq: u32, ack: u32, window: u16, len: usize) -> Segment {
    Segment {
        src_port,
        dst_port,
        seq: Seq::new(seq),
        ack: Seq::new(ack),
        flags: Flags::ACK,
        window,
        urgent: 0,
        options: TcpOptions::default(),
        payload: Bytes::from(vec![0; len]),
    }
}

/// The packet on another connection, with another port of the host.
pub(crate) fn on_port(packet: Packet, port: u16) -> Packet {
    let is_hosts = packet.src == HOST;
    change(packet, |segment| *(if is_hosts { &mut segment.src_port } else { &mut segment.dst_port }) = port)
}

/// The packet with other flags besides ACK.
pub(crate) fn flags(packet: Packet, flags: Flags) -> Packet {
    change(packet, |segment| segment.flags |= flags)
}

/// The packet with timestamps.
pub(crate) fn stamped(packet: Packet, val: u32, ecr: u32) -> Packet {
    change(packet, |segment| segment.options.timestamps = Some(Timestamps { val, ecr }))
}

pub(crate) fn change(mut packet: Packet, change: impl FnOnce(&mut Segment)) -> Packet {
    match &mut packet.payload {
        holdover_wire::Payload::Tcp(segment) => change(segment),
        other => panic!("{other}"),
    }
    packet
}

pub(crate) fn tcp_of(packet: &Packet) -> &Segment {
    packet.tcp().expect("a segment")
}

/// The script's state.
pub(crate) struct Script {
    chain: Chain,
    now: Instant,
    injected: Vec<Injected>,
    actions: Vec<Action>,
}

impl Script {
    pub(crate) fn new(mechanisms: Mechanisms) -> Self {
        Self { chain: mechanisms.chain(), now: Instant::ZERO, injected: Vec::new(), actions: Vec::new() }
    }

    /// Advances to `millis`, handling every deadline up to and including it.
    pub(crate) fn at(&mut self, millis: u64) -> &mut Self {
        let to = at_ms(millis);
        while let Some(due) = self.chain.poll_timeout().filter(|&due| due <= to) {
            self.now = self.now.max(due);
            self.chain.handle_timeout(self.now);
            self.collect();
        }
        self.now = to;
        self
    }

    /// Advances to the next deadline, which must be at `millis`.
    pub(crate) fn timeout(&mut self, millis: u64) -> &mut Self {
        assert_eq!(self.chain.poll_timeout(), Some(at_ms(millis)));
        self.now = at_ms(millis);
        self.chain.handle_timeout(self.now);
        self.collect();
        self
    }

    pub(crate) fn link(&mut self, event: LinkEvent) -> &mut Self {
        self.chain.handle_link(self.now, event);
        self.collect();
        self
    }

    /// The host's TCP sends; returns the packet that is sent on the link.
    pub(crate) fn host(&mut self, packet: Packet) -> Segment {
        tcp_of(&self.host_packet(packet)).clone()
    }

    /// The same with its IP header.
    pub(crate) fn host_packet(&mut self, mut packet: Packet) -> Packet {
        let verdict = self.chain.handle_packet(self.now, Direction::Outgoing, &mut packet);
        assert_eq!(verdict, Verdict::Pass);
        self.collect();
        packet
    }

    /// The host's TCP sends; returns the packet that is sent on the link, if any.
    pub(crate) fn passes(&mut self, mut packet: Packet) -> Option<Segment> {
        let verdict = self.chain.handle_packet(self.now, Direction::Outgoing, &mut packet);
        self.collect();
        (verdict == Verdict::Pass).then(|| tcp_of(&packet).clone())
    }

    /// A packet of the peer arrives, and passes unchanged.
    pub(crate) fn peer(&mut self, packet: Packet) -> &mut Self {
        let mut passed = packet.clone();
        let verdict = self.chain.handle_packet(self.now, Direction::Incoming, &mut passed);
        assert_eq!((verdict, &passed), (Verdict::Pass, &packet));
        self.collect();
        self
    }

    /// The segments that the mechanisms sent to the link since the last call.
    pub(crate) fn sent(&mut self) -> Vec<Segment> {
        self.take(Direction::Outgoing)
    }

    /// The segments that the mechanisms passed to the host's TCP.
    pub(crate) fn handed_in(&mut self) -> Vec<Segment> {
        self.take(Direction::Incoming)
    }

    /// The actions, with their times in ms.
    pub(crate) fn actions(&mut self) -> Vec<(u64, &'static str)> {
        self.actions.drain(..).map(|action| (action.at.as_millis(), action.what)).collect()
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now.as_millis()
    }

    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.chain.poll_timeout().map(Instant::as_millis)
    }

    fn take(&mut self, direction: Direction) -> Vec<Segment> {
        let (taken, rest): (Vec<_>, Vec<_>) = self.injected.drain(..).partition(|it| it.direction == direction);
        self.injected = rest;
        taken.iter().filter_map(|injected| injected.packet.tcp().cloned()).collect()
    }

    fn collect(&mut self) {
        self.injected.extend(core::iter::from_fn(|| self.chain.poll_transmit()));
        self.actions.extend(core::iter::from_fn(|| self.chain.poll_action()));
    }
}
