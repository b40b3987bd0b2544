//! Readdressing over a path that loses packets at random, as radio links do.

use holdover_base::{Duration, Instant};
use holdover_hip::host::{Event, HostConfig};

use crate::world::{Network, World};

const WORLDS: u64 = 50;
const MOVES: u64 = 20;
/// In each direction.
const LOSS: f64 = 0.05;

/// The times from a move until the peer has verified the new address, the longest last.
fn readdressings(config: &HostConfig) -> Vec<Duration> {
    let mut times = Vec::new();
    for seed in 0..WORLDS {
        let mut world = World::established(seed, config);
        world.network = Network { loss: LOSS, ..Network::CLEAN };
        for number in 0..MOVES {
            world.forget_history();
            let start = world.now;
            world.move_to(0, &[["203.0.113.7", "203.0.113.8"][number as usize % 2]]);
            world.run_for(Duration::from_secs(60));
            let is_verified = |event: &Event| matches!(event, Event::PeerReaddressed { .. });
            let verified = world.events.iter().find(|(_, host, event)| *host == 1 && is_verified(event));
            times.push(verified.map_or(Instant::FAR_FUTURE, |(at, ..)| *at).saturating_since(start));
        }
    }
    times.sort();
    times
}

// Claim: Over a path that loses 5 % in each direction 99 of 100 readdressings end within a second, with the retransmissions of
// `holdover hip` (1,000 moves).
#[test]
fn ninety_nine_of_a_hundred_end_within_a_second() {
    // As `holdover hip`.
    let config = HostConfig {
        retransmit_after: Duration::from_millis(300),
        retries: 7,
        steady_retries: 2,
        ..HostConfig::default()
    };
    let times = readdressings(&config);
    let late = times.iter().filter(|time| **time >= Duration::from_secs(1)).count() as u64;
    assert!(late * 100 <= WORLDS * MOVES, "{late} of {}, the longest {:?}", times.len(), times.last());
    let at_once = times.iter().filter(|time| **time <= Network::CLEAN.delay * 3).count() as u64;
    assert!((800..900).contains(&at_once), "without a loss 857 of 1,000 are expected, not {at_once}");
}
