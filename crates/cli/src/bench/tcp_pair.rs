//! `tcp-pair`: two endpoints joined in memory, bulk data one way.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_tcp::{Config, Connection, Opening, Profile};
use holdover_wire::{Segment, Seq};

/// Data that costs nothing to clone.
static CHUNK: [u8; 1 << 20] = [0; 1 << 20];

/// Sends `segments` full segments of 1448 bytes from one connection to another with SACK and timestamps, and returns how
/// many were sent.
pub(super) fn run(segments: u64) -> u64 {
    let mut pair = Pair::established();
    let bytes = segments * 1448;
    let mut written = 0;
    while pair.receiver_bytes() < bytes {
        while written < bytes {
            let chunk = Bytes::from_static(&CHUNK[..(bytes - written).min(CHUNK.len() as u64) as usize]);
            let taken = pair.client.write(pair.now, chunk);
            written += taken as u64;
            if taken == 0 {
                break;
            }
        }
        pair.round_trip();
    }
    bytes.div_ceil(u64::from(pair.client.snd_mss()))
}

/// An established connection and its peer.
pub(super) struct Pair {
    now: Instant,
    client: Connection,
    server: Connection,
    wire: Wire,
}

/// Segments in flight, each in a box that is reused, like the simulator's frames.
#[derive(Default)]
struct Wire {
    segments: VecDeque<Box<Segment>>,
    #[expect(clippy::vec_box, reason = "boxes move between both lists, and the segments stay where they are")]
    spare: Vec<Box<Segment>>,
}

impl Wire {
    /// Takes all that a connection has to send; returns the number of segments.
    fn take_from(&mut self, connection: &mut Connection, now: Instant) -> usize {
        let before = self.segments.len();
        loop {
            let mut segment = self.spare.pop().unwrap_or_default();
            if connection.poll_transmit_into(now, &mut segment).is_none() {
                self.spare.push(segment);
                return self.segments.len() - before;
            }
            self.segments.push_back(segment);
        }
    }

    /// Delivers the next segment to a connection.
    fn deliver_to(&mut self, connection: &mut Connection, now: Instant) {
        if let Some(segment) = self.segments.pop_front() {
            connection.handle_segment(now, &segment);
            self.spare.push(segment);
        }
    }
}

impl Pair {
    pub(super) fn established() -> Self {
        let config = Arc::new(Config { mss: 1460, ..Profile::Linux6Cubic.config() });
        let now = Instant::ZERO;
        let opening = |local: &str, remote: &str| Opening {
            local: local.parse().expect("a literal address"),
            remote: remote.parse().expect("a literal address"),
            iss: Seq::new(0),
            timestamp_offset: 0,
        };
        let mut client = Connection::connect(now, Arc::clone(&config), opening("10.0.0.1:1000", "10.0.0.2:80"));
        let syn = client.poll_transmit(now).expect("a SYN").segment;
        let server = Connection::accept(now, config, opening("10.0.0.2:80", "10.0.0.1:1000"), &syn);
        let mut pair = Self { now, client, server, wire: Wire::default() };
        pair.round_trip();
        pair.round_trip();
        pair
    }

    fn receiver_bytes(&self) -> u64 {
        self.server.counters().bytes_received.0
    }

    /// Everything the client has to send arrives, is read and answered, and the answers arrive.
    fn round_trip(&mut self) {
        self.now += Duration::from_millis(1);
        let now = self.now;
        self.client.handle_timeout(now);
        let sent = self.wire.take_from(&mut self.client, now);
        self.now += Duration::from_millis(1);
        let now = self.now;
        let mut answers = 0;
        for _ in 0..sent {
            self.wire.deliver_to(&mut self.server, now);
            while self.server.read(now).is_some() {}
            answers += self.wire.take_from(&mut self.server, now);
        }
        self.server.handle_timeout(now);
        answers += self.wire.take_from(&mut self.server, now);
        for _ in 0..answers {
            self.wire.deliver_to(&mut self.client, now);
        }
    }
}
