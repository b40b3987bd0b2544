//! Shared by the tests of BBR's versions: a path, its outages, and paths with faults.

use holdover_base::{Duration, Instant};
use holdover_tcp::Config;
use proptest::prelude::*;

use crate::world::{Path, World};

pub(crate) const fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// 10 Mbit/s (a segment of 1460 bytes in 1.2 ms) and 25 ms each way: a product of 42 segments.
pub(crate) fn path(queue: usize) -> Path {
    let mut path = Path::clean(Duration::from_millis(25));
    path.per_segment = Duration::from_micros(1_200);
    path.queue_limit = queue;
    path
}

/// Cuts both directions at 3 s for so long; what is queued or in flight is lost.
pub(crate) fn cut(world: &mut World, outage_ms: u64) {
    for path in [&mut world.forward, &mut world.backward] {
        path.outages = vec![(at(3_000), at(3_000 + outage_ms))];
        path.outages_empty = true;
    }
}

pub(crate) fn is_done(world: &mut World) -> bool {
    world.server.read_len == world.client.to_write
}

/// Losses, delays, reordering and outages of a path, which is sound from 15 s on, and what both ends can do.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    seed: u64,
    path: Path,
    sack: bool,
    timestamps: bool,
}

pub(crate) fn faults() -> impl Strategy<Value = Faults> {
    (
        any::<u64>(),
        100_u64..5_000,
        1_u64..200,
        4_usize..300,
        prop_oneof![Just(0.0), 0.0..0.2],
        prop_oneof![Just(0.0), 0.0..0.1],
        proptest::collection::vec((300_u64..8_000, 20_u64..5_000), 0..3),
        any::<bool>(),
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.8),
    )
        .prop_map(|(seed, per_segment_us, delay_ms, queue, loss, reorder, outages, emptied, sack, timestamps)| {
            let path = Path {
                per_segment: Duration::from_micros(per_segment_us),
                queue_limit: queue,
                loss,
                reorder,
                outages: outages.into_iter().map(|(start, len)| (at(start), at(start + len))).collect(),
                outages_empty: emptied,
                sound_from: Instant::from_secs(15),
                ..Path::clean(Duration::from_millis(delay_ms))
            };
            Faults { seed, path, sack, timestamps }
        })
}

impl Faults {
    /// A transfer of 600 kB between two ends with this configuration.
    pub(crate) fn transfer(self, mut config: Config) -> World {
        config.sack = self.sack;
        config.timestamps = config.timestamps.filter(|_| self.timestamps);
        let mut world = World::new(config.clone(), config, self.path, self.seed);
        world.client.to_write = 600_000;
        world.client.keep = false;
        world
    }
}
