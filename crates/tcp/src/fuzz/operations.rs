//! Operations against a reference model: two connections, two byte streams, and a network controlled by the input.

use std::collections::VecDeque;
use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Segment, Seq};

use super::input::{Input, lift_verbs};
use super::{check, drain, expire, stream, stream_byte};
use crate::connection::{Connection, Opening};
use crate::ecn::EcnField;
use crate::state::State;

/// Segments that one direction of the network holds; more are lost.
const MOST_IN_FLIGHT: usize = 512;
/// The most bytes that both sides together write: a run has to end.
const MOST_WRITTEN: u64 = 100_000;
/// One way, once the network is sound.
const DELAY: Duration = Duration::from_millis(10);

/// One end, its application, and the model of the data that it has to read.
struct End {
    connection: Connection,
    written: u64,
    read: u64,
    closing: bool,
    /// Its segments in the network.
    sent: VecDeque<Segment>,
    /// When the network became sound: bytes sent again, and those left to be acknowledged.
    again_before: u64,
    left_before: u64,
}

struct World {
    now: Instant,
    ends: [End; 2],
}

/// Runs the program in `data`: application calls, the owner's verbs, timeouts, and segments that are delivered, dropped,
/// duplicated or reordered. At its end the network becomes sound, the verbs are lifted and both applications read
/// everything and close: then both streams have to arrive exact, and both connections have to end.
pub fn operations(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    while !input.is_empty() {
        world.operate(&mut input);
    }
    world.finish();
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let now = Instant::from_secs(1);
        let configs = [Arc::new(input.config(true)), Arc::new(input.config(true))];
        let addresses = [([10, 0, 0, 1], 1000).into(), ([10, 0, 0, 2], 80).into()];
        let iss = [Seq::new(input.long()), Seq::new(input.long())];
        let opening = |n: usize| Opening {
            local: addresses[n],
            remote: addresses[1 - n],
            iss: iss[n],
            timestamp_offset: iss[1 - n].value(),
        };
        let crossing = input.flag();
        let mut client = End::new(Connection::connect(now, Arc::clone(&configs[0]), opening(0)));
        client.collect(now);
        let server = match client.sent.front() {
            Some(syn) if !crossing => Connection::accept(now, Arc::clone(&configs[1]), opening(1), syn),
            _ => Connection::connect(now, Arc::clone(&configs[1]), opening(1)),
        };
        let mut server = End::new(server);
        server.collect(now);
        Self { now, ends: [client, server] }
    }

    fn operate(&mut self, input: &mut Input<'_>) {
        let op = input.byte();
        let side = usize::from(op >> 7);
        let now = self.now;
        let end = &mut self.ends[side];
        match op & 0x7f {
            0..16 => end.write(now, input.len()),
            16..24 => end.read(now, usize::from(input.byte())),
            24..28 => end.read(now, usize::MAX),
            28 => end.close(),
            29..40 => input.verb(now, &mut end.connection),
            40..72 => self.deliver(side, usize::from(op & 0x7f) - 40),
            72..76 => {
                end.sent.pop_front();
            }
            76..78 => end.sent.clear(),
            78..84 => end.duplicate(usize::from(op & 0x7f) - 78),
            84..100 => self.expire_next(),
            100..108 => self.advance(input.span()),
            _ => self.deliver_all(),
        }
        for end in &mut self.ends {
            check(&end.connection);
            end.collect(self.now);
        }
    }

    /// Delivers the segment at `index` of those that `side` has sent.
    fn deliver(&mut self, side: usize, index: usize) {
        let index = index.min(self.ends[side].sent.len().saturating_sub(1));
        let Some(segment) = self.ends[side].sent.remove(index) else { return };
        self.arrive(1 - side, &segment);
    }

    fn arrive(&mut self, side: usize, segment: &Segment) {
        let end = &mut self.ends[side];
        if end.connection.state() == State::Closed {
            // An endpoint's answer to a segment without a connection (RFC 9293 section 3.10.7.1).
            if segment.flags & (Flags::ACK | Flags::RST) == Flags::ACK {
                end.sent.push_back(Segment { seq: segment.ack, flags: Flags::RST, ..Segment::default() });
            }
            return;
        }
        end.connection.handle_segment_both_ways(self.now, segment, EcnField::NotEct);
        check(&end.connection);
        end.collect(self.now);
    }

    fn deliver_all(&mut self) {
        // Their answers are delivered too, within limits: two hosts may answer each other for ever.
        for _ in 0..64 {
            for side in [0, 1] {
                for _ in 0..self.ends[side].sent.len() {
                    self.deliver(side, 0);
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.ends.iter().filter_map(|end| end.connection.poll_timeout()).map(|(at, _)| at).min()
    }

    fn expire_next(&mut self) {
        if let Some(at) = self.next_deadline() {
            self.advance(at.saturating_since(self.now));
        }
    }

    fn advance(&mut self, span: Duration) {
        self.now += span;
        for end in &mut self.ends {
            end.expire(self.now);
        }
    }

    /// Everybody does what he should.
    fn finish(&mut self) {
        for end in &mut self.ends {
            lift_verbs(self.now, &mut end.connection);
            end.collect(self.now);
        }
        for end in &mut self.ends {
            end.enter_calm();
        }
        // Per segment a few steps; per run a few backed-off timers.
        for _ in 0..20_000 {
            for end in &mut self.ends {
                end.read(self.now, usize::MAX);
                end.close();
                end.collect(self.now);
            }
            if self.ends.iter().all(End::is_over) {
                return self.judge();
            }
            // A round trip takes its time, or the longest-running timer its own.
            let arrival = self.ends.iter().any(|end| !end.sent.is_empty()).then_some(self.now + DELAY);
            let Some(next) = [arrival, self.next_deadline()].into_iter().flatten().min() else { break };
            let arrived = [self.ends[0].sent.len(), self.ends[1].sent.len()];
            let is_arrival = arrival == Some(next);
            self.advance(next.saturating_since(self.now));
            if is_arrival {
                for side in [0, 1] {
                    (0..arrived[side]).for_each(|_| self.deliver(side, 0));
                }
            }
        }
        panic!("not finished at {}: {}; {}", self.now, self.ends[0], self.ends[1]);
    }

    fn judge(&self) {
        let [client, server] = &self.ends;
        assert_eq!(client.written, server.read, "bytes from the client: {client}; {server}");
        assert_eq!(server.written, client.read, "bytes from the server: {client}; {server}");
        for end in &self.ends {
            end.judge_efficiency();
        }
    }
}

impl End {
    fn new(connection: Connection) -> Self {
        Self { connection, written: 0, read: 0, closing: false, sent: VecDeque::new(), again_before: 0, left_before: 0 }
    }

    fn write(&mut self, now: Instant, len: usize) {
        let room = (MOST_WRITTEN.saturating_sub(self.written) as usize).min(len);
        let taken = self.connection.write(now, stream(self.written, room));
        assert!(taken <= room);
        self.written += taken as u64;
        self.collect(now);
    }

    fn read(&mut self, now: Instant, chunks: usize) {
        for _ in 0..chunks {
            let Some(chunk) = self.connection.read(now) else { break };
            for byte in chunk {
                assert_eq!(byte, stream_byte(self.read), "byte {} of what was read", self.read);
                self.read += 1;
            }
        }
        self.collect(now);
    }

    /// An unanswered connection ends at once if nothing was written; one with written data does not.
    fn close(&mut self) {
        if self.connection.state() >= State::SynReceived || self.written > 0 {
            self.connection.shutdown_write();
            self.closing = true;
        }
    }

    fn duplicate(&mut self, index: usize) {
        if let Some(segment) = self.sent.get(index).cloned() {
            self.sent.push_back(segment);
        }
    }

    fn expire(&mut self, now: Instant) {
        let sent = &mut self.sent;
        expire(&mut self.connection, now, |transmit| sent.push_back(transmit.segment));
        self.limit();
    }

    fn collect(&mut self, now: Instant) {
        self.sent.extend(drain(&mut self.connection, now).into_iter().map(|transmit| transmit.segment));
        self.limit();
    }

    fn limit(&mut self) {
        while self.sent.len() > MOST_IN_FLIGHT {
            self.sent.pop_front();
        }
    }

    fn again(&self) -> u64 {
        self.connection.counters().bytes_retransmitted.0
    }

    fn enter_calm(&mut self) {
        self.again_before = self.again();
        self.left_before = self.connection.send_queue_len() as u64;
    }

    /// On a sound network each remaining byte is retransmitted at most twice on average: once if it was lost before, and once more if it
    /// had arrived and looked lost. If duplicates of needless retransmissions may begin further ones, there is no such bound.
    fn judge_efficiency(&self) {
        let most = 2 * self.left_before + 8 * u64::from(self.connection.snd_mss());
        let again = self.again() - self.again_before;
        let bounded = self.connection.config().recovery.bar_after_timeout;
        assert!(!bounded || again <= most, "{again} bytes sent again in calm, {most} at most: {self}");
    }

    fn is_over(&self) -> bool {
        matches!(self.connection.state(), State::Closed | State::TimeWait)
            && self.connection.readable_len() == 0
            && self.closing
    }
}

impl core::fmt::Display for End {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let c = &self.connection;
        write!(
            f,
            "{} {:?} with {} written, {} read, {} unacknowledged, window {}, cwnd {}, next {:?}",
            c.state(),
            c.error(),
            self.written,
            self.read,
            c.unacked(),
            c.snd_wnd(),
            c.cwnd(),
            c.poll_timeout()
        )
    }
}
