//! A mechanism on the path of one transfer, packet by packet. A download: segments of 1000 bytes arrive, ACKs are sent.

use core::net::SocketAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_mobility::hold_back::HoldBackConfig;
use holdover_mobility::{Chain, Direction, Injected, LinkEvent, Mechanisms, Verdict};
use holdover_wire::{Flags, Packet, Segment, Seq, Timestamps};

use crate::support::ms;

pub(crate) const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };

/// A filter, and the clock. The peer's timestamp clock ticks in ms, and is 5,000,000 at the start. Numbers are relative: the absolute ones
/// wrap around soon.
pub(crate) struct Script {
    pub(crate) chain: Chain,
    pub(crate) now: Instant,
    pub(crate) data_end: u32,
    /// How many bytes beyond `data_end` have been sent.
    ahead: u32,
    /// The direction of the data.
    way: Direction,
}

/// The round trip in the timestamps.
const ROUND_TRIP_MS: u32 = 60;

/// The absolute value of relative number 0.
const BASE: u32 = u32::MAX - 170_000;

pub(crate) fn seq(relative: u32) -> Seq {
    Seq::new(BASE.wrapping_add(relative))
}

pub(crate) fn relative(seq: Seq) -> u32 {
    seq.value().wrapping_sub(BASE)
}

pub(crate) fn reverse(way: Direction) -> Direction {
    match way {
        Direction::Outgoing => Direction::Incoming,
        Direction::Incoming => Direction::Outgoing,
    }
}

impl Script {
    /// This many segments have arrived and been acknowledged, one per ms.
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

    /// An upload with a window always in flight.
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

    pub(crate) fn own_clock(&self) -> u32 {
        1_000 + self.now.as_millis() as u32
    }

    pub(crate) fn peer_clock(&self) -> u32 {
        5_000_000 + self.now.as_millis() as u32
    }

    /// A segment arrives, and 1 ms passes.
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

    /// The host acknowledges everything. Returns the number of the ACK that passes.
    pub(crate) fn ack(&mut self) -> Option<u32> {
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

    /// Time passes. Returns the packets made meanwhile.
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

    /// The same; returns the numbers of their ACKs.
    pub(crate) fn wait_for_acks(&mut self, span: Duration) -> Vec<u32> {
        let made = self.wait(span).into_iter();
        made.filter_map(|made| made.packet.tcp().map(|segment| relative(segment.ack))).collect()
    }
}

pub(crate) fn hold_back() -> Mechanisms {
    Mechanisms { hold_back: Some(HoldBackConfig::default()), ..Mechanisms::default() }
}
