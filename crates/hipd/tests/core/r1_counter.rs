//! The counter of puzzles from one run of the daemon to the next.

use std::net::{IpAddr, Ipv4Addr};

use holdover_hipd::files::{R1CounterFile, Via};

use crate::SECOND;
use crate::world::{Translator, World};

/// Host 1's file has a wrong address of host 0, so that host 0 always initiates.
const HOME: Translator = Translator { outside: IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9)), port: 40_000 };

/// Whether host 0's datagram opens an association within 10 s.
fn talks(world: &mut World, number: u64) -> bool {
    world.send(0, number);
    world.run_for(SECOND * 10);
    world.numbers(1).contains(&number)
}

/// Host 1 is stopped after an association, and started again after its clock was set back.
#[test]
fn a_clock_set_back_between_two_runs() {
    let directory = std::env::temp_dir().join(format!("holdover-hip-clock-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let run = |utc_s| {
        let (mut file, first) = R1CounterFile::open(&directory, utc_s).unwrap();
        file.reserve(first).unwrap();
        first
    };
    let counters = [run(5000), run(1000)];
    std::fs::remove_dir_all(&directory).unwrap();
    for (second, is_accepted) in [(counters[1], true), (1000, false)] {
        let mut world = World::new(81, Via::Udp, [true; 2]);
        world.move_behind(HOME, &["192.168.1.2"]);
        world.restart_with(1, counters[0]);
        assert!(talks(&mut world, 1));
        assert!(world.hosts[1].next_r1_counter() > counters[0], "host 1 is the responder");
        let now = world.now;
        world.hosts[1].close_all(now);
        world.run_for(SECOND * 5);
        world.restart_with(1, second);
        assert_eq!(talks(&mut world, 2), is_accepted, "{second} after {counters:?}");
    }
}
