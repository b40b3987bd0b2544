//! Hosts, a server, and the network between them. All can be copied.

use std::collections::{BTreeMap, BTreeSet};

use core::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use holdover_base::{Duration, Instant, Rng};
use holdover_wire::{Packet, Payload, Udp};

use crate::PredictableRng;
use crate::host::{DataError, Event, Host, HostConfig, Relayed, Service, State};
use crate::identity::{Algorithm, Hit, KeyPair};

/// The initiator, its peer, their server, and a host that no other host knows.
pub(super) const ANNE: usize = 0;
pub(super) const BOB: usize = 1;
pub(super) const SERVER: usize = 2;
pub(super) const STRANGER: usize = 3;
pub(super) const HOSTS: usize = 4;

/// The time that every packet takes.
const DELAY: Duration = Duration::from_millis(10);
/// Steps without an operation; far more than any case needs.
const MAX_STEPS: usize = 50_000;
/// HIP's port in UDP.
const PORT: u16 = 10_500;

/// A packet in flight, and the host that has sent or forwarded it.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) from: usize,
    pub(super) packet: Packet,
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) hosts: Vec<Host>,
    pub(super) places: Vec<Vec<IpAddr>>,
    /// All addresses that a host has had.
    pub(super) owners: BTreeMap<IpAddr, usize>,
    pub(super) is_in_udp: bool,
    flying: BTreeMap<(Instant, u64), Flight>,
    count: u64,
    /// Datagrams of programs: sender and receiver by number, and those that have arrived.
    sent: Vec<(usize, usize)>,
    arrived: BTreeSet<u64>,
    /// The network is down.
    pub(super) is_dead: bool,
    /// Packets to addresses that no host has had, and the bytes of ESP among them.
    pub(super) to_nobody: (usize, usize),
    /// Bytes of ESP that hosts have accepted.
    pub(super) accepted_bytes: usize,
    /// Every packet that was delivered, if this is a rehearsal.
    pub(super) recording: Option<Vec<(World, Flight)>>,
}

/// A host's first address.
pub(super) fn home(index: usize) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, index as u8 + 1).into()
}

/// An address that a host moves to.
pub(super) fn elsewhere(index: usize) -> IpAddr {
    Ipv4Addr::new(198, 51, 100, index as u8 + 1).into()
}

impl World {
    pub(super) fn new(seed: u64, config: impl Fn(usize) -> HostConfig, algorithm: Algorithm) -> Self {
        let host = |index: usize| {
            let rng = |salt: u64| PredictableRng::new(Rng::new(seed * 1000 + salt + index as u64));
            Host::for_simulation(KeyPair::generate(algorithm, &mut rng(100)), config(index), Box::new(rng(200)))
        };
        let mut world = Self {
            now: Instant::from_secs(1000),
            hosts: (0..HOSTS).map(host).collect(),
            places: (0..HOSTS).map(|index| vec![home(index)]).collect(),
            owners: (0..HOSTS).map(|index| (home(index), index)).collect(),
            is_in_udp: false,
            flying: BTreeMap::new(),
            count: 0,
            sent: Vec::new(),
            arrived: BTreeSet::new(),
            is_dead: false,
            to_nobody: (0, 0),
            accepted_bytes: 0,
            recording: None,
        };
        for index in 0..HOSTS {
            let place = world.places[index].clone();
            world.hosts[index].set_locators(world.now, &place);
        }
        world
    }

    /// A copy that continues by itself.
    pub(super) fn fork(&self) -> Self {
        let hosts = self.hosts.iter().map(|host| host.fork().expect("a host of a simulation can be copied"));
        Self {
            now: self.now,
            hosts: hosts.collect(),
            places: self.places.clone(),
            owners: self.owners.clone(),
            is_in_udp: self.is_in_udp,
            flying: self.flying.clone(),
            count: self.count,
            sent: self.sent.clone(),
            arrived: self.arrived.clone(),
            is_dead: self.is_dead,
            to_nobody: self.to_nobody,
            accepted_bytes: self.accepted_bytes,
            recording: None,
        }
    }

    pub(super) fn hit(&self, index: usize) -> Hit {
        self.hosts[index].hit()
    }

    pub(super) fn index_of(&self, hit: Hit) -> Option<usize> {
        (0..HOSTS).find(|&index| self.hit(index) == hit)
    }

    /// Whether one host has keys for another one.
    pub(super) fn is_usable(&self, one: usize, other: usize) -> bool {
        matches!(self.hosts[one].state(self.hit(other)), State::R2Sent | State::Established)
            && self.hosts[one].security_associations(self.hit(other)).is_some()
    }

    /// One host knows another one, at its present address.
    pub(super) fn introduce(&mut self, one: usize, other: usize) {
        let (peer, places) = (self.hit(other), self.places[other].clone());
        self.hosts[one].add_peer(peer, &places);
    }

    pub(super) fn connect(&mut self, one: usize, other: usize) {
        let peer = self.hit(other);
        let _ = self.hosts[one].connect(self.now, peer);
        self.collect();
    }

    pub(super) fn register(&mut self, client: usize, services: &[Service]) {
        let server = self.hit(SERVER);
        self.hosts[client].register(self.now, server, services);
        self.connect(client, SERVER);
    }

    pub(super) fn move_to(&mut self, index: usize, places: &[IpAddr]) {
        self.places[index] = places.to_vec();
        self.owners.extend(places.iter().map(|&place| (place, index)));
        self.hosts[index].set_locators(self.now, places);
        self.collect();
    }

    /// A datagram with the next number.
    pub(super) fn send_data(&mut self, from: usize, to: usize) -> Option<u64> {
        let number = self.sent.len() as u64 + 1;
        let payload = Bytes::copy_from_slice(&number.to_be_bytes());
        let (src, dst) = (self.hit(from).0, self.hit(to).0);
        let packet = Packet::new(src.into(), dst.into(), Udp { src_port: 1, dst_port: 2, payload });
        let outer = self.hosts[from].seal(self.now, &packet).ok()?;
        self.sent.push((from, to));
        self.fly(from, outer);
        Some(number)
    }

    pub(super) fn has_arrived(&self, number: u64) -> bool {
        self.arrived.contains(&number)
    }

    /// Puts a packet onto the network.
    pub(super) fn fly(&mut self, from: usize, packet: Packet) {
        if !self.owners.contains_key(&packet.dst) {
            let esp = if let Payload::Esp(esp) = &packet.payload { esp.len() } else { 0 };
            self.to_nobody = (self.to_nobody.0 + 1, self.to_nobody.1 + esp);
        }
        if !self.is_dead {
            self.count += 1;
            self.flying.insert((self.now + DELAY, self.count), Flight { from, packet });
        }
    }

    pub(super) fn cut(&mut self) {
        self.flying.clear();
        self.is_dead = true;
    }

    /// Takes the next packet from the network, at the time at which it would be delivered: deadlines before it have passed.
    pub(super) fn intercept(&mut self) -> Option<Flight> {
        for _ in 0..MAX_STEPS {
            match self.next() {
                Some((next, false)) if !self.flying.is_empty() => self.time_out(next),
                _ => return self.take_first(),
            }
        }
        panic!("livelock at {:?}", self.now);
    }

    fn take_first(&mut self) -> Option<Flight> {
        let ((at, _), flight) = self.flying.pop_first()?;
        self.now = self.now.max(at);
        Some(flight)
    }

    fn time_out(&mut self, at: Instant) {
        self.now = at;
        self.hosts.iter_mut().for_each(|host| host.handle_timeout(at));
        self.collect();
    }

    /// Whether the next thing to happen is the delivery of a packet.
    fn next(&self) -> Option<(Instant, bool)> {
        let arrival = self.flying.keys().next().map(|(at, _)| *at);
        let deadline = self.hosts.iter().filter_map(Host::poll_timeout).min().map(|at| at.max(self.now));
        let next = arrival.into_iter().chain(deadline).min()?;
        Some((next, arrival == Some(next)))
    }

    /// Time passes, until `end`.
    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.collect();
        for _ in 0..MAX_STEPS {
            let Some((next, is_arrival)) = self.next().filter(|(next, _)| *next < end) else {
                self.now = end;
                return;
            };
            if is_arrival {
                let before = self.recording.is_some().then(|| self.fork());
                let Some(flight) = self.take_first() else { return };
                if let (Some(before), Some(recording)) = (before, &mut self.recording) {
                    recording.push((before, flight.clone()));
                }
                self.deliver(&flight.packet);
            } else {
                self.time_out(next);
            }
            self.collect();
        }
        panic!("livelock at {:?}", self.now);
    }

    /// Returns whether the packet is accepted.
    pub(super) fn deliver(&mut self, packet: &Packet) -> bool {
        let Some(to) = self.places.iter().position(|places| places.contains(&packet.dst)) else { return false };
        let is_accepted = match (&packet.payload, self.is_in_udp) {
            (Payload::Esp(_), _) => self.open(to, packet).is_ok() || self.hosts[to].relay(self.now, packet).is_ok(),
            (_, true) => self.hosts[to].handle_packet_in_udp(self.now, packet, PORT).is_ok(),
            (_, false) => self.hosts[to].handle_packet(self.now, packet).is_ok(),
        };
        self.collect();
        is_accepted
    }

    /// Programs receive what programs of the peer have sent to them, once.
    fn open(&mut self, to: usize, packet: &Packet) -> Result<(), DataError> {
        let opened = self.hosts[to].open(self.now, packet)?;
        self.accepted_bytes += packet.wire_len();
        // As the daemon does: a source that was forged, or that a translator has changed, does not last.
        let is_expected = self.hosts[to].is_expected_at(opened.peer, packet.src);
        if self.is_in_udp && opened.is_newest && !is_expected {
            self.hosts[to].follow(self.now, opened.peer, packet.src, false);
        }
        let from = self.index_of(opened.peer).expect("data of a host that does not exist");
        if let Some(inner) = &opened.inner {
            assert_eq!((inner.src, inner.dst), (self.hit(from).0.into(), self.hit(to).0.into()), "{inner}");
        }
        // A liar sends other payloads.
        let Some(Payload::Udp(udp)) = opened.inner.as_ref().map(|inner| &inner.payload) else { return Ok(()) };
        let Some(number) = udp.payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)) else { return Ok(()) };
        if udp.src_port != 1 || udp.payload.len() != size_of::<u64>() {
            return Ok(());
        }
        let sent = number.checked_sub(1).and_then(|index| self.sent.get(index as usize));
        assert_eq!(sent, Some(&(from, to)), "datagram {number} was sent by and to others");
        assert!(self.arrived.insert(number), "datagram {number} arrives twice");
        Ok(())
    }

    /// Packets and events of the hosts.
    pub(super) fn collect(&mut self) {
        for index in 0..HOSTS {
            while let Some(packet) = self.hosts[index].poll_transmit() {
                if self.places[index].contains(&packet.src) {
                    self.fly(index, packet);
                }
            }
            while let Some(Relayed { packet, .. }) = self.hosts[index].poll_relayed() {
                self.fly(index, packet);
            }
            while let Some(event) = self.hosts[index].poll_event() {
                if let Event::Established { peer, .. } | Event::Joined { peer, .. } = event {
                    let other = self.index_of(peer).expect("an association with a host that does not exist");
                    assert!(index != STRANGER && other != STRANGER, "the stranger is let in");
                }
            }
        }
    }
}
