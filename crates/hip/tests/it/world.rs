//! Hosts, and a network that loses, duplicates and reorders their packets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdover_base::{Duration, Instant, Rng};
use holdover_hip::codec::{HipPacket, PacketType};
use holdover_hip::host::{Dropped, Event, Host, HostConfig, Relayed, ServerConfig, Service, State};
use holdover_hip::identity::{Algorithm, Hit};
use holdover_wire::{Packet, Payload};

use crate::support::{address, key, seeded, value_of};

/// Far more steps than any scenario here needs.
const MAX_STEPS: usize = 200_000;

/// Two, and two servers.
const MAX_HOSTS: usize = 4;

/// The network's treatment of packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub(crate) loss: f64,
    pub(crate) duplication: f64,
    pub(crate) delay: Duration,
    /// Added to the delay, uniformly: packets overtake each other.
    pub(crate) jitter: Duration,
}

impl Network {
    pub(crate) const CLEAN: Self =
        Self { loss: 0.0, duplication: 0.0, delay: Duration::from_millis(50), jitter: Duration::ZERO };
}

/// Changes a packet in flight; `false` loses it.
pub(crate) type Tamper = Box<dyn FnMut(&mut Packet) -> bool>;

pub(crate) struct World {
    pub(crate) now: Instant,
    /// How far each host's clock is ahead of the world's.
    pub(crate) ahead: [Duration; MAX_HOSTS],
    pub(crate) hosts: Vec<Host>,
    /// The addresses of each host.
    pub(crate) places: Vec<Vec<IpAddr>>,
    pub(crate) network: Network,
    /// The delays between each host and the middle of the network, in place of the network's.
    pub(crate) links: Option<Vec<Duration>>,
    rng: Rng,
    flying: BTreeMap<(Instant, u64), Packet>,
    count: u64,
    /// The HIP packets sent: time, host and type.
    pub(crate) sent: Vec<(Instant, usize, PacketType)>,
    /// All packets sent, for replays and captures.
    pub(crate) packets: Vec<(Instant, Packet)>,
    /// The HIP packets forwarded: time, host and packet.
    pub(crate) relayed: Vec<(Instant, usize, HipPacket)>,
    pub(crate) events: Vec<(Instant, usize, Event)>,
    pub(crate) dropped: Vec<(usize, Dropped)>,
    /// A test's manipulation of packets in flight.
    pub(crate) tamper: Option<Tamper>,
    /// Whether owners answer an UPDATE of an association that their host does not have ([`Host::call_back`]).
    pub(crate) calls_back: bool,
    /// Whether packets are carried in UDP, on port 10500 at both ends.
    pub(crate) is_in_udp: bool,
    /// The contents of ESP that crossed the network, with the receiving host.
    pub(crate) got: Vec<(usize, Packet)>,
}

impl World {
    /// Two hosts that know each other's addresses.
    pub(crate) fn pair(seed: u64, network: Network, config: &HostConfig) -> Self {
        Self::with_keys(seed, network, config, [(Algorithm::Ed25519, seed), (Algorithm::Ed25519, seed + 1_000_003)])
    }

    pub(crate) fn with_keys(seed: u64, network: Network, config: &HostConfig, keys: [(Algorithm, u64); 2]) -> Self {
        let hosts = keys.map(|(algorithm, key_seed)| host(algorithm, key_seed, seed, config));
        let mut world = Self {
            now: Instant::from_secs(1000),
            ahead: [Duration::ZERO; MAX_HOSTS],
            hosts: hosts.into(),
            places: vec![vec![address("192.0.2.1")], vec![address("198.51.100.2")]],
            network,
            links: None,
            rng: Rng::split(seed, "network"),
            flying: BTreeMap::new(),
            count: 0,
            sent: Vec::new(),
            packets: Vec::new(),
            relayed: Vec::new(),
            events: Vec::new(),
            dropped: Vec::new(),
            tamper: None,
            calls_back: false,
            is_in_udp: false,
            got: Vec::new(),
        };
        for index in 0..2 {
            world.introduce(index);
        }
        world
    }

    /// Two hosts, and a server that is host 2. Host 1 is its client; host 0 knows only this server for host 1.
    pub(crate) fn with_server(seed: u64, config: &HostConfig, server: &ServerConfig, services: &[Service]) -> Self {
        let mut world = Self::pair(seed, Network::CLEAN, config);
        let serving = HostConfig { server: Some(server.clone()), ..config.clone() };
        world.hosts.push(host(Algorithm::Ed25519, seed + 2_000_003, seed, &serving));
        world.places.push(vec![address("203.0.113.3")]);
        let (now, places) = (world.now, world.places.clone());
        world.hosts[0] = host(Algorithm::Ed25519, seed, seed, config);
        world.hosts[0].set_locators(now, &places[0]);
        let [initiator, client, server] = &mut world.hosts[..] else { panic!("three hosts") };
        server.set_locators(now, &places[2]);
        for other in [&mut *initiator, &mut *client] {
            other.add_peer(server.hit(), &places[2]);
            server.add_peer(other.hit(), &[]);
        }
        client.register(now, server.hit(), services);
        client.connect(now, server.hit()).unwrap();
        initiator.add_peer(client.hit(), &[]);
        initiator.add_servers(client.hit(), &places[2]);
        world.run_for(Duration::from_secs(5));
        world
    }

    fn introduce(&mut self, index: usize) {
        let other = 1 - index;
        let (peer, places) = (self.hit(other), self.places.clone());
        self.hosts[index].set_locators(self.now, &places[index]);
        self.hosts[index].add_peer(peer, &places[other]);
    }

    /// The time on a host's clock.
    pub(crate) fn clock(&self, index: usize) -> Instant {
        self.now + self.ahead[index]
    }

    pub(crate) fn hit(&self, index: usize) -> Hit {
        self.hosts[index].hit()
    }

    pub(crate) fn state(&self, index: usize) -> State {
        self.hosts[index].state(self.hit(1 - index))
    }

    pub(crate) fn connect(&mut self, index: usize) {
        let (now, peer) = (self.clock(index), self.hit(1 - index));
        self.hosts[index].connect(now, peer).unwrap();
        self.collect();
    }

    /// Host 0 opens an association with host 1, wherever that is.
    pub(crate) fn connect_by_server(&mut self) {
        self.connect(0);
        self.run_for(Duration::from_secs(15));
    }

    /// An association between both, established over a network without losses.
    pub(crate) fn established(seed: u64, config: &HostConfig) -> Self {
        let mut world = Self::pair(seed, Network::CLEAN, config);
        world.connect(0);
        world.run_for(Duration::from_secs(20));
        assert_eq!((world.state(0), world.state(1)), (State::Established, State::Established));
        world.forget_history();
        world
    }

    pub(crate) fn forget_history(&mut self) {
        (self.sent, self.packets, self.events, self.dropped) = Default::default();
        (self.relayed, self.got) = Default::default();
    }

    /// Moves a host to other addresses, or to none.
    pub(crate) fn move_to(&mut self, index: usize, places: &[&str]) {
        self.places[index] = places.iter().map(|place| address(place)).collect();
        let (now, places) = (self.clock(index), self.places[index].clone());
        self.hosts[index].set_locators(now, &places);
        self.collect();
    }

    /// The host loses all state but its key, as in a restart.
    pub(crate) fn restart(
        &mut self,
        index: usize,
        algorithm: Algorithm,
        key_seed: u64,
        seed: u64,
        config: &HostConfig,
    ) {
        self.hosts[index] = host(algorithm, key_seed, seed, config);
        self.introduce(index);
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time, |_| false);
    }

    /// Runs until `end`, or until `done`.
    pub(crate) fn run_until(&mut self, end: Instant, done: impl Fn(&Self) -> bool) {
        self.collect();
        for _ in 0..MAX_STEPS {
            if done(self) {
                return;
            }
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            let deadlines = self.hosts.iter().zip(self.ahead);
            let deadlines =
                deadlines.filter_map(|(host, ahead)| Some(host.poll_timeout()?.max(self.now + ahead) - ahead));
            let deadline = deadlines.min();
            let next = arrival.into_iter().chain(deadline).min().unwrap_or(end);
            if next > end {
                self.now = end;
                return;
            }
            if next == end && arrival.is_none() && deadline.is_none() {
                self.now = end;
                return;
            }
            self.now = next;
            if arrival == Some(next) {
                let ((_, _), packet) = self.flying.pop_first().unwrap();
                self.deliver(&packet);
            } else {
                for (host, ahead) in self.hosts.iter_mut().zip(self.ahead) {
                    host.handle_timeout(next + ahead);
                }
            }
            self.collect();
        }
        panic!("livelock at {:?}", self.now);
    }

    pub(crate) fn deliver(&mut self, packet: &Packet) {
        let Some(index) = self.places.iter().position(|places| places.contains(&packet.dst)) else { return };
        let now = self.clock(index);
        match &packet.payload {
            Payload::Esp(_) => {
                let host = &mut self.hosts[index];
                match host.open(now, packet) {
                    Ok(opened) => self.got.extend(opened.inner.map(|inner| (index, value_of(inner)))),
                    Err(_) => _ = host.relay(now, packet),
                }
            }
            _ => {
                let host = &mut self.hosts[index];
                let handled = match self.is_in_udp {
                    true => host.handle_packet_in_udp(now, packet, 10_500),
                    false => host.handle_packet(now, packet),
                };
                if let Err(dropped) = handled {
                    let received = HipPacket::parse(packet).map(|it| it.packet).ok();
                    let update = received.filter(|it| self.calls_back && it.kind == PacketType::Update);
                    if let Some(update) = update.filter(|_| matches!(dropped, Dropped::State { .. })) {
                        let _ = host.call_back(now, update.sender, (packet.dst, packet.src));
                    }
                    self.dropped.push((index, dropped));
                }
            }
        }
    }

    /// Collects the hosts' packets and events.
    pub(crate) fn collect(&mut self) {
        for index in 0..self.hosts.len() {
            while let Some(packet) = self.hosts[index].poll_transmit() {
                if let Ok(received) = HipPacket::parse(&packet) {
                    self.sent.push((self.now, index, received.packet.kind));
                }
                self.packets.push((self.now, packet.clone()));
                if self.places[index].contains(&packet.src) {
                    self.send(packet);
                }
            }
            while let Some(Relayed { packet, .. }) = self.hosts[index].poll_relayed() {
                if let Ok(received) = HipPacket::parse(&packet) {
                    self.relayed.push((self.now, index, received.packet));
                }
                self.send(packet);
            }
            while let Some(event) = self.hosts[index].poll_event() {
                self.events.push((self.now, index, event));
            }
        }
    }

    fn delay(&self, packet: &Packet) -> Duration {
        let Some(links) = &self.links else { return self.network.delay };
        let host = |at: IpAddr| self.places.iter().position(|places| places.contains(&at));
        [packet.src, packet.dst].into_iter().filter_map(host).fold(Duration::ZERO, |sum, index| sum + links[index])
    }

    pub(crate) fn send(&mut self, mut packet: Packet) {
        if self.tamper.as_mut().is_some_and(|tamper| !tamper(&mut packet)) {
            return;
        }
        let copies = if self.rng.chance(self.network.duplication) { 2 } else { 1 };
        for _ in 0..copies {
            if !self.rng.chance(self.network.loss) {
                let jitter = Duration::from_nanos(self.rng.below(self.network.jitter.as_nanos() + 1));
                self.count += 1;
                let at = self.now + self.delay(&packet) + jitter;
                self.flying.insert((at, self.count), packet.clone());
            }
        }
    }

    pub(crate) fn count(&self, index: usize, kind: PacketType) -> usize {
        self.sent.iter().filter(|(_, host, it)| (*host, *it) == (index, kind)).count()
    }

    pub(crate) fn has_event(&self, index: usize, matches: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|(_, host, event)| *host == index && matches(event))
    }

    /// Data from one host to the other: sealed, carried without loss, opened. `Err` names the failed step.
    pub(crate) fn data(&mut self, from: usize) -> Result<(), String> {
        let (src, dst) = (self.hit(from), self.hit(1 - from));
        let payload = Payload::Other { protocol: 253, payload: bytes::Bytes::from_static(b"data") };
        let inner = Packet::new(src.0.into(), dst.0.into(), payload);
        let now = [from, 1 - from].map(|index| self.clock(index));
        let outer = self.hosts[from].seal(now[0], &inner).map_err(|error| format!("not sealed: {error}"))?;
        let to = self.places.iter().position(|places| places.contains(&outer.dst));
        if to != Some(1 - from) {
            return Err(format!("went to {}", outer.dst));
        }
        let opened = self.hosts[1 - from].open(now[1], &outer).map_err(|error| format!("not opened: {error}"))?;
        assert_eq!(opened.inner.map(value_of), Some(inner));
        Ok(())
    }
}

pub(crate) fn host(algorithm: Algorithm, key_seed: u64, seed: u64, config: &HostConfig) -> Host {
    let rng = seeded(seed.wrapping_mul(31).wrapping_add(key_seed));
    Host::new(key(algorithm, key_seed), config.clone(), Box::new(rng))
}

/// Puzzles without cost, for tests of other features.
pub(crate) fn quick() -> HostConfig {
    HostConfig { difficulty: 1, ..HostConfig::default() }
}
