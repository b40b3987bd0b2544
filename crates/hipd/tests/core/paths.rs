//! A peer's data over two paths at a time, whose queues differ.

use holdover_base::Duration;
use holdover_hipd::files::Via;

use super::{SECOND, talking};

const EVERY: Duration = Duration::from_millis(1);
/// The number of packets sent from the move on.
const COUNT: u64 = 1500;

/// The server sends all the time; the queue of the mobile host's former path takes 60 ms longer than that of its new one. Both paths carry
/// the server's rate, and together twice as much.
// Claim: In a make before break a program gets its data in order, without a pause and at hardly more than the rate of one path, although the
// new path is faster by the queue of the former one; in the end nothing waits.
// Tests: `path_order::packets_of_two_paths_keep_their_order_and_rate`, `path_order::a_former_path_that_is_over_delays_nothing_for_long`,
// `path_order::packets_wait_for_a_limited_time_and_in_limited_number`, `path_order::nothing_waits_without_a_gap`,
// `path_order::new_keys_and_another_change_end_the_wait`, `path_order::a_stall_of_the_daemon_delays_nothing_that_arrives_after_it`,
// `path_order::a_path_that_begins_with_a_dummy_delays_nothing_later`, `path_order::a_path_that_flaps_delays_no_packet_for_longer`,
// `path_order::packets_of_a_peer_and_of_all_peers_wait_in_limited_bytes`
#[test]
fn a_make_before_break_keeps_order_and_rate() {
    for via in [Via::Ip, Via::Udp] {
        let mut world = talking(via);
        let [queued, empty] = [Duration::from_millis(110), Duration::from_millis(50)];
        world.move_to(0, &["203.0.113.1", "192.0.2.1"]);
        let mut arrivals = Vec::new();
        for number in 100..100 + COUNT {
            let is_verified = world.hosts[1].peer_status()[0].addresses.contains(&world.places[0][0]);
            world.delay = if is_verified { empty } else { queued };
            world.send(1, number);
            let before = world.numbers(0).len();
            world.run_for(EVERY);
            arrivals.push(world.numbers(0).len() - before);
        }
        world.run_for(SECOND);
        let numbers: Vec<u64> = world.numbers(0).into_iter().filter(|number| *number >= 100).collect();
        assert_eq!(numbers, (100..100 + COUNT).collect::<Vec<_>>());
        let flowing = &arrivals[queued.as_millis() as usize + 1..];
        assert!(flowing.windows(3).all(|window| window.iter().sum::<usize>() > 0), "pauses: {arrivals:?}");
        assert!(flowing.windows(32).all(|window| window.iter().sum::<usize>() <= 36), "bursts: {arrivals:?}");
        assert!(flowing.iter().sum::<usize>() >= flowing.len() + 55, "the queue of the former path is caught up");
    }
}

// Claim: When an association is closed, a program gets at once what waited for packets of the former path.
#[test]
fn closing_delivers_what_waits() {
    let mut world = talking(Via::Ip);
    let [queued, empty] = [Duration::from_millis(110), Duration::from_millis(50)];
    world.delay = queued;
    world.move_to(0, &["203.0.113.1", "192.0.2.1"]);
    let mut number = 100;
    while !world.hosts[1].peer_status()[0].addresses.contains(&world.places[0][0]) {
        world.send(1, number);
        world.run_for(EVERY);
        number += 1;
    }
    world.delay = empty;
    let first = number;
    for number in first..first + 20 {
        world.send(1, number);
        world.run_for(EVERY);
    }
    world.hosts[1].close_all(world.now);
    world.run_for(empty - EVERY);
    let newest = |world: &super::World| world.numbers(0).into_iter().filter(|number| *number >= first).count();
    assert_eq!(newest(&world), 0, "they wait");
    world.run_for(EVERY * 2);
    assert_eq!(newest(&world), 20);
}
