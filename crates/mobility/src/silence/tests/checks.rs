//! Checks of half a second: late ACKs, pauses, and cuts.

use super::super::*;
use super::world::*;

/// A key is struck, and the link is silent for half a second.
// Claim: Behind a next hop that answers probes the detector notices half a second of silence, and its end. A late ACK or a pause of
// a stream costs one probe of the next hop and none of the peer; a next hop that forwards and no longer answers is suspected
// once.
// Tests: `tests::a_late_ack_is_checked_once`, `tests::a_pause_of_a_stream_is_checked_without_its_peer`,
// `tests::a_router_that_stops_answering_is_suspected_once`
#[test]
fn the_end_of_half_a_second_is_noticed() {
    let mut world = World::new(1);
    world.run(1000, |world, step| upload(world, step, false));
    world.cut();
    world.send(0);
    world.run(500, |_, _| {});
    let listens_at = world.first(listens).unwrap_or_else(|| panic!("{:?}", world.acts));
    assert!(listens_at <= 450, "{listens_at}");
    let asks_peer_at = world.first(|act| matches!(act, Act::AskPeer(_)));
    assert!(asks_peer_at.is_none_or(|at| at >= listens_at), "the next hop first: {:?}", world.acts);
    world.mark();
    world.routers_answer = true;
    world.run(100, |_, _| {});
    assert!(world.first(|act| *act == Act::End).is_some_and(|at| at <= 50), "{:?}", world.acts);
}

/// Without a next hop, TCP's retransmission is the sign, after 250 ms: the peer gets a probe each 30 ms from then on.
// Claim: Without a next hop the detector notices half a second of silence by the host's own retransmission of a short segment, and
// its end; nothing is probed before the retransmission, and an ACK that is late after it makes the agent probe the peer.
// Tests: `tests::a_late_ack_without_a_next_hop_is_one_probe`
#[test]
fn the_end_of_half_a_second_is_noticed_without_a_next_hop() {
    let mut world = World::behind(1, &[]);
    world.run(1000, |world, step| upload(world, step, false));
    world.cut();
    world.run(500, |world, step| {
        if [0, 50].contains(&step) {
            world.send(0)
        }
    });
    let asked: Vec<u64> =
        world.acts.iter().filter(|(_, act)| matches!(act, Act::AskPeer(_))).map(|&(at, _)| at).collect();
    assert!(asked.first().is_some_and(|at| (250..=320).contains(at)), "{:?}", world.acts);
    assert!(asked.windows(2).all(|pair| pair[1] - pair[0] <= 35), "{asked:?}");
    assert!(world.first(listens).is_some_and(|at| at <= 480), "{:?}", world.acts);
    world.mark();
    world.peers_answer = true;
    world.run(100, |_, _| {});
    assert!(world.first(|act| *act == Act::End).is_some_and(|at| at <= 100), "{:?}", world.acts);
    assert_eq!(world.count(is_down), 0);
}

/// The peer answers a probe at once, and the key, which it has by then, 300 ms after each retransmission.
#[test]
fn a_late_ack_without_a_next_hop_is_one_probe() {
    let mut world = World::behind(1, &[]);
    for _ in 0..20 {
        world.run(250, |world, step| {
            if step == 0 {
                world.send(0)
            }
        });
        assert_eq!(world.count(is_question), 0, "nothing before a retransmission: {:?}", world.acts);
        world.send(0);
        world.run(300, |_, _| {});
        world.receive(0);
        assert_eq!(world.count(is_question), 1, "{:?}", world.acts);
        world.run(500, |_, _| {});
        world.mark();
    }
}

/// Its host retransmits to no avail, while another peer sends.
#[test]
fn a_peer_that_is_gone_beside_one_that_sends_is_checked_once() {
    let mut world = World::behind(2, &[]);
    world.peers_answer = false;
    world.run(5000, |world, step| {
        if [0, 60, 180, 420, 900].contains(&step) {
            world.send(0);
        }
        // Soon after each check has begun.
        if step % 60 == 20 {
            world.receive(1);
        }
    });
    let asked_at: Vec<u64> =
        world.acts.iter().filter(|(_, act)| matches!(act, Act::AskPeer(_))).map(|&(at, _)| at).collect();
    assert!(!asked_at.is_empty() && asked_at.iter().all(|at| *at < 400), "in the first check only: {:?}", world.acts);
    assert_eq!(world.count(listens), 0, "{:?}", world.acts);
}

/// Losses often precede a cut: a key is lost, another peer's packet ends the check, and then nothing arrives any more.
#[test]
fn a_cut_after_a_check_that_another_peer_has_ended_is_noticed() {
    let mut world = World::behind(2, &[]);
    world.peers_answer = false;
    world.run(6000, |world, step| {
        if [0, 60, 180, 420, 900].contains(&step) {
            world.send(0);
        }
        if step == 75 {
            world.receive(1);
        }
    });
    assert!(world.first(|act| matches!(act, Act::AskPeer(_))).is_some_and(|at| at < 375), "{:?}", world.acts);
    assert!(world.first(listens).is_some_and(|at| (375..=2500).contains(&at)), "{:?}", world.acts);
    assert!(world.watch.is_silent(), "{:?}", world.acts);
}

/// Of two peers that have not answered, the one that was heard last is probed, for as long as the farther one's answer takes.
#[test]
fn a_check_without_a_next_hop_waits_for_the_farthest_peer() {
    let mut world = World::behind(2, &[]);
    world.peers_answer = false;
    world.peers[1].round_trip = Some(Duration::from_millis(600));
    world.exchange(0);
    world.run(20, |_, _| {});
    world.traffic.tcp_received += 1;
    world.peers[1].heard_at = Some(world.now);
    world.run(2000, |_, _| {});
    world.mark();
    world.run(560, |world, step| {
        if step % 50 == 0 {
            (0..2).for_each(|peer| world.send(peer));
        }
    });
    let asked = world.acts.iter().filter_map(|(_, act)| if let Act::AskPeer(peer) = act { Some(*peer) } else { None });
    assert_eq!(asked.collect::<std::collections::BTreeSet<_>>(), [connection(1)].into(), "{:?}", world.acts);
    assert_eq!(world.count(listens), 0, "{:?}", world.acts);
}

#[test]
fn a_late_ack_is_checked_once() {
    let mut world = World::new(1);
    for _ in 0..20 {
        world.send(0);
        // A peer that delays its ACKs by 500 ms.
        world.run(500, |_, _| {});
        world.receive(0);
        world.run(500, |_, _| {});
    }
    assert_eq!(world.count(listens), 0, "{:?}", world.acts);
    assert!(world.count(is_question) <= 20, "{:?}", world.acts);
    let others = world.count(|act| !matches!(act, Act::Survey | Act::AskNextHops { .. }));
    assert_eq!(others, 0, "{:?}", world.acts);
}

#[test]
fn a_pause_of_a_stream_is_checked_without_its_peer() {
    let mut world = World::new(1);
    for _ in 0..10 {
        world.run(500, |world, step| {
            if step % 2 == 0 {
                world.exchange(0)
            }
        });
        world.run(900, |_, _| {});
    }
    assert_eq!(world.count(listens), 0, "{:?}", world.acts);
    assert!((10..=20).contains(&world.count(is_question)), "{:?}", world.acts);
    assert_eq!(world.count(|act| matches!(act, Act::AskPeer(_))), 0, "{:?}", world.acts);
}

/// It forwards, and answers no probes: once it has been found out, it is not believed.
#[test]
fn a_router_that_stops_answering_is_suspected_once() {
    let mut world = World::new(1);
    world.routers_answer = false;
    for _ in 0..50 {
        world.send(0);
        world.run(700, |_, _| {});
        world.receive(0);
        world.run(1000, |_, _| {});
    }
    assert_eq!((world.count(listens), world.count(is_down)), (1, 0), "{:?}", world.acts);
    // It is met again, every minute at most.
    assert!(world.count(is_question) <= 4 + 2 + 2, "{:?}", world.acts);
    world.routers_answer = true;
    world.run(60_000, |world, step| {
        if step % 20 == 0 {
            world.exchange(0)
        }
    });
    world.mark();
    world.cut();
    world.send(0);
    world.run(1000, |_, _| {});
    assert!(world.first(listens).is_some_and(|at| at <= 800), "it is believed again: {:?}", world.acts);
}
