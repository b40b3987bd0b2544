//! Attacks on the base exchange: floods, replays, and puzzles of other senders.

use holdover_base::{Duration, Rng};
use holdover_hip::codec::{HipPacket, PacketType, Parameter};
use holdover_hip::host::{Dropped, Event, Failure, HostConfig, State};
use holdover_hip::identity::{Algorithm, Hit};
use holdover_wire::Packet;

use crate::base_exchange::{BOTH, states};
use crate::by_hand::{ByHand, GROUP};
use crate::support::{address, hit};
use crate::world::{Network, World, quick};

/// I1 flood: memory stays constant, the puzzle's difficulty rises and falls again, and initiators that solve it are
/// accepted.
// Claim: 30,000 I1s in 3 s: no state, no puzzle before the load, puzzles of at least 16 bits, at most 2,000 R1s in a second, and
// an initiator succeeds afterwards.
#[test]
fn an_i1_flood() {
    let mut world = World::pair(29, Network::CLEAN, &HostConfig { max_r1_per_s: 2000, ..HostConfig::default() });
    let mut rng = Rng::new(1);
    let difficulty = |packet: &Packet| {
        let received = HipPacket::parse(packet).unwrap();
        received.packet.find(|it| if let Parameter::Puzzle(puzzle) = it { Some(puzzle.difficulty) } else { None })
    };
    let before = world.hosts[1].remembered().0;
    let (mut first, mut last, mut overload) = (None, None, 0);
    for count in 0..30_000_u64 {
        // 10,000 in a second, with made-up HITs and addresses.
        let now = world.now + Duration::from_nanos(count * 100_000);
        let sender = Hit((u128::from(rng.next_u64()) | 0x2001_0025 << 96).to_be_bytes().into());
        let mut i1 = HipPacket::new(PacketType::I1, sender, world.hit(1));
        i1.parameters = vec![Parameter::DhGroupList(vec![7, 8, 9, 4])];
        let src = std::net::IpAddr::from((rng.next_u32() | 1 << 24).to_be_bytes());
        let i1 = i1.emit(src, world.places[1][0]).unwrap();
        match world.hosts[1].handle_packet(now, &i1) {
            Ok(()) => {
                let r1 = world.hosts[1].poll_transmit().unwrap();
                assert!(world.hosts[1].poll_transmit().is_none(), "one R1 for an I1");
                first = first.or(difficulty(&r1));
                last = difficulty(&r1);
            }
            Err(error) => {
                assert_eq!(error, Dropped::Overload);
                overload += 1;
            }
        }
    }
    let (peers, kept) = world.hosts[1].remembered();
    assert_eq!(peers, before, "no state for an I1");
    assert!(kept <= 2 * 10, "{kept} signed R1s and key pairs: one for each difficulty and group");
    assert_eq!(first, Some(0), "RFC 7401 section 7: without load");
    assert!(last >= Some(16), "100 times the threshold is 7 bits more than 10: {last:?}");
    assert!(overload > 20_000, "at most 2,000 R1s in a second: {overload}");

    world.now += Duration::from_secs(3);
    world.connect(0);
    world.run_for(Duration::from_secs(20));
    assert_eq!(states(&world), BOTH);
    world.now += Duration::from_secs(10);
    let mut i1 = HipPacket::new(PacketType::I1, hit("2001:25::1"), world.hit(1));
    i1.parameters = vec![Parameter::DhGroupList(vec![7])];
    let i1 = i1.emit(address("203.0.113.9"), world.places[1][0]).unwrap();
    world.hosts[1].handle_packet(world.now, &i1).unwrap();
    assert_eq!(difficulty(&world.hosts[1].poll_transmit().unwrap()), Some(0), "the load is over");
}

/// Every packet of an exchange is replayed later, to both hosts: nothing changes, and each is answered by at most one
/// packet.
// Claim: Replays of any packet change nothing and are answered at most once; puzzles of others, easier ones and expired ones are
// refused; the clock may jump.
// Tests: `attacks::an_i2_does_not_survive_its_association`, `attacks::an_r1_of_an_earlier_generation_is_dropped`,
// `attacks::puzzles_of_others_and_expired_ones`, `clock_jumps::jumps_ahead`
#[test]
fn replays_change_nothing() {
    let mut world = World::pair(30, Network::CLEAN, &quick());
    world.connect(0);
    world.run_for(Duration::from_secs(20));
    let recorded: Vec<Packet> = world.packets.iter().map(|(_, packet)| packet.clone()).collect();
    let spis = |world: &World| {
        let peers = [world.hit(1), world.hit(0)];
        [0, 1].map(|index| {
            let (outbound, inbound) = world.hosts[index].security_associations(peers[index]).unwrap();
            (outbound.spi(), inbound.spi())
        })
    };
    let before = spis(&world);
    for wait in [0, 30, 100, 300] {
        world.run_for(Duration::from_secs(wait));
        for packet in &recorded {
            world.forget_history();
            world.deliver(packet);
            world.collect();
            assert!(world.packets.len() <= 1, "{:?}", world.sent);
            assert!(world.events.is_empty(), "{:?}", world.events);
        }
        world.run_for(Duration::from_secs(1));
        assert_eq!((states(&world), spis(&world)), (BOTH, before), "after {wait} s");
        assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())));
    }
    // After CLOSE an old I2 does not restore the association.
    let peer = world.hit(1);
    world.hosts[0].close(world.now, peer).unwrap();
    world.run_for(Duration::from_secs(5));
    for packet in &recorded {
        world.deliver(packet);
    }
    world.run_for(Duration::from_secs(5));
    assert_eq!(states(&world), (State::Unassociated, State::Closed));
}

/// An I2 is replayed within the lifetime of its puzzle, after its association was closed.
#[test]
fn an_i2_does_not_survive_its_association() {
    let mut world = World::pair(31, Network::CLEAN, &quick());
    world.connect(0);
    world.run_for(Duration::from_millis(300));
    let i2 = world.packets.iter().find(|(_, packet)| HipPacket::parse(packet).unwrap().packet.kind == PacketType::I2);
    let i2 = i2.unwrap().1.clone();
    let peer = world.hit(0);
    world.hosts[1].close(world.now, peer).unwrap();
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.state(1), State::Unassociated);
    assert_eq!(world.hosts[1].handle_packet(world.now, &i2), Err(Dropped::Stale));
    assert_eq!(world.state(1), State::Unassociated);
}

/// An R1 older than the last one is replayed to an initiator that asks again.
#[test]
fn an_r1_of_an_earlier_generation_is_dropped() {
    let mut world = World::pair(32, Network::CLEAN, &HostConfig { r1_lifetime: Duration::from_secs(2), ..quick() });
    world.connect(0);
    world.run_for(Duration::from_secs(20));
    let is_r1 = |packet: &Packet| HipPacket::parse(packet).unwrap().packet.kind == PacketType::R1;
    let old = world.packets.iter().find(|(_, packet)| is_r1(packet)).unwrap().1.clone();
    for _ in 0..2 {
        let peer = world.hit(1);
        world.hosts[0].close(world.now, peer).unwrap();
        world.run_for(Duration::from_secs(20));
        world.connect(0);
        if world.sent.iter().filter(|(_, _, kind)| *kind == PacketType::R1).count() == 2 {
            assert_eq!(world.hosts[0].handle_packet(world.now, &old), Err(Dropped::Stale));
        }
        world.run_for(Duration::from_secs(20));
        assert_eq!(states(&world), BOTH);
    }
}

/// A puzzle is valid only for its initiator at its address, at its difficulty, and within its lifetime.
#[test]
fn puzzles_of_others_and_expired_ones() {
    let mut world = World::pair(33, Network::CLEAN, &HostConfig { r1_lifetime: Duration::from_secs(10), ..quick() });
    world.tamper = Some(Box::new(|packet| HipPacket::parse(packet).is_ok_and(|it| it.packet.kind != PacketType::I2)));
    world.connect(0);
    world.run_for(Duration::from_millis(200));
    let i2 = &world.packets.iter().find(|(_, packet)| HipPacket::parse(packet).unwrap().packet.kind == PacketType::I2);
    let i2 = i2.unwrap().1.clone();
    let elsewhere = HipPacket::parse(&i2).unwrap().packet.emit(address("203.0.113.1"), i2.dst).unwrap();
    assert_eq!(world.hosts[1].handle_packet(world.now, &elsewhere), Err(Dropped::StalePuzzle));
    let mut easier = HipPacket::parse(&i2).unwrap().packet;
    for parameter in &mut easier.parameters {
        if let Parameter::Solution(solution) = parameter {
            solution.difficulty = 0;
        }
    }
    let easier = easier.emit(i2.src, i2.dst).unwrap();
    assert_eq!(world.hosts[1].handle_packet(world.now, &easier), Err(Dropped::StalePuzzle));
    let late = world.now + Duration::from_secs(21);
    assert_eq!(world.hosts[1].handle_packet(late, &i2), Err(Dropped::StalePuzzle));
    assert_eq!(world.hosts[1].handle_packet(world.now, &i2), Ok(()));
    assert_eq!(world.state(1), State::R2Sent);
}

fn i1_from(world: &World, source: &str) -> Packet {
    let mut i1 = HipPacket::new(PacketType::I1, hit("2001:25::1"), world.hit(1));
    i1.parameters = vec![Parameter::DhGroupList(vec![7])];
    i1.emit(address(source), world.places[1][0]).unwrap()
}

/// RFC 7401 section 6.7: R1s to one address are limited, so that forged sources cannot direct a flood at it, and the flood does not make
/// the puzzles of other hosts harder.
// Claim: R1s to one network, and I2s from it, are limited, and make nobody else's puzzle harder; I2s with a valid solution count
// as load; a peer with a reset R1 counter is accepted in the second exchange; an exchange may begin in CLOSING.
// Tests: `attacks::an_i2_flood`, `attacks::a_reset_r1_counter`, `base_exchange::an_exchange_in_closing`,
// `a_network_has_its_own_rate`
#[test]
fn r1s_to_one_address_are_limited() {
    let config = HostConfig { max_r1_per_source: 20, ..HostConfig::default() };
    let mut world = World::pair(35, Network::CLEAN, &config);
    let answered = |world: &mut World, source: &str| {
        let i1 = i1_from(world, source);
        let handled = world.hosts[1].handle_packet(world.now, &i1);
        assert!(matches!(handled, Ok(()) | Err(Dropped::Overload)), "{handled:?}");
        world.hosts[1].poll_transmit()
    };
    let answers = (0..1000).filter(|_| answered(&mut world, "203.0.113.9").is_some()).count();
    assert_eq!(answers, 20);
    let r1 = HipPacket::parse(&answered(&mut world, "203.0.113.10").unwrap()).unwrap().packet;
    let difficulty = r1.find(|it| if let Parameter::Puzzle(puzzle) = it { Some(puzzle.difficulty) } else { None });
    assert_eq!(difficulty, Some(0));
    world.now += Duration::from_millis(500);
    let answers = (0..1000).filter(|_| answered(&mut world, "203.0.113.9").is_some()).count();
    assert_eq!(answers, 10);
}

/// I2s cost more than I1s. Without load their puzzles are free: they are limited for each address, and raise the difficulty.
#[test]
fn an_i2_flood() {
    let config = HostConfig { load_threshold: 10, ..HostConfig::default() };
    let mut peer = ByHand::new(36, &config, None);
    let r1 = peer.ask(&[GROUP.id()]);
    let mut i2 = peer.i2_packet(&r1);
    for parameter in &mut i2.parameters {
        if let Parameter::HipMac(mac) = parameter {
            *mac = bytes::Bytes::from_static(&[1; 32]);
        }
    }
    let i2 = i2.emit(peer.at, address("198.51.100.2")).unwrap();
    let results: Vec<_> = (0..500).map(|_| peer.give(&i2).map(|_| ())).collect();
    let count = |error| results.iter().filter(|it| **it == Err(error)).count();
    assert_eq!((count(Dropped::Mac), count(Dropped::Overload)), (99, 401), "one token of 100 was for the R1");
    peer.at = address("203.0.113.9");
    let r1 = peer.ask(&[GROUP.id()]);
    let difficulty = r1.packet.find(|it| if let Parameter::Puzzle(it) = it { Some(it.difficulty) } else { None });
    assert!(difficulty >= Some(11), "{difficulty:?}");
}

/// RFC 7401 section 4.1.4: a peer whose R1 counter was reset is accepted, after an exchange without another R1.
#[test]
fn a_reset_r1_counter() {
    let mut world = World::pair(37, Network::CLEAN, &HostConfig { r1_counter: 1000, ..quick() });
    world.connect(0);
    world.run_for(Duration::from_secs(20));
    assert_eq!(states(&world), BOTH);
    let peer = world.hit(1);
    world.hosts[0].close(world.now, peer).unwrap();
    world.run_for(Duration::from_secs(5));
    world.restart(1, Algorithm::Ed25519, 37 + 1_000_003, 99, &quick());
    world.connect(0);
    world.run_for(Duration::from_secs(70));
    assert!(world.dropped.contains(&(0, Dropped::Stale)));
    assert!(world.has_event(0, |event| *event == Event::Failed { peer, reason: Failure::NoR1 }));
    world.connect(0);
    world.run_for(Duration::from_secs(20));
    assert_eq!(states(&world), BOTH);
}
