//! Changes of ESP keys by a host itself (RFC 7402 section 6.9).

use holdover_base::Duration;
use holdover_hip::host::{Event, HostConfig, RekeyLimits};
use proptest::prelude::*;

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
