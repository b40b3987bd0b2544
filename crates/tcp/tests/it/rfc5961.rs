//! RFC 5961, blind attacks: challenge ACKs for resets and SYNs in the window (sections 3 and 4; every state is in
//! `rfc9293_arrives`), the range of acceptable ACKs (section 5) and the limit on challenges (section 10).

use holdover_tcp::{Disposition, Reason, State};
use holdover_wire::Flags;

use crate::script::*;

/// An attacker's reset inside the window does not end the connection; the peer's answer to the challenge does.
#[test]
fn rfc5961_3_2_a_blind_reset_is_challenged_and_a_true_one_confirmed() {
    let mut t = Script::established(plain());
    t.inject_as(Disposition::ResetChallenged, rst().seq(5000));
    t.expect(ack(1).seq(1).reason(Reason::ChallengeAck));
    // The challenge ACK has the expected number, and the peer answers with a reset at that number.
    t.inject_as(Disposition::ResetAccepted, rst().seq(1));
    t.expect_state(State::Closed);
}

#[test]
fn rfc5961_3_2_a_reset_outside_the_window_is_not_even_challenged() {
    let mut t = Script::established(plain());
    t.inject_as(Disposition::OutsideWindow, rst().seq(10_002));
    t.inject_as(Disposition::OutsideWindow, rst().seq(0));
    t.expect_nothing();
}

/// The challenge gives a restarted peer that sends its SYN our sequence number, and it answers with a reset.
#[test]
fn rfc5961_4_2_a_syn_is_challenged_wherever_it_lies() {
    let mut t = Script::established(plain());
    for (seq, disposition) in [
        (1, Disposition::SynChallenged),
        (7000, Disposition::SynChallenged),
        (50_000, Disposition::OutsideWindow),
        (-50_000, Disposition::DuplicateData),
    ] {
        t.inject_as(disposition, flags(Flags::SYN).seq(seq));
        t.expect(ack(1).seq(1));
    }
    t.inject_as(Disposition::ResetAccepted, rst().seq(1));
    t.expect_state(State::Closed);
}

/// SND.UNA - MAX.SND.WND =< SEG.ACK =< SND.NXT.
#[test]
fn rfc5961_5_2_the_range_of_acceptable_acks() {
    let mut t = Script::established(plain());
    t.write(500);
    t.expect(data(1, 501));
    t.inject(seg().ack(501));
    // The largest window of the peer so far was 20,000, whatever it is now.
    t.inject(seg().win(300));
    t.inject(seg().ack(501 - 20_000).data(10));
    t.inject_as(Disposition::AckTooOld, seg().ack(501 - 20_001).data(10));
    t.expect(ack(11).reason(Reason::ChallengeAck));
    t.inject_as(Disposition::AckTooOld, seg().ack(501 - 0x7000_0000).data(10));
    t.expect(ack(11));
    t.inject_as(Disposition::AckOfUnsentData, seg().ack(502).data(10));
    t.expect(ack(11));
    t.inject(seg().ack(501).data(10));
    t.read(20);
    t.expect_at(200, ack(21));
}

#[test]
fn rfc5961_10_challenges_are_limited_in_each_second() {
    let mut config = plain();
    config.limits.challenge_acks_per_second = 3;
    let mut t = Script::established(config);
    for second in 0..3 {
        t.at(second * 1000 + 500);
        for _ in 0..3 {
            t.inject_as(Disposition::SynChallenged, flags(Flags::SYN));
            t.expect(ack(1).reason(Reason::ChallengeAck));
        }
        t.inject_as(Disposition::SynChallenged, flags(Flags::SYN));
        t.inject_as(Disposition::ResetChallenged, rst().seq(2));
        t.inject_as(Disposition::AckOfUnsentData, seg().ack(9));
        t.inject_as(Disposition::OutsideWindow, seg().seq(30_000).data(1));
        t.expect_nothing();
        // A duplicate of earlier data is not an attack: its ACK may have been lost.
        t.inject_as(Disposition::DuplicateData, seg().seq(-10).data(5));
        t.expect(ack(1).reason(Reason::DuplicateData));
    }
    assert_eq!(t.connection.counters().sent(Reason::ChallengeAck), 9);
}
