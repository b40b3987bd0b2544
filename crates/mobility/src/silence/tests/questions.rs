//! How often peers and next hops are probed.

use super::super::*;
use super::world::*;

/// A station in power save has its answers at the next beacon.
#[test]
fn answers_that_take_a_while_are_waited_for() {
    assert_eq!(suspicion::ask_every(None), Duration::from_millis(100));
    assert_eq!(suspicion::ask_every(Some(Duration::from_millis(100))), Duration::from_millis(100));
    assert_eq!(suspicion::ask_every(Some(Duration::from_millis(15))), Duration::from_millis(60));
    assert_eq!(suspicion::ask_every(Some(Duration::from_micros(300))), Duration::from_millis(30));
}

#[test]
fn the_end_of_a_download_is_asked_about_once() {
    let mut world = World::new(1);
    world.run(3000, |world, step| {
        if step % 4 == 0 {
            world.exchange(0)
        }
    });
    world.mark();
    world.run(60_000, |_, _| {});
    assert_eq!(world.count(listens), 0, "{:?}", world.acts);
    assert!(world.count(is_question) <= 4, "{:?}", world.acts);
}

#[test]
fn nothing_is_asked_where_that_is_not_wanted() {
    let mut world = World::new(1);
    world.watch.options.asks = false;
    world.cut();
    world.run(6000, |world, step| upload(world, step, true));
    assert_eq!(world.count(is_question), 0);
    assert!(world.down_at().is_some_and(|at| at >= 2750));
}

#[test]
fn questions_become_rare() {
    let mut world = World::new(1);
    world.cut();
    world.run(600_000, |world, step| upload(world, step, true));
    let within =
        |from: u64, to: u64| world.acts.iter().filter(|(at, act)| (from..to).contains(at) && is_question(act)).count();
    assert!(within(0, 20_000) < 900, "{}", within(0, 20_000));
    assert!(within(500_000, 600_000) < 120, "{}", within(500_000, 600_000));
}

#[test]
fn a_peer_is_asked_in_place_of_next_hops() {
    for (routers, most_ms) in [(&[] as &[IpAddr], 30), (&[ROUTER], 150)] {
        let mut world = World::behind(1, routers);
        world.cut();
        world.run(4000, |world, step| upload(world, step, true));
        let is_asked = |(at, act): &&(u64, Act)| *at >= 3000 && matches!(act, Act::AskPeer(_));
        let times: Vec<u64> = world.acts.iter().filter(is_asked).map(|&(at, _)| at).collect();
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(longest.is_some_and(|longest| (most_ms / 2..=most_ms).contains(&longest)), "{routers:?} {times:?}");
    }
}

/// A shell that sees every packet reads no counters while TCP is at rest.
#[test]
fn counters_need_not_be_read_at_rest() {
    for routers in [&[] as &[IpAddr], &[ROUTER]] {
        let mut world = World::behind(1, routers);
        assert!(!world.watch.is_at_rest());
        world.run(10_000, |_, _| {});
        assert!(world.watch.is_at_rest());
        world.now += Duration::from_secs(3600);
        world.watch.handle_activity(world.now);
        world.cut();
        world.run(3000, |world, step| {
            assert!(!world.watch.is_at_rest());
            upload(world, step, true);
        });
        let listens_at = world.first(listens).unwrap_or_else(|| panic!("{:?}", world.acts));
        assert!((200..=900).contains(&listens_at), "{listens_at}");
    }
}

/// A world whose link falls silent after a pause, `for_ms` after the next keystroke.
fn struck_after_a_pause(routers: &[IpAddr], pause_ms: u64, for_ms: u64) -> World {
    let mut world = World::behind(1, routers);
    world.run(pause_ms, |_, _| {});
    world.cut();
    world.mark();
    world.run(for_ms, |world, step| {
        if step == 0 {
            world.send(0)
        }
    });
    world
}

/// A user types after a minute, into an outage: its age counts from the keystroke.
#[test]
fn a_peer_is_asked_as_often_after_a_pause() {
    let world = struck_after_a_pause(&[], 60_000, 60_000);
    let asked = |from: u64, to: u64| {
        let is_asked = |(at, act): &&(u64, Act)| (from..to).contains(at) && matches!(act, Act::AskPeer(_));
        world.acts.iter().filter(is_asked).count()
    };
    assert!((25..=40).contains(&asked(2500, 3500)), "{}", asked(2500, 3500));
    assert!((20..=27).contains(&asked(20_000, 21_000)), "{}", asked(20_000, 21_000));
    assert!(asked(0, 60_000) < 1_350, "{}", asked(0, 60_000));
}

/// ... and so are next hops.
#[test]
fn next_hops_are_asked_as_often_after_a_pause() {
    let world = struck_after_a_pause(&[ROUTER], 420_000, 4_000);
    let is_asked = |(at, act): &&(u64, Act)| *at >= 3_000 && matches!(act, Act::AskNextHops { .. });
    let asked = world.acts.iter().filter(is_asked).count();
    assert!(asked >= 20, "{asked} questions in a second: {:?}", world.acts);
}
