//! Changes of ESP keys by a host itself (RFC 7402 section 6.8).

use bytes::{Bytes, BytesMut};
use holdover_base::Duration;
use holdover_hip::esp::OpenError;
use holdover_hip::host::{DataError, Encapsulation, Event, HostConfig, RekeyLimits, SpiPart};
use holdover_wire::{Packet, Payload};
use proptest::prelude::*;

use crate::support::value_of;
use crate::world::{Network, World, quick};

const OK: Result<(), String> = Ok(());

fn limited(limits: RekeyLimits) -> HostConfig {
    HostConfig { rekey: Some(limits), ..quick() }
}

fn unlimited() -> RekeyLimits {
    RekeyLimits { packets: u64::MAX, bytes: u64::MAX, age: Duration::from_secs(1 << 30), new_dh: true }
}

fn rekeyed(world: &World, index: usize) -> usize {
    let is_it = |(_, host, event): &&(_, usize, Event)| *host == index && matches!(event, Event::Rekeyed { .. });
    world.events.iter().filter(is_it).count()
}

/// Sends `count` packets of 4 bytes from host `from`, ten per second.
fn send(world: &mut World, from: usize, count: usize) {
    for _ in 0..count {
        assert_eq!(world.data(from), OK);
        world.run_for(Duration::from_millis(100));
    }
}

/// In either direction, whichever host begins: the one with the greater HIT at the limit, the other one an eighth later.
// Claim: Keys change automatically after packets, bytes or time, in either direction, but not if they were not used; exhausted
// material is renewed; expired keys are not used, and a host without an answer tries again each minute. Over a network that
// loses, repeats and reorders packets, data finally flows in both directions. (24 schedules)
// Tests: `rekey::after_a_time_if_they_were_used`, `rekey::material_that_is_used_up_is_renewed`,
// `rekey::worn_out_keys_are_not_used`, `rekey::whatever_is_lost`
#[test]
fn after_so_many_packets_or_bytes() {
    for limits in [RekeyLimits { packets: 80, ..unlimited() }, RekeyLimits { bytes: 320, ..unlimited() }] {
        for from in 0..2 {
            let mut world = World::established(31, &limited(limits));
            send(&mut world, from, 70);
            assert_eq!(rekeyed(&world, 0), 0, "{limits:?}");
            send(&mut world, from, 25);
            assert_eq!((rekeyed(&world, 0), rekeyed(&world, 1)), (1, 1), "{limits:?}");
            send(&mut world, from, 250);
            assert_eq!((rekeyed(&world, 0), rekeyed(&world, 1)), (4, 4), "{limits:?}");
            assert!(world.dropped.is_empty(), "{:?}", world.dropped);
        }
    }
}

/// Used keys are changed after a time; nothing is sent for unused ones.
#[test]
fn after_a_time_if_they_were_used() {
    let limits = RekeyLimits { age: Duration::from_secs(100), ..unlimited() };
    let config = HostConfig { unused_lifetime: Duration::from_secs(1 << 20), ..limited(limits) };
    let mut world = World::established(32, &config);
    world.run_for(Duration::from_secs(1000));
    assert_eq!(world.sent, []);
    assert_eq!(world.data(0), OK);
    world.run_for(Duration::from_secs(5));
    assert_eq!((rekeyed(&world, 0), rekeyed(&world, 1)), (1, 1), "they were overdue");
    assert_eq!(world.data(1), OK);
    world.run_for(Duration::from_secs(90));
    assert_eq!(rekeyed(&world, 0), 1);
    world.run_for(Duration::from_secs(20));
    assert_eq!((rekeyed(&world, 0), rekeyed(&world, 1)), (2, 2));
    let sent = world.sent.len();
    world.run_for(Duration::from_secs(1000));
    assert_eq!(world.sent.len(), sent, "the new keys are not used");
}

/// Without new material each time, it is renewed when the old one is used up: 8,160 bytes suffice for 204 changes of
/// 40.
#[test]
fn material_that_is_used_up_is_renewed() {
    let limits = RekeyLimits { packets: 1, new_dh: false, ..unlimited() };
    let mut world = World::established(33, &limited(limits));
    for _ in 0..250 {
        assert_eq!(world.data(0), OK);
        world.run_for(Duration::from_secs(1));
    }
    assert_eq!((rekeyed(&world, 0), rekeyed(&world, 1)), (250, 250));
}

/// A peer that never answers: nothing is sent beyond twice the limit, and groups of UPDATEs are a minute apart.
#[test]
fn worn_out_keys_are_not_used() {
    let mut world = World::established(34, &limited(RekeyLimits { packets: 100, ..unlimited() }));
    world.tamper = Some(Box::new(|packet| matches!(packet.payload, holdover_wire::Payload::Esp(_))));
    let sent = (0..300).take_while(|_| {
        world.run_for(Duration::from_millis(10));
        world.data(0).is_ok()
    });
    assert_eq!(sent.count(), 200);
    assert!(world.data(0).is_err_and(|error| error.contains("exhausted")));
    let before = world.sent.len();
    world.run_for(Duration::from_secs(600));
    assert!(world.sent.len() - before <= 2 * 6 * 7, "{} UPDATEs", world.sent.len() - before);
    world.tamper = None;
    world.run_for(Duration::from_secs(200));
    assert_eq!(world.data(0), OK, "the peer is back");
}

/// Two hosts at one address choose SPIs from different parts, in exchanges and in changes of keys.
// Claim: A host chooses SPIs only from its part of them.
#[test]
fn spis_are_of_the_part_of_their_host() {
    for byte in [0, 1, 255] {
        let mut world =
            World::established(38, &HostConfig { spis: SpiPart::with_low_byte(byte), ..limited(unlimited()) });
        for _ in 0..3 {
            let peer = world.hit(1);
            let (outbound, inbound) = world.hosts[0].security_associations(peer).unwrap();
            for spi in [outbound.spi(), inbound.spi()] {
                assert_eq!(spi as u8, byte, "{spi:#010x}");
                assert!(spi > 255, "reserved");
            }
            let [of_peer, own] = [outbound.spi(), inbound.spi()];
            assert!(world.hosts[0].has_inbound(own) && !world.hosts[0].has_inbound(of_peer));
            change_keys(&mut world);
        }
    }
}

/// A packet between the hosts' HITs.
fn inner(world: &World, from: usize) -> Packet {
    let payload = Payload::Other { protocol: 253, payload: Bytes::from_static(b"data") };
    Packet::new(world.hit(from).0.into(), world.hit(1 - from).0.into(), payload)
}

/// Changes the keys once more, by host 0.
fn change_keys(world: &mut World) {
    let (before, peer) = (rekeyed(world, 1), world.hit(1));
    world.hosts[0].rekey(world.now, peer, true).unwrap();
    world.run_for(Duration::from_secs(5));
    assert_eq!(rekeyed(world, 1), before + 1);
}

/// Packets whose decryption has begun when the keys change, as on another thread: those under the last keys are accepted, each once, and
/// do not count as the newest ones; those under the keys before the last are dropped.
// Claim: Keys that change, or an association that ends, between the halves of an encryption or decryption: packets under the last
// keys are accepted once and are not the newest; those under the keys before are dropped.
// Tests: `rekey::keys_change_between_the_halves_of_an_encryption`,
// `rekey::an_association_ends_between_the_halves_of_a_decryption`
#[test]
fn keys_change_between_the_halves_of_a_decryption() {
    let mut world = World::established(35, &limited(unlimited()));
    let sealed: Vec<(Packet, Packet)> = (0..3)
        .map(|_| {
            let inner = inner(&world, 0);
            (world.hosts[0].seal(world.now, &inner).unwrap(), inner)
        })
        .collect();
    let begun: Vec<_> = sealed.iter().map(|(outer, _)| world.hosts[1].begin_open(outer).unwrap()).collect();
    let twice = world.hosts[1].begin_open(&sealed[0].0).unwrap();
    let finish = |world: &mut World, at: usize, decapsulation: &holdover_hip::host::Decapsulation| {
        let authentic = decapsulation.decrypt(&sealed[at].0)?;
        world.hosts[1].finish_open(world.now, &sealed[at].0, authentic)
    };
    let opened = finish(&mut world, 0, &begun[0]).unwrap();
    assert_eq!((opened.inner.map(value_of), opened.is_newest), (Some(sealed[0].1.clone()), true));
    change_keys(&mut world);
    let opened = finish(&mut world, 1, &begun[1]).unwrap();
    assert_eq!((opened.inner.map(value_of), opened.is_newest), (Some(sealed[1].1.clone()), false));
    let replayed = finish(&mut world, 0, &twice).unwrap_err();
    assert!(matches!(replayed, DataError::Open(OpenError::Replay { .. })), "{replayed:?}");
    change_keys(&mut world);
    assert!(matches!(finish(&mut world, 2, &begun[2]), Err(DataError::NoAssociation)));
    assert_eq!((world.data(0), world.data(1)), (OK, OK));
}

/// Packets that have their sequence number under the old keys when the keys change, and are encrypted afterwards: the peer accepts them as
/// long as it accepts the old keys.
#[test]
fn keys_change_between_the_halves_of_an_encryption() {
    let mut world = World::established(36, &limited(unlimited()));
    let begin = |world: &mut World| {
        let inner = inner(world, 0);
        (world.hosts[0].begin_seal(world.now, &inner).unwrap(), inner)
    };
    let (early, late) = (begin(&mut world), begin(&mut world));
    let end = |(Encapsulation { src, dst, sealing }, inner): (Encapsulation, Packet)| {
        let mut esp = BytesMut::new();
        sealing.append(&inner, &mut esp).unwrap();
        (Packet::new(src, dst, Payload::Esp(esp.freeze())), inner)
    };
    change_keys(&mut world);
    assert_eq!(world.data(0), OK, "newer packets overtake it");
    let (outer, inner) = end(early);
    let opened = world.hosts[1].open(world.now, &outer).unwrap();
    assert_eq!((opened.inner.map(value_of), opened.is_newest), (Some(inner), false));
    world.run_for(HostConfig::default().old_keys_hold);
    let (outer, _) = end(late);
    assert!(matches!(world.hosts[1].open(world.now, &outer), Err(DataError::NoAssociation)));
}

/// The association is gone, or is another one, when a decryption ends.
#[test]
fn an_association_ends_between_the_halves_of_a_decryption() {
    let mut world = World::established(37, &limited(unlimited()));
    let inner = inner(&world, 0);
    let outer = world.hosts[0].seal(world.now, &inner).unwrap();
    let begun = world.hosts[1].begin_open(&outer).unwrap();
    let authentic = || begun.decrypt(&outer).unwrap();
    let (peer, places) = (world.hit(0), world.places[0].clone());
    world.hosts[1].remove_peer(world.now, peer);
    let (now, first) = (world.now, authentic());
    assert!(matches!(world.hosts[1].finish_open(now, &outer, first), Err(DataError::NoAssociation)));
    world.hosts[1].add_peer(peer, &places);
    world.run_for(Duration::from_secs(300));
    world.connect(1);
    world.run_for(Duration::from_secs(20));
    assert_eq!((world.data(0), world.data(1)), (OK, OK));
    let (now, second) = (world.now, authentic());
    assert!(matches!(world.hosts[1].finish_open(now, &outer, second), Err(DataError::NoAssociation)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Small limits over a network that loses, duplicates and reorders, so that changes are given up, cross, and are begun by both hosts.
    /// Data sent while the network works arrives in the end, under changed keys.
    #[test]
    fn whatever_is_lost(
        seed in 0_u64..1 << 32,
        packets in 1_u64..20,
        age_s in 5_u64..60,
        new_dh in any::<bool>(),
        loss in 0.0..0.6_f64,
        jitter in 0_u64..2000,
    ) {
        let limits = RekeyLimits { packets, age: Duration::from_secs(age_s), new_dh, ..unlimited() };
        let mut world = World::established(seed, &limited(limits));
        world.network = Network { loss, duplication: loss / 2.0, jitter: Duration::from_millis(jitter), ..Network::CLEAN };
        for round in 0..60 {
            // A change with open outcome may leave both hosts with different keys for a while.
            let _ = world.data(round % 2);
            world.run_for(Duration::from_millis(700));
        }
        world.network = Network::CLEAN;
        world.run_for(Duration::from_secs(200));
        // A change with open outcome is repeated when the peer is heard.
        let peers = [world.hit(1), world.hit(0)];
        for (index, peer) in peers.into_iter().enumerate() {
            world.hosts[index].announce(world.now, peer).unwrap();
            world.run_for(Duration::from_secs(70));
        }
        let before = rekeyed(&world, 0);
        for round in 0..50 {
            prop_assert_eq!(world.data(round % 2), OK);
            world.run_for(Duration::from_secs(2));
        }
        prop_assert!(rekeyed(&world, 0) > before, "{:?}", world.events);
    }
}
