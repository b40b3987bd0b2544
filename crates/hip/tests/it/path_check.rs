//! Paths that fall silent while no host moves: tests by UPDATE, and other paths.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use bytes::Bytes;
use holdover_base::Duration;
use holdover_hip::codec::{HipPacket, PacketType, Parameter, kind};
use holdover_hip::host::{Dropped, Event, HostConfig, PathCheckConfig, State};
use holdover_wire::{Packet, Payload};

use crate::support::address;
use crate::world::{World, quick};

const HALF: Duration = Duration::from_millis(500);
const FORMER: [&str; 2] = ["192.0.2.1", "198.51.100.2"];

fn checking() -> HostConfig {
    HostConfig { path_check: Some(PathCheckConfig::default()), ..quick() }
}

/// Paths on which nothing arrives: each a pair of addresses, in both directions.
type Cut = Rc<RefCell<Vec<[IpAddr; 2]>>>;

fn cuttable(world: &mut World) -> Cut {
    let cut = Cut::default();
    let silent = Rc::clone(&cut);
    world.tamper = Some(Box::new(move |packet| {
        silent.borrow().iter().all(|[a, b]| ![(*a, *b), (*b, *a)].contains(&(packet.src, packet.dst)))
    }));
    cut
}

fn send(world: &mut World, from: usize) {
    let (src, dst) = (world.hit(from), world.hit(1 - from));
    let payload = Payload::Other { protocol: 253, payload: Bytes::from_static(b"data") };
    let inner = Packet::new(src.0.into(), dst.0.into(), payload);
    let outer = world.hosts[from].seal(world.now, &inner).unwrap();
    world.send(outer);
    world.collect();
}

/// Both hosts send data at intervals. Returns how much arrived at each.
fn talk(world: &mut World, time: Duration) -> [usize; 2] {
    world.got.clear();
    let end = world.now + time;
    while world.now < end {
        send(world, 0);
        send(world, 1);
        world.run_for(HALF);
    }
    [0, 1].map(|host| world.got.iter().filter(|(at, _)| *at == host).count())
}

/// The UPDATEs with an echo request, since the history was forgotten.
fn tests(world: &World) -> Vec<(IpAddr, IpAddr)> {
    let sent = world.packets.iter().filter_map(|(_, packet)| Some((HipPacket::parse(packet).ok()?, packet)));
    let is_test = |it: &HipPacket| {
        let has = |kind| it.parameters.iter().any(|it| it.kind() == kind);
        it.kind == PacketType::Update && has(kind::ECHO_REQUEST_SIGNED) && !has(kind::ACK)
    };
    sent.filter(|(received, _)| is_test(&received.packet)).map(|(_, packet)| (packet.src, packet.dst)).collect()
}

fn with_two_addresses() -> World {
    let mut world = World::established(5, &checking());
    world.move_to(1, &["198.51.100.2", "198.51.100.9"]);
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.hosts[0].verified_addresses(world.hit(1)).len(), 2);
    assert_eq!(talk(&mut world, Duration::from_secs(30)), [60, 60]);
    world.forget_history();
    world
}

// Claim: A path that falls silent while no host moves is noticed within six seconds of data without an answer; data then takes another
// pair of verified addresses, and returns to the former one after it works again; tests are few, and none is sent without a reason.
// Tests: `tests::a_path_that_works_is_not_tested`, `tests::tests_and_changes_are_bounded`,
// `tests::a_path_that_comes_and_goes_is_used_less_and_less`, `nat::a_direct_path_that_dies_is_replaced_by_the_relay`
#[test]
fn data_takes_another_address_of_the_peer() {
    let mut world = with_two_addresses();
    let cut = cuttable(&mut world);
    assert_eq!((talk(&mut world, Duration::from_secs(30)), tests(&world).len()), ([60, 60], 0));
    let former = FORMER.map(address);
    cut.borrow_mut().push(former);
    talk(&mut world, Duration::from_secs(7));
    let now = talk(&mut world, Duration::from_secs(20));
    assert!(now.iter().all(|count| *count >= 38), "{now:?}");
    for (host, instead) in [(0, ["192.0.2.1", "198.51.100.9"]), (1, ["198.51.100.9", "192.0.2.1"])] {
        let [own, other] = instead.map(address);
        let is_it = |event: &Event| matches!(event, Event::PathSilent { instead: Some(it), .. } if *it == (own, other));
        assert!(world.has_event(host, is_it), "host {host}: {:?}", world.events);
    }
    let count = tests(&world).len();
    assert!(count <= 2 * (3 + 2), "{:?}", tests(&world));
    // It is tested again from time to time, and used again once it works.
    cut.borrow_mut().clear();
    world.events.clear();
    talk(&mut world, Duration::from_secs(40));
    for host in 0..2 {
        assert!(world.has_event(host, |event| matches!(event, Event::PathAnswers { after: None, .. })));
    }
    world.forget_history();
    assert_eq!(talk(&mut world, Duration::from_secs(100)), [200, 200]);
    assert_eq!((world.packets.len(), world.dropped.len()), (0, 0), "nothing but data");
}

/// Only one direction is silent: the other host's packets still arrive.
#[test]
fn a_path_that_is_silent_in_one_direction_is_left_by_both() {
    for lost_from in 0..2 {
        let mut world = with_two_addresses();
        let [a, b] = FORMER.map(address);
        let lost = if lost_from == 0 { (a, b) } else { (b, a) };
        world.tamper = Some(Box::new(move |packet| (packet.src, packet.dst) != lost));
        talk(&mut world, Duration::from_secs(15));
        assert_eq!(talk(&mut world, Duration::from_secs(10)), [20, 20], "from host {lost_from}");
    }
}

/// This host's other address works, and it has no preference.
#[test]
fn data_takes_another_address_of_this_host() {
    let mut world = World::established(6, &checking());
    world.move_to(0, &["192.0.2.1", "203.0.113.5"]);
    world.run_for(Duration::from_secs(5));
    let cut = cuttable(&mut world);
    cut.borrow_mut().push(FORMER.map(address));
    talk(&mut world, Duration::from_secs(15));
    assert_eq!(talk(&mut world, Duration::from_secs(10)), [20, 20]);
}

#[test]
fn a_path_without_another_is_tested_until_it_answers() {
    let mut world = World::established(7, &checking());
    let cut = cuttable(&mut world);
    talk(&mut world, Duration::from_secs(30));
    cut.borrow_mut().push(FORMER.map(address));
    talk(&mut world, Duration::from_secs(600));
    for host in 0..2 {
        assert!(world.has_event(host, |event| matches!(event, Event::PathSilent { instead: None, .. })));
        let events =
            world.events.iter().filter(|(_, at, event)| *at == host && matches!(event, Event::PathSilent { .. }));
        assert_eq!(events.count(), 1);
    }
    let count = tests(&world).len();
    assert!(count <= 2 * (3 + 61), "{count} in ten minutes");
    cut.borrow_mut().clear();
    world.run_for(Duration::from_secs(11));
    for host in 0..2 {
        assert!(world.has_event(host, |event| matches!(event, Event::PathAnswers { after: Some(_), .. })), "{host}");
    }
    assert_eq!(talk(&mut world, Duration::from_secs(10)), [20, 20]);
}

// Claim: Data in one direction is tested after 3, 6 and 12 seconds, then every 15 seconds.
#[test]
fn data_in_one_direction_is_tested_less_and_less() {
    let mut world = World::established(10, &checking());
    world.forget_history();
    let mut before = 0;
    for (seconds, most) in [(22, 3), (300, 20)] {
        for _ in 0..2 * seconds {
            send(&mut world, 0);
            world.run_for(HALF);
        }
        let count = tests(&world).len() - before;
        assert!(count <= most && 2 * count > most, "{count} tests in {seconds} s");
        before += count;
    }
    assert!(!world.has_event(0, |event| matches!(event, Event::PathSilent { .. })));
}

// Claim: Data that has left a silent path stays on the other one while further addresses of either host come and go.
#[test]
fn further_addresses_do_not_lead_data_back_to_a_silent_path() {
    for prefers_standby in [false, true] {
        let mut world = World::established(11, &HostConfig { prefers_standby, ..checking() });
        let own = ["192.0.2.1", "203.0.113.5"];
        world.move_to(0, &own);
        world.run_for(Duration::from_secs(5));
        assert_eq!(talk(&mut world, Duration::from_secs(5)), [10, 10]);
        let cut = cuttable(&mut world);
        cut.borrow_mut().push(FORMER.map(address));
        talk(&mut world, Duration::from_secs(15));
        assert_eq!(talk(&mut world, Duration::from_secs(5)), [10, 10]);
        let moves: [(usize, &[&str]); 4] = [
            (0, &[own[0], own[1], "203.0.113.77"]),
            (0, &own),
            (1, &["198.51.100.2", "198.51.100.9"]),
            (1, &["198.51.100.2"]),
        ];
        for (host, places) in moves {
            world.move_to(host, places);
            let got = talk(&mut world, Duration::from_secs(8));
            assert_eq!(got, [16, 16], "host {host} at {places:?}, standby preferred: {prefers_standby}");
        }
        // Another address that is preferred is used at once.
        world.move_to(0, &["192.0.2.66", own[0], own[1]]);
        assert_eq!(talk(&mut world, Duration::from_secs(5)), [10, 10]);
        let way = world.packets.iter().rev().find(|(_, packet)| packet.dst == address("198.51.100.2")).unwrap();
        assert_eq!(way.1.src, address("192.0.2.66"), "standby preferred: {prefers_standby}");
    }
}

/// The last packet of a test is replayed by a host on the path.
#[test]
fn a_replayed_answer_shows_nothing() {
    let mut world = World::established(8, &checking());
    let cut = cuttable(&mut world);
    world.forget_history();
    send(&mut world, 0);
    world.run_for(Duration::from_secs(5));
    assert_eq!(tests(&world).len(), 1, "nothing answered the data");
    let is_answer = |it: &Parameter| it.kind() == kind::ECHO_RESPONSE_SIGNED;
    let answers = world.packets.iter().map(|(_, packet)| packet);
    let answer = answers.filter(|it| HipPacket::parse(it).is_ok_and(|it| it.packet.parameters.iter().any(is_answer)));
    let answer = answer.last().unwrap().clone();
    cut.borrow_mut().push(FORMER.map(address));
    send(&mut world, 0);
    world.run_for(Duration::from_secs(20));
    assert!(world.has_event(0, |event| matches!(event, Event::PathSilent { instead: None, .. })));
    world.dropped.clear();
    world.deliver(&answer);
    assert_eq!(world.dropped, [(0, Dropped::Stale)]);
    assert!(!world.has_event(0, |event| matches!(event, Event::PathAnswers { .. })));
}

#[test]
fn hosts_without_the_option_send_no_tests() {
    let mut world = World::established(9, &quick());
    let cut = cuttable(&mut world);
    cut.borrow_mut().push(FORMER.map(address));
    talk(&mut world, Duration::from_secs(60));
    assert_eq!((tests(&world).len(), world.state(0)), (0, State::Established));
}
