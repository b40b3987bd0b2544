//! The base exchange (RFC 7401 sections 4.1, 4.4 and 6).

use std::process::Command;

use holdover_base::{Duration, Instant};
use holdover_hip::codec::{HipPacket, PacketType, Parameter};
use holdover_hip::crypto::{DhGroup, HipCipher};
use holdover_hip::esp::EspSuite;
use holdover_hip::host::{CommandError, Dropped, Event, Failure, HostConfig, State};
use holdover_hip::identity::Algorithm;
use holdover_wire::pcap;

use crate::support::{address, hit};
use crate::world::{Network, World, host, quick};

pub(crate) const BOTH: (State, State) = (State::Established, State::Established);

pub(crate) fn states(world: &World) -> (State, State) {
    (world.state(0), world.state(1))
}

/// Four messages, one round trip each, and data in both directions after them.
// Claim: Four messages establish an association in two round trips, with every pair of keys, every group, cipher and suite;
// either identity may be hidden.
// Tests: `base_exchange::every_combination_of_keys_groups_ciphers_and_suites`,
// `base_exchange::an_initiator_can_hide_its_identity`
#[test]
fn four_messages_establish() {
    let mut world = World::pair(1, Network::CLEAN, &HostConfig::default());
    let start = world.now;
    world.connect(0);
    assert_eq!(states(&world), (State::I1Sent, State::Unassociated));
    world.run_until(start + Duration::from_millis(149), |_| false);
    assert_eq!(states(&world), (State::I2Sent, State::Unassociated), "the responder remembers nothing of I1");
    world.run_until(start + Duration::from_millis(151), |_| false);
    assert_eq!(states(&world), (State::I2Sent, State::R2Sent));
    assert_eq!(world.data(1), Err("not opened: no association for the packet".to_owned()));
    world.run_until(start + Duration::from_millis(201), |_| false);
    assert_eq!(states(&world), (State::Established, State::R2Sent));
    assert_eq!(world.data(0), Ok(()));
    assert_eq!(states(&world), BOTH, "data shows that R2 has arrived");
    assert_eq!(world.data(1), Ok(()));
    let kinds: Vec<PacketType> = world.sent.iter().map(|(_, _, kind)| *kind).collect();
    assert_eq!(kinds, [PacketType::I1, PacketType::R1, PacketType::I2, PacketType::R2]);
    let peer = world.hit(1);
    assert!(world.has_event(0, |event| *event == Event::Established { peer, initiator: true }));
    assert!(matches!(world.hosts[0].connect(world.now, peer), Err(CommandError::State { state: State::Established })));
    assert_eq!(world.dropped, []);
}

#[test]
fn a_responder_without_data_is_established_after_a_while() {
    let mut world = World::pair(2, Network::CLEAN, &quick());
    world.connect(0);
    world.run_for(Duration::from_secs(5));
    assert_eq!(states(&world), (State::Established, State::R2Sent));
    world.run_for(Duration::from_secs(6));
    assert_eq!(states(&world), BOTH);
}

#[test]
fn every_combination_of_keys_groups_ciphers_and_suites() {
    let algorithms = [Algorithm::Ed25519, Algorithm::EcdsaP256, Algorithm::EcdsaP384, Algorithm::Rsa];
    for (index, one) in algorithms.into_iter().enumerate() {
        for other in algorithms {
            let mut world = World::with_keys(3, Network::CLEAN, &quick(), [(one, 1), (other, 2)]);
            world.connect(index % 2);
            world.run_for(Duration::from_secs(20));
            assert_eq!(states(&world), BOTH, "{one:?} {other:?}");
            assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())), "{one:?} {other:?}");
        }
    }
    for group in DhGroup::ALL {
        let config = HostConfig { groups: vec![group], ..quick() };
        let mut world = World::established(4, &config);
        assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())), "{group:?}");
    }
    for suite in EspSuite::ALL {
        for cipher in HipCipher::ALL {
            let config = HostConfig { suites: vec![suite], ciphers: vec![cipher], hide_identity: true, ..quick() };
            let mut world = World::established(5, &config);
            assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())), "{suite:?} {cipher:?}");
        }
    }
}

#[test]
fn an_initiator_can_hide_its_identity() {
    for hide_identity in [false, true] {
        let mut world = World::pair(6, Network::CLEAN, &HostConfig { hide_identity, ..quick() });
        world.connect(0);
        world.run_for(Duration::from_secs(20));
        assert_eq!(states(&world), BOTH);
        let i2 = world.packets.iter().map(|(_, packet)| HipPacket::parse(packet).unwrap().packet);
        let i2 = i2.into_iter().find(|packet| packet.kind == PacketType::I2).unwrap();
        let shows = i2.parameters.iter().any(|parameter| matches!(parameter, Parameter::HostId(_)));
        assert_eq!(shows, !hide_identity);
    }
}

/// Both begin at the same time; for either order of the HITs one exchange remains, with the same keys on both sides.
#[test]
fn simultaneous_opens() {
    for seed in 10..30 {
        let mut world = World::pair(seed, Network::CLEAN, &quick());
        world.connect(0);
        world.run_for(Duration::from_millis(seed * 10 - 100));
        if world.state(1) == State::Unassociated {
            world.connect(1);
        }
        world.run_for(Duration::from_secs(30));
        assert_eq!(states(&world), BOTH, "seed {seed}");
        assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())), "seed {seed}");
    }
}

/// One host is unreachable for I1s, as behind a translator of addresses: it accepts the exchange nevertheless.
// Claim: An unreachable host is answered when it initiates, whichever HIT is greater.
#[test]
fn a_host_that_cannot_be_called_calls() {
    for index in 0..2 {
        let mut world = World::pair(5, Network::CLEAN, &quick());
        let caller = world.hit(index);
        world.tamper = Some(Box::new(move |packet| {
            HipPacket::parse(packet).is_ok_and(|it| it.packet.kind != PacketType::I1 || it.packet.sender == caller)
        }));
        world.connect(1 - index);
        world.run_for(Duration::from_millis(100));
        world.connect(index);
        world.run_for(Duration::from_secs(20));
        assert_eq!(states(&world), BOTH, "the caller's HIT is greater: {}", caller > world.hit(1 - index));
    }
}

// Claim: Lost packets are retransmitted, simultaneous opens leave one exchange, a restart of either side is detected, and an
// exchange without an answer fails after 63 s.
// Tests: `base_exchange::simultaneous_opens`, `base_exchange::a_restart_of_either_side`, `base_exchange::an_unanswered_exchange_is_given_up`
#[test]
fn each_lost_packet_is_sent_again() {
    for lost in [PacketType::I1, PacketType::R1, PacketType::I2, PacketType::R2] {
        let mut world = World::pair(7, Network::CLEAN, &quick());
        let mut left = 2;
        world.tamper = Some(Box::new(move |packet| {
            let is_lost = HipPacket::parse(packet).is_ok_and(|it| it.packet.kind == lost) && left > 0;
            left -= usize::from(is_lost);
            !is_lost
        }));
        world.connect(0);
        world.run_for(Duration::from_secs(30));
        assert_eq!(states(&world), BOTH, "{lost}");
        assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())), "{lost}");
        let established = world.events.iter().find(|(_, index, _)| *index == 0).unwrap().0;
        assert!(established < Instant::from_secs(1004), "{lost}: after timeouts of 1 and 2 s, at {established:?}");
    }
}

#[test]
fn an_unanswered_exchange_is_given_up() {
    let mut world = World::pair(8, Network { loss: 1.0, ..Network::CLEAN }, &quick());
    world.connect(0);
    world.run_for(Duration::from_secs(62));
    assert_eq!((world.state(0), world.count(0, PacketType::I1)), (State::I1Sent, 6), "1 and 5 retries");
    world.run_for(Duration::from_secs(2));
    let (peer, reason) = (world.hit(1), Failure::NoR1);
    assert!(world.has_event(0, |event| *event == Event::Failed { peer, reason }));
    assert_eq!(world.state(0), State::EFailed);
    world.network = Network::CLEAN;
    world.connect(0);
    world.run_for(Duration::from_secs(20));
    assert_eq!(states(&world), BOTH, "a failure is not for ever");
}

#[test]
fn an_i2_that_is_never_confirmed_fails() {
    let mut world = World::pair(9, Network::CLEAN, &HostConfig { r1_lifetime: Duration::from_secs(4), ..quick() });
    world.tamper = Some(Box::new(|packet| HipPacket::parse(packet).is_ok_and(|it| it.packet.kind != PacketType::I2)));
    world.connect(0);
    world.run_for(Duration::from_secs(400));
    assert_eq!(world.state(0), State::Unassociated, "failed, and forgotten");
    let (peer, reason) = (world.hit(1), Failure::NoR2);
    assert!(world.has_event(0, |event| *event == Event::Failed { peer, reason }));
    let count = world.sent.iter().filter(|(_, index, _)| *index == 0).count();
    assert!(world.count(0, PacketType::I1) > 1, "puzzles have expired");
    assert!(count <= 6 + 4 * 6, "{count} packets: four R1s are answered, each with an I2 that is sent six times");
}

/// One side loses all state and opens again; the other replaces the old association by the new exchange.
#[test]
fn a_restart_of_either_side() {
    for restarted in [0, 1] {
        let mut world = World::established(20, &quick());
        let config = HostConfig { r1_counter: 1000, ..quick() };
        let key_seed = if restarted == 0 { 20 } else { 20 + 1_000_003 };
        world.restart(restarted, Algorithm::Ed25519, key_seed, 99, &config);
        assert_eq!((world.state(restarted), world.state(1 - restarted)), (State::Unassociated, State::Established));
        world.connect(restarted);
        world.run_for(Duration::from_secs(20));
        assert_eq!(states(&world), BOTH);
        assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())));
    }
}

#[test]
fn close_and_its_loss() {
    for lost in [None, Some(PacketType::Close), Some(PacketType::CloseAck)] {
        let mut world = World::established(21, &quick());
        let mut left = 1;
        world.tamper = Some(Box::new(move |packet| {
            let is_lost = left > 0 && HipPacket::parse(packet).is_ok_and(|it| Some(it.packet.kind) == lost);
            left -= usize::from(is_lost);
            !is_lost
        }));
        let peer = world.hit(1);
        world.hosts[0].close(world.now, peer).unwrap();
        assert_eq!(world.state(0), State::Closing);
        world.run_for(Duration::from_secs(5));
        assert_eq!(states(&world), (State::Unassociated, State::Closed), "{lost:?}");
        assert!(world.has_event(0, |event| matches!(event, Event::Closed { .. })));
        assert!(world.has_event(1, |event| matches!(event, Event::Closed { .. })));
        assert!(world.data(0).is_err() && world.data(1).is_err());
        world.connect(1);
        world.run_for(Duration::from_secs(20));
        assert_eq!(states(&world), BOTH, "{lost:?}: again");
    }
}

#[test]
fn an_unused_association_is_closed() {
    let mut world = World::established(22, &HostConfig { unused_lifetime: Duration::from_secs(60), ..quick() });
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.data(0), Ok(()));
    world.run_for(Duration::from_secs(45));
    assert_eq!(states(&world), BOTH, "data counts");
    world.run_for(Duration::from_secs(30));
    assert!(!matches!(world.state(0), State::Established) && !matches!(world.state(1), State::Established));
}

// Claim: An association ends when its peer has sent nothing for `silent_lifetime`, whatever this host sends.
#[test]
fn an_association_with_a_vanished_peer_is_closed() {
    let config = HostConfig { silent_lifetime: Duration::from_secs(300), ..quick() };
    let mut world = World::established(25, &config);
    world.is_in_udp = true;
    // Keep-alives of both hosts, then of one.
    for step in 0..60 {
        for host in 0..if step < 30 { 2 } else { 1 } {
            let (now, peer) = (world.now, world.hit(1 - host));
            if let Ok(dummy) = world.hosts[host].keep_alive(now, peer, false) {
                world.send(dummy);
            }
        }
        if step == 30 {
            world.tamper = Some(Box::new(|_| false));
        }
        if step < 48 {
            assert_eq!(world.state(0), State::Established, "step {step}");
        }
        world.run_for(Duration::from_secs(15));
    }
    assert_eq!(world.state(0), State::Unassociated);
    assert!(world.has_event(0, |event| matches!(event, Event::Closed { .. })));
}

#[test]
fn policies() {
    let closed = HostConfig { accept_unknown_peers: false, ..quick() };
    let mut world = World::pair(23, Network::CLEAN, &closed);
    world.connect(0);
    world.run_for(Duration::from_secs(20));
    assert_eq!(states(&world), BOTH, "named peers may");
    // A stranger with the same addresses, and one with an invalid HIT.
    for (sender, reason) in [("2001:25::bad", Dropped::Policy), ("2001:db8::1", Dropped::Suite)] {
        let mut i1 = HipPacket::new(PacketType::I1, hit(sender), world.hit(1));
        i1.parameters = vec![Parameter::DhGroupList(vec![7])];
        let i1 = i1.emit(world.places[0][0], world.places[1][0]).unwrap();
        assert_eq!(world.hosts[1].handle_packet(world.now, &i1), Err(reason));
    }
    let mut full = World::pair(24, Network::CLEAN, &HostConfig { max_associations: 0, ..quick() });
    full.hosts[1] = host(Algorithm::Ed25519, 24 + 1_000_003, 1, &HostConfig { max_associations: 0, ..quick() });
    let places = full.places[1].clone();
    full.hosts[1].set_locators(full.now, &places);
    full.connect(0);
    full.run_for(Duration::from_secs(10));
    assert_eq!(full.state(1), State::Unassociated);
    assert!(full.dropped.contains(&(1, Dropped::Overload)));
}

#[test]
fn nothing_in_common() {
    let mut world = World::pair(25, Network::CLEAN, &quick());
    let config = HostConfig { ciphers: vec![HipCipher::Null], ..quick() };
    world.restart(1, Algorithm::Ed25519, 25 + 1_000_003, 1, &config);
    world.connect(0);
    world.run_for(Duration::from_secs(1));
    let (peer, reason) = (world.hit(1), Failure::NoCommon { kind: holdover_hip::codec::kind::HIP_CIPHER });
    assert!(world.has_event(0, |event| *event == Event::Failed { peer, reason }), "{:?}", world.events);

    let mut hard = World::pair(26, Network::CLEAN, &HostConfig { max_difficulty: 5, difficulty: 6, ..quick() });
    hard.connect(0);
    hard.run_for(Duration::from_secs(1));
    let reason = Failure::TooDifficult { difficulty: 6 };
    assert!(hard.has_event(0, |event| matches!(event, Event::Failed { reason: it, .. } if *it == reason)));
}

/// RFC 7401 section 4.1.8, off by default on both sides.
#[test]
fn opportunistic_mode() {
    let mut world = World::pair(27, Network::CLEAN, &quick());
    let (now, target) = (world.now, address("198.51.100.2"));
    assert_eq!(world.hosts[0].connect_opportunistic(now, target), Err(CommandError::Opportunistic));

    let config = HostConfig { opportunistic: true, ..quick() };
    for answers in [true, false] {
        let mut world = World::pair(28, Network::CLEAN, &config);
        if !answers {
            world.restart(1, Algorithm::Ed25519, 28 + 1_000_003, 1, &quick());
        }
        world.hosts[0].connect_opportunistic(world.now, target).unwrap();
        world.run_for(Duration::from_secs(90));
        assert_eq!(states(&world) == BOTH, answers);
        if answers {
            assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())));
        } else {
            assert!(world.dropped.contains(&(1, Dropped::Policy)));
            assert!(world.has_event(0, |event| matches!(event, Event::Failed { reason: Failure::NoR1, .. })));
            assert_eq!(world.hosts[0].poll_timeout(), None, "nothing is left of it");
        }
    }
}

/// An answer to an I1 that was given up, or after the mode was switched off, opens nothing.
#[test]
fn answers_to_calls_that_have_ended_are_not_accepted() {
    let config = HostConfig { opportunistic: true, ..quick() };
    let target = address("198.51.100.2");
    for switched_off in [false, true] {
        let mut world = World::pair(61, Network::CLEAN, &config);
        let call = world.hosts[0].connect_opportunistic(world.now, target).unwrap();
        if switched_off {
            world.hosts[0].set_opportunistic(false);
        } else {
            world.hosts[0].cancel_opportunistic(call);
        }
        world.run_for(Duration::from_secs(90));
        let r1_is_dropped = (0, Dropped::State { state: State::Unassociated });
        assert!(world.dropped.contains(&r1_is_dropped), "{:?}", world.dropped);
        assert_eq!(states(&world), (State::Unassociated, State::Unassociated));
        assert_eq!(world.hosts[0].poll_timeout(), None);
    }
}

/// What is known of a peer without an association stays when it answers an I1 without a receiver: its addresses, and the counter of its R1s.
#[test]
fn a_known_peer_that_answers_a_call_keeps_its_state() {
    let config = HostConfig { opportunistic: true, r1_counter: 1000, ..quick() };
    let (target, other) = (address("198.51.100.2"), address("2001:db8::99"));
    let mut world = World::pair(62, Network::CLEAN, &config);
    let peer = world.hit(1);
    world.hosts[0].add_peer(peer, &[other]);
    let call = world.hosts[0].connect_opportunistic(world.now, target).unwrap();
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.hosts[0].state(peer), State::Established);
    assert!(world.has_event(0, |event| *event == Event::Answered { peer, call, is_new: true }), "{:?}", world.events);
    let own = address("2001:db8::1");
    assert_eq!(world.hosts[0].locators_towards(peer, &[own]), [own], "the peer's other address is known");
    // An associated peer that answers from its verified address is told as such, and keeps its association.
    let call = world.hosts[0].connect_opportunistic(world.now, target).unwrap();
    world.run_for(Duration::from_secs(5));
    assert!(world.has_event(0, |event| *event == Event::Answered { peer, call, is_new: false }), "{:?}", world.events);
    assert_eq!(world.hosts[0].state(peer), State::Established);
    world.hosts[0].close(world.now, peer).unwrap();
    world.run_for(Duration::from_secs(600));
    assert_eq!(world.hosts[0].state(peer), State::Unassociated);
    // A host with lower counters: the R1s are replays, or the counter was reset.
    world.restart(1, Algorithm::Ed25519, 62 + 1_000_003, 1, &HostConfig { r1_counter: 1, ..config });
    let call = world.hosts[0].connect_opportunistic(world.now, target).unwrap();
    world.run_for(Duration::from_secs(5));
    assert!(world.dropped.contains(&(0, Dropped::Stale)), "{:?}", world.dropped);
    assert!(!world.has_event(0, |event| matches!(event, Event::Answered { call: it, .. } if *it == call)));
    assert_eq!(world.hosts[0].state(peer), State::Unassociated);
}

/// A complete association in Wireshark's view: nothing malformed, every checksum correct.
#[test]
fn tshark_finds_no_malformed_packet_in_an_association() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("tshark is not installed: skipped");
        return;
    }
    let mut capture = pcap::Writer::new(Vec::new(), 65_535).unwrap();
    let mut count = 0;
    for keys in [[Algorithm::Ed25519, Algorithm::EcdsaP256], [Algorithm::EcdsaP384, Algorithm::Rsa]] {
        let mut world = World::with_keys(50, Network::CLEAN, &quick(), [(keys[0], 1), (keys[1], 2)]);
        world.connect(0);
        world.run_for(Duration::from_secs(20));
        world.move_to(0, &["203.0.113.7", "2001:db8::7"]);
        world.run_for(Duration::from_secs(5));
        let peer = world.hit(1);
        world.hosts[0].rekey(world.now, peer, true).unwrap();
        world.run_for(Duration::from_secs(5));
        world.hosts[0].close(world.now, peer).unwrap();
        world.run_for(Duration::from_secs(5));
        for (at, packet) in &world.packets {
            capture.write(*at, packet).unwrap();
            count += 1;
        }
    }
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("association.pcap");
    std::fs::write(&path, capture.into_inner()).unwrap();
    let matching = |filter: &str| {
        let output = Command::new("tshark").arg("-r").arg(&path).args(["-Y", filter]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert!(count >= 2 * 12, "{count} packets");
    assert_eq!(matching("hip && !_ws.malformed && hip.checksum.status == 1"), count);
}

/// RFC 7401 section 4.4.3, table 7: in CLOSING data causes another exchange at once.
#[test]
fn an_exchange_in_closing() {
    let mut world = World::established(38, &quick());
    let peer = world.hit(1);
    world.tamper =
        Some(Box::new(|packet| HipPacket::parse(packet).is_ok_and(|it| it.packet.kind != PacketType::Close)));
    world.hosts[0].close(world.now, peer).unwrap();
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.state(0), State::Closing);
    world.connect(0);
    world.run_for(Duration::from_secs(20));
    assert_eq!(states(&world), BOTH);
    assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())));
    let closed = world.events.iter().filter(|(_, host, event)| *host == 0 && *event == Event::Closed { peer });
    assert_eq!(closed.count(), 1);
}
