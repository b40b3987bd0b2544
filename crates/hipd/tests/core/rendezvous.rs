//! A host that its peer knows from a HIP record: by its key, and by the address of its rendezvous server.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdover_base::{Duration, Instant, Rng};
use holdover_hip::PredictableRng;
use holdover_hip::host::{ServerConfig, State};
use holdover_hip::identity::{Algorithm, HostIdentity, KeyPair};
use holdover_hipd::core::{Core, CoreConfig};
use holdover_hipd::dns::{HipRecord, domain_name};
use holdover_hipd::files::{Peer, Peers, Serves, Via};
use holdover_wire::{Packet, Payload, Udp};

use crate::world::{address, next_step};

/// The host that looks the record up, the host of the record, and its rendezvous server.
const CALLER: usize = 0;
const HOST: usize = 1;
const SERVER: usize = 2;
const PLACES: [&str; 3] = ["192.0.2.1", "198.51.100.2", "203.0.113.3"];
const DELAY: Duration = Duration::from_millis(20);

struct World {
    now: Instant,
    identities: Vec<HostIdentity>,
    hosts: Vec<Core>,
    flying: BTreeMap<(Instant, u64), Packet>,
    count: u64,
    /// Packets for the programs of the host of the record.
    got: Vec<Packet>,
}

impl World {
    /// The host of the record is registered with its server, and accepts the caller. Neither knows an address of the caller, and the server
    /// does not know the caller at all.
    fn new() -> Self {
        let key = |index: u64| KeyPair::generate(Algorithm::Ed25519, &mut PredictableRng::new(Rng::new(70 + index)));
        let keys: Vec<KeyPair> = (0..3).map(key).collect();
        let identities: Vec<HostIdentity> = keys.iter().map(|keys| keys.identity().clone()).collect();
        let hosts = keys.into_iter().enumerate().map(|(index, keys)| {
            let mut config = CoreConfig::default();
            config.host.difficulty = 1;
            config.host.server = (index == SERVER).then(|| ServerConfig::new(Serves::Rendezvous.services()));
            Core::new(keys, config, Box::new(PredictableRng::new(Rng::new(700 + index as u64))))
        });
        let hosts = hosts.collect();
        let (now, flying) = (Instant::from_secs(1000), BTreeMap::new());
        let mut world = Self { now, identities, hosts, flying, count: 0, got: Vec::new() };
        let hit = |index: usize| world.identities[index].hit();
        let peer = |name, of, at: &[&str]| {
            Peer::new(name, hit(of), at.iter().map(|at| address(at)).collect(), Via::Ip).unwrap()
        };
        let server = peer("server", SERVER, &PLACES[SERVER..]).serving(Some(Serves::Rendezvous));
        let (caller, client) = (peer("caller", CALLER, &[]), peer("client", HOST, &[]));
        world.start(SERVER, [client]);
        world.start(HOST, [server, caller]);
        world.run_for(Duration::from_secs(5));
        assert_eq!(world.hosts[SERVER].clients().0, 1, "the host is registered");
        world
    }

    fn start(&mut self, index: usize, peers: impl IntoIterator<Item = Peer>) {
        let mut all = Peers::default();
        peers.into_iter().for_each(|peer| all.add(peer).unwrap());
        self.hosts[index].set_peers(self.now, &all);
        self.hosts[index].set_locators(self.now, &[address(PLACES[index])]);
        self.collect();
    }

    fn collect(&mut self) {
        for (index, host) in self.hosts.iter_mut().enumerate() {
            while let Some(packet) = host.poll_network() {
                self.count += 1;
                self.flying.insert((self.now + DELAY, self.count), packet);
            }
            while let Some(packet) = host.poll_inner() {
                if index == HOST {
                    self.got.push(packet);
                }
            }
            while host.poll_note().is_some() {}
        }
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..100_000 {
            let Some((next, is_arrival)) =
                next_step(&self.flying, self.hosts.iter().filter_map(Core::poll_timeout), self.now, end)
            else {
                self.now = end;
                return;
            };
            self.now = next;
            if !is_arrival {
                self.hosts.iter_mut().for_each(|host| host.handle_timeout(next));
            } else if let Some((_, packet)) = self.flying.pop_first()
                && let Some(index) = PLACES.iter().position(|place| address(place) == packet.dst)
            {
                // As bytes, which cross a network.
                let packet = Packet::parse(packet.emit().unwrap()).unwrap();
                self.hosts[index].handle_network(next, packet);
            }
            self.collect();
        }
        panic!("livelock at {:?}", self.now);
    }

    /// The caller's program sends a datagram to the host of the record, with the record's identity and these addresses of its servers.
    fn call(&mut self, servers: &[&str]) {
        let record = HipRecord::new(&self.identities[HOST], vec![domain_name("rvs.example.org").unwrap()]);
        let hit = HipRecord::parse(&record.emit().unwrap()).unwrap().identity().unwrap().hit();
        let peer = Peer::new("host.example.org", hit, Vec::new(), Via::Ip).unwrap();
        let servers = servers.iter().map(|server| address(server)).collect();
        self.start(CALLER, [peer.with_servers(servers).unwrap()]);
        let (src, payload) = (self.hosts[CALLER].hit(), Bytes::from_static(b"hello"));
        let packet = Packet::new(src.0.into(), hit.0.into(), Udp { src_port: 1000, dst_port: 2000, payload });
        self.hosts[CALLER].handle_inner(self.now, packet);
        self.collect();
        self.run_for(Duration::from_secs(2));
    }
}

// Claim: A host whose HIP record and rendezvous server are known, but none of its addresses, is reached through the server, which forwards the
// first packet of the exchange and no data.
#[test]
fn a_host_is_reached_by_the_server_of_its_record() {
    let mut world = World::new();
    world.call(&PLACES[SERVER..]);
    let payloads: Vec<&Payload> = world.got.iter().map(|packet| &packet.payload).collect();
    assert!(matches!(payloads[..], [Payload::Udp(udp)] if udp.payload == b"hello"[..]), "{payloads:?}");
    let hit = world.identities[HOST].hit();
    assert_eq!(world.hosts[CALLER].state(hit), State::Established);
    let counters = world.hosts[SERVER].counters();
    assert_eq!((counters.relayed_hip, counters.relayed_esp), (1, 0));
}

#[test]
fn a_host_without_address_and_server_is_not_reached() {
    let mut world = World::new();
    world.call(&[]);
    assert!(world.got.is_empty(), "{:?}", world.got);
    assert_eq!(world.hosts[SERVER].counters().relayed_hip, 0);
}
