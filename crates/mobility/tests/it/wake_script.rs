//! The rules of the wake policy, packet by packet. A download: segments of 1000 bytes come in, ACKs go out.

use core::net::SocketAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_mobility::ack_stall::AckStallConfig;
use holdover_mobility::hold_back::HoldBackConfig;
use holdover_mobility::unreachable_poke::UnreachablePokeConfig;
use holdover_mobility::{Chain, Direction, Injected, LinkEvent, Mechanisms, Verdict};
use holdover_wire::{Flags, Packet, Payload, SackBlocks, Segment, Seq, SeqRange, Timestamps, Unreachable, UserTimeout};

use crate::support::{at_ms, ms};

pub(crate) const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };

/// A filter, and the clock. The peer's timestamp clock ticks in ms and is 5,000,000 at the beginning. Numbers are relative: the
/// true ones wrap around soon.
pub(crate) struct Script {
    chain: Chain,
    now: Instant,
    data_end: u32,
    /// How far beyond it data has been sent.
    ahead: u32,
    /// Which way the data goes.
    way: Direction,
}

/// As the timestamps have it.
const ROUND_TRIP_MS: u32 = 60;

/// What relative number 0 is.
const BASE: u32 = u32::MAX - 170_000;

fn seq(relative: u32) -> Seq {
    Seq::new(BASE.wrapping_add(relative))
}

pub(crate) fn relative(seq: Seq) -> u32 {
    seq.value().wrapping_sub(BASE)
}

fn reverse(way: Direction) -> Direction {
    match way {
        Direction::Outgoing => Direction::Incoming,
        Direction::Incoming => Direction::Outgoing,
    }
}

impl Script {
    /// So many segments have come and been acknowledged, one each ms.
    pub(crate) fn of(mechanisms: &Mechanisms, segments: u32) -> Self {
        Self::going(Direction::Incoming, mechanisms, segments)
    }

    /// The same, with data in this direction.
    pub(crate) fn going(way: Direction, mechanisms: &Mechanisms, segments: u32) -> Self {
        let mut script = Self { chain: mechanisms.chain(), now: Instant::ZERO, data_end: 1, ahead: 0, way };
        for syn in [way, reverse(way)] {
            let mut segment = if syn == way {
                Segment { seq: seq(0), flags: Flags::SYN, ..Segment::default() }
            } else {
                Segment { ack: seq(1), flags: Flags::SYN | Flags::ACK, ..Segment::default() }
            };
            segment.options.window_scale = Some(0);
            script.pass(syn, segment);
            script.now += ms(u64::from(ROUND_TRIP_MS));
        }
        for _ in 0..segments {
            script.exchange();
        }
        script
    }

    /// An upload of which a window is always on its way.
    pub(crate) fn upload(mechanisms: &Mechanisms, segments: u32) -> Self {
        let mut script = Self::going(Direction::Outgoing, mechanisms, 0);
        let first = script.data_end;
        (0..ROUND_TRIP_MS).for_each(|_| script.data());
        (script.ahead, script.data_end) = (script.data_end - first, first);
        for _ in 0..segments {
            script.exchange();
        }
        script
    }

    pub(crate) fn pass(&mut self, direction: Direction, segment: Segment) -> Option<Segment> {
        let (local, remote): (SocketAddr, SocketAddr) = (([10, 0, 0, 1], 1000).into(), ([10, 0, 0, 2], 80).into());
        let (from, to) = if direction == Direction::Outgoing { (local, remote) } else { (remote, local) };
        let segment = Segment { src_port: from.port(), dst_port: to.port(), ..segment };
        let mut packet = Packet::new(from.ip(), to.ip(), segment);
        match self.chain.handle_packet(self.now, direction, &mut packet) {
            Verdict::Pass => packet.tcp().cloned(),
            Verdict::Drop | Verdict::Keep => None,
        }
    }

    fn own_clock(&self) -> u32 {
        1_000 + self.now.as_millis() as u32
    }

    fn peer_clock(&self) -> u32 {
        5_000_000 + self.now.as_millis() as u32
    }

    /// A segment comes in, and 1 ms passes.
    pub(crate) fn data(&mut self) {
        let timestamps =
            Some(Timestamps { val: self.peer_clock(), ecr: self.own_clock().saturating_sub(ROUND_TRIP_MS) });
        let mut segment =
            Segment { seq: seq(self.data_end + self.ahead), flags: Flags::ACK, ack: Seq::new(1), ..Segment::default() };
        segment.payload = Bytes::from_static(&[0; 1000]);
        segment.options.timestamps = timestamps;
        assert!(self.pass(self.way, segment).is_some(), "data is never held");
        self.data_end += 1000;
        self.now += ms(1);
    }

    pub(crate) fn ack_segment(&self) -> Segment {
        let mut segment = Segment {
            seq: Seq::new(1),
            ack: seq(self.data_end),
            flags: Flags::ACK,
            window: 60_000,
            ..Segment::default()
        };
        segment.options.timestamps = Some(Timestamps { val: self.own_clock(), ecr: self.peer_clock() - 1 });
        segment
    }

    /// The host acknowledges everything. Returns what is let through.
    fn ack(&mut self) -> Option<u32> {
        let segment = self.ack_segment();
        self.pass(reverse(self.way), segment).map(|segment| relative(segment.ack))
    }

    pub(crate) fn exchange(&mut self) -> Option<u32> {
        self.data();
        self.ack()
    }

    pub(crate) fn link(&mut self, event: LinkEvent) {
        self.chain.handle_link(self.now, event);
    }

    /// Time passes. Returns what was made meanwhile.
    pub(crate) fn wait(&mut self, span: Duration) -> Vec<Injected> {
        let end = self.now + span;
        let mut made: Vec<Injected> = core::iter::from_fn(|| self.chain.poll_transmit()).collect();
        while let Some(at) = self.chain.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.chain.handle_timeout(self.now);
            made.extend(core::iter::from_fn(|| self.chain.poll_transmit()));
        }
        self.now = end;
        made
    }

    /// The same, of ACKs that go out.
    pub(crate) fn wait_for_acks(&mut self, span: Duration) -> Vec<u32> {
        let made = self.wait(span).into_iter();
        made.filter_map(|made| made.packet.tcp().map(|segment| relative(segment.ack))).collect()
    }
}

pub(crate) fn hold_back() -> Mechanisms {
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
    let mut t = Script::of(&hold_back(), 148);
    assert_eq!(t.exchange(), Some(149_001));
    assert_eq!(t.exchange(), None);
}

#[test]
fn nothing_is_held_of_a_small_window() {
    let mut t = Script::of(&hold_back(), 200);
    t.data();
    let small = Segment { window: 31_999, ..t.ack_segment() };
    assert_eq!(t.pass(Direction::Outgoing, small).map(|segment| relative(segment.ack)), Some(201_001));
}

#[test]
fn the_flush_comes_40_ms_after_the_last_ack() {
    let mut t = Script::of(&hold_back(), 200);
    assert_eq!(t.wait_for_acks(ms(39)), [0; 0]);
    assert_eq!(t.wait_for_acks(ms(1)), [200_001]);
    assert_eq!(t.exchange(), Some(201_001), "the sender was waiting: nothing is held for a while");
    let held = (0..60).any(|_| t.exchange() != Some(t.data_end));
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
        segment.options.sack = SackBlocks::from_iter([SeqRange::new(seq(300_001), seq(301_001))]);
    }));
    assert!(passed(|segment| segment.flags |= Flags::FIN));
    assert!(passed(|segment| segment.flags = Flags::RST));
}

#[test]
fn after_the_senders_fin_nothing_is_held() {
    let mut t = Script::of(&hold_back(), 200);
    let fin = Segment { seq: seq(t.data_end), flags: Flags::ACK | Flags::FIN, ..Segment::default() };
    t.pass(Direction::Incoming, fin);
    t.data_end += 1;
    assert_eq!(t.ack(), Some(200_002));
}

/// One byte inside the first segment, then everything. Each echoes what the peer's clock says.
#[test]
fn the_release_has_two_steps() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    assert_eq!(t.wait(ms(10_000)), [], "no flush into a dead link");
    t.link(UP);
    assert_eq!(t.wait(Duration::from_micros(999)), []);
    let made = t.wait(ms(1));
    let acks: Vec<u32> =
        made.iter().filter_map(|made| made.packet.tcp()).map(|segment| relative(segment.ack)).collect();
    let (last, ladder) = acks.split_last().unwrap();
    assert_eq!(*last, 200_001);
    assert_eq!(ladder, [196_001 + 1], "an ACK came each ms: too many for a ladder");
    let clock = t.peer_clock() - 1;
    for made in &made {
        let segment = made.packet.tcp().unwrap();
        let echo = segment.options.timestamps.unwrap().ecr;
        assert!((clock - 10..=clock + 1).contains(&echo), "{echo}");
        assert!(segment.is_pure_ack() && segment.options.sack.is_empty());
        assert_eq!(made.direction, Direction::Outgoing);
    }
    assert_eq!(t.wait(ms(50)), [], "an answer takes a round trip");
}

#[test]
fn an_echo_from_before_the_outage_is_refreshed_for_a_second() {
    let echo = |after_ms| {
        let mut t = Script::of(&hold_back(), 200);
        let stale = t.ack_segment();
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        t.wait(ms(2));
        t.data();
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

/// Its peer may have said something in the meantime, and have backed off.
#[test]
fn a_connection_at_rest_is_poked() {
    for (mechanisms, expected) in [(Mechanisms { wake: true, ..Mechanisms::default() }, 13), (hold_back(), 0)] {
        let mut t = Script::of(&mechanisms, 200);
        t.wait(ms(11_000));
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        let made = t.wait(ms(50));
        assert_eq!(made.len(), expected, "an ACK and the messages");
        assert!(made.iter().all(|made| made.direction == Direction::Outgoing));
        for made in &made {
            let Payload::IcmpError(error) = &made.packet.payload else { continue };
            assert_eq!(
                error.quoted_tcp().unwrap().seq,
                seq(200_001),
                "the oldest byte that the peer may have outstanding"
            );
        }
    }
}

fn ack_stall(lead_ms: u64) -> Mechanisms {
    let config = AckStallConfig { lead: Some(ms(lead_ms)), ..AckStallConfig::default() };
    Mechanisms { ack_stall: Some(config), ..Mechanisms::default() }
}

#[test]
fn a_stall_lets_nothing_through_in_the_last_moments() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(150)) });
    for _ in 0..49 {
        assert_eq!(t.exchange(), Some(t.data_end), "too early");
    }
    assert_eq!(t.exchange(), Some(250_001), "the last one draws the window in");
    for _ in 0..100 {
        assert_eq!(t.exchange(), None);
    }
    assert_eq!(t.ack(), None, "no duplicate either");
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let acks = t.wait_for_acks(ms(1));
    assert_eq!(acks, [250_001 + 1, 350_001], "data came to the last: the rest of the window is lost");
}

/// A tail loss probe (RFC 8985) would send a new segment into the outage, if the window allowed it.
#[test]
fn the_last_ack_before_a_stall_offers_two_segments() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    t.data();
    let segment = t.ack_segment();
    assert_eq!(t.pass(Direction::Outgoing, segment).map(|segment| segment.window), Some(2_000));
    t.wait(ms(50));
    t.link(LinkEvent::Recovered);
    let made: Vec<Injected> = core::iter::from_fn(|| t.chain.poll_transmit()).collect();
    let [Injected { packet, .. }] = &made[..] else { panic!("{made:?}") };
    assert_eq!(packet.tcp().map(|segment| (relative(segment.ack), segment.window)), Some((201_001, 60_000)));
}

/// Whoever has sent beyond the window that it sees sends its ACKs from that window's end, and an end that has received more does
/// not look at them. With both ends in that state, nothing would ever be accepted again.
#[test]
fn only_one_end_at_a_time_is_offered_two_segments() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    t.data();
    let segment = t.ack_segment();
    assert_eq!(t.pass(Direction::Outgoing, segment).map(|segment| segment.window), Some(2_000));
    let sent = Segment { seq: Seq::new(1), payload: Bytes::from_static(&[0; 1000]), ..t.ack_segment() };
    assert!(t.pass(Direction::Outgoing, sent).is_some());
    let acked =
        Segment { seq: seq(t.data_end), ack: Seq::new(1_001), flags: Flags::ACK, window: 60_000, ..Segment::default() };
    assert_eq!(t.pass(Direction::Incoming, acked), None, "it is kept instead");
}

/// Nothing has come for some time before the cut: the window has arrived, and all that the sender lacks is its ACK clock. The
/// last ACK goes twice, for the sake of tail loss probes; the echoes are as they were.
#[test]
fn what_has_arrived_as_a_whole_is_released_ack_by_ack() {
    for way in [Direction::Incoming, Direction::Outgoing] {
        let mut t = Script::going(way, &ack_stall(100), 200);
        t.link(LinkEvent::Fading { lead: Some(ms(100)) });
        for _ in 0..61 {
            t.exchange();
        }
        let echo = t.peer_clock() - 1;
        t.wait(ms(30));
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        // As long as the round trip of those that send their data a ms before its ACK.
        let made = t.wait(ms(if way == Direction::Incoming { 100 } else { 15 }));
        assert!(made.iter().all(|made| made.direction == reverse(way)));
        let segments: Vec<&Segment> = made.iter().filter_map(|made| made.packet.tcp()).collect();
        let acks: Vec<u32> = segments.iter().map(|segment| relative(segment.ack)).collect();
        let expected: Vec<u32> = (202..=261).chain([261]).map(|n| n * 1000 + 1).collect();
        assert_eq!(acks, expected, "{way:?}");
        for segment in segments {
            // The right edge of the window stays where it was, as far as 16 bits can say it.
            let window = (60_000 + 261_001 - relative(segment.ack)).min(65_535);
            assert_eq!((u32::from(segment.window), segment.options.timestamps.unwrap().ecr), (window, echo), "{way:?}");
        }
    }
}

/// The host closes its side while the link is down: its FIN dies there, with what it acknowledges.
#[test]
fn a_fin_into_a_dead_link_has_shown_nothing() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    for _ in 0..61 {
        t.exchange();
    }
    t.wait(ms(30));
    t.link(LinkEvent::Down);
    let fin = Segment { flags: Flags::ACK | Flags::FIN, ..t.ack_segment() };
    t.pass(Direction::Outgoing, fin);
    t.wait(ms(3_000));
    t.link(UP);
    let acks = t.wait_for_acks(ms(100));
    assert_eq!((acks.first(), acks.last()), (Some(&202_001), Some(&261_001)));
}

/// In time they go as they came, but not all later than a round trip without queues.
#[test]
fn a_release_ack_by_ack_takes_its_time() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    for _ in 0..61 {
        t.exchange();
    }
    t.wait(ms(30));
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let first = t.wait(ms(30)).len();
    assert!((25..=35).contains(&first), "{first} in the first half");
    // What is acknowledged meanwhile does not overtake the rest.
    assert_eq!(t.exchange(), None);
    let rest = t.wait_for_acks(ms(100));
    assert!(rest.is_sorted() && rest.last() == Some(&262_001), "{rest:?}");
    assert_eq!(t.exchange(), Some(263_001), "then all is as ever");
}

/// Beacons are missed one by one: who says so again and again does not stall ACKs for ever.
#[test]
fn repeated_warnings_are_one_warning() {
    let mut t = Script::of(&ack_stall(100), 200);
    let mut passed = 0;
    for _ in 0..100 {
        t.link(LinkEvent::Fading { lead: Some(ms(100)) });
        for _ in 0..100 {
            passed += usize::from(t.exchange().is_some());
        }
    }
    assert!(passed >= 7_500, "{passed} of 10,000 ACKs passed");
}

#[test]
fn a_better_warning_is_believed() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(5_000)) });
    assert_eq!(t.exchange(), Some(201_001));
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    assert_eq!(t.exchange(), Some(202_001));
    assert_eq!(t.exchange(), None);
    t.link(LinkEvent::Fading { lead: Some(ms(2_000)) });
    assert_eq!(t.exchange(), None, "a later cut does not lengthen a stall that has begun");
    t.wait(ms(200));
    assert_eq!(t.exchange(), Some(205_001));
}

/// The link was down for long before the host was told: what was flushed went into a dead link.
#[test]
fn down_may_be_heard_late() {
    for late_ms in [100, 500, 900, 1_500, 5_000] {
        let mut t = Script::of(&hold_back(), 200);
        let flushed = t.wait_for_acks(ms(late_ms));
        assert_eq!(flushed, [200_001]);
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        let acks = t.wait_for_acks(ms(1));
        assert_eq!(acks, [200_001], "{late_ms} ms late: nothing is held, but the last ACK may have been lost");
    }
    // And what is outstanding is under way, however long ago it was sent.
    let poke = Mechanisms { unreachable_poke: Some(UnreachablePokeConfig::default()), ..Mechanisms::default() };
    for outstanding in [false, true] {
        let mut t = Script::going(Direction::Outgoing, &poke, 200);
        if outstanding {
            t.data();
        }
        t.wait(ms(60_000));
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        let mut pokes = t.wait(ms(50));
        pokes.retain(|made| made.packet.tcp().is_none());
        // The host's own TCP is poked if it has something to repeat; else the peer, which may have.
        let way = if outstanding { Direction::Incoming } else { Direction::Outgoing };
        assert_eq!(pokes.len(), 12);
        assert!(pokes.iter().all(|poke| poke.direction == way));
    }
}

#[test]
fn a_poke_quotes_what_was_shown_before_the_flush() {
    let wake = Mechanisms { wake: true, ..Mechanisms::default() };
    let mut t = Script::of(&wake, 200);
    t.wait(ms(500));
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let made = t.wait(ms(100));
    let quoted = made.iter().find_map(|made| match &made.packet.payload {
        Payload::IcmpError(error) => error.quoted_tcp().ok(),
        _ => None,
    });
    assert_eq!(quoted.map(|quoted| relative(quoted.seq)), Some(196_001));
}

/// The carrier first, the address later: the same cut is told twice.
#[test]
fn a_second_down_changes_nothing() {
    let released = |second_ms: Option<u64>| {
        let mut t = Script::of(&hold_back(), 200);
        t.link(LinkEvent::Down);
        t.wait(ms(second_ms.unwrap_or(2_000)));
        if second_ms.is_some() {
            t.link(LinkEvent::Down);
        }
        t.wait(ms(3_000));
        t.link(UP);
        t.wait_for_acks(ms(1))
    };
    assert_eq!(released(None), [196_002, 200_001]);
    for second_ms in [0, 500, 2_000, 20_000] {
        assert_eq!(released(Some(second_ms)), released(None), "after {second_ms} ms");
    }
}

#[test]
fn up_without_down_means_something_only_if_the_host_has_moved() {
    for moved in [false, true] {
        let mut t = Script::of(&hold_back(), 200);
        t.link(LinkEvent::Up { symmetric: false, moved });
        let acks = t.wait_for_acks(ms(2));
        assert_eq!(acks, if moved { vec![196_002, 200_001] } else { vec![] });
    }
}

#[test]
fn recovered_while_down_is_not_up() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    t.link(LinkEvent::Recovered);
    assert_eq!(t.wait_for_acks(ms(2_000)), [0; 0]);
    t.link(UP);
    assert_eq!(t.wait_for_acks(ms(1)), [196_002, 200_001]);
}

/// Nobody said that the link is back, but packets come in.
#[test]
fn packets_that_come_long_after_down_mean_up() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    t.wait(ms(500));
    assert_eq!(t.exchange(), None, "they may have been on their way");
    t.wait(ms(5_000));
    t.data();
    assert_eq!(t.wait_for_acks(ms(1)), [201_001], "what was withheld, and nothing else");
    assert_eq!(t.ack(), Some(202_001));
}

/// An option of its own may be said once only.
#[test]
fn an_ack_with_an_option_of_its_own_is_not_swallowed() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    let mut segment = t.ack_segment();
    segment.options.user_timeout = UserTimeout::from_duration(Duration::from_secs(60));
    let passed = t.pass(Direction::Outgoing, segment.clone()).expect("it passes");
    assert_eq!((passed.options.user_timeout, relative(passed.ack)), (segment.options.user_timeout, 196_001));
}

#[test]
fn a_lowered_ack_has_no_sack_blocks() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    t.exchange();
    t.exchange();
    let mut segment = t.ack_segment();
    segment.payload = Bytes::from_static(b"data");
    segment.options.sack = SackBlocks::from_iter([SeqRange::new(seq(300_001), seq(301_001))]);
    let passed = t.pass(Direction::Outgoing, segment).expect("data is never held");
    assert_eq!((relative(passed.ack), passed.options.sack.is_empty()), (201_001, true));
}

/// Who only guesses at numbers does not get at a connection.
#[test]
fn forged_resets_and_acks_are_nothing() {
    for forged in [
        Segment { seq: seq(10_000_000), flags: Flags::RST, ..Segment::default() },
        Segment { seq: seq(0x7000_0000), flags: Flags::RST, ..Segment::default() },
    ] {
        let mut t = Script::of(&hold_back(), 200);
        t.pass(Direction::Incoming, forged);
        t.link(LinkEvent::Down);
        t.wait(ms(3_000));
        t.link(UP);
        assert_eq!(t.wait_for_acks(ms(1)), [196_002, 200_001]);
    }
    let mut t = Script::upload(&hold_back(), 200);
    t.pass(Direction::Incoming, Segment { ack: seq(0x4000_0000), flags: Flags::ACK, ..Segment::default() });
    assert_eq!(t.exchange(), Some(201_001 - 4_000), "the next true ACK is held back as ever");
}

/// RFC 5961 section 3.2: a reset that is in the window, but is not the next, is answered, and the connection goes on.
#[test]
fn a_reset_that_was_challenged_is_nothing() {
    let reset = |t: &Script| Segment { seq: seq(t.data_end + 1_000), flags: Flags::RST, ..Segment::default() };
    let mut t = Script::of(&hold_back(), 200);
    t.pass(Direction::Incoming, reset(&t));
    assert_eq!(t.ack(), Some(200_001), "the challenge");
    assert_eq!(t.exchange(), None, "held");
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    assert_eq!(t.wait_for_acks(ms(1)).last(), Some(&201_001));
    // If nobody answers it, it was the end.
    let mut t = Script::of(&hold_back(), 200);
    t.pass(Direction::Incoming, reset(&t));
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    assert!(t.wait_for_acks(ms(1)).is_empty());
}

/// What it costs the sender is what is held of what it has in flight, whatever window it is offered.
#[test]
fn nothing_is_held_of_a_small_flight() {
    let mut t = Script::of(&hold_back(), 400);
    assert_eq!(t.exchange(), Some(401_001 - 4_000));
    // Ten segments in a round trip from now on.
    for _ in 0..80 {
        t.exchange();
        t.now += ms(3);
    }
    for _ in 0..40 {
        t.now += ms(3);
        assert_eq!(t.exchange(), Some(t.data_end), "nothing is held");
    }
}

/// A timetable's cut, some seconds early: packets come, then they do not, and then the link is told to be up.
#[test]
fn an_outage_that_was_told_too_early_is_one_all_the_same() {
    let mut t = Script::of(&hold_back(), 200);
    t.link(LinkEvent::Down);
    for _ in 0..3_000 {
        t.exchange();
    }
    assert!(t.ack().is_some_and(|ack| ack > 3_000_000), "it is taken for up");
    t.wait(ms(60_000));
    t.link(UP);
    let acks = t.wait_for_acks(ms(1));
    assert_eq!(acks.last(), Some(&t.data_end));
    // Once more is nothing new, and neither is it if packets have been coming all the time.
    t.link(UP);
    assert!(t.wait(ms(1)).is_empty());
    t.link(LinkEvent::Down);
    for _ in 0..3_000 {
        t.exchange();
    }
    t.link(UP);
    assert!(t.wait(ms(5)).is_empty());
}

/// Loss recovery counts on duplicates, which a stall has kept: who warned in vain makes up for them.
#[test]
fn after_a_stall_in_vain_a_hole_is_said_again() {
    let mut t = Script::of(&ack_stall(100), 200);
    t.link(LinkEvent::Fading { lead: Some(ms(100)) });
    let blocks = SackBlocks::from_iter([SeqRange::new(seq(201_001), seq(202_001))]);
    t.data_end += 1_000;
    t.data();
    t.data_end = 200_001;
    for _ in 0..3 {
        let mut segment = t.ack_segment();
        segment.options.sack = blocks;
        assert_eq!(t.pass(Direction::Outgoing, segment), None, "it is stalled");
    }
    t.link(LinkEvent::Recovered);
    let made = t.wait(ms(1));
    let said =
        |made: &Injected| made.packet.tcp().is_some_and(|it| it.ack == seq(200_001) && it.options.sack == blocks);
    assert!(made.len() >= 3 && made.iter().all(said), "{made:?}");
}

/// The host's own TCP is shown ACKs in the same way as a far one.
#[test]
fn an_upload_is_held_back_and_released_alike() {
    let mut t = Script::upload(&hold_back(), 200);
    assert_eq!(t.exchange(), Some(201_001 - 4_000));
    let made = t.wait(ms(40));
    assert!(made.iter().all(|made| made.direction == Direction::Incoming));
    assert_eq!(made.len(), 1, "the flush");
    for _ in 0..150 {
        t.exchange();
    }
    t.link(LinkEvent::Down);
    t.wait(ms(3_000));
    t.link(UP);
    assert_eq!(t.wait_for_acks(ms(1)), [347_002, 351_001]);
}

#[test]
fn a_stall_ends_if_the_cut_does_not_come() {
    let stall = Mechanisms { ack_stall: Some(AckStallConfig::default()), ..Mechanisms::default() };
    for recovered in [false, true] {
        let mut t = Script::of(&stall, 200);
        t.link(LinkEvent::Fading { lead: None });
        assert_eq!(t.exchange(), Some(201_001), "the last one");
        let acks = if recovered {
            t.link(LinkEvent::Recovered);
            core::iter::from_fn(|| t.chain.poll_transmit())
                .filter_map(|made| Some(relative(made.packet.tcp()?.ack)))
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
    assert_eq!((quoted.seq, quoted.src_port, quoted.dst_port), (seq(200_001), 80, 1000));
    assert_eq!((quoted.src, quoted.dst), (packet.dst, packet.src));
    assert_eq!(t.wait(ms(5)).len(), 5);
    let mut woken = Script { chain: core::mem::take(&mut t.chain), ..t };
    woken.data();
    assert_eq!(woken.wait(ms(100)), [], "it has resumed");
}

#[test]
fn the_poke_is_for_when_nothing_is_held() {
    let wake = Mechanisms { wake: true, ..Mechanisms::default() };
    for hole in [false, true] {
        let mut t = Script::of(&wake, 200);
        if hole {
            let mut segment = t.ack_segment();
            segment.options.sack.push(SeqRange::new(seq(300_001), seq(301_001)));
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
