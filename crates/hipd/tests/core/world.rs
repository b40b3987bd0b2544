//! Two hosts, and a network that loses, duplicates and reorders their packets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant, Rng};
use holdover_hip::PredictableRng;
use holdover_hip::identity::{Algorithm, Hit, KeyPair};
use holdover_hipd::core::{Core, CoreConfig, KernelSockets, LsiPrefix, Note, PORT};
use holdover_hipd::files::{Peer, Peers, Via};
use holdover_wire::{Checksums, Packet, Payload, Udp};

/// Far more steps than any scenario here needs.
const MAX_STEPS: usize = 200_000;

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// When the next packet arrives or the next deadline of a host passes, and whether it is a packet; `None` if neither is before `end`.
pub(crate) fn next_step(
    flying: &BTreeMap<(Instant, u64), Packet>,
    deadlines: impl Iterator<Item = Instant>,
    now: Instant,
    end: Instant,
) -> Option<(Instant, bool)> {
    let arrival = flying.keys().next().map(|(at, _)| *at);
    let deadline = deadlines.min().map(|at| at.max(now));
    let next = arrival.into_iter().chain(deadline).min().filter(|next| *next < end)?;
    Some((next, arrival == Some(next)))
}

fn key(index: usize) -> KeyPair {
    KeyPair::generate(Algorithm::Ed25519, &mut PredictableRng::new(Rng::new(77 + index as u64)))
}

pub(crate) struct World {
    pub(crate) now: Instant,
    /// How far each host's clock is ahead of the world's.
    pub(crate) ahead: [Duration; 2],
    pub(crate) hosts: Vec<Core>,
    pub(crate) places: Vec<Vec<IpAddr>>,
    /// Whether each host has the other one in its file of peers.
    pub(crate) knows: [bool; 2],
    pub(crate) via: Via,
    pub(crate) delay: Duration,
    pub(crate) jitter: Duration,
    pub(crate) loss: f64,
    pub(crate) duplication: f64,
    rng: Rng,
    starts: u64,
    flying: BTreeMap<(Instant, u64), Packet>,
    count: u64,
    /// All packets sent into the network.
    pub(crate) sent: Vec<Packet>,
    /// Packets for the programs of each host.
    pub(crate) got: [Vec<Packet>; 2],
    pub(crate) notes: Vec<(Instant, usize, Note)>,
    /// The translator between host 0 and the network.
    pub(crate) translator: Option<Translator>,
    /// Pairs of addresses between which nothing arrives.
    pub(crate) dead: Vec<[IpAddr; 2]>,
}

/// A translator of addresses and ports: endpoint-independent mapping, and no filtering (RFC 4787).
#[derive(Clone, Copy)]
pub(crate) struct Translator {
    pub(crate) outside: IpAddr,
    pub(crate) port: u16,
}

impl World {
    pub(crate) fn new(seed: u64, via: Via, knows: [bool; 2]) -> Self {
        let mut world = Self {
            now: Instant::from_secs(1000),
            ahead: [Duration::ZERO; 2],
            hosts: Vec::new(),
            places: vec![vec![address("192.0.2.1")], vec![address("198.51.100.2")]],
            knows,
            via,
            delay: Duration::from_millis(50),
            jitter: Duration::ZERO,
            loss: 0.0,
            duplication: 0.0,
            rng: Rng::split(seed, "network"),
            starts: 0,
            flying: BTreeMap::new(),
            count: 0,
            sent: Vec::new(),
            got: [Vec::new(), Vec::new()],
            notes: Vec::new(),
            translator: None,
            dead: Vec::new(),
        };
        for index in 0..2 {
            let host = world.fresh(index);
            world.hosts.push(host);
        }
        for index in 0..2 {
            world.introduce(index);
        }
        world.collect();
        world
    }

    fn fresh(&mut self, index: usize) -> Core {
        let r1_counter = 2 + self.starts;
        self.fresh_with(index, r1_counter)
    }

    fn fresh_with(&mut self, index: usize, r1_counter: u64) -> Core {
        self.starts += 1;
        let mut config = CoreConfig::default();
        config.host.r1_counter = r1_counter;
        Core::new(key(index), config, Box::new(PredictableRng::new(Rng::new(self.starts * 1000 + index as u64))))
    }

    fn clock(&self, index: usize) -> Instant {
        self.now + self.ahead[index]
    }

    pub(crate) fn hit(&self, index: usize) -> Hit {
        self.hosts[index].hit()
    }

    pub(crate) fn peers(&self, index: usize) -> Peers {
        let mut peers = Peers::default();
        if self.knows[index] {
            // In the file of peers: the other host's address at the start.
            let places = [address("192.0.2.1"), address("198.51.100.2")];
            let peer = Peer::new("peer", key(1 - index).hit(), vec![places[1 - index]], self.via);
            peers.add(peer.unwrap()).unwrap();
        }
        peers
    }

    fn introduce(&mut self, index: usize) {
        let peers = self.peers(index);
        self.hosts[index].set_peers(self.now, &peers);
        let places = self.places[index].clone();
        self.hosts[index].set_locators(self.now, &places);
    }

    /// Restarts the daemon with only its key and its file of peers.
    pub(crate) fn restart(&mut self, index: usize) {
        self.hosts[index] = self.fresh(index);
        self.introduce(index);
        self.collect();
    }

    /// The same with this first counter of its puzzles.
    pub(crate) fn restart_with(&mut self, index: usize, r1_counter: u64) {
        self.hosts[index] = self.fresh_with(index, r1_counter);
        self.introduce(index);
        self.collect();
    }

    /// Lets a host's programs use IPv4, with these sockets.
    pub(crate) fn use_lsis(&mut self, index: usize, sockets: impl KernelSockets + 'static) {
        let peers = self.peers(index);
        self.hosts[index].use_lsis(LsiPrefix::default(), Box::new(sockets));
        self.hosts[index].set_peers(self.now, &peers);
    }

    /// Sends a program's packet from a host.
    pub(crate) fn send_packet(&mut self, from: usize, packet: &Packet) {
        // As bytes, which a TUN device delivers.
        let packet = Packet::parse_to_forward(packet.emit().unwrap(), Checksums::Verify).unwrap();
        self.hosts[from].handle_inner(self.now, packet);
        self.collect();
    }

    pub(crate) fn move_to(&mut self, index: usize, places: &[&str]) {
        self.places[index] = places.iter().map(|place| address(place)).collect();
        let places = self.places[index].clone();
        let now = self.clock(index);
        self.hosts[index].set_locators(now, &places);
        self.collect();
    }

    /// Sends a program's datagram with this number.
    pub(crate) fn send(&mut self, from: usize, number: u64) -> Packet {
        let (src, dst) = (self.hit(from), self.hit(1 - from));
        let payload = Bytes::copy_from_slice(&number.to_be_bytes());
        let packet = Packet::new(src.0.into(), dst.0.into(), Udp { src_port: 1000, dst_port: 2000, payload });
        let now = self.clock(from);
        self.hosts[from].handle_inner(now, packet.clone());
        self.collect();
        packet
    }

    /// The numbers that a host's programs have received.
    pub(crate) fn numbers(&self, at: usize) -> Vec<u64> {
        let number = |packet: &Packet| match &packet.payload {
            Payload::Udp(udp) => Some(u64::from_be_bytes(udp.payload[..].try_into().ok()?)),
            _ => None,
        };
        self.got[at].iter().filter_map(number).collect()
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.collect();
        for _ in 0..MAX_STEPS {
            let deadlines = self.hosts.iter().zip(self.ahead);
            let deadlines =
                deadlines.filter_map(|(host, ahead)| Some(host.poll_timeout()?.max(self.now + ahead) - ahead));
            let Some((next, is_arrival)) = next_step(&self.flying, deadlines, self.now, end) else {
                self.now = end;
                return;
            };
            self.now = next;
            if is_arrival {
                let (_, packet) = self.flying.pop_first().unwrap();
                self.deliver(packet);
            } else {
                for (host, ahead) in self.hosts.iter_mut().zip(self.ahead) {
                    host.handle_timeout(next + ahead);
                }
            }
            self.collect();
        }
        panic!("livelock at {:?}", self.now);
    }

    /// Moves host 0 to these addresses, behind another translator.
    pub(crate) fn move_behind(&mut self, translator: Translator, places: &[&str]) {
        self.translator = Some(translator);
        self.move_to(0, places);
    }

    pub(crate) fn deliver(&mut self, mut packet: Packet) {
        if let Some(Translator { outside, port }) = self.translator
            && packet.dst == outside
        {
            let Payload::Udp(udp) = &mut packet.payload else { return };
            if udp.dst_port != port {
                return;
            }
            let Some(&inside) = self.places[0].first() else { return };
            (packet.dst, udp.dst_port) = (inside, PORT);
        }
        if let Some(index) = self.places.iter().position(|places| places.contains(&packet.dst)) {
            // As bytes, which cross a network.
            let packet = Packet::parse(packet.emit().unwrap()).unwrap();
            let now = self.clock(index);
            self.hosts[index].handle_network(now, packet);
        }
    }

    fn collect(&mut self) {
        for index in 0..self.hosts.len() {
            while let Some(packet) = self.hosts[index].poll_network() {
                self.sent.push(packet.clone());
                if self.places[index].contains(&packet.src) {
                    self.leave(index, packet);
                }
            }
            while let Some(packet) = self.hosts[index].poll_inner() {
                self.got[index].push(packet);
            }
            while let Some(note) = self.hosts[index].poll_note() {
                self.notes.push((self.now, index, note));
            }
        }
    }

    /// A packet leaves a host, through its translator if there is one.
    fn leave(&mut self, index: usize, mut packet: Packet) {
        if let Some(Translator { outside, port }) = self.translator.filter(|_| index == 0) {
            let Payload::Udp(udp) = &mut packet.payload else { return };
            (packet.src, udp.src_port) = (outside, port);
        } else if packet.dst.to_string().starts_with("192.168.") {
            return;
        }
        self.carry(packet);
    }

    fn carry(&mut self, packet: Packet) {
        if self.dead.iter().any(|pair| pair.contains(&packet.src) && pair.contains(&packet.dst)) {
            return;
        }
        let copies = if self.rng.chance(self.duplication) { 2 } else { 1 };
        for _ in 0..copies {
            if !self.rng.chance(self.loss) {
                let jitter = Duration::from_nanos(self.rng.below(self.jitter.as_nanos() + 1));
                self.count += 1;
                self.flying.insert((self.now + self.delay + jitter, self.count), packet.clone());
            }
        }
    }
}

/// An option of MPTCP (RFC 8684), which `wire` does not know.
pub(crate) const UNKNOWN_OPTION: [u8; 12] = [30, 12, 0, 0x81, 1, 2, 3, 4, 5, 6, 7, 8];

/// A packet of TCP as it comes from a program that uses [`UNKNOWN_OPTION`].
pub(crate) fn with_unknown_option(packet: &Packet) -> Packet {
    let start = packet.ip_header_len();
    let mut bytes = packet.emit().unwrap().to_vec();
    bytes.splice(start + 20..start + 20, UNKNOWN_OPTION);
    bytes[start + 12] += (UNKNOWN_OPTION.len() as u8 / 4) << 4;
    let (at, len) = if packet.dst.is_ipv4() { (2, bytes.len()) } else { (4, bytes.len() - 40) };
    bytes[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
    // Fills in the checksums.
    let bytes = Packet::parse_to_forward(bytes.into(), Checksums::Ignore).unwrap().emit().unwrap();
    Packet::parse_to_forward(bytes, Checksums::Verify).unwrap()
}

/// Whether a packet is emitted with that option and right checksums.
pub(crate) fn has_unknown_option(packet: &Packet) -> bool {
    let bytes = packet.emit().unwrap();
    Packet::parse(bytes.clone()).is_ok() && bytes[packet.ip_header_len() + 20..].starts_with(&UNKNOWN_OPTION)
}
