//! Base exchanges over random networks, and with random damage.

use bytes::Bytes;
use holdover_base::{Duration, Rng};
use holdover_hip::codec::{Builder, Notification, NotifyType, PROTOCOL, PacketType, Parameter};
use holdover_hip::host::{Event, State};
use holdover_hip::identity::Algorithm;
use holdover_wire::{Packet, Payload, transport_checksum};
use proptest::prelude::*;

use crate::base_exchange::{BOTH, states};
use crate::support::{key, seeded};
use crate::world::{Network, World, quick};

fn network() -> impl Strategy<Value = Network> {
    (0.0..0.5_f64, 0.0..0.4_f64, 1_u64..400, 0_u64..4000).prop_map(|(loss, duplication, delay, jitter)| Network {
        loss,
        duplication,
        delay: Duration::from_millis(delay),
        jitter: Duration::from_millis(jitter),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// One or both hosts open over a network that loses, duplicates and reorders: both are established with the same keys, or those that
    /// tried report a failure; in bounded time and with a bounded number of packets.
    // Claim: Over a network that loses, repeats and reorders packets an exchange ends: both sides have the same keys, or the
    // initiator reports a failure; time and packets are bounded. (200 schedules, tested with 5,000)
    #[test]
    fn an_exchange_ends(seed in 0_u64..1 << 32, network in network(), second in proptest::option::of(0_u64..3000)) {
        let mut world = World::pair(seed, network, &quick());
        world.connect(0);
        if let Some(second) = second {
            world.run_for(Duration::from_millis(second));
            if world.state(1) == State::Unassociated {
                world.connect(1);
            }
        }
        world.run_for(Duration::from_secs(10 * 60));
        let peers = [world.hit(1), world.hit(0)];
        let failed = [0, 1].map(|index| world.has_event(index, |event| matches!(event, Event::Failed { .. })));
        for index in [0, 1] {
            let is_over = matches!(world.state(index), State::Established | State::Unassociated);
            prop_assert!(is_over, "{:?}", states(&world));
        }
        if states(&world) == BOTH {
            prop_assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())));
        } else {
            prop_assert!(failed.contains(&true), "{:?} {:?}", states(&world), world.events);
        }
        for (index, peer) in peers.into_iter().enumerate() {
            let spis = world.hosts[index].security_associations(peer).is_some();
            prop_assert_eq!(spis, world.state(index) == State::Established);
        }
        // I1 six times, and four R1s, each answered by an I2 that is sent six times; R1 and R2 answer those, twice if duplicated.
        let bound = 6 + 4 * 6;
        let sent = |index, kind| world.count(index, kind);
        for index in [0, 1] {
            prop_assert!(sent(index, PacketType::I1) + sent(index, PacketType::I2) <= bound);
            prop_assert!(sent(index, PacketType::R1) <= 2 * sent(1 - index, PacketType::I1));
            prop_assert!(sent(index, PacketType::R2) <= 2 * sent(1 - index, PacketType::I2));
        }
    }
}

/// Exchanges of every kind with one packet damaged at some positions, and its checksum corrected: a base exchange, and if that succeeds a
/// readdressing, a change of keys, a NOTIFY and the end of the association. Nothing panics; what results are associations with the same keys
/// on both sides, or none, with nothing left over. `HOLDOVER_HIP_MUTATIONS` sets the number of exchanges; each core takes a part of them.
// Claim: Damage to one packet of a base exchange, a readdressing, a change of keys, a NOTIFY or the end of an association causes
// no panic and no association on one side only; retransmission repairs it, keys change once, and no SPI or association is left
// over. (2,000 exchanges; `HOLDOVER_HIP_MUTATIONS` sets the number)
#[test]
fn mutated_exchanges() {
    let count = std::env::var("HOLDOVER_HIP_MUTATIONS").ok().and_then(|it| it.parse().ok()).unwrap_or(2_000_u64);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cases = count.div_ceil(STAGES);
    let established: u64 = std::thread::scope(|scope| {
        let parts = (0..threads)
            .map(|first| scope.spawn(move || (first as u64..cases).step_by(threads).map(mutated).sum::<u64>()));
        // All are started before the first one is waited for.
        let parts: Vec<_> = parts.collect();
        parts.into_iter().map(|part| part.join().unwrap()).sum()
    });
    assert!(
        established > cases / 2,
        "retransmission repairs most base exchanges: {established} of {cases} cases are established"
    );
}

/// Exchanges in a case.
const STAGES: u64 = 5;

/// Exchanges with damage that depends on the number alone. Returns 1 if the base exchange succeeds, and all others take place, else 0.
fn mutated(case: u64) -> u64 {
    let mut world = World::pair(40, Network::CLEAN, &quick());
    let before = leftovers(&world);
    damage_one(&mut world, case, "base exchange", 4);
    world.connect(0);
    world.run_for(Duration::from_secs(4));
    match states(&world) {
        (State::Established, State::R2Sent | State::Established) => {}
        (State::Established, other) => panic!("case {case}: only one side is established, the other {other}"),
        (_, State::Established) => panic!("case {case}: the responder takes an exchange for complete"),
        _ => return 0,
    }
    assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())), "case {case}");
    assert_eq!(how_often(&world, |it| matches!(it, Event::Established { .. })), [1, 1], "case {case}");
    assert_eq!(leftovers(&world).map(|it| it.1), [1, 1], "case {case}: one SPI each");
    world.tamper = None;
    world.run_for(Duration::from_secs(60));
    let peers = [world.hit(1), world.hit(0)];

    damage_one(&mut world, case, "move", 3);
    let place = format!("203.0.113.{}", 1 + case % 250);
    world.move_to(0, &[&place]);
    settle(&mut world, case, "move");
    assert_eq!(world.hosts[1].verified_addresses(peers[1]), [crate::support::address(&place)], "case {case}");

    let spis =
        |world: &World| [0, 1].map(|index| world.hosts[index].security_associations(peers[index]).unwrap().0.spi());
    let former = spis(&world);
    damage_one(&mut world, case, "rekey", 3);
    let from = (case % 2) as usize;
    world.hosts[from].rekey(world.now, peers[from], case.is_multiple_of(3)).unwrap();
    world.collect();
    settle(&mut world, case, "rekey");
    assert_eq!(how_often(&world, |it| matches!(it, Event::Rekeyed { .. })), [1, 1], "case {case}: keys are made once");
    let now = spis(&world);
    assert!((0..2).all(|index| now[index] != former[index]), "case {case}: {former:?} {now:?}");

    damaged_notify(&mut world, case);
    settle(&mut world, case, "notify");

    damage_one(&mut world, case, "close", 2);
    world.hosts[0].close(world.now, peers[0]).unwrap();
    world.run_for(Duration::from_secs(60 * 60));
    assert_eq!(states(&world), (State::Unassociated, State::Unassociated), "case {case}");
    assert_eq!(how_often(&world, |it| matches!(it, Event::Closed { .. })), [1, 1], "case {case}");
    let after = leftovers(&world);
    assert_eq!(after.map(|it| (it.0, it.1)), before.map(|it| (it.0, it.1)), "case {case}: peers and SPIs");
    assert!(after.iter().all(|it| it.2 <= 4), "case {case}: signed R1s and key pairs: {after:?}");
    1
}

/// Damages one of the next `of` HIP packets.
fn damage_one(world: &mut World, case: u64, stage: &str, of: u64) {
    let mut rng = Rng::split(case, stage);
    let (target, damage, mut seen) = (rng.below(of), rng.below(5) + 1, 0);
    world.tamper = Some(Box::new(move |packet| {
        if seen == target {
            mutate(packet, &mut rng, damage);
        }
        seen += 1;
        true
    }));
}

/// The damage is repaired, the association works, and nothing is left over.
fn settle(world: &mut World, case: u64, stage: &str) {
    world.run_for(Duration::from_secs(30));
    world.tamper = None;
    assert_eq!(states(world), BOTH, "case {case}, {stage}");
    assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())), "case {case}, {stage}");
    // Former keys are kept for a while.
    world.run_for(Duration::from_secs(200));
    assert_eq!(leftovers(world).map(|it| (it.0, it.1)), [(1, 1); 2], "case {case}, {stage}: peers and SPIs");
    assert_eq!(how_often(world, |it| matches!(it, Event::Failed { .. } | Event::Closed { .. })), [0, 0], "case {case}");
}

/// A NOTIFY with a signature of host 0, first undamaged, then damaged. Host 1 reports only the signed content.
fn damaged_notify(world: &mut World, case: u64) {
    let mut rng = Rng::split(case, "notify");
    let data = Bytes::from(vec![7; rng.below(60) as usize]);
    let notification = Notification { kind: NotifyType::INVALID_HIT, data };
    let mut notify = Builder::new(PacketType::Notify, world.hit(0), world.hit(1));
    notify.push(&Parameter::Notification(notification.clone())).unwrap();
    let signature = key(Algorithm::Ed25519, 40).sign(notify.covered(), &mut seeded(case));
    notify.push(&Parameter::HipSignature(signature)).unwrap();
    let mut packet = notify.finish(world.places[0][0], world.places[1][0]);
    assert_eq!(reported_notify(world, &packet), std::slice::from_ref(&notification), "case {case}, undamaged");
    let damage = rng.below(5) + 1;
    mutate(&mut packet, &mut rng, damage);
    assert!(reported_notify(world, &packet).iter().all(|it| *it == notification), "case {case}");
}

/// Delivers a packet to host 1. Returns the notifications that it reports.
fn reported_notify(world: &mut World, packet: &Packet) -> Vec<Notification> {
    // Host 1 may have refused an I2 by a NOTIFY before.
    let before = world.events.len();
    world.deliver(packet);
    world.collect();
    let news = world.events[before..].iter();
    let reported = news.filter_map(|(_, _, event)| match event {
        Event::Notified { notification, .. } => Some(notification.clone()),
        _ => None,
    });
    reported.collect()
}

/// Of each host: remembered peers, SPIs of its security associations, and signed R1s with their key pairs.
fn leftovers(world: &World) -> [(usize, usize, usize); 2] {
    [0, 1].map(|index| {
        let (peers, kept) = world.hosts[index].remembered();
        (peers, world.hosts[index].inbound_spis(), kept)
    })
}

/// How often each host has reported an event.
fn how_often(world: &World, is_it: impl Fn(&Event) -> bool) -> [usize; 2] {
    [0, 1].map(|index| world.events.iter().filter(|(_, host, event)| *host == index && is_it(event)).count())
}

/// Damages bytes of a HIP packet, and corrects its checksum.
fn mutate(packet: &mut Packet, rng: &mut Rng, damage: u64) {
    let Payload::Other { protocol: PROTOCOL, payload } = &packet.payload else { return };
    let mut bytes = payload.to_vec();
    for _ in 0..damage {
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] = if rng.chance(0.5) { bytes[at] ^ 1 << rng.below(8) } else { rng.next_u32() as u8 };
    }
    if rng.chance(0.1) {
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
    }
    let len = bytes.get(1).map_or(0, |&len| (usize::from(len) + 1) * 8);
    if len <= bytes.len() && len >= 8 {
        bytes[4..6].fill(0);
        let sum = transport_checksum(packet.src, packet.dst, PROTOCOL, &bytes[..len]);
        bytes[4..6].copy_from_slice(&sum.to_be_bytes());
    }
    packet.payload = Payload::Other { protocol: PROTOCOL, payload: Bytes::from(bytes) };
}
