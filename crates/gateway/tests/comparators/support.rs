//! Packet scripts: a filter of a base station between a fixed host and a mobile host.

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::{Direction, Presence, SegmentFilter, Verdict, tcp_mut};
use holdover_wire::{Flags, Packet, Segment, Seq, SeqRange};

pub(crate) const FIXED: [u8; 4] = [192, 0, 2, 1];
pub(crate) const MOBILE: [u8; 4] = [10, 0, 0, 7];

/// The mobile host's window.
pub(crate) const WINDOW: u16 = 1000;

/// Bytes of a segment in scripts.
pub(crate) const LEN: u32 = 100;

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn at_ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

pub(crate) fn mobile() -> IpAddr {
    MOBILE.into()
}

/// Segment number `n` of the fixed host: bytes `100 n` to `100 n + 100`.
pub(crate) fn data(n: u32) -> Packet {
    bytes_at(n * LEN, LEN)
}

pub(crate) fn bytes_at(seq: u32, len: u32) -> Packet {
    let segment = Segment {
        src_port: 80,
        dst_port: 1024,
        seq: Seq::new(seq),
        ack: Seq::new(1),
        flags: Flags::ACK,
        window: 5000,
        payload: Bytes::from(vec![0; len as usize]),
        ..Segment::default()
    };
    Packet::new(FIXED.into(), MOBILE.into(), segment)
}

/// The mobile host has all segments below number `n`.
pub(crate) fn ack(n: u32) -> Packet {
    ack_of(n * LEN)
}

pub(crate) fn ack_of(ack: u32) -> Packet {
    let segment = Segment {
        src_port: 1024,
        dst_port: 80,
        seq: Seq::new(1),
        ack: Seq::new(ack),
        flags: Flags::ACK,
        window: WINDOW,
        ..Segment::default()
    };
    Packet::new(MOBILE.into(), FIXED.into(), segment)
}

/// The mobile host has all segments below number `n`, and those of each block, from its first number to before its
/// second.
pub(crate) fn sack(n: u32, blocks: &[(u32, u32)]) -> Packet {
    let mut packet = ack(n);
    let block = |&(start, end): &(u32, u32)| SeqRange::new(Seq::new(start * LEN), Seq::new(end * LEN));
    if let Some(segment) = tcp_mut(&mut packet) {
        segment.options.sack = blocks.iter().map(block).collect();
    }
    packet
}

pub(crate) fn window(mut packet: Packet, window: u16) -> Packet {
    if let Some(segment) = tcp_mut(&mut packet) {
        segment.window = window;
    }
    packet
}

/// A filter in a script.
#[derive(Debug)]
pub(crate) struct Script<F> {
    pub(crate) filter: F,
    pub(crate) now: Instant,
}

impl<F: SegmentFilter> Script<F> {
    pub(crate) fn new(filter: F) -> Self {
        Self { filter, now: Instant::ZERO }
    }

    /// Advances to this time, in milliseconds from the start, handling earlier deadlines.
    pub(crate) fn at(&mut self, millis: u64) -> &mut Self {
        self.wait_until(millis);
        self
    }

    /// Time passes. Returns the packets made, with their times in milliseconds.
    pub(crate) fn wait_until(&mut self, millis: u64) -> Vec<(u64, String)> {
        let until = at_ms(millis);
        let mut made = Vec::new();
        for _ in 0..1000 {
            let Some(at) = self.filter.poll_timeout().filter(|at| *at <= until) else {
                self.now = self.now.max(until);
                return made;
            };
            self.now = self.now.max(at);
            self.filter.handle_timeout(self.now);
            let millis = self.now.as_millis();
            made.extend(self.made().into_iter().map(|text| (millis, text)));
        }
        panic!("the filter sets deadlines without end");
    }

    /// A packet of the fixed host. Returns the packets that are forwarded: the packet itself first, if it passes.
    pub(crate) fn fixed_sends(&mut self, packet: Packet) -> Vec<String> {
        self.handle(Direction::Outgoing, packet)
    }

    /// A packet of the mobile host.
    pub(crate) fn mobile_sends(&mut self, packet: Packet) -> Vec<String> {
        self.handle(Direction::Incoming, packet)
    }

    pub(crate) fn presence(&mut self, presence: Presence) -> Vec<String> {
        self.filter.handle_mobile(self.now, mobile(), presence);
        self.made()
    }

    fn handle(&mut self, direction: Direction, mut packet: Packet) -> Vec<String> {
        let verdict = self.filter.handle_packet(self.now, direction, &mut packet);
        let passed = (verdict == Verdict::Pass).then(|| text(direction, &packet));
        passed.into_iter().chain(self.made()).collect()
    }

    /// The packets that it sends.
    pub(crate) fn made(&mut self) -> Vec<String> {
        while self.filter.poll_action().is_some() {}
        let now = self.now;
        core::iter::from_fn(|| self.filter.poll_transmit(now)).map(|made| text(made.direction, &made.packet)).collect()
    }
}

/// `data 3`, `data 340+10`, `ack 4`, with the window and SACK blocks of an ACK if they are not the usual ones.
fn text(direction: Direction, packet: &Packet) -> String {
    let Some(segment) = packet.tcp() else { return packet.to_string() };
    let number = |seq: Seq| match (seq.value() / LEN, seq.value() % LEN) {
        (n, 0) => n.to_string(),
        _ => format!("byte {seq}"),
    };
    match direction {
        Direction::Outgoing if segment.payload.len() == LEN as usize => format!("data {}", number(segment.seq)),
        Direction::Outgoing => format!("data {}+{}", segment.seq, segment.payload.len()),
        Direction::Incoming => {
            let mut text = format!("ack {}", number(segment.ack));
            if segment.window != WINDOW {
                text += &format!(" win {}", segment.window);
            }
            for block in segment.options.sack.iter() {
                text += &format!(" sack {}-{}", number(block.start), number(block.end));
            }
            text
        }
    }
}

/// Asserts the forwarded packets, in order.
macro_rules! assert_out {
    ($made:expr $(, $text:expr)* $(,)?) => {
        assert_eq!($made, &[$($text),*] as &[&str])
    };
}
pub(crate) use assert_out;
