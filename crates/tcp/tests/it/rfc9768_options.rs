//! RFC 9768 section 3.2.3: the options of accurate ECN, which count bytes.

use holdover_tcp::{
    AccurateEcnOption, AccurateEcnRules, AccurateEcnSeen, Config, Disposition, EcnBytes, EcnField, Profile, Timer,
};
use holdover_wire::{AccurateEcn, EcnCounter, Segment};

use crate::rfc9768::{ALL_FLAGS, ace, config, rfc};
use crate::script::*;

fn with_option() -> Config {
    let mut config = rfc();
    config.accurate_ecn.option = AccurateEcnOption::Full;
    config
}

fn fields_of(segment: &Segment) -> Vec<(EcnCounter, u32)> {
    segment.options.accurate_ecn.iter().flat_map(|option| option.fields().collect::<Vec<_>>()).collect()
}

/// Section 3.2.3: bytes are counted by their codepoint; where options of the peer were seen, every segment reports them, and the data makes
/// room.
#[test]
fn rfc9768_3_2_3_bytes_are_counted() {
    let mut t = Script::connect(with_option());
    t.expect(our_syn().and(ALL_FLAGS));
    t.at(50).inject(syn_ack().and(ace(0b010)).ecn_option(&[1, 0, 1]));
    let ack = t.take_sent();
    assert_eq!(fields_of(&ack), [(EcnCounter::Ect1, 1), (EcnCounter::Ce, 0), (EcnCounter::Ect0, 1)]);
    t.write(1_000);
    assert_eq!(t.take_sent().payload.len(), 988);
    t.forget_sent();
    t.inject_with(EcnField::Ect0, seg().data(300).and(ace(5)));
    t.forget_sent();
    t.inject_with(EcnField::Ect1, seg().data(200).and(ace(5)));
    t.forget_sent();
    t.inject_marked(seg().data(100).and(ace(5)));
    let bytes = EcnBytes { ect0: 300, ect1: 200, ce: 100 };
    assert_eq!(t.connection.received_ecn_bytes(), bytes);
    let last = t.take_sent();
    assert_eq!(fields_of(&last), [(EcnCounter::Ect1, 201), (EcnCounter::Ce, 100), (EcnCounter::Ect0, 301)]);
}

/// Section 3.2.3.2.3: options are sent although none of the peer's has arrived: the path may drop those of one direction only. Linux sends
/// none.
#[test]
fn rfc9768_3_2_3_2_3_options_without_the_peers() {
    for (rules, sends) in [(AccurateEcnRules::Rfc9768, true), (AccurateEcnRules::Linux, false)] {
        let mut config = config(rules);
        config.accurate_ecn.option = AccurateEcnOption::Full;
        let mut t = Script::connect(config);
        t.expect(our_syn().and(ALL_FLAGS));
        t.at(50).inject(syn_ack().and(ace(0b010)));
        assert_eq!(t.take_sent().options.accurate_ecn.is_some(), sends);
        t.write(500);
        assert_eq!(t.take_sent().options.accurate_ecn.is_some(), sends);
        assert_eq!(t.connection.accurate_ecn_seen(), AccurateEcnSeen::Nothing);
    }
}

/// Section 3.2.3.2.4: counters that begin with 0 were overwritten, and are not believed.
#[test]
fn rfc9768_3_2_3_2_zeroed_counters_are_ignored() {
    let mut t = Script::connect(with_option());
    t.expect(our_syn().and(ALL_FLAGS));
    t.at(50).inject(syn_ack().and(ace(0b010)).ecn_option(&[0, 0, 0]));
    t.forget_sent();
    assert_eq!(t.connection.accurate_ecn_seen(), AccurateEcnSeen::Mangled);
    t.write(5_000);
    t.forget_sent();
    t.at(100).inject(seg().ack(2_001).and(ace(5)).ecn_option(&[5_000, 9_000, 1]));
    assert_eq!(t.connection.delivered_ecn_bytes(), EcnBytes::default());
}

/// Section 3.2.3.2.2: an option that seems to cost the segment that carries it is left out from then on: when the same duplicate came
/// again twice although it was reported, under Linux once.
#[test]
fn rfc9768_3_2_3_2_options_that_get_lost_are_left_out() {
    for (rules, with_option) in [(AccurateEcnRules::Rfc9768, 2), (AccurateEcnRules::Linux, 1)] {
        let mut config = config(rules);
        config.accurate_ecn.option = AccurateEcnOption::Full;
        config.sack = true;
        let mut t = Script::connect(config);
        t.expect(our_syn().and(ALL_FLAGS));
        t.at(50).inject(syn_ack().sack_ok().and(ace(0b010)).ecn_option(&[1, 0, 1]));
        t.forget_sent();
        t.inject(seg().data(1_000).and(ace(5)));
        t.inject(seg().data(1_000).and(ace(5)));
        assert_eq!(t.take_sent().options.accurate_ecn.map(|option| option.len()), Some(3));
        // A byte that may be a keep-alive may come again more often.
        for _ in 0..4 {
            t.inject_as(Disposition::DuplicateData, seg().seq(2_000).data(1).and(ace(5)));
            assert!(t.take_sent().options.accurate_ecn.is_some());
        }
        for n in 0..=with_option {
            t.inject_as(Disposition::DuplicateData, seg().seq(1_001).data(1_000).and(ace(5)));
            let answer = t.take_sent();
            assert_eq!(answer.options.accurate_ecn.is_some(), n < with_option, "{rules:?}, {n}");
            assert!(!answer.options.sack.is_empty());
        }
    }
}

/// ... and so is one whose data is not acknowledged before the timer runs out, until data is acknowledged; at the second such timeout for
/// good.
#[test]
fn rfc9768_3_2_3_2_a_timeout_ends_options_that_never_passed() {
    let mut t = Script::connect(with_option());
    t.expect(our_syn().and(ALL_FLAGS));
    t.at(50).inject(syn_ack().and(ace(0b010)).ecn_option(&[1, 0, 1]));
    t.forget_sent();
    t.write(500);
    assert!(t.take_sent().options.accurate_ecn.is_some());
    t.at(1_050);
    assert!(t.take_sent().options.accurate_ecn.is_none());
    t.at(1_100).inject(seg().ack(501).and(ace(5)));
    t.write(500);
    assert!(t.take_sent().options.accurate_ecn.is_some());
    let timeout = t.connection.deadline(Timer::Retransmit).unwrap().saturating_since(t.instant(0));
    t.at_micros(timeout.as_micros());
    assert!(t.take_sent().options.accurate_ecn.is_none());
    t.inject(seg().ack(1_001).and(ace(5)));
    t.write(500);
    assert!(t.take_sent().options.accurate_ecn.is_none());
    // Once data with options was acknowledged, a timeout is not such a sign.
    let mut t = Script::connect(with_option());
    t.expect(our_syn().and(ALL_FLAGS));
    t.at(50).inject(syn_ack().and(ace(0b010)).ecn_option(&[1, 0, 1]));
    t.forget_sent();
    t.write(500);
    t.forget_sent();
    t.at(100).inject(seg().ack(501).and(ace(5)));
    t.write(500);
    t.forget_sent();
    t.at(1_100);
    assert!(t.take_sent().options.accurate_ecn.is_some());
}

/// Section 3.2.3.3: under the minimum an option is sent when a counter changes, and three in a round trip.
#[test]
fn rfc9768_3_2_3_3_the_minimum_of_options() {
    let mut config = with_option();
    config.accurate_ecn.option = AccurateEcnOption::Minimum;
    config.accurate_ecn.beacons = 0;
    let mut t = Script::accept(config, syn().and(ALL_FLAGS));
    t.forget_sent();
    t.at(100).inject(seg().ack(1).and(ace(0b010)).ecn_option(&[1, 0, 1]));
    let sends_option = |t: &mut Script, field| {
        t.write(100);
        let has = t.take_sent().options.accurate_ecn.is_some();
        let acked = t.snd_nxt();
        t.inject_with(field, seg().ack(acked).and(ace(5)));
        has
    };
    assert!(sends_option(&mut t, EcnField::NotEct), "the first segment");
    assert!(!sends_option(&mut t, EcnField::NotEct));
    t.inject_with(EcnField::Ect0, seg().data(100).and(ace(5)));
    t.forget_sent();
    let sent = [(); 4].map(|()| sends_option(&mut t, EcnField::Ect0));
    assert_eq!(sent.iter().filter(|&&has| has).count(), 2, "two after a change, {sent:?}");
    // With beacons, one when a third of a round trip has passed.
    let mut config = t.connection.config().accurate_ecn;
    config.beacons = 3;
    t.connection.set_accurate_ecn(config);
    t.at(1_000).forget_sent();
    assert!(sends_option(&mut t, EcnField::Ect0));
    assert!(!sends_option(&mut t, EcnField::Ect0));
    t.at(1_100).forget_sent();
    assert!(sends_option(&mut t, EcnField::Ect0));
}

/// Section 3.2.3.3: the option shares 40 bytes with timestamps and SACK blocks. A third block yields to counters that have changed;
/// otherwise the option does.
#[test]
fn rfc9768_3_2_3_3_options_share_their_room() {
    let mut config = with_option();
    config.sack = true;
    config.timestamps = Profile::Linux6Reno.config().timestamps;
    let mut t = Script::accept(config, syn().sack_ok().ts(PEER_CLOCK, 0).and(ALL_FLAGS));
    t.forget_sent();
    t.at(50).inject(seg().ack(1).and(ace(0b010)).ecn_option(&[1, 0, 1]));
    let blocks = |t: &mut Script, field, start: i64| {
        t.inject_with(field, seg().seq(start).data(1_000).and(ace(5)));
        let options = t.take_sent().options;
        assert!(options.aligned_len() <= Segment::MAX_OPTIONS_LEN);
        (options.sack.len(), options.accurate_ecn.as_ref().map_or(0, AccurateEcn::len))
    };
    assert_eq!(blocks(&mut t, EcnField::Ect1, 1_001), (1, 3));
    assert_eq!(blocks(&mut t, EcnField::Ect1, 3_001), (2, 2));
    assert_eq!(blocks(&mut t, EcnField::Ce, 5_001), (2, 2));
    assert_eq!(blocks(&mut t, EcnField::Ect0, 6_001), (3, 0), "ECT(0) is the third counter, which does not fit");
}
