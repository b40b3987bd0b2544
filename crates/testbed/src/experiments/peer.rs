//! The scripted peer: a TCP at the level of single packets, whose answers are decided by a script.
//!
//! [`Wire`] is the script's end of one connection. It completes the handshake, records arrivals, and delays the script's packets until
//! their time. The shell calls it like any [`PacketEndpoint`]; it reads no clock, so the same script runs with the kernel in wall-clock
//! time and with the project's TCP in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_wire::{
    Flags, IcmpError, Packet, Payload, SackBlocks, Segment, Seq, SeqRange, TcpOptions, Timestamps, Unreachable,
};

use super::action::LocalAction;
use crate::PacketEndpoint;

pub(super) const SUBJECT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(super) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub(super) const PORT: u16 = 9;
/// The script's initial sequence number.
const ISS: Seq = Seq::new(1_000_000);
/// The sequence number of the script's first byte.
pub const FIRST_BYTE: Seq = Seq::new(1_000_001);
/// The timestamp clock does not start at 0, which would look like no timestamp.
const FIRST_TIMESTAMP: u32 = 5_000;
/// The shift of every window that the script advertises.
const WINDOW_SCALE: u8 = 7;
/// The content of recorded payloads: experiments need only their length.
static ZEROS: [u8; 65_536] = [0; 65_536];

/// A segment that crossed the wire.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The time.
    pub at: Instant,
    /// The segment, with the length of its payload only.
    pub segment: Segment,
    /// Whether it was lost because the wire was cut.
    pub lost: bool,
    /// The number of its bytes that the script's receiver did not have.
    pub new_bytes: u32,
    /// Whether it increased the number that the receiver can acknowledge.
    pub in_order: bool,
}

/// The state of the subject's TCP at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The time.
    pub at: Instant,
    /// The congestion window in segments.
    pub cwnd: u32,
    /// The slow-start threshold in segments; `None` before the first loss.
    pub ssthresh: Option<u32>,
    /// The current retransmission timeout, with backoff.
    pub rto: Duration,
}

/// An event for a script.
#[derive(Debug)]
pub enum Happening<'a> {
    /// A segment arrived, other than a SYN that the wire has answered.
    Segment(&'a Segment),
    /// An alarm set by the script, with its number.
    Alarm(u32),
}

/// Decides the peer's actions.
pub trait Script: Send {
    /// Handles an event on the wire.
    fn hear(&mut self, wire: &mut Wire, happening: Happening<'_>);
}

impl<F: FnMut(&mut Wire, Happening<'_>) + Send> Script for F {
    fn hear(&mut self, wire: &mut Wire, happening: Happening<'_>) {
        self(wire, happening);
    }
}

impl Script for Box<dyn Script> {
    fn hear(&mut self, wire: &mut Wire, happening: Happening<'_>) {
        (**self).hear(wire, happening);
    }
}

/// The script's end of the connection: arrivals, and means to answer.
#[derive(Debug)]
pub struct Wire {
    /// The current time.
    pub now: Instant,
    /// All segments sent by the subject.
    pub seen: Vec<Seen>,
    /// All segments sent by the script, as they reached the subject.
    pub sent: Vec<Seen>,
    /// The requested samples of the subject's state.
    pub samples: Vec<Sample>,
    /// Times recorded by the script.
    pub marks: BTreeMap<&'static str, Instant>,
    /// The delay of the answer to a SYN, and of an ordinary ACK.
    pub rtt: Duration,
    /// Whether the script's data has the PSH flag.
    pub push: bool,
    /// The number of SYNs left unanswered.
    pub ignored_syns: u32,
    /// Whether SACK is offered.
    pub sack: bool,
    /// Whether timestamps are offered.
    pub timestamps: bool,
    /// The advertised window, in bytes.
    pub window: u32,
    /// Whether the subject's packets are lost.
    pub is_cut: bool,
    /// The lost data segments besides, by their number from 1.
    pub losses: BTreeSet<usize>,
    /// The next byte that the script expects.
    pub rcv_nxt: Seq,
    /// The next byte that it sends.
    pub snd_nxt: Seq,
    /// The echoed timestamp: by default that of the latest segment not beyond `rcv_nxt` (RFC 7323 section 4.3).
    pub echo: u32,
    /// When `echo` was received.
    pub echo_at: Instant,
    pub(super) finish_at: Option<Instant>,
    pub(super) actions: Vec<LocalAction>,
    /// Data received beyond `rcv_nxt`, in order, and the range to report first.
    beyond: Vec<SeqRange>,
    latest: Option<Seq>,
    /// The last duplicate, until an ACK has reported it.
    duplicate: Option<SeqRange>,
    data_segments: usize,
    subject_port: u16,
    out: BTreeMap<(Instant, u64), Packet>,
    alarms: BTreeSet<(Instant, u64, u32)>,
    samples_at: BTreeSet<Instant>,
    samples_due: u32,
    count: u64,
}

impl Wire {
    fn new() -> Self {
        Self {
            now: Instant::ZERO,
            seen: Vec::new(),
            sent: Vec::new(),
            samples: Vec::new(),
            marks: BTreeMap::new(),
            rtt: Duration::from_millis(50),
            push: false,
            ignored_syns: 0,
            sack: true,
            timestamps: true,
            window: 1 << 20,
            is_cut: false,
            losses: BTreeSet::new(),
            data_segments: 0,
            rcv_nxt: Seq::default(),
            snd_nxt: FIRST_BYTE,
            echo: 0,
            echo_at: Instant::ZERO,
            finish_at: None,
            actions: Vec::new(),
            beyond: Vec::new(),
            latest: None,
            duplicate: None,
            subject_port: 0,
            out: BTreeMap::new(),
            alarms: BTreeSet::new(),
            samples_at: BTreeSet::new(),
            samples_due: 0,
            count: 0,
        }
    }

    /// Segments with data, retransmissions and lost ones included.
    pub fn data(&self) -> Vec<&Seen> {
        self.seen.iter().filter(|seen| !seen.segment.payload.is_empty()).collect()
    }

    /// The time recorded by the script under `name`.
    pub fn mark(&self, name: &str) -> Option<Instant> {
        self.marks.get(name).copied()
    }

    /// Acknowledges everything below `to`, `after` from now; with these SACK blocks.
    pub fn ack_after(&mut self, after: Duration, to: Seq, sack: &[SeqRange]) {
        self.overtaken_ack_after(after, Duration::ZERO, to, sack);
    }

    /// As [`Self::ack_after`], with a timestamp that is `age` old: newer segments have overtaken it.
    pub fn overtaken_ack_after(&mut self, after: Duration, age: Duration, to: Seq, sack: &[SeqRange]) {
        let mut segment = self.segment(Flags::ACK);
        segment.ack = to;
        segment.options.sack = sack.iter().copied().collect::<SackBlocks>();
        self.send_aged(after, age, segment);
    }

    /// Sends `len` bytes from `back` bytes before the script's next sequence number, `after` from now, with a timestamp that is `age` old.
    /// With `len` 0 and `back` 1 it is a keep-alive or a window probe.
    pub fn repeat_after(&mut self, after: Duration, age: Duration, back: u32, len: usize) {
        let mut segment = self.segment(Flags::ACK);
        segment.seq = self.snd_nxt - back;
        segment.payload = zeros(len);
        self.send_aged(after, age, segment);
    }

    /// Acknowledges received data, a round trip from now, with SACK blocks for gaps and duplicates.
    pub fn acknowledge(&mut self) {
        let to = self.rcv_nxt;
        let duplicate = self.duplicate.take().filter(|_| self.sack);
        let sack: Vec<_> = duplicate.into_iter().chain(self.sack_blocks()).take(3).collect();
        self.ack_after(self.rtt, to, &sack);
    }

    /// As [`Self::ack_after`], echoing `echo` instead of the latest timestamp.
    pub fn ack_echoing(&mut self, after: Duration, to: Seq, echo: u32) {
        let own = core::mem::replace(&mut self.echo, echo);
        self.ack_after(after, to, &[]);
        self.echo = own;
    }

    /// The ranges beyond [`Self::rcv_nxt`], the latest arrival first (RFC 2018 section 4); empty without SACK.
    pub fn sack_blocks(&self) -> Vec<SeqRange> {
        if !self.sack {
            return Vec::new();
        }
        let is_latest = |range: &&SeqRange| self.latest.is_some_and(|latest| range.contains(latest));
        let first = self.beyond.iter().find(is_latest);
        let others = self.beyond.iter().rev().filter(|range| !is_latest(range));
        let most = if self.timestamps { 3 } else { 4 };
        first.into_iter().chain(others).take(most).copied().collect()
    }

    /// The timestamp of a hypothetical segment sent a round trip ago, by the subject's clock of 1 ms: a receiver may extrapolate it, and
    /// the subject takes it for a plain RTT sample.
    pub fn refreshed_echo(&self) -> u32 {
        let since = self.now.saturating_since(self.echo_at) - self.rtt;
        self.echo.wrapping_add(since.as_millis() as u32)
    }

    /// Sends `len` bytes of new data, `after` from now, acknowledging `ack`.
    pub fn write_acking(&mut self, after: Duration, len: usize, ack: Seq) {
        let mut segment = self.segment(if self.push { Flags::ACK | Flags::PSH } else { Flags::ACK });
        segment.ack = ack;
        segment.payload = zeros(len);
        self.snd_nxt += len as u32;
        self.send_after(after, segment);
    }

    /// Sends `len` bytes of new data, `after` from now.
    pub fn write_after(&mut self, after: Duration, len: usize) {
        self.write_acking(after, len, self.rcv_nxt);
    }

    /// Sends the last `len` bytes of the script's data and a FIN, `after` from now, `ahead` bytes beyond the data sent so far.
    pub fn fin_after(&mut self, after: Duration, ahead: u32, len: usize) {
        let mut segment = self.segment(Flags::ACK | Flags::FIN);
        segment.seq = self.snd_nxt + ahead;
        segment.payload = zeros(len);
        self.send_after(after, segment);
    }

    /// Calls the script with [`Happening::Alarm`] of this number.
    pub fn alarm_after(&mut self, after: Duration, number: u32) {
        self.count += 1;
        self.alarms.insert((self.now + after, self.count, number));
    }

    /// Samples the state of the subject's TCP, `after` from now; before the arrival of anything sent at that time.
    pub fn sample_after(&mut self, after: Duration) {
        self.samples_at.insert(self.now + after);
    }

    /// Ends the run `after` from now.
    pub fn finish_after(&mut self, after: Duration) {
        self.finish_at = Some(self.now + after);
    }

    /// Lets the subject's host act on the socket now. Only for kernels.
    pub fn act(&mut self, action: LocalAction) {
        self.actions.push(action);
    }

    /// Sends an ICMP error that quotes `segment` of the subject, `after` from now.
    pub fn unreachable_after(&mut self, after: Duration, kind: Unreachable, segment: &Segment) {
        let quoted = Packet::new(SUBJECT, PEER, segment.clone());
        let error = IcmpError::quoting_packet(kind, &quoted).expect("a segment that was parsed can be written");
        self.enqueue(after, Packet::new(PEER, SUBJECT, error));
    }

    /// The segment of the subject that begins at `seq`, as a router could quote it.
    pub fn quotable(&self, seq: Seq) -> Segment {
        Segment {
            src_port: self.subject_port,
            dst_port: PORT,
            seq,
            ack: self.snd_nxt,
            flags: Flags::ACK,
            payload: zeros(1448),
            ..Segment::default()
        }
    }

    /// A segment of the script, as of now; its timestamp is set when it is sent.
    fn segment(&self, flags: Flags) -> Segment {
        let timestamps = self.timestamps.then_some(Timestamps { val: 0, ecr: self.echo });
        Segment {
            src_port: PORT,
            dst_port: self.subject_port,
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags,
            window: u16::try_from(self.window >> WINDOW_SCALE).unwrap_or(u16::MAX),
            options: TcpOptions { timestamps, ..TcpOptions::default() },
            ..Segment::default()
        }
    }

    fn send_after(&mut self, after: Duration, segment: Segment) {
        self.send_aged(after, Duration::ZERO, segment);
    }

    fn send_aged(&mut self, after: Duration, age: Duration, mut segment: Segment) {
        if let Some(timestamps) = &mut segment.options.timestamps {
            let clock = FIRST_TIMESTAMP + (self.now + after).as_millis() as u32;
            timestamps.val = clock.wrapping_sub(age.as_millis() as u32);
        }
        self.enqueue(after, Packet::new(PEER, SUBJECT, segment));
    }

    fn enqueue(&mut self, after: Duration, packet: Packet) {
        self.count += 1;
        self.out.insert((self.now + after, self.count), packet);
    }

    /// Notes a segment of the subject. Returns whether it is passed to the script.
    fn note(&mut self, segment: &Segment) -> bool {
        let is_syn = segment.flags.contains(Flags::SYN);
        self.data_segments += usize::from(!segment.payload.is_empty());
        let is_chosen = !segment.payload.is_empty() && self.losses.remove(&self.data_segments);
        let lost = self.is_cut || is_chosen || is_syn && self.ignored_syns > 0;
        let mut kept = segment.clone();
        kept.payload = zeros(segment.payload.len());
        let before = self.rcv_nxt;
        let new_bytes = if lost || is_syn { 0 } else { self.receive(segment) };
        self.seen.push(Seen { at: self.now, segment: kept, lost, new_bytes, in_order: self.rcv_nxt != before });
        if is_syn {
            if lost {
                self.ignored_syns = self.ignored_syns.saturating_sub(1);
            } else {
                self.answer_syn(segment);
            }
        }
        !is_syn && !is_chosen
    }

    fn answer_syn(&mut self, syn: &Segment) {
        self.subject_port = syn.src_port;
        self.rcv_nxt = syn.seq + 1;
        self.take_timestamp(syn);
        let mut answer = self.segment(Flags::SYN | Flags::ACK);
        answer.seq = ISS;
        answer.options.mss = Some(1460);
        answer.options.window_scale = Some(WINDOW_SCALE);
        answer.options.sack_permitted = self.sack;
        answer.window = u16::try_from(self.window).unwrap_or(u16::MAX);
        self.send_after(self.rtt, answer);
    }

    fn take_timestamp(&mut self, segment: &Segment) {
        if let Some(timestamps) = segment.options.timestamps {
            self.echo = timestamps.val;
            self.echo_at = self.now;
        }
    }

    /// Accepts the data of a segment that arrives, possibly late. Returns the number of new bytes.
    pub fn receive(&mut self, segment: &Segment) -> u32 {
        if segment.payload.is_empty() {
            return 0;
        }
        let range = SeqRange::new(segment.seq.max(self.rcv_nxt), segment.seq + segment.payload.len() as u32);
        if range.end.le(self.rcv_nxt) {
            // A segment before the window has its timestamp ignored (RFC 7323 section 5.3), and is reported (RFC 2883).
            self.duplicate = Some(SeqRange::new(segment.seq, range.end));
            return 0;
        }
        if segment.seq.le(self.rcv_nxt) {
            self.take_timestamp(segment);
        }
        self.latest = Some(segment.seq);
        let held = |wire: &Self| wire.beyond.iter().map(|range| range.len()).sum::<u32>();
        let before = (self.rcv_nxt, held(self));
        let touches = |other: &SeqRange| other.start.le(range.end) && range.start.le(other.end);
        let merged = self
            .beyond
            .iter()
            .filter(|other| touches(other))
            .fold(range, |all, other| SeqRange::new(all.start.min(other.start), all.end.max(other.end)));
        self.beyond.retain(|other| !touches(other));
        let place = self.beyond.iter().position(|other| merged.start.lt(other.start)).unwrap_or(self.beyond.len());
        self.beyond.insert(place, merged);
        if self.beyond[0].start == self.rcv_nxt {
            self.rcv_nxt = self.beyond.remove(0).end;
        }
        (self.rcv_nxt - before.0) + held(self) - before.1
    }

    /// Whether a sample is due; true once for each.
    pub(super) fn take_due_sample(&mut self) -> bool {
        let is_due = self.samples_due > 0;
        self.samples_due -= u32::from(is_due);
        is_due
    }
}

/// The script as an endpoint of the shell.
pub(super) struct Peer<S> {
    pub(super) wire: Wire,
    script: S,
}

impl<S: Script> Peer<S> {
    pub(super) fn new(script: S) -> Self {
        Self { wire: Wire::new(), script }
    }
}

impl<S: Script> PacketEndpoint for Peer<S> {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        self.wire.now = now;
        if let Payload::Tcp(segment) = &packet.payload
            && self.wire.note(segment)
        {
            self.script.hear(&mut self.wire, Happening::Segment(segment));
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        let packet = self.wire.out.first_entry().filter(|entry| entry.key().0 <= now)?.remove();
        if let Payload::Tcp(segment) = &packet.payload {
            self.wire.sent.push(Seen { at: now, segment: segment.clone(), lost: false, new_bytes: 0, in_order: false });
        }
        Some(packet)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let wire = &self.wire;
        let packet = wire.out.first_key_value().map(|((at, _), _)| *at);
        let alarm = wire.alarms.first().map(|(at, _, _)| *at);
        let sample = wire.samples_at.first().copied();
        packet.into_iter().chain(alarm).chain(sample).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.wire.now = now;
        while self.wire.samples_at.first().is_some_and(|at| *at <= now) {
            self.wire.samples_at.pop_first();
            self.wire.samples_due += 1;
        }
        while self.wire.alarms.first().is_some_and(|(at, _, _)| *at <= now) {
            if let Some((_, _, number)) = self.wire.alarms.pop_first() {
                self.script.hear(&mut self.wire, Happening::Alarm(number));
            }
        }
    }
}

/// `len` zero bytes, at most as many as a packet can hold.
fn zeros(len: usize) -> Bytes {
    Bytes::from_static(&ZEROS[..len.min(ZEROS.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(start: u32, len: usize) -> Segment {
        Segment { seq: Seq::new(start), payload: zeros(len), flags: Flags::ACK, ..Segment::default() }
    }

    #[test]
    fn arrivals_fill_gaps_and_are_counted_once() {
        let mut wire = Wire::new();
        wire.rcv_nxt = Seq::new(100);
        assert_eq!(wire.receive(&data(100, 50)), 50);
        assert_eq!(wire.receive(&data(200, 50)), 50);
        assert_eq!(wire.receive(&data(300, 50)), 50);
        let range = |start, end| SeqRange::new(Seq::new(start), Seq::new(end));
        assert_eq!(wire.sack_blocks(), [range(300, 350), range(200, 250)]);
        assert_eq!(wire.receive(&data(180, 100)), 50);
        assert_eq!(wire.sack_blocks(), [range(180, 280), range(300, 350)]);
        assert_eq!(wire.receive(&data(90, 100)), 30);
        assert_eq!(wire.rcv_nxt, Seq::new(280));
        assert_eq!(wire.receive(&data(100, 50)), 0);
        assert_eq!(wire.receive(&data(250, 100)), 20);
        assert_eq!((wire.rcv_nxt, wire.sack_blocks()), (Seq::new(350), vec![]));
    }
}
