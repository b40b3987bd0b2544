//! A host that has lost its keys, as after a crash, while its peer still has the association.

use bytes::Bytes;
use holdover_base::Duration;
use holdover_hip::codec::{HipPacket, PacketType, Parameter};
use holdover_hip::host::State;
use holdover_hipd::files::Via;
use holdover_wire::{Packet, Payload};

use crate::world::{Translator, World, address};
use crate::{SECOND, data_in_flight, talking};

const HOME: Translator =
    Translator { outside: std::net::IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 9)), port: 40_000 };

/// A world in which host 0 is behind a translator, and host 1's file has a wrong address of it.
fn behind_a_translator() -> World {
    let mut world = talking(Via::Udp);
    world.move_behind(HOME, &["192.168.1.2"]);
    world.run_for(SECOND * 3);
    world.send(1, 3);
    world.run_for(SECOND);
    assert_eq!(world.numbers(0), [2, 3]);
    world
}

// Claim: A host that has lost its keys, as after a crash, opens the association again with a peer behind a translator of addresses as soon as
// the peer moves, and after 45 s at the latest without any data, though none of the addresses in its file reaches the peer.
#[test]
fn a_peer_behind_a_translator_is_called_back_when_it_moves() {
    let mut world = behind_a_translator();
    world.restart(1);
    world.run_for(SECOND * 2);
    assert_ne!(world.hosts[1].state(world.hit(0)), State::Established);
    world.move_behind(Translator { port: 50_000, ..HOME }, &["192.168.7.2"]);
    world.run_for(SECOND);
    world.send(1, 4);
    world.send(0, 5);
    world.run_for(SECOND);
    assert_eq!((world.numbers(0), world.numbers(1)), (vec![2, 3, 4], vec![1, 5]));
}

#[test]
fn a_peer_behind_a_translator_is_called_back_without_data() {
    let mut world = behind_a_translator();
    world.run_for(SECOND * 100);
    world.restart(1);
    world.run_for(SECOND * 45);
    world.send(1, 4);
    world.run_for(SECOND);
    assert_eq!(world.numbers(0), [2, 3, 4]);
}

// Claim: When a peer has lost its keys, and the association is opened again, TCP of the other host is woken as after a move.
#[test]
fn connections_with_a_peer_that_has_lost_its_keys_are_woken() {
    let mut world = talking(Via::Ip);
    data_in_flight(&mut world);
    world.run_for(Duration::from_millis(10));
    let before = world.hosts[0].counters().woken;
    world.restart(1);
    world.run_for(SECOND);
    assert!(world.hosts[0].counters().woken > before);
}

// Claim: A forged packet of an association is answered by at most an I1, which is no longer, and by none where there is an association, where
// the daemon ends, or for an unknown host.
#[test]
fn forged_packets_of_associations_are_answered_by_at_most_an_i1() {
    let mut world = talking(Via::Ip);
    let forged = |world: &World, sender, kind| {
        let notification = Parameter::EchoRequestSigned(Bytes::from_static(&[7; 16]));
        let packet = HipPacket { parameters: vec![notification], ..HipPacket::new(kind, sender, world.hit(1)) };
        packet.emit(address("198.51.100.66"), address("198.51.100.2")).unwrap()
    };
    let answers = |world: &mut World, packet: &Packet| {
        world.sent.clear();
        for _ in 0..10 {
            world.deliver(packet.clone());
        }
        world.run_for(Duration::from_millis(1));
        let to_forger = world.sent.iter().filter(|sent| sent.dst == packet.src);
        to_forger.inspect(|sent| assert!(sent.wire_len() <= packet.wire_len(), "{sent}")).count()
    };
    let update = forged(&world, world.hit(0), PacketType::Update);
    assert_eq!(answers(&mut world, &update), 0, "there is an association");
    // The peer does not answer, so that there is none for a while.
    world.move_to(0, &[]);
    world.restart(1);
    assert_eq!(answers(&mut world, &update), 1);
    world.run_for(SECOND * 200);
    let notify = forged(&world, world.hit(0), PacketType::Notify);
    assert_eq!(answers(&mut world, &notify), 1);
    for kind in [PacketType::Close, PacketType::CloseAck, PacketType::R2] {
        world.run_for(SECOND * 200);
        let packet = forged(&world, world.hit(0), kind);
        assert_eq!(answers(&mut world, &packet), 0, "{kind:?}");
    }
    let stranger = forged(&world, holdover_hip::identity::Hit("2001:25::7".parse().unwrap()), PacketType::Update);
    assert_eq!(answers(&mut world, &stranger), 0);
    world.run_for(SECOND * 200);
    let now = world.now;
    world.hosts[1].close_all(now);
    assert_eq!(answers(&mut world, &update), 0, "it ends");
    assert!(world.sent.iter().all(|packet| !matches!(packet.payload, Payload::Esp(_))));
}
