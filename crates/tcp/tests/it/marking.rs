//! A transfer through a router that marks packets above a threshold of its queue in place of dropping them, for the feedback of RFC 3168
//! and of RFC 9768.

use holdover_base::{Duration, Instant};
use holdover_tcp::Config;

use crate::world::{Path, World};

/// 6 MB over 12 Mbit/s and 20 ms each way, with marks above 30 packets of 300: nothing is lost, and the queue stays short.
pub(crate) fn transfer_without_losses(config: Config, name: &str) -> World {
    let mut path = Path::clean(Duration::from_millis(20));
    path.per_segment = Duration::from_millis(1);
    path.queue_limit = 300;
    path.mark_above = 30;
    let mut world = World::new(config.clone(), config, path, 1);
    world.client.to_write = 6_000_000;
    world.client.keep = false;
    world.server.keep = false;
    let mut longest = Duration::ZERO;
    let done = world.run_until(Instant::from_secs(100), |world| {
        longest = longest.max(world.client.connection().srtt().unwrap_or_default());
        world.server.read_len == world.client.to_write
    });
    assert!(done, "{name}");
    let counters = world.client.connection().counters();
    assert_eq!((counters.bytes_retransmitted.0, counters.timeouts), (0, 0), "{name}");
    assert!(longest < Duration::from_millis(250), "{name}: {longest}");
    world
}
