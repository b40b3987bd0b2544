//! Hosts with several addresses, of one IP version or of both, while packets between random pairs of them are lost, in one direction or in
//! both.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;

use holdover_base::{Duration, Rng};
use holdover_hip::codec::{HipPacket, kind};
use holdover_hip::host::{Event, HostConfig, PathCheckConfig};

use crate::dead_address::talk;
use crate::rendezvous::{between_clients_with, verified_at};
use crate::support::address;
use crate::world::World;

const OWN: [&[&str]; 2] = [
    &["192.0.2.1", "192.0.2.7", "203.0.113.5", "2001:db8:1::1"],
    &["198.51.100.2", "198.51.100.9", "203.0.113.99", "2001:db8:2::2"],
];

/// As `holdover hip`.
fn config() -> HostConfig {
    HostConfig {
        retransmit_after: Duration::from_millis(300),
        retries: 7,
        steady_retries: 2,
        difficulty: 1,
        path_check: Some(PathCheckConfig::default()),
        ..HostConfig::default()
    }
}

/// Source and destination of packets that are lost.
type Dead = Rc<RefCell<BTreeSet<(IpAddr, IpAddr)>>>;

fn world(seed: u64) -> (World, Dead) {
    let mut world = World::established(seed, &config());
    let dead = Dead::default();
    let lost = Rc::clone(&dead);
    world.tamper = Some(Box::new(move |packet| !lost.borrow().contains(&(packet.src, packet.dst))));
    (world, dead)
}

/// Some addresses of a host, the first one included, in a random order.
fn some(rng: &mut Rng, all: &'static [&'static str]) -> Vec<&'static str> {
    let mut some: Vec<&str> = all.iter().copied().filter(|it| *it == all[0] || rng.chance(0.6)).collect();
    for index in (1..some.len()).rev() {
        some.swap(index, rng.below(index as u64 + 1) as usize);
    }
    some
}

fn pairs(world: &World) -> Vec<(IpAddr, IpAddr)> {
    let [a, b] = [0, 1].map(|host| world.places[host].clone());
    let all = a.into_iter().flat_map(|a| b.iter().copied().map(move |b| (a, b)).collect::<Vec<_>>());
    all.filter(|(a, b)| a.is_ipv4() == b.is_ipv4()).collect()
}

/// Loses packets between random pairs of addresses, but for one pair.
fn kill(rng: &mut Rng, world: &World, dead: &Dead) {
    let pairs = pairs(world);
    let alive = pairs[rng.below(pairs.len() as u64) as usize];
    let mut dead = dead.borrow_mut();
    dead.clear();
    for (a, b) in pairs.into_iter().filter(|it| *it != alive) {
        match rng.below(5) {
            0 => _ = dead.insert((a, b)),
            1 => _ = dead.insert((b, a)),
            2 | 3 => dead.extend([(a, b), (b, a)]),
            _ => {}
        }
    }
}

fn changes(world: &World) -> usize {
    let is_change = |event: &Event| {
        matches!(event, Event::PathSilent { instead: Some(_), .. } | Event::PathAnswers { after: None, .. })
    };
    world.events.iter().filter(|(_, _, event)| is_change(event)).count()
}

// Claim: Whatever pairs of at most ten two hosts lose, in one direction or in both, data arrives again in both directions within 40 s if one
// pair of verified addresses works, and all of it from then on; paths are changed at most four times by each host in that time, and at most
// once more in five minutes.
// Tests: `tests::another_path_is_presumed_until_the_usual_one_works`, `tests::all_paths_are_tested_in_turn`
#[test]
fn data_finds_the_pair_that_works() {
    for seed in 0..40 {
        let mut rng = Rng::split(seed, "dead pairs");
        let (mut world, dead) = world(seed);
        for host in [0, 1] {
            let places = some(&mut rng, OWN[host]);
            world.move_to(host, &places);
            world.run_for(Duration::from_secs(5));
        }
        for phase in 0..3 {
            kill(&mut rng, &world, &dead);
            world.forget_history();
            talk(&mut world, Duration::from_secs(40));
            let found = changes(&world);
            let (got, sent) = talk(&mut world, Duration::from_secs(300));
            let name = format!("seed {seed}, phase {phase}: {:?} without {:?}", world.places, dead.borrow());
            assert!(got.iter().all(|got| *got + 1 >= sent), "{name}: {got:?} of {sent}");
            assert!(found <= 2 * 4, "{name}: {found} changes");
            assert!(changes(&world) - found <= 2, "{name}: {found}, then {}", changes(&world));
        }
    }
}

// Claim: If a host moves to several addresses of which only one works, in both directions, whichever it prefers, data arrives again within
// 8 s in both directions, and all of it from then on. Half of the peers have two addresses, too, of which one is dead.
#[test]
fn a_move_to_addresses_of_which_one_works() {
    for seed in 0..60 {
        let mut rng = Rng::split(seed, "moves");
        let (mut world, dead) = world(seed);
        let mover = rng.below(2) as usize;
        let mut peer_alive = OWN[1 - mover][0];
        if rng.chance(0.5) {
            let mut places = OWN[1 - mover][..2].to_vec();
            if rng.chance(0.5) {
                places.reverse();
            }
            peer_alive = places[rng.below(2) as usize];
            world.move_to(1 - mover, &places);
            world.run_for(Duration::from_secs(5));
        }
        let places = [["192.0.2.33", "203.0.113.44"], ["203.0.113.44", "192.0.2.33"]][rng.below(2) as usize];
        let alive = (address(places[rng.below(2) as usize]), address(peer_alive));
        let (mut to, peers) = (places.map(address).to_vec(), world.places[1 - mover].clone());
        to.extend(world.places[mover].iter());
        let all = to.into_iter().flat_map(|own| peers.iter().map(move |peer| (own, *peer)));
        dead.borrow_mut().extend(all.filter(|it| *it != alive).flat_map(|(a, b)| [(a, b), (b, a)]));
        world.forget_history();
        world.move_to(mover, &places);
        talk(&mut world, Duration::from_secs(8));
        let (got, sent) = talk(&mut world, Duration::from_secs(120));
        let name = format!("seed {seed}: host {mover} at {places:?}, its peer at {peers:?}, alive {alive:?}");
        assert!(got.iter().all(|got| *got + 1 >= sent), "{name}: {got:?} of {sent}");
    }
}

// Claim: Two clients of a rendezvous server that move at once, each from two addresses to two others, have verified each other within two
// seconds also if the first copies of their announcements that the server forwards are lost.
#[test]
fn two_moves_at_once_with_two_addresses_each_survive_lost_copies() {
    for seed in 40..44 {
        let mut world = between_clients_with(&config(), seed, [25, 25, 5]);
        for (host, places) in [(0, ["192.0.2.1", "192.0.2.7"]), (1, ["198.51.100.2", "198.51.100.9"])] {
            world.move_to(host, &places);
            world.run_for(Duration::from_secs(5));
            assert_eq!(world.hosts[1 - host].verified_addresses(world.hit(host)).len(), 2);
        }
        world.forget_history();
        let server = world.places[2][0];
        let hosts = [0, 1].map(|host| world.hit(host));
        let lost = Rc::new(RefCell::new(BTreeSet::new()));
        let by_whom = Rc::clone(&lost);
        world.tamper = Some(Box::new(move |packet| {
            let Ok(HipPacket { sender, parameters, .. }) = HipPacket::parse(packet).map(|it| it.packet) else {
                return true;
            };
            let is_copy = packet.src == server && hosts.contains(&sender);
            let is_announcement = parameters.iter().any(|it| it.kind() == kind::LOCATOR_SET);
            !(is_copy && is_announcement && by_whom.borrow_mut().insert(sender.0))
        }));
        let start = world.now;
        world.move_to(0, &["192.0.2.77", "192.0.2.78"]);
        world.move_to(1, &["198.51.100.77", "198.51.100.78"]);
        world.run_for(Duration::from_secs(20));
        assert_eq!(lost.borrow().len(), 2, "both copies were sent");
        for host in [0, 1] {
            let took = verified_at(&world, host).map(|at| at.saturating_since(start));
            assert!(took.is_some_and(|it| it <= Duration::from_secs(2)), "seed {seed}, host {host}: {took:?}");
        }
    }
}

// Claim: A host that does not test paths checks addresses from its preferred address alone, from which data leaves: an address that answers
// only to another one of its addresses takes no data.
#[test]
fn without_tests_of_paths_checks_leave_from_the_source_of_data() {
    let mut world = World::established(4, &HostConfig { path_check: None, ..config() });
    world.move_to(0, &["192.0.2.1", "192.0.2.7"]);
    world.run_for(Duration::from_secs(5));
    let dead = [address("192.0.2.1"), address("198.51.100.77")];
    world.tamper = Some(Box::new(move |packet| !(dead.contains(&packet.src) && dead.contains(&packet.dst))));
    world.forget_history();
    world.move_to(1, &["198.51.100.77", "198.51.100.2"]);
    world.run_for(Duration::from_secs(20));
    let new = dead[1];
    let sources: BTreeSet<IpAddr> =
        world.packets.iter().filter(|(_, it)| it.dst == new).map(|(_, packet)| packet.src).collect();
    assert_eq!(sources, BTreeSet::from([dead[0]]));
    let (got, sent) = talk(&mut world, Duration::from_secs(20));
    assert_eq!((got[1], sent), (sent, 200), "data goes to the address that answers");
}

// Claim: A lost check of an additional address of the peer moves no data if the usual path has answered since the announcement.
// Tests: `tests::what_arrives_before_the_first_data_shows_the_usual_path`, `tests::another_usual_path_has_to_work_itself`
#[test]
fn a_lost_check_of_an_additional_address_moves_no_data() {
    let (mut world, dead) = world(4);
    world.move_to(0, &["192.0.2.1", "192.0.2.7"]);
    world.run_for(Duration::from_secs(5));
    dead.borrow_mut().insert((address("192.0.2.1"), address("198.51.100.9")));
    world.forget_history();
    world.move_to(1, &["198.51.100.2", "198.51.100.9"]);
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.hosts[0].verified_addresses(world.hit(1)).len(), 2, "from the other source");
    assert!(!world.has_event(0, |event| matches!(event, Event::PathSilent { .. })), "{:?}", world.events);
}
