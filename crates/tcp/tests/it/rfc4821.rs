//! RFC 4821, path MTU discovery by probes, with Linux's conditions: `tcp_mtu_probe`, `tcp_mtup_probe_success`, `tcp_mtup_probe_failed` and
//! `tcp_mtu_probing`. What a search does with its range has tests beside it (`tcp/src/path_mtu.rs`).

use holdover_base::Duration;
use holdover_tcp::{
    Config, IcmpEffect, InitialWindow, LossDetection, MtuProbing, MtuRange, PathMtuConfig, Profile, Reason,
    RecoveryState, State,
};
use holdover_wire::Unreachable;

use crate::script::*;

/// Segments of 1000 bytes at first, in packets of 1040; the interface and the peer take 1500. A first probe has 1230 bytes, and needs four
/// segments behind it: 5230 bytes.
fn probing(probing: MtuProbing) -> Config {
    let mut config = plain();
    config.mss = 1460;
    config.sack = true;
    config.recovery.with_sack = LossDetection::Sack;
    config.congestion.initial_window = InitialWindow::Segments(11);
    config.path_mtu = PathMtuConfig { probing, base_mss: 1000, ..config.path_mtu };
    config
}

fn established(config: Config) -> Script {
    let mut t = Script::connect(config);
    t.expect(our_syn());
    t.inject(syn_ack().mss(1460).sack_ok());
    t.expect(ack(1).reason(Reason::HandshakeAck));
    t
}

fn always() -> Script {
    established(probing(MtuProbing::Always))
}

fn range(low: u32, high: u32) -> Option<MtuRange> {
    Some(MtuRange { low, high })
}

/// The probe, and the four segments behind it.
fn probe_sent(t: &mut Script) {
    t.write(5230);
    t.expect(data(1, 1231).reason(Reason::MtuProbe));
    t.expect(data(1231, 2231).reason(Reason::NewData));
    t.expect(data(2231, 3231));
    t.expect(data(3231, 4231));
    t.expect(data(4231, 5231));
}

/// As in Linux.
#[test]
fn rfc4821_probing_is_off_by_default() {
    for profile in Profile::ALL {
        let PathMtuConfig { unreported, .. } = profile.config().path_mtu;
        assert_eq!(profile.config().path_mtu, PathMtuConfig { unreported, ..PathMtuConfig::LINUX }, "{profile}");
    }
    assert_eq!(PathMtuConfig::LINUX.probing, MtuProbing::Off);
    let mut t = established(probing(MtuProbing::Off));
    t.write(5230);
    t.expect(data(1, 1461).reason(Reason::NewData));
    t.forget_sent();
    assert_eq!(t.connection.path_mtu_range(), None);
}

/// Section 7.2: the end that opens the connection begins with segments of `base_mss`. The other one sends full segments until a probe has
/// succeeded, as Linux does.
#[test]
fn rfc4821_7_2_the_search_begins_at_the_base() {
    let mut t = always();
    assert_eq!((t.connection.snd_mss(), t.connection.path_mtu_range()), (1000, range(1040, 1500)));
    t.write(1000);
    t.expect(data(1, 1001));
    let mut t = Script::accept(probing(MtuProbing::Always), syn().mss(1460).sack_ok());
    t.expect(our_syn_ack());
    t.inject(seg().ack(1));
    assert_eq!((t.connection.snd_mss(), t.connection.path_mtu_range()), (1460, range(1040, 1500)));
}

/// Section 7.3: a probe is new data in one larger segment. Its ACK makes segments as large, and the window as many fewer that it stays as
/// large in bytes: 10 segments in packets of 1040 are 8 of 1270, and the five acknowledged segments open it by two, to twice what was used.
#[test]
fn rfc4821_7_3_a_probe_that_arrives_raises_the_segment_size() {
    let mut t = always();
    probe_sent(&mut t);
    t.expect_cwnd(10, None);
    t.inject(seg().ack(1231));
    assert_eq!((t.connection.snd_mss(), t.connection.path_mtu_range()), (1230, range(1270, 1500)));
    t.expect_cwnd(9, None);
    t.inject(seg().ack(5231));
    t.write(2460);
    t.expect(data(5231, 6461));
    t.expect(data(6461, 7691));
}

/// ... which an ACK of a part of it does not.
#[test]
fn rfc4821_7_3_a_probe_arrives_whole() {
    let mut t = always();
    probe_sent(&mut t);
    t.inject(seg().ack(1230));
    assert_eq!((t.connection.snd_mss(), t.connection.path_mtu_range()), (1000, range(1040, 1500)));
    t.inject(seg().ack(1231));
    assert_eq!(t.connection.snd_mss(), 1230);
}

/// Section 7.6.1: a probe that is lost alone was too large. This is not a sign of congestion: the window gets back what the probe took, and its
/// data leaves in segments of the present size.
#[test]
fn rfc4821_7_6_1_a_lost_probe_is_no_congestion() {
    let mut t = always();
    probe_sent(&mut t);
    t.at(100);
    t.inject(seg().ack(1).sack(&[(1231, 2231)]));
    t.inject(seg().ack(1).sack(&[(1231, 3231)]));
    t.expect_nothing();
    t.inject(seg().ack(1).sack(&[(1231, 4231)]));
    assert_eq!((t.connection.snd_mss(), t.connection.path_mtu_range()), (1000, range(1040, 1269)));
    t.expect(data(1, 1001).reason(Reason::LossRecovery));
    t.expect(data(1001, 1231).reason(Reason::LossRecovery));
    t.expect_cwnd(11, None);
    t.inject(seg().ack(1).sack(&[(1231, 5231)]));
    t.at(200).inject(seg().ack(5231));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Open);
    assert_eq!((t.connection.counters().recoveries, t.connection.ssthresh()), (0, None));
}

/// Without SACK three duplicate ACKs show the same.
#[test]
fn rfc4821_7_6_1_a_lost_probe_without_sack() {
    let mut config = probing(MtuProbing::Always);
    config.sack = false;
    let mut t = established(config);
    probe_sent(&mut t);
    t.at(100);
    (0..3).for_each(|_| t.inject(seg().ack(1)));
    t.expect(data(1, 1001).reason(Reason::LossRecovery));
    t.expect(data(1001, 1231).reason(Reason::LossRecovery));
    assert_eq!(t.connection.path_mtu_range(), range(1040, 1269));
    t.inject(seg().ack(1));
    t.inject(seg().ack(5231));
    assert_eq!((t.connection.counters().recoveries, t.connection.ssthresh()), (0, None));
}

/// If something before the probe was lost, that is congestion, and says nothing about the probe.
#[test]
fn rfc4821_7_6_2_a_loss_before_the_probe_is_congestion() {
    let mut t = always();
    t.write(1000);
    t.expect(data(1, 1001).reason(Reason::NewData));
    t.write(5230);
    t.expect(data(1001, 2231).reason(Reason::MtuProbe));
    (0..4).for_each(|n| t.expect(data(2231 + 1000 * n, 3231 + 1000 * n)));
    t.at(100);
    for end in [3231, 4231, 5231] {
        t.inject(seg().ack(1).sack(&[(2231, end)]));
    }
    assert_eq!(t.connection.recovery_state(), RecoveryState::Recovery);
    t.expect(data(1, 1001).reason(Reason::FastRetransmit));
    t.forget_sent();
    assert_eq!((t.connection.path_mtu_range(), t.connection.counters().recoveries), (range(1040, 1500), 1));
}

/// A probe whose timer runs out is sent again in smaller segments, and the range stays: it is not known what was lost.
#[test]
fn rfc4821_7_6_4_a_timeout_proves_nothing_about_the_probe() {
    let mut t = always();
    probe_sent(&mut t);
    t.at(1000).expect(data(1, 1001).reason(Reason::Timeout));
    t.at(1100).inject(seg().ack(1001));
    t.forget_sent();
    t.inject(seg().ack(5231));
    t.forget_sent();
    assert_eq!((t.connection.snd_mss(), t.connection.path_mtu_range()), (1000, range(1040, 1500)));
}

/// The next probe leaves once the one before has been answered, and there is data for it and for the segments behind it.
#[test]
fn rfc4821_7_4_one_probe_at_a_time() {
    let mut t = always();
    t.write(9000);
    t.expect(data(1, 1231).reason(Reason::MtuProbe));
    assert!(t.take_reasons().iter().all(|&reason| reason == Reason::NewData));
    t.inject(seg().ack(8231));
    t.forget_sent();
    // 1345 bytes are in the next one, and 1230 in each of the four segments behind it.
    for (len, next) in [(6264, Reason::NewData), (6265, Reason::MtuProbe)] {
        let mut t = always();
        probe_sent(&mut t);
        t.inject(seg().ack(5231));
        t.connection.set_cwnd(20);
        t.write(len);
        assert_eq!(t.take_reasons().first(), Some(&next), "{len} bytes");
    }
}

/// Linux's conditions: a window of 11 segments, enough data, enough of the peer's window, no sign of loss, and no options that vary.
#[test]
fn rfc4821_7_4_conditions_of_a_probe() {
    let sends_none = |mut t: Script, len: usize, what: &str| {
        t.write(len);
        let reasons = t.take_reasons();
        assert!(!reasons.is_empty() && !reasons.contains(&Reason::MtuProbe), "{what}: {reasons:?}");
    };
    let mut config = probing(MtuProbing::Always);
    config.congestion.initial_window = InitialWindow::Segments(10);
    sends_none(established(config), 6000, "a window of ten segments");
    sends_none(always(), 5229, "too little data");
    let mut t = always();
    t.inject(seg().ack(1).win(5229));
    sends_none(t, 9000, "a small window of the peer");
    let mut t = always();
    t.inject(seg().seq(101).data(100));
    t.expect(ack(1).sack(&[(101, 201)]));
    sends_none(t, 6000, "SACK blocks to be sent");
    let mut t = always();
    t.write(2000);
    t.expect_segments(1, 2001, Reason::NewData);
    t.inject(seg().ack(1).sack(&[(1001, 2001)]));
    assert_eq!(t.connection.recovery_state(), RecoveryState::Disorder);
    sends_none(t, 6000, "a sign of loss");
    let mut t = always();
    t.connection.reserve_option_room(20);
    sends_none(t, 6000, "reserved room");
    let mut config = probing(MtuProbing::Always);
    config.path_mtu.threshold = 461;
    sends_none(established(config), 6000, "a range of 460 bytes");
}

/// Data waits for room for the probe, which takes the room of two segments, and then follows it.
#[test]
fn rfc4821_7_4_new_data_waits_for_the_probe() {
    let mut t = always();
    t.write(5000);
    t.write(5000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.write(6000);
    t.expect_nothing();
    t.inject(seg().ack(1001));
    t.expect(data(10_001, 11_231).reason(Reason::MtuProbe));
    t.forget_sent();
    // The peer's window of 20,000 bytes has no room for all that belongs to a probe.
    let mut t = always();
    t.connection.set_cwnd(40);
    (0..3).for_each(|_| t.write(5000));
    t.expect_segments(1, 15_001, Reason::NewData);
    t.write(6000);
    t.expect_nothing();
    t.inject(seg().ack(2001));
    t.expect(data(15_001, 16_231).reason(Reason::MtuProbe));
    t.forget_sent();
}

/// Section 7.7: retransmissions that last 3 s, as long as three of them would with Linux's least RTO (`tcp_retries1`), indicate a black
/// hole: segments shrink to `base_mss`, and are halved at each further timeout, down to the floor.
#[test]
fn rfc4821_7_7_a_black_hole_is_detected_by_timeouts() {
    let mut config = probing(MtuProbing::AfterBlackHole);
    (config.path_mtu.base_mss, config.path_mtu.floor_mss) = (512, 200);
    let mut t = established(config.clone());
    assert_eq!((t.connection.snd_mss(), t.connection.path_mtu_range()), (1460, None));
    t.write(4000);
    t.expect(data(1, 1461).reason(Reason::NewData));
    t.expect(data(1461, 2921));
    t.forget_sent();
    for at in [1000, 3000] {
        t.at(at).expect(data(1, 1461).reason(Reason::Timeout));
        assert_eq!(t.connection.path_mtu_range(), None);
    }
    for (at, end) in [(7000, 513), (15_000, 257), (31_000, 201), (63_000, 201)] {
        t.at(at).expect(data(1, end).reason(Reason::Timeout));
    }
    assert_eq!(t.connection.path_mtu_range(), range(240, 1500));
    // New data leaves in such segments, too: F-RTO sends it first.
    t.inject(seg().ack(201));
    t.expect(data(2921, 3121));
    t.forget_sent();
    // Data that is unacknowledged because of a zero window does not indicate a black hole.
    let mut t = established(config);
    t.write(1000);
    t.expect(data(1, 1001));
    t.inject(seg().ack(1).win(0));
    for at in [1000, 3000, 7000] {
        t.at(at).expect(data(1, 1001).reason(Reason::Timeout));
    }
    assert_eq!(t.connection.path_mtu_range(), None);
}

/// With probing off, full segments are retransmitted until R2.
#[test]
fn rfc4821_7_7_without_probing_a_black_hole_is_final() {
    let mut t = established(probing(MtuProbing::Off));
    t.write(1460);
    t.expect(data(1, 1461).reason(Reason::NewData));
    for at in [1000, 3000, 7000, 15_000, 31_000, 63_000, 123_000, 183_000] {
        t.at(at).expect(data(1, 1461).reason(Reason::Timeout));
    }
    t.expect_nothing_until(300_000);
    t.expect_state(State::Closed);
}

/// Section 7.6.1 and RFC 1191: an ICMP error about a probe bounds the search, and the probe is sent again in segments of the present size.
#[test]
fn rfc4821_an_icmp_error_about_a_probe_bounds_the_search() {
    let mut t = always();
    probe_sent(&mut t);
    let seq = t.connection.snd_una();
    let too_big = Unreachable::PacketTooBig { mtu: 1200 };
    let effect = t.steer(|connection, now| connection.handle_icmp(now, too_big, seq));
    assert_eq!(effect, IcmpEffect::SmallerSegments);
    assert_eq!((t.connection.snd_mss(), t.connection.path_mtu_range()), (1000, range(1040, 1200)));
    t.expect(data(1, 1001).reason(Reason::LossRecovery));
    t.expect(data(1001, 1231).reason(Reason::LossRecovery));
    let effect = t.steer(|connection, now| connection.handle_icmp(now, too_big, seq));
    assert_eq!(effect, IcmpEffect::Ignored, "nothing new");
    t.inject(seg().ack(5231));
    assert_eq!(t.connection.counters().recoveries, 0);
}

/// No probe exceeds the interface's MTU, or one that the owner has reported later.
#[test]
fn rfc4821_probes_fit_the_interface() {
    let mut config = probing(MtuProbing::Always);
    config.path_mtu.link_mtu = Some(1100);
    let mut t = established(config);
    assert_eq!(t.connection.path_mtu_range(), range(1040, 1100));
    t.connection.set_path_mtu(1060);
    assert_eq!((t.connection.snd_mss(), t.connection.path_mtu_range()), (1000, range(1040, 1060)));
    t.connection.set_path_mtu(900);
    assert_eq!(t.connection.snd_mss(), 860);
    t.connection.set_path_mtu(1500);
    assert_eq!(t.connection.snd_mss(), 1000, "what the search knows");
    // Without a search, only a smaller one counts.
    let mut t = established(probing(MtuProbing::Off));
    t.connection.set_path_mtu(1540);
    assert_eq!(t.connection.snd_mss(), 1460);
    t.connection.set_path_mtu(900);
    assert_eq!(t.connection.snd_mss(), 860);
}

/// A finished search begins anew after its interval, from the present size of segments.
#[test]
fn rfc4821_a_finished_search_begins_anew() {
    let mut config = probing(MtuProbing::Always);
    config.path_mtu.interval = Duration::from_secs(5);
    config.path_mtu.threshold = 400;
    let mut t = established(config);
    probe_sent(&mut t);
    t.inject(seg().ack(5231));
    assert_eq!(t.connection.path_mtu_range(), range(1270, 1500));
    t.connection.set_path_mtu(1400);
    assert_eq!(t.connection.path_mtu_range(), range(1270, 1400));
    t.connection.set_cwnd(11);
    t.write(1230);
    t.expect(data(5231, 6461));
    assert_eq!(t.connection.path_mtu_range(), range(1270, 1400));
    t.inject(seg().ack(6461));
    t.at(5000);
    t.connection.set_cwnd(11);
    t.write(1230);
    t.expect(data(6461, 7691));
    assert_eq!(t.connection.path_mtu_range(), range(1270, 1500));
    t.forget_sent();
}
