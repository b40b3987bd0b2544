//! Whole transfers between two of our endpoints, for every profile.

use crate::world::{Path, World};
use holdover_base::{Duration, Instant};
use holdover_tcp::{Profile, State};

const DELAY: Duration = Duration::from_millis(25);

#[test]
fn every_profile_transfers_over_a_clean_path() {
    for profile in Profile::ALL {
        let mut world = World::new(profile.config(), profile.config(), Path::clean(DELAY), 1);
        world.client.to_write = 1 << 20;
        world.server.to_write = 300_000;
        let finished = world.run_until(Instant::from_secs(600), World::is_finished);
        assert!(
            finished,
            "{profile} at {}: {:?} {:?}",
            world.now,
            world.client.connection().state(),
            world.server.connection().state()
        );
        world.assert_streams_exact();
        assert_eq!(world.client.connection().counters().bytes_retransmitted.0, 0, "{profile}");
        assert_eq!(world.client.connection().counters().timeouts, 0, "{profile}");
    }
}

// Claim: Every profile sends to every other over a bad path. (225 pairs)
#[test]
fn every_pair_of_profiles_transfers_over_a_bad_path() {
    for (n, client) in Profile::ALL.into_iter().enumerate() {
        for (m, server) in Profile::ALL.into_iter().enumerate() {
            let path = Path { loss: 0.02, duplicate: 0.01, reorder: 0.02, ..Path::clean(DELAY) };
            let mut world = World::new(client.config(), server.config(), path, (n * 10 + m) as u64);
            world.client.to_write = 400_000;
            world.server.to_write = 200_000;
            let finished = world.run_until(Instant::from_secs(3600), World::is_finished);
            assert!(finished, "{client} to {server} at {}", world.now);
            world.assert_streams_exact();
            let state = world.client.connection().state();
            assert!(matches!(state, State::Closed | State::TimeWait));
        }
    }
}
