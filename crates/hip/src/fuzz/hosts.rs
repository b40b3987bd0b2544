//! Two hosts, whose owners and network follow the bytes: connect, move, change keys, close and invite; deliver, lose, repeat, damage and
//! replay packets, or make up parameters.

use std::collections::{BTreeSet, VecDeque};

use core::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use holdover_base::{Duration, Instant, Rng};
use holdover_wire::{Packet, Payload, Udp};

use super::with_checksum_between;
use crate::PredictableRng;
use crate::codec::{HipPacket, PROTOCOL, PacketType};
use crate::host::{Event, Host, HostConfig, SECRET_LEN};
use crate::identity::{Algorithm, Hit, KeyPair};

/// Operations in a run; longer input is cut.
const MOST_OPERATIONS: usize = 400;
/// Packets in flight, and those kept for replays.
const MOST_PACKETS: usize = 64;
/// Turns without an operation; far more than any run needs.
const MOST_TURNS: usize = 200_000;
/// After so long without use there is no association, whatever happened before.
const SILENCE: Duration = Duration::from_secs(3 * 3600);

/// Runs the operations in `data`. Nothing panics or runs for ever; programs receive only what programs have sent, each packet once; a host
/// knows no other peer; and after a long silence no keys are left.
pub fn run_hosts(data: &[u8]) {
    let mut world = World::new();
    let mut input = data.iter().copied();
    for _ in 0..MOST_OPERATIONS {
        let Some(operation) = input.next() else { break };
        world.apply(operation, &mut input);
        world.collect();
    }
    world.flying.clear();
    world.run_for(SILENCE);
    for host in &world.hosts {
        assert_eq!(host.inbound_spis(), 0, "keys are left");
        assert!(host.remembered().0 <= 1, "other peers are remembered");
    }
}

struct World {
    now: Instant,
    hosts: [Host; 2],
    places: [Vec<IpAddr>; 2],
    /// With the receiving host.
    flying: VecDeque<(usize, Packet)>,
    history: VecDeque<(usize, Packet)>,
    sent: u64,
    arrived: BTreeSet<u64>,
}

impl World {
    fn new() -> Self {
        let host = |index: u64| {
            let keys = KeyPair::generate(Algorithm::Ed25519, &mut PredictableRng::new(Rng::new(index)));
            let config = HostConfig { accept_unknown_peers: false, ..HostConfig::default() };
            Host::new(keys, config, Box::new(PredictableRng::new(Rng::new(100 + index))))
        };
        let mut world = Self {
            now: Instant::from_secs(1000),
            hosts: [host(0), host(1)],
            places: [vec![place(0, 1)], vec![place(1, 1)]],
            flying: VecDeque::new(),
            history: VecDeque::new(),
            sent: 0,
            arrived: BTreeSet::new(),
        };
        for index in 0..2 {
            let (peer, places) = (world.hosts[1 - index].hit(), world.places.clone());
            world.hosts[index].set_locators(world.now, &places[index]);
            world.hosts[index].add_peer(peer, &places[1 - index]);
        }
        world
    }

    fn peer_of(&self, index: usize) -> Hit {
        self.hosts[1 - index].hit()
    }

    /// The high bit chooses the host, the other bits the operation. Errors of commands are results like others.
    fn apply(&mut self, operation: u8, input: &mut impl Iterator<Item = u8>) {
        let index = usize::from(operation >> 7);
        let (now, peer) = (self.now, self.peer_of(index));
        let mut next = || input.next().unwrap_or_default();
        let host = &mut self.hosts[index];
        match operation & 0x1f {
            0 => drop(host.connect(now, peer)),
            1 => drop(host.close(now, peer)),
            2 => drop(host.rekey(now, peer, next() & 1 == 1)),
            3 => {
                let count = next() % 3;
                self.places[index] = (0..count).map(|_| place(index, next())).collect();
                host.set_locators(now, &self.places[index]);
            }
            4 => drop(host.announce(now, peer)),
            5 => host.add_peer(peer, &[place(1 - index, 1)]),
            6 => host.remove_peer(now, peer),
            7 => host.invite(now, next().into(), secret(next()), now + Duration::from_secs(next().into())),
            8 => host.withdraw(next().into()),
            9 => drop(host.present(now, peer, secret(next()), Bytes::from(vec![next(); 8]))),
            10 | 11 => self.send(index),
            12 => drop(self.flying.pop_front()),
            13 => {
                if let Some(first) = self.flying.front().cloned() {
                    self.flying.push_back(first);
                }
            }
            14 => {
                let damage = [next(), next(), next()];
                if let Some((to, packet)) = self.flying.pop_front() {
                    self.deliver(to, &damaged(&packet, damage));
                }
            }
            15 => {
                let which = usize::from(next());
                if let Some((to, packet)) = self.history.get(which % self.history.len().max(1)).cloned() {
                    self.deliver(to, &packet);
                }
            }
            16 => {
                let (kind, len) = (next(), usize::from(next()));
                let parameters: Vec<u8> = (0..len).map(|_| next()).collect();
                self.make_up(index, kind, &parameters);
            }
            17..=19 => self.run_for(Duration::from_millis(u64::from(next()) * 100)),
            20 => self.run_for(Duration::from_secs(u64::from(next()) * 10)),
            _ => {
                if let Some((to, packet)) = self.flying.pop_front() {
                    self.deliver(to, &packet);
                }
            }
        }
    }

    /// A datagram with the next number.
    fn send(&mut self, from: usize) {
        self.sent += 1;
        let payload = Bytes::copy_from_slice(&self.sent.to_be_bytes());
        let (src, dst) = (self.hosts[from].hit().0, self.peer_of(from).0);
        let packet = Packet::new(src.into(), dst.into(), Udp { src_port: 1, dst_port: 2, payload });
        if let Ok(outer) = self.hosts[from].seal(self.now, &packet) {
            self.fly(1 - from, outer);
        }
    }

    fn fly(&mut self, to: usize, packet: Packet) {
        for packets in [&mut self.flying, &mut self.history] {
            if packets.len() >= MOST_PACKETS {
                packets.pop_front();
            }
            packets.push_back((to, packet.clone()));
        }
    }

    fn deliver(&mut self, to: usize, packet: &Packet) {
        if !self.places[to].contains(&packet.dst) {
            return;
        }
        match &packet.payload {
            Payload::Esp(_) => {
                let Ok(opened) = self.hosts[to].open(self.now, packet) else { return };
                assert_eq!(opened.peer, self.peer_of(to));
                let Some(inner) = opened.inner else { return };
                let Payload::Udp(udp) = &inner.payload else { panic!("nobody has sent {inner}") };
                let number = udp.payload.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                assert!((1..=self.sent).contains(&number), "nobody has sent {number}");
                assert!(self.arrived.insert(number), "{number} arrives twice");
            }
            // A dropped packet has had no effect.
            _ => drop(self.hosts[to].handle_packet(self.now, packet)),
        }
        self.collect();
    }

    /// A packet with these bytes for parameters, as from the peer.
    fn make_up(&mut self, to: usize, kind: u8, parameters: &[u8]) {
        let kind = PacketType::ALL[usize::from(kind) % PacketType::ALL.len()];
        let (Some(&dst), Some(&src)) = (self.places[to].first(), self.places[1 - to].first()) else { return };
        let Ok(empty) = HipPacket::new(kind, self.peer_of(to), self.hosts[to].hit()).emit(src, dst) else { return };
        let Payload::Other { payload, .. } = &empty.payload else { return };
        let mut bytes = [payload, parameters].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes[1] = (bytes.len() / 8 - 1) as u8;
        let payload = Bytes::from(with_checksum_between(src, dst, bytes));
        self.deliver(to, &Packet::new(src, dst, Payload::Other { protocol: PROTOCOL, payload }));
    }

    fn collect(&mut self) {
        for index in 0..2 {
            while let Some(packet) = self.hosts[index].poll_transmit() {
                self.fly(1 - index, packet);
            }
            while self.hosts[index].poll_relayed().is_some() {}
            let peer = self.peer_of(index);
            while let Some(event) = self.hosts[index].poll_event() {
                if let Event::Established { peer: with, .. } | Event::Joined { peer: with, .. } = event {
                    assert_eq!(with, peer, "an association with another host");
                }
            }
        }
    }

    /// Time passes, in which no packet arrives.
    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.collect();
        for _ in 0..MOST_TURNS {
            let next = self.hosts.iter().filter_map(Host::poll_timeout).min().unwrap_or(end).max(self.now);
            if next >= end {
                self.now = end;
                return;
            }
            self.now = next;
            self.hosts.iter_mut().for_each(|host| host.handle_timeout(next));
            self.collect();
        }
        panic!("livelock at {:?}", self.now);
    }
}

fn place(index: usize, number: u8) -> IpAddr {
    let network = if index == 0 { [192, 0, 2] } else { [198, 51, 100] };
    let [a, b, c] = network;
    // Excludes the network's own address and its broadcast address.
    Ipv4Addr::new(a, b, c, number.clamp(1, 254)).into()
}

/// Few secrets, so that guesses succeed at times.
fn secret(number: u8) -> [u8; SECRET_LEN] {
    [number % 4; SECRET_LEN]
}

/// One byte of a HIP packet is another one, with a corrected checksum, or a byte of ESP.
fn damaged(packet: &Packet, [high, low, bits]: [u8; 3]) -> Packet {
    let change = |bytes: &Bytes| {
        let mut bytes = bytes.to_vec();
        let at = usize::from(u16::from_be_bytes([high, low])) % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= bits.max(1);
        }
        bytes
    };
    let payload = match &packet.payload {
        Payload::Other { protocol, payload } => {
            let payload = with_checksum_between(packet.src, packet.dst, change(payload)).into();
            Payload::Other { protocol: *protocol, payload }
        }
        Payload::Esp(esp) => Payload::Esp(change(esp).into()),
        other => other.clone(),
    };
    Packet::new(packet.src, packet.dst, payload)
}
