//! Both halves of a session by scripts and over random hops, the messages, and whole connections between two nodes.

// Claim: MTCP/SRP: all bytes arrive in order and in a bounded time under any losses of the hop, connections are opened, closed,
// refused and aborted as without it, and no message harms a node.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant, Rng};
use holdover_filter::{Connection, Direction, SegmentFilter, Verdict};
use holdover_srp::message::{Flag, Message, MessageError};
use holdover_srp::receiver::Receiver;
use holdover_srp::sender::Sender;
use holdover_srp::{Srp, SrpConfig};
use holdover_tcp::{ConnectionId, Endpoint, EndpointConfig, Profile, State};
use holdover_wire::{Flags, Packet, Seq};
use proptest::prelude::*;

fn config() -> SrpConfig {
    SrpConfig { window_packets: 64, ..SrpConfig::with(Profile::RenoBsd.config()) }
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn numbers(sender: &mut Sender) -> Vec<u32> {
    let mut numbers = Vec::new();
    while let Some(message) = sender.poll_transmit() {
        numbers.push(match message {
            Message::Data { number, .. } => number.value(),
            other => panic!("{other:?}"),
        });
    }
    numbers
}

/// The opening is acknowledged after 20 ms; five packets are sent at 20 ms.
fn five_out() -> Sender {
    let mut sender = Sender::new(&config());
    sender.send(at(0), Flag::Open, Bytes::new());
    assert!(!sender.has_room(), "before the peer has answered");
    sender.handle_ack(at(20), Seq::new(1), Seq::new(65), 0);
    for byte in 1..=5 {
        sender.send(at(20), Flag::None, Bytes::from(vec![byte; 10]));
    }
    assert_eq!(numbers(&mut sender), [0, 1, 2, 3, 4, 5]);
    sender
}

/// 1 and 3 are lost, as the mask of 4 shows.
#[test]
fn packets_sent_before_one_that_arrived_are_retransmitted_once() {
    let mut sender = five_out();
    sender.handle_ack(at(40), Seq::new(1), Seq::new(65), 0b1);
    assert_eq!(numbers(&mut sender), [1]);
    sender.handle_ack(at(41), Seq::new(1), Seq::new(65), 0b101);
    assert_eq!(numbers(&mut sender), [3]);
    // A duplicate, and 5, give no new information about 1 and 3, which were transmitted later.
    sender.handle_ack(at(42), Seq::new(1), Seq::new(65), 0b101);
    sender.handle_ack(at(43), Seq::new(1), Seq::new(65), 0b1101);
    assert_eq!(numbers(&mut sender), [] as [u32; 0]);
    // 3 has arrived again and 1 has not: lost once more.
    sender.handle_ack(at(60), Seq::new(1), Seq::new(65), 0b1111);
    assert_eq!((numbers(&mut sender), sender.repeated()), (vec![1], 3));
    sender.handle_ack(at(80), Seq::new(6), Seq::new(70), 0);
    assert_eq!((sender.outstanding(), sender.poll_timeout()), (0, None));
}

/// SRTT is 20 ms and RTTVAR 10 ms: 60 ms, then 120, 240, ... up to 1 s. Only the oldest packet is sent; its answer
/// shows the other holes.
#[test]
fn a_timeout_retransmits_the_oldest_packet_and_doubles() {
    let mut sender = five_out();
    let mut due = Vec::new();
    for _ in 0..6 {
        let next = sender.poll_timeout().expect("packets are outstanding");
        sender.handle_timeout(next);
        assert_eq!(numbers(&mut sender), [1]);
        due.push(next.as_millis());
    }
    assert_eq!(due, [80, 200, 440, 920, 1880, 2880]);
    sender.handle_ack(at(2900), Seq::new(2), Seq::new(66), 0);
    assert_eq!(numbers(&mut sender), [2, 3, 4, 5]);
}

#[test]
fn the_peers_limit_is_respected_and_probed() {
    let mut sender = five_out();
    sender.handle_ack(at(40), Seq::new(6), Seq::new(65), 0);
    let mut sender = {
        // A limit never decreases.
        sender.handle_ack(at(41), Seq::new(6), Seq::new(6), 0);
        sender
    };
    assert!(sender.has_room());
    let mut shut = Sender::new(&config());
    shut.send(at(0), Flag::Open, Bytes::new());
    shut.handle_ack(at(10), Seq::new(1), Seq::new(1), 0);
    assert!(!shut.has_room());
    assert_eq!(numbers(&mut shut), [0]);
    shut.wait_for_room(at(10));
    let due = shut.poll_timeout().expect("it asks");
    shut.handle_timeout(due);
    assert_eq!(shut.poll_transmit(), Some(Message::Probe));
    shut.handle_ack(at(500), Seq::new(1), Seq::new(2), 0);
    assert!(shut.has_room());
    // Acknowledgements of packets never sent, and old ones, are ignored.
    sender.handle_ack(at(50), Seq::new(500), Seq::new(560), u64::MAX);
    sender.handle_ack(at(50), Seq::new(2), Seq::new(1 << 31), u64::MAX);
    sender.send(at(51), Flag::End, Bytes::new());
    assert!(sender.has_ended() && !sender.is_done() && !sender.has_room());
}

#[test]
fn the_receiver_reorders_packets_and_acknowledges_them() {
    let mut receiver = Receiver::new(&SrpConfig { window_packets: 4, ..config() });
    let data = |byte| Bytes::from(vec![byte; 3]);
    let ack = |expected, limit, mask| Message::Ack { expected: Seq::new(expected), limit: Seq::new(limit), mask };
    assert_eq!(receiver.handle_data(Seq::new(2), Flag::None, data(2)), ack(0, 4, 0b10));
    assert_eq!(receiver.handle_data(Seq::new(4), Flag::None, data(4)), ack(0, 4, 0b10), "beyond the limit");
    assert_eq!(receiver.handle_data(Seq::new(0), Flag::Open, Bytes::new()), ack(1, 4, 0b1));
    assert_eq!(receiver.handle_data(Seq::new(2), Flag::None, data(9)), ack(1, 4, 0b1), "twice");
    assert_eq!(receiver.handle_data(Seq::new(1), Flag::None, data(1)), ack(3, 4, 0));
    assert_eq!((receiver.take(0), receiver.poll_update()), (Some(Bytes::new()), None));
    assert_eq!(receiver.take(2), Some(data(1).slice(..2)));
    assert_eq!(receiver.take(9), Some(data(1).slice(2..)));
    assert_eq!(receiver.poll_update(), Some(ack(3, 6, 0)));
    assert_eq!(receiver.take(9), Some(data(2)));
    assert_eq!(receiver.handle_data(Seq::new(3), Flag::End, Bytes::new()), ack(4, 7, 0));
    assert!(!receiver.is_done());
    receiver.take(0);
    assert!(receiver.is_done());
}

fn connection() -> Connection {
    Connection { local: SocketAddr::from(([10, 0, 0, 1], 80)), remote: SocketAddr::from(([10, 0, 0, 2], 1024)) }
}

#[test]
fn invalid_messages_are_refused() {
    let bytes =
        |message: &Message| Message::datagram(&message.packet(connection())).expect("a datagram").payload.clone();
    let ack = bytes(&Message::Ack { expected: Seq::new(1), limit: Seq::new(2), mask: 3 });
    let parse = |bytes: &[u8]| Message::parse(&Bytes::copy_from_slice(bytes)).map(|(message, ..)| message);
    assert_eq!(parse(&ack[..15]), Err(MessageError::Short { have: 15, needed: 16 }));
    assert_eq!(parse(&ack[..23]), Err(MessageError::Short { have: 23, needed: 24 }));
    let spoilt = |at: usize, byte: u8| {
        let mut spoilt = ack.to_vec();
        spoilt[at] = byte;
        parse(&spoilt)
    };
    assert_eq!(spoilt(0, 2), Err(MessageError::Version(2)));
    assert_eq!(spoilt(1, 4), Err(MessageError::Type(4)));
    let mut data = bytes(&Message::Data { number: Seq::new(0), flag: Flag::End, data: Bytes::new() }).to_vec();
    data[3] = 3;
    assert_eq!(parse(&data), Err(MessageError::Flags(3)));
}

#[test]
fn invalid_settings_are_refused() {
    assert_eq!(config().check(), Ok(()));
    for bad in [
        SrpConfig { packet_bytes: 0, ..config() },
        SrpConfig { packet_bytes: 70_000, ..config() },
        SrpConfig { window_packets: 0, ..config() },
        SrpConfig { window_packets: 65, ..config() },
        SrpConfig { most: 0, ..config() },
        SrpConfig { least_timeout: Duration::ZERO, ..config() },
        SrpConfig { most_timeout: Duration::from_millis(1), ..config() },
    ] {
        assert!(bad.check().is_err(), "{bad:?}");
    }
}

/// A host, the node beside it, and packets between them.
struct End {
    address: IpAddr,
    host: Endpoint,
    node: Srp,
    id: Option<ConnectionId>,
    /// Whether its application reads.
    reads: bool,
    received: Vec<u8>,
    /// Whether the hop loses its node's acknowledgements.
    loses_acks: bool,
}

/// Two hosts with a lossy hop of 10 ms between their nodes.
struct Path {
    now: Instant,
    ends: [End; 2],
    /// Packets on the hop, by arrival and destination.
    hop: BTreeMap<(Instant, u64), (usize, Packet)>,
    order: u64,
    loss: f64,
    down: Vec<(u64, u64)>,
    rng: Rng,
    crossed: u64,
}

const DELAY: Duration = Duration::from_millis(10);

impl Path {
    fn new(loss: f64, down: &[(u64, u64)], seed: u64) -> Self {
        let tcp = Arc::new(Profile::RenoBsd.config());
        let mut ends = [1, 2].map(|last| {
            let address = IpAddr::from([10, 0, 0, last]);
            End {
                address,
                host: Endpoint::new(EndpointConfig { addresses: vec![address], secret: [last; 16] }),
                node: Srp::new(config(), [last; 16]),
                id: None,
                reads: true,
                received: Vec::new(),
                loses_acks: false,
            }
        });
        ends[1].host.listen(80, Arc::clone(&tcp), 10).expect("a listener");
        let remote = SocketAddr::new(ends[1].address, 80);
        ends[0].id = ends[0].host.connect(Instant::ZERO, tcp, None, remote).ok();
        let down = down.to_vec();
        Self { now: Instant::ZERO, ends, hop: BTreeMap::new(), order: 0, loss, down, rng: Rng::new(seed), crossed: 0 }
    }

    /// Handles all events at the current time.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 10_000, "livelock at {}", self.now);
            let mut is_idle = true;
            for side in 0..2 {
                is_idle &= !self.step(side);
            }
            if is_idle {
                return;
            }
        }
    }

    fn step(&mut self, side: usize) -> bool {
        let now = self.now;
        let end = &mut self.ends[side];
        let mut has_acted = false;
        if let Some(out) = end.host.poll_transmit(now) {
            let mut packet = out.packet;
            assert_ne!(end.node.handle_packet(now, Direction::Outgoing, &mut packet), Verdict::Pass);
            has_acted = true;
        }
        if let Some(made) = end.node.poll_transmit(now) {
            has_acted = true;
            match made.direction {
                Direction::Incoming => end.host.handle_packet(now, &made.packet),
                Direction::Outgoing => {
                    let datagram = Message::datagram(&made.packet).unwrap_or_else(|| panic!("{}", made.packet));
                    let message = Message::parse(&datagram.payload).expect("a message").0;
                    let is_lost = end.loses_acks && matches!(message, Message::Ack { .. });
                    // As a packet read from the wire.
                    let packet = Packet::parse(made.packet.emit().expect("bytes")).expect("a packet");
                    let is_down = self.down.iter().any(|&(from, to)| now >= at(from) && now < at(to));
                    if !is_down && !is_lost && !self.rng.chance(self.loss) {
                        self.order += 1;
                        self.hop.insert((now + DELAY, self.order), (1 - side, packet));
                    }
                    self.crossed += 1;
                }
            }
        }
        if end.id.is_none() {
            end.id = end.host.connections().next().map(|(id, _)| id);
        }
        while end.reads
            && let Some(data) = end.id.and_then(|id| end.host.connection_mut(id)).and_then(|tcp| tcp.read(now))
        {
            end.received.extend_from_slice(&data);
            has_acted = true;
        }
        while end.host.poll_event().is_some() {}
        while end.node.poll_action().is_some() {}
        has_acted
    }

    /// Advances time to `until`, or to the last event.
    fn run_until(&mut self, until: Instant) {
        self.settle();
        for _ in 0..200_000 {
            let timers = self.ends.iter().flat_map(|end| [end.host.poll_timeout(), end.node.poll_timeout()]);
            let arrival = self.hop.keys().next().map(|(at, _)| *at);
            let Some(next) = timers.flatten().chain(arrival).min().filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.hop.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (side, mut packet) = entry.remove();
                let verdict = self.ends[side].node.handle_packet(self.now, Direction::Incoming, &mut packet);
                assert_eq!(verdict, Verdict::Keep);
            }
            for end in &mut self.ends {
                end.host.handle_timeout(self.now);
                if end.node.poll_timeout().is_some_and(|at| at <= self.now) {
                    end.node.handle_timeout(self.now);
                }
            }
            self.settle();
        }
        panic!("livelock: deadlines without end");
    }

    fn tcp(&mut self, side: usize) -> &mut holdover_tcp::Connection {
        let id = self.ends[side].id.expect("a connection");
        self.ends[side].host.connection_mut(id).expect("a connection")
    }

    /// Writes as much of `data` as fits.
    fn write(&mut self, side: usize, data: &mut Bytes) {
        let now = self.now;
        let tcp = self.tcp(side);
        let written = tcp.write(now, data.clone());
        *data = data.slice(written..);
    }
}

fn pattern(len: usize) -> Bytes {
    (0..len).map(|at| (at % 251) as u8).collect::<Vec<u8>>().into()
}

/// Opens a connection, transfers data both ways, closes it, and checks that both nodes have dropped it.
fn transfer(path: &mut Path, len: usize, longest: Duration) {
    let end = Instant::ZERO + longest;
    let mut left = [pattern(len), pattern(len / 3)];
    while left.iter().any(|left| !left.is_empty()) && path.now < end {
        path.run_until(path.now + Duration::from_millis(20));
        for (side, left) in left.iter_mut().enumerate() {
            if path.ends[side].id.is_some() && path.tcp(side).state() == State::Established {
                path.write(side, left);
            }
        }
    }
    for side in 0..2 {
        path.tcp(side).shutdown_write();
    }
    while path.now < end && path.ends.iter().zip([len / 3, len]).any(|(end, len)| end.received.len() < len) {
        path.run_until(path.now + Duration::from_millis(20));
    }
    assert!(path.ends[0].received == pattern(len / 3), "{} of {}", path.ends[0].received.len(), len / 3);
    assert!(path.ends[1].received == pattern(len), "{} of {len}", path.ends[1].received.len());
    // TIME-WAIT, and the last acknowledgements.
    path.run_until(path.now + Duration::from_secs(200));
    assert_eq!(path.ends.each_ref().map(|end| end.node.connections()), [0, 0]);
}

#[test]
fn a_connection_is_opened_used_and_closed() {
    let mut path = Path::new(0.0, &[], 1);
    path.run_until(at(9));
    assert_eq!(path.tcp(0).state(), State::SynSent, "a SYN is answered when the far end has answered it");
    path.run_until(at(20));
    assert_eq!(path.tcp(0).state(), State::Established);
    transfer(&mut path, 300_000, Duration::from_secs(20));
}

#[test]
fn an_outage_ends_within_the_longest_timeout() {
    let mut path = Path::new(0.0, &[(100, 60_100)], 1);
    path.run_until(at(90));
    let mut data = pattern(50_000);
    path.write(0, &mut data);
    path.run_until(at(60_100));
    let before = path.ends[1].received.len();
    assert!(before < 50_000);
    path.run_until(at(61_300));
    assert!(path.ends[1].received.len() > before);
}

#[test]
fn a_closed_port_refuses_the_connection() {
    let mut path = Path::new(0.0, &[], 1);
    path.ends[1].host.unlisten(80);
    path.run_until(at(100));
    assert!(path.ends[0].id.and_then(|id| path.ends[0].host.connection(id)).is_none_or(|tcp| tcp.is_closed()));
    assert_eq!(path.ends.each_ref().map(|end| end.node.connections()), [0, 0]);
}

#[test]
fn an_abort_reaches_the_other_end() {
    let mut path = Path::new(0.0, &[], 1);
    path.run_until(at(100));
    path.tcp(0).abort();
    path.run_until(at(200));
    assert!(path.tcp(1).is_closed());
    assert_eq!(path.ends.each_ref().map(|end| end.node.connections()), [0, 0]);
}

/// Connections that began before, and those beyond the limit, pass; segments of a split connection over the hop do not.
#[test]
fn connections_that_are_not_split_pass() {
    let mut node = Srp::new(SrpConfig { most: 1, ..config() }, [1; 16]);
    let mut path = Path::new(0.0, &[], 1);
    let syn = path.ends[0].host.poll_transmit(Instant::ZERO).expect("a SYN").packet;
    let change = |change: &dyn Fn(&mut holdover_wire::Segment)| {
        let mut packet = syn.clone();
        if let Some(segment) = holdover_filter::tcp_mut(&mut packet) {
            change(segment);
        }
        packet
    };
    let mut ack = change(&|segment| segment.flags = Flags::ACK);
    assert_eq!(node.handle_packet(at(0), Direction::Outgoing, &mut ack), Verdict::Pass);
    assert_eq!(node.handle_packet(at(0), Direction::Outgoing, &mut syn.clone()), Verdict::Keep);
    let mut other = change(&|segment| segment.src_port ^= 1);
    assert_eq!(node.handle_packet(at(0), Direction::Outgoing, &mut other), Verdict::Pass);
    let mut inside = change(&|segment| core::mem::swap(&mut segment.src_port, &mut segment.dst_port));
    (inside.src, inside.dst) = (inside.dst, inside.src);
    assert_eq!(node.handle_packet(at(0), Direction::Incoming, &mut inside.clone()), Verdict::Drop);
    if let Some(segment) = holdover_filter::tcp_mut(&mut inside) {
        segment.dst_port ^= 1;
    }
    assert_eq!(node.handle_packet(at(0), Direction::Incoming, &mut inside), Verdict::Pass);
}

fn any_message() -> impl Strategy<Value = Message> {
    let flag = prop_oneof![Just(Flag::None), Just(Flag::Open), Just(Flag::End)];
    prop_oneof![
        (any::<u32>(), flag, prop::collection::vec(any::<u8>(), 0..50))
            .prop_map(|(number, flag, data)| Message::Data { number: Seq::new(number), flag, data: data.into() }),
        (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(expected, limit, mask)| Message::Ack {
            expected: Seq::new(expected),
            limit: Seq::new(limit),
            mask,
        }),
        Just(Message::Probe),
        Just(Message::Reset),
    ]
}

proptest! {
    #[test]
    fn messages_survive_the_wire(message in any_message()) {
        let packet = message.packet(connection());
        let read = Packet::parse(packet.emit().expect("bytes")).expect("a packet");
        let udp = Message::datagram(&read).expect("a datagram");
        prop_assert_eq!(Message::parse(&udp.payload), Ok((message, 80, 1024)));
    }

    /// Any bytes, and any messages in any order: no panic, and state stays bounded.
    #[test]
    fn arbitrary_messages_do_no_harm(
        messages in prop::collection::vec((any_message(), 0_u64..2_000, 0_u16..3), 1..80),
        bytes in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let _ = Message::parse(&Bytes::from(bytes));
        let mut node = Srp::new(SrpConfig { most: 2, ..config() }, [1; 16]);
        let mut now = Instant::ZERO;
        for (message, wait, port) in messages {
            let until = now + Duration::from_millis(wait);
            let mut count = 0;
            while let Some(due) = node.poll_timeout().filter(|due| *due <= until) {
                now = now.max(due);
                node.handle_timeout(now);
                count += 1;
                prop_assert!(count < 1_000, "deadlines without end");
                while node.poll_transmit(now).is_some() {}
            }
            now = until;
            let far = Connection {
                local: SocketAddr::from(([10, 0, 0, 9], 80 + port)),
                remote: SocketAddr::from(([10, 0, 0, 1], 80)),
            };
            let _ = node.handle_packet(now, Direction::Incoming, &mut message.packet(far));
            let mut answers = 0;
            while node.poll_transmit(now).is_some() {
                answers += 1;
            }
            prop_assert!(answers <= 70, "{answers} packets for one");
            prop_assert!(node.connections() <= 2);
        }
    }

    /// The receiver keeps no more than its window, whatever the numbers.
    #[test]
    fn a_receiver_keeps_no_more_than_its_window(
        base in 0_u32..3, numbers in prop::collection::vec(prop_oneof![0_u32..90, any::<u32>()], 1..200),
    ) {
        let mut receiver = Receiver::new(&config());
        for (index, number) in numbers.into_iter().enumerate() {
            receiver.handle_data(Seq::new(number.wrapping_add(base)), Flag::None, Bytes::from(vec![1; 5]));
            prop_assert!(receiver.waiting() <= 64);
            if index % 7 == 0 {
                receiver.take(5);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Random losses and outages: all bytes arrive in order and once, within the rounds that the losses cost, with a
    /// bounded number of packets.
    #[test]
    fn everything_arrives_despite_losses_and_outages(
        loss in 0.0..0.3,
        gaps in prop::collection::vec((100_u64..2_000, 50_u64..3_000), 0..4),
        len in 1_000_usize..200_000,
        seed in any::<u64>(),
    ) {
        let mut from = 0;
        let down: Vec<(u64, u64)> = gaps.iter().map(|&(up, down)| {
            let begin = from + up;
            from = begin + down;
            (begin, from)
        }).collect();
        let mut path = Path::new(loss, &down, seed);
        // A window of 64 packets takes a few round trips of 20 ms even if three in ten are lost; ten timeouts in a row are rare.
        let windows = (len / (64 * 1_000) + 2) as u64;
        let longest = Duration::from_millis(from + 1_500 * (1 + down.len() as u64) + 2_500 * windows) + Duration::from_secs(20);
        transfer(&mut path, len, longest);
        let packets = (len * 4 / 3 / 1_000 + 60) as u64;
        prop_assert!(path.crossed < 8 * packets + from / 10 + 600, "{} packets for {packets}", path.crossed);
    }
}

/// The acknowledgement of one direction's end is lost until the peer has dropped the session, and its sender gets a reset, while data of the
/// other direction still wait for the host.
#[test]
fn a_session_dropped_early_by_the_peer_loses_no_data() {
    let mut path = Path::new(0.0, &[], 1);
    path.run_until(at(100));
    path.ends[0].reads = false;
    let data = pattern(70_000);
    let mut left = data.clone();
    while !left.is_empty() {
        path.write(1, &mut left);
        path.run_until(path.now + Duration::from_millis(20));
        assert!(path.now < at(10_000), "{} bytes without room", left.len());
    }
    path.ends[1].loses_acks = true;
    (0..2).for_each(|side| path.tcp(side).shutdown_write());
    while path.ends[1].node.connections() > 0 {
        path.run_until(path.now + Duration::from_secs(1));
        assert!(path.now < at(600_000), "the peer keeps the session");
    }
    path.ends[1].loses_acks = false;
    path.run_until(path.now + Duration::from_secs(5));
    assert_eq!((path.ends[0].received.len(), path.ends[0].node.connections()), (0, 1));
    path.ends[0].reads = true;
    path.run_until(path.now + Duration::from_secs(200));
    assert!(path.ends[0].received == data, "{} bytes", path.ends[0].received.len());
    assert_eq!(path.ends.each_ref().map(|end| end.node.connections()), [0, 0]);
}
