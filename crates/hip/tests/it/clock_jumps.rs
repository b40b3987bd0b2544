//! Clocks that jump ahead: of a process that was stopped, and of a peer while the host slept, whose own clock stood still.

use holdover_base::Duration;
use holdover_hip::host::{Event, HostConfig, PathCheckConfig, State};

use crate::world::{Network, World, quick};

const JUMPS: [Duration; 3] =
    [Duration::from_secs(60), Duration::from_secs(24 * 3600), Duration::from_secs(30 * 24 * 3600)];
/// The hosts whose clocks jump.
const JUMPING: [&[usize]; 3] = [&[0, 1], &[0], &[1]];
/// HIP packets of both hosts in the minute after a jump, without data, and until data passes again after that: there were 13 at most.
const MOST_PACKETS: usize = 16;
/// An exchange takes 0.2 s, and an owner begins it when a packet is refused. If the peer has closed the association and cannot reach the host,
/// which has moved, it takes the next UPDATE of the host: a second, and two seconds, after the first one.
const LONGEST_SILENCE: Duration = Duration::from_secs(4);

/// What is going on when the clock jumps.
type Scenario = (&'static str, fn() -> World);

const SCENARIOS: &[Scenario] = &[
    ("I1 on its way", || exchange(25)),
    ("R1 on its way", || exchange(75)),
    ("I2 on its way", || exchange(125)),
    ("R2 on its way", || exchange(175)),
    ("data", talking),
    ("data after a move", || {
        let mut world = moving(1000);
        assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())));
        world
    }),
    ("an announcement on its way", || moving(25)),
    ("a check on its way", || moving(75)),
    ("an announcement is lost", || {
        let mut world = talking();
        world.network.loss = 1.0;
        world.move_to(0, &["192.0.2.77"]);
        world.run_for(Duration::from_millis(100));
        world.network = Network::CLEAN;
        world
    }),
    ("new keys on their way", || rekeying(25)),
    ("the peer's new keys on their way", || rekeying(75)),
    ("the acknowledgement of new keys on its way", || rekeying(125)),
    ("CLOSE on its way", || closing(25)),
    ("CLOSE_ACK on its way", || closing(75)),
];

// Claim: After a jump of both clocks or of either one, of a minute, a day or 30 days, in an exchange, during data, a move, a change of keys or
// an end: no panic, at most 16 HIP packets in a minute, and data passes in both directions again within 4 s, if need be after
// another exchange, which follows from the first packet that is refused.
#[test]
fn jumps_ahead() {
    for (name, begin) in SCENARIOS {
        for jump in JUMPS {
            for whose in JUMPING {
                let mut world = begin();
                world.forget_history();
                world.calls_back = true;
                whose.iter().for_each(|&index| world.ahead[index] += jump);
                world.run_for(Duration::from_secs(60));
                let sent = world.sent.len();
                assert!(sent <= MOST_PACKETS, "{name}, {jump}, clocks {whose:?}: {sent} packets: {:?}", world.sent);
                world.sent.clear();
                let silence = silence(&mut world);
                let states = [0, 1].map(|index| world.state(index));
                assert!(silence <= LONGEST_SILENCE, "{name}, {jump}, clocks {whose:?}: {silence}, {states:?}");
                assert!(states.iter().all(|it| matches!(it, State::Established | State::R2Sent)), "{states:?}");
                let sent = world.sent.len();
                assert!(sent <= MOST_PACKETS, "{name}, {jump}, clocks {whose:?}: {sent} packets with data");
            }
        }
    }
}

/// Both hosts send until data passes in both directions; returns for how long it did not, a minute at most. Owners open an association for data
/// without one, and for packets that cannot be decrypted, and announce their addresses again once UPDATEs were given up.
fn silence(world: &mut World) -> Duration {
    let (began, step) = (world.now, Duration::from_millis(100));
    while world.now < began + Duration::from_secs(60) {
        let sent = [0, 1].map(|from| (from, world.data(from)));
        if sent.iter().all(|(_, result)| result.is_ok()) {
            break;
        }
        for (from, result) in sent {
            let Err(error) = result else { continue };
            let index = if error.starts_with("not opened") { 1 - from } else { from };
            let (now, peer) = (world.clock(index), world.hit(1 - index));
            // There is an association or an exchange, and no path.
            let _ = world.hosts[index].connect(now, peer);
        }
        if world.has_event(0, |event| matches!(event, Event::GaveUp { .. })) {
            let (now, peer) = (world.clock(0), world.hit(1));
            let _ = world.hosts[0].ensure_announced(now, peer);
        }
        world.run_for(step);
    }
    world.now.saturating_since(began)
}

/// With tests of paths, as the daemon has them.
fn config() -> HostConfig {
    HostConfig { path_check: Some(PathCheckConfig::default()), ..quick() }
}

fn exchange(ms: u64) -> World {
    let mut world = World::pair(41, Network::CLEAN, &config());
    world.connect(0);
    world.run_for(Duration::from_millis(ms));
    world
}

fn talking() -> World {
    let mut world = World::established(42, &config());
    assert_eq!((world.data(0), world.data(1)), (Ok(()), Ok(())));
    world
}

fn moving(ms: u64) -> World {
    let mut world = talking();
    world.move_to(0, &["192.0.2.77"]);
    world.run_for(Duration::from_millis(ms));
    world
}

fn rekeying(ms: u64) -> World {
    let mut world = talking();
    let (now, peer) = (world.now, world.hit(1));
    world.hosts[0].rekey(now, peer, true).unwrap();
    world.run_for(Duration::from_millis(ms));
    world
}

fn closing(ms: u64) -> World {
    let mut world = talking();
    let (now, peer) = (world.now, world.hit(1));
    world.hosts[0].close(now, peer).unwrap();
    world.run_for(Duration::from_millis(ms));
    world
}
