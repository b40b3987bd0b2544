//! Calls of addresses: they end with the command that made them.

use holdover_base::Duration;
use holdover_hip::host::State;
use holdover_hipd::core::CallState;
use holdover_hipd::files::Via;

use crate::world::{World, address};

const SECOND: Duration = Duration::from_secs(1);

/// Neither host knows the other one by HIT, and the one that is called answers from a time on.
fn calling() -> (World, u64) {
    let mut world = World::new(1, Via::Udp, [false, true]);
    let (now, at) = (world.now, world.places[1][0]);
    for host in &mut world.hosts {
        host.set_opportunistic(now, true);
    }
    let number = world.hosts[0].call(now, at, Via::Udp).unwrap();
    (world, number)
}

fn is_associated(world: &World) -> bool {
    matches!(world.hosts[0].state(world.hit(1)), State::R2Sent | State::Established)
}

#[test]
fn the_answer_to_a_call_is_reported_and_stays_once_it_is_in_the_file() {
    for is_written in [true, false] {
        let (mut world, number) = calling();
        assert_eq!(world.hosts[0].call_state(world.now, number), CallState::Open);
        world.run_for(SECOND * 3);
        let (now, peer) = (world.now, world.hit(1));
        assert_eq!(world.hosts[0].call_state(now, number), CallState::Answered(peer));
        // Another call has an answer of its own.
        let nobody = world.hosts[0].call(now, address("192.0.2.250"), Via::Udp).unwrap();
        assert_eq!(world.hosts[0].call_state(now, nobody), CallState::Open);
        if is_written {
            world.knows = [true, true];
            let peers = world.peers(0);
            world.hosts[0].set_peers(now, &peers);
        }
        world.hosts[0].hang_up(now, number);
        assert_eq!(world.hosts[0].call_state(now, number), CallState::Ended);
        world.run_for(SECOND * 3);
        assert_eq!(is_associated(&world), is_written);
    }
}

/// The command has ended, with or without a word, or has waited for too long: an answer that comes later opens nothing.
#[test]
fn an_answer_after_the_end_of_a_call_opens_nothing() {
    for (asks, hangs_up) in [(false, true), (false, false), (true, false)] {
        let (mut world, number) = calling();
        let now = world.now;
        world.hosts[1].set_opportunistic(now, false);
        if hangs_up {
            world.hosts[0].hang_up(now, number);
        }
        for _ in 0..21 {
            world.run_for(SECOND);
            if asks {
                let _ = world.hosts[0].call_state(world.now, number);
            }
        }
        assert_eq!(world.hosts[0].call_state(world.now, number), CallState::Ended);
        let now = world.now;
        world.hosts[1].set_opportunistic(now, true);
        world.run_for(SECOND * 60);
        assert!(!is_associated(&world), "asks: {asks}, hangs up: {hangs_up}");
    }
}
