//! RFC 7323: window scaling (section 2), timestamps (section 3), round-trip measurement (section 4) and PAWS (section 5).

use holdover_base::Duration;
use holdover_tcp::{Config, Disposition, Paws, Reason, State};
use holdover_wire::{RareOptions, TcpOptions, Timestamps};

use crate::script::*;

fn stamped() -> Config {
    let mut config = plain();
    config.timestamps = Some(Duration::from_millis(1));
    config
}

fn scaled(shift: u8, buffer: u32) -> Config {
    let mut config = plain();
    config.window_scale = Some(shift);
    config.receive.buffer_bytes = buffer;
    config.receive.max_buffer_bytes = buffer;
    config
}

fn only_mss() -> TcpOptions {
    RareOptions { mss: Some(1000), ..RareOptions::default() }.into()
}

fn mss_and_scale(shift: u8) -> TcpOptions {
    RareOptions { mss: Some(1000), window_scale: Some(shift), ..RareOptions::default() }.into()
}

#[test]
fn rfc7323_2_2_both_sides_have_to_offer_scaling() {
    let mut t = Script::connect(scaled(4, 1_000_000));
    t.expect(our_syn().options(mss_and_scale(4)));
    t.inject(syn_ack());
    // Without agreement on window scaling, the field of 16 bits is the limit.
    t.expect(ack(1).win(0xffff));
    t.inject(seg().win(7000));
    assert_eq!(t.connection.snd_wnd(), 7000);
    let mut t = Script::accept(scaled(4, 1_000_000), syn());
    t.expect(our_syn_ack().options(only_mss()));
    let mut t = Script::accept(scaled(4, 1_000_000), syn().wscale(2));
    t.expect(our_syn_ack().options(mss_and_scale(4)));
    let mut t = Script::accept(plain(), syn().wscale(2));
    t.expect(our_syn_ack().options(only_mss()));
    t.inject(seg().ack(1));
    assert_eq!(t.connection.snd_wnd(), 20_000 >> 2, "the script scales, the connection must not");
}

#[test]
fn rfc7323_2_2_the_window_of_a_syn_is_not_scaled_all_others_are() {
    let mut t = Script::connect(scaled(4, 1_000_000));
    t.expect(our_syn().win(0xffff));
    t.inject(syn_ack().wscale(3));
    assert_eq!(t.connection.snd_wnd(), 20_000);
    t.expect(ack(1).win(62_500));
    t.inject(seg().win(400_000));
    assert_eq!(t.connection.snd_wnd(), 400_000);
    let mut t = Script::accept(scaled(4, 1_000_000), syn().wscale(3));
    t.expect(our_syn_ack().win(0xffff));
    t.inject(seg().ack(1).win(80_000));
    assert_eq!(t.connection.snd_wnd(), 80_000);
}

/// A shift of zero enables scaling in the other direction.
#[test]
fn rfc7323_2_2_a_shift_of_zero_is_an_offer() {
    let mut t = Script::connect(scaled(0, 10_000));
    t.expect(our_syn().options(mss_and_scale(0)));
    t.inject(syn_ack().wscale(5));
    t.expect(ack(1).win(10_000));
    t.inject(seg().win(64_000));
    assert_eq!(t.connection.snd_wnd(), 64_000);
}

#[test]
fn rfc7323_2_3_a_shift_above_14_is_taken_for_14() {
    let mut t = Script::connect(scaled(20, 10_000));
    t.expect(our_syn().options(mss_and_scale(14)));
    t.inject(syn_ack().wscale(15));
    t.forget_sent();
    t.inject(seg().win(3 << 14));
    assert_eq!(t.connection.snd_wnd(), 3 << 14);
}

/// Section 2.4: rounding down to the scale shrinks the offered window by less than one unit, and data sent there nevertheless is
/// accepted.
#[test]
fn rfc7323_2_4_rounding_shrinks_the_window_by_less_than_a_unit() {
    let mut t = Script::connect(scaled(7, 100_000));
    t.expect(our_syn().win(0xffff));
    t.inject(syn_ack().wscale(0));
    let mut edge = 0;
    let mut received = 0;
    t.forget_sent();
    for len in [1000, 999, 1, 37, 1000, 128, 127, 500, 3, 2, 1000, 64] {
        t.inject(seg().data(len));
        t.forget_sent();
        received += len as i64;
        t.steer(|connection, _| connection.send_acks(1));
        let sent = t.take_sent();
        let now = 1 + received + (i64::from(sent.window) << 7);
        assert!(now > edge - 128, "the edge went back from {edge} to {now}");
        assert!(now <= 1 + 100_000, "more was offered than there is");
        edge = now.max(edge);
    }
    t.inject(seg().seq(edge - 1).data(1));
    t.forget_sent();
    assert_eq!(t.connection.receive_buffer_len(), received as usize + 1);
}

#[test]
fn rfc7323_3_2_timestamps_are_agreed_in_the_handshake() {
    let ours = |ecr| TcpOptions { timestamps: Some(Timestamps { val: OUR_CLOCK, ecr }), ..only_mss() };
    let mut t = Script::connect(stamped());
    t.expect(our_syn().options(ours(0)));
    t.inject(syn_ack());
    t.expect(ack(1).no_ts());
    assert!(!t.connection.timestamps_agreed());
    let mut t = Script::accept(stamped(), syn());
    t.expect(our_syn_ack().options(only_mss()));
    let mut t = Script::accept(stamped(), syn().ts(99, 0));
    t.expect(our_syn_ack().options(ours(99)));
    let mut t = Script::accept(plain(), syn().ts(99, 0));
    t.expect(our_syn_ack().options(only_mss()));
}

/// Once agreed, timestamps are in every segment: data, ACKs, FINs, probes and challenges. A SYN-ACK that echoes a timestamp that
/// no SYN of ours had belongs to another connection. Linux answers it in the same way.
#[test]
fn rfc7323_3_2_a_syn_ack_with_a_foreign_echo_is_reset() {
    for foreign in [OUR_CLOCK - 1, OUR_CLOCK + 1, OUR_CLOCK ^ (1 << 31)] {
        let mut t = Script::connect(stamped());
        t.expect(our_syn());
        t.inject_as(Disposition::UnacceptableHandshakeAck, syn_ack().ts(PEER_CLOCK, foreign));
        t.expect(our_rst(1).reason(Reason::Reset));
        t.expect_state(State::SynSent);
        t.inject(syn_ack().ts(PEER_CLOCK, OUR_CLOCK));
        t.expect(ack(1));
    }
}

#[test]
fn rfc7323_3_2_timestamps_are_in_every_segment() {
    let mut t = Script::established(stamped());
    t.at(10).write(988);
    t.expect(data(1, 989).ts(OUR_CLOCK + 10, PEER_CLOCK));
    t.at(20).inject(seg().ack(989));
    t.inject_as(Disposition::OutsideWindow, seg().seq(50_000).data(1));
    t.expect(ack(1).ts(OUR_CLOCK + 20, PEER_CLOCK + 20));
    t.at(30).shutdown();
    t.expect(our_fin(989).ts(OUR_CLOCK + 30, PEER_CLOCK + 20));
    t.at(40).inject(fin().ack(990));
    t.expect(ack(2).ts(OUR_CLOCK + 40, PEER_CLOCK + 40));
}

/// Appendix A of RFC 9293 (and RFC 6691): options reduce the segment's data, and are not added to it.
#[test]
fn rfc9293_3_7_1_options_reduce_what_a_segment_holds() {
    let mut t = Script::established(stamped());
    assert_eq!(t.connection.snd_mss(), 988);
    t.write(2000);
    t.expect(data(1, 989));
    t.expect(data(989, 1977));
    t.forget_sent();
}

/// "A TCP MUST NOT abort a connection because any segment lacks an expected TSopt". Such a segment should be dropped in silence;
/// it is accepted as in Linux and the BSDs.
#[test]
fn rfc7323_3_2_a_segment_without_timestamps_is_taken() {
    let mut t = Script::established(stamped());
    t.inject(seg().no_ts().data(100));
    t.expect_state(State::Established);
    t.expect_at(200, ack(101).ts(OUR_CLOCK + 200, PEER_CLOCK));
}

/// Section 4.1: a sample comes from an ACK of new data only, and not from an echo of zero, of the future, or of hours ago.
#[test]
fn rfc7323_4_1_rttm_takes_acks_of_new_data_only() {
    let mut t = Script::established(stamped());
    t.write(400);
    t.expect(data(1, 401));
    let srtt = t.connection.srtt();
    t.at(300).inject(seg().ack(1).ts(PEER_CLOCK + 300, OUR_CLOCK).data(10));
    assert_eq!(t.connection.srtt(), srtt);
    t.at(500);
    t.expect(ack(11));
    t.at(1000).expect(data(1, 401).reason(Reason::Timeout));
    t.at(1100).inject(seg().ack(401).ts(PEER_CLOCK + 1100, OUR_CLOCK + 5000));
    assert_eq!(t.connection.srtt(), srtt, "an echo from the future");
    t.write(400);
    t.expect(data(401, 801));
    t.at(3100).expect(data(401, 801).reason(Reason::Timeout));
    t.at(3200).inject(seg().ack(801).ts(PEER_CLOCK + 3200, OUR_CLOCK.wrapping_sub(3_000_000)));
    assert_eq!(t.connection.srtt(), srtt, "an echo that is too old");
}

/// Section 4.3, case A: segments in order. The ACK echoes the earliest segment that it covers.
#[test]
fn rfc7323_4_3_a_delayed_acks_echo_the_earliest_segment() {
    let mut t = Script::established(stamped());
    t.inject(seg().data(500).ts(PEER_CLOCK + 1, OUR_CLOCK));
    t.inject(seg().data(300).ts(PEER_CLOCK + 2, OUR_CLOCK));
    t.expect_at(200, ack(801).ts(OUR_CLOCK + 200, PEER_CLOCK + 1));
    t.inject(seg().data(500).ts(PEER_CLOCK + 3, OUR_CLOCK));
    t.expect_at(400, ack(1301).ts(OUR_CLOCK + 400, PEER_CLOCK + 3));
}

/// Case B: a hole. Each ACK echoes the last segment that advanced the window, and then the one that fills the hole.
#[test]
fn rfc7323_4_3_b_out_of_order_segments_are_not_echoed() {
    let mut t = Script::established(stamped());
    t.inject(seg().data(988).ts(PEER_CLOCK + 1, OUR_CLOCK));
    t.at(200);
    t.expect(ack(989).ts(OUR_CLOCK + 200, PEER_CLOCK + 1));
    // C arrives before B.
    t.inject(seg().seq(1977).data(988).ts(PEER_CLOCK + 3, OUR_CLOCK));
    t.expect(ack(989).ts(OUR_CLOCK + 200, PEER_CLOCK + 1));
    t.inject(seg().seq(989).data(988).ts(PEER_CLOCK + 2, OUR_CLOCK));
    t.expect(ack(2965).ts(OUR_CLOCK + 200, PEER_CLOCK + 2));
    // E arrives before D, and D arrives twice.
    t.inject(seg().seq(3953).data(988).ts(PEER_CLOCK + 5, OUR_CLOCK));
    t.expect(ack(2965).ts(OUR_CLOCK + 200, PEER_CLOCK + 2));
    t.inject(seg().seq(2965).data(988).ts(PEER_CLOCK + 4, OUR_CLOCK));
    t.expect(ack(4941).ts(OUR_CLOCK + 200, PEER_CLOCK + 4));
}

/// Section 5.3, R1: a segment with an old timestamp is answered by an ACK and dropped, even if it is acceptable otherwise.
#[test]
fn rfc7323_5_3_r1_an_old_timestamp_is_dropped_and_answered() {
    let mut t = Script::established(stamped());
    t.write(500);
    t.expect(data(1, 501));
    for template in [seg().data(100), fin(), seg().ack(501), syn_ack().seq(1)] {
        t.inject_as(Disposition::PawsRejected, template.ts(PEER_CLOCK - 1, OUR_CLOCK));
        t.expect(ack(1).reason(Reason::ChallengeAck).ts(OUR_CLOCK, PEER_CLOCK));
    }
    t.inject_as(Disposition::PawsRejected, seg().seq(-100).data(100).ts(PEER_CLOCK - 5, 0));
    t.expect(ack(1).reason(Reason::DuplicateData));
    assert_eq!((t.connection.unacked(), t.connection.receive_buffer_len()), (1, 0));
    t.inject(seg().ack(501).ts(PEER_CLOCK, OUR_CLOCK));
}

/// Section 5.2: PAWS does not apply to resets.
#[test]
fn rfc7323_5_2_paws_does_not_stop_a_reset() {
    let mut t = Script::established(stamped());
    t.inject_as(Disposition::ResetAccepted, rst().ts(PEER_CLOCK - 1000, 0));
    t.expect_state(State::Closed);
}

/// Section 5.3, R2 and R3: a segment outside the window or beyond the last ACK does not move TS.Recent.
#[test]
fn rfc7323_5_3_r3_ts_recent_moves_with_segments_at_the_last_ack_only() {
    let mut t = Script::established(stamped());
    t.inject_as(Disposition::OutsideWindow, seg().seq(70_000).data(1).ts(PEER_CLOCK + 900, OUR_CLOCK));
    t.expect(ack(1).ts(OUR_CLOCK, PEER_CLOCK));
    t.inject(seg().seq(101).data(1).ts(PEER_CLOCK + 900, OUR_CLOCK));
    t.expect(ack(1).ts(OUR_CLOCK, PEER_CLOCK));
    // If the echo had moved, this timestamp would be old.
    t.inject(seg().seq(1).data(50).ts(PEER_CLOCK + 10, OUR_CLOCK));
    t.expect(ack(51).ts(OUR_CLOCK, PEER_CLOCK + 10));
}

/// Section 5.2: timestamps wrap like sequence numbers.
#[test]
fn rfc7323_5_2_timestamps_are_compared_around_the_circle() {
    let mut t = Script::connect(stamped());
    t.expect(our_syn());
    t.inject(syn_ack().ts(u32::MAX - 1, OUR_CLOCK));
    t.expect(ack(1).ts(OUR_CLOCK, u32::MAX - 1));
    t.inject(seg().data(10).ts(1, OUR_CLOCK));
    t.expect_at(200, ack(11).ts(OUR_CLOCK + 200, 1));
    t.inject_as(Disposition::PawsRejected, seg().data(10).ts(u32::MAX, OUR_CLOCK));
    t.expect(ack(11));
}

/// Section 5.5: after 24 days TS.Recent is invalid, and the next segment sets it.
#[test]
fn rfc7323_5_5_an_outdated_ts_recent_is_replaced() {
    let day = 86_400_000;
    let mut t = Script::established(stamped());
    let old = PEER_CLOCK.wrapping_sub(1000);
    t.at(23 * day).inject_as(Disposition::PawsRejected, seg().data(10).ts(old, OUR_CLOCK));
    t.expect(ack(1));
    t.at(24 * day + 1).inject(seg().data(10).ts(old, OUR_CLOCK));
    let now = OUR_CLOCK.wrapping_add((24 * day + 201) as u32);
    t.expect_at(24 * day + 201, ack(11).ts(now, old));
    t.inject_as(Disposition::PawsRejected, seg().data(10).ts(old - 1, OUR_CLOCK));
    t.expect(ack(11));
}

fn stamped_as(paws: Paws) -> Config {
    Config { paws, ..stamped() }
}

/// Linux accepts a duplicate ACK that newer ones have overtaken, up to a retransmission timeout (1 s here) of ticks of 1/1.024
/// ms, since 6.8 1/1.2 ms; one that would change the window or acknowledge more is dropped and answered.
#[test]
fn linux_paws_takes_overtaken_duplicates() {
    for (paws, oldest) in [(Paws::LinuxDuplicates, 1_024), (Paws::LinuxOldAcks, 1_200)] {
        let mut t = Script::established(stamped_as(paws));
        t.write(500);
        t.expect(data(1, 501));
        // The first ACK after the SYN-ACK may update the window with any content.
        t.inject(seg().ts(PEER_CLOCK, OUR_CLOCK));
        let taken = Disposition::Accepted;
        for (age, becomes) in [(2, taken), (oldest, taken), (oldest + 1, Disposition::PawsRejected)] {
            t.inject_as(becomes, seg().ts(PEER_CLOCK.wrapping_sub(age), OUR_CLOCK));
            if becomes != taken {
                t.expect(ack(1).reason(Reason::ChallengeAck));
            }
        }
        for template in [seg().data(100), fin(), seg().ack(501), seg().win(0)] {
            t.inject_as(Disposition::PawsRejected, template.ts(PEER_CLOCK - 2, OUR_CLOCK));
            t.expect(ack(1).reason(Reason::ChallengeAck));
        }
        // One tick is within the clock's granularity, whatever the segment carries.
        t.inject(seg().ack(501).ts(PEER_CLOCK - 1, OUR_CLOCK));
        assert_eq!(t.connection.unacked(), 0);
    }
}

/// From Linux 6.14 on, an ACK from before the last data is dropped without an answer.
#[test]
fn linux_paws_answers_old_acks_until_6_14() {
    for (paws, is_answered) in [(Paws::LinuxDuplicates, true), (Paws::LinuxOldAcks, false)] {
        let mut t = Script::established(stamped_as(paws));
        t.inject(seg().data(100).ts(PEER_CLOCK + 100, OUR_CLOCK));
        t.expect_at(200, ack(101));
        t.inject_as(Disposition::PawsRejected, seg().seq(1).ts(PEER_CLOCK, OUR_CLOCK));
        if is_answered {
            t.expect(ack(101).reason(Reason::ChallengeAck));
        }
        t.expect_nothing_until(400);
        // Data is answered in either case.
        t.inject_as(Disposition::PawsRejected, seg().seq(1).data(100).ts(PEER_CLOCK, OUR_CLOCK));
        t.expect(ack(101).reason(Reason::DuplicateData));
    }
}
