//! Exchanges of every kind, rehearsed once: before the delivery of each packet the world is kept, for the cases to continue from.

use holdover_base::Duration;

use super::world::{ANNE, BOB, Flight, HOSTS, SERVER, STRANGER, World, elsewhere, home};
use crate::host::{HostConfig, SECRET_LEN, ServerConfig, Service};
use crate::identity::Algorithm;

const MET: &[Service] = &[Service::Rendezvous];
const RELAYED: &[Service] = &[Service::RelayHip, Service::RelayEsp];

/// The moment before a packet is delivered.
pub(super) struct Moment {
    pub(super) scenario: &'static str,
    pub(super) world: World,
    pub(super) flight: Flight,
}

/// A scenario: `before` is not damaged, `act` is.
struct Scenario {
    name: &'static str,
    algorithm: Algorithm,
    config: fn(usize) -> HostConfig,
    before: fn(&mut World),
    act: fn(&mut World),
}

impl Scenario {
    const fn new(name: &'static str, before: fn(&mut World), act: fn(&mut World)) -> Self {
        Self { name, algorithm: Algorithm::Ed25519, config: plain, before, act }
    }
}

/// All moments of all exchanges.
pub(super) fn moments() -> Vec<Moment> {
    let rehearsals = scenarios().into_iter().enumerate().map(|(index, scenario)| {
        let mut world = World::new(index as u64 + 1, scenario.config, scenario.algorithm);
        (scenario.before)(&mut world);
        world.recording = Some(Vec::new());
        (scenario.act)(&mut world);
        let recorded = world.recording.take().unwrap_or_default();
        assert!(!recorded.is_empty(), "{}: nothing was sent", scenario.name);
        recorded.into_iter().map(move |(world, flight)| Moment { scenario: scenario.name, world, flight })
    });
    rehearsals.flatten().collect()
}

fn scenarios() -> Vec<Scenario> {
    let hidden = |index| HostConfig { hide_identity: true, ..plain(index) };
    let simple = Scenario::new;
    vec![
        simple("base exchange", know, |world| exchange(world, ANNE, BOB)),
        Scenario { algorithm: Algorithm::EcdsaP256, ..simple("P-256", know, |world| exchange(world, ANNE, BOB)) },
        Scenario { config: hidden, ..simple("hidden identity", know, |world| exchange(world, ANNE, BOB)) },
        simple("simultaneous open", know, |world| {
            world.connect(ANNE, BOB);
            exchange(world, BOB, ANNE);
        }),
        simple("stranger", know, |world| exchange(world, STRANGER, BOB)),
        simple("invitation", know_one_way, invitation),
        simple("move", connected, |world| move_and_wait(world, ANNE)),
        simple("two addresses", connected, |world| {
            world.move_to(BOB, &[home(BOB), elsewhere(BOB)]);
            world.run_for(Duration::from_secs(1));
        }),
        simple("rekey", connected, |world| rekey(world, ANNE, false)),
        simple("rekey with Diffie-Hellman", connected, |world| rekey(world, BOB, true)),
        simple("close", connected, close),
        simple("data", connected, |world| data(world, 4)),
        simple("registration", know, |world| world_with_server(world, MET)),
        simple("registration by UPDATE", server_first, register_late),
        simple(
            "registration renewed",
            |world| world_with_server(world, MET),
            |world| {
                world.run_for(Duration::from_secs(330));
            },
        ),
        simple("rendezvous", |world| world_with_server(world, MET), |world| exchange(world, ANNE, BOB)),
        simple("double jump", met, |world| {
            world.move_to(ANNE, &[elsewhere(ANNE)]);
            move_and_wait(world, BOB);
        }),
        simple("relay", relay, |world| exchange(world, ANNE, BOB)),
        simple("move by relay", relayed, |world| move_and_wait(world, BOB)),
        simple("data by relay", relayed, |world| data(world, 2)),
    ]
}

/// Puzzles of one bit; only peers are let in.
fn plain(index: usize) -> HostConfig {
    let server = (index == SERVER).then(|| {
        let services = [Service::Rendezvous, Service::RelayHip, Service::RelayEsp];
        ServerConfig { max_clients: 8, max_permissions: 4, ..ServerConfig::new(&services) }
    });
    HostConfig { difficulty: 1, accept_unknown_peers: false, server, ..HostConfig::default() }
}

fn know(world: &mut World) {
    for one in [ANNE, BOB, SERVER] {
        for other in [ANNE, BOB, SERVER] {
            if one != other {
                world.introduce(one, other);
            }
        }
    }
    for index in 0..HOSTS - 1 {
        world.introduce(STRANGER, index);
    }
}

/// Only the initiator knows the other host.
fn know_one_way(world: &mut World) {
    world.introduce(ANNE, BOB);
}

fn exchange(world: &mut World, from: usize, to: usize) {
    world.connect(from, to);
    world.run_for(Duration::from_secs(2));
}

fn connected(world: &mut World) {
    know(world);
    // With the server, too: a liar's peer keeps its other associations.
    exchange(world, ANNE, BOB);
    exchange(world, BOB, SERVER);
    data(world, 1);
}

fn move_and_wait(world: &mut World, index: usize) {
    world.move_to(index, &[elsewhere(index)]);
    data(world, 1);
    world.run_for(Duration::from_secs(2));
}

fn rekey(world: &mut World, from: usize, has_dh: bool) {
    let peer = world.hit(ANNE + BOB - from);
    let _ = world.hosts[from].rekey(world.now, peer, has_dh);
    world.run_for(Duration::from_secs(2));
}

fn close(world: &mut World) {
    let peer = world.hit(BOB);
    let _ = world.hosts[ANNE].close(world.now, peer);
    world.run_for(Duration::from_secs(2));
}

fn data(world: &mut World, count: usize) {
    for _ in 0..count {
        world.send_data(ANNE, BOB);
        world.send_data(BOB, ANNE);
        world.run_for(Duration::from_millis(100));
    }
}

fn invitation(world: &mut World) {
    let (secret, peer) = ([7; SECRET_LEN], world.hit(BOB));
    world.hosts[BOB].invite(world.now, 1, secret, world.now + Duration::from_secs(600));
    let _ = world.hosts[ANNE].present(world.now, peer, secret, bytes::Bytes::from_static(b"anne"));
    exchange(world, ANNE, BOB);
}

/// Both hosts are clients. The server has opened neither association.
fn world_with_server(world: &mut World, services: &[Service]) {
    know(world);
    for (client, other) in [(ANNE, BOB), (BOB, ANNE)] {
        let peer = world.hit(other);
        world.hosts[client].add_servers(peer, &[home(SERVER)]);
        world.register(client, services);
    }
    world.run_for(Duration::from_secs(2));
}

/// The server has opened the association: it offers its services in an UPDATE.
fn server_first(world: &mut World) {
    know(world);
    exchange(world, SERVER, ANNE);
}

fn register_late(world: &mut World) {
    let server = world.hit(SERVER);
    world.hosts[ANNE].register(world.now, server, MET);
    world.collect();
    world.run_for(Duration::from_secs(70));
}

fn met(world: &mut World) {
    world_with_server(world, MET);
    exchange(world, ANNE, BOB);
    data(world, 1);
}

fn relay(world: &mut World) {
    world.is_in_udp = true;
    world_with_server(world, RELAYED);
    // The hosts know no address of each other, so that the exchange takes the relay.
    for (one, other) in [(ANNE, BOB), (BOB, ANNE)] {
        let peer = world.hit(other);
        world.hosts[one].remove_peer(world.now, peer);
        world.hosts[one].handle_timeout(world.now);
        world.hosts[one].add_peer(peer, &[]);
        world.hosts[one].add_servers(peer, &[home(SERVER)]);
    }
}

fn relayed(world: &mut World) {
    relay(world);
    exchange(world, ANNE, BOB);
    data(world, 1);
}
