//! RFC 9293 section 3.10.7.4, continued: fifth the ACK field, sixth the URG bit, seventh the segment text, eighth the FIN bit.

use holdover_tcp::{Disposition, Event, Reason, State, Timer, WindowUpdate};
use holdover_wire::Flags;

use crate::rfc9293_arrives::{STATES, open};
use crate::script::*;

/// States in which our FIN is sent and not acknowledged.
const FIN_OUT: [State; 3] = [State::FinWait1, State::Closing, State::LastAck];

#[test]
fn rfc9293_3_10_7_4_fifth_without_ack_a_segment_is_dropped() {
    for state in STATES {
        let (mut t, _) = open(state);
        let timers = Timer::ALL.map(|timer| t.connection.deadline(timer));
        for template in
            [flags(Flags::empty()), flags(Flags::FIN), flags(Flags::PSH).data(10), flags(Flags::URG | Flags::FIN)]
        {
            t.inject_as(Disposition::NoAck, template);
            t.expect_nothing();
            t.expect_state(state);
        }
        assert_eq!(t.connection.receive_buffer_len(), 0);
        assert_eq!(Timer::ALL.map(|timer| t.connection.deadline(timer)), timers);
    }
}

#[test]
fn rfc9293_3_10_7_4_fifth_syn_received_an_ack_of_our_syn_establishes() {
    let (mut t, _) = open(State::SynReceived);
    t.at(50).inject(seg().ack(1).win(3000));
    t.expect_state(State::Established);
    t.expect_event(Event::Connected);
    t.expect_no_timer(Timer::Retransmit);
    assert_eq!(t.connection.snd_wnd(), 3000);
    t.expect_nothing_until(100_000);
}

/// Processing continues: the same segment's text and FIN are accepted.
#[test]
fn rfc9293_3_10_7_4_fifth_syn_received_continues_with_text_and_fin() {
    let (mut t, _) = open(State::SynReceived);
    t.inject(seg().ack(1).data(1000));
    t.expect_state(State::Established);
    t.expect_at(200, ack(1001).reason(Reason::DelayedAck));
    let (mut t, _) = open(State::SynReceived);
    t.inject(fin().ack(1).data(100));
    t.expect(ack(102).reason(Reason::FinAck));
    t.expect_state(State::CloseWait);
    t.expect_event(Event::Connected);
    t.expect_event(Event::PeerClosed);
    t.read(100);
}

#[test]
fn rfc9293_3_10_7_4_fifth_syn_received_any_other_ack_is_answered_by_a_reset() {
    for point in [0, -1, 2, 1000, -50_000, 0x7000_0000] {
        let (mut t, _) = open(State::SynReceived);
        t.inject_as(Disposition::UnacceptableHandshakeAck, seg().ack(point).data(10));
        t.expect(our_rst(point).reason(Reason::Reset));
        t.expect_state(State::SynReceived);
        // The connection itself continues.
        t.expect_at(1000, our_syn_ack());
        t.inject(seg().ack(1));
        t.expect_state(State::Established);
        t.expect_no_event(Event::Readable);
    }
}

/// CLOSE in SYN-RECEIVED (section 3.10.4): the FIN follows the handshake.
#[test]
fn rfc9293_3_10_7_4_fifth_syn_received_after_close_leads_to_fin_wait_1() {
    let (mut t, _) = open(State::SynReceived);
    t.shutdown();
    t.expect_nothing();
    t.inject(seg().ack(1));
    t.expect(our_fin(1).ack(1));
    t.expect_state(State::FinWait1);
}

#[test]
fn rfc9293_3_10_7_4_fifth_established_an_ack_of_new_data_moves_snd_una() {
    let mut t = Script::established(plain());
    t.write(3000);
    (0..3).for_each(|n| t.expect(data(1 + n * 1000, 1001 + n * 1000)));
    assert_eq!(t.connection.unacked(), 3);
    t.inject(seg().ack(1001));
    assert_eq!((t.connection.unacked(), t.connection.send_queue_len()), (2, 2000));
    t.expect_event(Event::Writable);
    // An ACK number inside a segment.
    t.inject(seg().ack(1501));
    assert_eq!((t.connection.unacked(), t.connection.send_queue_len()), (2, 1500));
    t.inject(seg().ack(3001));
    assert_eq!((t.connection.unacked(), t.connection.send_queue_len()), (0, 0));
    t.expect_no_timer(Timer::Retransmit);
    assert_eq!(t.connection.counters().bytes_acked.0, 3000);
}

#[test]
fn rfc9293_3_10_7_4_fifth_a_duplicate_ack_is_ignored_but_its_text_is_not() {
    let mut t = Script::established(plain());
    t.write(2000);
    t.expect(data(1, 1001));
    t.expect(data(1001, 2001));
    t.inject(seg().ack(2001));
    t.inject(seg().ack(1001).data(100));
    t.inject(seg().ack(1).data(100));
    assert_eq!(t.connection.snd_una(), t.connection.snd_nxt());
    t.read(200);
    t.expect_at(200, ack(201));
}

#[test]
fn rfc9293_3_10_7_4_fifth_an_ack_of_what_was_not_sent_is_answered_and_dropped() {
    for state in STATES.into_iter().filter(|&state| state != State::SynReceived) {
        let (mut t, nxt) = open(state);
        let sent = (t.connection.snd_una(), t.connection.snd_nxt());
        for beyond in [1, 2, 5000, 0x4000_0000] {
            let point = if matches!(state, State::Established | State::CloseWait) { 1 } else { 2 } + beyond;
            t.inject_as(Disposition::AckOfUnsentData, seg().ack(point).win(1).data(10));
            t.expect(ack(nxt).reason(Reason::ChallengeAck));
            t.inject_as(Disposition::AckOfUnsentData, fin().ack(point));
            t.expect(ack(nxt));
            t.expect_state(state);
        }
        assert_eq!((t.connection.snd_una(), t.connection.snd_nxt()), sent);
        assert_eq!((t.connection.snd_wnd(), t.connection.receive_buffer_len()), (20_000, 0), "nothing of it counts");
    }
}

/// SND.WL1 and SND.WL2: an old segment does not restore an old window.
#[test]
fn rfc9293_3_10_7_4_fifth_the_window_is_taken_from_new_segments_only() {
    let mut t = Script::established(plain());
    t.write(1000);
    t.expect(data(1, 1001));
    // A later sequence number updates the window.
    t.inject(seg().seq(101).ack(1).win(9000).data(100));
    t.expect(ack(1));
    assert_eq!(t.connection.snd_wnd(), 9000);
    // An earlier one with the same ACK number does not.
    t.inject(seg().seq(1).ack(1).win(500).data(50));
    t.expect(ack(51));
    assert_eq!(t.connection.snd_wnd(), 9000);
    t.inject(seg().seq(51).ack(1).win(400).data(50));
    t.expect(ack(201));
    assert_eq!(t.connection.snd_wnd(), 9000);
    // The last sequence number with a later ACK number updates it, and so does the same ACK number again.
    t.inject(seg().seq(201).ack(1001).win(8000));
    assert_eq!(t.connection.snd_wnd(), 8000);
    t.inject(seg().seq(201).ack(1001).win(7000));
    assert_eq!(t.connection.snd_wnd(), 7000);
    t.inject(seg().seq(201).ack(1).win(6000));
    assert_eq!(t.connection.snd_wnd(), 7000, "an older ACK");
}

/// Linux's policies: see [`WindowUpdate`].
#[test]
fn window_update_policies_on_a_segment_without_news() {
    for (policy, shrink, grow, close) in [
        (WindowUpdate::Rfc9293, 4000, 9000, 0),
        (WindowUpdate::LargerOnly, 5000, 9000, 9000),
        (WindowUpdate::LargerOrZero, 5000, 9000, 0),
    ] {
        let mut config = plain();
        config.send.window_update = policy;
        let mut t = Script::established(config);
        t.inject(seg().data(10).win(5000));
        assert_eq!(t.connection.snd_wnd(), 5000);
        t.read(10);
        t.inject(seg().win(5000));
        t.inject(seg().win(4000));
        assert_eq!(t.connection.snd_wnd(), shrink, "{policy:?}");
        t.inject(seg().win(9000));
        assert_eq!(t.connection.snd_wnd(), grow, "{policy:?}");
        t.inject(seg().win(0));
        assert_eq!(t.connection.snd_wnd(), close, "{policy:?}");
        t.expect_at(200, ack(11));
    }
}

#[test]
fn rfc9293_3_10_7_4_fifth_fin_wait_1_the_ack_of_our_fin_leads_to_fin_wait_2() {
    let (mut t, _) = open(State::FinWait1);
    t.inject(seg().ack(2));
    t.expect_state(State::FinWait2);
    t.expect_event(Event::AllAcknowledged);
    t.expect_no_timer(Timer::Retransmit);
    // The receiving side is not closed: it stays open as long as the peer wants.
    t.expect_nothing_until(10_000_000);
    t.inject(seg().data(100));
    t.read(100);
    t.expect_at(10_000_200, ack(101));
}

#[test]
fn rfc9293_3_10_7_4_fifth_an_ack_of_data_before_the_fin_changes_no_state() {
    let mut t = Script::established(plain());
    t.write(500);
    t.expect(data(1, 501));
    t.write(300);
    t.shutdown();
    t.expect(data(501, 801).and_fin());
    t.inject(seg().ack(501));
    t.expect_state(State::FinWait1);
    t.inject(seg().ack(801));
    t.expect_state(State::FinWait1);
    t.inject(seg().ack(802));
    t.expect_state(State::FinWait2);
    assert_eq!(t.connection.counters().bytes_acked.0, 800);
}

#[test]
fn rfc9293_3_10_7_4_fifth_close_wait_acks_count_as_in_established() {
    let (mut t, nxt) = open(State::CloseWait);
    t.write(2500);
    t.expect(data(1, 1001).ack(nxt));
    t.expect(data(1001, 2001).ack(nxt));
    t.inject(seg().ack(2001));
    t.expect(data(2001, 2501));
    t.inject(seg().ack(2501));
    t.expect_state(State::CloseWait);
    t.expect_no_timer(Timer::Retransmit);
}

#[test]
fn rfc9293_3_10_7_4_fifth_closing_the_ack_of_our_fin_leads_to_time_wait() {
    let (mut t, _) = open(State::Closing);
    t.inject(seg().ack(1));
    t.expect_state(State::Closing);
    t.at(10).inject(seg().ack(2));
    t.expect_state(State::TimeWait);
    t.expect_timer(Timer::TimeWait, 240_010);
    t.expect_no_timer(Timer::Retransmit);
    t.expect_event(Event::AllAcknowledged);
    t.expect_nothing_until(240_010);
    t.expect_state(State::Closed);
    t.expect_event(Event::Closed);
}

#[test]
fn rfc9293_3_10_7_4_fifth_last_ack_the_ack_of_our_fin_ends_the_connection() {
    let (mut t, _) = open(State::LastAck);
    t.inject(seg().ack(1));
    t.expect_state(State::LastAck);
    t.inject(seg().ack(2));
    t.expect_state(State::Closed);
    assert_eq!(t.connection.error(), None);
    t.expect_event(Event::Closed);
    t.inject_as(Disposition::Closed, seg());
    t.expect_nothing_until(1_000_000);
}

#[test]
fn rfc9293_3_10_7_4_fifth_our_fin_is_sent_again_until_it_is_acknowledged() {
    for state in FIN_OUT {
        let (mut t, nxt) = open(state);
        t.expect_at(1000, our_fin(1).ack(nxt).reason(Reason::Timeout));
        t.expect_at(3000, our_fin(1).ack(nxt).reason(Reason::Timeout));
        t.inject(seg().ack(2));
        t.expect_no_timer(Timer::Retransmit);
    }
}

#[test]
fn rfc9293_3_10_7_4_fifth_time_wait_acknowledges_the_fin_again_and_starts_over() {
    let (mut t, _) = open(State::TimeWait);
    t.expect_timer(Timer::TimeWait, 240_000);
    t.at(100_000).inject_as(Disposition::DuplicateData, fin().seq(1));
    t.expect(ack(2));
    t.expect_timer(Timer::TimeWait, 340_000);
    // Text and FIN together, as the peer may have sent them.
    t.at(200_000).inject_as(Disposition::DuplicateData, fin().seq(1));
    t.expect(ack(2));
    t.expect_timer(Timer::TimeWait, 440_000);
    // Other segments do not restart the timer.
    t.at(210_000).inject_as(Disposition::DuplicateData, seg().seq(0).data(1));
    t.expect(ack(2));
    t.inject_as(Disposition::OutsideWindow, fin().seq(15_000));
    t.expect(ack(2));
    t.inject(seg());
    t.expect_timer(Timer::TimeWait, 440_000);
    t.expect_nothing_until(440_000);
    t.expect_state(State::Closed);
}

#[test]
fn rfc9293_3_10_7_4_sixth_urgent_data_is_announced_in_the_states_that_receive() {
    for state in [State::Established, State::FinWait1, State::FinWait2] {
        let (mut t, _) = open(state);
        t.inject(seg().data(10).urgent(5));
        t.expect_event(Event::Urgent);
        t.read(10);
        // An urgent pointer is announced once; one beyond it is announced again.
        t.inject(seg().data(10).urgent(50));
        t.expect_event(Event::Urgent);
        assert_eq!(t.connection.urgent_until(), Some(t.connection.rcv_nxt() + 40));
        t.inject(seg().data(10).urgent(40));
        t.expect_no_event(Event::Urgent);
        t.inject(seg().data(30));
        assert_eq!(t.connection.urgent_until(), None, "everything urgent has arrived");
        t.expect_at(200, ack(61));
    }
}

#[test]
fn rfc9293_3_10_7_4_sixth_urgent_data_is_ignored_after_the_fin() {
    for state in [State::CloseWait, State::Closing, State::LastAck, State::TimeWait] {
        let (mut t, _) = open(state);
        t.inject(seg().urgent(5));
        t.expect_no_event(Event::Urgent);
        assert_eq!(t.connection.urgent_until(), None);
    }
}

#[test]
fn rfc9293_3_10_7_4_seventh_text_is_taken_in_the_states_that_receive() {
    for state in [State::Established, State::FinWait1, State::FinWait2] {
        let (mut t, _) = open(state);
        t.inject(seg().data(1000));
        t.expect_nothing();
        t.expect_event(Event::Readable);
        t.inject(seg().data(1000));
        t.expect(ack(2001).win(8000).reason(Reason::Ack));
        t.read(2000);
        t.expect_nothing_until(900);
        t.expect_state(state);
    }
}

#[test]
fn rfc9293_3_10_7_4_seventh_text_behind_the_fin_is_ignored() {
    for state in [State::CloseWait, State::Closing, State::LastAck, State::TimeWait] {
        let (mut t, nxt) = open(state);
        t.inject_as(Disposition::AfterFin, seg().data(100));
        t.inject_as(Disposition::AfterFin, fin().seq(nxt + 10).data(100));
        t.expect_nothing();
        t.expect_state(state);
        assert_eq!(t.connection.receive_buffer_len(), 0);
    }
}

/// RCV.NXT does not move, RCV.WND does not shrink: the right edge stays (section 3.10.7.4, seventh).
#[test]
fn rfc9293_3_10_7_4_seventh_the_edge_of_the_window_stays_without_reads() {
    let mut t = Script::established(plain());
    for (len, left) in [(1000, 9000), (3000, 6000), (2000, 4000)] {
        for _ in 0..len / 1000 {
            t.inject(seg().data(1000));
            t.forget_sent();
        }
        let nxt = 10_001 - i64::from(left);
        t.steer(|connection, _| connection.send_acks(1));
        t.expect(ack(nxt).win(left));
    }
}

#[test]
fn rfc9293_3_10_7_4_eighth_the_fin_is_acknowledged_at_once_and_changes_the_state() {
    for (state, next) in [
        (State::SynReceived, State::CloseWait),
        (State::Established, State::CloseWait),
        (State::FinWait1, State::Closing),
        (State::FinWait2, State::TimeWait),
    ] {
        let (mut t, _) = open(state);
        t.inject(fin().ack(if state == State::FinWait2 { 2 } else { 1 }));
        t.expect(ack(2).reason(Reason::FinAck));
        t.expect_state(next);
        t.expect_event(Event::PeerClosed);
        // In FIN-WAIT-2 the ACK of our FIN had arrived before.
        t.expect_no_event(Event::AllAcknowledged);
    }
}

/// In FIN-WAIT-1 a FIN that also acknowledges ours leads to TIME-WAIT, other timers off.
#[test]
fn rfc9293_3_10_7_4_eighth_fin_wait_1_fin_and_ack_together() {
    let (mut t, _) = open(State::FinWait1);
    t.at(10).inject(fin().ack(2).data(20));
    t.expect(ack(22).reason(Reason::FinAck));
    t.expect_state(State::TimeWait);
    t.expect_timer(Timer::TimeWait, 240_010);
    t.expect_no_timer(Timer::Retransmit);
    t.read(20);
}

#[test]
fn rfc9293_3_10_7_4_eighth_the_fin_again_is_acknowledged_again() {
    for state in [State::CloseWait, State::Closing, State::LastAck, State::TimeWait] {
        let (mut t, _) = open(state);
        t.inject_as(Disposition::DuplicateData, fin().seq(1));
        t.expect(ack(2).reason(Reason::DuplicateData));
        t.expect_state(state);
        t.expect_no_event(Event::PeerClosed);
    }
}

#[test]
fn rfc9293_3_10_7_4_eighth_a_fin_out_of_order_waits_for_what_is_before_it() {
    let mut t = Script::established(plain());
    t.inject(fin().seq(1001).data(500));
    t.expect(ack(1).reason(Reason::DuplicateAck));
    t.expect_state(State::Established);
    t.inject(fin().seq(1501));
    t.expect(ack(1));
    t.expect_no_event(Event::PeerClosed);
    t.inject(seg().seq(1).data(1000));
    t.expect(ack(1502).reason(Reason::FinAck));
    t.expect_state(State::CloseWait);
    t.read(1500);
}

#[test]
fn rfc9293_3_10_7_4_eighth_a_bare_fin_out_of_order() {
    let mut t = Script::established(plain());
    t.inject(fin().seq(1001));
    t.expect(ack(1).reason(Reason::DuplicateAck));
    // The segment fills a part of a gap (RFC 5681 section 4.2).
    t.inject(seg().seq(1).data(600));
    t.expect(ack(601).reason(Reason::GapFilled));
    t.inject(seg().data(400));
    t.expect(ack(1002));
    t.expect_state(State::CloseWait);
}

/// Data beyond a FIN that is still out of order is not part of the stream.
#[test]
fn rfc9293_3_10_7_4_eighth_text_behind_a_fin_out_of_order_is_cut_off() {
    let mut t = Script::established(plain());
    t.inject(fin().seq(1001));
    t.expect(ack(1));
    t.inject(seg().seq(501).data(1000));
    t.expect(ack(1));
    t.inject(seg().seq(1).data(500));
    t.expect(ack(1002));
    t.read(1000);
    t.expect_state(State::CloseWait);
}

/// A FIN below arrived text is false; the text stays valid, and the true FIN is still accepted.
#[test]
fn rfc9293_3_10_7_4_eighth_a_fin_below_text_that_has_arrived_is_ignored() {
    let mut t = Script::established(plain());
    t.inject(seg().seq(1001).data(1000));
    t.expect(ack(1));
    t.inject(fin().seq(1001));
    t.forget_sent();
    t.inject(seg().seq(1).data(1000));
    t.expect(ack(2001));
    t.expect_state(State::Established);
    t.inject(fin().seq(2001));
    t.expect(ack(2002));
    t.read(2000);
    t.expect_state(State::CloseWait);
}

/// The text fills the window, and the FIN is beyond it: the FIN is acknowledged only when it fits.
#[test]
fn rfc9293_3_10_7_4_eighth_a_fin_cut_off_with_the_text_before_it_is_not_taken() {
    let mut t = Script::established(plain());
    for n in 0..9 {
        t.inject(seg().data(1000));
        if n % 2 == 1 {
            t.expect(ack(1001 + n * 1000));
        }
    }
    t.inject(fin().data(1500));
    t.expect(ack(10_001).win(0));
    t.expect_state(State::Established);
    t.read(10_000);
    t.expect(ack(10_001).win(10_000));
    t.inject(fin().seq(9001).data(1500));
    t.expect(ack(10_502).reason(Reason::FinAck));
    t.expect_state(State::CloseWait);
    t.read(500);
}
