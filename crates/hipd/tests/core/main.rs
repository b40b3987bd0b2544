//! The daemon's decisions, without I/O: two daemons over a network in virtual time.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests")]

mod calls;
mod clock_jumps;
mod invitation;
mod lost_keys;
mod lsi;
mod nat;
mod nat_moves;
mod path_mtu;
mod paths;
mod proxy;
mod r1_counter;
mod rendezvous;
mod standby;
mod world;

use holdover_base::{Duration, Rng};
use holdover_hip::codec::{HEADER_LEN, HipPacket, PacketType, Parameter};
use holdover_hip::host::{Event, State};
use holdover_hipd::core::{Note, PORT};
use holdover_hipd::files::{Peers, Via};
use holdover_wire::{Flags, Packet, Payload, Segment, Seq, Udp};
use proptest::prelude::*;

use crate::world::{Translator, World, address};

const BOTH: [bool; 2] = [true, true];
const SECOND: Duration = Duration::from_secs(1);

/// A world in which both hosts have exchanged data.
pub(crate) fn talking(via: Via) -> World {
    let mut world = World::new(1, via, BOTH);
    world.send(0, 1);
    world.run_for(SECOND * 3);
    world.send(1, 2);
    world.run_for(SECOND);
    assert_eq!((world.numbers(1), world.numbers(0)), (vec![1], vec![2]));
    world.notes.clear();
    world.sent.clear();
    world
}

// Claim: A program's first packet opens the association and is not lost. With UDP, only UDP packets leave the host, and a peer
// that initiates in UDP is answered in UDP.
// Tests: `main::the_answer_to_a_peer_in_udp_goes_in_udp_to_its_port`, `talk::they_talk_in_udp`
#[test]
fn the_first_packet_opens_an_association_and_is_not_lost() {
    for (via, knows) in [(Via::Ip, BOTH), (Via::Udp, BOTH)] {
        let mut world = World::new(3, via, knows);
        world.send(0, 7);
        world.run_for(SECOND);
        assert_eq!(world.numbers(1), [7]);
        let in_udp = |packet: &Packet| matches!(&packet.payload, Payload::Udp(udp) if udp.dst_port == PORT);
        assert!(world.sent.iter().all(|packet| in_udp(packet) == (via == Via::Udp)), "{:?}", world.sent);
    }
}

#[test]
fn the_answer_to_a_peer_in_udp_goes_in_udp_to_its_port() {
    // Host 1 is not configured for UDP, and host 0 is behind a translator of ports.
    let mut world = World::new(3, Via::Udp, BOTH);
    world.via = Via::Ip;
    world.restart(1);
    world.run_for(SECOND * 5);
    world.send(0, 1);
    world.run_for(SECOND);
    world.send(1, 2);
    world.run_for(SECOND);
    assert_eq!((world.numbers(0), world.numbers(1)), (vec![2], vec![1]));
    let last = world.sent.last().unwrap();
    assert!(matches!(last.payload, Payload::Udp(_)), "{last}");
}

// Claim: Strangers and removed peers are refused, also at a known peer's address; programs that connect to an unknown HIT receive
// an error.
// Tests: `main::a_peer_that_is_removed_is_a_stranger`, `talk::another_identity_is_refused`
#[test]
fn strangers_are_refused_and_programs_are_told() {
    let mut world = World::new(4, Via::Ip, [true, false]);
    world.send(0, 1);
    world.run_for(SECOND * 200);
    assert_eq!(world.hosts[1].state(world.hit(0)), State::Unassociated);
    assert!(world.numbers(1).is_empty() && world.hosts[1].peer_status().is_empty());
    let is_error = |packet: &Packet| matches!(packet.payload, Payload::IcmpError(_));
    assert!(world.got[0].iter().any(is_error), "{:?}", world.got[0]);
    // This host does not know the other host's peers either.
    world.send(1, 2);
    assert!(world.got[1].iter().any(is_error));
    assert_eq!(world.hosts[1].counters().unreachable, 1);
}

#[test]
fn a_peer_that_is_removed_is_a_stranger() {
    let mut world = talking(Via::Ip);
    world.hosts[1].set_peers(world.now, &Peers::default());
    world.run_for(SECOND);
    world.send(0, 3);
    world.run_for(SECOND * 100);
    assert_eq!(world.numbers(1), [1]);
    let peers = world.peers(1);
    world.hosts[1].set_peers(world.now, &peers);
    world.send(0, 4);
    world.run_for(SECOND * 5);
    assert_eq!(world.numbers(1), [1, 4]);
}

/// One round trip from the new address to the peer's check, with which data flows both ways.
// Claim: After a move, data flows in both directions after a round trip, in UDP too, and after any time without an address; the
// same address again is no move.
// Tests: `main::a_host_that_is_nowhere_for_long_is_found_again`, `main::the_same_address_after_a_break_is_no_move`
#[test]
fn a_move_takes_one_round_trip() {
    for via in [Via::Ip, Via::Udp] {
        let mut world = talking(via);
        let moved_at = world.now;
        world.move_to(0, &["203.0.113.1"]);
        world.run_for(SECOND);
        let after = |(at, host, note): &(_, usize, holdover_hipd::core::Note)| match note.event {
            Event::Readdressed { address: found, .. } if *host == 0 => Some((*at, note.after, found)),
            _ => None,
        };
        let expected = (moved_at + world.delay * 2, Some(world.delay * 2), address("203.0.113.1"));
        assert_eq!(world.notes.iter().filter_map(after).collect::<Vec<_>>(), [expected]);
        world.send(1, 5);
        world.send(0, 6);
        world.run_for(SECOND);
        assert_eq!((world.numbers(0), world.numbers(1)), (vec![2, 5], vec![1, 6]));
        assert_eq!(world.hosts[0].peer_status()[0].counters.readdressed, 1);
    }
}

/// Data without an acknowledgement, as each host's TCP has it in flight.
pub(crate) fn data_in_flight(world: &mut World) {
    for from in [0, 1] {
        let (src, dst) = (world.hit(from), world.hit(1 - from));
        let segment = Segment {
            src_port: 5001,
            dst_port: 5001,
            seq: Seq::new(1),
            ack: Seq::new(1),
            flags: Flags::ACK,
            payload: vec![7; 1000].into(),
            ..Segment::default()
        };
        world.send_packet(from, &Packet::new(src.0.into(), dst.0.into(), segment));
    }
}

// Claim: The IP version that a host prefers stays while it reaches any peer: a peer that changes its own does not make the host announce other
// addresses to all.
#[test]
fn the_preferred_ip_version_stays_while_it_reaches_a_peer() {
    let mut world = talking(Via::Ip);
    world.move_to(1, &["198.51.100.2", "2001:db8::2"]);
    world.run_for(SECOND);
    world.move_to(0, &["2001:db8::1"]);
    world.run_for(SECOND);
    world.move_to(0, &["203.0.113.1", "2001:db8::1"]);
    world.run_for(SECOND);
    assert_eq!(world.hosts[1].peer_status()[0].addresses.len(), 2);
    for own in [["198.51.100.2", "2001:db8::2"], ["2001:db8::2", "198.51.100.2"]] {
        world.move_to(1, &own);
        let first = world.hosts[1].peer_addresses()[0];
        assert_eq!(first.is_ipv4(), address(own[0]).is_ipv4(), "{first}");
    }
    // A version that reaches no peer is replaced.
    world.move_to(0, &["203.0.113.1"]);
    world.run_for(SECOND);
    assert_eq!(world.hosts[1].peer_addresses()[0], address("203.0.113.1"));
}

/// Away for so long that hardly any credit is left for the new address.
// Claim: After a move of its peer a host wakes its TCP when the new address has credit for what TCP sends, or is verified: what is sent before
// would be lost, and TCP would wait for its timer.
#[test]
fn tcp_without_credit_is_woken_when_the_address_is_verified() {
    let mut world = talking(Via::Ip);
    data_in_flight(&mut world);
    world.move_to(0, &[]);
    world.run_for(SECOND * 30);
    world.move_to(0, &["203.0.113.1"]);
    // The announcement, the check, its answer, and data.
    world.run_for(world.delay * 4 + Duration::from_millis(10));
    let has_arrived = |packet: &Packet| packet.tcp().is_some_and(|segment| !segment.payload.is_empty());
    assert!(world.got[0].iter().any(has_arrived), "{:?}", world.hosts[1].counters());
}

/// The former address is there for this time after the move: none, until packets are on their way to it, or for long.
// Claim: A make before break retransmits nothing at either end, if the peer knows that the former address is still there and data arrives
// over it; if that address goes while packets are on their way to it, the host that has moved does.
#[test]
fn a_make_before_break_retransmits_nothing() {
    for (overlap_ms, retransmits) in [(0, [true, true]), (120, [true, false]), (500, [false, false])] {
        let mut world = talking(Via::Ip);
        data_in_flight(&mut world);
        world.run_for(Duration::from_millis(40));
        // Arrives after the move.
        world.send(1, 9);
        let before = [0, 1].map(|index| world.hosts[index].counters().woken);
        if overlap_ms > 0 {
            world.move_to(0, &["203.0.113.1", "192.0.2.1"]);
            world.run_for(Duration::from_millis(overlap_ms));
        }
        world.move_to(0, &["203.0.113.1"]);
        world.run_for(SECOND);
        let woken = [0, 1].map(|index| world.hosts[index].counters().woken > before[index]);
        assert_eq!(woken, retransmits, "{overlap_ms} ms");
        assert_eq!(world.numbers(0).contains(&9), overlap_ms > 0);
        assert_eq!(world.hosts[0].peer_status()[0].counters.readdressed, 1);
        assert_eq!(world.hosts[1].peer_status()[0].addresses, [address("203.0.113.1")]);
    }
}

#[test]
fn a_host_that_is_nowhere_for_long_is_found_again() {
    for gap in [1, 15, 300, 1000] {
        let mut world = talking(Via::Ip);
        world.move_to(0, &[]);
        world.send(0, 3);
        world.run_for(SECOND * gap);
        world.move_to(0, &["2001:db8::5", "203.0.113.9"]);
        world.run_for(SECOND * 10);
        world.send(1, 4);
        world.send(0, 5);
        world.run_for(SECOND * 10);
        assert!(world.numbers(0).contains(&4) && world.numbers(1).contains(&5), "{gap} s: {:?}", world.got);
    }
}

#[test]
fn the_same_address_after_a_break_is_no_move() {
    let mut world = talking(Via::Ip);
    world.move_to(0, &[]);
    world.run_for(SECOND * 3);
    world.move_to(0, &["192.0.2.1"]);
    world.run_for(SECOND);
    world.send(1, 4);
    world.run_for(SECOND);
    assert_eq!(world.numbers(0), [2, 4]);
    assert!(!world.hosts[0].peer_status()[0].is_moving);
}

// Claim: Either daemon may be killed and restarted: connections continue.
// Tests: `talk::connections_survive_a_killed_and_restarted_daemon`
#[test]
fn connections_survive_a_restart_of_the_daemon() {
    for restarted in [0, 1] {
        let mut world = talking(Via::Ip);
        world.restart(restarted);
        world.run_for(SECOND * 3);
        world.send(0, 3);
        world.send(1, 4);
        world.run_for(SECOND * 3);
        assert!(world.numbers(1).contains(&3) && world.numbers(0).contains(&4), "{restarted}: {:?}", world.got);
    }
}

// Claim: Waiting packets are bounded, and 20,000 I1s of strangers leave no state.
// Tests: `main::a_flood_of_i1_leaves_nothing_behind`
#[test]
fn waiting_packets_are_bounded() {
    let mut world = World::new(9, Via::Ip, BOTH);
    world.move_to(0, &[]);
    world.run_for(SECOND * 200);
    for number in 0..10_000 {
        world.send(0, number);
    }
    assert_eq!(world.hosts[0].peer_status()[0].waiting_packets, 64);
    assert_eq!(world.hosts[0].counters().not_waited, 10_000 - 64);
}

// Claim: Packets that are not between HITs do not leave the host.
#[test]
fn packets_other_than_between_hits_are_not_sent() {
    let mut world = talking(Via::Ip);
    let (own, peer) = (world.hit(0).0.into(), world.hit(1).0.into());
    let payload = || Udp { src_port: 1, dst_port: 2, payload: bytes::Bytes::from_static(b"secret") };
    for (src, dst) in [
        (own, address("2001:db8::1")),
        (address("2001:db8::1"), peer),
        (own, address("ff02::2")),
        (peer, own),
        (address("192.0.2.1"), address("198.51.100.2")),
    ] {
        world.hosts[0].handle_inner(world.now, Packet::new(src, dst, payload()));
    }
    world.run_for(SECOND);
    assert!(world.sent.is_empty(), "{:?}", world.sent);
    assert_eq!(world.hosts[0].counters().not_for_hits, 5);
}

/// I1s of strangers at any rate leave no state behind.
#[test]
fn a_flood_of_i1_leaves_nothing_behind() {
    let mut world = talking(Via::Ip);
    let (own, mut rng) = (world.hit(0), Rng::new(5));
    let before = world.hosts[0].peer_status();
    for _ in 0..20_000 {
        let sender =
            holdover_hip::identity::Hit((0x2001_0025_u128 << 96 | u128::from(rng.next_u64())).to_be_bytes().into());
        let i1 = HipPacket::new(PacketType::I1, sender, own);
        let packet = i1.emit(address("203.0.113.77"), address("192.0.2.1")).unwrap();
        world.hosts[0].handle_network(world.now, packet);
    }
    assert_eq!(world.hosts[0].peer_status(), before);
}

fn translator(outside: &str, port: u16) -> Translator {
    Translator { outside: address(outside), port }
}

/// Host 0 is behind a translator, and both hosts have exchanged data.
fn translated() -> World {
    let mut world = World::new(11, Via::Udp, BOTH);
    world.move_behind(translator("203.0.113.1", 20_000), &["192.168.1.2"]);
    world.send(0, 1);
    world.run_for(SECOND * 30);
    world.send(1, 2);
    world.run_for(SECOND);
    assert_eq!((world.numbers(1), world.numbers(0)), (vec![1], vec![2]));
    assert_eq!(world.hosts[1].peer_status()[0].addresses, [address("203.0.113.1")]);
    world.notes.clear();
    world.sent.clear();
    world
}

/// Another network with another translator, where the host may have its former address, or one that is also used in a third network.
// Claim: A host moves from behind one address translator to behind another, with the same private address or another; it is
// reachable after a round trip. After an expired binding, the next packet or keep-alive restores the path; only peers in UDP
// receive keep-alives, every 15 s.
// Tests: `main::a_binding_that_is_forgotten_is_found_again`, `main::keep_alives_every_15_s`,
// `moves::from_behind_one_translator_to_behind_another`
#[test]
fn a_host_moves_behind_another_translator() {
    for (place, gap) in [("192.168.1.2", SECOND), ("192.168.9.9", Duration::ZERO), ("192.168.77.5", SECOND * 100)] {
        let mut world = translated();
        if gap > Duration::ZERO {
            world.move_to(0, &[]);
            world.run_for(gap);
        }
        let moved_at = world.now;
        world.move_behind(translator("198.51.100.77", 30_000), &[place]);
        world.run_for(SECOND);
        let found = |(at, host, note): &(_, usize, Note)| match note.event {
            Event::Readdressed { .. } if *host == 0 => Some((*at, note.after)),
            _ => None,
        };
        let expected = (moved_at + world.delay * 2, Some(world.delay * 2));
        assert_eq!(world.notes.iter().find_map(found), Some(expected), "{place}");
        assert_eq!(world.hosts[1].peer_status()[0].addresses, [address("198.51.100.77")], "{place}");
        world.send(1, 3);
        world.send(0, 4);
        world.run_for(SECOND);
        assert_eq!((world.numbers(0), world.numbers(1)), (vec![2, 3], vec![1, 4]), "{place}");
    }
}

/// The translator loses its binding. The host's next packet, at the latest its keep-alive, shows the peer the new one.
#[test]
fn a_binding_that_is_forgotten_is_found_again() {
    for sends in [false, true] {
        let mut world = translated();
        world.translator = Some(translator("203.0.113.1", 20_001));
        world.send(1, 3);
        world.run_for(Duration::from_millis(200));
        assert_eq!(world.numbers(0), [2], "it went to the old binding");
        if sends {
            // One alone earns less credit than an answer costs.
            world.send(0, 4);
            world.send(0, 4);
            world.run_for(Duration::from_millis(51));
            world.send(1, 5);
            world.run_for(Duration::from_millis(51));
            assert_eq!(world.numbers(0), [2, 5], "within the credit, as soon as the peer has seen it");
        }
        world.run_for(SECOND * 16);
        world.send(1, 6);
        world.run_for(SECOND);
        assert_eq!(world.numbers(0).last(), Some(&6));
        assert_eq!(world.hosts[1].peer_status()[0].counters.followed, 1);
    }
}

/// Keep-alives are sent only in the absence of other packets, and only to peers in UDP.
#[test]
fn keep_alives_every_15_s() {
    let mut world = translated();
    // The last data was not answered: its path is tested.
    world.run_for(SECOND * 20);
    let before = world.hosts[0].counters().keep_alives;
    world.run_for(SECOND * 150);
    assert_eq!(world.hosts[0].counters().keep_alives - before, 10);
    let before = world.hosts[0].counters().keep_alives;
    for number in 0..30 {
        world.send(0, number + 100);
        world.run_for(SECOND * 5);
    }
    assert_eq!(world.hosts[0].counters().keep_alives, before);
    let mut world = talking(Via::Ip);
    world.run_for(SECOND * 20);
    world.sent.clear();
    world.run_for(SECOND * 150);
    assert_eq!(world.hosts[0].counters().keep_alives, 0);
    assert!(world.sent.is_empty());
}

/// An attacker who copies packets with another source address redirects at most the credit; replays change nothing.
// Claim: Packets replayed from another address move no association; replayed stolen packets draw no more than the credit.
#[test]
fn a_copied_packet_from_elsewhere_gets_no_more_than_the_credit() {
    let mut world = translated();
    world.send(0, 3);
    let mut stolen = world.sent.last().unwrap().clone();
    world.run_for(SECOND);
    stolen.src = address("203.0.113.66");
    world.deliver(stolen.clone());
    world.send(1, 4);
    world.run_for(SECOND);
    assert_eq!(world.numbers(0).last(), Some(&4), "a replay is dropped");
    // The copy overtakes the original, which then counts as a replay.
    world.send(0, 5);
    stolen = world.sent.last().unwrap().clone();
    stolen.src = address("203.0.113.66");
    world.deliver(stolen);
    world.sent.clear();
    for number in 0..1000 {
        world.send(1, number + 1000);
    }
    let elsewhere = world.sent.iter().filter(|packet| packet.dst == address("203.0.113.66")).count();
    assert!(elsewhere < 30, "{elsewhere} packets went to a stranger");
    world.run_for(SECOND * 20);
    world.send(1, 9);
    world.run_for(SECOND);
    assert_eq!(world.numbers(0).last(), Some(&9), "the next packet of the peer brings it back");
}

/// A HIP packet in UDP, whose checksum is zero there.
fn in_udp(src: &str, port: u16, packet: &Packet) -> Packet {
    let Payload::Other { payload, .. } = &packet.payload else { panic!("{packet}") };
    let mut bytes = [&[0; 4], &payload[..]].concat();
    bytes[8..10].fill(0);
    let udp = Udp { src_port: port, dst_port: PORT, payload: bytes.into() };
    Packet::new(address(src), packet.dst, Payload::Udp(udp))
}

/// An I1 has no MAC: one in UDP with a peer's HIT is answered, and does not switch that peer's packets to UDP; whatever its length, which
/// stands where other headers have their type.
// Claim: An I1 of any length, and a replayed UPDATE, from anywhere and in UDP or not, change no path; a new UPDATE does.
// Tests: `main::a_new_update_shows_the_way_of_a_peer_and_a_replay_does_not`
#[test]
fn a_forged_i1_changes_no_path() {
    let mut world = talking(Via::Ip);
    let (src, dst) = (address("192.0.2.2"), address("192.0.2.1"));
    for kind in PacketType::ALL.map(PacketType::number) {
        let len = (usize::from(kind) + 1) * 8;
        // Type, length and one octet for each group.
        let groups = vec![7; len.saturating_sub(HEADER_LEN + 4).max(1)];
        let mut i1 = HipPacket::new(PacketType::I1, world.hit(1), world.hit(0));
        i1.parameters.push(Parameter::DhGroupList(groups));
        let plain = i1.emit(src, dst).unwrap();
        assert!(plain.wire_len() - plain.ip_header_len() == len || len <= HEADER_LEN);
        for packet in [in_udp("203.0.113.77", 4000, &plain), in_udp("192.0.2.2", 4000, &plain), plain] {
            world.hosts[0].handle_network(world.now, packet);
            let answer = world.hosts[0].poll_network();
            assert!(answer.is_some(), "{:?}", world.hosts[0].counters());
            assert!(!world.hosts[0].peer_status()[0].in_udp, "length {len}");
        }
    }
    assert_eq!(world.hosts[0].counters().hip_dropped, 0);
    world.send(0, 9);
    world.run_for(SECOND);
    assert_eq!(world.numbers(1), [1, 9]);
}

/// An UPDATE shows where the peer is, and whether in UDP; a replay of it, from anywhere and in UDP or not, shows nothing.
#[test]
fn a_new_update_shows_the_way_of_a_peer_and_a_replay_does_not() {
    for (before, now) in [(Via::Ip, Via::Udp), (Via::Ip, Via::Ip)] {
        let mut world = talking(before);
        world.via = now;
        let peers = world.peers(0);
        world.hosts[0].set_peers(world.now, &peers);
        // The second address is verified by a second exchange of UPDATEs, which are not there yet.
        world.move_to(0, &["192.0.2.1", "203.0.113.5"]);
        let update = world.sent.first().unwrap().clone();
        world.run_for(Duration::from_millis(60));
        let in_udp_now = |world: &World| world.hosts[1].peer_status()[0].in_udp;
        assert_eq!(in_udp_now(&world), now == Via::Udp);
        world.run_for(SECOND * 5);
        if now == Via::Ip {
            let replay = in_udp("203.0.113.77", 4000, &update);
            let dropped = world.hosts[1].counters().hip_dropped;
            world.hosts[1].handle_network(world.now, replay);
            assert_eq!(world.hosts[1].counters().hip_dropped, dropped, "it is answered as a retransmission");
            assert!(!in_udp_now(&world));
        }
        world.send(1, 3);
        world.run_for(SECOND);
        assert_eq!(world.numbers(0), [2, 3]);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Move(usize, u8),
    Vanish(usize),
    Restart(usize),
    Lose(u8),
    Wait(u16),
    Replay(u16),
    Mangle(u16, u16, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let host = 0..2_usize;
    prop_oneof![
        4 => host.clone().prop_map(Step::Send),
        2 => (host.clone(), 1..200_u8).prop_map(|(host, place)| Step::Move(host, place)),
        1 => host.clone().prop_map(Step::Vanish),
        1 => host.prop_map(Step::Restart),
        1 => (0..60_u8).prop_map(Step::Lose),
        4 => (1..20_000_u16).prop_map(Step::Wait),
        1 => any::<u16>().prop_map(Step::Replay),
        2 => (any::<u16>(), any::<u16>(), any::<u8>()).prop_map(|(which, at, bits)| Step::Mangle(which, at, bits)),
    ]
}

fn apply(world: &mut World, step: &Step, number: &mut u64) {
    match *step {
        Step::Send(from) => {
            *number += 1;
            world.send(from, *number);
        }
        Step::Move(host, place) => {
            world.move_to(host, &[&format!("203.0.113.{place}"), &format!("2001:db8:{host}::{place}")])
        }
        Step::Vanish(host) => world.move_to(host, &[]),
        Step::Restart(host) => world.restart(host),
        Step::Lose(percent) => {
            world.loss = f64::from(percent) / 100.0;
            world.duplication = world.loss / 2.0;
            world.jitter = Duration::from_millis(u64::from(percent));
        }
        Step::Wait(ms) => world.run_for(Duration::from_millis(ms.into())),
        Step::Replay(which) => {
            if let Some(packet) = world.sent.get(usize::from(which) % world.sent.len().max(1)).cloned() {
                world.deliver(packet);
            }
        }
        Step::Mangle(which, at, bits) => {
            let Some(packet) = world.sent.get(usize::from(which) % world.sent.len().max(1)) else { return };
            let mut bytes = packet.emit().unwrap().to_vec();
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= bits | 1;
            for host in &mut world.hosts {
                if let Ok(packet) = Packet::parse_with(bytes.clone().into(), holdover_wire::Checksums::Ignore) {
                    host.handle_network(world.now, packet);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// In any case, programs receive only packets that programs have sent, each once. When the network works again and one of the hosts has
    /// the address in the other one's file, both communicate.
    // Claim: With any sequence of transmissions, moves, losses, repetitions, damage and restarts, there is no panic, no packet is
    // delivered that was not sent, none twice, and both hosts communicate once the network recovers.
    #[test]
    fn whatever_happens_they_talk_in_the_end(steps in prop::collection::vec(step(), 1..40), via in 0..2_u8) {
        let via = if via == 0 { Via::Ip } else { Via::Udp };
        let mut world = World::new(2, via, BOTH);
        let mut number = 0;
        for step in &steps {
            apply(&mut world, step, &mut number);
        }
        (world.loss, world.duplication, world.jitter) = (0.0, 0.0, Duration::ZERO);
        world.move_to(0, &["192.0.2.1"]);
        world.move_to(1, &["198.51.100.2"]);
        // The longest time between two attempts.
        for _ in 0..12 {
            world.send(0, 1_000_000);
            world.send(1, 1_000_000);
            world.run_for(SECOND * 30);
        }
        world.send(0, 2_000_000);
        world.send(1, 3_000_000);
        world.run_for(SECOND * 5);
        prop_assert!(world.numbers(1).contains(&2_000_000) && world.numbers(0).contains(&3_000_000));
        for at in 0..2 {
            let numbers: Vec<u64> = world.numbers(at).into_iter().filter(|&it| it < 1_000_000).collect();
            prop_assert!(numbers.iter().all(|&it| it <= number));
            let mut once = numbers.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), numbers.len());
        }
    }
}
