//! Two connections joined by a pipe in virtual time, with all kinds of faults of a path.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant, Rng};
use holdover_tcp::{Config, Connection, EcnField, Event, Opening, State, Transmit};
use holdover_wire::{AccurateEcn, Flags, Packet, Payload, Segment, Seq, SeqRange};

use crate::ledger::Ledger;
use crate::plan::{Action, Verb};
use crate::witness::Witness;

/// The faults of the path in one direction.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) delay: Duration,
    /// Time to transmit one full segment; zero for an infinitely fast line.
    pub(crate) per_segment: Duration,
    pub(crate) queue_limit: usize,
    /// From this time on the queue is unlimited.
    pub(crate) queue_unlimited_from: Instant,
    pub(crate) loss: f64,
    /// Further losses, in bursts.
    pub(crate) bursts: Option<Bursts>,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    /// How much later a reordered segment is.
    pub(crate) reorder_by: Duration,
    /// At most this time is added to each segment's delay.
    pub(crate) jitter: Duration,
    /// One bit of the packet is flipped in transit.
    pub(crate) corrupt: f64,
    /// A field of the header arrives with another value, which no checksum detects.
    pub(crate) mangle: f64,
    /// Routers mark instead of dropping: at random, and above this number of segments in the queue.
    pub(crate) mark: f64,
    pub(crate) mark_above: usize,
    /// The treatment of ECN by a device on the path.
    pub(crate) ecn: EcnDevice,
    /// Segments sent in these periods are lost.
    pub(crate) outages: Vec<(Instant, Instant)>,
    /// An outage also loses the segments in the queue and in flight.
    pub(crate) outages_empty: bool,
    /// From this time on nothing is lost, duplicated, reordered or damaged.
    pub(crate) sound_from: Instant,
    pub(crate) busy_until: Instant,
}

impl Path {
    pub(crate) fn clean(delay: Duration) -> Self {
        Self {
            delay,
            per_segment: Duration::ZERO,
            queue_limit: usize::MAX,
            queue_unlimited_from: Instant::FAR_FUTURE,
            loss: 0.0,
            bursts: None,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Duration::from_millis(20),
            jitter: Duration::ZERO,
            corrupt: 0.0,
            mangle: 0.0,
            mark: 0.0,
            mark_above: usize::MAX,
            ecn: EcnDevice::Transparent,
            outages: Vec::new(),
            outages_empty: false,
            sound_from: Instant::FAR_FUTURE,
            busy_until: Instant::ZERO,
        }
    }
}

/// The Gilbert-Elliott channel: every segment in the bad state is lost with the probability `loss_in_bad`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bursts {
    good_to_bad: f64,
    bad_to_good: f64,
    loss_in_bad: f64,
    is_bad: bool,
}

impl Bursts {
    pub(crate) const fn new(good_to_bad: f64, bad_to_good: f64, loss_in_bad: f64) -> Self {
        Self { good_to_bad, bad_to_good, loss_in_bad, is_bad: false }
    }

    /// Whether the next segment is lost; the state may change after it.
    fn loses(&mut self, rng: &mut Rng) -> bool {
        let lost = self.is_bad && rng.next_f64() < self.loss_in_bad;
        let leaves = if self.is_bad { self.bad_to_good } else { self.good_to_bad };
        self.is_bad ^= rng.next_f64() < leaves;
        lost
    }
}

/// The treatment of ECN by a device on the path, in every packet of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EcnDevice {
    Transparent,
    /// The ECN field is cleared, as with the rest of the traffic class.
    ClearsField,
    /// The ECN field becomes CE, whatever it was.
    MarksAll,
    /// AE, a reserved bit once, is cleared.
    ClearsAe,
    /// AE, CWR and ECE are cleared.
    ClearsFlags,
    /// As before, on SYNs only.
    ClearsFlagsOfSyns,
    /// SYNs that ask for accurate feedback are dropped.
    DropsSyns,
    /// Options of Accurate ECN are taken out.
    StripsOption,
    /// Packets with an option of Accurate ECN are dropped, except SYN-ACKs.
    DropsOption,
    /// The counters of the option are overwritten by zeros.
    ZeroesOption,
}

impl EcnDevice {
    pub(crate) const ALL: [Self; 10] = [
        Self::Transparent,
        Self::ClearsField,
        Self::MarksAll,
        Self::ClearsAe,
        Self::ClearsFlags,
        Self::ClearsFlagsOfSyns,
        Self::DropsSyns,
        Self::StripsOption,
        Self::DropsOption,
        Self::ZeroesOption,
    ];

    /// Treats a packet; returns whether it passes.
    fn treat(self, segment: &mut Segment, ecn: &mut EcnField) -> bool {
        let ace = Flags::AE | Flags::CWR | Flags::ECE;
        let is_syn = segment.flags.contains(Flags::SYN);
        match self {
            Self::Transparent => {}
            Self::ClearsField => *ecn = EcnField::NotEct,
            Self::MarksAll => *ecn = EcnField::Ce,
            Self::ClearsAe => segment.flags -= Flags::AE,
            Self::ClearsFlags => segment.flags -= ace,
            Self::ClearsFlagsOfSyns if is_syn => segment.flags -= ace,
            Self::DropsSyns => return !(is_syn && segment.flags.contains(Flags::AE)),
            Self::ClearsFlagsOfSyns => {}
            Self::StripsOption => segment.options.accurate_ecn = None,
            Self::DropsOption => return is_syn || segment.options.accurate_ecn.is_none(),
            Self::ZeroesOption => {
                if let Some(option) = &mut segment.options.accurate_ecn {
                    *option = AccurateEcn::with(option.order(), option.len(), |_| 0);
                }
            }
        }
        true
    }
}

/// One of the two sides.
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

/// One end: its connection, the data to write, and the data read.
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
    /// Once both streams are over, it closes its reading side too.
    pub(crate) leaves: bool,
    pub(crate) peer_closed: bool,
    pub(crate) events: Vec<Event>,
    /// The actions of its application and its owner, with their times.
    pub(crate) script: VecDeque<(Instant, Action)>,
    /// Its owner has used a verb since the last check.
    pub(crate) steered: bool,
    /// Its owner holds the ACK point.
    pub(crate) holds_ack_point: bool,
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
            leaves: false,
            peer_closed: false,
            events: Vec::new(),
            script: VecDeque::new(),
            steered: false,
            holds_ack_point: false,
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
    in_flight: BTreeMap<(Instant, u64), (Side, Segment, EcnField)>,
    sequence: u64,
    pub(crate) steps: u64,
    pub(crate) step_cap: u64,
    pub(crate) log: Option<Vec<Logged>>,
    /// Checks all segments sent and received, if there is one.
    pub(crate) witness: Option<Witness>,
    /// Accounts for permitted retransmissions, if there is one.
    pub(crate) ledger: Option<Ledger>,
    /// Rounds at the same time, without an arrival.
    rounds_at_now: u32,
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
            witness: None,
            ledger: None,
            rounds_at_now: 0,
        };
        let opening = Opening {
            local: "10.0.0.1:1000".parse().unwrap(),
            remote: "10.0.0.2:80".parse().unwrap(),
            iss: Seq::new(world.rng.next_u32()),
            timestamp_offset: world.rng.next_u32(),
        };
        let config = Arc::clone(&world.client.config);
        world.client.connection = Some(Connection::connect(world.now, config, opening));
        world
    }

    /// The server opens the connection too, before the client's SYN arrives.
    pub(crate) fn open_from_both_sides(&mut self) {
        let opening = self.server_opening();
        self.server.connection = Some(Connection::connect(self.now, Arc::clone(&self.server.config), opening));
    }

    fn server_opening(&mut self) -> Opening {
        Opening {
            local: "10.0.0.2:80".parse().unwrap(),
            remote: "10.0.0.1:1000".parse().unwrap(),
            iss: Seq::new(self.rng.next_u32()),
            timestamp_offset: self.rng.next_u32(),
        }
    }

    pub(crate) fn host(&mut self, side: Side) -> &mut Host {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    pub(crate) fn side(&self, side: Side) -> &Host {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
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
            self.rounds_at_now = if next > self.now { 0 } else { self.rounds_at_now + 1 };
            assert!(self.rounds_at_now < 64, "a deadline stays in the past at {:?}", self.now);
            self.now = self.now.max(next);
            self.steps += 1;
            assert!(self.steps < self.step_cap, "livelock at {:?}", self.now);
            self.deliver();
            for side in [Side::Client, Side::Server] {
                let now = self.now;
                if let Some(connection) = &mut self.host(side).connection {
                    connection.handle_timeout(now);
                    connection.assert_invariants();
                }
            }
        }
    }

    fn next_event(&mut self) -> Option<Instant> {
        let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
        let deadline = |host: &Host| host.connection.as_ref().and_then(|c| c.poll_timeout()).map(|(at, _)| at);
        let script = |host: &Host| host.script.front().map(|(at, _)| *at).filter(|_| host.connection.is_some());
        let hosts = [&self.client, &self.server];
        hosts.iter().flat_map(|host| [deadline(host), script(host)]).chain([arrival]).flatten().min()
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (to, segment, ecn) = entry.remove();
            self.rounds_at_now = 0;
            self.arrive(to, &segment, ecn);
            self.work(to);
        }
    }

    fn arrive(&mut self, to: Side, segment: &Segment, ecn: EcnField) {
        let now = self.now;
        let is_syn = segment.flags & (Flags::SYN | Flags::ACK | Flags::RST) == Flags::SYN;
        let opening = self.server_opening();
        if let Some(witness) = &mut self.witness {
            witness.on_arrival(to, segment);
        }
        let host = self.host(to);
        if let Some(connection) = &mut host.connection {
            let disposition = connection.handle_segment_with_ecn(now, segment, ecn);
            connection.assert_invariants();
            if let Some(ledger) = &mut self.ledger {
                ledger.on_arrival(to, segment, disposition);
            }
        } else if to == Side::Server && is_syn {
            host.connection = Some(Connection::accept_with_ecn(now, Arc::clone(&host.config), opening, segment, ecn));
        }
    }

    /// The application's turn, then all transmissions.
    pub(crate) fn work(&mut self, side: Side) {
        let now = self.now;
        let host = self.host(side);
        if host.connection.is_none() {
            return;
        }
        host.apply(now);
        if let Some(ledger) = &mut self.ledger {
            let (host, peer) = match side {
                Side::Client => (&mut self.client, &self.server),
                Side::Server => (&mut self.server, &self.client),
            };
            ledger.after_turn(now, side, host, peer.holds_ack_point);
        }
        while let Some(transmit) = self.host(side).connection().poll_transmit(now) {
            self.host(side).connection().assert_invariants();
            if let Some(mut witness) = self.witness.take() {
                witness.on_transmit(side, &transmit, self.host(side).connection());
                self.witness = Some(witness);
            }
            if let Some(mut ledger) = self.ledger.take() {
                ledger.on_transmit(side, &transmit, self.host(side).connection());
                self.ledger = Some(ledger);
            }
            if let Some(log) = &mut self.log {
                log.push(Logged { at: now, from: side, transmit: transmit.clone() });
            }
            self.send(side, transmit.segment, transmit.ecn);
        }
        let host = self.host(side);
        while let Some(event) = host.connection().poll_event() {
            host.peer_closed |= event == Event::PeerClosed;
            host.events.push(event);
        }
    }

    fn send(&mut self, from: Side, mut segment: Segment, mut ecn: EcnField) {
        let now = self.now;
        let path = if from == Side::Client { &mut self.forward } else { &mut self.backward };
        let (loss, duplicate, reorder) =
            (self.rng.next_f64() < path.loss, self.rng.next_f64() < path.duplicate, self.rng.next_f64() < path.reorder);
        let sound = now >= path.sound_from;
        let loss = path.bursts.as_mut().is_some_and(|bursts| bursts.loses(&mut self.rng)) || loss;
        let corrupt = path.corrupt > 0.0 && self.rng.next_f64() < path.corrupt;
        let down = path.outages.iter().any(|&(start, end)| start <= now && now < end);
        if loss && !sound || down {
            return self.note_loss(from, &segment);
        }
        if corrupt && !sound {
            self.note_loss(from, &segment);
            assert_damage_shows(&mut self.rng, segment);
            return;
        }
        if path.mangle > 0.0 && !sound && self.rng.next_f64() < path.mangle {
            mangle(&mut self.rng, &mut segment);
        }
        if !path.ecn.treat(&mut segment, &mut ecn) {
            return self.note_loss(from, &segment);
        }
        let waiting = path.busy_until.saturating_since(now);
        let limited = !path.per_segment.is_zero() && now < path.queue_unlimited_from;
        if limited && waiting.as_nanos() / path.per_segment.as_nanos() >= path.queue_limit as u64 {
            return self.note_loss(from, &segment);
        }
        let is_capable = matches!(ecn, EcnField::Ect0 | EcnField::Ect1);
        let is_long = limited && waiting.as_nanos() / path.per_segment.as_nanos() >= path.mark_above as u64;
        if is_capable && (is_long || path.mark > 0.0 && self.rng.next_f64() < path.mark) {
            ecn = EcnField::Ce;
        }
        let share = (segment.wire_len() as u64 * 1000 / 1500).max(1);
        path.busy_until = path.busy_until.max(now) + path.per_segment * share / 1000;
        let mut at = path.busy_until + path.delay;
        if path.outages_empty && path.outages.iter().any(|&(start, _)| now < start && start <= at) {
            return self.note_loss(from, &segment);
        }
        let moved = (reorder || !path.jitter.is_zero()) && !sound;
        if reorder && !sound {
            at += path.reorder_by;
        }
        if !path.jitter.is_zero() && !sound {
            at += Duration::from_nanos(self.rng.below(path.jitter.as_nanos()));
        }
        self.sequence += 1;
        let to = from.other();
        if moved || duplicate && !sound {
            self.note_disorder();
        }
        if duplicate && !sound {
            self.in_flight.insert((at + Duration::from_micros(10), self.sequence << 1 | 1), (to, segment.clone(), ecn));
        }
        self.in_flight.insert((at, self.sequence << 1), (to, segment, ecn));
    }

    fn note_loss(&mut self, from: Side, segment: &Segment) {
        if let Some(mut ledger) = self.ledger.take() {
            ledger.on_loss(from, segment, self);
            self.ledger = Some(ledger);
        }
    }

    fn note_disorder(&mut self) {
        if let Some(mut ledger) = self.ledger.take() {
            ledger.on_disorder(self);
            self.ledger = Some(ledger);
        }
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
            assert_eq!(
                to.read_len,
                from.to_write,
                "bytes from the {name}; its end: {:?}, the other's: {:?}",
                from.connection.as_ref().map(|c| (c.state(), c.error())),
                to.connection.as_ref().map(|c| (c.state(), c.error()))
            );
            if to.keep {
                assert!(to.read.iter().enumerate().all(|(n, &b)| b == stream_byte(n)), "what the {name} sent");
            }
        }
    }
}

/// One field of the header gets another value, near its former value or not.
fn mangle(rng: &mut Rng, segment: &mut Segment) {
    let near = |rng: &mut Rng| match rng.below(3) {
        0 => rng.next_u32(),
        1 => rng.below(20_000) as u32,
        _ => (rng.below(20_000) as u32).wrapping_neg(),
    };
    match rng.below(8) {
        0 => segment.seq += near(rng),
        1 => segment.ack += near(rng),
        2 => segment.window = rng.next_u32() as u16,
        3 => segment.flags ^= Flags::from_bits_truncate(1 << rng.below(6)),
        4 => {
            segment.options.sack =
                [SeqRange::new(segment.ack + near(rng), segment.ack + near(rng))].into_iter().collect()
        }
        5 => segment.options.timestamps = None,
        6 => segment.urgent = rng.next_u32() as u16,
        _ => {
            let shift = near(rng);
            if let Some(timestamps) = &mut segment.options.timestamps {
                timestamps.ecr = timestamps.ecr.wrapping_add(shift);
            }
        }
    }
}

/// One bit of the packet flips, and the receiver detects it: damage thereby becomes loss.
fn assert_damage_shows(rng: &mut Rng, segment: Segment) {
    let packet = Packet::new("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), segment);
    let mut bytes = packet.emit().unwrap().to_vec();
    let bit = rng.below(bytes.len() as u64 * 8) as usize;
    bytes[bit / 8] ^= 1 << (bit % 8);
    let read = Packet::parse(bytes.into());
    let passed = read.as_ref().is_ok_and(|read| matches!(read.payload, Payload::Tcp(_)));
    assert!(!passed, "bit {bit} of {packet} was flipped unnoticed: {read:?}");
}

impl Host {
    fn apply(&mut self, now: Instant) {
        self.play(now);
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
        if self.leaves && self.closed && self.peer_closed && connection.readable_len() == 0 {
            connection.close(now);
        }
    }

    /// Executes the script's actions up to now.
    fn play(&mut self, now: Instant) {
        let Some(connection) = &mut self.connection else { return };
        while self.script.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, action)) = self.script.pop_front() else { break };
            match action {
                Action::Write(len) if !self.closes => self.to_write += len,
                // The application must not write after the end of the stream.
                Action::Write(_) => {}
                Action::Read(chunks) => {
                    for chunk in core::iter::from_fn(|| connection.read(now)).take(chunks) {
                        self.read_len += chunk.len();
                        self.read.extend_from_slice(&chunk);
                    }
                }
                Action::Reads(reads) => self.reads = reads,
                Action::Close => self.closes = true,
                Action::Verb(verb) => {
                    match verb {
                        Verb::HoldAckPoint(_) => self.holds_ack_point = true,
                        Verb::ReleaseAckPoint => self.holds_ack_point = false,
                        _ => {}
                    }
                    verb.apply(now, connection);
                    self.steered = true;
                }
            }
        }
    }
}
