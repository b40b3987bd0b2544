//! Registration (RFC 8003) and rendezvous servers (RFC 8004): which packets are forwarded, and to which address.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_hip::codec::{HipPacket, Locator, NotifyType, PacketType, Parameter, RegInfo, RegList, kind};
use holdover_hip::host::{Dropped, Event, HostConfig, ServerConfig, Service, State, registration_lifetime};
use holdover_hip::identity::Hit;
use holdover_wire::{Packet, Payload};

use crate::support::address;
use crate::world::{World, quick};

const MET: &[Service] = &[Service::Rendezvous];

fn world(seed: u64) -> World {
    World::with_server(seed, &quick(), &ServerConfig::new(MET), MET)
}

/// The first packet of a kind sent by a host.
fn sent(world: &World, from: usize, kind: PacketType) -> (Packet, HipPacket) {
    let place = world.places[from].clone();
    let packets = world.packets.iter().map(|(_, packet)| packet).filter(|packet| place.contains(&packet.src));
    let mut parsed = packets.filter_map(|packet| Some((packet.clone(), HipPacket::parse(packet).ok()?.packet)));
    parsed.find(|(_, packet)| packet.kind == kind).expect("such a packet")
}

// Claim: A client registers, renews before its registration expires, and does not wait for services that R1 did not offer; a
// refused registration is repeated a minute later; one that is not renewed expires.
// Tests: `rendezvous::a_server_is_not_asked_for_what_it_does_not_offer`,
// `rendezvous::a_server_without_room_says_so_and_is_asked_again`, `rendezvous::a_registration_that_is_not_renewed_expires`,
// `rendezvous::a_client_cancels_its_registration`
#[test]
fn a_client_registers_and_its_registration_is_renewed() {
    let mut world = world(1);
    let server = world.hosts[2].hit();
    assert_eq!(world.hosts[1].services(server), MET);
    assert_eq!(world.hosts[2].clients(), (1, 0));
    let (_, r1) = sent(&world, 2, PacketType::R1);
    let offer = r1.find(|it| if let Parameter::RegInfo(info) = it { Some(info.clone()) } else { None }).unwrap();
    let RegInfo { min_lifetime, max_lifetime, types } = offer;
    assert_eq!(types, [1]);
    assert!(registration_lifetime(min_lifetime) <= Duration::from_secs(10));
    assert!(registration_lifetime(max_lifetime) >= Duration::from_secs(120));
    let lifetimes: Vec<Duration> = world
        .events
        .iter()
        .filter_map(|(_, _, event)| if let Event::Registered { lifetime, .. } = event { Some(*lifetime) } else { None })
        .collect();
    let [lifetime] = lifetimes[..] else { panic!("{lifetimes:?}") };
    assert!((540..=600).contains(&lifetime.as_secs()), "{lifetime:?}");
    // Three lifetimes later the registration is valid, and the association was not closed as unused.
    world.forget_history();
    world.run_for(lifetime * 3);
    assert_eq!(world.hosts[1].state(server), State::Established);
    assert_eq!(world.hosts[1].services(server), MET);
    world.connect_by_server();
    assert_eq!(world.state(0), State::Established);
    let asked = world.packets.iter().filter_map(|(_, packet)| HipPacket::parse(packet).ok());
    let asked = asked.filter(|it| it.packet.find(|it| matches!(it, Parameter::RegRequest(_)).then_some(())).is_some());
    assert!((5..=7).contains(&asked.count()));
}

#[test]
fn a_server_is_not_asked_for_what_it_does_not_offer() {
    let world = World::with_server(2, &quick(), &ServerConfig::new(MET), &[Service::RelayHip]);
    assert!(world.has_event(1, |event| matches!(event, Event::RegistrationFailed { failure: 1, .. })));
    assert_eq!(world.hosts[2].clients(), (0, 0));
    let is_request = |parameter: &Parameter| matches!(parameter, Parameter::RegRequest(_)).then_some(());
    assert!(world.packets.iter().all(|(_, it)| HipPacket::parse(it).unwrap().packet.find(is_request).is_none()));
}

#[test]
fn a_server_without_room_says_so_and_is_asked_again() {
    let config = ServerConfig { max_clients: 0, ..ServerConfig::new(MET) };
    let mut world = World::with_server(3, &quick(), &config, MET);
    assert!(world.has_event(1, |event| matches!(event, Event::RegistrationFailed { failure: 2, .. })));
    world.forget_history();
    world.run_for(Duration::from_secs(50));
    assert_eq!(world.count(1, PacketType::Update), 0, "RFC 8003 section 4.5: not immediately");
    world.run_for(Duration::from_secs(20));
    assert!(world.count(1, PacketType::Update) > 0);
}

#[test]
fn a_registration_that_is_not_renewed_expires() {
    let mut world = world(4);
    world.move_to(1, &[]);
    world.run_for(Duration::from_secs(700));
    world.forget_history();
    let hit = world.hosts[1].hit();
    let now = world.now;
    world.hosts[0].connect(now, hit).unwrap();
    world.run_for(Duration::from_secs(1));
    assert!(world.relayed.is_empty());
    assert!(world.dropped.contains(&(2, Dropped::NotForUs)), "{:?}", world.dropped);
}

// Claim: Only I1 goes through a rendezvous server, with FROM and RVS_HMAC; R1 has VIA_RVS; two hosts that move at once find each
// other. Packets without a server's MAC are dropped; 5,000 I1s in a second are limited to the client's rate and leave no state.
// Tests: `rendezvous::both_hosts_that_move_at_once_find_each_other_by_way_of_the_server`,
// `rendezvous::forged_relayed_packets_are_dropped`,
// `rendezvous::a_flood_for_one_client_is_cut_and_costs_the_server_no_memory`,
// `rendezvous::a_server_without_services_forwards_nothing`
#[test]
fn an_exchange_begins_through_the_server_and_continues_without_it() {
    let mut world = world(5);
    world.forget_history();
    world.connect_by_server();
    assert_eq!((world.state(0), world.state(1)), (State::Established, State::Established));
    let kinds: Vec<PacketType> = world.relayed.iter().map(|(_, _, packet)| packet.kind).collect();
    assert_eq!(kinds, [PacketType::I1]);
    let (_, _, i1) = &world.relayed[0];
    let tail: Vec<u16> = i1.parameters.iter().map(Parameter::kind).collect();
    assert_eq!(tail[tail.len() - 2..], [65_498, 65_500], "FROM, RVS_HMAC");
    assert!(i1.parameters.contains(&Parameter::From("::ffff:192.0.2.1".parse().unwrap())));
    // RFC 8004 section 4.3.3.
    let (r1, packet) = sent(&world, 1, PacketType::R1);
    assert_eq!((r1.src, r1.dst), (address("198.51.100.2"), address("192.0.2.1")));
    assert_eq!(packet.parameters.last(), Some(&Parameter::ViaRvs(vec!["::ffff:203.0.113.3".parse().unwrap()])));
    for from in [0, 1] {
        world.data(from).unwrap();
    }
}

#[test]
fn both_hosts_that_move_at_once_find_each_other_by_way_of_the_server() {
    for seed in 10..20 {
        let mut world = world(seed);
        world.connect_by_server();
        world.forget_history();
        world.move_to(0, &["192.0.2.77"]);
        world.move_to(1, &["198.51.100.77"]);
        world.run_for(Duration::from_secs(3));
        assert!(world.relayed.iter().any(|(_, _, packet)| packet.kind == PacketType::Update));
        for from in [0, 1] {
            world.data(from).unwrap_or_else(|error| panic!("{seed}: from {from}: {error}"));
        }
        let gave_up = |event: &Event| matches!(event, Event::GaveUp { .. });
        assert!(!world.has_event(0, gave_up) && !world.has_event(1, gave_up));
    }
}

/// An association between two clients of the server, with these delays of their links and the server's, in milliseconds.
fn between_clients(seed: u64, links: [u64; 3]) -> World {
    between_clients_with(&quick(), seed, links)
}

/// The same with this configuration of all three.
pub(crate) fn between_clients_with(config: &HostConfig, seed: u64, links: [u64; 3]) -> World {
    let mut world = World::with_server(seed, config, &ServerConfig::new(MET), MET);
    let (now, server, client) = (world.now, world.hosts[2].hit(), world.hit(0));
    world.hosts[0].register(now, server, MET);
    world.hosts[0].connect(now, server).unwrap();
    world.hosts[1].add_peer(client, &[]);
    world.hosts[1].add_servers(client, &[address("203.0.113.3")]);
    world.connect_by_server();
    world.links = Some(links.map(Duration::from_millis).into());
    world.run_for(Duration::from_secs(1));
    world.forget_history();
    world
}

/// Each client announces its own address to the other's new one without waiting for the other's check. The exchange of the second client
/// takes half a round trip longer than that of the first.
// Claim: Two clients of a rendezvous server that move at once have verified each other after two round trips between them and one
// to the server at the latest, in every order in which their packets may reach it.
#[test]
fn two_moves_at_once_are_one_exchange_and_a_half() {
    for links in [[25, 0, 0], [0, 25, 0], [25, 25, 0], [25, 24, 0], [24, 25, 5], [10, 40, 5], [40, 10, 5], [1, 1, 20]] {
        for seed in 30..34 {
            let mut world = between_clients(seed, links);
            let start = world.now;
            world.move_to(0, &["192.0.2.77"]);
            world.move_to(1, &["198.51.100.77"]);
            world.run_for(Duration::from_secs(3));
            let verified = |index: usize| {
                let at = verified_at(&world, index);
                at.unwrap_or_else(|| panic!("{links:?} {seed}: {index} has not found the other one"))
            };
            let [mobile, other, server] = links;
            let bound = Duration::from_millis(2 * 2 * (mobile + other) + 2 * server);
            let took = verified(0).max(verified(1)).saturating_since(start);
            assert!(took <= bound, "{links:?} {seed}: {took:?}, bound {bound:?}");
            let gave_up = |event: &Event| matches!(event, Event::GaveUp { .. });
            assert!(!world.has_event(0, gave_up) && !world.has_event(1, gave_up));
            for from in [0, 1] {
                world.data(from).unwrap_or_else(|error| panic!("{links:?} {seed}: from {from}: {error}"));
            }
            // I: to the peer's old address, the server, and the peer's new one; two checks, if both announcements have arrived; answers.
            let updates = [0, 1].map(|index| world.count(index, PacketType::Update));
            assert!(updates.iter().all(|it| *it <= 10), "{links:?} {seed}: {updates:?} UPDATEs");
        }
    }
}

/// When each of two hosts that have moved has verified the other one.
pub(crate) fn verified_at(world: &World, index: usize) -> Option<Instant> {
    let peer = world.hit(1 - index);
    let is_it = |it: &Event| matches!(it, Event::PeerReaddressed { peer: it, .. } if *it == peer);
    world.events.iter().find(|(_, host, event)| *host == index && is_it(event)).map(|(at, ..)| *at)
}

/// The announcement to the new address, which one of them sends when it has heard the other one's, is lost. Retransmissions begin after a
/// second.
// Claim: Of two moves at once, an announcement that is lost between both new addresses is sent again as soon as one of them is verified.
#[test]
fn a_lost_announcement_between_new_addresses_is_sent_again_with_the_verification() {
    for links in [[25, 25, 0], [25, 0, 0], [0, 25, 0]] {
        for lost_by in [0, 1] {
            let mut world = between_clients(30, links);
            let (own, to) = (world.hit(lost_by), ["198.51.100.77", "192.0.2.77"][lost_by]);
            let server = world.places[2][0];
            let lost = Rc::new(Cell::new(0));
            let count = Rc::clone(&lost);
            world.tamper = Some(Box::new(move |packet| {
                let has_locators = HipPacket::parse(packet)
                    .is_ok_and(|it| it.packet.sender == own && has(&it.packet, kind::LOCATOR_SET));
                let is_it = has_locators && packet.dst == address(to) && packet.src != server && count.get() == 0;
                count.set(count.get() + u32::from(is_it));
                !is_it
            }));
            let start = world.now;
            world.move_to(0, &["192.0.2.77"]);
            world.move_to(1, &["198.51.100.77"]);
            world.run_for(Duration::from_secs(3));
            let took = [0, 1].map(|index| verified_at(&world, index).map(|at| at.saturating_since(start)));
            let took = took.map(|it| it.unwrap_or_else(|| panic!("{links:?} {lost_by}: {took:?}")));
            let [mobile, other, server] = links;
            // The acknowledgement is waited for.
            let bound = Duration::from_millis(3 * 2 * (mobile + other) + 2 * server + 10);
            assert!(took.iter().all(|it| *it <= bound), "{links:?} {lost_by}: {took:?}, bound {bound:?}");
        }
    }
}

fn has(packet: &HipPacket, kind: u16) -> bool {
    packet.parameters.iter().any(|it| it.kind() == kind)
}

/// A forwarded packet does not show where the server's client is. Anyone on the path can add such a request behind the signature.
// Claim: A rendezvous server forwards an announcement also if it checks an address besides, and no check alone, signed or not; its client
// answers no check that came by way of the server.
// Tests: `rendezvous::a_check_alone_is_not_forwarded`
#[test]
fn a_client_answers_no_check_that_came_by_way_of_the_server() {
    let mut world = between_clients(31, [25, 25, 0]);
    let (server, server_hit) = (world.places[2][0], world.hosts[2].hit());
    world.tamper = Some(Box::new(move |packet| {
        let Ok(HipPacket { receiver, .. }) = HipPacket::parse(packet).map(|it| it.packet) else { return true };
        if packet.dst == server && receiver != server_hit {
            let mut update = HipPacket::parse(packet).unwrap().packet;
            update.parameters.push(Parameter::EchoRequestUnsigned(Bytes::from_static(b"where")));
            *packet = update.emit(packet.src, packet.dst).unwrap();
        }
        true
    }));
    world.move_to(0, &["192.0.2.77"]);
    world.move_to(1, &["198.51.100.77"]);
    world.run_for(Duration::from_secs(3));
    let is_asked = |(_, _, it): &&(_, _, HipPacket)| has(it, kind::ECHO_REQUEST_UNSIGNED);
    assert!(world.relayed.iter().filter(is_asked).count() > 0, "{:?}", world.relayed);
    let sent = world.packets.iter().filter_map(|(_, packet)| HipPacket::parse(packet).ok());
    assert_eq!(sent.filter(|it| has(&it.packet, kind::ECHO_RESPONSE_UNSIGNED)).count(), 0);
    for from in [0, 1] {
        world.data(from).unwrap();
    }
}

#[test]
fn a_check_alone_is_not_forwarded() {
    let mut world = world(32);
    world.connect_by_server();
    world.forget_history();
    let (own, client, to) = (world.hit(0), world.hit(1), world.places[2][0]);
    let data = Bytes::from_static(b"where");
    let locator = Locator::esp(address("192.0.2.1"), 1000, 60, true);
    let asked = [Parameter::EchoRequestSigned(data.clone()), Parameter::EchoRequestUnsigned(data)];
    for (asked, refused) in asked.into_iter().zip([kind::ECHO_REQUEST_SIGNED, kind::ECHO_REQUEST_UNSIGNED]) {
        for has_locators in [false, true] {
            let mut update = HipPacket::new(PacketType::Update, own, client);
            update.parameters.extend(has_locators.then(|| Parameter::LocatorSet(vec![locator.clone()])));
            update.parameters.extend([Parameter::Seq(7), asked.clone()]);
            let update = update.emit(address("192.0.2.1"), to).unwrap();
            let before = world.relayed.len();
            let handled = world.hosts[2].handle_packet(world.now, &update);
            world.collect();
            let expected = if has_locators { Ok(()) } else { Err(Dropped::Value { kind: refused }) };
            assert_eq!((handled, world.relayed.len() - before), (expected, usize::from(has_locators)));
        }
    }
}

// Claim: A client that announces the address of its rendezvous server as its own is not verified there: the server forwards no checks of
// addresses.
#[test]
fn a_client_is_not_found_at_its_servers_address() {
    let mut world = world(22);
    world.connect_by_server();
    world.forget_history();
    let (now, own, servers) = (world.now, world.places[1][0], world.places[2][0]);
    world.hosts[1].set_locators(now, &[own, servers]);
    world.run_for(Duration::from_secs(30));
    let client = world.hit(1);
    assert_eq!(world.hosts[0].verified_addresses(client), [own]);
    assert!(world.dropped.contains(&(2, Dropped::Value { kind: kind::ECHO_REQUEST_SIGNED })), "it was asked there");
    assert!(world.relayed.is_empty());
}

#[test]
fn forged_relayed_packets_are_dropped() {
    // An attacker sends an I1 with FROM and an invalid MAC: the responder does not answer.
    let mut world = world(6);
    world.forget_history();
    let (initiator, client) = (world.hosts[0].hit(), world.hosts[1].hit());
    let mut i1 = HipPacket::new(PacketType::I1, initiator, client);
    i1.parameters = vec![
        Parameter::DhGroupList(vec![7]),
        Parameter::From("::ffff:192.0.2.99".parse().unwrap()),
        Parameter::RvsHmac(Bytes::from_static(&[7; 32])),
    ];
    let dst = world.places[1][0];
    for src in ["203.0.113.3", "192.0.2.99"] {
        let packet = i1.emit(address(src), dst).unwrap();
        world.deliver(&packet);
        world.collect();
    }
    assert_eq!(world.dropped, [(1, Dropped::Mac), (1, Dropped::Mac)]);
    assert_eq!(world.count(1, PacketType::R1), 0);
    // RFC 8004 section 4.3.2: a relayed opportunistic I1 is not accepted either.
    let packet = HipPacket { receiver: Hit::UNSPECIFIED, ..i1 }.emit(address("203.0.113.3"), dst).unwrap();
    world.deliver(&packet);
    assert_eq!(world.dropped[2], (1, Dropped::Policy));
}

#[test]
fn a_flood_for_one_client_is_cut_and_costs_the_server_no_memory() {
    let config = ServerConfig { max_hip_per_s: 20, ..ServerConfig::new(MET) };
    let mut world = World::with_server(7, &quick(), &config, MET);
    world.forget_history();
    let (client, to) = (world.hosts[1].hit(), world.places[2][0]);
    let before = world.hosts[2].remembered();
    for n in 0..5000_u16 {
        let sender = Hit(format!("2001:25::{n:x}").parse().unwrap());
        let mut i1 = HipPacket::new(PacketType::I1, sender, client);
        i1.parameters = vec![Parameter::DhGroupList(vec![7])];
        let packet = i1.emit(address("192.0.2.50"), to).unwrap();
        world.deliver(&packet);
        world.collect();
    }
    assert_eq!(world.relayed.len(), 20);
    assert_eq!(world.hosts[2].remembered(), before);
    assert!(world.dropped.iter().all(|it| *it == (2, Dropped::Overload)));
    world.run_for(Duration::from_secs(1));
    world.connect_by_server();
    assert_eq!(world.state(0), State::Established);
}

/// The server's answer to a request is recorded and replayed repeatedly: it neither postpones the next request nor grants anything.
#[test]
fn a_registration_is_renewed_though_an_old_answer_is_played_back() {
    let mut world = world(21);
    let (server, lifetime) = (world.hosts[2].hit(), Duration::from_secs(600));
    // The first request is answered in R2, the next one in an UPDATE.
    world.run_for(lifetime * 2 / 3);
    let has_response = |it: &HipPacket| it.find(|it| matches!(it, Parameter::RegResponse(_)).then_some(())).is_some();
    let is_answer = |it: &HipPacket| it.kind == PacketType::Update && has_response(it);
    let to_client = |packet: &Packet| HipPacket::parse(packet).is_ok_and(|it| is_answer(&it.packet));
    let answer = world.packets.iter().map(|(_, packet)| packet).find(|it| to_client(it)).expect("an answer").clone();
    world.forget_history();
    for _ in 0..18 {
        world.run_for(lifetime / 6);
        let before = world.hosts[1].poll_timeout();
        assert_eq!(world.hosts[1].handle_packet(world.now, &answer), Err(Dropped::Stale));
        assert_eq!(world.hosts[1].poll_timeout(), before, "the next request is put off");
        assert_eq!(world.hosts[1].services(server), MET);
        assert!(world.hosts[1].poll_transmit().is_none() && world.hosts[1].poll_event().is_none());
    }
    let is_request = |it: &HipPacket| it.find(|it| matches!(it, Parameter::RegRequest(_)).then_some(())).is_some();
    let packets = world.packets.iter().filter_map(|(_, packet)| HipPacket::parse(packet).ok());
    assert!((5..=7).contains(&packets.filter(|it| is_request(&it.packet)).count()));
    world.connect_by_server();
    assert_eq!(world.state(0), State::Established, "the server has forgotten its client");
}

#[test]
fn a_client_cancels_its_registration() {
    // Built manually: a request with a lifetime of zero (RFC 8003 section 5).
    assert_eq!(registration_lifetime(RegList { lifetime: 0, types: vec![1] }.lifetime), Duration::ZERO);
    let mut world = world(8);
    let (now, server) = (world.now, world.hosts[2].hit());
    world.hosts[1].register(now, server, &[]);
    assert_eq!(world.hosts[1].services(server), []);
    // The end of the association ends the registration.
    world.hosts[1].close(now, server).unwrap();
    world.run_for(Duration::from_secs(1200));
    assert_eq!(world.hosts[2].clients(), (0, 0));
}

#[test]
fn a_server_without_services_forwards_nothing() {
    let mut world = World::pair(9, crate::world::Network::CLEAN, &HostConfig { ..quick() });
    let stranger = Hit("2001:25::1".parse().unwrap());
    let packet = HipPacket::new(PacketType::I1, world.hosts[0].hit(), stranger);
    let packet = packet.emit(world.places[0][0], world.places[1][0]).unwrap();
    world.deliver(&packet);
    assert_eq!(world.dropped, [(1, Dropped::NotForUs)]);
    let esp = Packet::new(world.places[0][0], world.places[1][0], Payload::Esp(Bytes::from_static(&[9; 64])));
    let now = world.now;
    assert!(world.hosts[1].relay(now, &esp).is_err());
}

#[test]
fn notify_types_of_relays_are_errors() {
    assert!(NotifyType::MESSAGE_NOT_RELAYED.is_error());
}
