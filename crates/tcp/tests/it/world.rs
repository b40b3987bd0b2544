//! Two connections joined by a pipe in virtual time, with everything a path can do to packets.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant, Rng};
use holdover_tcp::{Config, Connection, Event, Identity, State, Transmit};
use holdover_wire::{Flags, Segment, Seq};

/// What the path does to one direction.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) delay: Duration,
    /// Time to transmit one full segment; zero for an infinitely fast line.
    pub(crate) per_segment: Duration,
    pub(crate) queue_limit: usize,
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    /// How much later a reordered segment is.
    pub(crate) reorder_by: Duration,
    /// Segments sent in these windows vanish.
    pub(crate) outages: Vec<(Instant, Instant)>,
    pub(crate) busy_until: Instant,
}

impl Path {
    pub(crate) fn clean(delay: Duration) -> Self {
        Self {
            delay,
            per_segment: Duration::ZERO,
            queue_limit: usize::MAX,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Duration::from_millis(20),
            outages: Vec::new(),
            busy_until: Instant::ZERO,
        }
    }
}

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// One end: its connection, what it has to write, and what it has read.
pub(crate) struct Host {
    pub(crate) connection: Option<Connection>,
    config: Arc<Config>,
    pub(crate) to_write: usize,
    pub(crate) written: usize,
    pub(crate) read: Vec<u8>,
    pub(crate) read_len: usize,
    pub(crate) keep: bool,
    /// Whether it reads as soon as it can.
    pub(crate) reads: bool,
    pub(crate) closes: bool,
    closed: bool,
    pub(crate) peer_closed: bool,
    pub(crate) events: Vec<Event>,
}

impl Host {
    fn new(config: Config) -> Self {
        Self {
            connection: None,
            config: Arc::new(config),
            to_write: 0,
            written: 0,
            read: Vec::new(),
            read_len: 0,
            keep: true,
            reads: true,
            closes: true,
            closed: false,
            peer_closed: false,
            events: Vec::new(),
        }
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("the handshake has begun")
    }
}

/// A segment as it left a host.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) at: Instant,
    pub(crate) from: Side,
    pub(crate) transmit: Transmit,
}

/// The two hosts and the path between them.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) client: Host,
    pub(crate) server: Host,
    pub(crate) forward: Path,
    pub(crate) backward: Path,
    pub(crate) rng: Rng,
    in_flight: BTreeMap<(Instant, u64), (Side, Segment)>,
    sequence: u64,
    pub(crate) steps: u64,
    pub(crate) step_cap: u64,
    pub(crate) log: Option<Vec<Logged>>,
}

/// The byte at `position` of every stream in these tests.
pub(crate) fn stream_byte(position: usize) -> u8 {
    ((position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

pub(crate) fn stream(from: usize, len: usize) -> Bytes {
    (from..from + len).map(stream_byte).collect::<Vec<_>>().into()
}

impl World {
    pub(crate) fn new(client: Config, server: Config, path: Path, seed: u64) -> Self {
        let mut world = Self {
            now: Instant::ZERO,
            client: Host::new(client),
            server: Host::new(server),
            forward: path.clone(),
            backward: path,
            rng: Rng::new(seed),
            in_flight: BTreeMap::new(),
            sequence: 0,
            steps: 0,
            step_cap: 2_000_000,
            log: None,
        };
        let identity = Identity {
            local: "10.0.0.1:1000".parse().unwrap(),
            remote: "10.0.0.2:80".parse().unwrap(),
            iss: Seq::new(world.rng.next_u32()),
            timestamp_offset: world.rng.next_u32(),
        };
        let config = Arc::clone(&world.client.config);
        world.client.connection = Some(Connection::connect(world.now, config, identity));
        world
    }

    pub(crate) fn host(&mut self, side: Side) -> &mut Host {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// Lets things happen until `done`, and says whether it came to that before `deadline`.
    ///
    /// # Panics
    ///
    /// If more than `step_cap` steps are taken: somebody goes round in circles.
    pub(crate) fn run_until(&mut self, deadline: Instant, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        loop {
            self.work(Side::Client);
            self.work(Side::Server);
            if done(self) {
                return true;
            }
            let Some(next) = self.next_event() else { return false };
            if next > deadline {
                self.now = deadline;
                return false;
            }
            self.now = self.now.max(next);
            self.steps += 1;
            assert!(self.steps < self.step_cap, "livelock at {:?}", self.now);
            self.deliver();
            for side in [Side::Client, Side::Server] {
                let now = self.now;
                if let Some(connection) = &mut self.host(side).connection {
                    connection.handle_timeout(now);
                }
            }
        }
    }

    /// Lets things happen until `at`.
    pub(crate) fn run_to(&mut self, at: Instant) {
        self.run_until(at, |_| false);
        self.now = at;
    }

    fn next_event(&mut self) -> Option<Instant> {
        let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
        let deadline = |host: &Host| host.connection.as_ref().and_then(|c| c.poll_timeout()).map(|(at, _)| at);
        [arrival, deadline(&self.client), deadline(&self.server)].into_iter().flatten().min()
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (to, segment) = entry.remove();
            self.arrive(to, &segment);
            self.work(to);
        }
    }

    pub(crate) fn arrive(&mut self, to: Side, segment: &Segment) {
        let now = self.now;
        let is_syn = segment.flags & (Flags::SYN | Flags::ACK | Flags::RST) == Flags::SYN;
        let iss = Seq::new(self.rng.next_u32());
        let offset = self.rng.next_u32();
        let host = self.host(to);
        if let Some(connection) = &mut host.connection {
            connection.handle_segment(now, segment);
            connection.assert_invariants();
        } else if to == Side::Server && is_syn {
            let identity = Identity {
                local: "10.0.0.2:80".parse().unwrap(),
                remote: "10.0.0.1:1000".parse().unwrap(),
                iss,
                timestamp_offset: offset,
            };
            host.connection = Some(Connection::accept(now, Arc::clone(&host.config), identity, segment));
        }
    }

    /// The application's turn, then everything there is to send.
    pub(crate) fn work(&mut self, side: Side) {
        let now = self.now;
        let host = self.host(side);
        if host.connection.is_none() {
            return;
        }
        host.apply(now);
        while let Some(transmit) = self.host(side).connection().poll_transmit(now) {
            self.host(side).connection().assert_invariants();
            if let Some(log) = &mut self.log {
                log.push(Logged { at: now, from: side, transmit: transmit.clone() });
            }
            self.send(side, transmit.segment);
        }
        let host = self.host(side);
        while let Some(event) = host.connection().poll_event() {
            host.peer_closed |= event == Event::PeerClosed;
            host.events.push(event);
        }
    }

    fn send(&mut self, from: Side, segment: Segment) {
        let now = self.now;
        let path = if from == Side::Client { &mut self.forward } else { &mut self.backward };
        let (loss, duplicate, reorder) =
            (self.rng.next_f64() < path.loss, self.rng.next_f64() < path.duplicate, self.rng.next_f64() < path.reorder);
        let down = path.outages.iter().any(|&(start, end)| start <= now && now < end);
        if loss || down {
            return;
        }
        let waiting = path.busy_until.saturating_since(now);
        if !path.per_segment.is_zero() && waiting.as_nanos() / path.per_segment.as_nanos() >= path.queue_limit as u64 {
            return;
        }
        let share = (segment.wire_len() as u64 * 1000 / 1500).max(1);
        path.busy_until = path.busy_until.max(now) + path.per_segment * share / 1000;
        let mut at = path.busy_until + path.delay;
        if reorder {
            at += path.reorder_by;
        }
        self.sequence += 1;
        let to = from.other();
        if duplicate {
            self.in_flight.insert((at + Duration::from_micros(10), self.sequence << 1 | 1), (to, segment.clone()));
        }
        self.in_flight.insert((at, self.sequence << 1), (to, segment));
    }

    /// Both sides have written, read and closed everything.
    pub(crate) fn is_finished(&mut self) -> bool {
        let over = |host: &Host| {
            host.connection.as_ref().is_some_and(|c| matches!(c.state(), State::Closed | State::TimeWait))
        };
        over(&self.client) && over(&self.server)
    }

    /// Panics unless both streams arrived whole.
    pub(crate) fn assert_streams_exact(&self) {
        for (from, to, name) in [(&self.client, &self.server, "client"), (&self.server, &self.client, "server")] {
            assert_eq!(to.read_len, from.to_write, "bytes from the {name}; its end: {:?}, the other's: {:?}",
                from.connection.as_ref().map(|c| (c.state(), c.error())),
                to.connection.as_ref().map(|c| (c.state(), c.error())));
            if to.keep {
                assert!(to.read.iter().enumerate().all(|(n, &b)| b == stream_byte(n)), "what the {name} sent");
            }
        }
    }
}

impl Host {
    fn apply(&mut self, now: Instant) {
        let Some(connection) = &mut self.connection else { return };
        while self.written < self.to_write {
            let len = (self.to_write - self.written).min(16 * 1024).min(connection.write_room());
            if len == 0 {
                break;
            }
            let taken = connection.write(now, stream(self.written, len));
            self.written += taken;
            if taken == 0 {
                break;
            }
        }
        if self.closes && !self.closed && self.written == self.to_write && connection.state() >= State::Established {
            connection.shutdown_write();
            self.closed = true;
        }
        while self.reads
            && let Some(chunk) = connection.read(now)
        {
            self.read_len += chunk.len();
            if self.keep {
                self.read.extend_from_slice(&chunk);
            }
        }
    }
}
