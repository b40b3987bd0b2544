//! Two endpoints with many connections at once, over a bad path: every exchange arrives whole, ports and addresses are reused,
//! and at the end no state is left.

use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::sync::Arc;

use holdover_base::{Duration, Instant, Rng};
use holdover_tcp::{Config, ConnectError, Connection, ConnectionId, Endpoint, EndpointConfig, Event, State};
use holdover_wire::Packet;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::properties::cases;
use crate::stacks::{Stack, stacks};
use crate::world::stream_byte;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];
const PORT: u16 = 80;
/// From this time on nothing is lost.
const SOUND_FROM: Instant = Instant::from_secs(20);
/// Every exchange that was not aborted is complete by then: SYNs, data and FINs are retransmitted after 64 s at the latest, in
/// both directions one after the other; and a SYN may have to wait for the end of a previous connection, and for room in the
/// backlog.
const OVER_BY: Instant = Instant::from_secs(2_000);

/// An exchange: the client sends so many bytes, the server answers with so many, and one of them closes first.
#[derive(Clone, Debug)]
struct Exchange {
    at_ms: u64,
    /// One of a few ports, so that addresses are reused, or any.
    local_port: Option<u16>,
    request: usize,
    answer: usize,
    server_closes_first: bool,
    /// The request is in the SYN, if there is a cookie for it (RFC 7413).
    fast_open: bool,
    /// The client aborts after this time.
    abort_after_ms: Option<u64>,
}

#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    client: Stack,
    server: Stack,
    backlog: usize,
    /// How many connections may be early at the server, and whether both sides work without cookies.
    early: u32,
    without_cookies: bool,
    loss: f64,
    duplicate: f64,
    jitter_ms: u64,
    exchanges: Vec<Exchange>,
}

fn plans() -> impl Strategy<Value = Plan> {
    let exchange = (
        0_u64..10_000,
        option::of(1000_u16..1003),
        4_usize..3000,
        4_usize..3000,
        any::<bool>(),
        any::<bool>(),
        option::weighted(0.2, 0_u64..3000),
    )
        .prop_map(|(at_ms, local_port, request, answer, server_closes_first, fast_open, abort_after_ms)| Exchange {
            at_ms,
            local_port,
            request,
            answer,
            server_closes_first,
            fast_open,
            abort_after_ms,
        });
    let chances = (0.0..0.2, 0.0..0.2);
    let rooms = (1_usize..5, 0_u32..5, any::<bool>());
    (any::<u64>(), stacks(), stacks(), rooms, chances, 0_u64..100, vec(exchange, 1..40)).prop_map(
        |(seed, client, server, (backlog, early, without_cookies), (loss, duplicate), jitter_ms, exchanges)| Plan {
            seed,
            client,
            server,
            backlog,
            early,
            without_cookies,
            loss,
            duplicate,
            jitter_ms,
            exchanges,
        },
    )
}

proptest! {
    #![proptest_config(cases(200))]

    // Claim: Many connections of two endpoints, opened with and without data in their SYNs, used, aborted and released at random,
    // leave no state. (200 cases)
    #[test]
    fn many_exchanges_leave_nothing_behind(plan in plans()) {
        let mut world = World::new(&plan);
        world.run(&plan);
        world.judge();
        world.clear_up();
    }
}

/// One side of an exchange.
#[derive(Default, Debug)]
struct Talk {
    read: Vec<u8>,
    written: usize,
    peer_closed: bool,
    closed: bool,
    /// The number of the exchange: the client has it from the start, the server reads it from the request's first bytes.
    number: Option<usize>,
}

/// Result of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Outcome {
    opened: bool,
    aborted: bool,
    request_arrived: bool,
    answer_arrived: bool,
}

struct World {
    now: Instant,
    rng: Rng,
    hosts: [Endpoint; 2],
    talks: [BTreeMap<ConnectionId, Talk>; 2],
    in_flight: BTreeMap<(Instant, u64), (usize, Packet)>,
    packets: u64,
    exchanges: Vec<Exchange>,
    aborts: Vec<(Instant, ConnectionId)>,
    outcomes: Vec<Outcome>,
    client_config: Arc<Config>,
    backlog: usize,
    early: usize,
    loss: f64,
    duplicate: f64,
    jitter: Duration,
}

/// The byte at `position` of a message of exchange `number`, which begins with the number.
fn message_byte(number: usize, position: usize) -> u8 {
    (number as u32).to_be_bytes().get(position).copied().unwrap_or_else(|| stream_byte(position))
}

/// Whether the server's application has the connection before its handshake is complete.
fn is_early(connection: &Connection) -> bool {
    connection.state() == State::SynReceived && connection.was_early()
}

impl World {
    fn new(plan: &Plan) -> Self {
        let host = |address: [u8; 4]| {
            Endpoint::new(EndpointConfig { addresses: vec![address.into()], secret: [address[3]; 16] })
        };
        let mut hosts = [host(CLIENT), host(SERVER)];
        let config = |stack: &Stack| {
            let mut config = stack.config();
            // Probes to a peer that was reset without our knowledge come at this interval at most.
            config.rto.max = config.rto.max.min(Duration::from_secs(64));
            config.limits.time_wait = Duration::from_secs(10);
            config.fast_open.max_pending = plan.early;
            config.fast_open.takes_without_cookie = plan.without_cookies;
            config.fast_open.sends_without_cookie = plan.without_cookies;
            Arc::new(config)
        };
        hosts[1].listen(PORT, config(&plan.server), plan.backlog).unwrap();
        let mut exchanges = plan.exchanges.clone();
        exchanges.sort_by_key(|exchange| core::cmp::Reverse(exchange.at_ms));
        Self {
            now: Instant::ZERO,
            rng: Rng::new(plan.seed),
            hosts,
            talks: [BTreeMap::new(), BTreeMap::new()],
            in_flight: BTreeMap::new(),
            packets: 0,
            outcomes: vec![Outcome::default(); exchanges.len()],
            exchanges,
            aborts: Vec::new(),
            client_config: config(&plan.client),
            backlog: plan.backlog,
            early: plan.early as usize,
            loss: plan.loss,
            duplicate: plan.duplicate,
            jitter: Duration::from_millis(plan.jitter_ms),
        }
    }

    fn run(&mut self, plan: &Plan) {
        let mut to_come: Vec<usize> = (0..self.exchanges.len()).collect();
        for _ in 0..200_000 {
            let opens = to_come.last().map(|&number| Instant::from_millis(self.exchanges[number].at_ms));
            if opens.is_some_and(|at| at <= self.now) {
                self.open(to_come.pop().unwrap());
            }
            self.break_off();
            (0..2).for_each(|host| self.work(host));
            let opens = to_come.last().map(|&number| Instant::from_millis(self.exchanges[number].at_ms));
            let aborts = self.aborts.iter().map(|(at, _)| *at).min();
            let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
            let deadlines = self.hosts.iter().filter_map(Endpoint::poll_timeout);
            let next = deadlines.chain(opens).chain(aborts).chain(arrival).min();
            let Some(next) = next.filter(|&next| next <= OVER_BY) else { return };
            self.now = self.now.max(next);
            self.deliver();
            let now = self.now;
            self.hosts.iter_mut().for_each(|host| host.handle_timeout(now));
        }
        panic!("livelock at {} of {plan:?}", self.now);
    }

    fn open(&mut self, number: usize) {
        let exchange = self.exchanges[number].clone();
        let local = exchange.local_port.map(|port| SocketAddr::from((CLIENT, port)));
        let config = Arc::clone(&self.client_config);
        let remote = (SERVER, PORT).into();
        let opened = if exchange.fast_open {
            let request: Vec<u8> = (0..exchange.request).map(|n| message_byte(number, n)).collect();
            self.hosts[0].connect_fast_open(self.now, config, local, remote, request.into())
        } else {
            self.hosts[0].connect(self.now, config, local, remote).map(|id| (id, 0))
        };
        match opened {
            Ok((id, written)) => {
                self.outcomes[number].opened = true;
                self.talks[0].insert(id, Talk { number: Some(number), written, ..Talk::default() });
                if let Some(after) = exchange.abort_after_ms {
                    self.aborts.push((self.now + Duration::from_millis(after), id));
                    self.outcomes[number].aborted = true;
                }
            }
            Err(error) => assert!(matches!(error, ConnectError::InUse { .. }), "{error}"),
        }
    }

    fn break_off(&mut self) {
        let now = self.now;
        let hosts = &mut self.hosts;
        self.aborts.retain(|&(at, id)| {
            if at <= now
                && let Some(connection) = hosts[0].connection_mut(id)
            {
                connection.abort();
            }
            at > now
        });
    }

    /// The applications' turn, then all transmissions.
    fn work(&mut self, host: usize) {
        while let Some((id, event)) = self.hosts[host].poll_event() {
            let talk = self.talks[host].entry(id).or_default();
            talk.peer_closed |= event == Event::PeerClosed;
        }
        let ids: Vec<ConnectionId> = self.talks[host].keys().copied().collect();
        for id in ids {
            self.talk(host, id);
        }
        while let Some(outgoing) = self.hosts[host].poll_transmit(self.now) {
            self.send(host, outgoing.packet);
        }
        let endpoint = &self.hosts[host];
        endpoint.assert_invariants();
        let half_open = |c: &Connection| c.is_passive() && c.state() == State::SynReceived;
        let count = |early| endpoint.connections().filter(|(_, c)| half_open(c) && c.was_early() == early).count();
        assert!(count(false) <= self.backlog, "the backlog is exceeded");
        assert!(count(true) <= self.early, "more are early than may be");
    }

    fn talk(&mut self, host: usize, id: ConnectionId) {
        let now = self.now;
        let talk = self.talks[host].get_mut(&id).expect("it is in the list");
        // Mutable access causes work: a connection is accessed only if there is something to do.
        let Some(seen) = self.hosts[host].connection(id) else {
            self.talks[host].remove(&id);
            return;
        };
        let (readable, closed) = (seen.readable_len() > 0, seen.is_closed());
        let may_write =
            seen.write_room() > 0 && (matches!(seen.state(), State::Established | State::CloseWait) || is_early(seen));
        if readable && let Some(connection) = self.hosts[host].connection_mut(id) {
            core::iter::from_fn(|| connection.read(now)).for_each(|chunk| talk.read.extend_from_slice(&chunk));
        }
        if talk.number.is_none() && talk.read.len() >= 4 {
            talk.number = Some(u32::from_be_bytes(talk.read[..4].try_into().unwrap()) as usize);
        }
        let Some(number) = talk.number else { return };
        let exchange = &self.exchanges[number];
        let (to_write, to_read) =
            if host == 0 { (exchange.request, exchange.answer) } else { (exchange.answer, exchange.request) };
        let has_all = talk.read.len() == to_read;
        let closes_first = (host == 1) == exchange.server_closes_first;
        let wants_to_close = talk.written == to_write && has_all && (closes_first || talk.peer_closed);
        if may_write
            && (talk.written < to_write || wants_to_close && !talk.closed)
            && let Some(connection) = self.hosts[host].connection_mut(id)
        {
            let rest: Vec<u8> = (talk.written..to_write).map(|n| message_byte(number, n)).collect();
            talk.written += connection.write(now, rest.into());
            if wants_to_close {
                connection.shutdown_write();
                talk.closed = true;
            }
        }
        if has_all {
            let exact = talk.read.iter().enumerate().all(|(n, &byte)| byte == message_byte(number, n));
            assert!(exact, "host {host} has read something else in exchange {number}");
            let outcome = &mut self.outcomes[number];
            *(if host == 0 { &mut outcome.answer_arrived } else { &mut outcome.request_arrived }) = true;
        }
        assert!(talk.read.len() <= to_read, "too much was read");
        if closed {
            self.hosts[host].release(id).expect("it is closed");
            self.talks[host].remove(&id);
        }
    }

    fn send(&mut self, from: usize, packet: Packet) {
        let sound = self.now >= SOUND_FROM;
        let (lost, twice) = (self.rng.chance(self.loss), self.rng.chance(self.duplicate));
        if lost && !sound {
            return;
        }
        for _ in 0..=u8::from(twice && !sound) {
            self.packets += 1;
            let at =
                self.now + Duration::from_millis(10) + Duration::from_nanos(self.rng.below(self.jitter.as_nanos()));
            self.in_flight.insert((at, self.packets), (1 - from, packet.clone()));
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (to, packet) = entry.remove();
            self.hosts[to].handle_packet(self.now, &packet);
            self.hosts[to].assert_invariants();
        }
    }

    fn judge(&self) {
        for (number, outcome) in self.outcomes.iter().enumerate() {
            if outcome.opened && !outcome.aborted {
                let seen = |host: usize| {
                    let of = |(id, talk): (&ConnectionId, &Talk)| {
                        (talk.number == Some(number))
                            .then(|| self.hosts[host].connection(*id).map(|c| (c.state(), c.error())))
                    };
                    self.talks[host].iter().find_map(of)
                };
                assert!(
                    outcome.request_arrived && outcome.answer_arrived,
                    "exchange {number} of {:?}: {outcome:?}, {:?}, {:?}",
                    self.exchanges[number],
                    seen(0),
                    seen(1)
                );
            }
        }
    }

    /// The remaining exchanges were aborted, and one side did not learn of it.
    fn clear_up(&mut self) {
        for host in &mut self.hosts {
            let ids: Vec<ConnectionId> = host.connections().map(|(id, _)| id).collect();
            for id in ids {
                host.connection_mut(id).unwrap().abort();
                while host.poll_transmit(self.now).is_some() {}
                host.release(id);
            }
            assert_eq!(host.connections().count(), 0);
            host.assert_invariants();
        }
    }
}
