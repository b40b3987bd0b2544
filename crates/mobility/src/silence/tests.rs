mod checks;
mod properties;
mod questions;
mod world;

use super::*;
use world::*;

#[test]
fn an_upload_that_is_cut_is_noticed_within_two_and_a_half_seconds() {
    let mut world = World::new(1);
    world.run(5000, |world, step| upload(world, step, false));
    assert_eq!(world.count(is_question), 0, "answered traffic is not probed");
    world.cut();
    world.run(4000, |world, step| upload(world, step, true));
    let (listens_at, down_at) = (world.first(listens).unwrap(), world.down_at().unwrap());
    assert!((200..=900).contains(&listens_at), "{listens_at}");
    assert!((1700..=2500).contains(&down_at), "{down_at}");
    assert_eq!(world.count(is_down), 1);
}

#[test]
fn the_answer_of_a_router_that_was_silent_ends_it() {
    let mut world = World::new(1);
    world.cut();
    world.run(20_000, |world, step| upload(world, step, true));
    assert!(world.watch.is_silent());
    world.mark();
    world.routers_answer = true;
    world.run(200, |_, _| {});
    let ends = world.first(|act| *act == Act::End).unwrap_or_else(|| panic!("{:?}", world.acts));
    assert!(ends <= 60, "{ends} ms after its return");
    assert!(!world.watch.is_silent());
}

#[test]
fn a_silence_of_two_seconds_ends_with_the_routers_answer_too() {
    let mut world = World::new(1);
    world.cut();
    world.run(1800, |world, step| upload(world, step, true));
    world.mark();
    world.routers_answer = true;
    world.run(300, |_, _| {});
    let ends = world.first(|act| *act == Act::End).unwrap_or_else(|| panic!("{:?}", world.acts));
    assert!(ends <= 110, "{ends} ms after its return");
}

#[test]
fn behind_a_router_that_answers_tcp_alone_says_so_and_later() {
    let mut world = World::new(3);
    world.peers_answer = false;
    world.run(6000, |world, step| {
        if [0, 60, 180, 420, 900].contains(&step) {
            (0..3).for_each(|peer| world.send(peer));
        }
    });
    let down_at = world.down_at().unwrap();
    assert!((2750..=3800).contains(&down_at), "{down_at}");
    // Its answers do not end the silence; the first packet does.
    world.mark();
    world.run(3000, |_, _| {});
    assert_eq!(world.first(|act| *act == Act::End), None);
    world.receive(1);
    world.run(500, |_, _| {});
    assert_eq!(world.count(|act| *act == Act::End), 1);
    assert!(!world.watch.is_silent());
}

#[test]
fn a_link_without_neighbours_is_told_by_tcp_alone() {
    let mut world = World::behind(1, &[]);
    world.peers_answer = false;
    world.run(6000, |world, step| upload(world, step, true));
    let down_at = world.down_at().unwrap();
    assert!((2750..=3800).contains(&down_at), "{down_at}");
    assert_eq!(world.count(|act| matches!(act, Act::AskNextHops { .. })), 0);
}

#[test]
fn a_download_that_is_cut_is_listened_for() {
    for routers in [&[ROUTER][..], &[]] {
        let mut world = World::behind(1, routers);
        world.run(3000, |world, step| {
            if step % 4 == 0 {
                world.exchange(0)
            }
        });
        world.cut();
        world.run(4000, |_, _| {});
        let listens_at = world.first(listens).unwrap_or_else(|| panic!("{:?}", world.acts));
        let expected = if routers.is_empty() { 1000..=2000 } else { 200..=900 };
        assert!(expected.contains(&listens_at), "{listens_at}");
        // A router's silence is certain; a peer may be gone itself.
        assert_eq!(world.down_at().is_some(), !routers.is_empty());
    }
}

#[test]
fn a_server_that_takes_its_time_is_no_silence() {
    let mut world = World::new(1);
    for _ in 0..5 {
        // The request is acknowledged at once, and answered 10 s later.
        world.exchange(0);
        world.run(10_000, |_, _| {});
        world.receive(0);
        world.traffic.tcp_sent += 1;
        world.run(1000, |_, _| {});
    }
    assert_eq!((world.count(listens), world.count(is_down)), (0, 0), "{:?}", world.acts);
}

#[test]
fn one_peer_that_is_gone_is_no_silence_while_others_answer() {
    let mut world = World::new(3);
    world.run(60_000, |world, step| {
        upload(world, step, true);
        if step % 150 == 75 {
            world.exchange(1);
        }
    });
    assert_eq!(world.count(is_down), 0);
    assert_eq!(world.count(listens), 0);
}

#[test]
fn a_sleeping_peer_is_suspected_once() {
    // Retransmissions to the sleeping peer never end; other traffic flows every 7 s.
    let mut world = World::new(2);
    world.peers_answer = false;
    world.run(120_000, |world, step| {
        if step % 400 == 0 {
            world.send(0);
        }
        if step % 1400 == 300 {
            world.exchange(1);
        }
    });
    assert!(world.count(listens) <= 1, "{:?}", world.acts);
    assert_eq!(world.count(is_down), usize::from(world.count(listens) > 0 && world.down_at().is_some()));
}

#[test]
fn traffic_of_others_contradicts_what_tcp_says() {
    let mut world = World::new(2);
    world.peers_answer = false;
    world.run(20_000, |world, step| {
        upload(world, step, true);
        // QUIC flows.
        if step % 10 == 0 && world.is_listening {
            world.traffic.others_received += 1;
        }
    });
    assert_eq!(world.count(is_down), 0);
    assert_eq!(world.count(listens), 1, "the first TCP packet is of interest all the same");
}

#[test]
fn udp_that_is_only_sent_causes_no_action() {
    let mut world = World::new(2);
    world.cut();
    world.run(30_000, |_, _| {});
    assert_eq!(world.acts, []);
}

#[test]
fn acks_alone_want_no_answer() {
    let mut world = World::new(1);
    world.run(10_000, |world, step| {
        if step % 200 == 0 {
            world.traffic.tcp_sent += 1;
        }
    });
    assert_eq!((world.count(listens), world.count(is_down)), (0, 0));
}

#[test]
fn a_router_that_never_answers_proves_nothing() {
    let mut world = World::new(1);
    // It is not known to answer, and does not.
    world.watch.handle_next_hops(&[OTHER_ROUTER].into(), []);
    world.routers_answer = false;
    world.run(60_000, |world, step| {
        if step % 40 == 0 {
            world.exchange(0)
        }
    });
    assert_eq!(world.count(is_question), 1, "it is tested once a minute");
    world.peers_answer = false;
    world.mark();
    world.run(2800, |world, step| upload(world, step, true));
    assert_eq!(world.down_at(), None);
    world.run(1000, |_, _| {});
    assert!(world.down_at().is_some(), "by TCP alone");
}

#[test]
fn several_routers_are_silent_when_all_of_them_are() {
    let mut world = World::behind(1, &[ROUTER, OTHER_ROUTER]);
    world.peers_answer = false;
    world.run(2800, |world, step| upload(world, step, true));
    assert_eq!(world.down_at(), None, "one of them answers");
    let mut world = World::behind(1, &[ROUTER, OTHER_ROUTER]);
    world.cut();
    world.run(2800, |world, step| upload(world, step, true));
    assert!(world.down_at().is_some());
}

#[test]
fn another_router_is_another_network() {
    let mut world = World::new(1);
    world.cut();
    world.watch.handle_next_hops(&[OTHER_ROUTER].into(), []);
    world.run(2800, |world, step| upload(world, step, true));
    assert_eq!(world.down_at(), None, "it is not known to answer");
}

/// What TCP sent into a reported outage is no sign of a silence after it.
#[test]
fn the_packets_of_a_reported_outage_are_no_silence() {
    let mut world = World::behind(1, &[]);
    world.exchange(0);
    world.run(2000, |_, _| {});
    world.cut();
    world.watch.handle_link(world.now);
    world.send(0);
    // The shell reads no counters meanwhile.
    world.now += Duration::from_secs(5);
    world.watch.handle_link(world.now);
    world.mark();
    world.run(900, |_, _| {});
    assert_eq!(world.count(listens), 0, "{:?}", world.acts);
    world.run(600, |_, _| {});
    assert_eq!(world.count(listens), 1, "{:?}", world.acts);
}

#[test]
fn a_link_that_is_down_for_another_reason_is_not_suspected() {
    let mut world = World::new(1);
    world.cut();
    world.run(2800, |world, step| upload(world, step, true));
    world.watch.handle_link(world.now);
    assert!(!world.watch.is_silent());
    world.mark();
    world.run(800, |_, _| {});
    assert_eq!(world.acts, []);
}
