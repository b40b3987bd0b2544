//! A hostile peer against one connection: segments with arbitrary flags, numbers near edges and invalid options, in any
//! state, between calls of the application, the owner's verbs and timeouts.

use std::sync::Arc;

use holdover_base::Instant;
use holdover_wire::{
    Flags, RareOptions, SackBlocks, Segment, Seq, SeqRange, TcpOptions, Timestamps, Unreachable, UserTimeout,
};

use super::input::Input;
use super::{check, drain, expire, stream};
use crate::connection::{Connection, Opening, Transmit};
use crate::counters::Reason;
use crate::ecn::EcnField;
use crate::state::State;

/// Runs the program in `data` against one connection. For any segments nothing panics, the bookkeeping is consistent, memory is bounded,
/// one segment is answered by at most two without data, data that was not received is never acknowledged, and no deadline stays in the
/// past.
pub fn hostile_segments(data: &[u8]) {
    let mut input = Input::new(data);
    let mut victim = Victim::new(&mut input);
    while !input.is_empty() {
        victim.operate(&mut input);
    }
}

struct Victim {
    now: Instant,
    connection: Connection,
    iss: Seq,
    /// The peer's first sequence number, once the connection has taken a SYN.
    irs: Option<Seq>,
    /// The injected data, as ranges of offsets from `irs`.
    injected: Ranges,
    written: u64,
    /// The last timestamp that the connection has sent.
    clock: u32,
}

impl Victim {
    fn new(input: &mut Input<'_>) -> Self {
        let now = Instant::from_secs(1);
        let patient = input.flag();
        let config = Arc::new(input.config(patient));
        let iss = Seq::new(input.long());
        let opening = Opening {
            local: ([10, 0, 0, 1], 1000).into(),
            remote: ([10, 0, 0, 2], 80).into(),
            iss,
            timestamp_offset: input.long(),
        };
        let passive = input.flag();
        let mut victim = if passive {
            let syn = Segment { seq: Seq::new(input.long()), flags: Flags::SYN, ..Segment::default() };
            let syn = Segment { window: input.word(), options: syn_options(input), ..syn };
            let connection = Connection::accept(now, config, opening, &syn);
            Self::of(now, connection, iss, Some(syn.seq))
        } else {
            Self::of(now, Connection::connect(now, config, opening), iss, None)
        };
        victim.collect();
        if input.flag() {
            victim.shake_hands(input);
        }
        victim
    }

    fn of(now: Instant, connection: Connection, iss: Seq, irs: Option<Seq>) -> Self {
        let injected = Ranges(irs.map(|_| (0, 1)).into_iter().collect());
        Self { now, connection, iss, irs, injected, written: 0, clock: 0 }
    }

    /// The segment that completes the handshake.
    fn shake_hands(&mut self, input: &mut Input<'_>) {
        let timestamps = Some(Timestamps { val: input.long(), ecr: self.clock });
        let active = self.connection.state() == State::SynSent;
        let segment = Segment {
            seq: if active { Seq::new(input.long()) } else { self.connection.rcv_nxt() },
            ack: self.iss + 1,
            flags: if active { Flags::SYN | Flags::ACK } else { Flags::ACK },
            window: input.word(),
            options: TcpOptions { timestamps, ..if active { syn_options(input) } else { TcpOptions::default() } },
            ..Segment::default()
        };
        self.inject(&segment);
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        let now = self.now;
        match input.byte() {
            0..20 => {
                let room = input.len().min(60_000);
                self.written += self.connection.write(now, stream(self.written, room)) as u64;
            }
            20..26 => {
                for _ in 0..input.byte() {
                    if self.connection.read(now).is_none() {
                        break;
                    }
                }
            }
            26..28 => self.connection.shutdown_write(),
            28 => self.connection.close(now),
            29 => {
                if input.byte() == 0 {
                    self.connection.abort();
                }
            }
            30..36 => input.verb(now, &mut self.connection),
            36 => self.connection.mark_urgent(),
            37..45 => {
                let kind = unreachable(input);
                let quoted = self.sent_seq(input);
                self.connection.handle_icmp(now, kind, quoted);
            }
            45..60 => {
                let at = self.connection.poll_timeout().map_or(now, |(at, _)| at);
                self.now = now.max(at);
                self.expire();
            }
            60..66 => {
                self.now += input.span();
                self.expire();
            }
            _ => {
                let segment = self.segment(input);
                self.inject(&segment);
            }
        }
        check(&self.connection);
        self.collect();
    }

    fn expire(&mut self) {
        let mut sent = Vec::new();
        expire(&mut self.connection, self.now, |transmit| sent.push(transmit));
        sent.iter().for_each(|transmit| self.witness(transmit));
    }

    fn inject(&mut self, segment: &Segment) {
        let before = self.connection.state();
        let requested = self.collect();
        assert_eq!(requested, 0, "everything was sent before");
        if before == State::SynSent && segment.flags.contains(Flags::SYN) {
            // It may be taken for the peer's first.
            self.irs = Some(segment.seq);
            self.injected = Ranges::default();
        }
        if let Some(irs) = self.irs {
            self.injected.insert(segment.seq - irs, segment.seq_len());
        }
        self.connection.handle_segment_both_ways(self.now, segment, EcnField::NotEct);
        check(&self.connection);
        let answers = self.collect();
        assert!(answers <= 2, "{answers} answers without data to one segment in {before}: {segment}");
    }

    /// Takes the segments that the connection sends; returns the number of those without data.
    fn collect(&mut self) -> usize {
        let sent = drain(&mut self.connection, self.now);
        sent.iter().for_each(|transmit| self.witness(transmit));
        sent.iter().filter(|sent| sent.segment.seq_len() == 0 && sent.reason != Reason::RequestedAck).count()
    }

    fn witness(&mut self, transmit: &Transmit) {
        let segment = &transmit.segment;
        if let Some(timestamps) = segment.options.timestamps {
            self.clock = timestamps.val;
        }
        if segment.flags.contains(Flags::ACK) && !segment.flags.contains(Flags::RST) {
            let irs = self.irs.expect("a SYN was taken before anything is acknowledged");
            let acked = segment.ack - irs;
            assert!(acked <= self.injected.contiguous(), "{acked} acknowledged of {:?}", self.injected);
        }
    }

    /// A sequence number of the connection's own near something interesting.
    fn sent_seq(&self, input: &mut Input<'_>) -> Seq {
        let connection = &self.connection;
        let base = input.pick(&[connection.snd_una(), connection.snd_nxt(), connection.snd_una(), self.iss]);
        near(base, connection.snd_mss(), input)
    }

    /// A sequence number of the peer's near something interesting.
    fn peer_seq(&self, input: &mut Input<'_>) -> Seq {
        let next = self.connection.rcv_nxt();
        let edge = next + self.connection.config().receive.buffer_bytes;
        let base = input.pick(&[next, next, next, next, edge, self.irs.unwrap_or(next)]);
        near(base, 1000, input)
    }

    fn segment(&self, input: &mut Input<'_>) -> Segment {
        let flags = input.pick(&[
            Flags::ACK,
            Flags::ACK,
            Flags::ACK,
            Flags::ACK | Flags::PSH,
            Flags::ACK | Flags::FIN,
            Flags::SYN,
            Flags::SYN | Flags::ACK,
            Flags::RST,
            Flags::RST | Flags::ACK,
            Flags::ACK | Flags::URG,
            Flags::empty(),
            Flags::all(),
        ]);
        let seq = self.peer_seq(input);
        let ack = self.sent_seq(input);
        let payload = if input.flag() { stream(u64::from(seq.value()), input.len().min(2000)) } else { stream(0, 0) };
        let window = input.pick(&[0, 1, 100, 1000, 0xffff]);
        let options = if input.flag() { self.options(input) } else { self.honest_options() };
        let urgent = if flags.contains(Flags::URG) { input.word() } else { 0 };
        Segment { src_port: 80, dst_port: 1000, seq, ack, flags, window, urgent, options, payload }
    }

    fn honest_options(&self) -> TcpOptions {
        let timestamps = self
            .connection
            .timestamps_agreed()
            .then_some(Timestamps { val: self.now.as_millis() as u32, ecr: self.clock });
        TcpOptions { timestamps, ..TcpOptions::default() }
    }

    fn options(&self, input: &mut Input<'_>) -> TcpOptions {
        let bits = input.byte();
        let mut options = self.honest_options();
        if bits & 1 != 0 {
            let val =
                input.pick(&[0, u32::MAX, self.now.as_millis() as u32, 1 << 31]).wrapping_add(input.byte().into());
            let ecr = input.pick(&[0, self.clock, self.clock.wrapping_sub(100), u32::MAX]);
            options.timestamps = Some(Timestamps { val, ecr });
        }
        if bits & 2 != 0 {
            let range = |input: &mut Input<'_>| SeqRange::new(self.sent_seq(input), self.sent_seq(input));
            options.sack = (0..=bits >> 6).map(|_| range(input)).collect::<SackBlocks>();
        }
        if bits & 4 != 0 {
            options.user_timeout = Some(UserTimeout::from_wire(input.word()));
        }
        if bits & 8 != 0 {
            let syn = syn_options(input);
            options = TcpOptions { timestamps: options.timestamps, sack: options.sack, ..syn };
        }
        options
    }
}

/// `base`, or a byte, a segment or anything away from it.
fn near(base: Seq, segment: u32, input: &mut Input<'_>) -> Seq {
    match input.byte() % 16 {
        0..6 => base,
        6 => base + 1,
        7 => base - 1,
        8 => base + u32::from(input.byte()),
        9 => base - u32::from(input.byte()),
        10 | 11 => base + segment * u32::from(input.byte() % 16),
        12 => base + u32::from(input.word()),
        13 => base - u32::from(input.word()),
        14 => base + (1 << 31) + u32::from(input.byte()) - 128,
        _ => Seq::new(input.long()),
    }
}

/// The options of a SYN, sensible or not.
pub(super) fn syn_options(input: &mut Input<'_>) -> TcpOptions {
    let bits = input.byte();
    let has = |bit: u8| bits >> bit & 1 == 1;
    let mss = has(0).then(|| input.pick(&[0, 1, 100, 536, 1000, 1460, 0xffff]));
    let window_scale = has(1).then(|| input.pick(&[0, 2, 14, 255]));
    let timestamps = has(3).then(|| Timestamps { val: input.long(), ecr: 0 });
    let user_timeout = has(4).then(|| UserTimeout::from_wire(input.word()));
    let rare = RareOptions { mss, window_scale, sack_permitted: has(2), user_timeout, ..RareOptions::default() };
    TcpOptions { timestamps, ..rare.into() }
}

/// An ICMP error.
pub(super) fn unreachable(input: &mut Input<'_>) -> Unreachable {
    match input.byte() % 10 {
        0 | 1 => Unreachable::Host,
        2 => Unreachable::Network,
        3 => Unreachable::Protocol,
        4 => Unreachable::Port,
        5 => Unreachable::AdministrativelyProhibited,
        6 => Unreachable::TimeExceeded { code: input.byte() % 2 },
        7 => Unreachable::ParameterProblem { code: 0, pointer: 0 },
        _ => Unreachable::PacketTooBig { mtu: u32::from(input.word()) },
    }
}

/// Ranges of offsets that do not touch each other, in order.
#[derive(Debug, Default)]
struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// Takes note of `len` numbers from `start` on; a start in the upper half of the circle lies before offset 0.
    fn insert(&mut self, start: u32, len: u32) {
        let end = start.wrapping_add(len);
        let start = if start < 1 << 31 { start } else { 0 };
        if end >= 1 << 31 || end <= start {
            return;
        }
        let from = self.0.partition_point(|&(_, e)| e < start);
        let upto = self.0.partition_point(|&(s, _)| s <= end);
        let merged = self.0[from..upto].iter().fold((start, end), |(s, e), &(s2, e2)| (s.min(s2), e.max(e2)));
        self.0.splice(from..upto, [merged]);
    }

    /// How much there is from offset 0 on without a gap.
    fn contiguous(&self) -> u32 {
        self.0.first().map_or(0, |&(start, end)| if start == 0 { end } else { 0 })
    }
}
