//! A data plane other than the host's own: it encrypts and verifies, and the host keeps the numbers.

use holdover_base::{Duration, Instant};
use holdover_hip::esp::{EspSuite, OpenError};
use holdover_hip::host::{Contact, DataError, HostConfig, Move, PathChange, PeerMove, Readdressed, RekeyLimits};
use holdover_wire::{Flags, Packet, Segment, Seq};

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
    // Beside the host's own data plane the numbers go on.
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

const C: &str = "2001:db8::7";
/// Of the peer.
const P: &str = "198.51.100.2";
const Q: &str = "198.51.100.77";

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// A peer to which data was sent from [`A`] to [`P`], which came back, and was acknowledged now.
fn flowing(ms: u64) -> Contact<u32> {
    let mut contact = Contact::default();
    assert_eq!(contact.note_established(&[address(A)]), None);
    acknowledge(&mut contact, ms, A, P);
    contact
}

/// Data is sent from an address of this host to one of the peer.
fn send(contact: &mut Contact<u32>, ms: u64, seq: u32, [from, to]: [&str; 2]) {
    contact.note_outgoing(at(ms), &segment(true, seq, 1000, 1));
    contact.note_sent(at(ms), address(from), address(to));
}

/// Data is sent between these addresses, and acknowledged at once.
fn acknowledge(contact: &mut Contact<u32>, ms: u64, own: &str, peers: &str) {
    let seq = 1_000_000 + 1000 * u32::try_from(ms).unwrap();
    send(contact, ms, seq, [own, peers]);
    contact.note_arrived(at(ms), address(own));
    contact.note_incoming(at(ms), &segment(false, 1, 0, seq + 1000));
}

/// A segment of this host, or of the peer.
fn segment(is_own: bool, seq: u32, len: usize, ack: u32) -> Packet {
    let (mut hits, mut ports) = ([address("2001:25::1"), address("2001:25::2")], [40_000, 5001]);
    if !is_own {
        hits.reverse();
        ports.reverse();
    }
    let segment = Segment {
        src_port: ports[0],
        dst_port: ports[1],
        seq: Seq::new(seq),
        ack: Seq::new(ack),
        flags: Flags::ACK,
        payload: vec![7; len].into(),
        ..Segment::default()
    };
    Packet::new(hits[0], hits[1], segment)
}

const ANNOUNCED: Move = Move { change: None, announce: true, is_known: false };
const NOTHING: Move = Move { change: None, announce: false, is_known: false };
const LOST: PeerMove = PeerMove { change: Some(PathChange::Moved), may_have_lost: true };
const KEPT: PeerMove = PeerMove { change: None, may_have_lost: false };

fn readdressed(after_ms: u64, change: Option<PathChange>) -> Option<Readdressed> {
    Some(Readdressed { after: Duration::from_millis(after_ms), change })
}

// Claim: Mechanisms are notified of a move with loss once, when the peer knows of it; packets wait in order for an exchange, up to 64;
// attempts are repeated after 10 s and 5 s.
// Tests: `data_plane::packets_wait_in_order_and_attempts_have_their_times`
#[test]
fn mechanisms_hear_of_a_move_when_the_peer_knows_of_it() {
    let mut contact = Contact::<u32>::default();
    assert_eq!(contact.note_established(&[address(A)]), None);
    // Away and back: the peer knows the address.
    assert_eq!(contact.note_down(), PathChange::Down);
    let untold = PeerMove { change: None, may_have_lost: true };
    assert_eq!(contact.note_peer_move(at(10), |_| true), untold, "this host cannot send");
    let back = Move { change: Some(PathChange::Up), announce: false, is_known: true };
    assert_eq!(contact.note_move(at(20), &[address(A)], false), back);
    // Elsewhere: the peer has to verify it.
    assert_eq!(contact.note_move(at(30), &[address(B)], false), ANNOUNCED);
    assert!(contact.is_moving() && !contact.is_proven(address(B)));
    assert_eq!(contact.note_readdressed(at(80), address(B)), readdressed(50, Some(PathChange::Moved)));
    assert_eq!(contact.note_readdressed(at(90), address(B)), None, "once");
    assert_eq!(contact.note_peer_move(at(95), |_| true), LOST);
    // Behind a translator a known address is announced after an absence.
    contact.note_down();
    assert_eq!(contact.note_move(at(100), &[address(B)], true), ANNOUNCED);
    assert_eq!(contact.note_established(&[address(B)]), Some(PathChange::Moved), "a new association ends the move");
    assert!(!contact.is_moving());
}

// Claim: Mechanisms are not notified of a move if the former address stays until the new one is verified, or longer, and something
// was acknowledged within the last 300 ms: at neither host, each of which judges by itself. They are if one of both is missing.
// Tests: `data_plane::the_peer_of_a_host_that_moves_judges_by_itself`, `data_plane::an_address_in_use_that_goes_is_a_loss`,
// `data_plane::an_address_that_went_is_not_known`, `data_plane::a_timer_does_not_stay_backed_off`,
// `data_plane::of_two_hosts_that_move_at_once_each_hears_at_the_end_of_its_own_move`,
// `identity_overlap::nothing_is_repeated_while_both_paths_work`
#[test]
fn mechanisms_hear_nothing_of_a_move_without_loss() {
    for (acknowledged_ms, change) in [(0, None), (300, None), (301, Some(PathChange::Moved))] {
        let mut contact = flowing(1000);
        assert_eq!(contact.note_move(at(1000), &[address(B), address(A)], false), ANNOUNCED);
        assert_eq!(contact.note_readdressed(at(1000 + acknowledged_ms), address(B)).unwrap().change, change);
    }
    // Without an acknowledgement at all.
    let mut contact = Contact::<u32>::default();
    contact.note_established(&[address(A)]);
    send(&mut contact, 900, 1, [A, P]);
    contact.note_move(at(1000), &[address(B), address(A)], false);
    assert_eq!(contact.note_readdressed(at(1080), address(B)), readdressed(80, Some(PathChange::Moved)));
    // With one that does not belong to all data in flight.
    let mut contact = flowing(1000);
    send(&mut contact, 1000, 1, [A, P]);
    contact.note_incoming(at(1000), &segment(false, 1, 0, 501));
    send(&mut contact, 1100, 501, [A, P]);
    contact.note_move(at(1110), &[address(B), address(A)], false);
    assert_eq!(contact.note_readdressed(at(1190), address(B)), readdressed(80, Some(PathChange::Moved)));
    // After a time without an address.
    let mut contact = flowing(1000);
    contact.note_down();
    assert_eq!(contact.note_move(at(1100), &[address(B)], false), ANNOUNCED);
    assert_eq!(contact.note_readdressed(at(1180), address(B)), readdressed(80, Some(PathChange::Moved)));
}

#[test]
fn the_peer_of_a_host_that_moves_judges_by_itself() {
    // The peer keeps the address that data goes to.
    let mut contact = flowing(1000);
    assert_eq!(contact.note_peer_move(at(1300), |it| [address(P), address(Q)].contains(&it)), KEPT);
    // It keeps another one.
    for ms in [1000, 1100, 1250] {
        let mut contact = flowing(1000);
        assert_eq!(contact.note_peer_move(at(ms), |it| it == address(Q)), LOST);
    }
    // It keeps that one, and nothing was acknowledged lately.
    let mut contact = flowing(1000);
    assert_eq!(contact.note_peer_move(at(1301), |_| true), LOST);
}

/// The address in use counts, not any other one: neither one that stays nor one that was in use before.
#[test]
fn an_address_in_use_that_goes_is_a_loss() {
    // It goes before the peer has verified the new one.
    let mut contact = flowing(1000);
    assert_eq!(contact.note_move(at(1000), &[address(B), address(A)], false), ANNOUNCED);
    assert_eq!(contact.note_move(at(1050), &[address(B)], false), NOTHING, "the end of the move decides");
    assert_eq!(contact.note_readdressed(at(1080), address(B)), readdressed(80, Some(PathChange::Moved)));
    // It goes at once, and another one stays.
    let mut contact = flowing(1000);
    contact.note_move(at(1000), &[address(A), address(C)], false);
    assert_eq!(contact.note_move(at(1000), &[address(B), address(C)], false), ANNOUNCED);
    assert_eq!(contact.note_readdressed(at(1080), address(B)), readdressed(80, Some(PathChange::Moved)));
    // It goes after that, while packets may be on their way there; or later.
    for (goes_ms, change) in [(200, Some(PathChange::Moved)), (201, None)] {
        let mut contact = flowing(1000);
        contact.note_move(at(1000), &[address(B), address(A)], false);
        assert_eq!(contact.note_readdressed(at(1080), address(B)), readdressed(80, None));
        contact.note_arrived(at(1100), address(A));
        acknowledge(&mut contact, 1110, B, P);
        assert_eq!(contact.note_move(at(1100 + goes_ms), &[address(B)], false), Move { change, ..NOTHING });
    }
    // The same at the peer.
    for (goes_ms, expected) in [(200, LOST), (201, KEPT)] {
        let mut contact = flowing(1000);
        assert_eq!(contact.note_peer_move(at(1000), |_| true), KEPT);
        acknowledge(&mut contact, 1010, A, Q);
        assert_eq!(contact.note_peer_left(at(1000 + goes_ms), |it| it == address(Q)), expected);
    }
    // Nothing was sent since.
    let mut contact = flowing(1000);
    assert_eq!(contact.note_peer_move(at(1000), |_| true), KEPT);
    assert_eq!(contact.note_peer_left(at(5000), |it| it == address(Q)), LOST);
}

/// An address that goes while another one is preferred is forgotten then: when it comes back, the peer has to verify it.
#[test]
fn an_address_that_went_is_not_known() {
    let mut contact = flowing(1000);
    contact.note_move(at(1000), &[address(B), address(A)], false);
    contact.note_readdressed(at(1080), address(B));
    assert!(contact.is_proven(address(A)));
    contact.note_move(at(2000), &[address(B)], false);
    assert!(!contact.is_proven(address(A)));
    assert_eq!(contact.note_move(at(3000), &[address(A), address(B)], false), ANNOUNCED);
    // The one that stayed is.
    contact.note_readdressed(at(3080), address(A));
    acknowledge(&mut contact, 3900, A, P);
    let back = Move { change: None, announce: false, is_known: true };
    assert_eq!(contact.note_move(at(4000), &[address(B), address(A)], false), back);
    acknowledge(&mut contact, 4900, B, P);
    let left = Move { change: Some(PathChange::Moved), ..back };
    assert_eq!(contact.note_move(at(5000), &[address(A)], false), left, "the address in use goes");
    // Behind a translator it may be another one to the peer.
    acknowledge(&mut contact, 5900, A, P);
    contact.note_move(at(5900), &[address(A), address(B)], true);
    contact.note_readdressed(at(5950), address(B));
    assert_eq!(contact.note_move(at(6000), &[address(B), address(A)], true), ANNOUNCED);
}

/// The peer's move was without loss, and then data went to its former address in vain.
#[test]
fn a_timer_does_not_stay_backed_off() {
    for (is_repeated, expected) in [(false, None), (true, Some(PathChange::Moved))] {
        let mut contact = flowing(1000);
        assert_eq!(contact.note_peer_move(at(1000), |_| true), KEPT);
        send(&mut contact, 1010, 1, [A, P]);
        if is_repeated {
            send(&mut contact, 1250, 1, [A, P]);
        }
        assert_eq!(contact.note_peer_readdressed(at(1400)), expected);
        assert_eq!(contact.note_peer_readdressed(at(1400)), None, "once");
    }
    // The mechanisms were notified at the move already.
    let mut contact = flowing(1000);
    assert_eq!(contact.note_peer_move(at(1000), |_| false), LOST);
    send(&mut contact, 1010, 1, [A, P]);
    send(&mut contact, 1250, 1, [A, P]);
    assert_eq!(contact.note_peer_readdressed(at(1400)), None);
}

#[test]
fn of_two_hosts_that_move_at_once_each_hears_at_the_end_of_its_own_move() {
    for (is_kept, change) in [(true, None), (false, Some(PathChange::Moved))] {
        let mut contact = flowing(1000);
        assert_eq!(contact.note_move(at(1000), &[address(B), address(A)], false), ANNOUNCED);
        let heard = contact.note_peer_move(at(1050), |_| is_kept);
        assert_eq!(heard, PeerMove { change: None, may_have_lost: !is_kept });
        assert_eq!(contact.note_readdressed(at(1100), address(B)), readdressed(100, change));
    }
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
