//! ICMP errors: RFC 6069, backoff that an unreachable reverts; RFC 9293 section 3.9.2.2, hard and soft errors; RFC 1191 and
//! RFC 8201, paths with a smaller MTU.

use holdover_base::Duration;
use holdover_tcp::{Config, ConnectionError, Event, IcmpEffect, Profile, Reason, RetryLimit, State, Timer};
use holdover_wire::Unreachable;

use crate::script::*;

/// An ICMP error that quotes the segment at `quoted`, which is relative to SND.UNA.
fn icmp(t: &mut Script, kind: Unreachable, quoted: i64) -> IcmpEffect {
    let seq = t.connection.snd_una() + quoted as u32;
    t.steer(|connection, now| connection.handle_icmp(now, kind, seq))
}

/// 3000 bytes outstanding, retransmitted at 1, 3 and 7 s: the next timeout is at 15 s.
fn backed_off() -> Script {
    let mut t = Script::established(plain());
    t.write(3000);
    t.expect_segments(1, 3001, Reason::NewData);
    for at in [1000, 3000, 7000] {
        t.at(at).expect(data(1, 1001).reason(Reason::Timeout));
    }
    t.expect_timer(Timer::Retransmit, 15_000);
    t
}

/// Section 3: each message undoes one doubling; the rest of the shorter timeout remains.
#[test]
fn rfc6069_3_an_unreachable_reverts_one_backoff() {
    for kind in [Unreachable::Network, Unreachable::Host] {
        let mut t = backed_off();
        t.at(7500);
        assert_eq!(icmp(&mut t, kind, 0), IcmpEffect::BackoffReverted);
        assert_eq!((t.connection.backoff(), t.connection.rto()), (2, Duration::from_secs(4)));
        t.expect_timer(Timer::Retransmit, 11_000);
        assert_eq!(icmp(&mut t, kind, 0), IcmpEffect::BackoffReverted);
        t.expect_timer(Timer::Retransmit, 9000);
        t.at(9000).expect(data(1, 1001).reason(Reason::Timeout));
    }
}

/// ... or, if none remains, the segment is retransmitted at once.
#[test]
fn rfc6069_3_nothing_remains_of_the_shorter_timeout() {
    let mut t = backed_off();
    t.at(12_000);
    assert_eq!(icmp(&mut t, Unreachable::Host, 0), IcmpEffect::BackoffReverted);
    t.expect(data(1, 1001).reason(Reason::Timeout));
    t.expect_timer(Timer::Retransmit, 12_000 + 8000);
}

/// Only for the segment at SND.UNA, only after a timeout, only in a synchronized state, and not for an exceeded hop limit.
#[test]
fn rfc6069_3_what_reverts_nothing() {
    let mut t = backed_off();
    assert_eq!(icmp(&mut t, Unreachable::Host, 1000), IcmpEffect::SoftError);
    assert_eq!(icmp(&mut t, Unreachable::TimeExceeded { code: 0 }, 0), IcmpEffect::SoftError);
    assert_eq!(icmp(&mut t, Unreachable::Port, 0), IcmpEffect::SoftError);
    t.expect_timer(Timer::Retransmit, 15_000);
    t.expect_event(Event::SoftError);
    // RFC 5927: a sequence number that is not outstanding cannot have caused the error.
    assert_eq!(icmp(&mut t, Unreachable::Host, -1), IcmpEffect::Ignored);
    assert_eq!(icmp(&mut t, Unreachable::Host, 3000), IcmpEffect::Ignored);
    let mut t = Script::established(plain());
    t.write(10);
    t.expect(data(1, 11));
    assert_eq!(icmp(&mut t, Unreachable::Host, 0), IcmpEffect::SoftError);
    t.expect_timer(Timer::Retransmit, 1000);
    let mut t = Script::in_state(State::SynSent, plain());
    t.at(1000).expect(our_syn());
    assert_eq!(icmp(&mut t, Unreachable::Host, 0), IcmpEffect::SoftError);
    t.expect_timer(Timer::Retransmit, 3000);
}

/// Linux takes an error that quotes SND.NXT, as it does one about an ACK without data (`tcp_v4_err`).
#[test]
fn linux_takes_an_error_about_what_it_sends_next() {
    for (config, effect) in [(plain(), IcmpEffect::Ignored), (Profile::Linux6Reno.config(), IcmpEffect::SoftError)] {
        let mut t = Script::established(config);
        assert_eq!(icmp(&mut t, Unreachable::Host, 0), effect, "nothing is outstanding");
        t.write(10);
        t.expect(data(1, 11));
        assert_eq!(icmp(&mut t, Unreachable::Host, 10), effect);
        assert_eq!(icmp(&mut t, Unreachable::Host, 11), IcmpEffect::Ignored);
    }
}

/// RFC 9293 section 3.9.2.2 with RFC 5461: a hard error ends a connection attempt, and nothing else.
#[test]
fn rfc9293_3_9_2_2_hard_errors() {
    for kind in [Unreachable::Protocol, Unreachable::Port, Unreachable::AdministrativelyProhibited] {
        for state in [State::SynSent, State::SynReceived] {
            let mut t = Script::in_state(state, plain());
            assert_eq!(icmp(&mut t, kind, 0), IcmpEffect::Aborted);
            t.expect_state(State::Closed);
            assert_eq!(t.connection.error(), Some(ConnectionError::Unreachable));
            t.expect_nothing_until(100_000);
        }
        let mut t = Script::established(plain());
        t.write(10);
        t.expect(data(1, 11));
        assert_eq!(icmp(&mut t, kind, 0), IcmpEffect::SoftError);
        t.expect_state(State::Established);
        t.expect_event(Event::SoftError);
    }
}

#[test]
fn rfc9293_3_9_2_2_soft_errors() {
    for kind in [Unreachable::Network, Unreachable::Host, Unreachable::TimeExceeded { code: 0 }] {
        let mut t = Script::in_state(State::SynSent, plain());
        assert_eq!(icmp(&mut t, kind, 0), IcmpEffect::SoftError);
        t.expect_state(State::SynSent);
        t.expect_event(Event::SoftError);
        t.at(1000).expect(our_syn());
    }
    let mut t = Script::in_state(State::Closed, plain());
    assert_eq!(icmp(&mut t, Unreachable::Port, -1), IcmpEffect::Ignored);
}

/// A retransmission whose doubling is undone was not an attempt over a working path: where R2 is a number of retransmissions,
/// messages do not make it come sooner.
#[test]
fn rfc6069_messages_do_not_end_a_connection() {
    let mut config = plain();
    config.limits.r2 = RetryLimit::Retries(5);
    let mut t = Script::established(config);
    t.write(1000);
    t.expect(data(1, 1001));
    for at in [1000, 3000, 7000] {
        t.at(at).expect(data(1, 1001).reason(Reason::Timeout));
    }
    t.at(14_900);
    for _ in 0..20 {
        assert_eq!(t.connection.state(), State::Established);
        icmp(&mut t, Unreachable::Host, 0);
    }
    t.expect(data(1, 1001).reason(Reason::Timeout));
    assert!(t.connection.retransmits() <= 2, "{}", t.connection.retransmits());
}

/// The segments that were too big are cut and retransmitted, which is not a sign of congestion.
#[test]
fn rfc1191_6_5_what_is_too_big_is_cut_up_and_sent_again() {
    let mut t = Script::established(plain());
    t.write(2500);
    t.expect_segments(1, 2001, Reason::NewData);
    t.shutdown();
    t.expect(data(2001, 2501).and_fin());
    assert_eq!(icmp(&mut t, Unreachable::PacketTooBig { mtu: 800 }, 1000), IcmpEffect::SmallerSegments);
    assert_eq!(t.connection.snd_mss(), 760);
    t.expect(data(1, 761).reason(Reason::LossRecovery));
    t.expect(data(761, 1001).reason(Reason::LossRecovery));
    t.expect(data(1001, 1761).reason(Reason::LossRecovery));
    t.expect(data(1761, 2001).reason(Reason::LossRecovery));
    t.expect_cwnd(10, None);
    // The last segment was small enough, and arrives: its duplicate ACKs are not a sign of congestion either.
    (0..5).for_each(|_| t.inject(seg()));
    t.expect_nothing();
    t.expect_cwnd(10, None);
    t.inject(seg().ack(2502));
    t.expect_state(State::FinWait2);
    assert_eq!(t.connection.counters().recoveries, 0);
}

#[test]
fn rfc1191_new_segments_are_smaller() {
    let mut t = Script::established(plain());
    t.write(10);
    t.expect(data(1, 11));
    assert_eq!(icmp(&mut t, Unreachable::PacketTooBig { mtu: 640 }, 0), IcmpEffect::SmallerSegments);
    t.expect_nothing();
    t.write(1200);
    t.expect(data(11, 611));
    t.expect(data(611, 1211));
    t.forget_sent();
}

/// A larger MTU than the known one, a message that quotes nothing outstanding, and an MTU that no path has.
#[test]
fn rfc1191_what_is_not_believed() {
    let mut t = Script::established(plain());
    t.write(1000);
    t.expect(data(1, 1001));
    for mtu in [1040, 1500, 65_535, 4_000_000_000] {
        assert_eq!(icmp(&mut t, Unreachable::PacketTooBig { mtu }, 0), IcmpEffect::Ignored);
    }
    assert_eq!(icmp(&mut t, Unreachable::PacketTooBig { mtu: 600 }, 1000), IcmpEffect::Ignored);
    assert_eq!(icmp(&mut t, Unreachable::PacketTooBig { mtu: 68 }, 0), IcmpEffect::SmallerSegments);
    assert_eq!(t.connection.snd_mss(), 512, "as if it were 552");
    t.expect(data(1, 513));
    t.expect(data(513, 1001));
}

/// Section 7.1: a router from before RFC 1191 does not report its MTU. It is taken to be the next plateau, until the least that is believed.
// Claim: If an IPv4 router reports no MTU, it is taken to be the next smaller common one, and under the profiles of Linux 6 the least that is
// believed, as by Linux 6.18.
#[test]
fn rfc1191_7_1_an_mtu_that_is_not_reported_is_guessed() {
    let unreported = Unreachable::PacketTooBig { mtu: 0 };
    let mut t = Script::established(plain());
    t.write(1000);
    t.expect(data(1, 1001));
    for expected in [966, 512] {
        assert_eq!(icmp(&mut t, unreported, 0), IcmpEffect::SmallerSegments);
        assert_eq!(t.connection.snd_mss(), expected);
        t.expect(data(1, 1 + i64::from(expected)).reason(Reason::LossRecovery));
        t.forget_sent();
    }
    assert_eq!(icmp(&mut t, unreported, 0), IcmpEffect::Ignored);
    let mut t = Script::established(Config { path_mtu: Profile::Linux6Cubic.config().path_mtu, ..plain() });
    t.write(1000);
    t.expect(data(1, 1001));
    assert_eq!(icmp(&mut t, unreported, 0), IcmpEffect::SmallerSegments);
    t.expect(data(1, 513).reason(Reason::LossRecovery));
    t.expect(data(513, 1001).reason(Reason::LossRecovery));
}

/// Section 5: the plateau is that below the packet that was dropped. Ten segments of a flight are dropped and reported one after another, while
/// the first of them are already retransmitted.
#[test]
fn rfc1191_5_the_reports_of_one_flight_lower_the_mtu_once() {
    let mut t = Script::connect(Config { mss: 1_460, ..plain() });
    t.expect(our_syn());
    t.inject(syn_ack().mss(1_460));
    t.expect(ack(1).reason(Reason::HandshakeAck));
    let unreported = Unreachable::PacketTooBig { mtu: 0 };
    t.write(14_600);
    (0..10).for_each(|index| t.expect(data(1 + 1_460 * index, 1_461 + 1_460 * index)));
    let una = t.connection.snd_una();
    let mut report = |index: u32, packet_len| {
        let seq = una + 1_460 * index;
        let effect = t.steer(|connection, now| connection.handle_icmp_about(now, unreported, seq, packet_len));
        t.forget_sent();
        (effect, t.connection.snd_mss())
    };
    assert_eq!(report(0, 1_500), (IcmpEffect::SmallerSegments, 1_452));
    for index in 1..10 {
        assert_eq!(report(index, 1_500), (IcmpEffect::Ignored, 1_452), "{index}");
    }
    // The retransmission of the first is dropped as well.
    assert_eq!(report(0, 1_492), (IcmpEffect::SmallerSegments, 966));
    assert_eq!(report(1, 1_492), (IcmpEffect::Ignored, 966));
}

/// RFC 8201 section 4: less than 1280 bytes, or no MTU at all, is not believed.
#[test]
fn rfc8201_4_no_path_of_ipv6_has_an_mtu_below_1280() {
    let mut t = Script::connect_over_ipv6(Config { mss: 1_440, ..plain() });
    t.expect(our_syn());
    t.inject(syn_ack().mss(1_440));
    t.expect(ack(1).reason(Reason::HandshakeAck));
    t.write(1_440);
    t.expect(data(1, 1_441));
    for mtu in [0, 1, 68, 552, 1_279, 1_500, u32::MAX] {
        assert_eq!(icmp(&mut t, Unreachable::PacketTooBig { mtu }, 0), IcmpEffect::Ignored, "{mtu}");
    }
    assert_eq!(icmp(&mut t, Unreachable::PacketTooBig { mtu: 1_280 }, 0), IcmpEffect::SmallerSegments);
    assert_eq!(t.connection.snd_mss(), 1_220);
    t.expect(data(1, 1_221).reason(Reason::LossRecovery));
    t.expect(data(1_221, 1_441).reason(Reason::LossRecovery));
}
