//! The rules of the wake policy, packet by packet. A download: segments of 1000 bytes come in, ACKs go out.

use core::net::SocketAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_mobility::ack_stall::AckStallConfig;
use holdover_mobility::hold_back::HoldBackConfig;
use holdover_mobility::unreachable_poke::UnreachablePokeConfig;
use holdover_mobility::{Chain, Direction, Injected, LinkEvent, Mechanisms, Verdict};
use holdover_wire::{Flags, Packet, Payload, SackBlocks, Segment, Seq, SeqRange, Timestamps, Unreachable};

use crate::support::{at_ms, ms};

const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };

/// A filter, and the clock. The peer's timestamp clock ticks in ms and is 5,000,000 at the beginning.
struct Script {
    chain: Chain,
    now: Instant,
    data_end: u32,
}

impl Script {
    /// So many segments have come and been acknowledged, one each ms.
    fn of(mechanisms: &Mechanisms, segments: u32) -> Self {
        let mut script = Self { chain: mechanisms.chain(), now: Instant::ZERO, data_end: 1 };
        for _ in 0..segments {
            script.exchange();
        }
        script
    }

    fn pass(&mut self, direction: Direction, segment: Segment) -> Option<Segment> {
        let (local, remote): (SocketAddr, SocketAddr) = (([10, 0, 0, 1], 1000).into(), ([10, 0, 0, 2], 80).into());
        let (from, to) = if direction == Direction::Outgoing { (local, remote) } else { (remote, local) };
        let segment = Segment { src_port: from.port(), dst_port: to.port(), ..segment };
        let mut packet = Packet::new(from.ip(), to.ip(), segment);
        match self.chain.handle_packet(self.now, direction, &mut packet) {
            Verdict::Pass => packet.tcp().cloned(),
            Verdict::Drop => None,
        }
    }

    fn peer_clock(&self) -> u32 {
        5_000_000 + self.now.as_millis() as u32
    }

    /// A segment comes in, and 1 ms passes.
    fn data(&mut self) {
        let timestamps = Some(Timestamps { val: self.peer_clock(), ecr: 7 });
        let mut segment =
            Segment { seq: Seq::new(self.data_end), flags: Flags::ACK, ack: Seq::new(1), ..Segment::default() };
        segment.payload = Bytes::from_static(&[0; 1000]);
        segment.options.timestamps = timestamps;
        assert!(self.pass(Direction::Incoming, segment).is_some(), "data is never held");
        self.data_end += 1000;
        self.now += ms(1);
    }

    fn ack_segment(&self) -> Segment {
        let mut segment =
            Segment { ack: Seq::new(self.data_end), flags: Flags::ACK, window: 60_000, ..Segment::default() };
        segment.options.timestamps = Some(Timestamps { val: 7, ecr: self.peer_clock() - 1 });
        segment
    }

    /// The host acknowledges everything. Returns what is let through.
    fn ack(&mut self) -> Option<u32> {
        let segment = self.ack_segment();
        self.pass(Direction::Outgoing, segment).map(|segment| segment.ack.value())
    }

    fn exchange(&mut self) -> Option<u32> {
        self.data();
        self.ack()
    }

    fn link(&mut self, event: LinkEvent) {
        self.chain.handle_link(self.now, event);
    }

    /// Time passes. Returns what was made meanwhile.
    fn wait(&mut self, span: Duration) -> Vec<Injected> {
        let end = self.now + span;
        let mut made = Vec::new();
        while let Some(at) = self.chain.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.chain.handle_timeout(self.now);
            made.extend(core::iter::from_fn(|| self.chain.poll_transmit()));
        }
        self.now = end;
        made
    }

    /// The same, of ACKs that go out.
    fn wait_for_acks(&mut self, span: Duration) -> Vec<u32> {
        let made = self.wait(span).into_iter();
        made.filter_map(|made| made.packet.tcp().map(|segment| segment.ack.value())).collect()
    }
}

fn hold_back() -> Mechanisms {
    Mechanisms { hold_back: Some(HoldBackConfig::default()), ..Mechanisms::default() }
}

#[test]
fn the_ack_of_the_last_four_whole_segments_is_withheld() {
    let mut t = Script::of(&hold_back(), 200);
    assert_eq!(t.exchange(), Some(201_001 - 4_000));
    t.data();
    t.data();
    assert_eq!(t.ack(), Some(203_001 - 4_000), "a delayed ACK of two segments is passed on as one of two");
}

#[test]
fn nothing_is_held_in_the_first_150_kb() {
    // Counted from the first ACK on.
    let mut t = Script::of(&hold_back(), 149);
    assert_eq!(t.exchange(), Some(150_001));
    assert_eq!(t.exchange(), None);
}

#[test]
fn nothing_is_held_of_a_small_window() {
    let mut t = Script::of(&hold_back(), 200);
    t.data();
    let small = Segment { window: 31_999, ..t.ack_segment() };
    assert_eq!(t.pass(Direction::Outgoing, small).map(|segment| segment.ack.value()), Some(201_001));
}

#[test]
fn the_flush_comes_40_ms_after_the_last_ack() {
    let mut t = Script::of(&hold_back(), 200);
    assert_eq!(t.wait_for_acks(ms(39)), []);
    assert_eq!(t.wait_for_acks(ms(1)), [200_001]);
    assert_eq!(t.exchange(), Some(201_001), "the sender was waiting: nothing is held for a while");
    let held = (0..20).any(|_| t.exchange() != Some(t.data_end));
    assert!(held, "but not for long");
}

#[test]
fn repeated_and_sack_bearing_acks_and_those_with_flags_pass() {
    let passed = |change: fn(&mut Segment)| {
        let mut t = Script::of(&hold_back(), 200);
        let mut segment = t.ack_segment();
        change(&mut segment);
        t.pass(Direction::Outgoing, segment.clone()) == Some(Segment { src_port: 1000, dst_port: 80, ..segment })
    };
    assert!(passed(|_| {}), "a duplicate");
    assert!(passed(|segment| {
        segment.options.sack = SackBlocks::from_iter([SeqRange::new(Seq::new(300_001), Seq::new(301_001))]);
    }));
    assert!(passed(|segment| segment.flags |= Flags::FIN));
    assert!(passed(|segment| segment.flags = Flags::RST));
}

#[test]
fn after_the_senders_fin_nothing_is_held() {
    let mut t = Script::of(&hold_back(), 200);
    let fin = Segment { seq: Seq::new(t.data_end), flags: Flags::ACK | Flags::FIN, ..Segment::default() };
    t.pass(Direction::Incoming, fin);
    t.data_end += 1;
    assert_eq!(t.ack(), Some(200_002));
}

/// One byte inside the first segment, for each ACK of the last 60 ms; then everything. Each echoes what the peer's clock says.
#[test]
fn the_release_has_a_ladder_and_two_steps() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    assert_eq!(t.wait(ms(10_000)), [], "no flush into a dead link");
    t.link(UP);
    assert_eq!(t.wait(Duration::from_micros(999)), []);
    let made = t.wait(ms(1));
    let acks: Vec<u32> = made.iter().filter_map(|made| made.packet.tcp()).map(|segment| segment.ack.value()).collect();
    let (last, ladder) = acks.split_last().unwrap();
    assert_eq!(*last, 200_001);
    // An ACK came each ms.
    assert_eq!(ladder.first(), Some(&(140_001 + 1)));
    assert!(ladder.is_sorted() && ladder.iter().all(|ack| ack % 1000 == 2), "{ladder:?}");
    assert_eq!(ladder.last(), Some(&(196_001 + 1)));
    let clock = 5_000_000 + 10_000 + 200;
    for made in &made {
        let segment = made.packet.tcp().unwrap();
        let echo = segment.options.timestamps.unwrap().ecr;
        assert!((clock - 10..=clock + 1).contains(&echo), "{echo}");
        assert!(segment.is_pure_ack() && segment.options.sack.is_empty());
        assert_eq!(made.direction, Direction::Outgoing);
    }
    assert_eq!(t.wait(ms(1_000)), []);
}

#[test]
fn an_echo_from_before_the_outage_is_refreshed_for_a_second() {
    let echo = |after_ms| {
        let mut t = Script::of(&hold_back(), 200);
        let stale = t.ack_segment();
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        t.wait(ms(after_ms));
        let passed = t.pass(Direction::Outgoing, stale.clone()).unwrap();
        passed.options.timestamps.unwrap().ecr - stale.options.timestamps.unwrap().ecr
    };
    assert!((3_000..3_060).contains(&echo(50)));
    assert_eq!(echo(1_000), 0);
}

#[test]
fn for_a_second_after_link_up_nothing_is_held() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    t.link(UP);
    t.wait(ms(2));
    assert_eq!(t.exchange(), Some(201_001));
    t.wait(ms(1_000));
    assert_eq!([(); 4].map(|()| t.exchange()), [None; 4]);
    assert_eq!(t.exchange(), Some(206_001 - 4_000));
}

#[test]
fn data_that_comes_by_itself_is_left_alone() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    t.data();
    assert_eq!(t.ack(), Some(201_001));
    assert_eq!(t.wait(ms(1_000)), []);
}

#[test]
fn a_connection_at_rest_is_left_alone() {
    let mut t = Script::of(&Mechanisms { wake: true, ..Mechanisms::default() }, 200);
    t.wait(ms(5_000));
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    assert_eq!(t.wait(ms(1_000)), []);
}

#[test]
fn a_stall_lets_nothing_through_in_the_last_moments() {
    let stall = Mechanisms { ack_stall: Some(AckStallConfig::default()), ..Mechanisms::default() };
    let mut t = Script::of(&stall, 200);
    t.link(LinkEvent::Fading { lead: Some(ms(150)) });
    for _ in 0..49 {
        assert_eq!(t.exchange(), Some(t.data_end), "too early");
    }
    for _ in 0..101 {
        assert_eq!(t.exchange(), None);
    }
    assert_eq!(t.ack(), None, "no duplicate either");
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let acks = t.wait_for_acks(ms(1));
    assert_eq!(acks[acks.len() - 2..], [249_001 + 1, 350_001]);
}

#[test]
fn a_stall_ends_if_the_cut_does_not_come() {
    let stall = Mechanisms { ack_stall: Some(AckStallConfig::default()), ..Mechanisms::default() };
    for recovered in [false, true] {
        let mut t = Script::of(&stall, 200);
        t.link(LinkEvent::Fading { lead: None });
        assert_eq!(t.exchange(), None);
        let acks = if recovered {
            t.link(LinkEvent::Recovered);
            core::iter::from_fn(|| t.chain.poll_transmit())
                .filter_map(|made| Some(made.packet.tcp()?.ack.value()))
                .collect()
        } else {
            assert_eq!(t.wait(ms(248)), []);
            t.wait_for_acks(ms(1))
        };
        assert_eq!(acks, [201_001], "recovered: {recovered}");
        assert_eq!(t.exchange(), Some(202_001));
    }
}

/// RFC 6069: twelve messages, 1 ms apart, that quote the oldest byte; they end when data comes.
#[test]
fn the_poke_quotes_the_oldest_outstanding_byte() {
    let poke = Mechanisms { unreachable_poke: Some(UnreachablePokeConfig::default()), ..Mechanisms::default() };
    let mut t = Script::of(&poke, 200);
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let made = t.wait(ms(1));
    let [Injected { direction: Direction::Outgoing, packet }] = &made[..] else { panic!("{made:?}") };
    let Payload::IcmpError(error) = &packet.payload else { panic!("{packet}") };
    let quoted = error.quoted_tcp().unwrap();
    assert_eq!(error.kind, Unreachable::Host);
    assert_eq!((quoted.seq, quoted.src_port, quoted.dst_port), (Seq::new(200_001), 80, 1000));
    assert_eq!((quoted.src, quoted.dst), (packet.dst, packet.src));
    assert_eq!(t.wait(ms(5)).len(), 5);
    let mut woken = Script { chain: core::mem::take(&mut t.chain), ..t };
    woken.data();
    assert_eq!(woken.wait(ms(100)), []);
}

#[test]
fn the_poke_is_for_when_nothing_is_held() {
    let wake = Mechanisms { wake: true, ..Mechanisms::default() };
    for hole in [false, true] {
        let mut t = Script::of(&wake, 200);
        if hole {
            let mut segment = t.ack_segment();
            segment.options.sack.push(SeqRange::new(Seq::new(300_001), Seq::new(301_001)));
            assert!(t.pass(Direction::Outgoing, segment).is_some());
        }
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        let made = t.wait(ms(100));
        let pokes = made.iter().filter(|made| made.packet.tcp().is_none()).count();
        assert_eq!(pokes, if hole { 12 } else { 0 });
        let sacks = made.iter().filter_map(|made| made.packet.tcp()).any(|segment| !segment.options.sack.is_empty());
        assert!(!sacks, "a SACK-bearing ACK would be taken for a sign of a spurious timeout");
    }
}

#[test]
fn nothing_is_said_before_link_up() {
    let wake = Mechanisms { wake: true, ..Mechanisms::default() };
    let mut t = Script::of(&wake, 200);
    t.link(LinkEvent::Down);
    t.data();
    assert_eq!(t.ack(), None);
    assert_eq!(t.wait(at_ms(60_000).saturating_since(t.now)), []);
}
