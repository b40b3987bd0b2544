//! Base exchanges over random networks, and with random damage.

use bytes::Bytes;
use holdover_base::{Duration, Rng};
use holdover_hip::codec::{PROTOCOL, PacketType};
use holdover_hip::host::{Event, State};
use holdover_wire::{Packet, Payload, transport_checksum};
use proptest::prelude::*;

use crate::base_exchange::{BOTH, states};
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

/// Exchanges with one packet damaged at one position, and its checksum corrected. Nothing panics; the result is an association with the
/// same keys on both sides, or none. `HOLDOVER_HIP_MUTATIONS` sets their number; each core takes a part of them.
#[test]
fn mutated_exchanges() {
    let count = std::env::var("HOLDOVER_HIP_MUTATIONS").ok().and_then(|it| it.parse().ok()).unwrap_or(2_000_u64);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let repaired: u64 = std::thread::scope(|scope| {
        let parts = (0..threads)
            .map(|first| scope.spawn(move || (first as u64..count).step_by(threads).map(mutated).sum::<u64>()));
        // All are started before the first one is waited for.
        let parts: Vec<_> = parts.collect();
        parts.into_iter().map(|part| part.join().unwrap()).sum()
    });
    assert!(repaired > count / 2, "damage is repaired by sending again: {repaired} of {count}");
}

/// An exchange with damage that depends on the number alone; 1 if there is an association in the end.
fn mutated(case: u64) -> u64 {
    let mut world = World::pair(40, Network::CLEAN, &quick());
    let mut rng = Rng::split(case, "mutations");
    let (target, damage, mut seen) = (rng.below(4), rng.below(5) + 1, 0);
    world.tamper = Some(Box::new(move |packet| {
        if seen == target {
            mutate(packet, &mut rng, damage);
        }
        seen += 1;
        true
    }));
    world.connect(0);
    world.run_for(Duration::from_secs(4));
    match states(&world) {
        (State::Established, State::R2Sent | State::Established) => {
            assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())), "case {case}");
            1
        }
        (State::Established, other) => panic!("case {case}: only one side is established, the other {other}"),
        (_, State::Established) => panic!("case {case}: the responder takes an exchange for complete"),
        _ => 0,
    }
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
