//! Hosts whose exchange went through a relay find a direct path by connectivity checks, or keep the relay (RFC 9028 sections 4.5 and 4.6).

use std::net::IpAddr;

use holdover_base::Duration;
use holdover_hip::codec::{HipPacket, NatTraversalMode, PacketType, Parameter, kind};
use holdover_hip::host::{DataError, Dropped, Event, HostConfig, ServerConfig, Service, State};
use holdover_wire::{Packet, Payload};

use crate::relay::{apart, data_arrives, world, world_of};
use crate::support::address;
use crate::world::{World, quick};

/// The last pair that a host has selected: its own address, the other one, and whether a relay forwards data.
pub(crate) fn selected(world: &World, index: usize) -> Option<(IpAddr, IpAddr, bool)> {
    let of_host = world.events.iter().rev().filter(|(_, host, _)| *host == index);
    of_host.map(|(.., event)| event).find_map(|event| match event {
        Event::Nominated { between: (own, peer), is_relayed, .. } => Some((*own, *peer, *is_relayed)),
        _ => None,
    })
}

pub(crate) fn checks_of(world: &World, index: usize) -> usize {
    let sent = world.relayed.iter().filter(|(_, by, _)| *by == index).map(|(.., packet)| packet);
    sent.filter(|it| it.parameters.iter().any(|it| it.kind() == kind::CANDIDATE_PRIORITY)).count()
}

/// The nominations that a controlling host has sent.
fn nominations(world: &World, index: usize) -> usize {
    let sent = world.relayed.iter().filter(|(_, by, _)| *by == index).map(|(.., packet)| packet);
    let both = [kind::CANDIDATE_PRIORITY, kind::NOMINATE];
    sent.filter(|it| both.iter().all(|kind| it.parameters.iter().any(|it| it.kind() == *kind))).count()
}

/// The packets of this type that the relay has forwarded.
fn forwarded(world: &World, kind: PacketType) -> Vec<&HipPacket> {
    world.relayed.iter().filter(|(_, by, it)| *by == 2 && it.kind == kind).map(|(.., it)| it).collect()
}

const PLACES: [&str; 2] = ["192.0.2.1", "198.51.100.2"];

// Claim: Two hosts whose exchange goes through a relay negotiate ICE-HIP-UDP, exchange candidates in I2 and R2, and use the direct path
// that their checks find; the initiator nominates it, in a second and a half. Without one they keep the relay.
// Tests: `direct_path::the_relay_is_kept_if_no_pair_answers`, `direct_path::checks_that_are_lost_are_repeated`,
// `direct_path::hosts_that_begin_at_once_agree_on_a_pair`, `direct_path::nominations_that_are_lost_are_repeated`
#[test]
fn hosts_that_meet_at_a_relay_find_their_direct_path() {
    for are_both_clients in [true, false] {
        let mut world = world(21, are_both_clients);
        world.tamper = None;
        world.connect(0);
        world.run_for(Duration::from_secs(4));
        let i2 = forwarded(&world, PacketType::I2)[0];
        assert!(i2.parameters.contains(&Parameter::NatTraversalMode(vec![NatTraversalMode::IceHipUdp.id()])));
        let has_locators = |it: &HipPacket| it.parameters.iter().any(|it| it.kind() == kind::ENCRYPTED);
        assert!(has_locators(i2) && has_locators(forwarded(&world, PacketType::R2)[0]));
        let [first, second] = PLACES.map(address);
        assert_eq!(selected(&world, 0), Some((first, second, false)));
        assert_eq!(selected(&world, 1), Some((second, first, false)));
        assert!(nominations(&world, 0) > 0 && nominations(&world, 1) == 0);
        let when = |is_it: fn(&Event) -> bool| world.events.iter().find(|(_, by, it)| *by == 0 && is_it(it)).unwrap().0;
        let begun = when(|event| matches!(event, Event::Established { .. }));
        let time = when(|event| matches!(event, Event::Nominated { .. })).saturating_since(begun);
        assert!(time <= Duration::from_millis(1500), "{time:?}");
        for from in [0, 1] {
            assert_eq!(world.data(from), Ok(()));
        }
        world.forget_history();
        world.run_for(Duration::from_secs(60));
        assert_eq!([checks_of(&world, 0), checks_of(&world, 1)], [0, 0], "they have ended");
    }
}

#[test]
fn the_relay_is_kept_if_no_pair_answers() {
    for are_both_clients in [true, false] {
        let mut world = world(22, are_both_clients);
        world.connect(0);
        world.run_for(Duration::from_secs(1));
        for from in [0, 1] {
            assert!(data_arrives(&mut world, from), "during the checks, from {from}");
        }
        world.run_for(Duration::from_secs(40));
        let relay = address("203.0.113.3");
        let [first, second] = PLACES.map(address);
        assert_eq!(selected(&world, 0), Some((first, relay, true)), "both clients: {are_both_clients}");
        assert_eq!(selected(&world, 1), Some((second, relay, true)), "both clients: {are_both_clients}");
        for from in [0, 1] {
            assert!(data_arrives(&mut world, from), "from {from}");
        }
    }
}

/// RFC 9028 section 4.3: LOCATOR_SET is in ENCRYPTED, also beside a HOST_ID; section 4.4: the slower of both hosts sets the pace.
#[test]
fn hidden_identities_have_candidates_too() {
    let config = HostConfig { hide_identity: true, check_pacing: Duration::from_millis(200), ..quick() };
    let mut world = world_of(25, true, &config);
    world.tamper = None;
    world.connect(0);
    world.run_for(Duration::from_secs(4));
    let i2 = forwarded(&world, PacketType::I2)[0];
    let has = |kind: u16| i2.parameters.iter().any(|it| it.kind() == kind);
    assert!(has(kind::ENCRYPTED) && !has(kind::HOST_ID) && !has(kind::LOCATOR_SET));
    assert!(i2.parameters.contains(&Parameter::TransactionPacing(200)));
    let [first, second] = PLACES.map(address);
    assert_eq!(selected(&world, 0), Some((first, second, false)));
    assert_eq!(selected(&world, 1), Some((second, first, false)));
}

/// RFC 9028 section 4.6.3.
// Claim: If no pair works and no relay forwards data, both hosts report it with CONNECTIVITY_CHECKS_FAILED, and send no data to the relay.
#[test]
fn without_any_path_both_hosts_say_so() {
    let only_hip = [Service::RelayHip];
    let mut world = World::with_server(23, &quick(), &ServerConfig::new(&only_hip), &only_hip);
    world.is_in_udp = true;
    let (now, server) = (world.now, world.hosts[2].hit());
    world.hosts[1].close(now, server).unwrap();
    world.run_for(Duration::from_secs(1));
    let now = world.now;
    world.hosts[1].connect(now, server).unwrap();
    world.run_for(Duration::from_secs(5));
    apart(&mut world);
    world.connect(0);
    world.run_for(Duration::from_secs(40));
    for index in [0, 1] {
        assert!(world.has_event(index, |event| matches!(event, Event::ChecksFailed { .. })), "host {index}");
        let told = |event: &Event| matches!(event, Event::Notified { notification, .. } if notification.kind.0 == 61);
        assert!(world.has_event(index, told), "host {index}: {:?}", world.events);
        assert_eq!(world.state(index), State::Established);
        let (src, dst) = (world.hit(index), world.hit(1 - index));
        let payload = Payload::Other { protocol: 253, payload: bytes::Bytes::from_static(b"data") };
        let sealed = world.hosts[index].seal(world.now, &Packet::new(src.0.into(), dst.0.into(), payload));
        assert_eq!(sealed, Err(DataError::NoPath));
    }
}

#[test]
fn checks_that_are_lost_are_repeated() {
    for seed in 30..40 {
        let mut world = world(seed, true);
        world.tamper = None;
        world.connect(0);
        world.run_until(world.now + Duration::from_secs(5), |world| world.state(0) == State::Established);
        world.network.loss = 0.4;
        world.run_for(Duration::from_secs(30));
        world.network.loss = 0.0;
        world.run_for(Duration::from_secs(40));
        let [first, second] = PLACES.map(address);
        assert_eq!(selected(&world, 0), Some((first, second, false)), "seed {seed}: {:?}", world.events);
        assert_eq!(selected(&world, 1), Some((second, first, false)), "seed {seed}: {:?}", world.events);
    }
}

/// Lost are two nominations, two answers to them, and two confirmations; before that, all answers to the controlled host's own checks if its pair
/// is not to succeed.
#[test]
fn nominations_that_are_lost_are_repeated() {
    for has_succeeded in [true, false] {
        let mut world = world(37, true);
        let (mut lost, mut is_answered) = ([0; 3], false);
        let first = address("192.0.2.1");
        world.tamper = Some(Box::new(move |packet| {
            let hip = HipPacket::parse(packet).unwrap().packet;
            let has = |kind: u16| hip.parameters.iter().any(|it| it.kind() == kind);
            let step = match (packet.src == first, has(kind::NOMINATE)) {
                (true, true) => 0,
                (false, true) => 1,
                (true, false) if has(kind::MAPPED_ADDRESS) && is_answered => 2,
                (true, false) => return has_succeeded || !has(kind::MAPPED_ADDRESS),
                (false, false) => return true,
            };
            lost[step] += 1;
            is_answered |= step == 1 && lost[1] > 2;
            lost[step] > 2
        }));
        world.connect(0);
        world.run_for(Duration::from_secs(30));
        let [first, second] = PLACES.map(address);
        assert_eq!(selected(&world, 0), Some((first, second, false)), "{has_succeeded}: {:?}", world.events);
        assert_eq!(selected(&world, 1), Some((second, first, false)), "{has_succeeded}: {:?}", world.events);
        assert!(nominations(&world, 0) >= 3);
        for from in [0, 1] {
            assert_eq!(world.data(from), Ok(()));
        }
    }
}

/// RFC 9028 section 4.6: the host that becomes the responder is the controlled one.
#[test]
fn hosts_that_begin_at_once_agree_on_a_pair() {
    for seed in [41, 42] {
        let mut world = world(seed, true);
        let other = world.hit(0);
        world.hosts[1].add_peer(other, &[]);
        world.hosts[1].add_servers(other, &[address("203.0.113.3")]);
        world.connect(0);
        world.connect(1);
        world.run_until(world.now + Duration::from_secs(5), |world| world.state(0) == State::Established);
        world.tamper = None;
        world.run_for(Duration::from_secs(40));
        let [first, second] = PLACES.map(address);
        assert_eq!(selected(&world, 0), Some((first, second, false)), "seed {seed}: {:?}", world.events);
        assert_eq!(selected(&world, 1), Some((second, first, false)), "seed {seed}: {:?}", world.events);
        assert_eq!(nominations(&world, 0).min(nominations(&world, 1)), 0, "one host is the controlling one");
    }
}

/// RFC 9028 section 4.5.
// Claim: A relay drops an I2 without NAT traversal mode, and says so.
#[test]
fn a_relay_requires_a_nat_traversal_mode() {
    let config = HostConfig { nat_modes: vec![NatTraversalMode::UdpEncapsulation], ..quick() };
    let mut world = world(24, false);
    let (now, places) = (world.now, world.places.clone());
    world.hosts[0] = crate::world::host(holdover_hip::identity::Algorithm::Ed25519, 24, 24, &config);
    let (client, server) = (world.hit(1), world.hosts[2].hit());
    world.hosts[0].set_locators(now, &places[0]);
    world.hosts[0].add_peer(server, &places[2]);
    world.hosts[0].add_peer(client, &[]);
    world.hosts[0].add_servers(client, &places[2]);
    world.connect(0);
    world.run_for(Duration::from_secs(2));
    assert!(forwarded(&world, PacketType::I2).is_empty());
    assert!(world.dropped.contains(&(2, Dropped::Missing { kind: kind::NAT_TRAVERSAL_MODE })), "{:?}", world.dropped);
    let notified = |world: &World| world.packets.iter().filter(|(_, it)| is_notify(it)).count();
    assert!(notified(&world) > 0);
    // Forged: the relay answers no header alone.
    world.forget_history();
    let i2 = HipPacket::new(PacketType::I2, world.hit(0), client).emit(places[0][0], places[2][0]).unwrap();
    world.deliver(&i2);
    world.collect();
    assert!(world.dropped.contains(&(2, Dropped::Missing { kind: kind::NAT_TRAVERSAL_MODE })), "{:?}", world.dropped);
    assert_eq!(notified(&world), 0);
}

/// NO_VALID_NAT_TRAVERSAL_MODE_PARAMETER of the relay.
fn is_notify(packet: &Packet) -> bool {
    let is_it = |it: &Parameter| matches!(it, Parameter::Notification(it) if it.kind.0 == 60);
    packet.src == address("203.0.113.3")
        && HipPacket::parse(packet).is_ok_and(|it| it.packet.parameters.iter().any(is_it))
}
