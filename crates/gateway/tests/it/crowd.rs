//! A mobile host with many connections, in both directions and with ends of every kind, that moves between base stations of I-TCP or
//! BUFFER-FREEZE, or supervisor hosts of M-TCP.
//! Packets and control messages are lost, duplicated, delayed and reordered; reports come late or not at all; the fixed host's packets take
//! the old path for up to 5 s; and for a while no control message may get through.

use core::cmp::Reverse;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
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
use holdover_wire::{Flags, Packet, Segment};
use proptest::prelude::*;

use crate::roaming::{PROFILES, Station};
use crate::support::{at_ms, ms};

const STATIONS: usize = 3;
/// The ends: indices of everything that both have.
const FIXED: usize = 0;
const MOBILE: usize = 1;
const PORT: u16 = 80;
/// How often the applications run, and an unreported mobile host shows itself.
const TICK_MS: u64 = 20;
const SHOWS_ITSELF_MS: u64 = 2_000;

/// One connection.
#[derive(Clone, Debug)]
struct Plan {
    opens_ms: u64,
    is_opened_by_mobile: bool,
    /// Bytes that each end sends, and the most in each tick.
    bytes: [usize; 2],
    paces: [usize; 2],
    /// Whether each end closes only when the other has.
    waits: [bool; 2],
    /// Which end aborts the connection, and when.
    abort: Option<(usize, u64)>,
}

#[derive(Clone, Debug)]
struct Move {
    leaves_ms: u64,
    arrives_ms: u64,
    to: usize,
    route_lag_ms: u64,
    /// How late the old and the new station get their reports.
    report_lags_ms: [u64; 2],
}

#[derive(Clone, Debug)]
struct Setup {
    station: Station,
    seed: u64,
    ends: Profile,
    nodes: Profile,
    plans: Vec<Plan>,
    moves: Vec<Move>,
    is_told: bool,
    loss: f64,
    duplicate: f64,
    jitter_ms: u64,
    control_loss: f64,
    control_jitter_ms: u64,
    /// When no control message gets through.
    blackout_ms: (u64, u64),
}

#[derive(Clone, Debug)]
enum Happening {
    AtStation(usize, Direction, Packet),
    AtFixed(Packet),
    AtMobile(usize, Packet),
    Control(usize, ControlMessage),
    Leaves,
    Arrives(usize),
    Report(usize, Presence),
    Route(usize),
    Tick,
}

/// One end of a connection.
#[derive(Clone, Debug, Default)]
struct End {
    id: Option<ConnectionId>,
    is_connected: bool,
    written: usize,
    is_shut: bool,
    received: usize,
    has_seen_end: bool,
    has_failed: bool,
}

#[derive(Debug)]
struct Link {
    plan: Plan,
    ends: [End; 2],
    is_opened: bool,
    is_aborted: bool,
    /// A handoff has met it in its handshake, and reset it.
    was_in_handshake: bool,
}

impl Link {
    fn mobile_port(index: usize) -> u16 {
        4_000 + index as u16
    }

    /// The bytes that an end sends.
    fn byte(index: usize, end: usize, offset: usize) -> u8 {
        ((offset as u32 ^ ((index * 2 + end) as u32 * 0x9e37)).wrapping_mul(2_654_435_761) >> 24) as u8
    }

    /// Whether an end has aborted it, a handoff has reset it in its handshake, or its SYNs were used up.
    fn is_over_early(&self) -> bool {
        let has_never_opened = self.ends.iter().any(|end| end.has_failed && !end.is_connected);
        self.is_aborted || self.was_in_handshake || has_never_opened
    }

    fn is_complete(&self) -> bool {
        (0..2).all(|end| self.ends[end].has_seen_end && self.ends[end].received == self.plan.bytes[1 - end])
    }
}

struct World {
    setup: Setup,
    now: Instant,
    rng: Rng,
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    serial: u64,
    chains: Vec<Chain>,
    hosts: [Endpoint; 2],
    links: Vec<Link>,
    cell: Option<usize>,
    route: usize,
    last: usize,
    control_bytes: usize,
    most_stored: u64,
    stack: Arc<Config>,
    shows_itself_at: Instant,
    actions: Vec<(Instant, usize, &'static str)>,
}

fn station(index: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 1, index as u8).into()
}

fn host(end: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, end as u8 + 1).into()
}

impl World {
    fn new(setup: Setup) -> Self {
        let stack = Arc::new(setup.ends.config());
        let chains = (0..STATIONS).map(|own| {
            let peers = (0..STATIONS).filter(|other| *other != own).map(station).collect();
            let handoff = Some(HandoffConfig::among(peers));
            let split = || SplitConfig { handoff: handoff.clone(), ..SplitConfig::with(setup.nodes.config()) };
            let mechanisms = match setup.station {
                Station::ITcp => Mechanisms { split: Some(split()), ..Mechanisms::default() },
                Station::MTcp => Mechanisms { m_tcp: Some(MTcpConfig::with(split())), ..Mechanisms::default() },
                Station::BufferFreeze { buffers, freezes } => {
                    let handoff = handoff.clone();
                    let config = BufferFreezeConfig { buffers, freezes, handoff, ..BufferFreezeConfig::default() };
                    Mechanisms { buffer_freeze: Some(config), ..Mechanisms::default() }
                }
            };
            mechanisms.chain([own as u8 + 1; 16])
        });
        let hosts = [FIXED, MOBILE].map(|end| {
            let mut host = Endpoint::new(EndpointConfig { addresses: vec![host(end)], secret: [end as u8 + 9; 16] });
            host.listen(PORT, Arc::clone(&stack), 64).expect("a free port");
            host
        });
        let links = setup.plans.iter().map(|plan| Link {
            plan: plan.clone(),
            ends: Default::default(),
            is_opened: false,
            is_aborted: false,
            was_in_handshake: false,
        });
        let mut world = Self {
            now: Instant::ZERO,
            rng: Rng::new(setup.seed),
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            serial: 0,
            chains: chains.collect(),
            hosts,
            links: links.collect(),
            cell: Some(0),
            route: 0,
            last: 0,
            control_bytes: 0,
            most_stored: 0,
            stack,
            shows_itself_at: Instant::ZERO,
            actions: Vec::new(),
            setup,
        };
        if world.setup.is_told {
            world.plan(Instant::ZERO, Happening::Report(0, Presence::Present));
        }
        let mut from = 0;
        for at in world.setup.moves.clone() {
            world.plan(at_ms(at.leaves_ms), Happening::Leaves);
            world.plan(at_ms(at.arrives_ms), Happening::Arrives(at.to));
            world.plan(at_ms(at.arrives_ms + at.route_lag_ms), Happening::Route(at.to));
            if world.setup.is_told {
                let left = if from == at.to { Presence::Away } else { Presence::Moved };
                world.plan(at_ms(at.leaves_ms + at.report_lags_ms[0]), Happening::Report(from, left));
                world.plan(at_ms(at.arrives_ms + at.report_lags_ms[1]), Happening::Report(at.to, Presence::Present));
            }
            from = at.to;
        }
        world.plan(Instant::ZERO, Happening::Tick);
        world
    }

    fn plan(&mut self, at: Instant, what: Happening) {
        self.serial += 1;
        self.queue.push(Reverse((at, self.serial)));
        self.happenings.insert(self.serial, what);
    }

    /// Sends over the network, with losses, duplicates and delays.
    fn send(&mut self, delay: Duration, what: Happening) {
        let setup = &self.setup;
        let is_control = matches!(what, Happening::Control(..));
        let (loss, jitter) =
            if is_control { (setup.control_loss, setup.control_jitter_ms) } else { (setup.loss, setup.jitter_ms) };
        let (from, to) = setup.blackout_ms;
        if is_control && at_ms(from) <= self.now && self.now < at_ms(to) {
            return;
        }
        let copies = 1 + usize::from(self.rng.chance(setup.duplicate));
        for _ in 0..copies {
            let late = ms(self.rng.below(jitter + 1));
            if !self.rng.chance(loss) {
                self.plan(self.now + delay + late, what.clone());
            }
        }
    }

    /// Handles all that happens at the next time. Returns whether there was something before `limit`.
    fn step(&mut self, limit: Instant) -> bool {
        self.serve();
        let timeouts = self.chains.iter().filter_map(Chain::poll_timeout);
        let ends = self.hosts.iter().filter_map(Endpoint::poll_timeout);
        let next = self.queue.peek().map(|Reverse((at, _))| *at);
        let Some(at) = timeouts.chain(ends).chain(next).min().filter(|&at| at <= limit) else { return false };
        self.now = self.now.max(at);
        while let Some(&Reverse((at, serial))) = self.queue.peek()
            && at <= self.now
        {
            self.queue.pop();
            let what = self.happenings.remove(&serial).expect("it was planned");
            self.happen(what);
        }
        for host in &mut self.hosts {
            host.handle_timeout(self.now);
        }
        for index in 0..STATIONS {
            self.chains[index].handle_timeout(self.now);
            self.collect(index);
        }
        self.serve();
        true
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::AtStation(cell, Direction::Incoming, _) if self.cell != Some(cell) => {}
            Happening::AtStation(index, direction, mut packet) => {
                if self.chains[index].handle_packet(self.now, direction, &mut packet) == Verdict::Pass {
                    self.depart(index, direction, packet);
                }
                self.collect(index);
            }
            Happening::AtFixed(packet) => self.hosts[FIXED].handle_packet(self.now, &packet),
            Happening::AtMobile(cell, packet) if self.cell == Some(cell) => {
                self.hosts[MOBILE].handle_packet(self.now, &packet)
            }
            Happening::AtMobile(..) => {}
            Happening::Control(index, message) => {
                assert!(self.chains[index].handle_control(self.now, &message), "a message that cannot be read");
                self.collect(index);
            }
            Happening::Leaves => self.cell = None,
            Happening::Arrives(at) => {
                (self.cell, self.last, self.shows_itself_at) = (Some(at), at, self.now);
            }
            Happening::Report(index, presence) => {
                // A report that is late says what was last.
                let is_here = self.last == index;
                if matches!(presence, Presence::Present) == is_here || presence == Presence::Away {
                    self.chains[index].handle_mobile(self.now, host(MOBILE), presence);
                    self.collect(index);
                }
            }
            Happening::Route(to) if self.last == to => self.route = to,
            Happening::Route(_) => {}
            Happening::Tick => {
                self.run_applications();
                if self.now < at_ms(3_600_000) {
                    self.plan(self.now + ms(TICK_MS), Happening::Tick);
                }
            }
        }
    }

    fn depart(&mut self, index: usize, direction: Direction, packet: Packet) {
        match direction {
            Direction::Outgoing => self.send(ms(5), Happening::AtMobile(index, packet)),
            Direction::Incoming => self.send(ms(20), Happening::AtFixed(packet)),
        }
    }

    fn collect(&mut self, index: usize) {
        while let Some(made) = self.chains[index].poll_transmit() {
            self.depart(index, made.direction, made.packet);
        }
        while let Some(ControlMessage { peer, payload }) = self.chains[index].poll_control() {
            self.control_bytes += payload.len();
            let to = (0..STATIONS).find(|to| station(*to) == peer).expect("a station");
            self.send(ms(10), Happening::Control(to, ControlMessage { peer: station(index), payload }));
        }
        while let Some(action) = self.chains[index].poll_action() {
            if action.what == "not handed on" {
                let ports = [action.connection.mobile().port(), action.connection.fixed().port()];
                let port = ports.into_iter().find(|port| *port != PORT).expect("one of two");
                self.links[usize::from(port - Link::mobile_port(0))].was_in_handshake = true;
            }
            self.actions.push((action.at, index, action.what));
        }
        while self.chains[index].poll_dropped().is_some() {}
    }

    /// Sends the packets of both ends, and notes their events.
    fn serve(&mut self) {
        loop {
            let mut is_quiet = true;
            while let Some(out) = self.hosts[FIXED].poll_transmit(self.now) {
                let route = self.route;
                self.send(ms(20), Happening::AtStation(route, Direction::Outgoing, out.packet));
            }
            while let Some(out) = self.hosts[MOBILE].poll_transmit(self.now) {
                if let Some(cell) = self.cell {
                    self.send(ms(5), Happening::AtStation(cell, Direction::Incoming, out.packet));
                }
            }
            for end in [FIXED, MOBILE] {
                while let Some((id, event)) = self.hosts[end].poll_event() {
                    is_quiet = false;
                    self.note_event(end, id, event);
                }
            }
            if is_quiet {
                break;
            }
        }
    }

    fn note_event(&mut self, end: usize, id: ConnectionId, event: Event) {
        let Some(connection) = self.hosts[end].connection(id) else { return };
        let ports = [connection.local().port(), connection.remote().port()];
        let port = ports.into_iter().find(|port| *port != PORT).expect("one of two");
        let Some(link) = self.links.get_mut(usize::from(port - Link::mobile_port(0))) else { return };
        let error = connection.error();
        if link.ends[end].id != Some(id) {
            // A SYN that was sent again has begun another connection.
            link.ends[end] = End { id: Some(id), ..End::default() };
        }
        if event == Event::Connected {
            link.ends[end].is_connected = true;
        }
        link.ends[end].has_failed |= error.is_some();
    }

    fn run_applications(&mut self) {
        let (now, stack) = (self.now, Arc::clone(&self.stack));
        let shows_itself = !self.setup.is_told && self.shows_itself_at <= now;
        if shows_itself {
            self.shows_itself_at = now + ms(SHOWS_ITSELF_MS);
        }
        for (index, link) in self.links.iter_mut().enumerate() {
            let Link { plan, ends, .. } = link;
            if !link.is_opened && now >= at_ms(plan.opens_ms) {
                link.is_opened = true;
                // The mobile host is at the port of the link in any case, or the fixed host is.
                let (from, port) = (if plan.is_opened_by_mobile { MOBILE } else { FIXED }, Link::mobile_port(index));
                let (local, remote) = (SocketAddr::new(host(from), port), SocketAddr::new(host(1 - from), PORT));
                let id = self.hosts[from].connect(now, Arc::clone(&stack), Some(local), remote);
                ends[from].id = Some(id.expect("free ports"));
            }
            if let Some((end, at)) = plan.abort
                && now >= at_ms(at)
                && !link.is_aborted
            {
                link.is_aborted = true;
                if let Some(connection) = ends[end].id.and_then(|id| self.hosts[end].connection_mut(id)) {
                    connection.abort();
                }
            }
            for end in [FIXED, MOBILE] {
                let other_has_ended = ends[end].has_seen_end;
                let own = &mut ends[end];
                let Some(connection) = own.id.and_then(|id| self.hosts[end].connection_mut(id)) else { continue };
                if shows_itself && end == MOBILE {
                    connection.send_acks(1);
                }
                if own.is_connected {
                    let to = plan.bytes[end].min(own.written + plan.paces[end]);
                    let data: Bytes = (own.written..to).map(|at| Link::byte(index, end, at)).collect();
                    own.written += connection.write(now, data);
                    if own.written == plan.bytes[end] && !own.is_shut && (other_has_ended || !plan.waits[end]) {
                        own.is_shut = true;
                        connection.shutdown_write();
                    }
                }
                while let Some(data) = connection.read(now) {
                    for byte in data {
                        assert!(own.received < plan.bytes[1 - end], "more than was sent on {index}");
                        assert_eq!(byte, Link::byte(index, 1 - end, own.received), "byte {} of {index}", own.received);
                        own.received += 1;
                    }
                }
                own.has_seen_end |= connection.is_read_out() && connection.error().is_none() && own.is_connected;
            }
        }
        let stored = self.chains.iter().map(|chain| chain.stored().bytes).sum();
        self.most_stored = self.most_stored.max(stored);
    }

    /// Lets all moves end, and messages get through; the mobile host then sends a packet. Returns the stations that serve it: they keep
    /// copies, and need not ask.
    fn settle(&mut self) -> Vec<usize> {
        (self.setup.control_loss, self.setup.blackout_ms) = (0.0, (0, 0));
        let last = self.setup.moves.last().map_or(0, |last| last.arrives_ms + last.route_lag_ms);
        let mut until = self.now.max(at_ms(last)) + Duration::from_secs(60);
        let segment = |from, to| Segment { src_port: from, dst_port: to, flags: Flags::ACK, ..Segment::default() };
        while self.step(until) {}
        let shown = Packet::new(host(MOBILE), host(FIXED), segment(9_999, PORT));
        let _ = self.chains[self.last].handle_packet(self.now, Direction::Incoming, &mut shown.clone());
        self.collect(self.last);
        until += Duration::from_secs(60);
        while self.step(until) {}
        let data = Segment { payload: Bytes::from_static(b"data"), ..segment(PORT, 9_998) };
        let data = Packet::new(host(FIXED), host(MOBILE), data);
        let mut keeps = Vec::new();
        for index in 0..STATIONS {
            let before = self.chains[index].stored().bytes;
            let _ = self.chains[index].handle_packet(self.now, Direction::Outgoing, &mut data.clone());
            // One whose request has failed would ask again, and keep the packet meanwhile.
            let asks = core::iter::from_fn(|| self.chains[index].poll_control()).count() > 0;
            if self.chains[index].stored().bytes > before && !asks {
                keeps.push(index);
            }
        }
        keeps
    }

    fn run(&mut self, limit: Instant) {
        let mut steps = 0_u64;
        while self.links.iter().any(|link| !link.is_complete() && !link.is_over_early()) && self.step(limit) {
            steps += 1;
            assert!(steps < 5_000_000, "it does not come to rest at {}", self.now);
        }
    }
}

fn plans(last_ms: u64) -> impl Strategy<Value = Vec<Plan>> {
    let bytes = prop_oneof![Just(0_usize), 1_usize..3_000, 3_000_usize..200_000];
    let one = (
        (0_u64..last_ms, prop::bool::weighted(0.7)),
        [bytes.clone(), bytes],
        [50_usize..3_000, 50_usize..3_000],
        any::<[bool; 2]>(),
        prop::option::weighted(0.15, (0_usize..2, 0_u64..last_ms)),
    );
    let plan = one.prop_map(|((opens_ms, is_opened_by_mobile), bytes, paces, waits, abort)| Plan {
        // Most are open before the first move.
        opens_ms: if opens_ms % 4 == 0 { opens_ms } else { opens_ms % 300 },
        is_opened_by_mobile,
        bytes,
        paces,
        waits: if waits == [true, true] { [true, false] } else { waits },
        abort,
    });
    prop::collection::vec(plan, 1..14)
}

fn setup(station: Station) -> impl Strategy<Value = Setup> {
    let one =
        (20_u64..4_000, 0_u64..1_500, 0..STATIONS, prop_oneof![Just(0_u64), 0_u64..5_000], [0_u64..400, 0_u64..400]);
    let moves = prop::collection::vec(one, 1..8).prop_map(|moves| {
        let mut at = 1_500;
        let moves = moves.into_iter().map(|(stay, gap, to, route_lag_ms, report_lags_ms)| {
            let leaves_ms = at + stay;
            at = leaves_ms + gap;
            Move { leaves_ms, arrives_ms: at, to, route_lag_ms, report_lags_ms }
        });
        moves.collect::<Vec<Move>>()
    });
    let profile = || prop::sample::select(PROFILES.to_vec());
    let mishaps = (0.0..0.03, 0.0..0.1, 0_u64..30, 0.0..0.2, 0_u64..800);
    let blackout = prop::option::weighted(0.2, (1_000_u64..15_000, 0_u64..40_000));
    (any::<u64>(), profile(), profile(), plans(20_000), moves, any::<bool>(), mishaps, blackout).prop_map(
        move |(seed, ends, nodes, plans, moves, is_told, mishaps, blackout)| {
            let (loss, duplicate, jitter_ms, control_loss, control_jitter_ms) = mishaps;
            let blackout_ms = blackout.map_or((0, 0), |(from, len)| (from, from + len));
            Setup {
                station,
                seed,
                ends,
                nodes,
                plans,
                moves,
                is_told,
                loss,
                duplicate,
                jitter_ms,
                control_loss,
                control_jitter_ms,
                blackout_ms,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Each byte that is read is the one that was written, whatever happens. Connections that neither end aborts are completed, in bounded
    /// time, unless a handoff has met them in their handshake. Control messages and buffers are bounded.
    // Claim: Over random moves between base stations of I-TCP with many connections, opened and closed or reset at any moment by either end, with four
    // profiles at the ends and at the nodes, losses, duplicates and delays of packets and of up to 20 % of the control messages, routes that lag by up
    // to 5 s, late reports or none, and times without any control message: every byte that arrives is the right one, and every connection
    // that was established before a move and is not reset by its ends is completed.
    #[test]
    fn many_connections_move_without_losing_a_byte(setup in setup(Station::ITcp)) {
        move_many(setup)?;
    }

    /// The same with supervisor hosts of M-TCP.
    // Claim: Over the same random moves between supervisor hosts of M-TCP every byte that arrives is the right one, and every connection that was
    // established before a move and is not reset by its ends is completed.
    #[test]
    fn many_connections_move_between_supervisor_hosts(setup in setup(Station::MTcp)) {
        move_many(setup)?;
    }

    /// The same with base stations of BUFFER-FREEZE, BUFFER and FREEZE, also with many short visits to two of them.
    // Claim: Over the same random moves between base stations of BUFFER-FREEZE, BUFFER or FREEZE, and over moves back and forth after 20 to 400 ms,
    // every byte that arrives is the right one, every connection that is not reset by its ends is completed, and in the end the base station where
    // the mobile host is serves it, and no other.
    #[test]
    fn many_connections_move_between_base_stations_with_copies(setup in with_short_visits(VARIANTS)) {
        move_many(setup)?;
    }
}

const VARIANTS: [Station; 3] = [
    Station::BufferFreeze { buffers: true, freezes: true },
    Station::BufferFreeze { buffers: true, freezes: false },
    Station::BufferFreeze { buffers: false, freezes: true },
];

fn with_short_visits(stations: [Station; 3]) -> impl Strategy<Value = Setup> {
    let visits = prop::collection::vec((20_u64..400, 0_u64..200, 0_u64..300, [0_u64..200, 0_u64..200]), 2..20);
    (setup(Station::ITcp), prop::sample::select(stations.to_vec()), prop::option::of(visits)).prop_map(
        |(setup, station, visits)| {
            let moves = visits.map_or(setup.moves.clone(), |visits| {
                let mut at = 500;
                let moves = visits.into_iter().zip([1, 0].into_iter().cycle());
                let moves = moves.map(|((stay, gap, route_lag_ms, report_lags_ms), to)| {
                    let leaves_ms = at + stay;
                    at = leaves_ms + gap;
                    Move { leaves_ms, arrives_ms: at, to, route_lag_ms, report_lags_ms }
                });
                moves.collect()
            });
            Setup { station, moves, ..setup }
        },
    )
}

fn move_many(setup: Setup) -> Result<(), TestCaseError> {
    let last = setup.moves.last().map_or(0, |last| last.arrives_ms).max(setup.blackout_ms.1).max(20_000);
    let mut world = World::new(setup.clone());
    world.run(at_ms(last + 600_000));
    let total: usize = setup.plans.iter().map(|plan| plan.bytes[0] + plan.bytes[1] + 2_000).sum();
    for (index, link) in world.links.iter().enumerate() {
        if link.is_over_early() {
            continue;
        }
        prop_assert!(link.is_complete(), "{index} at {}: {link:?}, {:?}", world.now, world.actions);
    }
    // Each handoff may move all that is buffered; repetitions at most triple it.
    let most = (setup.moves.len() + 4) * 6 * total + 400_000;
    prop_assert!(world.control_bytes < most, "{} control bytes of at most {most}", world.control_bytes);
    prop_assert!(world.most_stored < 6 * total as u64 + 500_000, "{} bytes stored for {total}", world.most_stored);
    if let Station::BufferFreeze { buffers, .. } = setup.station {
        let owners = world.settle();
        prop_assert!(!buffers || owners == [world.last], "{owners:?} at {}, {:?}", world.last, world.actions);
        return Ok(());
    }
    // Nothing is kept for ever.
    if setup.plans.iter().all(|plan| plan.abort.is_none()) && world.links.iter().all(Link::is_complete) {
        let end = world.now + Duration::from_secs(3_000);
        while world.step(end) {}
        for chain in &world.chains {
            let stored = chain.stored();
            prop_assert_eq!((stored.bytes, stored.connections), (0, 0));
        }
    }
    Ok(())
}
