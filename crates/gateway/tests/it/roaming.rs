//! A fixed host and a mobile host with real TCP, and several supervisor hosts or base stations between which the mobile host moves.
//! Every packet and every control message may be lost, duplicated or delayed.

use core::cmp::Reverse;
use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant, Rng};
use holdover_filter::{Chain, ControlMessage, Direction, Presence, Verdict};
use holdover_gateway::Mechanisms;
use holdover_gateway::buffer_freeze::BufferFreezeConfig;
use holdover_gateway::handoff::HandoffConfig;
use holdover_gateway::m_tcp::MTcpConfig;
use holdover_gateway::split::SplitConfig;
use holdover_tcp::{Config, ConnectionId, Endpoint, EndpointConfig, Event, Profile};
use holdover_wire::{Flags, Packet, Seq};
use proptest::prelude::*;

use crate::support::{at_ms, ms};

pub(crate) const SUPERVISORS: usize = 3;
/// The stacks of both ends.
pub(crate) const PROFILES: [Profile; 4] =
    [Profile::RenoBsd, Profile::TahoeBsd, Profile::Linux6Reno, Profile::Linux6Cubic];
const PORT: u16 = 80;
const RADIO_BPS: u64 = 4_000_000;
/// A packet that would wait longer for the radio is dropped.
const RADIO_QUEUE: Duration = Duration::from_millis(200);

/// The mechanism of each supervisor host, or base station.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Station {
    ITcp,
    MTcp,
    BufferFreeze { buffers: bool, freezes: bool },
}

impl Station {
    fn mechanisms(self, peers: Vec<IpAddr>) -> Mechanisms {
        match self {
            Self::ITcp => {
                let handoff = Some(HandoffConfig::among(peers));
                let split = SplitConfig { handoff, ..SplitConfig::with(Profile::Linux6Reno.config()) };
                Mechanisms { split: Some(split), ..Mechanisms::default() }
            }
            Self::MTcp => mechanisms(&Profile::Linux6Reno.config(), peers),
            Self::BufferFreeze { buffers, freezes } => {
                let handoff = Some(HandoffConfig::among(peers));
                let config = BufferFreezeConfig { buffers, freezes, handoff, ..BufferFreezeConfig::default() };
                Mechanisms { buffer_freeze: Some(config), ..Mechanisms::default() }
            }
        }
    }
}

/// The parameters of the world.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) station: Station,
    pub(crate) profile: Profile,
    pub(crate) seed: u64,
    /// Loss of packets between hosts, and of control messages.
    pub(crate) loss: f64,
    pub(crate) control_loss: f64,
    pub(crate) duplicate: f64,
    /// The largest delay of each packet.
    pub(crate) jitter_ms: u64,
    pub(crate) control_jitter_ms: u64,
    /// When the mobile host leaves, how long it is out of range, and its next supervisor host.
    pub(crate) moves: Vec<Move>,
    /// Whether supervisor hosts get link-layer events.
    pub(crate) is_told: bool,
    pub(crate) is_upload: bool,
    pub(crate) is_ipv6: bool,
    pub(crate) bytes: usize,
    /// The index of a supervisor host outside the peer set, if any.
    pub(crate) outsider: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) at_ms: u64,
    pub(crate) gap_ms: u64,
    pub(crate) to: usize,
    /// How long after the arrival the fixed host's packets still take the old path.
    pub(crate) route_lag_ms: u64,
}

impl Setup {
    pub(crate) fn quiet(profile: Profile, moves: Vec<Move>) -> Self {
        Self {
            station: Station::MTcp,
            profile,
            seed: 1,
            loss: 0.0,
            control_loss: 0.0,
            duplicate: 0.0,
            jitter_ms: 0,
            control_jitter_ms: 0,
            moves,
            is_told: true,
            is_upload: false,
            is_ipv6: false,
            bytes: 400_000,
            outsider: None,
        }
    }
}

/// Worlds with losses, duplicates, delays and moves. Control messages are lost with a probability below `control_loss`.
pub(crate) fn rough(station: impl Strategy<Value = Station>, control_loss: f64) -> impl Strategy<Value = Setup> {
    let mishaps = (0.0..0.04, 0.0..control_loss, 0.0..0.1, 0_u64..30, 0_u64..600);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let profile = prop::sample::select(PROFILES.to_vec());
    (station, profile, any::<u64>(), mishaps, moves(), flags).prop_map(
        |(station, profile, seed, mishaps, moves, (is_told, is_upload, is_ipv6))| {
            let (loss, control_loss, duplicate, jitter_ms, control_jitter_ms) = mishaps;
            Setup {
                station,
                seed,
                loss,
                control_loss,
                duplicate,
                jitter_ms,
                control_jitter_ms,
                is_told,
                is_upload,
                is_ipv6,
                ..Setup::quiet(profile, moves)
            }
        },
    )
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = (50_u64..3_000, 0_u64..1_500, 0..SUPERVISORS, 0_u64..400);
    prop::collection::vec(one, 1..7).prop_map(|moves| {
        let mut at = 100;
        let moves = moves.into_iter().map(|(stay, gap_ms, to, route_lag_ms)| {
            let begins = at + stay;
            at = begins + gap_ms;
            Move { at_ms: begins, gap_ms, to, route_lag_ms }
        });
        moves.collect()
    })
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum WorldEvent {
    AtSupervisor(usize, Direction, Packet),
    AtFixed(Packet),
    AtMobile(usize, Packet),
    Control(usize, ControlMessage),
    Leaves(usize),
    Arrives(usize),
    Route(usize),
}

/// Result of a transfer.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The bytes that the receiver has read.
    pub(crate) received: Vec<u8>,
    pub(crate) sent: Vec<u8>,
    pub(crate) ended_at: Option<Instant>,
    /// The actions of supervisor hosts, with their times.
    pub(crate) actions: Vec<(Instant, usize, &'static str)>,
    /// The times at which new data arrived at the receiver.
    pub(crate) progress: Vec<Instant>,
    pub(crate) failed: bool,
    /// The length of the longest control message.
    pub(crate) longest_control: usize,
}

impl Outcome {
    pub(crate) fn count(&self, what: &str) -> usize {
        self.actions.iter().filter(|action| action.2 == what).count()
    }

    /// From `from` to the first new data after it.
    pub(crate) fn idle_after(&self, from: Instant) -> Option<Duration> {
        self.progress.iter().find(|at| **at > from).map(|at| at.saturating_since(from))
    }
}

pub(crate) struct Roaming {
    setup: Setup,
    now: Instant,
    rng: Rng,
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    events: BTreeMap<u64, WorldEvent>,
    serial: u64,
    chains: Vec<Chain>,
    addresses: Vec<IpAddr>,
    fixed: Endpoint,
    mobile: Endpoint,
    mobile_at: SocketAddr,
    fixed_id: Option<ConnectionId>,
    mobile_id: Option<ConnectionId>,
    /// The mobile host's supervisor host, and that of the fixed host's packets.
    cell: Option<usize>,
    route: usize,
    /// The last supervisor host that it came to.
    last: usize,
    /// Whether packets are lost: once the connection is open at both ends.
    is_rough: bool,
    /// The end of the radio's transmissions, down and up.
    radio_busy: [Instant; 2],
    written: usize,
    is_shut: [bool; 2],
    outcome: Outcome,
    /// The initial sequence number of each end, and the highest ACK sent to it: for the fixed host and the mobile host.
    first_seq: [Option<Seq>; 2],
}

fn address(ipv6: bool, last: u16) -> IpAddr {
    if ipv6 { [0xfd00, 0, 0, 0, 0, 0, 0, last].into() } else { [10, 0, 0, last as u8].into() }
}

pub(crate) fn mechanisms(stack: &Config, peers: Vec<IpAddr>) -> Mechanisms {
    let handoff = Some(HandoffConfig::among(peers));
    let m_tcp = MTcpConfig::with(SplitConfig { handoff, ..SplitConfig::with(stack.clone()) });
    Mechanisms { m_tcp: Some(m_tcp), ..Mechanisms::default() }
}

impl Roaming {
    pub(crate) fn new(setup: Setup) -> Self {
        let stack = setup.profile.config();
        let addresses: Vec<IpAddr> = (0..SUPERVISORS).map(|index| address(setup.is_ipv6, 100 + index as u16)).collect();
        let chains = (0..SUPERVISORS).map(|index| {
            let is_known =
                |other: &usize| *other != index && setup.outsider != Some(*other) && setup.outsider != Some(index);
            let peers = (0..SUPERVISORS).filter(is_known).map(|other| addresses[other]).collect();
            setup.station.mechanisms(peers).chain([index as u8 + 1; 16])
        });
        let host = |last: u16| {
            Endpoint::new(EndpointConfig { addresses: vec![address(setup.is_ipv6, last)], secret: [last as u8; 16] })
        };
        let stack = Arc::new(stack);
        let (mut fixed, mut mobile) = (host(1), host(2));
        fixed.listen(PORT, Arc::clone(&stack), 4).expect("a free port");
        let fixed_at = SocketAddr::new(address(setup.is_ipv6, 1), PORT);
        let mobile_at = SocketAddr::new(address(setup.is_ipv6, 2), 4_000);
        let mobile_id = mobile.connect(Instant::ZERO, stack, Some(mobile_at), fixed_at).expect("a connection");
        let sent = (0..setup.bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut world = Self {
            now: Instant::ZERO,
            rng: Rng::new(setup.seed),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            serial: 0,
            chains: chains.collect(),
            addresses,
            fixed,
            mobile,
            mobile_at,
            fixed_id: None,
            mobile_id: Some(mobile_id),
            cell: Some(0),
            route: 0,
            last: 0,
            is_rough: false,
            radio_busy: [Instant::ZERO; 2],
            written: 0,
            is_shut: [false; 2],
            outcome: Outcome {
                received: Vec::new(),
                sent,
                ended_at: None,
                actions: Vec::new(),
                progress: Vec::new(),
                failed: false,
                longest_control: 0,
            },
            first_seq: [None; 2],
            setup,
        };
        while world.fixed_id.is_none() {
            world.step(at_ms(1_000));
        }
        world.is_rough = true;
        for at in world.setup.moves.clone() {
            let arrives = at.at_ms + at.gap_ms;
            world.plan(at_ms(at.at_ms), WorldEvent::Leaves(at.to));
            world.plan(at_ms(arrives), WorldEvent::Arrives(at.to));
            world.plan(at_ms(arrives + at.route_lag_ms), WorldEvent::Route(at.to));
        }
        world
    }

    fn plan(&mut self, at: Instant, what: WorldEvent) {
        self.serial += 1;
        self.queue.push(Reverse((at, self.serial)));
        self.events.insert(self.serial, what);
    }

    /// Sends over the network, with losses, duplicates and delays.
    fn send(&mut self, delay: Duration, what: WorldEvent) {
        let is_control = matches!(what, WorldEvent::Control(..));
        let (loss, jitter) = if is_control {
            (self.setup.control_loss, self.setup.control_jitter_ms)
        } else {
            (self.setup.loss, self.setup.jitter_ms)
        };
        let Some(delay) = self.cross_radio(&what).map(|waits| waits + delay) else { return };
        if !self.is_rough {
            return self.plan(self.now + delay, what);
        }
        let copies = 1 + usize::from(self.rng.chance(self.setup.duplicate));
        for _ in 0..copies {
            let late = ms(if jitter == 0 { 0 } else { self.rng.below(jitter + 1) });
            if !self.rng.chance(loss) {
                self.plan(self.now + delay + late, what.clone());
            }
        }
    }

    /// How long a packet waits for the radio and is transmitted by it; `None` if the queue is full. Packets that do not use the radio do
    /// not wait.
    fn cross_radio(&mut self, what: &WorldEvent) -> Option<Duration> {
        let (way, packet) = match what {
            WorldEvent::AtMobile(_, packet) => (0, packet),
            WorldEvent::AtSupervisor(_, Direction::Incoming, packet) => (1, packet),
            _ => return Some(Duration::ZERO),
        };
        let begins = self.radio_busy[way].max(self.now);
        if begins.saturating_since(self.now) > RADIO_QUEUE {
            return None;
        }
        self.radio_busy[way] = begins + Duration::from_nanos(packet.wire_len() as u64 * 8 * 1_000_000_000 / RADIO_BPS);
        Some(self.radio_busy[way].saturating_since(self.now))
    }

    /// Runs until the transfer is over at both ends, or until `limit`. Checks after each step that the receiver has what was sent, and that
    /// no end got ACKs for data that the far end does not have, unless I-TCP acknowledges on arrival.
    pub(crate) fn run(mut self, limit: Instant) -> Outcome {
        let mut steps = 0_u64;
        while !self.is_over() && !self.outcome.failed && self.step(limit) {
            steps += 1;
            assert!(steps < 3_000_000, "it does not come to rest at {}", self.now);
            self.check();
        }
        self.outcome
    }

    /// Handles all events at the next time that has any. Returns whether there was one before `limit`.
    fn step(&mut self, limit: Instant) -> bool {
        self.serve();
        let timeouts = self.chains.iter().filter_map(Chain::poll_timeout);
        let ends = [self.fixed.poll_timeout(), self.mobile.poll_timeout()];
        let next = self.queue.peek().map(|Reverse((at, _))| *at);
        let Some(at) = timeouts.chain(ends.into_iter().flatten()).chain(next).min().filter(|&at| at <= limit) else {
            return false;
        };
        self.now = self.now.max(at);
        while let Some(&Reverse((at, serial))) = self.queue.peek()
            && at <= self.now
        {
            self.queue.pop();
            let what = self.events.remove(&serial).expect("an event");
            self.happen(what);
        }
        self.fixed.handle_timeout(self.now);
        self.mobile.handle_timeout(self.now);
        for index in 0..SUPERVISORS {
            self.chains[index].handle_timeout(self.now);
            self.collect(index);
        }
        self.serve();
        true
    }

    fn happen(&mut self, what: WorldEvent) {
        match what {
            WorldEvent::AtSupervisor(cell, Direction::Incoming, _) if self.cell != Some(cell) => {}
            WorldEvent::AtSupervisor(index, direction, mut packet) => {
                if self.chains[index].handle_packet(self.now, direction, &mut packet) == Verdict::Pass {
                    self.depart(index, direction, packet);
                }
                self.collect(index);
            }
            WorldEvent::AtFixed(packet) => self.fixed.handle_packet(self.now, &packet),
            WorldEvent::AtMobile(cell, packet) if self.cell == Some(cell) => {
                self.mobile.handle_packet(self.now, &packet)
            }
            WorldEvent::AtMobile(..) => {}
            WorldEvent::Control(index, message) => {
                assert!(self.chains[index].handle_control(self.now, &message), "a message that cannot be read");
                self.collect(index);
            }
            WorldEvent::Leaves(to) => {
                let from = self.cell.take();
                if self.setup.is_told
                    && let Some(from) = from
                {
                    let presence = if from == to { Presence::Away } else { Presence::Moved };
                    self.tell(from, presence);
                }
            }
            WorldEvent::Arrives(at) => {
                (self.cell, self.last) = (Some(at), at);
                if self.setup.is_told {
                    self.tell(at, Presence::Present);
                }
            }
            // A later move may have happened before.
            WorldEvent::Route(to) if self.last == to => self.route = to,
            WorldEvent::Route(_) => {}
        }
    }

    fn tell(&mut self, index: usize, presence: Presence) {
        let mobile = self.mobile_at.ip();
        self.chains[index].handle_mobile(self.now, mobile, presence);
        self.collect(index);
    }

    fn depart(&mut self, index: usize, direction: Direction, packet: Packet) {
        match direction {
            Direction::Outgoing => self.send(ms(5), WorldEvent::AtMobile(index, packet)),
            Direction::Incoming => self.send(ms(20), WorldEvent::AtFixed(packet)),
        }
    }

    fn collect(&mut self, index: usize) {
        while let Some(made) = self.chains[index].poll_transmit() {
            self.depart(index, made.direction, made.packet);
        }
        while let Some(ControlMessage { peer, payload }) = self.chains[index].poll_control() {
            self.outcome.longest_control = self.outcome.longest_control.max(payload.len());
            let to = self.addresses.iter().position(|address| *address == peer).expect("a supervisor host");
            self.send(ms(10), WorldEvent::Control(to, ControlMessage { peer: self.addresses[index], payload }));
        }
        while let Some(action) = self.chains[index].poll_action() {
            self.outcome.actions.push((action.at, index, action.what));
        }
        while self.chains[index].poll_dropped().is_some() {}
    }

    /// Serves both ends: TCP, and applications.
    fn serve(&mut self) {
        loop {
            let mut is_quiet = true;
            while let Some(out) = self.fixed.poll_transmit(self.now) {
                self.note_first(0, &out.packet);
                let route = self.route;
                self.send(ms(20), WorldEvent::AtSupervisor(route, Direction::Outgoing, out.packet));
            }
            while let Some(out) = self.mobile.poll_transmit(self.now) {
                self.note_first(1, &out.packet);
                if let Some(cell) = self.cell {
                    self.send(ms(5), WorldEvent::AtSupervisor(cell, Direction::Incoming, out.packet));
                }
            }
            while let Some((id, event)) = self.fixed.poll_event() {
                is_quiet = false;
                if event == Event::Connected {
                    self.fixed_id = Some(id);
                }
                let error = self.fixed.connection(id).and_then(|connection| connection.error());
                self.outcome.failed |= error.is_some();
            }
            while let Some((id, _)) = self.mobile.poll_event() {
                is_quiet = false;
                let error = self.mobile.connection(id).and_then(|connection| connection.error());
                self.outcome.failed |= error.is_some();
            }
            self.run_applications();
            if is_quiet {
                break;
            }
        }
    }

    fn note_first(&mut self, end: usize, packet: &Packet) {
        if let Some(segment) = packet.tcp().filter(|segment| segment.flags.contains(Flags::SYN)) {
            self.first_seq[end] = Some(segment.seq + 1);
        }
    }

    fn run_applications(&mut self) {
        let (Some(fixed), Some(mobile)) = (self.fixed_id, self.mobile_id) else { return };
        let Self { setup, fixed: at_fixed, mobile: at_mobile, outcome, now, .. } = self;
        let (Some(fixed), Some(mobile)) = (at_fixed.connection_mut(fixed), at_mobile.connection_mut(mobile)) else {
            return;
        };
        let (writer, reader) = if setup.is_upload { (mobile, fixed) } else { (fixed, mobile) };
        if self.written < outcome.sent.len() && writer.write_room() > 0 {
            self.written += writer.write(*now, Bytes::copy_from_slice(&outcome.sent[self.written..]));
        }
        if self.written == outcome.sent.len() && !self.is_shut[0] {
            self.is_shut[0] = true;
            writer.shutdown_write();
        }
        while let Some(data) = reader.read(*now) {
            outcome.received.extend_from_slice(&data);
            outcome.progress.push(*now);
        }
        if outcome.received.len() >= outcome.sent.len() && !self.is_shut[1] && !reader.state().may_receive() {
            self.is_shut[1] = true;
            outcome.ended_at = Some(*now);
            reader.shutdown_write();
        }
    }

    /// The second FIN is acknowledged.
    fn is_over(&self) -> bool {
        let ends = [(&self.fixed, self.fixed_id), (&self.mobile, self.mobile_id)];
        let is_closed = |(endpoint, id): (&Endpoint, Option<ConnectionId>)| {
            let connection = id.and_then(|id| endpoint.connection(id));
            connection.is_none_or(|connection| connection.is_closed() && connection.error().is_none())
        };
        self.outcome.ended_at.is_some() && ends.into_iter().any(is_closed)
    }

    /// Asserts that the receiver has what was sent, and that no end got ACKs for data that the other does not have (but with I-TCP).
    fn check(&self) {
        let (Some(fixed), Some(mobile)) = (self.fixed_id, self.mobile_id) else { return };
        let (Some(fixed), Some(mobile)) = (self.fixed.connection(fixed), self.mobile.connection(mobile)) else {
            return;
        };
        let [Some(fixed_first), Some(mobile_first)] = self.first_seq else { return };
        assert!(self.outcome.sent.starts_with(&self.outcome.received), "other bytes than were sent");
        if matches!(self.setup.station, Station::ITcp) {
            return;
        }
        // Each end counts its data from its own initial number; the other has received as many bytes from the initial number of its half.
        let received = |bytes: u64| u32::try_from(bytes).expect("a short transfer");
        let of_fixed = fixed.snd_una().saturating_since(fixed_first);
        let of_mobile = mobile.snd_una().saturating_since(mobile_first);
        let fin = |connection: &holdover_tcp::Connection| u32::from(!connection.state().may_receive());
        let at_mobile = received(mobile.counters().bytes_received.0) + fin(mobile);
        let at_fixed = received(fixed.counters().bytes_received.0) + fin(fixed);
        assert!(of_fixed <= at_mobile, "the mobile host has {at_mobile}, the fixed host heard of {of_fixed}");
        assert!(of_mobile <= at_fixed, "the fixed host has {at_fixed}, the mobile host heard of {of_mobile}");
    }
}
