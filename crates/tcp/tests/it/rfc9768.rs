//! RFC 9768: accurate ECN is agreed on in both directions, marks are counted and reported, counts are decoded, and signs of a path that
//! rewrites them end its use.

use holdover_tcp::{
    AccurateEcnOption, AccurateEcnRules, AccurateEcnSeen, Config, Disposition, Ecn, EcnFeedback, EcnField, Profile,
    Reason, RecoveryState, Reduction, State,
};
use holdover_wire::{Flags, Segment};

use crate::script::*;

pub(crate) const ALL_FLAGS: Flags = Flags::AE.union(Flags::CWR).union(Flags::ECE);

pub(crate) fn config(rules: AccurateEcnRules) -> Config {
    let mut config = plain();
    config.ecn = Ecn::RequestAccurate;
    config.accurate_ecn.rules = rules;
    config.accurate_ecn.option = AccurateEcnOption::Off;
    config.recovery.reduction = Reduction::Immediate;
    config
}

pub(crate) fn rfc() -> Config {
    config(AccurateEcnRules::Rfc9768)
}

fn linux() -> Config {
    config(AccurateEcnRules::Linux)
}

/// AE, CWR and ECE of a number.
pub(crate) fn ace(field: u8) -> Flags {
    let mut flags = Flags::empty();
    flags.set(Flags::AE, field & 4 != 0);
    flags.set(Flags::CWR, field & 2 != 0);
    flags.set(Flags::ECE, field & 1 != 0);
    flags
}

fn ace_of(segment: &Segment) -> u8 {
    (0..8).find(|&field| segment.flags & ALL_FLAGS == ace(field)).unwrap()
}

/// A connection that has requested accurate feedback successfully.
fn agreed(config: Config) -> Script {
    let mut t = Script::connect(config);
    t.expect(our_syn().and(ALL_FLAGS));
    t.at(50).inject(syn_ack().and(ace(0b010)));
    t.expect(ack(1).and(ace(0b010)).reason(Reason::HandshakeAck));
    assert_eq!(t.connection.ecn_feedback(), EcnFeedback::Accurate);
    t
}

/// The same of a listener's.
fn accepted(config: Config) -> Script {
    let mut t = Script::accept(config, syn().and(ALL_FLAGS));
    t.expect(our_syn_ack().and(ace(0b010)));
    t.at(50).inject(seg().ack(1).and(ace(0b010)));
    assert_eq!(t.connection.ecn_feedback(), EcnFeedback::Accurate);
    t
}

/// Table 2, and section 3.1.3: what each SYN-ACK means to a client that has asked for accurate feedback.
#[test]
fn rfc9768_3_1_2_answers_to_a_client() {
    let answers = [
        (0b000, EcnFeedback::None),
        (0b001, EcnFeedback::Classic),
        (0b010, EcnFeedback::Accurate),
        (0b011, EcnFeedback::Accurate),
        (0b100, EcnFeedback::Accurate),
        (0b101, EcnFeedback::Accurate),
        (0b110, EcnFeedback::Accurate),
        (0b111, EcnFeedback::None),
    ];
    for config in [rfc(), linux()] {
        for (field, feedback) in answers {
            let mut t = Script::connect(config.clone());
            t.expect(our_syn().and(ALL_FLAGS));
            t.at(50).inject(syn_ack().and(ace(field)));
            assert_eq!(t.connection.ecn_feedback(), feedback, "{field:03b}");
            t.forget_sent();
        }
    }
}

/// Table 2, and section 3.1.3: what a listener answers to each SYN. It takes part in accurate feedback unless the SYN asks for nothing, or
/// for ECN as in RFC 3168.
#[test]
fn rfc9768_3_1_2_answers_of_a_listener() {
    for ecn in [Ecn::RequestAccurate, Ecn::AcceptAccurateRequest, Ecn::AcceptAccurate] {
        for field in 0..8 {
            let mut config = rfc();
            config.ecn = ecn;
            let mut t = Script::accept(config, syn().and(ace(field)));
            let (answer, feedback) = match field {
                0b000 => (0b000, EcnFeedback::None),
                0b011 => (0b001, EcnFeedback::Classic),
                _ => (0b010, EcnFeedback::Accurate),
            };
            t.expect(our_syn_ack().and(ace(answer)));
            assert_eq!(t.connection.ecn_feedback(), feedback, "{field:03b}");
        }
    }
    let mut t = Script::accept(Config { ecn: Ecn::Accept, ..rfc() }, syn().and(ALL_FLAGS));
    t.expect(our_syn_ack().and(Flags::ECE));
    let mut t = Script::accept(Config { ecn: Ecn::Off, ..rfc() }, syn().and(ALL_FLAGS));
    t.expect(our_syn_ack());
}

/// Table 2 of a client that asks for ECN as in RFC 3168 only, or for nothing.
#[test]
fn rfc9768_3_1_2_requests() {
    for (ecn, request) in [
        (Ecn::AcceptAccurate, Flags::empty()),
        (Ecn::AcceptAccurateRequest, Flags::CWR | Flags::ECE),
        (Ecn::RequestAccurate, ALL_FLAGS),
    ] {
        let mut t = Script::connect(Config { ecn, ..rfc() });
        t.expect(our_syn().and(request));
        t.at(50).inject(syn_ack().and(Flags::ECE));
        t.expect(ack(1));
        let feedback = if request.is_empty() { EcnFeedback::None } else { EcnFeedback::Classic };
        assert_eq!(t.connection.ecn_feedback(), feedback);
    }
}

/// Section 3.1.2: SYN-ACK and the ACK that ends the handshake tell the ECN field of what they answer (tables 3 and 4).
#[test]
fn rfc9768_3_1_2_the_handshake_reflects_the_ecn_field() {
    for (field, reflection) in
        [(EcnField::NotEct, 0b010), (EcnField::Ect1, 0b011), (EcnField::Ect0, 0b100), (EcnField::Ce, 0b110)]
    {
        let mut t = Script::accept_with_field(rfc(), syn().and(ALL_FLAGS), field);
        t.expect(our_syn_ack().and(ace(reflection)));
        let mut t = Script::connect(rfc());
        t.expect(our_syn().and(ALL_FLAGS));
        t.at(50).inject_with(field, syn_ack().and(ace(0b010)));
        t.expect(ack(1).and(ace(reflection)));
        // Later segments carry the count, in which a mark of the SYN-ACK counts.
        t.write(1_000);
        t.expect(data(1, 1_001).and(ace(if field == EcnField::Ce { 6 } else { 5 })));
    }
}

/// Section 3.1.4.1: the first SYN that is sent again asks for accurate feedback, the second for nothing.
#[test]
fn rfc9768_3_1_4_1_a_repeated_syn_asks_once_more() {
    for config in [rfc(), linux()] {
        let mut t = Script::connect(config);
        t.expect(our_syn().and(ALL_FLAGS));
        t.at(1_000).expect(our_syn().and(ALL_FLAGS));
        t.at(3_000).expect(our_syn());
        t.inject(syn_ack().and(ace(0b010)));
        t.expect(ack(1).and(ace(0b010)));
        assert_eq!(t.connection.ecn_feedback(), EcnFeedback::Accurate);
        // The answer shows that flags pass: packets are ECN-capable.
        t.write(1_000);
        assert_eq!(t.fields(), [EcnField::Ect0]);
        t.forget_sent();
    }
}

/// Section 3.1.4.2: the first SYN-ACK that is sent again has the flags and no option, the second neither; nothing is ECN-capable after
/// that.
#[test]
fn rfc9768_3_1_4_2_a_repeated_syn_ack_gives_up() {
    let mut config = rfc();
    config.accurate_ecn.option = AccurateEcnOption::Full;
    let mut t = Script::accept(config, syn().and(ALL_FLAGS));
    let first = t.take_sent();
    assert_eq!((ace_of(&first), first.options.accurate_ecn.map(|option| option.len())), (0b010, Some(3)));
    t.at(1_000);
    let second = t.take_sent();
    assert_eq!((ace_of(&second), second.options.accurate_ecn), (0b010, None));
    t.at(3_000);
    let third = t.take_sent();
    assert_eq!((ace_of(&third), third.options.accurate_ecn), (0b000, None));
    t.inject(seg().ack(1).and(ace(0b010)));
    assert_eq!(t.connection.ecn_feedback(), EcnFeedback::Accurate);
    t.write(500);
    assert_eq!(t.fields(), [EcnField::NotEct]);
    t.forget_sent();
}

/// Section 3.1.5: a SYN without flags after one that asked ends the use of ECN-capable packets, not the feedback.
#[test]
fn rfc9768_3_1_5_a_client_that_gave_up_gets_no_capable_packets() {
    let mut t = Script::accept(rfc(), syn().and(ALL_FLAGS));
    t.expect(our_syn_ack().and(ace(0b010)));
    t.at(100).inject_as(Disposition::DuplicateData, syn());
    t.expect(our_syn_ack().and(ace(0b010)));
    t.inject(seg().ack(1).and(ace(0b010)));
    t.write(1_000);
    assert_eq!(t.fields(), [EcnField::NotEct]);
    t.expect(data(1, 1_001).and(ace(5)));
}

/// Section 3.1.5: a second SYN that asks for feedback of another kind is answered by a reset.
#[test]
fn rfc9768_3_1_5_a_syn_that_asks_for_other_feedback_is_reset() {
    let classic = Flags::CWR | Flags::ECE;
    for (first, second) in [(ALL_FLAGS, classic), (classic, ALL_FLAGS), (classic, ace(0b100))] {
        let mut t = Script::accept(rfc(), syn().and(first));
        t.forget_sent();
        t.at(100).inject_as(Disposition::HandshakeAbandoned, syn().and(second));
        t.expect(our_rst_ack(1).ack(1));
        t.expect_state(State::Closed);
        // Linux answers it as it answers any other.
        let mut t = Script::accept(linux(), syn().and(first));
        t.forget_sent();
        t.at(100).inject_as(Disposition::DuplicateData, syn().and(second));
        assert_eq!(t.forget_sent(), 1);
        t.expect_state(State::SynReceived);
    }
}

/// Section 3.1.5: the flags of a SYN in a synchronized state are ignored, as is its option (section 3.2.3.2.1). The challenge ACK of one
/// with another ISN has the count.
#[test]
fn rfc9768_3_1_5_a_syn_in_a_synchronized_state_changes_nothing() {
    for rules in [AccurateEcnRules::Rfc9768, AccurateEcnRules::Linux] {
        let mut config = config(rules);
        config.accurate_ecn.option = AccurateEcnOption::Full;
        let mut t = Script::connect(config);
        t.expect(our_syn().and(ALL_FLAGS));
        t.at(50).inject(syn_ack().and(ace(0b010)).ecn_option(&[1, 0, 1]));
        t.forget_sent();
        let forged = [
            (5_000, Disposition::SynChallenged, 5),
            (5_000, Disposition::SynChallenged, 5),
            (50_000, Disposition::OutsideWindow, 5),
            (-50_000, Disposition::DuplicateData, 5),
            (-50_000, Disposition::DuplicateData, 5),
            (0, Disposition::DuplicateData, 0b010),
        ];
        for (n, (seq, disposition, field)) in (1..).zip(forged) {
            t.at(n * 1_000).inject_as(disposition, syn().seq(seq).ecn_option(&[0, 0, 0]));
            t.expect(ack(1).and(ace(field)).reason(Reason::ChallengeAck));
        }
        assert!(!t.connection.accurate_ecn_failed());
        assert_eq!(t.connection.accurate_ecn_seen(), AccurateEcnSeen::Counters);
        t.write(500);
        assert_eq!(t.fields(), [EcnField::Ect0]);
        let sent = t.take_sent();
        assert_eq!((ace_of(&sent), sent.options.accurate_ecn.is_some()), (5, true));
    }
}

/// Section 3.2.2.1: only a challenge ACK of its own reflects the SYN-ACK that came again. An ACK of data does not: the peer takes its field
/// for a count.
#[test]
fn rfc9768_3_2_2_1_an_ack_of_data_reflects_nothing() {
    let mut t = agreed(rfc());
    t.inject(seg().data(1_000).and(ace(5)));
    t.expect_nothing();
    t.inject_as(Disposition::DuplicateData, syn_ack().and(ace(0b010)));
    t.expect(ack(1_001).and(ace(5)).reason(Reason::ChallengeAck));
    // No budget for a challenge ACK is left.
    let mut config = rfc();
    config.limits.challenge_acks_per_second = 0;
    let mut t = agreed(config);
    t.inject_as(Disposition::DuplicateData, syn_ack().and(ace(0b010)));
    t.expect_nothing();
    t.inject(seg().data(1_000).and(ace(5)));
    t.inject(seg().data(1_000).and(ace(5)));
    t.expect(ack(2_001).and(ace(5)));
}

/// Section 3.2.2.5.2: a newer timestamp makes the count of its own segment news, not that of the next one, which begins before the window.
#[test]
fn rfc9768_3_2_2_5_2_a_timestamp_counts_once() {
    let mut config = rfc();
    config.timestamps = Profile::Linux6Reno.config().timestamps;
    let mut t = Script::connect(config);
    t.expect(our_syn().and(ALL_FLAGS));
    t.at(50).inject(syn_ack().ts(PEER_CLOCK, OUR_CLOCK).and(ace(0b010)));
    t.forget_sent();
    t.at(100).inject(seg().and(ace(5)));
    t.inject_as(Disposition::OutsideWindow, seg().seq(0).and(ace(7)));
    t.forget_sent();
    assert_eq!(t.connection.delivered_ce(), 0);
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
}

/// Section 3.2.2: the field counts packets with CE, pure ACKs among them, from 5 and modulo 8.
#[test]
fn rfc9768_3_2_2_marks_are_counted() {
    for config in [rfc(), linux()] {
        let mut t = agreed(config);
        for n in 0..10 {
            t.inject_marked(seg().data(100).and(ace(5)));
            t.forget_sent();
            t.at(50 + 200 * (n + 1));
            t.forget_sent();
            assert_eq!(u64::from(t.connection.received_ce()), n + 1);
        }
        t.inject_marked(seg().and(ace(5)));
        t.write(1_000);
        let segment = t.take_sent();
        assert_eq!(ace_of(&segment), (5 + 11) % 8);
        assert!(!segment.flags.contains(Flags::URG));
    }
}

/// A mark reduces the window once for what is outstanding, as an echo of RFC 3168 does; CWR is not a signal.
#[test]
fn rfc9768_3_2_2_a_count_that_grows_reduces_once_in_a_round() {
    let mut t = agreed(rfc());
    t.write(40_000);
    assert_eq!(t.forget_sent(), 10);
    t.at(100).inject(seg().ack(1_001).and(ace(6)));
    assert_eq!((t.connection.cwnd(), t.connection.ssthresh()), (4, Some(4)));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Cwr);
    t.inject(seg().ack(3_001).and(ace(0)));
    assert_eq!((t.connection.cwnd(), t.connection.delivered_ce()), (4, 3), "once");
    t.expect_nothing();
    t.inject(seg().ack(7_001).and(ace(0)));
    t.expect(data(10_001, 11_001).and(ace(5)));
    // Counts that do not grow end the reduction, when what was sent after it is acknowledged.
    t.at(150).inject(seg().ack(11_001).and(ace(0)));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
    t.forget_sent();
}

/// Section 3.2.2.5.2: an ACK that brings nothing new may have been overtaken, and its count is old.
#[test]
fn rfc9768_3_2_2_5_2_an_overtaken_ack_counts_nothing() {
    let mut t = agreed(rfc());
    t.write(5_000);
    t.forget_sent();
    t.at(100).inject(seg().ack(2_001).and(ace(7)));
    assert_eq!(t.connection.delivered_ce(), 2);
    t.inject(seg().ack(1_001).and(ace(6)));
    t.inject(seg().ack(2_001).and(ace(6)));
    assert_eq!(t.connection.delivered_ce(), 2);
}

/// Section 3.2.2.5.2, appendix A.2.1: an ACK of eight packets and more may report eight marks more than its field shows, and the safest
/// count is taken.
#[test]
fn rfc9768_3_2_2_5_2_a_large_ack_is_decoded_safely() {
    let mut t = agreed(rfc());
    t.write(10_000);
    t.forget_sent();
    t.at(100).inject(seg().ack(10_001).and(ace(6)));
    assert_eq!(t.connection.delivered_ce(), 9);
}

/// Section 3.2.2.5.1: data with the first mark is acknowledged at once, as is every second mark.
#[test]
fn rfc9768_3_2_2_5_1_marks_hasten_the_ack() {
    let mut t = agreed(rfc());
    t.inject(seg().data(400).and(ace(5)));
    t.expect_nothing();
    t.inject_marked(seg().data(400).and(ace(5)));
    t.expect(ack(801).and(ace(6)));
    t.inject_marked(seg().data(100).and(ace(5)));
    t.expect_nothing();
    t.inject_marked(seg().data(100).and(ace(5)));
    t.expect(ack(1_001).and(ace(0)));
    // Without data three.
    for _ in 0..2 {
        t.inject_marked(seg().and(ace(5)));
        t.expect_nothing();
    }
    t.inject_marked(seg().and(ace(5)));
    t.expect(ack(1_001).and(ace(3)));
    // Two, if data waits for its ACK.
    t.inject(seg().data(100).and(ace(5)));
    t.inject_marked(seg().and(ace(5)));
    t.expect_nothing();
    t.inject_marked(seg().and(ace(5)));
    t.expect(ack(1_101).and(ace(5)));
}

/// Linux acknowledges data at once whose ECN field differs from that of the packet before.
#[test]
fn linux_any_change_of_the_ecn_field_hastens_the_ack() {
    let mut config = Profile::Linux6Reno.config();
    config.ecn = Ecn::RequestAccurate;
    config.timestamps = None;
    config.mss = 1000;
    let mut t = Script::connect(config);
    t.expect(our_syn().and(ALL_FLAGS));
    t.at(50).inject(syn_ack().wscale(0).sack_ok().and(ace(0b010)));
    t.expect(ack(1).and(ace(0b010)));
    // The first segments are acknowledged at once in any case.
    for _ in 0..20 {
        t.inject(seg().data(1_000).and(ace(5)));
        t.forget_sent();
    }
    t.inject(seg().data(100).and(ace(5)));
    t.expect_nothing();
    for field in [EcnField::Ect0, EcnField::Ce, EcnField::Ect1] {
        t.inject_with(field, seg().data(100).and(ace(5)));
        assert_eq!(t.forget_sent(), 1, "{field:?}");
    }
}

/// Section 3.2.2.3: what the peer says of our SYN-ACK or SYN cannot be: the network rewrites the ECN field.
#[test]
fn rfc9768_3_2_2_3_a_rewritten_ecn_field_ends_capable_packets() {
    for reflection in [0b011, 0b100, 0b110] {
        let mut t = Script::connect(rfc());
        t.expect(our_syn().and(ALL_FLAGS));
        t.at(50).inject(syn_ack().and(ace(reflection)));
        t.expect(ack(1).and(ace(0b010)));
        t.write(1_000);
        assert_eq!(t.fields(), [EcnField::NotEct]);
        t.forget_sent();
        let mut t = Script::accept(rfc(), syn().and(ALL_FLAGS));
        t.expect(our_syn_ack().and(ace(0b010)));
        t.at(50).inject(seg().ack(1).and(ace(reflection)));
        assert!(t.connection.accurate_ecn_failed());
        t.write(1_000);
        assert_eq!(t.fields(), [EcnField::NotEct]);
        t.forget_sent();
    }
    let mut config = rfc();
    config.accurate_ecn.fallback = false;
    let mut t = Script::connect(config);
    t.expect(our_syn().and(ALL_FLAGS));
    t.at(50).inject(syn_ack().and(ace(0b100)));
    t.forget_sent();
    t.write(1_000);
    assert_eq!(t.fields(), [EcnField::Ect0], "without fallback");
    t.forget_sent();
}

/// Section 3.2.2.2: sending begins with one segment if the peer has reported CE of our SYN or SYN-ACK. The count of marks is that of the
/// other end: the SYN is not in it.
#[test]
fn rfc9768_3_2_2_2_a_mark_of_the_handshake_reduces_the_window() {
    for (config, cwnd) in [(rfc(), 1), (linux(), 10)] {
        let mut t = Script::connect(config.clone());
        t.expect(our_syn().and(ALL_FLAGS));
        t.at(50).inject(syn_ack().and(ace(0b110)));
        t.expect(ack(1).and(ace(0b010)));
        t.expect_cwnd(cwnd, None);
        assert_eq!(t.connection.delivered_ce(), 0);
        let mut t = Script::accept(config, syn().and(ALL_FLAGS));
        t.expect(our_syn_ack().and(ace(0b010)));
        t.at(50).inject(seg().ack(1).and(ace(0b110)));
        t.expect_cwnd(cwnd, None);
    }
    // Slow start goes on from there.
    let mut t = Script::connect(rfc());
    t.expect(our_syn().and(ALL_FLAGS));
    t.at(50).inject(syn_ack().and(ace(0b110)));
    t.expect(ack(1).and(ace(0b010)));
    t.write(5_000);
    t.expect(data(1, 1_001).and(ace(5)));
    t.expect_nothing();
    t.at(100).inject(seg().ack(1_001).and(ace(5)));
    t.expect(data(1_001, 2_001).and(ace(5)));
    t.expect(data(2_001, 3_001).and(ace(5)));
    t.expect_nothing();
}

/// Section 3.2.3.2.5: the option reports bytes with CE, and the field no packet: something rewrites one of them.
#[test]
fn rfc9768_3_2_3_2_5_bytes_without_packets_end_capable_packets() {
    for (config, field, fails) in [(rfc(), 5, true), (rfc(), 6, false), (linux(), 5, false)] {
        let mut t = agreed(config);
        t.write(3_000);
        t.forget_sent();
        t.at(100).inject(seg().ack(1_001).and(ace(5)).ecn_option(&[1_001, 0, 1]));
        t.inject(seg().ack(2_001).and(ace(field)).ecn_option(&[1_001, 1_000, 1]));
        assert_eq!(t.connection.accurate_ecn_failed(), fails, "{field}");
        t.inject(seg().ack(3_001).and(ace(field)).ecn_option(&[2_001, 1_000, 1]));
        t.write(500);
        assert_eq!(t.fields(), [if fails { EcnField::NotEct } else { EcnField::Ect0 }]);
        t.forget_sent();
    }
}

/// Section 3.2.2.1: data that is written before the SYN-ACK is acknowledged waits for a pure ACK, which reflects the SYN-ACK's field.
#[test]
fn rfc9768_3_2_2_1_the_reflection_goes_before_data() {
    let mut t = Script::connect(rfc());
    t.expect(our_syn().and(ALL_FLAGS));
    t.write(500);
    t.expect_nothing();
    t.at(50).inject_with(EcnField::Ect0, syn_ack().and(ace(0b010)));
    t.expect(ack(1).seq(1).and(ace(0b100)).reason(Reason::HandshakeAck));
    t.expect(data(1, 501).and(ace(5)));
}

/// Section 3.2.2.4: a field of 0 in the first segment after the handshake was overwritten; its counts are not believed.
#[test]
fn rfc9768_3_2_2_4_a_zeroed_field_ends_capable_packets() {
    let mut t = agreed(rfc());
    t.write(2_000);
    t.forget_sent();
    t.at(100).inject(seg().ack(1_001));
    assert!(t.connection.accurate_ecn_failed());
    t.inject(seg().ack(2_001));
    assert_eq!((t.connection.delivered_ce(), t.connection.recovery_state()), (0, RecoveryState::Open));
    t.write(1_000);
    assert_eq!(t.fields(), [EcnField::NotEct]);
    t.forget_sent();
    // As in the ACK that ends the handshake (table 4).
    for config in [rfc(), linux()] {
        let mut t = Script::accept(config, syn().and(ALL_FLAGS));
        t.expect(our_syn_ack().and(ace(0b010)));
        t.at(50).inject(seg().ack(1));
        assert!(t.connection.accurate_ecn_failed());
        assert_eq!(t.connection.ecn_feedback(), EcnFeedback::Accurate, "marks of the peer's packets are reported");
    }
}

/// RFC 3168 sections 6.1.4 and 6.1.5: only new data is ECN-capable. Linux sends all but SYNs so.
#[test]
fn rfc3168_6_1_what_is_capable_under_accurate_feedback() {
    for (config, other) in [(rfc(), EcnField::NotEct), (linux(), EcnField::Ect0)] {
        let mut t = agreed(config);
        t.write(1_000);
        assert_eq!(t.fields(), [EcnField::Ect0]);
        t.forget_sent();
        t.at(1_050);
        assert_eq!(t.fields(), [other], "by a timer");
        t.forget_sent();
        t.inject(seg().data(1_000).ack(1_001).and(ace(5)));
        t.inject(seg().data(1_000).ack(1_001).and(ace(5)));
        assert_eq!(t.fields()[0], other, "an ACK");
        t.forget_sent();
    }
}

/// The SYN-ACK once more, after the handshake: the answer reflects it.
#[test]
fn rfc5961_4_2_the_challenge_of_a_syn_ack_reflects_it() {
    let mut t = agreed(rfc());
    let again = syn_ack().and(ace(0b010));
    t.at(1_000).inject_with_as(EcnField::Ect0, Disposition::DuplicateData, again);
    assert_eq!(ace_of(&t.take_sent()), 0b100);
    t.write(1_000);
    t.expect(data(1, 1_001).and(ace(5)));
}

/// Both ends ask at the same time: SYNs have crossed, and both agree.
#[test]
fn rfc9768_3_1_2_crossed_syns_agree() {
    let mut t = Script::connect(rfc());
    t.expect(our_syn().and(ALL_FLAGS));
    t.at(50).inject(syn().and(ALL_FLAGS));
    t.expect(our_syn_ack().and(ace(0b010)));
    assert_eq!(t.connection.ecn_feedback(), EcnFeedback::Accurate);
    t.inject_marked(syn_ack().and(ace(0b010)));
    t.expect(ack(1).and(ace(6)));
    t.write(1_000);
    t.expect(data(1, 1_001).and(ace(6)));
    // Timeouts of our SYN are none of the SYN-ACK, which has its flags.
    let mut t = Script::connect(rfc());
    t.expect(our_syn().and(ALL_FLAGS));
    t.at(1_000).expect(our_syn().and(ALL_FLAGS));
    t.at(3_000).expect(our_syn());
    t.at(3_100).inject(syn().and(ALL_FLAGS));
    t.expect(our_syn_ack().and(ace(0b010)));
}

/// A listener's connection counts as its peer's does.
#[test]
fn rfc9768_3_2_2_both_ends_count() {
    let mut t = accepted(rfc());
    t.inject_marked(seg().data(1_000).and(ace(5)));
    t.expect(ack(1_001).and(ace(6)));
    t.write(1_000);
    t.expect(data(1, 1_001).and(ace(6)));
    t.inject(seg().ack(1_001).and(ace(6)));
    assert_eq!(t.connection.delivered_ce(), 1);
}
