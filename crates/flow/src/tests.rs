//! Orders, rule by rule, from a fixed host that sends to a mobile host that receives; and entries against flows.

use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr};

use holdover_base::{Duration, Instant};
use holdover_filter::{Connection, Direction, Verdict};
use holdover_wire::{Flags, Packet, RareOptions, Segment, Seq, SeqRange, TcpOptions, Timestamps};
use proptest::prelude::*;

use crate::{
    Entry, Environment, Flow, Followed, Form, HoldBack, Holds, Key, Link, LinkState, Notice, Order, OrderRecord, Place,
    Rules, WindowLimit,
};

mod cache_lines;
mod long;
mod memory;
mod shown;

const FIXED: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const MOBILE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2));

/// One connection, and the state of its link.
struct Path {
    flow: Flow,
    rules: Rules,
    link: LinkState,
    now: Instant,
}

fn connection() -> Connection {
    Connection { local: (FIXED, 80).into(), remote: (MOBILE, 4000).into() }
}

fn packet(is_outgoing: bool, flags: Flags, (seq, ack): (u32, u32), window: u16, len: usize) -> Packet {
    let (src, dst) = if is_outgoing { (FIXED, MOBILE) } else { (MOBILE, FIXED) };
    let (src_port, dst_port) = if is_outgoing { (80, 4000) } else { (4000, 80) };
    let segment = Segment {
        src_port,
        dst_port,
        seq: Seq::new(seq),
        ack: Seq::new(ack),
        flags,
        window,
        payload: Bytes::from(vec![0; len]),
        ..Segment::default()
    };
    Packet::new(src, dst, segment)
}

impl Path {
    /// The mobile host has opened a connection with these window shifts; data begin at 1000.
    fn new(link: LinkState, shift: u8) -> Self {
        let hold = HoldBack { segments: 4, after_bytes: 0, pause: Duration::ZERO, flush: Duration::from_millis(40) };
        let rules = Rules::new(Some(hold), true, Duration::ZERO);
        let mut path = Self { flow: Flow::new(), rules, link, now: Instant::from_secs(1) };
        let options = TcpOptions::from(RareOptions { window_scale: Some(shift), ..RareOptions::default() });
        let scaled = |mut packet: Packet| {
            if let Some(segment) = holdover_filter::tcp_mut(&mut packet) {
                segment.options = options.clone();
            }
            packet
        };
        path.pass(scaled(packet(false, Flags::SYN, (0, 0), 5000, 0)));
        path.pass(scaled(packet(true, Flags::SYN | Flags::ACK, (999, 1), 5000, 0)));
        path.pass(packet(false, Flags::ACK, (1, 1000), 5000, 0));
        path
    }

    /// Passes a packet: returns ACK number and window of the result, or `None` if it is withheld.
    fn pass(&mut self, mut packet: Packet) -> (Option<(u32, u16)>, Option<Notice>) {
        self.now += Duration::from_millis(1);
        let direction = if packet.dst == MOBILE { Direction::Outgoing } else { Direction::Incoming };
        let link = Link::new(&self.link);
        let environment = Environment { now: self.now, link: &link, rules: &self.rules };
        let form = Form::of(packet.tcp().unwrap());
        let (verdict, notice) =
            self.flow.pass_between(&Key::new(connection()), environment, direction, &mut packet, form);
        let segment = packet.tcp().unwrap();
        ((verdict == Verdict::Pass).then(|| (segment.ack.value(), segment.window)), notice)
    }

    fn data(&mut self, seq: u32, len: usize) -> (Option<(u32, u16)>, Option<Notice>) {
        self.pass(packet(true, Flags::ACK, (seq, 1), 500, len))
    }

    fn ack(&mut self, ack: u32, window: u16) -> Option<(u32, u16)> {
        self.pass(packet(false, Flags::ACK, (1, ack), window, 0)).0
    }

    /// Passes an ACK with timestamps and a SACK block. Returns its ACK number and its echo, and the notice.
    fn stamped_ack(
        &mut self,
        direction: Direction,
        numbers: (u32, u32),
        (val, ecr): (u32, u32),
        block: Option<(u32, u32)>,
    ) -> (u32, u32, Option<Notice>) {
        let mut ack = stamped(packet(direction == Direction::Outgoing, Flags::ACK, numbers, 400, 0), val, ecr);
        if let Some(segment) = holdover_filter::tcp_mut(&mut ack) {
            segment.options.sack =
                block.map(|(start, end)| SeqRange::new(Seq::new(start), Seq::new(end))).into_iter().collect();
        }
        self.now += Duration::from_millis(1);
        let link = Link::new(&self.link);
        let environment = Environment { now: self.now, link: &link, rules: &self.rules };
        let form = Form::of(ack.tcp().unwrap());
        let key = Key::new(connection());
        let (_, notice) = self.flow.pass_between(&key, environment, direction, &mut ack, form);
        let segment = ack.tcp().unwrap();
        (segment.ack.value(), segment.options.timestamps.unwrap().ecr, notice)
    }

    /// The same for an ACK that is shown in part or in full.
    fn ack_in_part(
        &mut self,
        direction: Direction,
        numbers: (u32, u32),
        stamps: (u32, u32),
        block: Option<(u32, u32)>,
    ) -> (u32, u32, Option<Notice>) {
        let (ack, echo, notice) = self.stamped_ack(direction, numbers, stamps, block);
        // The later flush acknowledges everything, with the same echo.
        let flushed = self.flow.half(direction).ack_up_to(Seq::new(numbers.1), connection()).unwrap();
        let flushed = flushed.tcp().unwrap();
        assert_eq!(flushed.ack, Seq::new(numbers.1));
        assert_eq!(flushed.options.timestamps.unwrap().ecr, echo);
        (ack, echo, notice)
    }

    fn order(&mut self, direction: Direction, order: Order) {
        self.flow.handle_order(&mut Place::default(), &OrderRecord::new(self.now, connection(), direction, order));
    }

    fn send(&mut self, segments: u32) {
        for number in 0..segments {
            assert_eq!(self.data(1000 + number * 100, 100).0, Some((1, 500)));
        }
    }
}

fn holding(holds: Holds) -> LinkState {
    LinkState { holds, ..LinkState::default() }
}

// Claim: Orders of the flow path by packet scripts: bytes held back, the newest ACK, limited and shut windows by flow and by
// link, probes, duplicates, expiry. An entry knows what a flow knows, but for what it forgets by design.
// Tests: `tests::the_newest_ack_is_held_back_while_data_are_outstanding`,
// `tests::a_window_is_limited_by_flow_or_by_link_and_the_smaller_counts`,
// `tests::probes_of_a_shut_window_are_reported_and_withheld_while_the_mobile_host_is_absent`,
// `tests::duplicate_acks_are_kept_or_dropped`, `tests::an_expired_link_state_has_no_effect`,
// `tests::an_entry_follows_a_connection_as_a_flow_does`
#[test]
fn exactly_the_ordered_bytes_are_held_back() {
    for bytes in [0, 1, 150] {
        let mut path = Path::new(holding(Holds::Bytes(bytes)), 0);
        path.send(10);
        for acked in [1300, 1400, 1900, 2000] {
            let (ack, window) = path.ack(acked, 400).unwrap();
            assert_eq!(u32::from(window) + ack, acked + 400, "the right edge does not move");
            assert_eq!(acked - ack, bytes, "of {acked}");
        }
    }
    let mut path = Path::new(holding(Holds::Nothing), 0);
    path.send(10);
    assert_eq!(path.ack(1500, 400), Some((1500, 400)));
}

/// A host has retransmitted its oldest segment for `silence`, with TSvals in ms; then an ACK of everything up to 1500 arrives, which echoes
/// the result of `echo` for the oldest and the newest TSval, with a SACK block. Returns its ACK number and echo, and the notice.
fn after_silence(
    holds: Holds,
    silence: Duration,
    echo: fn(u32, u32) -> u32,
    block: Option<(u32, u32)>,
) -> (u32, u32, Option<Notice>) {
    let mut path = Path::new(holding(holds), 8);
    for number in 0..5 {
        path.pass(stamped(packet(true, Flags::ACK, (1000 + number * 100, 1), 500, 100), 50_000, 1));
    }
    path.pass(stamped(packet(false, Flags::ACK, (1, 1100), 400, 0), 1, 50_000));
    path.now += silence;
    let newest = 50_000 + u32::try_from(silence.as_millis()).unwrap();
    path.pass(stamped(packet(true, Flags::ACK, (1100, 1), 500, 100), newest, 1));
    path.ack_in_part(Direction::Incoming, (1, 1500), (2, echo(50_000, newest)), block)
}

fn stamped(mut packet: Packet, val: u32, ecr: u32) -> Packet {
    if let Some(segment) = holdover_filter::tcp_mut(&mut packet) {
        segment.options.timestamps = Some(Timestamps { val, ecr });
    }
    packet
}

// Claim: The first ACK after a second of silence that echoes a timestamp from before them is shown to the host in two steps, also
// with a DSACK; not where other orders hold ACKs, nor after an idle time.
#[test]
fn the_first_ack_after_a_long_silence_is_cut_in_two() {
    let long = Duration::from_secs(12);
    let after = |silence, echo, block| after_silence(Holds::Segments, silence, echo, block);
    for block in [None, Some((1100, 1200))] {
        let (ack, echo, notice) = after(long, |oldest, _| oldest, block);
        assert_eq!((ack, notice), (1101, Some(Notice::Cut)), "{block:?}");
        assert!((61_990..62_000).contains(&echo), "a round trip before the newest: {echo}");
    }
    // A SACK block beyond the ACK shows the losses by itself. An ACK of new data after an idle time has a fresh echo. After a short silence
    // the sender may not have retransmitted.
    assert_ne!(after(long, |oldest, _| oldest, Some((1600, 1700))).0, 1101);
    assert_ne!(after(long, |_, newest| newest, None).0, 1101);
    assert_ne!(after(Duration::from_millis(900), |oldest, _| oldest, None).0, 1101);
    // No controller would flush the rest.
    for holds in [Holds::Nothing, Holds::Bytes(1), Holds::Newest] {
        let (ack, echo, _) = after_silence(holds, long, |oldest, _| oldest, None);
        assert!(ack != 1101 && echo == 50_000, "{holds:?}: {ack}, {echo}");
    }
}

/// Four segments of 100 bytes came in at TSval 70,000, with a fifth behind a gap if `has_gap`, and the last ACKs were lost. The peer
/// retransmits `resent` after `silence`, with the TSval `val`. Returns the treatment of the answer.
fn after_peer_silence(
    silence: Duration,
    (resent, val): (u32, u32),
    has_gap: bool,
    block: Option<(u32, u32)>,
) -> (u32, u32, Option<Notice>) {
    let mut path = Path::new(holding(Holds::Segments), 8);
    for number in 0..4 {
        path.pass(stamped(packet(false, Flags::ACK, (1 + number * 100, 1000), 500, 100), 70_000, 1));
    }
    // Held back: 401 is shown when it is flushed.
    path.pass(stamped(packet(true, Flags::ACK, (1000, 401), 400, 0), 1, 70_000));
    path.order(Direction::Outgoing, Order::Show(Seq::new(401)));
    if has_gap {
        path.pass(stamped(packet(false, Flags::ACK, (501, 1000), 500, 100), 70_000, 1));
    }
    path.now += silence;
    path.pass(stamped(packet(false, Flags::ACK, (resent, 1000), 500, 100), val, 1));
    let acked = if has_gap { 601 } else { 401 };
    path.ack_in_part(Direction::Outgoing, (1000, acked), (2, 70_000), block)
}

// Claim: A retransmission that ends a second of silence shows which ACKs the peer lacks: from there the host's answer is sent in
// two steps, if it acknowledges more than that segment.
#[test]
fn the_answer_to_a_retransmission_after_a_long_silence_is_cut_in_two() {
    let long = Duration::from_secs(12);
    // All ACKs from 101 on were lost; the answer may have a DSACK. It echoes the retransmission.
    for block in [None, Some((101, 201))] {
        let cut = after_peer_silence(long, (101, 82_000), false, block);
        assert_eq!(cut, (102, 82_000, Some(Notice::Cut)), "{block:?}");
    }
    // The ACK of a retransmission that fills a gap covers the data behind it.
    assert_eq!(after_peer_silence(long, (401, 82_000), true, None), (402, 82_000, Some(Notice::Cut)));
    // An ACK of the retransmitted segment alone acknowledges nothing that was sent once.
    assert_eq!(after_peer_silence(long, (301, 82_000), false, None), (401, 70_000, None));
    // New data after an idle time, two segments before an ACK.
    let mut path = Path::new(holding(Holds::Segments), 8);
    path.pass(stamped(packet(false, Flags::ACK, (1, 1000), 500, 100), 70_000, 1));
    path.pass(stamped(packet(true, Flags::ACK, (1000, 101), 400, 0), 1, 70_000));
    path.now += long;
    for seq in [101, 201] {
        path.pass(stamped(packet(false, Flags::ACK, (seq, 1000), 500, 100), 82_000, 1));
    }
    assert_eq!(path.ack_in_part(Direction::Outgoing, (1000, 301), (2, 82_000), None).0, 301);
    // The silence was short; the segment was duplicated on the way; blocks show the losses.
    assert_eq!(after_peer_silence(Duration::from_millis(900), (101, 70_900), false, None).0, 401);
    assert_eq!(after_peer_silence(long, (101, 70_000), false, None).0, 401);
    assert_eq!(after_peer_silence(long, (101, 69_999), false, None).0, 401);
    assert_eq!(after_peer_silence(long, (101, 82_000), false, Some((501, 601))).0, 401);
}

#[test]
fn an_ack_that_would_show_nothing_new_is_withheld() {
    let mut path = Path::new(holding(Holds::Bytes(150)), 0);
    path.send(10);
    assert_eq!(path.ack(1100, 400), None);
    assert_eq!(path.ack(1300, 400), Some((1150, 550)));
    assert_eq!(path.ack(1300, 400), Some((1300, 400)), "loss recovery needs duplicate ACKs");
}

#[test]
fn the_newest_ack_is_held_back_while_data_are_outstanding() {
    let mut path = Path::new(holding(Holds::Newest), 0);
    path.send(4);
    assert_eq!(path.ack(1100, 400), None);
    assert_eq!(path.ack(1300, 300), Some((1100, 500)));
    assert_eq!(path.ack(1400, 400), Some((1400, 400)), "nothing is outstanding");
}

#[test]
fn a_window_is_limited_by_flow_or_by_link_and_the_smaller_counts() {
    for (of_flow, of_link, expected) in [
        (WindowLimit::None, None, 30_000),
        (WindowLimit::Always(64_000), None, 250),
        (WindowLimit::None, Some(32_000), 125),
        (WindowLimit::Always(64_000), Some(32_000), 125),
        (WindowLimit::Always(32_000), Some(64_000), 125),
        (WindowLimit::Always(1), None, 1),
        (WindowLimit::Always(0), None, 0),
        (WindowLimit::None, Some(0), 0),
    ] {
        // Windows are in units of 256 bytes.
        let mut path = Path::new(LinkState { most_window: of_link, ..holding(Holds::Nothing) }, 8);
        path.send(2);
        path.order(Direction::Incoming, Order::LimitWindow(of_flow));
        assert_eq!(path.ack(1100, 30_000), Some((1100, expected)), "{of_flow:?} {of_link:?}");
        // A RST is exempt, and so is the direction to the mobile host, whose window is not shown to the fixed host.
        let reset = packet(false, Flags::RST, (1, 0), 7, 0);
        assert_eq!(path.pass(reset).0, Some((0, 7)));
    }
}

#[test]
fn an_expired_link_state_has_no_effect() {
    let orders = LinkState { most_window: Some(0), drops_duplicates: true, ..holding(Holds::Bytes(1)) };
    let mut path = Path::new(LinkState { expires_at: Instant::ZERO, ..orders }, 0);
    path.send(5);
    assert_eq!(path.ack(1100, 400), Some((1100, 400)));
    assert_eq!(path.ack(1100, 400), Some((1100, 400)));
    assert_eq!(path.data(999, 0), (Some((1, 500)), None));
}

#[test]
fn probes_of_a_shut_window_are_reported_and_withheld_while_the_mobile_host_is_absent() {
    let mut path = Path::new(holding(Holds::Nothing), 0);
    path.send(2);
    path.ack(1200, 400);
    let probe = Some(Notice::Probed(Seq::new(1200)));
    assert_eq!(path.data(1199, 0), (Some((1, 500)), None), "the window is open");
    path.order(Direction::Incoming, Order::LimitWindow(WindowLimit::UntilHeard(0)));
    assert_eq!(path.data(1199, 0), (Some((1, 500)), probe), "as Linux probes");
    path.link.down_at = Some(path.now);
    assert_eq!(path.data(1199, 0), (None, probe));
    assert_eq!(path.data(1200, 1), (None, probe), "as 4.4BSD probes");
    assert_eq!(path.data(1200, 100), (Some((1, 500)), None), "data in flight");
    assert_eq!(path.data(1200, 100), (Some((1, 500)), probe), "a retransmission into a shut window is a probe");
    path.link.down_at = None;
    let (passed, notice) = path.pass(packet(false, Flags::ACK, (1, 1200), 350, 0));
    assert_eq!(
        (passed, notice),
        (Some((1200, 350)), Some(Notice::Heard(Seq::new(1200)))),
        "an ACK of the host ends the limit"
    );
    assert_eq!(path.flow.half(Direction::Incoming).window_limit(), None);
    assert_eq!(path.data(1199, 0).1, None);
}

#[test]
fn a_window_may_stay_shut_until_the_sender_is_shown_something_new() {
    let mut path = Path::new(holding(Holds::Nothing), 0);
    path.send(3);
    path.ack(1200, 400);
    path.order(Direction::Incoming, Order::LimitWindow(WindowLimit::UntilAcked(0)));
    let repeated = packet(false, Flags::ACK, (1, 1200), 400, 0);
    assert_eq!(path.pass(repeated), (Some((1200, 0)), None), "an ACK of nothing new");
    // The ACK that is withheld is repeated once the link is up.
    path.link.down_at = Some(path.now);
    assert_eq!(path.ack(1300, 300), None);
    assert_eq!(path.flow.half(Direction::Incoming).window_limit(), Some(0));
    path.link.down_at = None;
    let (passed, notice) = path.pass(packet(false, Flags::ACK, (1, 1300), 300, 0));
    assert_eq!((passed, notice), (Some((1300, 300)), Some(Notice::Heard(Seq::new(1300)))), "it was not shown");
    assert_eq!(path.flow.half(Direction::Incoming).window_limit(), None);
    // A later limit until any ACK ends with any ACK.
    path.order(Direction::Incoming, Order::LimitWindow(WindowLimit::UntilHeard(0)));
    assert_eq!(path.ack(1300, 350), Some((1300, 350)));
}

#[test]
fn duplicate_acks_are_kept_or_dropped() {
    for drops_duplicates in [false, true] {
        let mut path = Path::new(LinkState { drops_duplicates, ..holding(Holds::Nothing) }, 0);
        path.send(5);
        assert_eq!(path.ack(1200, 400), Some((1200, 400)));
        assert_eq!(path.ack(1200, 400), (!drops_duplicates).then_some((1200, 400)));
        path.now += Duration::from_millis(994);
        assert_eq!(path.ack(1200, 400), (!drops_duplicates).then_some((1200, 400)), "995 ms later");
        path.now += Duration::from_millis(3);
        assert_eq!(path.ack(1200, 400), Some((1200, 400)), "the loss was not repaired");
        assert_eq!(path.ack(1200, 450), Some((1200, 450)), "a window update");
        assert_eq!(path.ack(1300, 450), Some((1300, 450)));
        assert_eq!(path.ack(1500, 450), Some((1500, 450)));
        assert_eq!(path.ack(1500, 450), Some((1500, 450)), "nothing is outstanding: the answer to a keep-alive");
    }
}

#[test]
fn acks_of_uploads_are_held_back_in_segments_or_not_at_all() {
    for (holds, expected) in
        [(Holds::Segments, true), (Holds::Newest, false), (Holds::Bytes(1), false), (Holds::Nothing, false)]
    {
        let mut path = Path::new(holding(holds), 0);
        // Forty segments in a round trip.
        path.flow.set_smoothed(Duration::from_millis(41).as_nanos());
        path.flow.flags |= crate::layout::TRIP_SAMPLED as u16;
        let mut seq = 1;
        let mut is_held = false;
        for _ in 0..10 {
            for _ in 0..40 {
                path.pass(packet(false, Flags::ACK, (seq, 1000), 5000, 10));
                seq += 10;
            }
            is_held |= path.pass(packet(true, Flags::ACK, (1000, seq), 5000, 0)).0 != Some((seq, 5000));
        }
        assert_eq!(is_held, expected, "{holds:?}");
    }
}

/// A segment of a random connection.
#[derive(Clone, Debug)]
struct Shape {
    is_outgoing: bool,
    flags: u16,
    ahead: i32,
    back: u32,
    window: u16,
    len: usize,
    has_stamps: bool,
    millis: u64,
}

fn shape() -> impl Strategy<Value = Shape> {
    let flags = prop_oneof![20 => Just(0x10_u16), 2 => Just(0x11), 1 => Just(0x14), 1 => Just(0x04)];
    let ahead = prop_oneof![8 => Just(0), 1 => -400_i32..400];
    let back = prop_oneof![6 => Just(0_u32), 1 => 0_u32..500];
    (any::<bool>(), flags, ahead, back, any::<u16>(), 0_usize..300, any::<bool>(), 0_u64..50).prop_map(
        |(is_outgoing, flags, ahead, back, window, len, has_stamps, millis)| Shape {
            is_outgoing,
            flags,
            ahead,
            back,
            window,
            len,
            has_stamps,
            millis,
        },
    )
}

proptest! {
    /// While nothing is held, an entry has the same state as a flow, except where it drops state by design.
    #[test]
    fn an_entry_follows_a_connection_as_a_flow_does(
        shapes in prop::collection::vec(shape(), 1..60),
        first in any::<(u32, u32)>(),
        shift in prop::option::of(0_u8..15),
    ) {
        let link = Link::new(&holding(Holds::Nothing));
        let rules = Rules::new(None, true, Duration::ZERO).with_details_after(5_000);
        let (mut flow, mut entry) = (Flow::new(), Entry::new());
        let mut now = Instant::from_secs(3);
        let (mut host, mut peer) = first;
        let mut begin = vec![packet(false, Flags::SYN, (peer.wrapping_sub(1), 0), 500, 0)];
        begin.push(packet(true, Flags::SYN | Flags::ACK, (host.wrapping_sub(1), peer), 500, 0));
        for packet in &mut begin {
            if let Some(segment) = holdover_filter::tcp_mut(packet) {
                segment.options.window_scale = shift;
            }
        }
        let mut rest = shapes.into_iter();
        let mut next = begin.into_iter();
        loop {
            let packet = match next.next() {
                Some(packet) => packet,
                None => {
                    let Some(shape) = rest.next() else { break };
                    // No two at the same time: the time of the last accepted one shows whether one was refused.
                    now += Duration::from_millis(shape.millis) + Duration::from_micros(1);
                    let (own, other) = if shape.is_outgoing { (&mut host, peer) } else { (&mut peer, host) };
                    let seq = own.wrapping_add_signed(shape.ahead);
                    if shape.ahead == 0 {
                        *own = own.wrapping_add(shape.len as u32);
                    }
                    let flags = Flags::from_bits_truncate(shape.flags);
                    let numbers = (seq, other.wrapping_sub(shape.back));
                    let mut packet = packet(shape.is_outgoing, flags, numbers, shape.window, shape.len);
                    if let Some(segment) = holdover_filter::tcp_mut(&mut packet)
                        && shape.has_stamps
                    {
                        let val = now.as_millis() as u32;
                        segment.options.timestamps = Some(Timestamps { val, ecr: val.wrapping_sub(20) });
                    }
                    packet
                }
            };
            let direction = if packet.dst == MOBILE { Direction::Outgoing } else { Direction::Incoming };
            let form = Form::of(packet.tcp().unwrap());
            let followed = entry.follow(now, &rules, direction, &packet, form);
            let environment = Environment { now, link: &link, rules: &rules };
            let mut passed = packet.clone();
            let (verdict, notice) =
                flow.pass_between(&Key::new(connection()), environment, direction, &mut passed, form);
            prop_assert_eq!((verdict, notice), (Verdict::Pass, None));
            prop_assert_eq!(&passed, &packet);
            let expanded = entry.expand();
            for direction in Direction::BOTH {
                let (ours, theirs) = (expanded.half(direction), flow.half(direction));
                prop_assert_eq!(ours.acked(), theirs.acked());
                prop_assert_eq!(ours.shown(), theirs.shown());
                prop_assert_eq!(ours.bytes_acked(), theirs.bytes_acked());
                prop_assert_eq!(ours.awaits_ack(), theirs.awaits_ack());
                prop_assert_eq!(ours.is_all_acknowledged(), theirs.is_all_acknowledged());
                prop_assert_eq!((ours.is_ending(), ours.is_reset()), (theirs.is_ending(), theirs.is_reset()));
                prop_assert_eq!(ours.lacks_window_shift(), theirs.lacks_window_shift());
                let receiver = connection().of_sender_going(direction);
                let ack = theirs.acked().unwrap_or(Seq::new(0));
                prop_assert_eq!(ours.ack_up_to(ack, receiver), theirs.ack_up_to(ack, receiver));
            }
            prop_assert_eq!((expanded.is_over(), expanded.is_unanswered()), (flow.is_over(), flow.is_unanswered()));
            prop_assert_eq!((expanded.seen_at(), expanded.began_at()), (flow.seen_at(), flow.began_at()));
            let bytes = |direction| flow.half(direction).bytes_acked();
            let is_bulk = bytes(Direction::Outgoing) >= 5_000 || bytes(Direction::Incoming) >= 5_000;
            prop_assert_eq!(followed == Followed::Bulk, is_bulk && !is_refused(&flow, &entry, now));
        }
    }
}

/// A segment that its receiver refuses is not noted.
fn is_refused(flow: &Flow, entry: &Entry, now: Instant) -> bool {
    flow.seen_at() != now || entry.expand().seen_at() != now
}
