//! A host with two uplinks: the second one is known to the peer before it is needed.

use std::net::IpAddr;

use holdover_base::Duration;
use holdover_hip::codec::{HipPacket, PacketType, Parameter};
use holdover_hip::host::Event;
use holdover_hipd::files::Via;
use holdover_wire::{Packet, Payload};

use super::{SECOND, data_in_flight, talking};
use crate::world::{World, address};

const WIFI: &str = "192.0.2.1";
const LTE: &str = "203.0.113.1";
const TICK: Duration = Duration::from_millis(10);

/// Hosts that talk; the mobile one has announced its standby, and has been reached there.
fn with_standby(via: Via) -> World {
    let mut world = talking(via);
    world.move_to(0, &[WIFI, LTE]);
    world.run_for(SECOND);
    assert_eq!(verified(&world), [WIFI, LTE].map(address));
    assert!(
        world.hosts[0].peer_status()[0].paths.iter().all(|path| path.verified),
        "{:?}",
        world.hosts[0].peer_status()
    );
    world.sent.clear();
    world.notes.clear();
    world
}

/// The mobile host's addresses that the other one has verified.
fn verified(world: &World) -> Vec<IpAddr> {
    world.hosts[1].peer_status()[0].addresses.clone()
}

/// The UPDATEs sent so far, and how many of them check an address.
fn updates(world: &World) -> (usize, usize) {
    let hip = world.sent.iter().filter_map(|packet| {
        let payload = match &packet.payload {
            Payload::Udp(udp) => {
                Payload::Other { protocol: 139, payload: udp.payload.strip_prefix(&[0; 4])?.to_vec().into() }
            }
            payload @ Payload::Other { .. } => payload.clone(),
            _ => return None,
        };
        // Its checksum is that of no addresses, in UDP.
        let mut packet = Packet { payload, ..packet.clone() };
        if let Payload::Other { payload, .. } = &mut packet.payload {
            let mut bytes = payload.to_vec();
            bytes[4..6].fill(0);
            let sum = holdover_wire::transport_checksum(packet.src, packet.dst, 139, &bytes);
            bytes[4..6].copy_from_slice(&sum.to_be_bytes());
            *payload = bytes.into();
        }
        HipPacket::parse(&packet).ok().map(|received| received.packet)
    });
    let updates: Vec<HipPacket> = hip.filter(|packet| packet.kind == PacketType::Update).collect();
    let is_check =
        |packet: &&HipPacket| packet.parameters.iter().any(|it| matches!(it, Parameter::EchoRequestSigned(_)));
    (updates.len(), updates.iter().filter(is_check).count())
}

/// Both hosts send a datagram every tick for so long, from this number on. Returns when each of them has arrived.
fn talk(world: &mut World, time: Duration, from: u64) -> [Vec<(u64, Duration)>; 2] {
    let begin = world.now;
    let mut arrived = [Vec::new(), Vec::new()];
    let mut seen = [0, 1].map(|at| world.numbers(at).len());
    for number in from..from + time.as_nanos() / TICK.as_nanos() {
        world.send(0, number);
        world.send(1, number);
        world.run_for(TICK);
        for at in [0, 1] {
            let numbers = world.numbers(at);
            arrived[at].extend(numbers[seen[at]..].iter().map(|number| (*number, world.now.saturating_since(begin))));
            seen[at] = numbers.len();
        }
    }
    arrived
}

// Claim: The address of a standby is verified before it is needed. When the link in use goes, data of this host continues at once over the
// standby, and the peer's with the announcement, half a round trip later; it takes that announcement and its acknowledgement, and no
// check. Both ends retransmit at once what was lost.
#[test]
fn a_standby_takes_over_without_an_exchange() {
    for via in [Via::Ip, Via::Udp] {
        let mut world = with_standby(via);
        data_in_flight(&mut world);
        world.sent.clear();
        world.move_to(0, &[LTE]);
        assert!(!world.hosts[0].peer_status()[0].is_moving, "{via:?}: the peer knows the address");
        let woken = |world: &World, host: usize| world.hosts[host].counters().woken;
        assert!(woken(&world, 0) > 0, "{via:?}: the last data is sent once more");
        let arrived = talk(&mut world, SECOND, 100);
        let delay = world.delay;
        assert_eq!(arrived[1].first(), Some(&(100, delay + TICK)), "{via:?}");
        // What the other host sent before the announcement arrived there is lost.
        let first = 101 + delay.as_nanos() / TICK.as_nanos();
        assert!(
            arrived[0].iter().all(|(number, _)| *number >= first) && arrived[0][0].1 <= delay * 2 + TICK * 2,
            "{:?}",
            arrived[0]
        );
        assert!(arrived[0].iter().any(|(number, _)| *number == first), "{:?}", arrived[0]);
        assert_eq!(updates(&world), (2, 0), "{via:?}");
        assert_eq!(verified(&world), [address(LTE)]);
        let moved = |(_, host, note): &(_, usize, holdover_hipd::core::Note)| {
            *host == 1 && matches!(note.event, Event::PeerMoved { address: to, .. } if to == address(LTE))
        };
        assert_eq!(world.notes.iter().filter(|it| moved(it)).count(), 1, "{via:?}");
        assert!(woken(&world, 1) > 0, "{via:?}: the other host's TCP does not wait for its timer");
    }
}

// Claim: Where the link in use falls silent and keeps its address, both hosts continue over the standby within 5.6 s and two round trips: the
// one that detects it tells its peer to prefer the standby. The first link is used again when it answers.
#[test]
fn a_standby_takes_over_from_a_silent_link() {
    let limit = Duration::from_millis(5600);
    for via in [Via::Ip, Via::Udp] {
        let mut world = with_standby(via);
        talk(&mut world, SECOND, 100);
        // Its host does not notice.
        world.places[0] = vec![address(LTE)];
        let arrived = talk(&mut world, SECOND * 8, 1000);
        for (at, arrived) in arrived.iter().enumerate() {
            // But for what was on its way.
            let first = arrived
                .iter()
                .find(|(number, _)| *number >= 1000)
                .unwrap_or_else(|| panic!("{via:?}: {at} got nothing"));
            assert!(first.1 <= limit + world.delay * 4, "{via:?}: {at} after {}", first.1);
        }
        let path = world.hosts[0].peer_status()[0].paths.iter().find(|path| path.in_use).cloned().unwrap();
        assert_eq!(path.from, address(LTE), "{via:?}");
        world.places[0] = [WIFI, LTE].map(address).to_vec();
        talk(&mut world, SECOND * 40, 10_000);
        let back = world.hosts.iter().map(|host| host.peer_status()[0].paths.iter().find(|path| path.in_use).cloned());
        let back: Vec<_> = back.map(|path| path.unwrap()).collect();
        assert_eq!((back[0].from, back[1].to), (address(WIFI), address(WIFI)), "{via:?}");
    }
}

// Claim: Two hosts with two uplinks each, of which one falls silent, agree on a path: neither undoes the other's change.
#[test]
fn two_hosts_with_standbys_agree() {
    for via in [Via::Ip, Via::Udp] {
        let mut world = with_standby(via);
        world.move_to(1, &["198.51.100.2", "198.51.100.77"]);
        talk(&mut world, SECOND, 100);
        world.places[0] = vec![address(LTE)];
        talk(&mut world, SECOND * 8, 1000);
        world.notes.clear();
        let arrived = talk(&mut world, SECOND * 15, 10_000);
        for arrived in &arrived {
            assert!(
                arrived.len() >= 1500 - 2 * (world.delay.as_nanos() / TICK.as_nanos()) as usize,
                "{via:?}: {}",
                arrived.len()
            );
        }
        // Each path is tested, as the answers take the other one; no host changes its own.
        let is_change = |event: &Event| {
            matches!(event, Event::PathSilent { .. } | Event::PathAnswers { .. } | Event::PeerMoved { .. })
        };
        let changes: Vec<_> = world.notes.iter().filter(|(.., note)| is_change(&note.event)).collect();
        assert!(changes.is_empty(), "{via:?}: {changes:?}");
    }
}

// Claim: Two hosts with two uplinks each between which only the crosswise paths are left find them, and do not tell each other of changes
// again and again: at most 120 UPDATEs in a minute, nearly all of them tests of paths.
#[test]
fn crosswise_paths_do_not_alternate() {
    const FIRST: &str = "198.51.100.2";
    const SECOND_LINK: &str = "198.51.100.77";
    for via in [Via::Ip, Via::Udp] {
        let mut world = with_standby(via);
        world.move_to(1, &[FIRST, SECOND_LINK]);
        talk(&mut world, SECOND, 100);
        world.dead = [[WIFI, FIRST], [LTE, SECOND_LINK]].map(|pair| pair.map(address)).to_vec();
        talk(&mut world, SECOND * 20, 1000);
        world.sent.clear();
        let arrived = talk(&mut world, SECOND * 60, 10_000);
        for arrived in &arrived {
            assert!(arrived.len() > 4_000, "{via:?}: {}", arrived.len());
        }
        let count = updates(&world).0;
        assert!(count <= 120, "{via:?}: {count} UPDATEs in a minute");
    }
}

/// One host alone sends, as a program that waits for an answer does: the other one has nothing to notice the silence by.
// Claim: A host whose peer has changed to its standby changes as well, without a test of its own.
#[test]
fn the_peer_follows_to_the_standby_at_once() {
    for via in [Via::Ip, Via::Udp] {
        let mut world = with_standby(via);
        world.places[0] = vec![address(LTE)];
        let begin = world.now;
        // A request is repeated every second until it is answered.
        for number in 100..110 {
            world.send(0, number);
            world.run_for(SECOND / 2);
            if let Some(request) = world.numbers(1).into_iter().find(|number| *number >= 100) {
                world.send(1, request + 1000);
            }
            world.run_for(SECOND / 2);
            if world.numbers(0).iter().any(|number| *number >= 1100) {
                break;
            }
        }
        let took = world.now.saturating_since(begin);
        assert!(took <= Duration::from_millis(7000), "{via:?}: {took}");
    }
}

// Claim: A standby costs no packets while it is not used: no keep-alives leave it.
#[test]
fn a_standby_is_silent() {
    for via in [Via::Ip, Via::Udp] {
        let mut world = with_standby(via);
        for number in 0..600 {
            world.send(number as usize % 2, 100 + number);
            world.run_for(SECOND);
        }
        let lte = address(LTE);
        let over: Vec<&Packet> = world.sent.iter().filter(|it| it.src == lte || it.dst == lte).collect();
        assert!(over.is_empty(), "{via:?}: {over:?}");
    }
}
