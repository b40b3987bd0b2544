//! A data plane other than the host's own: it encrypts and verifies, and the host keeps the numbers.

use holdover_base::{Duration, Instant};
use holdover_hip::esp::{EspSuite, OpenError};
use holdover_hip::host::{Contact, DataError, HostConfig, Move, PathChange, RekeyLimits};
use holdover_wire::Packet;

use crate::support::address;
use crate::world::{World, quick};

/// Host `from` sends `len` bytes: addresses, SPI and sequence number are the host's.
fn carry(world: &mut World, from: usize, len: usize) -> Result<(), DataError> {
    let (now, to) = (world.now, 1 - from);
    let peer = world.hit(to);
    let assigned = world.hosts[from].assign(now, peer, len)?;
    let outer_len = 20 + assigned.suite.sealed_len(len);
    let accepted = world.hosts[to].accept(now, assigned.spi, assigned.number as u32, len, outer_len)?;
    assert_eq!((accepted.peer, accepted.is_newest), (world.hit(from), true));
    Ok(())
}

// Claim: Another data plane gets addresses and sequence numbers from the host and passes its packets through the host's window;
// limits and moves apply to it; a length computed without a cipher equals the length of the cipher's output.
// Tests: `data_plane::data_follows_a_move_and_needs_an_address`, `data_plane::the_length_of_esp_is_that_of_the_ciphers`
#[test]
fn numbers_windows_and_limits_are_the_hosts() {
    let limits = RekeyLimits { packets: 50, ..RekeyLimits::default() };
    let mut world = World::established(5, &HostConfig { rekey: Some(limits), ..quick() });
    let peer = world.hit(1);
    let first = world.hosts[0].assign(world.now, peer, 100).unwrap();
    assert_eq!((first.src, first.dst), (address("192.0.2.1"), address("198.51.100.2")));
    assert_eq!((first.number, first.suite), (1, EspSuite::Aes128Gcm16));
    let accept = |world: &mut World, spi, number| world.hosts[1].accept(world.now, spi, number, 100, 200);
    assert!(accept(&mut world, first.spi, 1).is_ok());
    let replay = Err(DataError::Open(OpenError::Replay { number: 1 }));
    assert_eq!(accept(&mut world, first.spi, 1), replay);
    assert_eq!(accept(&mut world, first.spi ^ 1, 2), Err(DataError::NoAssociation));
    // The numbers continue beside the host's own data plane.
    assert_eq!(world.data(0), Ok(()));
    assert_eq!(world.hosts[0].assign(world.now, peer, 100).map(|it| it.number), Ok(3));
    // The limit of packets holds for both: the keys are changed.
    for _ in 0..60 {
        assert_eq!(carry(&mut world, 0, 100), Ok(()));
        world.run_for(Duration::from_millis(200));
    }
    let spi = world.hosts[0].assign(world.now, peer, 100).unwrap().spi;
    assert_ne!(spi, first.spi);
}

#[test]
fn data_follows_a_move_and_needs_an_address() {
    let mut world = World::established(6, &quick());
    world.move_to(0, &[]);
    assert_eq!(carry(&mut world, 0, 100), Err(DataError::NoPath));
    world.move_to(0, &["203.0.113.7"]);
    world.run_for(Duration::from_secs(1));
    let (now, peer) = (world.now, world.hit(0));
    assert_eq!(world.hosts[1].assign(now, peer, 100).map(|it| it.dst), Ok(address("203.0.113.7")));
    assert_eq!((carry(&mut world, 0, 100), carry(&mut world, 1, 100)), (Ok(()), Ok(())));
}

/// The length that a data plane without ciphers gives its packets is that of the ciphers' output.
#[test]
fn the_length_of_esp_is_that_of_the_ciphers() {
    for suite in EspSuite::ALL {
        let config = HostConfig { suites: vec![suite], ..quick() };
        let mut world = World::established(7, &config);
        let (now, [src, dst]) = (world.now, [world.hit(0), world.hit(1)]);
        for len in (0..40).chain([1479, 1480]) {
            let payload = holdover_wire::Payload::Other { protocol: 253, payload: vec![1; len].into() };
            let inner = Packet::new(src.0.into(), dst.0.into(), payload);
            let outer = world.hosts[0].seal(now, &inner).unwrap();
            assert_eq!(outer.wire_len() - outer.ip_header_len(), suite.sealed_len(len), "{suite:?} {len}");
        }
    }
}

const A: &str = "192.0.2.1";
const B: &str = "203.0.113.7";

// Claim: Mechanisms are notified of a move once, when the peer knows of it; packets wait in order for an exchange, up to 64;
// attempts are repeated after 10 s and 5 s.
// Tests: `data_plane::packets_wait_in_order_and_attempts_have_their_times`
#[test]
fn mechanisms_hear_of_a_move_when_the_peer_knows_of_it() {
    let at = Instant::from_millis;
    let mut contact = Contact::<u32>::default();
    assert_eq!(contact.note_established(&[address(A)]), None);
    // Away and back: the peer knows the address.
    assert_eq!(contact.note_down(), PathChange::Down);
    assert_eq!(contact.note_peer_move(), None, "this host cannot send");
    let back = Move { change: Some(PathChange::Up), announce: false, is_known: true };
    assert_eq!(contact.note_move(at(20), &[address(A)], false), back);
    // Elsewhere: the peer has to verify it.
    let announced = Move { change: None, announce: true, is_known: false };
    assert_eq!(contact.note_move(at(30), &[address(B)], false), announced);
    assert!(contact.is_moving() && !contact.is_proven(address(B)));
    assert_eq!(contact.note_readdressed(at(80), address(B)), Some(Duration::from_millis(50)));
    assert_eq!(contact.note_readdressed(at(90), address(B)), None, "once");
    assert_eq!(contact.note_peer_move(), Some(PathChange::Moved));
    // Behind a translator a known address is announced after an absence.
    contact.note_down();
    assert_eq!(contact.note_move(at(100), &[address(B)], true), announced);
    assert_eq!(contact.note_established(&[address(B)]), Some(PathChange::Moved), "a new association ends the move");
    assert!(!contact.is_moving());
}

#[test]
fn packets_wait_in_order_and_attempts_have_their_times() {
    let at = Instant::from_millis;
    let mut contact = Contact::default();
    let evicted: Vec<u32> = (0..70).filter_map(|packet| contact.wait(packet)).collect();
    assert_eq!((evicted, contact.waiting()), ((0..6).collect(), 64));
    assert_eq!(contact.take_waiting(), (6..70).collect::<Vec<u32>>());
    contact.note_gave_up(at(0));
    assert_eq!((contact.take_announce(at(9_999)), contact.poll_timeout()), (false, Some(at(10_000))));
    assert_eq!((contact.take_announce(at(10_000)), contact.take_announce(at(10_000))), (true, false));
    let may: Vec<bool> = [0, 4_999, 5_000].into_iter().map(|ms| contact.may_reconnect(at(ms))).collect();
    assert_eq!(may, [true, false, true]);
    // Without an address there is nothing to announce.
    contact.note_gave_up(at(0));
    contact.note_down();
    assert_eq!(contact.poll_timeout(), None);
}
