//! Packets that a host's mechanisms pass, hold or rewrite leave with the bytes that they came with: in a tunnel they are those of another TCP.

use core::net::{IpAddr, Ipv6Addr};

use holdover_base::{Duration, Instant};
use holdover_mobility::delayed_dupacks::DelayedDupacksConfig;
use holdover_mobility::ebsn::EbsnConfig;
use holdover_mobility::retransmission_trigger::{PeerTrigger, RetransmissionTriggerConfig};
use holdover_mobility::{Chain, Direction, Injected, LinkEvent, Mechanisms, Verdict};
use holdover_wire::{Flags, Packet, Seq, SeqRange};
use proptest::prelude::*;

use crate::exact::mechanisms;
use crate::received::{number, received, without_edits};
use crate::script::{change, from_host, from_peer, stamped};

const HOST_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
const PEER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));

/// A segment that begins so many bytes after the first, and acknowledges so many.
#[derive(Clone, Copy, Debug)]
struct Sent {
    way: Direction,
    at: u16,
    len: usize,
    acked: u16,
    window: u16,
    has_sack: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Segment(Sent),
    /// Data beyond a hole, and the duplicate ACKs that it causes.
    Duplicates {
        acked: u16,
        window: u16,
        count: usize,
    },
    Link(LinkEvent),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let way = || prop_oneof![Just(Direction::Outgoing), Just(Direction::Incoming)];
    let segment = (way(), 0..3000u16, prop_oneof![Just(0), 1..1000usize], 0..3000u16, 0..600u16, any::<bool>());
    let duplicates = (0..3000u16, 0..600u16, 1..6usize);
    let link = prop_oneof![
        Just(LinkEvent::Fading { lead: None }),
        Just(LinkEvent::Recovered),
        Just(LinkEvent::Down),
        (any::<bool>(), any::<bool>()).prop_map(|(symmetric, moved)| LinkEvent::Up { symmetric, moved }),
    ];
    prop_oneof![
        8 => segment.prop_map(|(way, at, len, acked, window, has_sack)| {
            Step::Segment(Sent { way, at, len, acked, window, has_sack })
        }),
        1 => duplicates.prop_map(|(acked, window, count)| Step::Duplicates { acked, window, count }),
        1 => link.prop_map(Step::Link),
        2 => (0..2000u64).prop_map(Step::Wait),
    ]
}

/// Any valid combination, with those mechanisms for losses on the link that [`mechanisms`] does not draw.
fn all_mechanisms() -> impl Strategy<Value = Mechanisms> {
    let delay = prop::option::of((1..500u64).prop_map(Duration::from_millis));
    (mechanisms(), delay, any::<bool>()).prop_map(|(mechanisms, delay, ebsn)| {
        let delayed_dupacks = delay.map(|delay| DelayedDupacksConfig { delay });
        let all = Mechanisms { delayed_dupacks, ebsn: ebsn.then(EbsnConfig::default), ..mechanisms };
        let silence = all.unreachable_poke.and(all.silence);
        let own_data = all.own_data && all.unreachable_poke.is_some();
        let without_wake =
            Mechanisms { wake: false, hold_back: None, ack_stall: None, silence, own_data, ..all.clone() };
        if all.check().is_ok() { all } else { without_wake }
    })
}

/// Without mechanisms that send options of their own.
fn without_options(mechanisms: Mechanisms) -> Mechanisms {
    let retransmission_trigger = mechanisms.retransmission_trigger.map(|trigger| {
        let peer = if trigger.peer == PeerTrigger::Option { PeerTrigger::None } else { trigger.peer };
        RetransmissionTriggerConfig { peer, ..trigger }
    });
    Mechanisms { retransmission_trigger, probe: None, srp: None, ..mechanisms }
}

fn between(packet: Packet, way: Direction, is_ipv6: bool) -> Packet {
    match (is_ipv6, way) {
        (false, _) => packet,
        (true, Direction::Outgoing) => Packet { src: HOST_V6, dst: PEER_V6, ..packet },
        (true, Direction::Incoming) => Packet { src: PEER_V6, dst: HOST_V6, ..packet },
    }
}

/// The first bytes of a connection: both ends' SYN.
fn opening([host, peer]: [u32; 2]) -> [(Direction, Packet); 2] {
    let syn = change(from_host(0, 500), |syn| (syn.flags, syn.seq) = (Flags::SYN, Seq::new(host) - 1));
    let reply = change(from_peer(0, 0), |reply| {
        (reply.flags, reply.seq, reply.ack) = (Flags::SYN | Flags::ACK, Seq::new(peer) - 1, Seq::new(host));
    });
    [(Direction::Outgoing, syn), (Direction::Incoming, reply)]
}

/// An ACK, data beyond a hole, and duplicates of the ACK.
fn duplicates(acked: u16, window: u16, count: usize) -> Vec<Sent> {
    let ack = Sent { way: Direction::Outgoing, at: 0, len: 0, acked, window, has_sack: false };
    let data = Sent { way: Direction::Incoming, at: acked + 100, len: 100, acked: 0, ..ack };
    [vec![ack, data], vec![ack; count]].concat()
}

/// The packet of a segment, with timestamps.
fn packet(sent: Sent, [host, peer]: [u32; 2], now: Instant) -> Packet {
    let Sent { way, at, len, acked, window, has_sack } = sent;
    let (own, others) = if way == Direction::Outgoing { (host, peer) } else { (peer, host) };
    let packet = if way == Direction::Outgoing { from_host(0, 500) } else { from_peer(0, 0) };
    let packet = change(packet, |segment| {
        (segment.seq, segment.ack) = (Seq::new(own) + u32::from(at), Seq::new(others) + u32::from(acked));
        (segment.window, segment.payload) = (window, vec![at as u8; len].into());
        if has_sack {
            segment.options.sack.push(SeqRange::new(segment.ack + 50, segment.ack + 100));
        }
    });
    let millis = 1 + now.as_millis() as u32;
    stamped(packet, millis, millis)
}

proptest! {
    // Claim: Packets that pass a host's mechanisms keep their bytes, unknown TCP options, identification and flow label among them,
    // except ACK number, window, timestamps, SACK blocks, hop limit and checksums; all packets with data are such ones, but for the byte
    // by which `freeze` prompts the host's own TCP to acknowledge (a segment with an unknown option is not copied by `own_data`). Over random
    // segments, link events and pauses, with IPv4 and IPv6. The mechanisms that send options of their own are left out (PROBE, SRP,
    // and the retransmission trigger's option).
    #[test]
    fn packets_leave_as_they_came(
        mechanisms in all_mechanisms().prop_map(without_options),
        steps in prop::collection::vec(step(), 1..120),
        first in any::<[u32; 2]>(),
        is_ipv6 in any::<bool>(),
        begins in any::<bool>(),
    ) {
        let mut forwarder = Forwarder { chain: mechanisms.chain(), now: Instant::from_secs(1), is_ipv6, came: Vec::new(), acks: Vec::new() };
        for (way, packet) in opening(first).into_iter().filter(|_| begins) {
            forwarder.forward(way, packet)?;
        }
        for step in &steps {
            match *step {
                Step::Link(event) => forwarder.chain.handle_link(forwarder.now, event),
                Step::Wait(millis) => forwarder.wait(Duration::from_millis(millis)),
                Step::Segment(sent) => forwarder.forward(sent.way, packet(sent, first, forwarder.now))?,
                Step::Duplicates { acked, window, count } => {
                    for sent in duplicates(acked, window, count) {
                        forwarder.forward(sent.way, packet(sent, first, forwarder.now))?;
                    }
                }
            }
            forwarder.check_made()?;
        }
    }
}

/// The mechanisms, and the packets that came.
struct Forwarder {
    chain: Chain,
    now: Instant,
    is_ipv6: bool,
    came: Vec<Packet>,
    /// Those that the host has sent, as it sent them and as they left.
    acks: Vec<Seq>,
}

impl Forwarder {
    fn wait(&mut self, pause: Duration) {
        self.now += pause;
        while self.chain.poll_timeout().is_some_and(|at| at <= self.now) {
            self.chain.handle_timeout(self.now);
        }
    }

    fn forward(&mut self, way: Direction, packet: Packet) -> Result<(), TestCaseError> {
        let mut packet = received(&between(packet, way, self.is_ipv6), self.came.len() as u16);
        self.came.push(packet.clone());
        self.note_ack(way, &packet);
        if self.chain.handle_packet(self.now, way, &mut packet) == Verdict::Pass {
            prop_assert!(number(&packet).is_some(), "{packet} passes");
            self.note_ack(way, &packet);
            self.check(&packet)?;
        }
        self.check_made()
    }

    fn check_made(&mut self) -> Result<(), TestCaseError> {
        while self.chain.poll_action().is_some() {}
        while self.chain.poll_dropped().is_some() {}
        while let Some(made) = self.chain.poll_transmit() {
            self.note_ack(made.direction, &made.packet);
            if !self.is_prompt(&made) {
                self.check(&made.packet)?;
            }
        }
        Ok(())
    }

    fn note_ack(&mut self, way: Direction, packet: &Packet) {
        let ack = packet.tcp().filter(|_| way == Direction::Outgoing).map(|segment| segment.ack);
        self.acks.extend(ack);
    }

    /// One byte for the host's own TCP, which has it: it ends where an ACK of the host does.
    fn is_prompt(&self, made: &Injected) -> bool {
        let is_old_byte =
            |segment: &holdover_wire::Segment| *segment.payload == [0] && self.acks.contains(&(segment.seq + 1));
        made.direction == Direction::Incoming && made.packet.tcp().is_some_and(is_old_byte)
    }

    fn check(&self, packet: &Packet) -> Result<(), TestCaseError> {
        let Some(segment) = packet.tcp() else { return Ok(()) };
        let Some(number) = number(packet) else {
            prop_assert!(segment.payload.is_empty(), "{packet} is not as it came");
            return Ok(());
        };
        prop_assert_eq!(without_edits(packet), without_edits(&self.came[usize::from(number)]));
        let bytes = packet.emit().expect("it can be written");
        prop_assert!(Packet::parse(bytes).is_ok(), "its checksums are right");
        Ok(())
    }
}
