use std::net::Ipv4Addr;

use bytes::Bytes;
use holdover_base::Duration;
use holdover_wire::{Flags, Seq, TcpOptions, Timestamps};

use super::*;
use crate::wake::WakeConfig;
use crate::{SegmentFilter as _, Verdict};

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ONE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);

const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };
const MOVED: LinkEvent = LinkEvent::Up { symmetric: true, moved: true };

/// A host with a connection to each of two peers, over 40 ms of round trip, on which it sends keys. Its timestamp clock counts ms from zero,
/// unless it is set back.
struct Keys {
    wake: Wake,
    now: Instant,
    set_back: u32,
}

impl Keys {
    fn new() -> Self {
        let wake = Wake::new(WakeConfig::all()).detecting_silence(SilenceOptions::default()).copying_own_data();
        let mut this = Self { wake, now: Instant::from_secs(100), set_back: 0 };
        for peer in [ONE, OTHER] {
            this.open(peer);
            this.send(peer, 1);
            this.wait(40);
            this.acknowledge(peer, 11);
        }
        this.wait(1000);
        this
    }

    fn open(&mut self, peer: Ipv4Addr) {
        self.host(peer, Segment { flags: Flags::SYN, ..Segment::default() });
        self.wait(40);
        let flags = Flags::SYN | Flags::ACK;
        self.peer(peer, Segment { flags, ack: Seq::new(1), ..Segment::default() });
        self.host(peer, Segment { seq: Seq::new(1), ack: Seq::new(1), flags: Flags::ACK, ..Segment::default() });
    }

    /// A key of ten bytes.
    fn send(&mut self, peer: Ipv4Addr, seq: u32) {
        let (seq, ack, payload) = (Seq::new(seq), Seq::new(1), Bytes::from_static(&[7; 10]));
        let flags = Flags::ACK | Flags::PSH;
        self.host(peer, Segment { seq, ack, flags, payload, window: 60_000, ..Segment::default() });
    }

    fn acknowledge(&mut self, peer: Ipv4Addr, ack: u32) {
        let (seq, ack, flags) = (Seq::new(1), Seq::new(ack), Flags::ACK);
        self.peer(peer, Segment { seq, ack, flags, window: 60_000, ..Segment::default() });
    }

    fn val(&self) -> u32 {
        self.now.as_millis() as u32 - self.set_back
    }

    fn host(&mut self, peer: Ipv4Addr, segment: Segment) {
        self.pass(Direction::Outgoing, (HOST, 1000), (peer, 80), Timestamps { val: self.val(), ecr: 0 }, segment);
    }

    fn peer(&mut self, peer: Ipv4Addr, segment: Segment) {
        self.pass(Direction::Incoming, (peer, 80), (HOST, 1000), Timestamps { val: 1, ecr: self.val() }, segment);
    }

    fn pass(
        &mut self,
        direction: Direction,
        from: (Ipv4Addr, u16),
        to: (Ipv4Addr, u16),
        timestamps: Timestamps,
        segment: Segment,
    ) {
        let options = TcpOptions { timestamps: Some(timestamps), ..TcpOptions::default() };
        let segment = Segment { src_port: from.1, dst_port: to.1, options, ..segment };
        let mut packet = Packet::new(from.0.into(), to.0.into(), segment);
        assert_eq!(self.wake.handle_packet(self.now, direction, &mut packet), Verdict::Pass);
    }

    /// Lets time pass. Returns the packets that the filter makes meanwhile, each with its destination and the length of its data.
    fn wait(&mut self, millis: u64) -> Vec<(IpAddr, usize)> {
        let mut sent = Vec::new();
        for _ in 0..millis {
            let made = std::iter::from_fn(|| self.wake.poll_transmit(self.now));
            sent.extend(made.map(|it| (it.packet.dst, it.packet.tcp().map_or(0, |tcp| tcp.payload.len()))));
            self.now += Duration::from_millis(1);
            self.wake.handle_timeout(self.now);
        }
        sent
    }

    /// A key that gets no answer, and the host's retransmissions of it.
    fn send_in_vain(&mut self, peer: Ipv4Addr, seq: u32) -> Vec<(IpAddr, usize)> {
        let mut sent = Vec::new();
        for millis in [200, 400, 800, 1600] {
            self.send(peer, seq);
            sent.extend(self.wait(millis));
        }
        sent
    }

    fn connection(peer: Ipv4Addr) -> Connection {
        Connection { local: (HOST, 1000).into(), remote: (peer, 80).into() }
    }

    /// The TSval of a packet of the controller on a connection, made with `val`.
    fn raised(&self, peer: Ipv4Addr, val: u32) -> u32 {
        let options = TcpOptions { timestamps: Some(Timestamps { val, ecr: 0 }), ..TcpOptions::default() };
        let packet = Packet::new(HOST.into(), peer.into(), Segment { options, ..Segment::default() });
        let mut injected = Injected { direction: Direction::Outgoing, packet };
        self.wake.own.segments.raise_timestamp(Self::connection(peer), &mut injected);
        injected.packet.tcp().and_then(|tcp| tcp.options.timestamps).map(|timestamps| timestamps.val).unwrap()
    }
}

/// The packets to a peer.
fn to(peer: Ipv4Addr, sent: &[(IpAddr, usize)]) -> usize {
    sent.iter().filter(|(to, _)| *to == peer).count()
}

// Claim: In the simulator, silence of one peer's path is detected while the path to another peer is down, and a move of one peer drops no copy
// of what the host has sent to another.
#[test]
fn the_path_to_one_peer_is_not_that_to_another() {
    let mut t = Keys::new();
    t.wake.handle_peer(t.now, &[ONE.into()], LinkEvent::Down);
    t.wait(100);
    let sent = t.send_in_vain(OTHER, 11);
    assert!(sent.contains(&(OTHER.into(), 10)), "{sent:?}");
    assert_eq!(to(ONE, &sent), 0);
    t.wake.handle_peer(t.now, &[ONE.into()], MOVED);
    assert!(t.wake.own.segments.has(Keys::connection(OTHER)));
    // The silence is still found.
    t.wait(100);
    let sent = t.send_in_vain(OTHER, 11);
    assert!(sent.contains(&(OTHER.into(), 10)), "{sent:?}");
}

#[test]
fn a_key_is_kept_when_the_host_moves() {
    let mut t = Keys::new();
    t.wake.handle_link(t.now, LinkEvent::Down);
    t.wait(100);
    assert_eq!(t.send_in_vain(ONE, 11), []);
    t.wake.handle_link(t.now, LinkEvent::Up { symmetric: false, moved: true });
    let sent = t.wait(50);
    assert!(sent.contains(&(ONE.into(), 10)), "{sent:?}");
}

// Claim: In the simulator, the first packet after a silence brings a copy of every key, also of one of which the silence had as many as may be
// sent.
#[test]
fn copies_count_anew_from_the_packet_that_ends_a_silence() {
    let mut t = Keys::new();
    let sent = t.send_in_vain(OTHER, 11);
    assert!(sent.contains(&(OTHER.into(), 10)), "{sent:?}");
    assert!(t.wake.control.silent_since().is_some());
    t.wake.own.segments.use_up(Keys::connection(OTHER));
    let sent = t.wait(1000);
    assert!(to(OTHER, &sent) > 10 && !sent.contains(&(OTHER.into(), 10)), "{sent:?}");
    t.acknowledge(ONE, 11);
    assert_eq!(t.wake.control.silent_since(), None);
    let sent = t.wait(50);
    let [poke, copy] = [(HOST.into(), 0), (OTHER.into(), 10)].map(|made| sent.iter().position(|it| *it == made));
    assert!(copy.is_some() && copy < poke, "the first message goes out with a copy: {sent:?}");
}

#[test]
fn a_link_that_carries_packets_though_it_is_reported_down_is_watched() {
    let mut t = Keys::new();
    t.wake.handle_link(t.now, LinkEvent::Down);
    t.wait(2000);
    assert_eq!(t.wake.detects_next_at(), None);
    t.acknowledge(ONE, 11);
    assert!(t.wake.control.contradicts_down());
    t.wait(2000);
    t.send_in_vain(OTHER, 11);
    assert!(t.wake.control.silent_since().is_some());
}

/// The clock of the second connection was set back, as after a change of the stack.
#[test]
fn a_connection_knows_nothing_of_an_earlier_one_on_its_ports() {
    for is_reset in [false, true] {
        let mut t = Keys::new();
        t.wake.handle_link(t.now, LinkEvent::Down);
        t.wait(100);
        assert_eq!(t.send_in_vain(ONE, 11), []);
        t.wake.handle_link(t.now, UP);
        let sent = t.wait(50);
        assert!(sent.contains(&(ONE.into(), 10)), "{sent:?}");
        assert!(t.raised(ONE, 5) > 100_000, "after a copy");
        t.wake.handle_link(t.now, LinkEvent::Down);
        if is_reset {
            t.host(ONE, Segment { seq: Seq::new(21), flags: Flags::RST, ..Segment::default() });
            assert_eq!(t.raised(ONE, 5), 5);
        }
        t.set_back = 100_000;
        t.host(ONE, Segment { flags: Flags::SYN, seq: Seq::new(5_000_000), ..Segment::default() });
        assert_eq!(t.raised(ONE, 5), 5);
    }
}
