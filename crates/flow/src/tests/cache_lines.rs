//! The cache lines of a flow that packets of a healthy link need (`struct flow` of `c/state.h`).
//!
//! A packet needs a byte if the byte decides about the packet or about another byte, or if it is written. To find out, everything else
//! is overwritten with garbage: the result and the garbage must not change.

use core::mem::offset_of;
use core::ops::Range;
use std::collections::{BTreeSet, VecDeque};

use holdover_base::{Duration, Instant};
use holdover_filter::{Direction, Verdict, tcp_mut};
use holdover_wire::{Flags, Packet, RareOptions, TcpOptions};

use super::{connection, packet, stamped};
use crate::ffi::testing::{FlowBytes, flow_from_bytes, flow_to_bytes};
use crate::layout::{HalfAcks, HalfRest, Shown, TRIP_HEARD_ERA};
use crate::{Environment, Flow, Form, HoldBack, Key, Link, LinkState, Notice, Place, Rules};

const LINE: usize = 64;

const ROUND_TRIP_MS: u64 = 100;

/// The peer's clock for timestamps begins here.
const PEER_CLOCK: u64 = 7_000_000;

const SEGMENT: usize = 1448;

/// Bytes of a flow that every packet needs, and an ACK without data that acknowledges more.
const FOR_EVERY_PACKET: usize = LINE / 2 + LINE + LINE / 2;
const FOR_ACKS: usize = FOR_EVERY_PACKET + size_of::<HalfAcks>() + size_of::<Shown>();

/// A part of a flow.
type Part = (&'static str, Range<usize>);

/// The fate of a packet.
#[derive(PartialEq, Debug)]
struct Outcome {
    verdict: Verdict,
    notice: Option<Notice>,
    packet: Packet,
}

/// A connection of this host.
struct Transfer {
    flow: Flow,
    link: Link,
    rules: Rules,
    now_ms: u64,
    /// The next sequence numbers of this host and of the peer.
    nxt: (u32, u32),
    /// The end of each of this host's transmissions with its time, and the acknowledged number.
    sent: VecDeque<(u64, u32)>,
    acked: u32,
    packets: u32,
    /// Packets that begin or end a measurement.
    measuring: u32,
    /// Packets that begin an era.
    eras: u32,
    lowered: u32,
    /// The parts that were needed by a packet.
    needed: BTreeSet<&'static str>,
}

impl Transfer {
    /// A connection after its handshake.
    fn new() -> Self {
        let hold = HoldBack { segments: 4, after_bytes: 0, pause: Duration::ZERO, flush: Duration::from_millis(40) };
        let mut transfer = Self {
            flow: Flow::new(),
            link: Link::new(&LinkState::default()),
            rules: Rules::new(Some(hold), true, Duration::ZERO),
            // An era ends while packets are checked.
            now_ms: 11_500,
            nxt: (1000, 500_000),
            sent: VecDeque::new(),
            acked: 0,
            packets: 0,
            measuring: 0,
            eras: 0,
            lowered: 0,
            needed: BTreeSet::new(),
        };
        transfer.handle_next(Direction::Outgoing, Flags::SYN, 0);
        transfer.now_ms += ROUND_TRIP_MS;
        transfer.handle_next(Direction::Incoming, Flags::SYN | Flags::ACK, 0);
        transfer.handle_next(Direction::Outgoing, Flags::ACK, 0);
        transfer
    }

    /// Segments with data in one direction for 20 round trips, with an ACK for every two. Once the transfer is under way, all packets are
    /// checked.
    fn run(&mut self, data: Direction) {
        for round in 0..20 * 20 {
            let is_checked = round >= 10 * 20;
            self.pass(data, SEGMENT, is_checked);
            self.pass(data, SEGMENT, is_checked);
            self.pass(data.opposite(), 0, is_checked);
            self.now_ms += 2;
        }
    }

    fn pass(&mut self, direction: Direction, len: usize, is_checked: bool) {
        self.now_ms += 1;
        let before = self.flow;
        let (sent, outcome) = self.handle_next(direction, Flags::ACK, len);
        if is_checked {
            self.check(direction, &before, &sent, &outcome);
        }
    }

    /// Handles the next packet in a direction. Returns it as sent, and its fate.
    fn handle_next(&mut self, direction: Direction, flags: Flags, len: usize) -> (Packet, Outcome) {
        let sent = self.next_packet(direction, flags, len);
        let mut flow = self.flow;
        let outcome = self.handle(&mut flow, direction, &sent);
        self.flow = flow;
        (sent, outcome)
    }

    fn next_packet(&mut self, direction: Direction, flags: Flags, len: usize) -> Packet {
        let is_outgoing = direction == Direction::Outgoing;
        let (own, other) = if is_outgoing { self.nxt } else { (self.nxt.1, self.nxt.0) };
        while let Some((_, nxt)) = self.sent.pop_front_if(|(at, _)| *at + ROUND_TRIP_MS <= self.now_ms) {
            self.acked = nxt;
        }
        let ack = match direction {
            Direction::Outgoing if !flags.contains(Flags::ACK) => 0,
            Direction::Outgoing => other,
            Direction::Incoming => self.acked,
        };
        let mut sent = packet(is_outgoing, flags, (own, ack), 5000, len);
        if flags.contains(Flags::SYN)
            && let Some(segment) = tcp_mut(&mut sent)
        {
            segment.options = TcpOptions::from(RareOptions { window_scale: Some(7), ..RareOptions::default() });
        }
        let next = own.wrapping_add(len as u32 + u32::from(flags.contains(Flags::SYN)));
        if is_outgoing {
            self.nxt.0 = next;
            self.sent.push_back((self.now_ms, next));
        } else {
            self.nxt.1 = next;
        }
        // The peer has sent its packet half a round trip ago.
        let peer_val = PEER_CLOCK + self.now_ms - ROUND_TRIP_MS / 2;
        let (val, ecr) = if is_outgoing { (self.now_ms, peer_val) } else { (peer_val, self.now_ms - ROUND_TRIP_MS) };
        stamped(sent, val as u32, ecr as u32)
    }

    fn handle(&self, flow: &mut Flow, direction: Direction, sent: &Packet) -> Outcome {
        let mut packet = sent.clone();
        let mut place = Place::default();
        let environment = Environment { now: Instant::from_millis(self.now_ms), link: &self.link, rules: &self.rules };
        let form = Form::of(packet.tcp().unwrap());
        let (verdict, notice) =
            flow.handle_packet(&mut place, &Key::new(connection()), environment, direction, &mut packet, form);
        assert_eq!(place, Place::default(), "the transfer is not fast");
        Outcome { verdict, notice, packet }
    }

    /// Checks a packet that was handled.
    fn check(&mut self, direction: Direction, before: &Flow, sent: &Packet, outcome: &Outcome) {
        let has_data = !sent.tcp().unwrap().payload.is_empty();
        let mut parts = usual_parts(direction, has_data, before);
        let bytes: usize = parts.iter().map(|(_, part)| part.len()).sum();
        assert_eq!(bytes, if has_data { FOR_EVERY_PACKET } else { FOR_ACKS });
        let measured = parts_of_measurements(before, &self.flow);
        self.packets += 1;
        self.measuring += u32::from(!measured.is_empty());
        self.lowered += u32::from(outcome.packet != *sent);
        parts.extend(measured);
        if era_of(before) != era_of(&self.flow) {
            self.eras += 1;
            parts.extend(parts_of_eras());
        }

        let others = |at: &usize| !parts.iter().any(|(_, part)| part.contains(at));
        let others: Vec<usize> = (0..size_of::<Flow>()).filter(others).collect();
        for garbage in [0, 0x5a, 0xff] {
            assert!(
                !self.needs(direction, before, sent, outcome, &others, garbage),
                "{direction:?} {sent:?} needs other bytes than {parts:?}"
            );
        }
        for (name, part) in parts {
            let part: Vec<usize> = part.collect();
            if [0, 0xff].into_iter().any(|garbage| self.needs(direction, before, sent, outcome, &part, garbage)) {
                self.needed.insert(name);
            }
        }
    }

    /// Whether a packet needs any of these bytes: with garbage there, something else changes, or the garbage does.
    fn needs(
        &self,
        direction: Direction,
        before: &Flow,
        sent: &Packet,
        outcome: &Outcome,
        places: &[usize],
        garbage: u8,
    ) -> bool {
        let spoil = |flow: &Flow| -> FlowBytes {
            let mut bytes = flow_to_bytes(flow);
            for &at in places {
                bytes[at] = garbage;
            }
            bytes
        };
        let mut flow = flow_from_bytes(&spoil(before));
        let is_same = self.handle(&mut flow, direction, sent) == *outcome;
        !is_same || flow_to_bytes(&flow) != spoil(&self.flow)
    }
}

/// The parts that most packets need: those of every packet, whatever its direction, and those of ACKs.
fn usual_parts(direction: Direction, has_data: bool, before: &Flow) -> Vec<Part> {
    let lines = [0, LINE / 2, LINE / 2 + LINE, offset_of!(Flow, frame_out)];
    let mut parts = vec![
        ("the first half line", lines[0]..lines[1]),
        ("the line after it", lines[1]..lines[2]),
        ("half the next line", lines[2]..lines[3]),
    ];
    if !has_data {
        let (acks, rest) = offsets_of_half(direction);
        let next = usize::from(before.half(direction).acks.shown_next);
        let shown = rest + offset_of!(HalfRest, shown_lately) + next * size_of::<Shown>();
        parts.push(("the line for ACKs", acks..acks + size_of::<HalfAcks>()));
        parts.push(("an ACK shown", shown..shown + size_of::<Shown>()));
    }
    parts
}

/// The additional needs of a packet that begins or ends a measurement of the round trip.
fn parts_of_measurements(before: &Flow, after: &Flow) -> Vec<Part> {
    let mut parts = Vec::new();
    if (before.flags ^ after.flags) & !(TRIP_HEARD_ERA as u16) != 0 {
        let from = offset_of!(Flow, latest);
        parts.push(("the line of round trips", from..from + LINE));
    }
    parts
}

/// The additional needs of a packet that begins an era: the high halves of times.
fn parts_of_eras() -> Vec<Part> {
    let word = |from: usize| from..from + size_of::<u32>();
    let mut parts = vec![("the era of the peer's last packet", word(offset_of!(Flow, heard_era)))];
    for direction in Direction::BOTH {
        let rest = offsets_of_half(direction).1;
        parts.push(("the eras of data", word(rest + offset_of!(HalfRest, last_data_era))));
        parts.push(("the eras of timestamps", word(rest + offset_of!(HalfRest, newest_stamp_era))));
    }
    parts
}

fn era_of(flow: &Flow) -> u64 {
    flow.seen_at().as_nanos() >> 32
}

/// The parts, but the first one, of the half whose ACKs go in a direction.
fn offsets_of_half(direction: Direction) -> (usize, usize) {
    match direction {
        Direction::Outgoing => (offset_of!(Flow, outgoing_acks), offset_of!(Flow, outgoing_rest)),
        Direction::Incoming => (offset_of!(Flow, incoming_acks), offset_of!(Flow, incoming_rest)),
    }
}

// Claim: On a healthy link all packets of a flow, of both directions, need the same 128 bytes of it, in three cache lines of which two are
// half, and an ACK of more 80 bytes besides; some packets of each round trip measure it and need a line more, and one in 4.3 seconds
// begins an era.
#[test]
fn packets_of_a_healthy_link_need_few_cache_lines() {
    assert_eq!((FOR_EVERY_PACKET, FOR_ACKS), (128, 208));
    for data in [Direction::Incoming, Direction::Outgoing] {
        let mut transfer = Transfer::new();
        transfer.run(data);
        assert!(transfer.lowered > 150, "{data:?}: {} ACKs were lowered", transfer.lowered);
        assert!(transfer.measuring > 0 && transfer.measuring * 10 < transfer.packets, "{}", transfer.measuring);
        assert_eq!(transfer.eras, 1);
        assert_eq!(transfer.needed.len(), 9, "{:?}", transfer.needed);
    }
}
