//! RFC 9293 section 3.10.7.3: a segment arrives in SYN-SENT, step by step; and simultaneous open (section 3.5).

use holdover_base::Duration;
use holdover_tcp::{ConnectionError, Disposition, Event, Reason, State, Timer};
use holdover_wire::{Flags, RareOptions, TcpOptions, Timestamps};

use crate::script::*;

fn syn_sent() -> Script {
    Script::in_state(State::SynSent, plain())
}

/// The injected segments have changed nothing: the SYN is retransmitted on time, and the handshake still completes.
fn still_works(mut t: Script) {
    t.expect_state(State::SynSent);
    t.expect_timer(Timer::Retransmit, 1000);
    t.expect_at(1000, our_syn().reason(Reason::Syn));
    t.inject(syn_ack());
    t.expect(ack(1).reason(Reason::HandshakeAck));
    t.expect_state(State::Established);
}

#[test]
fn rfc9293_3_10_7_3_first_an_ack_of_anything_but_our_syn_is_answered_by_a_reset() {
    for point in [0, -1, 2, 1000, -1000, 0x7000_0000] {
        for template in [seg(), syn_ack(), fin(), seg().data(10), syn_ack().data(10)] {
            let mut t = syn_sent();
            t.inject_as(Disposition::UnacceptableHandshakeAck, template.ack(point));
            t.expect(our_rst(point).reason(Reason::Reset));
            still_works(t);
        }
    }
}

#[test]
fn rfc9293_3_10_7_3_first_but_not_if_it_is_a_reset_itself() {
    for point in [0, -1, 2, 0x7000_0000] {
        let mut t = syn_sent();
        t.inject_as(Disposition::UnacceptableHandshakeAck, rst().ack(point));
        t.inject_as(Disposition::UnacceptableHandshakeAck, rst().and(Flags::SYN).ack(point));
        t.expect_nothing();
        still_works(t);
    }
}

#[test]
fn rfc9293_3_10_7_3_second_a_reset_with_an_acceptable_ack_refuses_the_connection() {
    for template in [rst(), rst().and(Flags::SYN), rst().and(Flags::FIN).data(10)] {
        let mut t = syn_sent();
        t.inject_as(Disposition::ResetAccepted, template.ack(1));
        t.expect_state(State::Closed);
        assert_eq!(t.connection.error(), Some(ConnectionError::Refused));
        t.expect_event(Event::Closed);
        t.expect_nothing_until(1_000_000);
    }
}

#[test]
fn rfc9293_3_10_7_3_second_a_reset_without_ack_is_dropped() {
    let mut t = syn_sent();
    t.inject_as(Disposition::NotASyn, rst().seq(0));
    t.inject_as(Disposition::NotASyn, rst().seq(1));
    t.inject_as(Disposition::NotASyn, rst().and(Flags::SYN).seq(1));
    t.expect_nothing();
    still_works(t);
}

#[test]
fn rfc9293_3_10_7_3_fourth_a_syn_that_acknowledges_ours_establishes() {
    let mut t = syn_sent();
    t.at(100).inject(syn_ack().win(5000));
    t.expect(ack(1).seq(1).win(10_000).reason(Reason::HandshakeAck));
    t.expect_state(State::Established);
    t.expect_event(Event::Connected);
    t.expect_no_timer(Timer::Retransmit);
    assert_eq!(t.connection.snd_wnd(), 5000);
    assert_eq!(t.connection.srtt(), Some(Duration::from_millis(100)));
    t.expect_nothing_until(100_000);
}

#[test]
fn rfc9293_3_10_7_3_fourth_data_that_waited_goes_with_the_ack() {
    let mut t = syn_sent();
    t.write(1500);
    t.inject(syn_ack());
    t.expect(data(1, 1001).ack(1).reason(Reason::NewData));
    // Nagle holds the rest until an ACK.
    t.inject(seg().ack(1001));
    t.expect(data(1001, 1501));
    t.inject(seg().ack(1501));
}

#[test]
fn rfc9293_3_10_7_3_fourth_text_of_the_syn_ack_is_taken() {
    let mut t = syn_sent();
    t.inject(syn_ack().data(300));
    t.expect(ack(301).reason(Reason::HandshakeAck));
    t.expect_event(Event::Connected);
    t.expect_event(Event::Readable);
    t.read(300);
}

#[test]
fn rfc9293_3_10_7_3_fourth_text_of_the_syn_ack_beyond_the_window_is_cut_off() {
    let mut t = Script::in_state(State::SynSent, plain());
    t.inject(syn_ack().data(10_500));
    t.expect(ack(10_001).win(0));
    t.read(10_000);
    t.expect(ack(10_001).win(10_000).reason(Reason::WindowUpdate));
}

#[test]
fn rfc9293_3_10_7_3_fourth_the_fin_of_the_syn_ack_is_taken() {
    let mut t = syn_sent();
    t.inject(syn_ack().and(Flags::FIN).data(10));
    t.expect(ack(12));
    t.expect_state(State::CloseWait);
    t.expect_event(Event::PeerClosed);
    t.read(10);
}

#[test]
fn rfc9293_3_10_7_3_fourth_a_syn_alone_opens_simultaneously() {
    let mut t = syn_sent();
    t.at(100).inject(syn().win(7000));
    t.expect(our_syn_ack().reason(Reason::SynAck));
    t.expect_state(State::SynReceived);
    assert_eq!(t.connection.snd_wnd(), 7000);
    assert!(!t.connection.is_passive());
    t.expect_no_event(Event::Connected);
}

/// Figure 7: the peer's SYN-ACK completes it.
#[test]
fn rfc9293_3_5_simultaneous_open_completes_with_the_syn_ack() {
    let mut t = syn_sent();
    t.at(100).inject(syn());
    t.expect(our_syn_ack());
    t.at(200).inject(syn_ack());
    t.expect(ack(1).seq(1).reason(Reason::HandshakeAck));
    t.expect_state(State::Established);
    t.expect_event(Event::Connected);
    t.expect_no_timer(Timer::Retransmit);
    t.inject(seg());
    t.write(10);
    t.expect(data(1, 11));
    t.inject(seg().ack(11));
}

#[test]
fn rfc9293_3_5_simultaneous_open_completes_with_a_plain_ack() {
    let mut t = syn_sent();
    t.inject(syn());
    t.expect(our_syn_ack());
    t.inject(seg().ack(1).data(20));
    t.expect_state(State::Established);
    t.expect_at(200, ack(21).reason(Reason::DelayedAck));
}

/// A peer that has missed our SYN-ACK repeats its SYN, and one that has missed the last ACK repeats its SYN-ACK.
#[test]
fn rfc9293_3_5_simultaneous_open_survives_repetition() {
    let mut t = syn_sent();
    t.inject(syn());
    t.expect(our_syn_ack());
    t.inject_as(Disposition::DuplicateData, syn());
    t.expect(our_syn_ack());
    t.expect_at(1000, our_syn_ack().reason(Reason::SynAck));
    t.inject(syn_ack());
    t.expect(ack(1));
    t.inject_as(Disposition::DuplicateData, syn_ack());
    t.expect(ack(1).seq(1).reason(Reason::ChallengeAck));
    t.expect_state(State::Established);
}

#[test]
fn rfc9293_3_5_simultaneous_open_with_a_wrong_ack_continues() {
    let mut t = syn_sent();
    t.inject(syn());
    t.expect(our_syn_ack());
    t.inject_as(Disposition::DuplicateData, syn_ack().ack(5));
    t.expect(our_syn_ack());
    t.inject_as(Disposition::UnacceptableHandshakeAck, seg().ack(5));
    t.expect(our_rst(5).reason(Reason::Reset));
    t.inject(syn_ack().ack(1));
    t.expect(ack(1));
}

#[test]
fn rfc9293_3_5_simultaneous_open_agrees_on_options() {
    let mut config = plain();
    config.window_scale = Some(2);
    config.sack = true;
    config.timestamps = Some(Duration::from_millis(1));
    let mut t = Script::connect(config);
    let rare = RareOptions { mss: Some(1000), window_scale: Some(2), sack_permitted: true, ..RareOptions::default() };
    let ours =
        |ecr| TcpOptions { timestamps: Some(Timestamps { val: OUR_CLOCK, ecr }), ..TcpOptions::from(rare.clone()) };
    t.expect(our_syn().options(ours(0)));
    t.inject(syn().wscale(3).sack_ok().ts(PEER_CLOCK, 0));
    t.expect(our_syn_ack().options(ours(PEER_CLOCK)));
    t.inject(syn_ack().wscale(3).sack_ok().ts(PEER_CLOCK, OUR_CLOCK));
    // The SYN has arrived twice (RFC 2883).
    t.expect(ack(1).win(2500).sack(&[(0, 1)]));
    t.inject(seg().win(8000));
    assert_eq!(t.connection.snd_wnd(), 8000);
    assert!(t.connection.sack_agreed() && t.connection.timestamps_agreed());
}

#[test]
fn rfc9293_3_10_7_3_fifth_neither_syn_nor_reset_is_dropped() {
    for template in
        [seg().ack(1), seg().ack(1).data(10), fin().ack(1), flags(Flags::empty()), flags(Flags::FIN), flags(Flags::URG)]
    {
        let mut t = syn_sent();
        t.inject_as(Disposition::NotASyn, template);
        t.expect_nothing();
        still_works(t);
    }
}

/// Section 3.10.4: CLOSE in SYN-SENT deletes the connection; nothing is sent.
#[test]
fn rfc9293_3_10_4_close_in_syn_sent() {
    let mut t = syn_sent();
    t.close();
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), None);
    t.inject_as(Disposition::Closed, syn_ack());
    t.expect_nothing_until(1_000_000);
}

/// Section 3.10.5: ABORT in SYN-SENT sends no reset.
#[test]
fn rfc9293_3_10_5_abort_in_syn_sent() {
    let mut t = syn_sent();
    t.write(10);
    t.abort();
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), Some(ConnectionError::Aborted));
    t.expect_nothing_until(1_000_000);
}
