//! The three messages, and the loss or duplication of each.

use holdover_base::Duration;
use holdover_hip::{Attachment, Event, Role, Update};
use holdover_wire::Packet;

use crate::pair::*;

const MOBILE_DONE: fn() -> Vec<Event> = || vec![Event::Readdressed { peer: identity(2), role: Role::Mobile }];
const PEER_DONE: fn() -> Vec<Event> = || vec![Event::Readdressed { peer: identity(1), role: Role::Peer }];

/// RFC 8046 section 3.2.1: UPDATE(LOCATOR_SET, SEQ), UPDATE(SEQ, ACK, ECHO_REQUEST), UPDATE(ACK, ECHO_RESPONSE).
#[test]
fn three_messages_readdress() {
    let mut pair = pair();
    let first = pair.moves(ms(0), 2);
    assert_eq!((first.src, first.dst), (at(2, 1).address(false), at(9, 2).address(false)));
    let (update1, id1) = (update(&first), update(&first).seq);
    assert_eq!(update1.locators, Some(at(2, 1)));
    assert!(id1.is_some() && update1.ack.is_none() && update1.echo_request.is_none());

    give(&mut pair.peer, ms(50), &first);
    let second = sent(&mut pair.peer);
    assert_eq!(second.dst, at(2, 1).address(false), "the new address is what is tested");
    let update2 = update(&second);
    assert_eq!((update2.ack, update2.locators), (id1, None));
    assert!(update2.seq.is_some() && update2.echo_request.is_some());
    quiet(&mut pair.peer);

    give(&mut pair.mobile, ms(100), &second);
    let third = sent(&mut pair.mobile);
    let expected = Update {
        ack: update2.seq,
        echo_response: update2.echo_request,
        ..Update::new(identity(1).hit, identity(2).hit)
    };
    assert_eq!(update(&third), expected);
    assert_eq!(events(&mut pair.mobile), MOBILE_DONE(), "the mobile host is done when it has sent it");

    give(&mut pair.peer, ms(150), &third);
    assert_eq!(events(&mut pair.peer), PEER_DONE(), "the peer when it has got it");
    quiet(&mut pair.peer);
    assert_eq!((pair.mobile.poll_timeout(), pair.peer.poll_timeout()), (None, None));
}

#[test]
fn no_data_goes_to_the_new_address_before_the_third_message() {
    let mut pair = pair();
    let (old, new) = (at(1, 1).address(false), at(2, 1).address(false));
    let first = pair.moves(ms(0), 2);
    give(&mut pair.peer, ms(50), &first);
    let second = sent(&mut pair.peer);
    assert_eq!(sends_data_to(&pair.peer, 2, 1), old);
    give(&mut pair.mobile, ms(100), &second);
    assert_eq!(sends_data_to(&pair.peer, 2, 1), old);
    give(&mut pair.peer, ms(150), &sent(&mut pair.mobile));
    assert_eq!(sends_data_to(&pair.peer, 2, 1), new);
}

#[test]
fn data_from_an_address_that_is_not_verified_is_dropped() {
    let mut pair = pair();
    let from_new = |pair: &Pair| {
        let mut packet = data(1, 2);
        assert!(pair.mobile.seal(&mut packet));
        assert_eq!(packet.src, at(2, 1).address(false));
        packet
    };
    let first = pair.moves(ms(0), 2);
    assert!(!pair.peer.open(&mut from_new(&pair)), "no UPDATE has announced the new locator");
    give(&mut pair.peer, ms(50), &first);
    let second = sent(&mut pair.peer);
    assert!(!pair.peer.open(&mut from_new(&pair)), "the new locator is not verified yet");
    give(&mut pair.mobile, ms(100), &second);
    let mut early = from_new(&pair);
    assert!(!pair.peer.open(&mut early), "data has overtaken the third message");
    give(&mut pair.peer, ms(150), &sent(&mut pair.mobile));
    assert!(pair.peer.open(&mut from_new(&pair)));
    let mut late = Packet { src: at(1, 1).address(false), ..from_new(&pair) };
    assert!(!pair.peer.open(&mut late), "the old address counts no more");
}

#[test]
fn data_arrives_between_identities() {
    let mut pair = pair();
    for ipv6 in [false, true] {
        let (one, two) = (identity(1).address(ipv6), identity(2).address(ipv6));
        let sent = Packet { src: one, dst: two, ..data(1, 2) };
        let mut packet = sent.clone();
        assert!(pair.mobile.seal(&mut packet));
        assert_eq!((packet.src, packet.dst), (at(1, 1).address(ipv6), at(9, 2).address(ipv6)));
        assert!(pair.peer.open(&mut packet));
        assert_eq!(packet, sent);
    }
    let mut stranger = Packet { dst: identity(3).address(false), ..data(1, 2) };
    assert!(!pair.mobile.seal(&mut stranger));
}

/// RFC 7401 section 6.11: retransmitted until acknowledged, with doubled timeouts.
#[test]
fn a_lost_first_message_is_sent_again() {
    let mut pair = pair();
    let first = pair.moves(ms(0), 2);
    for at in [1_000, 3_000, 7_000] {
        assert_eq!(pair.mobile.poll_timeout(), Some(ms(at)));
        pair.mobile.handle_timeout(ms(at));
        assert_eq!(sent(&mut pair.mobile), first, "with the same Update ID");
    }
    give(&mut pair.peer, ms(7_050), &first);
    let second = sent(&mut pair.peer);
    give(&mut pair.mobile, ms(7_100), &second);
    assert_eq!(pair.mobile.poll_timeout(), None, "the second message acknowledges the first");
    sent(&mut pair.mobile);
}

#[test]
fn a_lost_second_message_is_asked_for_and_sent_again() {
    let mut pair = pair();
    let first = pair.moves(ms(0), 2);
    give(&mut pair.peer, ms(50), &first);
    let lost = sent(&mut pair.peer);
    // The mobile host's timer is the earlier one.
    pair.mobile.handle_timeout(ms(1_000));
    give(&mut pair.peer, ms(1_040), &sent(&mut pair.mobile));
    let second = sent(&mut pair.peer);
    assert_eq!(second, lost, "one question, however often it is put");
    pair.peer.handle_timeout(ms(1_050));
    assert_eq!(sent(&mut pair.peer), lost, "and its own timer puts it too");
    give(&mut pair.mobile, ms(1_090), &second);
    give(&mut pair.peer, ms(1_140), &sent(&mut pair.mobile));
    assert_eq!(events(&mut pair.peer), PEER_DONE());
}

/// The third message is not acknowledged: its loss shows when the second is retransmitted.
#[test]
fn a_lost_third_message_is_repeated_when_the_second_comes_again() {
    let mut pair = pair();
    let first = pair.moves(ms(0), 2);
    give(&mut pair.peer, ms(50), &first);
    let second = sent(&mut pair.peer);
    give(&mut pair.mobile, ms(100), &second);
    let lost = sent(&mut pair.mobile);
    assert_eq!(events(&mut pair.mobile), MOBILE_DONE());

    pair.peer.handle_timeout(ms(1_050));
    give(&mut pair.mobile, ms(1_100), &sent(&mut pair.peer));
    let third = sent(&mut pair.mobile);
    assert_eq!(third, lost);
    assert_eq!(events(&mut pair.mobile), MOBILE_DONE(), "what it sent after the first answer was lost too");
    give(&mut pair.peer, ms(1_150), &third);
    assert_eq!(events(&mut pair.peer), PEER_DONE());
    assert_eq!(pair.peer.poll_timeout(), None);
}

#[test]
fn duplicates_are_answered_and_change_nothing() {
    let mut pair = pair();
    let first = pair.moves(ms(0), 2);
    give(&mut pair.peer, ms(50), &first);
    let second = sent(&mut pair.peer);
    give(&mut pair.peer, ms(51), &first);
    assert_eq!(sent(&mut pair.peer), second, "the same question");
    give(&mut pair.mobile, ms(100), &second);
    let third = sent(&mut pair.mobile);
    assert_eq!(events(&mut pair.mobile), MOBILE_DONE());
    give(&mut pair.peer, ms(150), &third);
    assert_eq!(events(&mut pair.peer), PEER_DONE());
    give(&mut pair.peer, ms(151), &third);
    quiet(&mut pair.peer);

    // After data from the peer, a second challenge is a duplicate.
    let mut packet = data(2, 1);
    assert!(pair.peer.seal(&mut packet) && pair.mobile.open(&mut packet));
    give(&mut pair.mobile, ms(201), &second);
    assert_eq!(sent(&mut pair.mobile), third);
    assert_eq!(events(&mut pair.mobile), vec![]);

    // A replay of the first message after completion is acknowledged, without another check.
    give(&mut pair.peer, ms(300), &first);
    let ack = update(&sent(&mut pair.peer));
    assert_eq!((ack.ack, ack.echo_request), (update(&first).seq, None));
    assert_eq!(sends_data_to(&pair.peer, 2, 1), at(2, 1).address(false));
}

#[test]
fn an_older_update_than_the_newest_is_dropped() {
    let mut pair = pair();
    let to_two = pair.moves(ms(0), 2);
    let to_three = pair.moves(ms(10), 3);
    give(&mut pair.peer, ms(50), &to_three);
    let second = sent(&mut pair.peer);
    give(&mut pair.peer, ms(60), &to_two);
    quiet(&mut pair.peer);
    give(&mut pair.mobile, ms(100), &second);
    give(&mut pair.peer, ms(150), &sent(&mut pair.mobile));
    assert_eq!(sends_data_to(&pair.peer, 2, 1), at(3, 1).address(false));
}

#[test]
fn a_wrong_echo_verifies_nothing() {
    let mut pair = pair();
    let first = pair.moves(ms(0), 2);
    give(&mut pair.peer, ms(50), &first);
    give(&mut pair.mobile, ms(100), &sent(&mut pair.peer));
    let third = sent(&mut pair.mobile);
    let forged = Update { echo_response: update(&third).echo_response.map(|nonce| nonce ^ 1), ..update(&third) };
    give(&mut pair.peer, ms(150), &forged.packet(third.src, third.dst));
    quiet(&mut pair.peer);
    assert_eq!(sends_data_to(&pair.peer, 2, 1), at(1, 1).address(false));
}

#[test]
fn an_update_from_or_for_somebody_else_is_ignored() {
    let mut pair = pair();
    let first = pair.moves(ms(0), 2);
    let from_stranger = Update { sender: identity(7).hit, ..update(&first) };
    let for_stranger = Update { receiver: identity(7).hit, ..update(&first) };
    for update in [from_stranger, for_stranger] {
        give(&mut pair.peer, ms(50), &update.packet(first.src, first.dst));
        quiet(&mut pair.peer);
    }
    assert!(pair.peer.handle_update(ms(60), &data(1, 2)).is_err());
}

#[test]
fn a_peer_that_is_known_already_stays_as_it_is() {
    let mut pair = pair();
    pair.mobile.add_peer(identity(2), at(8, 2));
    assert_eq!(sends_data_to(&pair.mobile, 1, 2), at(9, 2).address(false));
    let first = pair.moves(ms(0), 2);
    give(&mut pair.peer, ms(50), &first);
    give(&mut pair.mobile, ms(100), &sent(&mut pair.peer));
    sent(&mut pair.mobile);
}

#[test]
fn both_sides_give_up() {
    let mut pair = pair();
    let first = pair.moves(ms(0), 2);
    give(&mut pair.peer, ms(0), &first);
    sent(&mut pair.peer);
    for (shim, peer, role) in [(&mut pair.mobile, 2, Role::Mobile), (&mut pair.peer, 1, Role::Peer)] {
        let mut again = 0;
        let mut last = ms(0);
        while let Some(deadline) = shim.poll_timeout() {
            last = deadline;
            shim.handle_timeout(deadline);
            again += u32::from(shim.poll_transmit().is_some());
        }
        assert_eq!((again, last), (5, ms(63_000)));
        assert_eq!(events(shim), vec![Event::GaveUp { peer: identity(peer), role }]);
    }
    assert_eq!(sends_data_to(&pair.peer, 2, 1), at(1, 1).address(false));
}

/// The prototype's delay was 2 to 3 s.
#[test]
fn a_delay_comes_before_the_first_message() {
    let mut pair = pair();
    pair.mobile.handle_attachment(ms(0), None, Duration::ZERO);
    let delay = Duration::from_millis(2_500);
    assert_eq!(pair.mobile.handle_attachment(ms(100), Some(at(2, 1)), delay), Attachment::Readdressing);
    quiet(&mut pair.mobile);
    assert_eq!(pair.mobile.poll_timeout(), Some(ms(2_600)));
    pair.mobile.handle_timeout(ms(2_600));
    assert_eq!(update(&sent(&mut pair.mobile)).locators, Some(at(2, 1)));
}

#[test]
fn a_host_that_is_back_where_its_peers_know_it_says_nothing() {
    let mut pair = pair();
    let zero = Duration::ZERO;
    pair.mobile.handle_attachment(ms(0), None, zero);
    assert_eq!(pair.mobile.handle_attachment(ms(10), Some(at(1, 1)), zero), Attachment::Unchanged);
    quiet(&mut pair.mobile);
    // It had another address for a moment, too short to announce it.
    pair.mobile.handle_attachment(ms(20), Some(at(2, 1)), Duration::from_secs(2));
    assert_eq!(pair.mobile.handle_attachment(ms(30), Some(at(1, 1)), zero), Attachment::Unchanged);
    assert_eq!(pair.mobile.poll_timeout(), None);
}

/// The peer may have received the announcement from the other address: only another exchange shows that.
#[test]
fn a_host_that_is_back_before_the_exchange_was_over_says_where_it_is() {
    let mut pair = pair();
    let first = pair.moves(ms(0), 2);
    give(&mut pair.peer, ms(50), &first);
    let stale = sent(&mut pair.peer);
    let back = pair.moves(ms(60), 1);
    assert_eq!(update(&back).locators, Some(at(1, 1)));
    give(&mut pair.mobile, ms(100), &stale);
    quiet(&mut pair.mobile);
    give(&mut pair.peer, ms(110), &back);
    give(&mut pair.mobile, ms(160), &sent(&mut pair.peer));
    give(&mut pair.peer, ms(210), &sent(&mut pair.mobile));
    assert_eq!(sends_data_to(&pair.peer, 2, 1), at(1, 1).address(false));
    assert_eq!(events(&mut pair.peer), PEER_DONE());
}

/// Gives up after 63 s without an answer. The next data restarts it, not at once and not for every packet.
#[test]
fn after_giving_up_data_makes_it_begin_anew() {
    let mut pair = pair();
    pair.moves(ms(0), 2);
    let gives_up = |shim: &mut holdover_hip::Shim| {
        while let Some(at) = shim.poll_timeout() {
            shim.handle_timeout(at);
            while shim.poll_transmit().is_some() {}
        }
        assert_eq!(events(shim), vec![Event::GaveUp { peer: identity(2), role: Role::Mobile }]);
    };
    gives_up(&mut pair.mobile);
    assert_eq!(pair.mobile.poll_timeout(), None, "without data it is quiet");
    for _ in 0..10 {
        sends_data_to(&pair.mobile, 1, 2);
    }
    let due = pair.mobile.poll_timeout().expect("readdressing restarts");
    assert_eq!(due, ms(63_000 + 32_000));
    pair.mobile.handle_timeout(due);
    let first = sent(&mut pair.mobile);
    assert_eq!(update(&first).locators, Some(at(2, 1)));
    give(&mut pair.peer, due, &first);
    give(&mut pair.mobile, due, &sent(&mut pair.peer));
    assert_eq!(events(&mut pair.mobile), MOBILE_DONE());
    give(&mut pair.peer, due, &sent(&mut pair.mobile));
    assert_eq!(events(&mut pair.peer), PEER_DONE());
    sends_data_to(&pair.mobile, 1, 2);
    assert_eq!(pair.mobile.poll_timeout(), None);
}
