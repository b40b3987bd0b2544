//! Pacing: bursts and the pauses between them, and segments that are not paced.

use holdover_base::{Duration, Instant};
use holdover_tcp::{Config, PacingConfig, Profile, Reason, Timer};
use proptest::prelude::*;

use crate::properties::cases;
use crate::script::*;
use crate::world::{Path, Side, World};

const EVEN: PacingConfig = PacingConfig { slow_start_percent: 100, avoidance_percent: 100 };

/// A connection with a round trip of 50 ms that has sent its first ten segments, and receives the ACK of them at 100 ms: its
/// window is 20 segments of 1000 bytes, so that it sends 400 kB/s.
fn after_a_round(config: Config) -> Script {
    let mut t = Script::connect(config);
    t.expect(our_syn());
    t.at(50).inject(syn_ack());
    t.expect(ack(1));
    t.write(60_000);
    t.expect_segments(1, 10_001, Reason::NewData);
    t.at(100).inject(seg().ack(10_001));
    t
}

fn paced() -> Config {
    let mut config = plain();
    config.congestion.pacing = Some(EVEN);
    config
}

#[test]
fn bursts_of_two_segments_follow_at_the_pacing_rate() {
    let mut t = after_a_round(paced());
    assert_eq!(t.connection.pacing_rate(), Some(400_000));
    t.expect_segments(10_001, 12_001, Reason::NewData);
    // The connection was idle before the first burst, and half of the burst's time is credited.
    for (at, next) in [(102_500, 12_001), (107_500, 14_001), (112_500, 16_001)] {
        t.at_micros(at);
        t.expect_segments(next, next + 2_000, Reason::NewData);
    }
    t.expect_nothing();
}

#[test]
fn without_pacing_the_window_leaves_at_once() {
    let mut t = after_a_round(plain());
    t.expect_segments(10_001, 30_001, Reason::NewData);
    assert_eq!(t.connection.pacing_rate(), None);
}

/// Linux paces at 200 % in slow start, and at 120 % from half of ssthresh on.
#[test]
fn the_rate_leaves_room_for_growth() {
    let mut config = plain();
    config.congestion.pacing = Some(PacingConfig::LINUX);
    let mut t = after_a_round(config);
    t.forget_sent();
    assert_eq!(t.connection.pacing_rate(), Some(800_000));
    t.connection.set_ssthresh(39);
    assert_eq!(t.connection.pacing_rate(), Some(480_000));
}

#[test]
fn acks_do_not_wait_for_the_pacer() {
    let mut t = after_a_round(paced());
    t.expect_segments(10_001, 12_001, Reason::NewData);
    t.inject(seg().seq(1).data(1_000).ack(10_001));
    t.inject(seg().seq(1_001).data(1_000).ack(10_001));
    t.expect(ack(2001).seq(12_001));
    t.at_micros(102_500);
    t.expect_segments(12_001, 14_001, Reason::NewData);
}

#[test]
fn a_timeout_does_not_wait_for_the_pacer() {
    let mut t = after_a_round(paced());
    t.forget_sent();
    // The owner holds the pacer's timer: the retransmission timer still expires.
    let now = t.now();
    t.connection.hold_timer(now, Timer::Pacing);
    let rto = t.connection.deadline(Timer::LossProbe).or(t.connection.deadline(Timer::Retransmit)).unwrap();
    let millis = rto.saturating_since(t.instant(0)).as_millis();
    t.at(millis);
    assert!(t.forget_sent() > 0);
}

/// A paced transfer over a path with losses.
fn transfer(profile: Profile, sack: bool, seed: u64, delay_ms: u64, loss: f64, outage_ms: u64) -> World {
    let mut config = profile.config();
    config.mss = 1000;
    config.sack = sack;
    config.congestion.pacing = Some(PacingConfig::LINUX);
    // With this limit a burst is two segments: less than 3 MB/s. The rate counts outstanding data where that exceeds the window (Linux
    // `tcp_update_pacing_rate`): without SACK, twice as much.
    config.congestion.max_window_segments = 12;
    let mut path = Path::clean(Duration::from_millis(delay_ms));
    path.loss = loss;
    path.outages = vec![(Instant::from_millis(1_000), Instant::from_millis(1_000 + outage_ms))];
    path.sound_from = Instant::from_secs(20);
    let mut world = World::new(config.clone(), config, path, seed);
    world.client.to_write = 400_000;
    world.client.keep = false;
    world.log = Some(Vec::new());
    world
}

/// BBR's rate is not the window divided by the round trip; its bursts are tested in its own modules. And the round trip is not known where
/// it is the difference of timestamps of a clock that is coarser than it (`freebsd-2.2`: 500 ms).
fn paced_by_the_window() -> Vec<Profile> {
    let has_fine_clock = |config: &Config| config.timestamps.is_none_or(|tick| tick <= Duration::from_millis(10));
    let is_paced = |config: &Config| !config.congestion.algorithm.is_model_based() && has_fine_clock(config);
    Profile::ALL.into_iter().filter(|profile| is_paced(&profile.config())).collect()
}

/// Transmissions of the client shortly before `at`.
fn near(log: &[crate::world::Logged], at: Instant) -> Vec<(Instant, Reason, usize)> {
    let sent = log.iter().filter(|sent| sent.from == Side::Client && sent.at <= at);
    let mut sent: Vec<_> =
        sent.map(|sent| (sent.at, sent.transmit.reason, sent.transmit.segment.payload.len())).collect();
    sent.split_off(sent.len().saturating_sub(15))
}

proptest! {
    #![proptest_config(cases(200))]

    /// With any losses, at most a burst of two segments leaves at once, plus the segment of a timer; and the transfer completes.
    #[test]
    fn no_more_than_a_burst_leaves_at_once(
        profile in proptest::sample::select(paced_by_the_window()),
        sack in any::<bool>(),
        seed in any::<u64>(),
        delay_ms in 10_u64..200,
        loss in prop_oneof![Just(0.0), 0.0..0.1],
        outage_ms in 1_u64..3_000,
    ) {
        let mut world = transfer(profile, sack, seed, delay_ms, loss, outage_ms);
        let finished = world.run_until(Instant::from_secs(4_000), |world| world.server.read_len == world.client.to_write);
        prop_assert!(finished);
        let log = world.log.take().unwrap_or_default();
        let data = log.iter().filter(|sent| sent.from == Side::Client && !sent.transmit.segment.payload.is_empty());
        let paced = data.skip(10).filter(|sent| {
            let by_a_rule = matches!(sent.transmit.reason, Reason::NewData | Reason::LimitedTransmit | Reason::LossRecovery);
            by_a_rule && sent.transmit.segment.payload.len() > 900
        });
        let mut burst = (Instant::ZERO, 0);
        for sent in paced {
            burst = if sent.at == burst.0 { (sent.at, burst.1 + 1) } else { (sent.at, 1) };
            prop_assert!(burst.1 <= 2, "{} segments left at {:?}: {:?}", burst.1, burst.0, near(&log, burst.0));
        }
    }
}
