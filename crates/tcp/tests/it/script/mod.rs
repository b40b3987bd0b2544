//! Packet scripts: one connection under test, and a peer that is the script.
//!
//! A script injects segments, moves time by hand and expects segments. Sequence numbers are relative, as in tcpdump: 0 is the
//! SYN of either side, 1 the first byte of data. Every segment that the connection sends has to be expected: an unexpected one fails the
//! script at its next step or its end, with a report of everything up to then.

mod report;
mod template;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_tcp::{Config, Connection, Disposition, EcnField, Event, Opening, Reason, State, Timer, Transmit};
use holdover_wire::{Flags, Segment, Seq, SeqRange, Timestamps};

use crate::world::stream;
pub(crate) use template::*;

/// When scripts begin: on a tick of every clock in use.
const START: Instant = Instant::from_secs(100);
/// The timestamp clock of the scripted peer at the start of a script; it ticks once a millisecond.
pub(crate) const PEER_CLOCK: u32 = 5_000;
/// The timestamp clock of the connection at the start of a script.
pub(crate) const OUR_CLOCK: u32 = 700_000;

/// [`Config::rfc`] with round numbers and without options: segments of 1000 bytes, a buffer of 10,000, an initial window of 10
/// segments, RFC 5681's congestion control and no SACK. Scripts switch on what they are about.
pub(crate) fn plain() -> Config {
    let mut config = Config::rfc();
    config.mss = 1000;
    config.window_scale = None;
    config.timestamps = None;
    config.sack = false;
    config.receive.buffer_bytes = 10_000;
    config.receive.max_buffer_bytes = 10_000;
    config.congestion.algorithm = holdover_tcp::Algorithm::Reno;
    config
}

/// A connection and the script's side of it.
pub(crate) struct Script {
    pub(crate) connection: Connection,
    now: Instant,
    /// Initial sequence numbers: ours and the peer's.
    iss: Seq,
    irs: Seq,
    outbox: VecDeque<Transmit>,
    events: Vec<Event>,
    trace: String,
    /// Bytes written to and read from the connection so far.
    written: usize,
    read: usize,
    peer: Peer,
}

/// The last segment of the scripted peer, and the last one it received.
#[derive(Clone, Debug, Default)]
struct Peer {
    ack: i64,
    win: u32,
    scale: u8,
    timestamps: bool,
    /// The connection's latest TSval, to be echoed.
    heard: u32,
}

/// Initial sequence numbers in scripts that do not choose them: the first bytes of both streams lie before the wrap.
const ISS: u32 = u32::MAX - 1500;
const IRS: u32 = u32::MAX - 700;

impl Script {
    /// A connection that opens actively; its SYN waits to be expected.
    pub(crate) fn connect(config: Config) -> Self {
        Self::connect_with(config, ISS, IRS)
    }

    pub(crate) fn connect_with(config: Config, iss: u32, irs: u32) -> Self {
        let connection = Connection::connect(START, Arc::new(config), Self::opening(iss));
        Self::new(connection, iss, irs)
    }

    /// As [`Self::connect`], over IPv6.
    pub(crate) fn connect_over_ipv6(config: Config) -> Self {
        let (local, remote) = ("[2001:db8::1]:1000".parse().unwrap(), "[2001:db8::2]:80".parse().unwrap());
        let opening = Opening { local, remote, ..Self::opening(ISS) };
        Self::new(Connection::connect(START, Arc::new(config), opening), ISS, IRS)
    }

    /// A connection that a listener opens for `syn`; its SYN-ACK waits to be expected.
    pub(crate) fn accept(config: Config, syn: Inject) -> Self {
        Self::accept_with(config, ISS, IRS, syn)
    }

    pub(crate) fn accept_with(config: Config, iss: u32, irs: u32, syn: Inject) -> Self {
        Self::accept_marked(config, iss, irs, syn, EcnField::NotEct)
    }

    /// As [`Self::accept`], of a SYN whose packet has this ECN field.
    pub(crate) fn accept_with_field(config: Config, syn: Inject, ecn: EcnField) -> Self {
        Self::accept_marked(config, ISS, IRS, syn, ecn)
    }

    fn accept_marked(config: Config, iss: u32, irs: u32, syn: Inject, ecn: EcnField) -> Self {
        let mut peer = Peer::default();
        let segment = peer.build(START, Seq::new(iss), Seq::new(irs), Seq::new(irs), syn);
        let connection = Connection::accept_with_ecn(START, Arc::new(config), Self::opening(iss), &segment, ecn);
        let mut script = Self::new(connection, iss, irs);
        script.peer = peer;
        script.note('<', &segment, "");
        script
    }

    /// An actively opened connection in ESTABLISHED at 0 ms. The peer's window is 20,000, its MSS 1000, and it agrees to
    /// whatever the connection offers (its window scale is 0).
    pub(crate) fn established(config: Config) -> Self {
        Self::established_with(config, ISS, IRS)
    }

    pub(crate) fn established_with(config: Config, iss: u32, irs: u32) -> Self {
        let mut answer = syn_ack();
        if config.window_scale.is_some() {
            answer = answer.wscale(0);
        }
        if config.sack {
            answer = answer.sack_ok();
        }
        if config.timestamps.is_some() {
            answer = answer.ts(PEER_CLOCK, OUR_CLOCK);
        }
        let mut script = Self::connect_with(config, iss, irs);
        script.expect(our_syn());
        script.inject(answer);
        script.expect(ack(1).reason(Reason::HandshakeAck));
        script.expect_event(Event::Connected);
        script
    }

    /// A connection in `state` at 0 ms: active, except for SYN-RECEIVED, which came from a listener. A FIN that was sent or
    /// has arrived has sequence number 1.
    pub(crate) fn in_state(state: State, config: Config) -> Self {
        match state {
            State::SynSent => {
                let mut script = Self::connect(config);
                script.expect(our_syn());
                return script;
            }
            State::SynReceived => {
                let mut script = Self::accept(config, syn());
                script.expect(our_syn_ack());
                return script;
            }
            _ => {}
        }
        let mut script = Self::established(config);
        let we_close_first = matches!(state, State::FinWait1 | State::FinWait2 | State::Closing | State::TimeWait);
        if we_close_first {
            script.shutdown();
            script.expect(our_fin(1));
        }
        match state {
            State::FinWait2 | State::TimeWait => script.inject(seg().ack(2)),
            State::Closing | State::CloseWait | State::LastAck => {
                script.inject(fin());
                script.expect(ack(2).reason(Reason::FinAck));
            }
            _ => {}
        }
        match state {
            State::TimeWait => {
                script.inject(fin());
                script.expect(ack(2).reason(Reason::FinAck));
            }
            State::LastAck => {
                script.shutdown();
                script.expect(our_fin(1));
            }
            State::Closed => {
                script.connection.abort();
                script.flush();
                script.expect(our_rst_ack(1));
            }
            _ => {}
        }
        script.expect_state(state);
        script.events.clear();
        script
    }

    fn opening(iss: u32) -> Opening {
        Opening {
            local: "10.0.0.1:1000".parse().unwrap(),
            remote: "10.0.0.2:80".parse().unwrap(),
            iss: Seq::new(iss),
            // The clock counts milliseconds from the zero of time.
            timestamp_offset: OUR_CLOCK.wrapping_sub(START.as_millis() as u32),
        }
    }

    fn new(connection: Connection, iss: u32, irs: u32) -> Self {
        let mut script = Self {
            connection,
            now: START,
            iss: Seq::new(iss),
            irs: Seq::new(irs),
            outbox: VecDeque::new(),
            events: Vec::new(),
            trace: String::new(),
            written: 0,
            read: 0,
            peer: Peer::default(),
        };
        script.flush();
        script
    }
}

/// Time and the peer.
impl Script {
    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Milliseconds since the start.
    pub(crate) fn millis(&self) -> u64 {
        self.now.saturating_since(START).as_millis()
    }

    /// SND.NXT, relative.
    pub(crate) fn snd_nxt(&self) -> i64 {
        i64::from(self.connection.snd_nxt() - self.iss)
    }

    /// RCV.NXT, relative.
    pub(crate) fn rcv_nxt(&self) -> i64 {
        i64::from(self.connection.rcv_nxt() - self.irs)
    }

    /// `millis` after the start of the script.
    pub(crate) fn instant(&self, millis: u64) -> Instant {
        START + Duration::from_millis(millis)
    }

    /// Lets time pass until `millis` after the start, in silence: only at the end of it may something be sent.
    #[track_caller]
    pub(crate) fn at(&mut self, millis: u64) -> &mut Self {
        self.at_micros(millis * 1000)
    }

    #[track_caller]
    pub(crate) fn at_micros(&mut self, micros: u64) -> &mut Self {
        self.expect_nothing();
        let target = START + Duration::from_micros(micros);
        assert!(target >= self.now, "time goes forward only");
        for _ in 0..10_000 {
            match self.connection.poll_timeout() {
                Some((at, timer)) if at <= target => {
                    self.now = self.now.max(at);
                    writeln!(self.trace, "{}   {timer:?} runs out", self.clock()).unwrap();
                    self.connection.handle_timeout(self.now);
                    self.flush();
                    if self.now < target {
                        self.expect_nothing();
                    }
                }
                _ => {
                    self.now = target;
                    self.flush();
                    return self;
                }
            }
        }
        self.fail("timers run out for ever");
    }

    /// Injects a segment that has to be accepted.
    #[track_caller]
    pub(crate) fn inject(&mut self, template: Inject) {
        self.inject_as(Disposition::Accepted, template);
    }

    /// Injects a segment that has to end as `disposition`, and be counted so.
    #[track_caller]
    pub(crate) fn inject_as(&mut self, disposition: Disposition, template: Inject) {
        self.expect_nothing();
        let rcv_nxt = self.connection.rcv_nxt();
        let rcv_nxt = if self.connection.state() == State::SynSent { self.irs } else { rcv_nxt };
        let segment = self.peer.build(self.now, self.iss, self.irs, rcv_nxt, template);
        self.inject_segment(disposition, &segment);
    }

    /// Injects a segment that a router has marked (RFC 3168).
    #[track_caller]
    pub(crate) fn inject_marked(&mut self, template: Inject) {
        self.inject_with(EcnField::Ce, template);
    }

    /// Injects a segment whose packet has this ECN field.
    #[track_caller]
    pub(crate) fn inject_with(&mut self, ecn: EcnField, template: Inject) {
        self.inject_with_as(ecn, Disposition::Accepted, template);
    }

    /// As [`Self::inject_as`], of a segment whose packet has this ECN field.
    #[track_caller]
    pub(crate) fn inject_with_as(&mut self, ecn: EcnField, disposition: Disposition, template: Inject) {
        self.expect_nothing();
        let rcv_nxt = self.connection.rcv_nxt();
        let rcv_nxt = if self.connection.state() == State::SynSent { self.irs } else { rcv_nxt };
        let segment = self.peer.build(self.now, self.iss, self.irs, rcv_nxt, template);
        self.note('<', &segment, &format!("{ecn:?}"));
        let found = self.connection.handle_segment_with_ecn(self.now, &segment, ecn);
        assert_eq!(found, disposition);
        self.connection.assert_invariants();
        self.flush();
    }

    /// The ECN fields of segments that were sent and are not expected yet.
    pub(crate) fn fields(&self) -> Vec<EcnField> {
        self.outbox.iter().map(|transmit| transmit.ecn).collect()
    }

    #[track_caller]
    pub(crate) fn inject_segment(&mut self, disposition: Disposition, segment: &Segment) {
        self.note('<', segment, "");
        let before = self.connection.counters().received(disposition);
        let found = self.connection.handle_segment(self.now, segment);
        self.connection.assert_invariants();
        if found != disposition {
            self.fail(&format!("the segment ended as {found}, not as {disposition}"));
        }
        assert_eq!(self.connection.counters().received(disposition), before + 1, "{disposition} is counted");
        self.flush();
    }

    /// The next segment that was sent has to look like this.
    #[track_caller]
    pub(crate) fn expect(&mut self, template: Expect) {
        let Some(transmit) = self.outbox.pop_front() else {
            self.fail(&format!("nothing was sent, where this was expected:\n{}", template.describe()));
        };
        if let Err(what) = self.compare(&template, &transmit) {
            self.fail(&format!("{what}; expected:\n{}", template.describe()));
        }
    }

    /// Full segments from `start` up to `end`, in order.
    #[track_caller]
    pub(crate) fn expect_segments(&mut self, start: i64, end: i64, reason: Reason) {
        for from in (start..end).step_by(1000) {
            self.expect(data(from, (from + 1000).min(end)).reason(reason));
        }
    }

    #[track_caller]
    pub(crate) fn expect_at(&mut self, millis: u64, template: Expect) {
        self.at(millis);
        self.expect(template);
    }

    /// Everything that was sent has been expected.
    #[track_caller]
    pub(crate) fn expect_nothing(&self) {
        if let Some(transmit) = self.outbox.front() {
            let segment = self.relative(&transmit.segment);
            self.fail(&format!("unexpected segment ({}):\n{segment}", transmit.reason));
        }
    }

    /// Takes everything that was sent for expected, and says how many segments that was: for scripts about something else.
    pub(crate) fn forget_sent(&mut self) -> usize {
        self.outbox.drain(..).count()
    }

    /// The reasons of all segments that were sent and not yet expected.
    pub(crate) fn take_reasons(&mut self) -> Vec<Reason> {
        self.outbox.drain(..).map(|transmit| transmit.reason).collect()
    }

    /// The next segment that was sent, to be looked at by the script.
    #[track_caller]
    pub(crate) fn take_sent(&mut self) -> Segment {
        match self.outbox.pop_front() {
            Some(transmit) => transmit.segment,
            None => self.fail("nothing was sent"),
        }
    }

    /// Silence until `millis`, and then.
    #[track_caller]
    pub(crate) fn expect_nothing_until(&mut self, millis: u64) {
        self.at(millis);
        self.expect_nothing();
    }

    #[track_caller]
    pub(crate) fn expect_state(&self, state: State) {
        if self.connection.state() != state {
            self.fail(&format!("the state is {}, not {state}", self.connection.state()));
        }
    }

    /// `timer` runs out `millis` after the start of the script.
    #[track_caller]
    pub(crate) fn expect_timer(&self, timer: Timer, millis: u64) {
        let deadline = self.connection.deadline(timer).map(|at| at.saturating_since(START));
        if deadline != Some(Duration::from_millis(millis)) {
            self.fail(&format!("{timer:?} runs out at {deadline:?}, not at {millis} ms"));
        }
    }

    #[track_caller]
    pub(crate) fn expect_no_timer(&self, timer: Timer) {
        if let Some(at) = self.connection.deadline(timer) {
            self.fail(&format!("{timer:?} runs out at {}", at.saturating_since(START)));
        }
    }

    /// The event has happened since it was last expected.
    #[track_caller]
    pub(crate) fn expect_event(&mut self, event: Event) {
        match self.events.iter().position(|&seen| seen == event) {
            Some(index) => drop(self.events.remove(index)),
            None => self.fail(&format!("no {event:?} among the events {:?}", self.events)),
        }
    }

    #[track_caller]
    pub(crate) fn expect_no_event(&self, event: Event) {
        if self.events.contains(&event) {
            self.fail(&format!("{event:?} happened"));
        }
    }

    /// The congestion window and the slow-start threshold, in segments.
    #[track_caller]
    pub(crate) fn expect_cwnd(&self, cwnd: u32, ssthresh: Option<u32>) {
        let found = (self.connection.cwnd(), self.connection.ssthresh());
        if found != (cwnd, ssthresh) {
            self.fail(&format!("cwnd and ssthresh are {found:?}, not {:?}", (cwnd, ssthresh)));
        }
    }
}

/// The application and the owner.
impl Script {
    /// Writes the next `len` bytes of the stream; all have to be taken.
    #[track_caller]
    pub(crate) fn write(&mut self, len: usize) {
        let taken = self.connection.write(self.now, stream(self.written, len));
        assert_eq!(taken, len, "bytes taken by the send buffer");
        self.written += taken;
        writeln!(self.trace, "{}   write {len}", self.clock()).unwrap();
        self.flush();
    }

    /// Reads everything, which has to be `len` more bytes of the peer's stream.
    #[track_caller]
    pub(crate) fn read(&mut self, len: usize) {
        let mut read = Vec::new();
        while let Some(chunk) = self.connection.read(self.now) {
            read.extend_from_slice(&chunk);
        }
        assert_eq!(read.len(), len, "bytes to read");
        assert_eq!(read, stream(self.read, len), "the peer's stream");
        self.read += len;
        writeln!(self.trace, "{}   read {len}", self.clock()).unwrap();
        self.flush();
    }

    pub(crate) fn shutdown(&mut self) {
        writeln!(self.trace, "{}   shutdown", self.clock()).unwrap();
        self.connection.shutdown_write();
        self.flush();
    }

    pub(crate) fn close(&mut self) {
        writeln!(self.trace, "{}   close", self.clock()).unwrap();
        self.connection.close(self.now);
        self.flush();
    }

    pub(crate) fn abort(&mut self) {
        writeln!(self.trace, "{}   abort", self.clock()).unwrap();
        self.connection.abort();
        self.flush();
    }

    /// Does something to the connection, then lets it send.
    pub(crate) fn steer<T>(&mut self, verb: impl FnOnce(&mut Connection, Instant) -> T) -> T {
        let result = verb(&mut self.connection, self.now);
        self.flush();
        result
    }

    /// Moves everything there is to send into the outbox.
    pub(crate) fn flush(&mut self) {
        for _ in 0..10_000 {
            let Some(transmit) = self.connection.poll_transmit(self.now) else {
                self.connection.assert_invariants();
                while let Some(event) = self.connection.poll_event() {
                    self.events.push(event);
                }
                return;
            };
            self.connection.assert_invariants();
            if let Some(timestamps) = transmit.segment.options.timestamps {
                self.peer.heard = timestamps.val;
            }
            self.note('>', &transmit.segment, transmit.reason.name());
            self.outbox.push_back(transmit);
        }
        self.fail("sends for ever");
    }
}

impl Peer {
    fn build(&mut self, now: Instant, iss: Seq, irs: Seq, rcv_nxt: Seq, template: Inject) -> Segment {
        let is_syn = template.flags.contains(Flags::SYN);
        if let Some(ack) = template.ack {
            self.ack = ack;
        }
        if let Some(win) = template.win {
            self.win = win;
        }
        let mut options = template.options;
        if is_syn {
            self.scale = options.window_scale.unwrap_or(0).min(14);
            self.timestamps = matches!(template.timestamps, Some(Some(_)));
        }
        let seq = template.seq.map_or(rcv_nxt, |seq| irs + seq as u32);
        options.timestamps = match template.timestamps {
            Some(given) => given.map(|(val, ecr)| Timestamps { val, ecr }),
            None => self.timestamps.then(|| Timestamps { val: self.clock(now), ecr: self.heard }),
        };
        let absolute = |&(start, end): &(i64, i64)| SeqRange::new(iss + start as u32, iss + end as u32);
        options.sack = template.sack.iter().map(absolute).collect();
        let acks = template.flags.contains(Flags::ACK);
        let data_position = (seq - irs).wrapping_sub(1).wrapping_add(u32::from(is_syn)) as usize;
        Segment {
            src_port: 80,
            dst_port: 1000,
            seq,
            ack: if acks { iss + self.ack as u32 } else { Seq::default() },
            flags: template.flags,
            window: if is_syn { self.win as u16 } else { (self.win >> self.scale) as u16 },
            urgent: template.urgent,
            options,
            payload: if template.len == 0 { Bytes::new() } else { stream(data_position, template.len) },
        }
    }

    fn clock(&self, now: Instant) -> u32 {
        PEER_CLOCK.wrapping_add(now.saturating_since(START).as_millis() as u32)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.expect_nothing();
        }
    }
}
