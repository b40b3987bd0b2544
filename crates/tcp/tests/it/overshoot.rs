//! Retransmissions after slow start has overrun a queue: 4 MB over 10 Mbit/s and 25 ms each way.

use holdover_base::{Duration, Instant};
use holdover_tcp::{Config, Profile};

use crate::world::{Path, World};

/// Retransmitted segments and the duration of the transfer, with a queue of this many packets.
fn over(config: Config, queue: usize) -> (u64, f64) {
    let mut path = Path::clean(Duration::from_millis(25));
    path.per_segment = Duration::from_micros(1_200);
    path.queue_limit = queue;
    let mut world = World::new(config.clone(), config, path, 1);
    world.backward.queue_limit = usize::MAX;
    world.client.to_write = 4_000_000;
    world.client.keep = false;
    assert!(world.run_until(Instant::from_secs(100), |world| world.server.read_len == world.client.to_write));
    let again = world.client.connection().counters().bytes_retransmitted.0 / 1_448;
    (again, world.now.saturating_since(Instant::ZERO).as_secs_f64())
}

/// Retransmissions of Linux 6.18 in the same transfer, in segments, with queues of 20, 40 and 75 packets.
const QUEUES: [usize; 3] = [20, 40, 75];
const CUBIC: [u64; 3] = [7, 6, 6];
const CUBIC_WITHOUT_SACK: [u64; 3] = [34, 25, 6];

/// The receiver acknowledges each segment while the window grows. HyStart therefore detects ACK trains, and ends slow start
/// where Linux's does; with an ACK for every second segment, 2.4 ms apart, it detects none.
#[test]
fn quick_acks_of_a_growing_window_end_slow_start_in_time() {
    let (quick, mut slow) = (Profile::Linux6Cubic.config(), Profile::Linux6Cubic.config());
    slow.receive.quick_while_growing = false;
    for (queue, kernel) in QUEUES.into_iter().zip(CUBIC) {
        let (quick, slow) = (over(quick.clone(), queue).0, over(slow.clone(), queue).0);
        assert!(quick <= kernel + 3, "{queue} packets: {quick} segments again, {kernel} on the kernel");
        assert!(slow > 5 * quick, "{queue} packets: {slow} segments again without quick ACKs, {quick} with them");
    }
}

#[test]
fn without_sack_cubic_overshoots_by_little_more_than_linux() {
    let config = Config { sack: false, ..Profile::Linux6Cubic.config() };
    for (queue, kernel) in QUEUES.into_iter().zip(CUBIC_WITHOUT_SACK) {
        let again = over(config.clone(), queue).0;
        assert!(again <= kernel + 12, "{queue} packets: {again} segments again, {kernel} on the kernel");
    }
}

/// Reno's slow start ends with a loss. With 10 and 20 packets Linux retransmits less (13 and 23 segments) than this (23 and 58).
#[test]
fn reno_overshoots_a_long_queue_as_linux_does() {
    for (queue, kernel) in [(40, 77), (75, 120), (150, 197)] {
        let (again, took) = over(Profile::Linux6Reno.config(), queue);
        assert!(
            (again as f64 / f64::from(kernel) - 1.0).abs() < 0.2,
            "{queue} packets: {again}, {kernel} on the kernel"
        );
        assert!((took / 3.46 - 1.0).abs() < 0.05, "{queue} packets: {took} s, 3.46 s on the kernel");
    }
}
