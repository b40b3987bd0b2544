//! RFC 9293 section 3.10.7.4, a segment arrives in any state but the first three: first the sequence number, second the RST bit,
//! third (security) is not used, fourth the SYN bit. The rest is in `rfc9293_arrives_ack`.

use holdover_tcp::{ConnectionError, Disposition, Event, Reason, State, Timer};
use holdover_wire::Flags;

use crate::script::*;

/// Every state of section 3.10.7.4.
pub(crate) const STATES: [State; 8] = [
    State::SynReceived,
    State::Established,
    State::FinWait1,
    State::FinWait2,
    State::CloseWait,
    State::Closing,
    State::LastAck,
    State::TimeWait,
];

/// A connection in `state`, and RCV.NXT.
pub(crate) fn open(state: State) -> (Script, i64) {
    let t = Script::in_state(state, plain());
    let fin_arrived = matches!(state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait);
    (t, if fin_arrived { 2 } else { 1 })
}

/// A connection in ESTABLISHED with 10,000 unread bytes: its window is closed, RCV.NXT is 10,001.
fn closed_window() -> Script {
    let mut t = Script::established(plain());
    for n in 0..10 {
        t.inject(seg().data(1000));
        if n % 2 == 1 {
            t.expect(ack(1001 + n * 1000).win(9000 - n as u16 * 1000));
        }
    }
    t
}

#[test]
fn rfc9293_3_10_7_4_first_what_lies_beyond_the_window_is_answered_by_an_ack() {
    for state in STATES {
        let (mut t, nxt) = open(state);
        // The edge stays where it was advertised, with and without a FIN.
        let edge = 10_001;
        for template in [
            seg().seq(edge).data(1),
            seg().seq(edge).data(1000),
            seg().seq(edge + 1),
            fin().seq(edge + 1),
            flags(Flags::SYN).seq(edge + 1),
            flags(Flags::empty()).seq(edge + 1).data(10),
            seg().seq(edge + 0x4000_0000).data(1),
        ] {
            t.inject_as(Disposition::OutsideWindow, template);
            t.expect(ack(nxt).reason(Reason::ChallengeAck));
            t.expect_state(state);
        }
        assert_eq!(t.connection.receive_buffer_len(), 0);
    }
}

#[test]
fn rfc9293_3_10_7_4_first_what_lies_before_the_window_is_answered_by_an_ack() {
    for state in STATES.into_iter().filter(|&state| state != State::SynReceived) {
        let (mut t, nxt) = open(state);
        for template in [seg().seq(nxt - 1), seg().seq(nxt - 1000), flags(Flags::empty()).seq(nxt - 2)] {
            t.inject_as(Disposition::OutsideWindow, template);
            t.expect(ack(nxt).reason(Reason::ChallengeAck));
        }
        for template in
            [seg().seq(nxt - 1).data(1), seg().seq(nxt - 1000).data(1000), flags(Flags::empty()).seq(nxt - 10).data(10)]
        {
            t.inject_as(Disposition::DuplicateData, template);
            t.expect(ack(nxt).reason(Reason::DuplicateData));
        }
        for template in [flags(Flags::SYN).seq(0), syn_ack()] {
            t.inject_as(Disposition::DuplicateData, template);
            t.expect(ack(nxt).reason(Reason::ChallengeAck));
        }
        t.expect_state(state);
    }
}

#[test]
fn rfc9293_3_10_7_4_first_before_the_window_in_syn_received() {
    let (mut t, nxt) = open(State::SynReceived);
    t.inject_as(Disposition::OutsideWindow, seg().seq(0));
    t.expect(ack(nxt));
    t.inject_as(Disposition::OutsideWindow, seg().seq(-1000));
    t.expect(ack(nxt));
    // A repeated SYN of the peer means that our SYN-ACK was lost.
    t.inject_as(Disposition::DuplicateData, syn());
    t.expect(our_syn_ack().reason(Reason::SynAck));
    t.expect_state(State::SynReceived);
}

/// The table of section 3.4: a segment without text needs RCV.NXT =< SEG.SEQ < RCV.NXT + RCV.WND, one with text a first or a
/// last byte in there. An unacceptable segment is answered at once.
#[test]
fn rfc9293_3_10_7_4_first_the_edges_of_an_open_window() {
    use Disposition::{Accepted, DuplicateData, OutsideWindow};
    for (template, disposition) in [
        (seg().seq(0), OutsideWindow),
        (seg().seq(1), Accepted),
        (seg().seq(10_000), Accepted),
        // The right edge is accepted: a sender that has filled the window has no other number to use.
        (seg().seq(10_001), Accepted),
        (seg().seq(10_002), OutsideWindow),
        (seg().seq(0).data(1), DuplicateData),
        (seg().seq(0).data(2), Accepted),
        (seg().seq(-999).data(1000), DuplicateData),
        (seg().seq(-998).data(1000), Accepted),
        (seg().seq(9_500).data(1000), Accepted),
        (seg().seq(10_000).data(1), Accepted),
        (seg().seq(10_001).data(1), OutsideWindow),
        (seg().seq(-1).data(10_003), OutsideWindow),
    ] {
        let mut t = Script::established(plain());
        t.inject_as(disposition, template);
        if disposition == Accepted {
            t.forget_sent();
        } else {
            t.expect(ack(1).seq(1).win(10_000));
        }
    }
}

/// With RCV.WND = 0 only SEG.SEQ = RCV.NXT without text is acceptable.
#[test]
fn rfc9293_3_10_7_4_first_a_closed_window_takes_no_text_and_answers() {
    let mut t = closed_window();
    for template in [seg().data(1), seg().data(1000), fin(), fin().data(10)] {
        t.inject_as(Disposition::OutsideWindow, template);
        t.expect(ack(10_001).win(0).reason(Reason::ChallengeAck));
    }
    t.inject(seg());
    t.expect_nothing();
    t.inject_as(Disposition::OutsideWindow, seg().seq(10_002));
    t.expect(ack(10_001).win(0));
    t.expect_state(State::Established);
    t.read(10_000);
    t.expect(ack(10_001).win(10_000).reason(Reason::WindowUpdate));
    t.inject(fin());
    t.expect(ack(10_002));
}

/// "Special allowance": the ACK of a segment with text into a closed window counts.
#[test]
fn rfc9293_3_10_7_4_first_a_closed_window_lets_valid_acks_pass() {
    let mut t = closed_window();
    t.write(1000);
    t.expect(data(1, 1001).win(0));
    t.inject_as(Disposition::OutsideWindow, seg().data(1000).ack(1001).win(300));
    t.expect(ack(10_001).win(0));
    assert_eq!(t.connection.unacked(), 0);
    assert_eq!(t.connection.snd_wnd(), 300);
    t.expect_no_timer(Timer::Retransmit);
}

#[test]
fn rfc9293_3_10_7_4_first_a_closed_window_lets_urgent_pointers_pass() {
    let mut t = closed_window();
    t.inject_as(Disposition::OutsideWindow, seg().data(10).urgent(10));
    t.expect(ack(10_001).win(0));
    t.expect_event(Event::Urgent);
}

#[test]
fn rfc9293_3_10_7_4_first_a_closed_window_lets_valid_resets_pass() {
    for template in [rst(), rst().data(20), rst().ack(1)] {
        let mut t = closed_window();
        t.inject_as(Disposition::ResetAccepted, template);
        assert_eq!(t.connection.error(), Some(ConnectionError::Reset));
    }
    let mut t = closed_window();
    t.inject_as(Disposition::OutsideWindow, rst().seq(10_002));
    t.inject_as(Disposition::OutsideWindow, rst().seq(10_000));
    t.expect_state(State::Established);
}

#[test]
fn rfc9293_3_10_7_4_first_a_closed_window_challenges_syns() {
    let mut t = closed_window();
    t.inject_as(Disposition::SynChallenged, flags(Flags::SYN));
    t.expect(ack(10_001).win(0).reason(Reason::ChallengeAck));
    t.expect_state(State::Established);
}

#[test]
fn rfc9293_3_10_7_4_first_an_unacceptable_reset_is_dropped_in_silence() {
    for state in STATES {
        let (mut t, nxt) = open(state);
        for template in [
            rst().seq(nxt - 1),
            rst().seq(0),
            rst().seq(10_002),
            rst().seq(10_001).data(5),
            rst().seq(nxt - 10).data(10),
            rst().ack(1).seq(nxt - 1),
            rst().and(Flags::SYN).seq(nxt + 20_000),
        ] {
            t.inject_as(Disposition::OutsideWindow, template);
            t.expect_nothing();
            t.expect_state(state);
        }
    }
}

#[test]
fn rfc9293_3_10_7_4_first_text_is_trimmed_to_the_window() {
    let mut t = Script::established(plain());
    t.inject(seg().data(1000));
    // 500 bytes are old, and the rest is new.
    t.inject(seg().seq(501).data(1000));
    t.expect(ack(1501).reason(Reason::DuplicateData));
    t.inject(seg().seq(501).data(1500));
    t.expect(ack(2001));
    t.read(2000);
    // 10,001 is the right edge of the window that was advertised last, with ack 2001.
    t.inject(seg().seq(9501).data(1000));
    t.expect(ack(2001).reason(Reason::DuplicateAck));
    assert_eq!(t.connection.receive_buffer_len(), 500);
    for n in 0..7 {
        t.inject(seg().seq(2001 + n * 1000).data(1000));
        t.expect(ack(3001 + n * 1000));
    }
    t.inject(seg().seq(9001).data(500));
    t.expect(ack(10_001));
    t.read(8000);
    t.expect(ack(10_001).win(10_000).reason(Reason::WindowUpdate));
}

#[test]
fn rfc9293_3_10_7_4_first_text_on_both_sides_of_rcv_nxt_with_a_fin() {
    let mut t = Script::established(plain());
    t.inject(seg().data(600));
    t.inject(fin().seq(101).data(900));
    t.expect(ack(1002).reason(Reason::FinAck));
    t.expect_state(State::CloseWait);
    t.read(1000);
}

/// A script with a reset at RCV.NXT in `state`.
fn reset_in(state: State) -> Script {
    let (mut t, _) = open(state);
    t.inject_as(Disposition::ResetAccepted, rst());
    t.expect_state(State::Closed);
    t.expect_event(Event::Closed);
    t.expect_nothing_until(1_000_000);
    t
}

#[test]
fn rfc9293_3_10_7_4_second_a_reset_ends_a_connection_that_is_in_use() {
    for state in [State::Established, State::FinWait1, State::FinWait2, State::CloseWait] {
        assert_eq!(reset_in(state).connection.error(), Some(ConnectionError::Reset), "{state}");
    }
}

#[test]
fn rfc9293_3_10_7_4_second_a_reset_ends_a_connection_that_is_closed_on_both_sides_without_error() {
    for state in [State::Closing, State::LastAck, State::TimeWait] {
        assert_eq!(reset_in(state).connection.error(), None, "{state}");
    }
}

/// Passive: back to LISTEN, see `rfc9293_endpoint`; active: refused.
#[test]
fn rfc9293_3_10_7_4_second_a_reset_in_syn_received() {
    assert_eq!(reset_in(State::SynReceived).connection.error(), Some(ConnectionError::Reset));
    let mut t = Script::in_state(State::SynSent, plain());
    t.inject(syn());
    t.expect(our_syn_ack());
    t.inject_as(Disposition::ResetAccepted, rst().seq(1));
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), Some(ConnectionError::Refused));
    t.expect_event(Event::Closed);
}

#[test]
fn rfc9293_3_10_7_4_second_a_reset_with_text_a_syn_a_fin_or_any_ack_is_a_reset() {
    for template in [
        rst().data(100),
        rst().and(Flags::SYN),
        rst().and(Flags::FIN),
        rst().ack(1),
        rst().ack(5000),
        rst().ack(-70_000),
        rst().and(Flags::SYN | Flags::FIN | Flags::URG | Flags::PSH).data(1).ack(7),
    ] {
        let mut t = Script::established(plain());
        t.inject_as(Disposition::ResetAccepted, template);
        t.expect_state(State::Closed);
        assert_eq!(t.connection.readable_len(), 0, "its text is not data");
        t.expect_nothing();
    }
}

#[test]
fn rfc9293_3_10_7_4_second_a_reset_ends_what_is_outstanding() {
    let mut t = Script::established(plain());
    t.write(3000);
    (0..3).for_each(|n| t.expect(data(1 + n * 1000, 1001 + n * 1000)));
    t.inject_as(Disposition::ResetAccepted, rst());
    assert_eq!((t.connection.unacked(), t.connection.unsent_len()), (0, 0));
    let taken = t.steer(|connection, now| connection.write(now, "more".into()));
    assert_eq!(taken, 0);
    t.expect_nothing_until(1_000_000);
}

/// RFC 5961 section 3.2, which RFC 9293 has adopted: in the window, but not at its left edge.
#[test]
fn rfc9293_3_10_7_4_second_a_reset_elsewhere_in_the_window_is_challenged() {
    for state in STATES {
        let (mut t, nxt) = open(state);
        for seq in [nxt + 1, nxt + 5000, 10_000] {
            t.inject_as(Disposition::ResetChallenged, rst().seq(seq));
            t.expect(ack(nxt).reason(Reason::ChallengeAck));
            t.expect_state(state);
        }
        // A peer that has really reset the connection answers the challenge with a reset at the right number.
        t.inject_as(Disposition::ResetAccepted, rst().seq(nxt));
        t.expect_state(State::Closed);
    }
}

/// RFC 5961 section 4.2, which RFC 9293 has adopted.
#[test]
fn rfc9293_3_10_7_4_fourth_a_syn_in_the_window_is_challenged() {
    for state in STATES.into_iter().filter(|&state| state != State::SynReceived) {
        let (mut t, nxt) = open(state);
        for template in [
            flags(Flags::SYN),
            flags(Flags::SYN).seq(nxt + 100),
            flags(Flags::SYN | Flags::ACK),
            flags(Flags::SYN | Flags::FIN).data(10),
        ] {
            t.inject_as(Disposition::SynChallenged, template);
            t.expect(ack(nxt).reason(Reason::ChallengeAck));
            t.expect_state(state);
        }
        assert_eq!(t.connection.receive_buffer_len(), 0);
    }
}

#[test]
fn rfc9293_3_10_7_4_fourth_a_syn_in_the_window_of_syn_received() {
    // From a listener, the connection returns to LISTEN.
    let (mut t, _) = open(State::SynReceived);
    t.inject_as(Disposition::HandshakeAbandoned, flags(Flags::SYN).seq(1));
    t.expect_state(State::Closed);
    t.expect_nothing_until(1_000_000);
    // From a simultaneous open, it behaves as in the synchronized states.
    let mut t = Script::in_state(State::SynSent, plain());
    t.inject(syn());
    t.expect(our_syn_ack());
    t.inject_as(Disposition::SynChallenged, flags(Flags::SYN).seq(1));
    t.expect(ack(1).reason(Reason::ChallengeAck));
    t.expect_state(State::SynReceived);
}

/// Both streams with both initial sequence numbers at every distance from the wrap: in order, out of order, overlapping, and the
/// FINs.
#[test]
fn rfc9293_3_4_sequence_numbers_wrap_everywhere() {
    for before in 0..2600_u32 {
        let isn = 0_u32.wrapping_sub(before);
        let mut t = Script::established_with(plain(), isn, isn);
        t.write(1500);
        t.expect(data(1, 1001));
        t.inject(seg().ack(501));
        t.inject(seg().ack(1001));
        t.expect(data(1001, 1501));
        t.inject(seg().ack(1501));
        t.inject(seg().seq(1001).data(1000));
        t.expect(ack(1));
        t.inject(fin().seq(2001).data(100));
        t.expect(ack(1));
        t.inject(seg().seq(1).data(600));
        t.expect(ack(601));
        t.inject(seg().seq(301).data(800));
        t.expect(ack(2102));
        t.read(2100);
        t.shutdown();
        t.expect(our_fin(1501));
        t.inject(seg().ack(1502));
        t.expect_state(State::Closed);
    }
}
