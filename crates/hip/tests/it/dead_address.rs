//! A peer announces several addresses, and the preferred one is dead: of an IP version that a network has configured and does not carry, or
//! behind a filter.

use bytes::Bytes;
use holdover_base::Duration;
use holdover_hip::codec::{HipPacket, PacketType, kind};
use holdover_hip::host::{HostConfig, PathCheckConfig};
use holdover_wire::{Packet, Payload};

use crate::support::address;
use crate::world::World;

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

/// Both hosts send 200 bytes every 100 ms. Returns how much of the data arrived at each, of how much that was sent.
pub(crate) fn talk(world: &mut World, time: Duration) -> ([usize; 2], usize) {
    world.got.clear();
    let (end, mut sent) = (world.now + time, 0);
    while world.now < end {
        for from in [0, 1] {
            let (src, dst) = (world.hit(from), world.hit(1 - from));
            let payload = Payload::Other { protocol: 253, payload: Bytes::from_static(&[7; 200]) };
            let inner = Packet::new(src.0.into(), dst.0.into(), payload);
            if let Ok(outer) = world.hosts[from].seal(world.now, &inner) {
                world.send(outer);
            }
            world.collect();
        }
        sent += 1;
        world.run_for(Duration::from_millis(100));
    }
    ([0, 1].map(|host| world.got.iter().filter(|(at, _)| *at == host).count()), sent)
}

fn announcements(world: &World) -> usize {
    let sent = world.packets.iter().filter_map(|(_, packet)| HipPacket::parse(packet).ok()).map(|it| it.packet);
    let has_locators = |it: &HipPacket| it.parameters.iter().any(|it| it.kind() == kind::LOCATOR_SET);
    sent.filter(|it| it.kind == PacketType::Update && has_locators(it)).count()
}

// Claim: If a peer announces a dead address as the preferred one, and another one, data goes to the other one from two seconds later on,
// although the peer's data renew the credit for the first; the announcement is acknowledged there, and not sent again. Tried with
// addresses of one IP version and of both, new and known, dead in one direction and in both.
#[test]
fn a_dead_preferred_address_takes_no_data() {
    for (dead, alive, other, is_one_way) in [
        ("203.0.113.7", "192.0.2.1", None, true),
        ("203.0.113.7", "192.0.2.9", None, true),
        ("2001:db8::7", "192.0.2.9", Some("2001:db8:1::2"), true),
        ("2001:db8::7", "192.0.2.9", Some("2001:db8:1::2"), false),
        ("203.0.113.7", "192.0.2.1", None, false),
        ("203.0.113.7", "192.0.2.9", None, false),
    ] {
        let mut world = World::established(4, &config());
        if let Some(other) = other {
            world.move_to(1, &["198.51.100.2", other]);
            world.run_for(Duration::from_secs(5));
        }
        let gone = address(dead);
        world.tamper = Some(Box::new(move |packet| packet.dst != gone && (is_one_way || packet.src != gone)));
        world.forget_history();
        world.move_to(0, &[dead, alive]);
        let (got, sent) = talk(&mut world, Duration::from_secs(2));
        assert!(sent - got[0].min(sent) <= 12, "{dead} {alive} {is_one_way}: {got:?} of {sent} in the first 2 s");
        let few = announcements(&world);
        assert!(few <= 6, "{few} announcements in 2 s");
        let (got, sent) = talk(&mut world, Duration::from_secs(120));
        assert_eq!(announcements(&world), few, "{dead} {alive} {is_one_way}: it is acknowledged");
        let lost = got.map(|got| sent - got.min(sent));
        assert!(lost[0] <= 2, "{dead} {alive} {is_one_way}: {lost:?} of {sent} lost");
    }
}

/// Anybody can send an announcement again. Each acknowledgement takes a signature.
#[test]
fn a_replayed_announcement_is_acknowledged_every_tenth_of_a_second() {
    let mut world = World::established(4, &config());
    let gone = address("203.0.113.7");
    world.tamper = Some(Box::new(move |packet| packet.dst != gone));
    world.move_to(0, &["203.0.113.7", "192.0.2.1"]);
    world.run_for(Duration::from_millis(500));
    let is_announcement = |packet: &&Packet| {
        let Ok(received) = HipPacket::parse(packet) else { return false };
        received.packet.parameters.iter().any(|it| it.kind() == kind::LOCATOR_SET)
    };
    let announcement = world.packets.iter().map(|(_, packet)| packet).rfind(is_announcement).expect("one").clone();
    let before = world.count(1, PacketType::Update);
    for _ in 0..100 {
        world.deliver(&announcement);
        world.collect();
    }
    let answers = world.count(1, PacketType::Update) - before;
    assert!(answers <= 1, "{answers} answers");
}
