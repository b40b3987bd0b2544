//! Two hosts behind translators of addresses, with a relay that both can reach.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant, Rng};
use holdover_hip::PredictableRng;
use holdover_hip::host::{Event, ServerConfig, State};
use holdover_hip::identity::{Algorithm, KeyPair};
use holdover_hipd::core::{Core, CoreConfig, Note, Outgoing, PORT};
use holdover_hipd::files::{Peer, Peers, Serves, Via};
use holdover_wire::{IcmpError, Packet, Payload, Udp, Unreachable};

use crate::world::{address, next_step};

pub(crate) const RELAY: usize = 2;
const DELAY: Duration = Duration::from_millis(20);

/// A translator's mapping (RFC 4787).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mapping {
    /// One outside port for an inside port.
    Independent,
    /// Another port for each destination.
    Dependent,
}

/// A translator's filtering (RFC 4787 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filtering {
    /// As in Linux: packets from addresses and ports to which the host has sent.
    AddressAndPort,
    /// Packets from any port of addresses to which the host has sent.
    Address,
}

pub(crate) struct Translator {
    outside: IpAddr,
    mapping: Mapping,
    pub(crate) filtering: Filtering,
    /// Outside ports by destination, if they depend on it.
    ports: BTreeMap<(IpAddr, u16), u16>,
    open: BTreeSet<(u16, IpAddr, u16)>,
    next: u16,
}

impl Translator {
    pub(crate) fn new(outside: &str, mapping: Mapping) -> Self {
        let (ports, open) = (BTreeMap::new(), BTreeSet::new());
        let filtering = Filtering::AddressAndPort;
        Self { outside: address(outside), mapping, filtering, ports, open, next: 30_000 }
    }

    fn leave(&mut self, packet: &mut Packet) -> bool {
        let Payload::Udp(udp) = &mut packet.payload else { return false };
        let key = match self.mapping {
            Mapping::Independent => (self.outside, 0),
            Mapping::Dependent => (packet.dst, udp.dst_port),
        };
        let next = &mut self.next;
        let port = *self.ports.entry(key).or_insert_with(|| {
            *next += 1;
            *next
        });
        self.open.insert((port, packet.dst, udp.dst_port));
        (packet.src, udp.src_port) = (self.outside, port);
        true
    }

    fn enter(&self, packet: &mut Packet, inside: IpAddr) -> bool {
        let Payload::Udp(udp) = &mut packet.payload else { return false };
        let is_open = match self.filtering {
            Filtering::AddressAndPort => self.open.contains(&(udp.dst_port, packet.src, udp.src_port)),
            Filtering::Address => self.open.iter().any(|(port, to, _)| (*port, *to) == (udp.dst_port, packet.src)),
        };
        (packet.dst, udp.dst_port) = (inside, PORT);
        is_open
    }
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) hosts: Vec<Core>,
    places: Vec<IpAddr>,
    translators: Vec<Option<Translator>>,
    flying: BTreeMap<(Instant, u64), Packet>,
    /// Packets that were sent.
    pub(crate) count: u64,
    pub(crate) notes: Vec<(usize, Note)>,
    pub(crate) got: Vec<Vec<u64>>,
    /// Packets from translator to translator.
    direct: u64,
    /// These are dropped.
    is_direct_cut: bool,
    /// Packets that the relay has sent.
    by_relay: Vec<Packet>,
    /// The part of all packets that are lost.
    pub(crate) loss: f64,
    rng: Rng,
}

impl World {
    fn new(mappings: [Mapping; 2]) -> Self {
        let keys: Vec<KeyPair> =
            (0..3).map(|n| KeyPair::generate(Algorithm::Ed25519, &mut PredictableRng::new(Rng::new(50 + n)))).collect();
        let hits: Vec<_> = keys.iter().map(KeyPair::hit).collect();
        let places = ["192.168.1.2", "192.168.2.2", "203.0.113.3"].map(address).to_vec();
        let hosts = keys.into_iter().enumerate().map(|(index, keys)| {
            let mut config = CoreConfig::default();
            config.host.difficulty = 1;
            config.host.server = (index == RELAY).then(|| ServerConfig::new(Serves::Relay.services()));
            Core::new(keys, config, Box::new(PredictableRng::new(Rng::new(900 + index as u64))))
        });
        let hosts: Vec<Core> = hosts.collect();
        let [first, second] = mappings;
        let translators =
            vec![Some(Translator::new("198.51.100.1", first)), Some(Translator::new("198.51.100.2", second)), None];
        let now = Instant::from_secs(1000);
        let (flying, notes, got) = (BTreeMap::new(), Vec::new(), vec![Vec::new(); 3]);
        let (count, direct, is_direct_cut, by_relay) = (0, 0, false, Vec::new());
        let (loss, rng) = (0.0, Rng::new(7));
        let mut world = Self {
            now,
            hosts,
            places,
            translators,
            flying,
            count,
            notes,
            got,
            direct,
            is_direct_cut,
            by_relay,
            loss,
            rng,
        };
        for index in 0..3 {
            let mut peers = Peers::default();
            for other in (0..3).filter(|other| *other != index) {
                let at = if other == RELAY { vec![world.places[RELAY]] } else { Vec::new() };
                let servers = if other == RELAY || index == RELAY { Vec::new() } else { vec![world.places[RELAY]] };
                let peer = Peer::new(&format!("host{other}"), hits[other], at, Via::Udp).unwrap();
                let serves = (other == RELAY).then_some(Serves::Relay);
                peers.add(peer.with_servers(servers).unwrap().serving(serves)).unwrap();
            }
            world.hosts[index].set_peers(now, &peers);
            let place = world.places[index];
            world.hosts[index].set_locators(now, &[place]);
        }
        world
    }

    fn collect(&mut self) {
        for index in 0..3 {
            while let Some(mut packet) = self.hosts[index].poll_network() {
                let leaves = self.translators[index].as_mut().is_none_or(|it| it.leave(&mut packet));
                if !leaves || packet.dst.to_string().starts_with("192.168.") {
                    continue;
                }
                if index == RELAY {
                    self.by_relay.push(packet.clone());
                }
                let is_direct = index != RELAY && packet.dst != self.places[RELAY];
                self.direct += u64::from(is_direct);
                if is_direct && self.is_direct_cut {
                    continue;
                }
                self.count += 1;
                if self.rng.chance(self.loss) {
                    continue;
                }
                self.flying.insert((self.now + DELAY, self.count), packet);
            }
            while let Some(note) = self.hosts[index].poll_note() {
                self.notes.push((index, note));
            }
            while let Some(packet) = self.hosts[index].poll_inner() {
                let Payload::Udp(udp) = packet.payload else { continue };
                self.got[index].push(u64::from_be_bytes(udp.payload[..].try_into().unwrap()));
            }
        }
    }

    fn deliver(&mut self, mut packet: Packet) {
        for index in 0..3 {
            let inside = self.places[index];
            let is_here = match &self.translators[index] {
                Some(translator) => packet.dst == translator.outside && translator.enter(&mut packet, inside),
                None => packet.dst == inside,
            };
            if is_here {
                let packet = Packet::parse(packet.emit().unwrap()).unwrap();
                return self.hosts[index].handle_network(self.now, packet);
            }
        }
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.collect();
        for _ in 0..100_000 {
            let Some((next, is_arrival)) =
                next_step(&self.flying, self.hosts.iter().filter_map(Core::poll_timeout), self.now, end)
            else {
                self.now = end;
                return;
            };
            self.now = next;
            if is_arrival {
                let (_, packet) = self.flying.pop_first().unwrap();
                self.deliver(packet);
            } else {
                self.hosts.iter_mut().for_each(|host| host.handle_timeout(next));
            }
            self.collect();
        }
        panic!("livelock at {:?}", self.now);
    }

    /// Sends a datagram from one host to the other; fails unless it arrives within a second.
    #[track_caller]
    pub(crate) fn talk(&mut self, from: usize, number: u64) {
        self.try_talk(from, number);
        assert!(self.got[1 - from].contains(&number), "from {from}: {number}");
    }

    /// Sends a datagram from one host to the other, which may be lost.
    pub(crate) fn try_talk(&mut self, from: usize, number: u64) {
        self.send(from, number);
        self.run_for(Duration::from_secs(1));
    }

    pub(crate) fn send(&mut self, from: usize, number: u64) {
        let (src, dst) = (self.hosts[from].hit(), self.hosts[1 - from].hit());
        let payload = Bytes::copy_from_slice(&number.to_be_bytes());
        let packet = Packet::new(src.0.into(), dst.0.into(), Udp { src_port: 1000, dst_port: 2000, payload });
        let now = self.now;
        self.hosts[from].handle_inner(now, packet);
        self.collect();
    }

    pub(crate) fn relayed_esp(&self) -> u64 {
        self.hosts[RELAY].counters().relayed_esp
    }

    /// Moves a host behind another translator.
    pub(crate) fn move_to(&mut self, index: usize, inside: &str, translator: Translator) {
        self.translators[index] = Some(translator);
        self.places[index] = address(inside);
        let (now, place) = (self.now, self.places[index]);
        self.hosts[index].set_locators(now, &[place]);
        self.collect();
    }
}

fn established(mappings: [Mapping; 2]) -> World {
    established_with(mappings, [Filtering::AddressAndPort; 2])
}

pub(crate) fn established_with(mappings: [Mapping; 2], filterings: [Filtering; 2]) -> World {
    let mut world = World::new(mappings);
    for (translator, filtering) in world.translators.iter_mut().flatten().zip(filterings) {
        translator.filtering = filtering;
    }
    world.run_for(Duration::from_secs(5));
    let relay = world.hosts[RELAY].hit();
    for index in 0..2 {
        assert_eq!(world.hosts[index].state(relay), State::Established, "host {index} and the relay");
        let is_registered =
            |(host, note): &(usize, Note)| *host == index && matches!(note.event, Event::Registered { .. });
        assert!(world.notes.iter().any(is_registered), "host {index}: {:?}", world.notes);
    }
    for (number, from) in [0, 1, 0].into_iter().enumerate() {
        world.talk(from, number as u64);
    }
    world.run_for(Duration::from_secs(30));
    world
}

// Claim: Two hosts behind two translators that filter by address and port communicate directly if the translators' mapping is
// endpoint-independent, or if one of them has another port for each destination and the other filters by address; otherwise through the
// relay, for more than an hour. They continue when one or both move behind others, and when the relay restarts.
// Tests: `nat::a_translator_with_a_port_for_each_destination_on_one_side`, `nat::data_goes_by_way_of_the_relay_where_no_path_is_open`, `nat::hosts_that_move_behind_other_translators_talk_on`,
// `nat::a_relay_that_starts_anew_is_called_and_registered_with_again`, `nat::packets_other_than_hip_are_not_relayed`
#[test]
fn two_hosts_behind_translators_find_a_direct_path() {
    let mut world = established([Mapping::Independent; 2]);
    let (direct, relayed) = (world.direct, world.relayed_esp());
    for number in 100..110 {
        world.talk(number as usize % 2, number);
    }
    assert!(world.direct >= direct + 10);
    assert_eq!(world.relayed_esp(), relayed, "data goes by way of the relay no more");
}

/// Where a host's checks are concluded: whether a relay forwards its data.
fn nominated(world: &World, index: usize) -> Option<bool> {
    let of_host = world.notes.iter().rev().filter(|(host, _)| *host == index).map(|(_, note)| &note.event);
    of_host.into_iter().find_map(|event| match event {
        Event::Nominated { is_relayed, .. } => Some(*is_relayed),
        _ => None,
    })
}

#[test]
fn a_translator_with_a_port_for_each_destination_on_one_side() {
    let (independent, dependent) = (Mapping::Independent, Mapping::Dependent);
    for (mappings, filterings) in [
        ([independent, independent], [Filtering::Address, Filtering::Address]),
        ([dependent, independent], [Filtering::AddressAndPort, Filtering::Address]),
        ([independent, dependent], [Filtering::Address, Filtering::AddressAndPort]),
    ] {
        let mut world = established_with(mappings, filterings);
        assert_eq!([0, 1].map(|index| nominated(&world, index)), [Some(false); 2], "{mappings:?}");
        let (direct, relayed) = (world.direct, world.relayed_esp());
        for number in 100..110 {
            world.talk(number as usize % 2, number);
        }
        assert!(world.direct >= direct + 10);
        assert_eq!(world.relayed_esp(), relayed, "{mappings:?}: data goes by way of the relay no more");
    }
}

#[test]
fn data_goes_by_way_of_the_relay_where_no_path_is_open() {
    let mut world = established([Mapping::Dependent; 2]);
    assert_eq!([0, 1].map(|index| nominated(&world, index)), [Some(true); 2]);
    let relayed = world.relayed_esp();
    for number in 100..110 {
        world.talk(number as usize % 2, number);
    }
    assert!(world.relayed_esp() >= relayed + 10);
    // An hour later the registration, the permission and the keys have been renewed.
    world.run_for(Duration::from_secs(4000));
    for number in 200..204 {
        world.talk(number as usize % 2, number);
    }
}

/// A router between the relay and its client reports its MTU to the relay.
#[test]
fn what_is_relayed_leaves_in_fragments_on_a_narrow_path() {
    let mut world = established([Mapping::Dependent; 2]);
    world.by_relay.clear();
    world.talk(0, 100);
    let client = address("198.51.100.2");
    let is_esp = |packet: &Packet| matches!(&packet.payload, Payload::Udp(udp) if udp.payload[..4] != [0; 4]);
    let relayed = world.by_relay.iter().find(|packet| packet.dst == client && is_esp(packet)).unwrap();
    let quoted = |packet: &Packet| {
        let error = IcmpError::quoting_packet(Unreachable::PacketTooBig { mtu: 600 }, packet).unwrap();
        error.quoted().unwrap()
    };
    let (believed, mut forged) = (quoted(relayed), relayed.clone());
    let Payload::Udp(udp) = &mut forged.payload else { unreachable!() };
    udp.payload = [&[7; 4], &udp.payload[4..]].concat().into();
    assert_eq!(world.hosts[RELAY].handle_too_big(world.now, &quoted(&forged), 600), None, "an unknown SPI");
    assert_eq!(world.hosts[RELAY].handle_too_big(world.now, &believed, 600), Some(600));
    for (len, fragment_len) in [(400, None), (1300, Some(600))] {
        let (src, dst) = (world.hosts[0].hit(), world.hosts[1].hit());
        let udp = Udp { src_port: 1000, dst_port: 2000, payload: vec![7; len].into() };
        world.hosts[0].handle_inner(world.now, Packet::new(src.0.into(), dst.0.into(), udp));
        let mut packet = world.hosts[0].poll_network().unwrap();
        assert!(world.translators[0].as_mut().unwrap().leave(&mut packet));
        world.hosts[RELAY].handle_network(world.now, Packet::parse(packet.emit().unwrap()).unwrap());
        match (world.hosts[RELAY].poll_outgoing().unwrap(), fragment_len) {
            (Outgoing::Packet(packet), None) => assert_eq!(packet.dst, client),
            (Outgoing::Fragmentable(packet, len), Some(most)) => assert_eq!((packet.dst, len), (client, most)),
            (other, _) => panic!("{len}: {other:?}"),
        }
    }
}

#[test]
fn hosts_that_move_behind_other_translators_talk_on() {
    for mapping in [Mapping::Independent, Mapping::Dependent] {
        let mut world = established([mapping; 2]);
        world.move_to(0, "192.168.7.2", Translator::new("198.51.100.7", mapping));
        world.run_for(Duration::from_secs(5));
        for number in 300..304 {
            world.talk(number as usize % 2, number);
        }
        // Both hosts move at once.
        world.move_to(0, "192.168.8.2", Translator::new("198.51.100.8", mapping));
        world.move_to(1, "192.168.9.2", Translator::new("198.51.100.9", mapping));
        world.run_for(Duration::from_secs(10));
        for number in 400..404 {
            world.talk(number as usize % 2, number);
        }
    }
}

// Claim: After a move of either host, or of both at once, behind other translators with endpoint-independent mapping that filter by address
// and port, or by address, data is direct again within 10 s.
#[test]
fn hosts_that_move_behind_other_translators_find_a_direct_path_again() {
    let mappings = [Mapping::Independent; 2];
    for filterings in [[Filtering::AddressAndPort; 2], [Filtering::Address; 2]] {
        for movers in [&[0][..], &[1], &[0, 1]] {
            let mut world = established_with(mappings, filterings);
            for &index in movers {
                let mut translator = Translator::new(["198.51.100.7", "198.51.100.8"][index], mappings[index]);
                translator.filtering = filterings[index];
                world.move_to(index, ["192.168.7.2", "192.168.8.2"][index], translator);
            }
            for number in 300..310 {
                world.try_talk(number as usize % 2, number);
            }
            let (direct, relayed) = (world.direct, world.relayed_esp());
            for number in 400..410 {
                world.talk(number as usize % 2, number);
            }
            assert!(world.direct >= direct + 10, "{filterings:?}, {movers:?} moved");
            assert_eq!(world.relayed_esp(), relayed, "{filterings:?}, {movers:?} moved");
        }
    }
}

#[test]
fn a_relay_that_starts_anew_is_called_and_registered_with_again() {
    let mut world = established([Mapping::Dependent; 2]);
    let now = world.now;
    world.hosts[RELAY].close_all(now);
    world.collect();
    world.run_for(Duration::from_secs(2));
    // The host has restarted, with its key and its file of peers.
    let again = World::new([Mapping::Dependent; 2]);
    world.hosts[RELAY] = again.hosts.into_iter().nth(RELAY).expect("three hosts");
    world.run_for(Duration::from_secs(60));
    for number in 500..504 {
        world.talk(number as usize % 2, number);
    }
}

// Claim: A host that has moved while its relay was away announces itself to its peers as soon as the relay has registered it again.
#[test]
fn a_move_is_announced_as_soon_as_the_relay_returns() {
    let mut world = established([Mapping::Dependent; 2]);
    let now = world.now;
    world.hosts[RELAY].close_all(now);
    world.collect();
    world.run_for(Duration::from_secs(2));
    // Nothing reaches it.
    let place = std::mem::replace(&mut world.places[RELAY], address("203.0.113.99"));
    world.move_to(0, "192.168.7.2", Translator::new("198.51.100.7", Mapping::Dependent));
    world.run_for(Duration::from_secs(23));
    world.places[RELAY] = place;
    let again = World::new([Mapping::Dependent; 2]);
    world.hosts[RELAY] = again.hosts.into_iter().nth(RELAY).expect("three hosts");
    for _ in 0..600 {
        if world.hosts[RELAY].clients().0 == 2 {
            break;
        }
        world.run_for(Duration::from_millis(100));
    }
    assert_eq!(world.hosts[RELAY].clients().0, 2);
    world.run_for(Duration::from_millis(500));
    let peers = world.hosts[0].peer_status();
    assert!(peers.iter().all(|peer| !peer.is_moving), "{peers:?}");
    world.talk(0, 600);
    world.talk(1, 601);
}

// Claim: A relay that has lost its keys, as after a crash, calls its clients back within 45 s, and they register again.
#[test]
fn clients_of_a_relay_that_has_lost_its_keys_register_again() {
    let mut world = established([Mapping::Dependent; 2]);
    let again = World::new([Mapping::Dependent; 2]);
    world.hosts[RELAY] = again.hosts.into_iter().nth(RELAY).expect("three hosts");
    world.run_for(Duration::from_secs(45));
    assert_eq!(world.hosts[RELAY].clients().0, 2);
    for number in 500..504 {
        world.talk(number as usize % 2, number);
    }
}

#[test]
fn packets_other_than_hip_are_not_relayed() {
    let mut world = established([Mapping::Dependent; 2]);
    let before = *world.hosts[RELAY].counters();
    for payload in [&b""[..], &[0; 4], &[0; 44], &[9; 3], &[9; 64]] {
        let udp = Udp { src_port: 30_001, dst_port: PORT, payload: Bytes::copy_from_slice(payload) };
        let packet = Packet::new(address("198.51.100.66"), world.places[RELAY], udp);
        let now = world.now;
        world.hosts[RELAY].handle_network(now, packet);
    }
    let after = world.hosts[RELAY].counters();
    assert_eq!((after.relayed_hip, after.relayed_esp), (before.relayed_hip, before.relayed_esp));
}

/// A middlebox drops everything between the translators, while neither host moves.
#[test]
fn a_direct_path_that_dies_is_replaced_by_the_relay() {
    let mut world = established([Mapping::Independent; 2]);
    let relayed = world.relayed_esp();
    for number in 100..130 {
        world.talk(number as usize % 2, number);
    }
    assert_eq!(world.relayed_esp(), relayed);
    world.is_direct_cut = true;
    let silent = |world: &World, host: usize| {
        let notes = world.notes.iter().filter(|(at, _)| *at == host).map(|(_, note)| &note.event);
        notes.filter(|event| matches!(event, Event::PathSilent { instead: Some(_), .. })).count()
    };
    for number in 1000..1012 {
        world.try_talk(number as usize % 2, number);
    }
    assert_eq!((silent(&world, 0), silent(&world, 1)), (1, 1));
    for number in 2000..2020 {
        world.talk(number as usize % 2, number);
    }
    assert!(world.relayed_esp() >= relayed + 20);
    // It works again: the hosts return to it.
    world.is_direct_cut = false;
    for number in 3000..3060 {
        world.talk(number as usize % 2, number);
    }
    let relayed = world.relayed_esp();
    for number in 4000..4020 {
        world.talk(number as usize % 2, number);
    }
    assert_eq!(world.relayed_esp(), relayed, "data goes by way of the relay no more");
    assert_eq!((silent(&world, 0), silent(&world, 1)), (1, 1));
}
