//! The budget of address checks: peers that lie often, and hosts that move often.

use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use holdover_hip::codec::HipPacket;
use holdover_hip::host::{Dropped, Event, HostConfig};
use holdover_hip::identity::Algorithm;
use holdover_wire::Packet;

use crate::support::address;
use crate::world::{Network, World, quick};

/// The timers of `holdover hip`: ten transmissions of a check.
fn as_the_daemon() -> HostConfig {
    HostConfig { retransmit_after: Duration::from_millis(300), retries: 7, steady_retries: 2, ..quick() }
}

/// Eight addresses of strangers.
fn strangers(nth: usize) -> Vec<String> {
    (1..=8).map(|index| format!("203.{}.{}.{index}", nth / 256, nth % 256)).collect()
}

/// Host 0 announces addresses at which it is not.
fn lie(world: &mut World, places: &[String]) {
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    world.move_to(0, &places);
    world.places[0] = vec![];
}

/// The HIP packets from `src` to strangers, and their bytes without IP headers.
fn to_strangers(world: &World, src: &str) -> (usize, usize) {
    let is_stranger = |at: IpAddr| matches!(at, IpAddr::V4(at) if at.octets()[0] == 203);
    let sent = world.packets.iter().map(|(_, packet)| packet);
    let sent = sent.filter(|packet| packet.src == address(src) && is_stranger(packet.dst));
    sent.fold((0, 0), |(packets, bytes), packet| (packets + 1, bytes + hip_len(packet)))
}

fn hip_len(packet: &Packet) -> usize {
    HipPacket::parse(packet).unwrap().bytes().len()
}

/// The bytes of all announcements of host 0.
fn announced(world: &World) -> (usize, usize) {
    let is_from_0 = |packet: &Packet| HipPacket::parse(packet).is_ok_and(|it| it.packet.sender == world.hit(0));
    let sent = world.packets.iter().map(|(_, packet)| packet).filter(|packet| is_from_0(packet));
    sent.fold((0, 0), |(packets, bytes), packet| (packets + 1, bytes + hip_len(packet)))
}

/// 600 announcements of eight strangers in a minute, and silence for as long. Without the budget each causes up to 41 packets.
// Claim: A peer that announces addresses of strangers again and again has one packet sent there for each of its own, 64 more at once, and
// one more every 2 s; no more bytes than it has sent itself and 64 KiB, and 256 bytes more in a second.
// Tests: `check_budget::repeated_lies_do_not_amplify`, `check_budget::bytes_are_bounded_with_large_signatures`,
// `check_budget::sources_that_change_do_not_amplify`
#[test]
fn repeated_lies_do_not_amplify() {
    let mut world = World::established(60, &as_the_daemon());
    for nth in 0..600 {
        lie(&mut world, &strangers(nth));
        world.run_for(Duration::from_millis(100));
    }
    world.run_for(Duration::from_secs(60));
    let ((packets, bytes), (own_packets, own_bytes)) = (to_strangers(&world, "198.51.100.2"), announced(&world));
    println!("{own_packets} packets ({own_bytes} bytes) of the peer, {packets} ({bytes} bytes) to strangers");
    assert!(own_packets >= 600 && packets >= 600, "each announcement is answered by one check: {packets}");
    assert!(packets <= own_packets + 64 + 60 + 1, "{packets} packets for {own_packets}");
    assert!(bytes <= own_bytes + 64 * 1024 + 120 * 256, "{bytes} bytes for {own_bytes}");
    // The host announces an address that it has: this takes no longer than before.
    world.forget_history();
    assert_eq!(time_to_move(&mut world, 0, &["192.0.2.77"]), ROUND_TRIP_AND_A_HALF);
}

/// The liar's signatures have 64 bytes, those of the other host 256.
#[test]
fn bytes_are_bounded_with_large_signatures() {
    let keys = [(Algorithm::Ed25519, 61), (Algorithm::Rsa, 62)];
    let mut world = World::with_keys(61, Network::CLEAN, &as_the_daemon(), keys);
    world.connect(0);
    world.run_for(Duration::from_secs(20));
    world.forget_history();
    for nth in 0..600 {
        lie(&mut world, &strangers(nth)[..1]);
        world.run_for(Duration::from_millis(100));
    }
    let ((packets, bytes), (own_packets, own_bytes)) = (to_strangers(&world, "198.51.100.2"), announced(&world));
    println!("{own_packets} packets ({own_bytes} bytes) of the peer, {packets} ({bytes} bytes) to strangers");
    assert!(bytes > own_bytes, "the limit matters");
    assert!(bytes <= own_bytes + 64 * 1024 + 60 * 256 + 1024, "{bytes} bytes for {own_bytes}");
    assert!(world.dropped.contains(&(1, Dropped::Overload)));
}

/// A host on the path changes the source of the peer's packets every 250 ms.
#[test]
fn sources_that_change_do_not_amplify() {
    let mut world = World::established(63, &as_the_daemon());
    let peer = world.hit(0);
    let mut followed = 0;
    for nth in 0..2400 {
        let (now, at) = (world.now, address(&strangers(nth)[0]));
        followed += usize::from(world.hosts[1].follow(now, peer, at, false));
        world.run_for(Duration::from_millis(250));
    }
    let (packets, _) = to_strangers(&world, "198.51.100.2");
    assert!(followed >= 64, "{followed}");
    assert!(packets <= 64 + 600 / 2 + 1, "{packets} packets in 600 s");
    world.forget_history();
    assert_eq!(time_to_move(&mut world, 0, &["192.0.2.77"]), ROUND_TRIP_AND_A_HALF);
}

const ROUND_TRIP_AND_A_HALF: Option<Duration> = Some(Duration::from_millis(150));

/// Moves a host, and returns the time until its peer has verified the first of its new addresses.
fn time_to_move(world: &mut World, index: usize, places: &[&str]) -> Option<Duration> {
    let (start, peer) = (world.now, world.hit(index));
    world.events.clear();
    world.move_to(index, places);
    world.run_for(Duration::from_secs(1));
    verified_at(world, peer, address(places[0])).map(|at| at.saturating_since(start))
}

fn verified_at(world: &World, peer: holdover_hip::identity::Hit, address: IpAddr) -> Option<Instant> {
    let wanted = Event::PeerReaddressed { peer, address };
    world.events.iter().find(|(_, _, event)| *event == wanted).map(|(at, _, _)| *at)
}

/// Every move takes one and a half round trips, however often the host has moved: alone, twice in a row, and with unreachable addresses.
// Claim: An honest host is never slowed by the budget: 300 moves one second apart, each twice in a row, with seven more addresses that
// nobody reaches, and of both hosts at once.
// Tests: `check_budget::honest_moves_are_not_slowed`, `check_budget::honest_moves_of_both_hosts_are_not_slowed`
#[test]
fn honest_moves_are_not_slowed() {
    let mut world = World::established(64, &as_the_daemon());
    for nth in 0..300 {
        let (first, second) = (format!("192.0.2.{}", nth % 200 + 1), format!("198.18.{}.{}", nth / 200, nth % 200 + 1));
        let mut places = vec![second.as_str()];
        let dead = strangers(nth);
        places.extend(dead[..7].iter().map(String::as_str));
        world.move_to(0, &[&first]);
        world.run_for(Duration::from_millis(20));
        // No host has the other addresses.
        let (start, peer) = (world.now, world.hit(0));
        world.events.clear();
        world.move_to(0, &places);
        world.places[0].truncate(1);
        world.run_for(Duration::from_secs(1));
        let at = verified_at(&world, peer, address(&second)).map(|at| at.saturating_since(start));
        assert_eq!(at, ROUND_TRIP_AND_A_HALF, "move {nth}");
    }
}

/// Both hosts keep one address that works, and lose the preferred ones at once.
#[test]
fn honest_moves_of_both_hosts_are_not_slowed() {
    let stable = ["192.0.2.200", "198.51.100.200"];
    let mut world = World::established(65, &as_the_daemon());
    for (index, at) in stable.iter().enumerate() {
        let first = world.places[index][0].to_string();
        world.move_to(index, &[&first, at]);
        world.run_for(Duration::from_secs(5));
    }
    let mut first_time = None;
    for nth in 0..200 {
        world.events.clear();
        let (start, hits) = (world.now, [world.hit(0), world.hit(1)]);
        let new = [format!("192.0.2.{}", nth % 190 + 3), format!("198.51.100.{}", nth % 190 + 3)];
        for index in [0, 1] {
            world.move_to(index, &[&new[index], stable[index]]);
        }
        world.run_for(Duration::from_secs(1));
        let times: Vec<_> = [0, 1]
            .map(|index| verified_at(&world, hits[index], address(&new[index])).map(|at| at.saturating_since(start)))
            .into();
        assert!(times.iter().all(Option::is_some), "move {nth}: {times:?}");
        assert_eq!(first_time.get_or_insert_with(|| times.clone()), &times, "move {nth}");
    }
}
