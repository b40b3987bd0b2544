//! Connectivity checks, and what happens meanwhile and afterwards: moves, several addresses, two relays, hosts that end, and peers that do not
//! answer (RFC 9028 sections 4.6 and 4.9).

use std::net::IpAddr;

use bytes::Bytes;
use holdover_base::Duration;
use holdover_hip::codec::{CandidateKind, HipPacket, PacketType, Parameter, kind};
use holdover_hip::host::{Dropped, Event, HostConfig, ServerConfig, State};
use holdover_hip::identity::Algorithm;
use holdover_wire::{Packet, Payload};

use crate::by_hand::GROUP;
use crate::connectivity::{HOST, after_exchange, candidate, check, checks, mode, respond};
use crate::direct_path::{checks_of, selected};
use crate::relay::{RELAYED, data_arrives, world};
use crate::support::address;
use crate::world::{World, host, quick};

const RELAY: &str = "203.0.113.3";

fn parameters(packet: &Packet) -> Vec<Parameter> {
    HipPacket::parse(packet).map(|it| it.packet.parameters).unwrap_or_default()
}

fn has(packet: &Packet, kind: u16) -> bool {
    parameters(packet).iter().any(|it| it.kind() == kind)
}

fn is_of(packet: &Packet, at: &str) -> bool {
    packet.src == address(at) || packet.dst == address(at)
}

/// Until both hosts have begun their checks.
fn begin_checks(world: &mut World) {
    world.connect(0);
    world.run_until(world.now + Duration::from_secs(5), |world| world.state(0) == State::Established);
    world.run_for(Duration::from_secs(1));
    assert!(is_checking(world, 0) && is_checking(world, 1));
}

fn is_checking(world: &World, index: usize) -> bool {
    world.hosts[index].is_checking(world.hit(1 - index))
}

/// The outer addresses of data from a host.
fn outer(world: &mut World, from: usize) -> (IpAddr, IpAddr) {
    let (now, src, dst) = (world.now, world.hit(from), world.hit(1 - from));
    let payload = Payload::Other { protocol: 253, payload: Bytes::from_static(b"data") };
    let sealed = world.hosts[from].seal(now, &Packet::new(src.0.into(), dst.0.into(), payload)).unwrap();
    (sealed.src, sealed.dst)
}

// Claim: A client of a relay that has moved is reached through it in later exchanges.
#[test]
fn a_client_that_has_moved_is_reached_by_way_of_its_relay() {
    let mut world = world(51, false);
    world.move_to(1, &["198.51.100.77"]);
    world.run_for(Duration::from_secs(2));
    world.connect(0);
    world.run_for(Duration::from_secs(40));
    for from in [0, 1] {
        assert!(data_arrives(&mut world, from), "from {from}");
    }
    let [first, second, relay] = ["192.0.2.1", "198.51.100.77", RELAY].map(address);
    assert_eq!(selected(&world, 0), Some((first, relay, true)));
    assert_eq!(selected(&world, 1), Some((second, relay, true)));
}

// Claim: Of two hosts with a relay each, what one of them hears of its own relay does not end the checks.
#[test]
fn two_relays_do_not_disturb_the_checks() {
    let mut world = world(52, false);
    let serving = HostConfig { server: Some(ServerConfig::new(RELAYED)), ..quick() };
    world.hosts.push(host(Algorithm::Ed25519, 3_000_055, 52, &serving));
    world.places.push(vec![address("203.0.113.4")]);
    let (now, places, first, relay) = (world.now, world.places.clone(), world.hit(0), world.hit(3));
    world.hosts[3].set_locators(now, &places[3]);
    world.hosts[3].add_peer(first, &[]);
    world.hosts[0].add_peer(relay, &places[3]);
    world.hosts[0].register(now, relay, RELAYED);
    world.hosts[0].connect(now, relay).unwrap();
    let is_other_relay = |packet: &Packet| is_of(packet, "203.0.113.4") && !is_of(packet, "198.51.100.2");
    world.tamper = Some(Box::new(move |packet| is_of(packet, RELAY) || is_other_relay(packet)));
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.hosts[0].services(relay), RELAYED);
    begin_checks(&mut world);
    world.forget_history();
    let now = world.now;
    world.hosts[0].rekey(now, relay, true).unwrap();
    world.run_for(Duration::from_secs(1));
    assert!(world.has_event(0, |event| matches!(event, Event::Rekeyed { peer } if *peer == relay)));
    let announced = world.packets.iter().filter(|(_, it)| it.src == places[0][0] && has(it, kind::LOCATOR_SET));
    assert_eq!(announced.count(), 0);
    assert!(is_checking(&world, 0) && is_checking(&world, 1));
    world.tamper = None;
    world.run_for(Duration::from_secs(20));
    let [first, second] = [places[0][0], places[1][0]];
    assert_eq!(selected(&world, 0), Some((first, second, false)));
    assert_eq!(selected(&world, 1), Some((second, first, false)));
}

// Claim: A nomination that is repeated, and whose confirmation never comes, does not prolong the checks.
#[test]
fn repeated_nominations_do_not_prolong_the_checks() {
    let candidates = vec![candidate("192.0.2.9", 10_500, CandidateKind::Host, HOST)];
    let mut peer = after_exchange(53, &HostConfig::default(), &[mode()], candidates);
    checks(&mut peer, Duration::from_millis(10));
    let nomination = check(&mut peer, Some(Parameter::Nominate));
    for _ in 0..60 {
        let _ = peer.give(&nomination);
        checks(&mut peer, Duration::from_millis(100));
    }
    assert!(peer.host.is_checking(peer.own()));
    checks(&mut peer, Duration::from_secs(65));
    assert!(!peer.host.is_checking(peer.own()));
}

// Claim: Data leaves a pair whose nomination is not answered, or not confirmed.
// Tests: `checks_and_moves::a_pair_that_is_not_confirmed_is_left`
#[test]
fn a_pair_that_dies_before_its_nomination_is_left() {
    let mut world = world(54, true);
    let mut is_dead = false;
    world.tamper = Some(Box::new(move |packet| {
        let is_check = has(packet, kind::CANDIDATE_PRIORITY);
        is_dead |= has(packet, kind::NOMINATE);
        // The relay's own pair does not succeed.
        if is_of(packet, RELAY) { !is_check } else { !is_dead }
    }));
    world.connect(0);
    world.run_for(Duration::from_secs(4));
    assert_eq!(outer(&mut world, 0).1, world.places[1][0], "the pair has answered");
    world.run_for(Duration::from_secs(70));
    assert!(world.has_event(0, |event| matches!(event, Event::ChecksFailed { .. })));
    for from in [0, 1] {
        assert!(data_arrives(&mut world, from), "from {from}");
    }
}

#[test]
fn a_pair_that_is_not_confirmed_is_left() {
    let candidates = vec![candidate("192.0.2.9", 40_000, CandidateKind::Host, HOST)];
    let mut peer = after_exchange(55, &HostConfig::default(), &[mode()], candidates);
    let (exchanged, elsewhere) = (peer.at, address("192.0.2.9"));
    let sent = checks(&mut peer, Duration::from_millis(10)).remove(0).3;
    peer.at = elsewhere;
    respond(&mut peer, &sent).unwrap();
    let nomination = check(&mut peer, Some(Parameter::Nominate));
    peer.give(&nomination).unwrap();
    let is_there = |event: &Event| matches!(event, Event::Nominated { between, .. } if between.1 == elsewhere);
    assert!(peer.events.iter().any(is_there));
    let own = peer.own();
    assert_eq!(peer.host.verified_addresses(own), [exchanged, elsewhere]);
    checks(&mut peer, Duration::from_secs(130));
    assert_eq!(peer.host.verified_addresses(own), [exchanged]);
    let payload = Payload::Other { protocol: 253, payload: Bytes::from_static(b"data") };
    let inner = Packet::new(peer.host.hit().0.into(), own.0.into(), payload);
    assert_eq!(peer.host.seal(peer.now, &inner).unwrap().dst, exchanged);
}

// Claim: When the checks end, a host with several addresses announces them; data stays on the pair that the checks have selected, and UPDATEs
// leave from its address.
#[test]
fn other_addresses_are_announced_when_the_checks_end() {
    for is_first_cut in [false, true] {
        let mut world = world(56, false);
        world.move_to(0, &["192.0.2.1", "192.0.2.11"]);
        world.run_for(Duration::from_secs(2));
        // One of both addresses reaches the relay alone, the second one for a while.
        let cut = if is_first_cut { "192.0.2.1" } else { "192.0.2.11" };
        let mut left = if is_first_cut { usize::MAX } else { 4 };
        world.tamper = Some(Box::new(move |packet| {
            let is_lost = left > 0 && is_of(packet, cut) && !is_of(packet, RELAY);
            left -= usize::from(is_lost);
            !is_lost
        }));
        world.connect(0);
        world.run_for(Duration::from_secs(20));
        let [first, second, peer] = ["192.0.2.1", "192.0.2.11", "198.51.100.2"].map(address);
        let own = if is_first_cut { second } else { first };
        assert_eq!(selected(&world, 0), Some((own, peer, false)), "{is_first_cut}: {:?}", world.events);
        let mut known = world.hosts[1].verified_addresses(world.hit(0));
        known.retain(|it| [first, second].contains(it));
        known.sort();
        assert_eq!(known, if is_first_cut { vec![second] } else { vec![first, second] });
        assert_eq!(outer(&mut world, 0), (own, peer));
        assert_eq!(outer(&mut world, 1), (peer, own));
        world.forget_history();
        let (now, hit) = (world.now, world.hit(1));
        world.hosts[0].rekey(now, hit, true).unwrap();
        world.run_for(Duration::from_secs(5));
        let sent = world.packets.iter().find(|(_, it)| it.dst == peer && world.places[0].contains(&it.src));
        assert_eq!(sent.unwrap().1.src, own);
        assert!(world.has_event(0, |event| matches!(event, Event::Rekeyed { .. })));
    }
}

#[test]
fn checks_leave_room_for_other_packets_in_the_budget() {
    let strangers = (1..=8).map(|n| candidate(&format!("203.0.113.{n}"), 53, CandidateKind::Host, HOST + n)).collect();
    let mut peer = after_exchange(57, &HostConfig::default(), &[mode()], strangers);
    let mut sent = checks(&mut peer, Duration::from_millis(500)).len();
    for port in 1..100 {
        (peer.port, peer.at) = (Some(port), address(&format!("203.0.114.{port}")));
        let packet = check(&mut peer, None);
        let _ = peer.give(&packet);
        sent += checks(&mut peer, Duration::from_millis(50)).len();
    }
    assert!((48..=51).contains(&sent), "{sent}");
    // The network shows the peer elsewhere.
    let (now, own) = (peer.now, peer.own());
    assert!(peer.host.follow(now, own, address("192.0.2.77"), false));
    // What could not be sent has not failed.
    assert!(peer.host.is_checking(own));
}

// Claim: Checks that have found no direct path are repeated after 60 s, at growing intervals of up to 600 s, and data takes the path that
// they find; they do not keep an association without data.
// Tests: `checks_and_moves::repeated_checks_do_not_keep_an_association`
#[test]
fn checks_that_found_no_direct_path_are_repeated() {
    let mut world = world(61, true);
    world.connect(0);
    for round in 0..8 {
        world.run_for(Duration::from_secs(450));
        assert!(data_arrives(&mut world, round % 2), "{round}");
    }
    let relay = address(RELAY);
    assert_eq!([0, 1].map(|index| selected(&world, index).unwrap().1), [relay; 2]);
    for index in [0, 1] {
        let sent = checks_of(&world, index);
        assert!((20..=60).contains(&sent), "{sent}");
        let nominated = world.events.iter().filter(|(_, by, it)| *by == index && matches!(it, Event::Nominated { .. }));
        assert_eq!(nominated.count(), 1);
    }
    world.tamper = None;
    world.run_for(Duration::from_secs(640));
    for from in [0, 1] {
        assert_eq!(world.data(from), Ok(()));
    }
    let direct = |world: &World, index| matches!(selected(world, index), Some((_, _, false)));
    assert!(direct(&world, 0) && direct(&world, 1), "{:?}", world.events);
    world.forget_history();
    world.run_for(Duration::from_secs(640));
    assert_eq!([checks_of(&world, 0), checks_of(&world, 1)], [0, 0]);
}

/// Without data an association ends after 15 minutes.
#[test]
fn repeated_checks_do_not_keep_an_association() {
    let mut world = world(62, true);
    world.connect(0);
    world.run_for(Duration::from_secs(800));
    assert_eq!([world.state(0), world.state(1)], [State::Established; 2]);
    world.run_for(Duration::from_secs(200));
    assert!([0, 1].iter().all(|&index| world.state(index) != State::Established));
}

// Claim: An I2 whose echo request leaves no room in R2 does not end the former association.
#[test]
fn a_long_echo_request_does_not_end_an_association() {
    let mut peer = after_exchange(63, &HostConfig::default(), &[mode()], Vec::new());
    checks(&mut peer, Duration::from_secs(1));
    let before = (peer.state(), peer.host.inbound_spis());
    let r1 = peer.ask(&[GROUP.id()]);
    let echo = Parameter::EchoRequestSigned(vec![7; 1600].into());
    assert_eq!(peer.answer(&r1, &[mode(), echo], &[]).err(), Some(Dropped::TooLong));
    assert_eq!((peer.state(), peer.host.inbound_spis()), before);
}

// Claim: During the checks a move begins them again; another address of a host, CLOSE and a change of keys take effect.
// Tests: `checks_and_moves::a_further_address_does_not_end_the_checks`, `checks_and_moves::close_ends_the_checks`
#[test]
fn a_move_during_the_checks_begins_them_again() {
    for (moves, are_both_clients) in [(0, true), (1, true), (0, false), (1, false)] {
        let mut world = world(58, are_both_clients);
        begin_checks(&mut world);
        world.move_to(moves, &[["192.0.2.77"], ["198.51.100.77"]][moves]);
        world.forget_history();
        world.run_for(Duration::from_secs(5));
        assert!(is_checking(&world, 0) && is_checking(&world, 1));
        let place = world.places[moves][0];
        let nominated = |world: &World| world.has_event(moves, |event| matches!(event, Event::Nominated { .. }));
        assert!(checks_of(&world, moves) > 0 && checks_of(&world, 1 - moves) > 0 && !nominated(&world));
        for from in [0, 1] {
            assert!(
                data_arrives(&mut world, from),
                "host {moves} has moved, both clients: {are_both_clients}; from {from}"
            );
        }
        world.tamper = None;
        world.run_for(Duration::from_secs(20));
        let other = world.places[1 - moves][0];
        assert_eq!(selected(&world, moves), Some((place, other, false)));
        assert_eq!(selected(&world, 1 - moves), Some((other, place, false)));
    }
}

#[test]
fn a_further_address_does_not_end_the_checks() {
    let mut world = world(59, true);
    world.move_to(0, &["192.0.2.1", "192.0.2.11"]);
    world.run_for(Duration::from_secs(2));
    begin_checks(&mut world);
    world.move_to(0, &["192.0.2.1", "192.0.2.12", "192.0.2.11"]);
    world.run_for(Duration::from_secs(1));
    assert!(is_checking(&world, 0) && is_checking(&world, 1));
    world.tamper = None;
    world.run_for(Duration::from_secs(30));
    assert!(matches!(selected(&world, 0), Some((_, _, false))));
    let known = world.hosts[1].verified_addresses(world.hit(0));
    assert!(world.places[0].iter().all(|it| known.contains(it)), "{known:?}");
}

#[test]
fn close_ends_the_checks() {
    let mut world = world(60, true);
    begin_checks(&mut world);
    let (now, peer) = (world.now, world.hit(1));
    let changed = |world: &World| world.has_event(0, |event| matches!(event, Event::Rekeyed { .. }));
    world.hosts[0].rekey(now, peer, true).unwrap();
    world.run_for(Duration::from_secs(1));
    assert!(changed(&world) && is_checking(&world, 0) && is_checking(&world, 1));
    let now = world.now;
    world.hosts[0].close(now, peer).unwrap();
    world.run_for(Duration::from_secs(1));
    world.forget_history();
    world.run_for(Duration::from_secs(60));
    assert_eq!([checks_of(&world, 0), checks_of(&world, 1)], [0, 0]);
    // Another exchange has checks of its own.
    world.tamper = None;
    world.connect(0);
    world.run_for(Duration::from_secs(5));
    assert!(matches!(selected(&world, 0), Some((_, _, false))));
    assert!(world.sent.iter().any(|(_, _, it)| *it == PacketType::I2));
}
