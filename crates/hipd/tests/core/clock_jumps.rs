//! Clocks that jump ahead: of a daemon that was stopped, and of a peer while the host slept, whose own clock (`CLOCK_MONOTONIC`) stood still.

use holdover_base::Duration;
use holdover_hipd::files::Via;

use crate::world::World;
use crate::{BOTH, SECOND, talking};

const JUMPS: [Duration; 3] =
    [Duration::from_secs(60), Duration::from_secs(24 * 3600), Duration::from_secs(30 * 24 * 3600)];
/// The hosts whose clocks jump.
const JUMPING: [&[usize]; 3] = [&[0, 1], &[0], &[1]];
/// For how long both hosts send a datagram each second.
const TALK_S: u64 = 60;
/// Packets of both hosts in that time: the datagrams, at most four keep-alives of each host, and at most one other packet in two seconds.
const MOST_PACKETS: usize = 3 * TALK_S as usize;
/// Datagrams that may be lost at first, each of either host: those whose path or keys have expired.
const MOST_LOST: u64 = 10;

/// What is going on when the clock jumps.
type Scenario = (&'static str, fn(Via) -> World);

const SCENARIOS: &[Scenario] = &[
    ("I1 on its way", |via| begun(via, 25)),
    ("R1 on its way", |via| begun(via, 75)),
    ("I2 on its way", |via| begun(via, 125)),
    ("R2 on its way", |via| begun(via, 175)),
    ("data on its way", |via| {
        let mut world = talking(via);
        both_send(&mut world, 3);
        world.run_for(Duration::from_millis(25));
        world
    }),
    ("data after a move", |via| {
        let mut world = moving(via, 1000);
        both_send(&mut world, 3);
        world.run_for(SECOND);
        world
    }),
    ("an announcement on its way", |via| moving(via, 25)),
    ("a check on its way", |via| moving(via, 75)),
    ("no address", |via| {
        let mut world = talking(via);
        world.move_to(0, &[]);
        world.run_for(SECOND);
        world
    }),
];

// Claim: Daemons whose clocks jump ahead by a minute, a day or 30 days, both or either one, in an exchange, with data on its way, after or in a
// move, or without an address: no panic, at most three packets a second with data of one each, and data arrives in both directions
// again within 10 s.
#[test]
fn jumps_ahead() {
    for via in [Via::Ip, Via::Udp] {
        for (name, begin) in SCENARIOS {
            for jump in JUMPS {
                for whose in JUMPING {
                    let mut world = begin(via);
                    whose.iter().for_each(|&index| world.ahead[index] += jump);
                    if world.places[0].is_empty() {
                        world.move_to(0, &["203.0.113.9"]);
                    }
                    world.sent.clear();
                    for number in 0..TALK_S {
                        both_send(&mut world, 1000 + number);
                        world.run_for(SECOND);
                    }
                    let name = format!("{name}, {via:?}, {jump}, clocks {whose:?}");
                    assert!(world.sent.len() <= MOST_PACKETS, "{name}: {} packets", world.sent.len());
                    for at in [0, 1] {
                        let expected: Vec<u64> = (1000 + MOST_LOST..1000 + TALK_S).collect();
                        let got: Vec<u64> = world.numbers(at).into_iter().filter(|it| *it >= expected[0]).collect();
                        assert_eq!(got, expected, "{name}, at host {at}");
                    }
                }
            }
        }
    }
}

fn both_send(world: &mut World, number: u64) {
    for from in [0, 1] {
        world.send(from, number);
    }
}

fn begun(via: Via, ms: u64) -> World {
    let mut world = World::new(1, via, BOTH);
    world.send(0, 1);
    world.run_for(Duration::from_millis(ms));
    world
}

fn moving(via: Via, ms: u64) -> World {
    let mut world = talking(via);
    world.move_to(0, &["203.0.113.1"]);
    world.run_for(Duration::from_millis(ms));
    world
}
