//! Connectivity checks after a move (RFC 9028 section 4.9) of a host and a peer by hand. [`checks_and_moves`](super::checks_and_moves) has those
//! between hosts.

use holdover_base::Duration;
use holdover_hip::codec::{CandidateKind, HipPacket, Locator, Parameter, Received, kind};
use holdover_hip::host::{HostConfig, State};

use crate::by_hand::{ByHand, kinds};
use crate::connectivity::{
    HOST, PORT, after_exchange, both, candidate, check, checks, id_of, mode, nominated, respond,
};
use crate::support::address;

const NEW: &str = "198.51.100.77";

fn is_offer(it: &Received) -> bool {
    kinds(it) == [kind::ESP_INFO, kind::SEQ, kind::ENCRYPTED]
}

/// The host moves, and the peer acknowledges that: returns the UPDATE with the host's candidates.
fn moved(peer: &mut ByHand) -> HipPacket {
    let now = peer.now;
    peer.to = address(NEW);
    peer.host.set_locators(now, &[address(NEW)]);
    let announced = peer.wait(Duration::ZERO).remove(0);
    assert_eq!(kinds(&announced), [kind::ESP_INFO, kind::LOCATOR_SET, kind::SEQ]);
    assert!(!peer.host.is_checking(peer.own()));
    let sent = peer.update(vec![Parameter::Ack(vec![id_of(&announced.packet)])], &[]).unwrap();
    let offers: Vec<&Received> = sent.iter().filter(|it| is_offer(it)).collect();
    assert_eq!(offers.len(), 1, "{sent:?}");
    offers[0].packet.clone()
}

fn after_checks(seed: u64) -> ByHand {
    let mut peer = after_exchange(seed, &HostConfig::default(), &[mode()], both());
    checks(&mut peer, Duration::from_secs(70));
    let own = peer.own();
    assert!(!peer.host.is_checking(own));
    // CONNECTIVITY_CHECKS_FAILED.
    assert_eq!(peer.wait(Duration::ZERO).len(), 1);
    peer
}

/// UPDATE with candidates.
fn offer(peer: &mut ByHand, locators: Vec<Locator>) -> Vec<Received> {
    let id = peer.next_id();
    peer.update(vec![Parameter::Seq(id)], &[Parameter::LocatorSet(locators)]).unwrap()
}

// Claim: A host that has moved sends its candidates in ENCRYPTED once the peer has acknowledged its addresses, and begins its checks when the peer
// names its own candidates. A peer that acknowledges without candidates is not checked.
// Tests: `handover::a_peer_that_names_no_candidates_is_not_checked`
#[test]
fn candidates_follow_a_move_and_are_checked() {
    let mut peer = after_checks(71);
    let offered = moved(&mut peer);
    let locators = vec![candidate("192.0.2.1", PORT, CandidateKind::Host, HOST)];
    peer.update(vec![Parameter::Ack(vec![id_of(&offered)])], &[Parameter::LocatorSet(locators)]).unwrap();
    let own = peer.own();
    assert!(peer.host.is_checking(own));
    let sent = checks(&mut peer, Duration::from_millis(500));
    assert_eq!(sent.len(), 1, "the new candidates alone");
    respond(&mut peer, &sent[0].3).unwrap();
    let nomination = check(&mut peer, Some(Parameter::Nominate));
    let answers = peer.give(&nomination).unwrap();
    respond(&mut peer, &answers[0].packet).unwrap();
    assert_eq!(nominated(&peer), [("192.0.2.1".to_owned(), PORT)]);
    assert!(!peer.host.is_checking(own));
    assert!(checks(&mut peer, Duration::from_secs(60)).is_empty());
}

/// A host of a former revision.
#[test]
fn a_peer_that_names_no_candidates_is_not_checked() {
    let mut peer = after_checks(72);
    let offered = moved(&mut peer);
    peer.update(vec![Parameter::Ack(vec![id_of(&offered)])], &[]).unwrap();
    assert!(checks(&mut peer, Duration::from_secs(300)).is_empty());
    assert_eq!(peer.state(), State::Established);
}

// Claim: Candidates that are not acknowledged are repeated, and sent again when the peer is heard after the last time.
#[test]
fn candidates_are_repeated_until_they_are_acknowledged() {
    let mut peer = after_checks(73);
    moved(&mut peer);
    let mut repeated = 0;
    for _ in 0..600 {
        let sent = peer.wait(Duration::from_millis(100));
        repeated += sent.iter().filter(|it| is_offer(it)).count();
    }
    assert!((3..=20).contains(&repeated), "{repeated}");
    peer.wait(Duration::from_secs(60));
    let id = peer.next_id();
    let sent = peer.update(vec![Parameter::Seq(id)], &[]).unwrap();
    assert_eq!(sent.iter().filter(|it| is_offer(it)).count(), 1);
}

/// The answer with its candidates was lost, or has none.
#[test]
fn a_check_of_the_peer_begins_those_of_a_host_that_has_moved() {
    let mut peer = after_checks(74);
    let offered = moved(&mut peer);
    peer.update(vec![Parameter::Ack(vec![id_of(&offered)])], &[]).unwrap();
    let packet = check(&mut peer, None);
    peer.give(&packet).unwrap();
    let sent = checks(&mut peer, Duration::from_millis(500));
    let mut to: Vec<(&str, u16)> = sent.iter().map(|(_, to, port, _)| (to.as_str(), *port)).collect();
    to.sort_unstable();
    assert_eq!(to, [("10.0.0.7", 10_500), ("192.0.2.1", PORT)]);
}

// Claim: A host answers the candidates of a peer that has moved with its own, and checks them; the same UPDATE has the same answer, and addresses
// that the peer has announced before are not verified again.
#[test]
fn the_candidates_of_a_peer_that_has_moved_are_answered_and_checked() {
    let mut peer = after_checks(75);
    let locators = || vec![candidate("192.0.2.1", PORT, CandidateKind::Host, HOST)];
    let answers = offer(&mut peer, locators());
    assert!(kinds(&answers[0]).contains(&kind::ENCRYPTED) && kinds(&answers[0]).contains(&kind::ACK));
    let own = peer.own();
    assert!(peer.host.is_checking(own));
    assert_eq!(checks(&mut peer, Duration::from_millis(500)).len(), 1);
    let answers = offer(&mut peer, locators());
    assert_eq!((answers.len(), kinds(&answers[0])), (1, vec![kind::ACK, kind::ENCRYPTED]));
    assert_eq!(checks(&mut peer, Duration::from_millis(500)).len(), 1, "they begin again");
}

// Claim: A peer that names the addresses of others as candidates again and again causes no more checks than an exchange, and one for each UPDATE.
#[test]
fn repeated_candidates_of_others_cost_them_little() {
    let mut peer = after_checks(76);
    let mut sent = 0;
    for round in 0..40 {
        let victims = (1..=8).map(|n| {
            candidate(&format!("203.0.113.{}", n + 8 * (round % 4)), 53, CandidateKind::ServerReflexive, HOST + n)
        });
        let id = peer.next_id();
        let _ = peer.update(vec![Parameter::Seq(id)], &[Parameter::LocatorSet(victims.collect())]);
        sent += checks(&mut peer, Duration::from_millis(500)).iter().filter(|it| it.1.starts_with("203.")).count();
    }
    assert!((20..=48 + 40 + 10).contains(&sent), "{sent}");
    assert_eq!(peer.state(), State::Established);
}
