//! The retransmission timeout from samples of the round-trip time (RFC 6298), with exponential backoff.

use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

use crate::config::{Estimator, RtoConfig};

/// The round-trip time of a connection, and the timeout that follows from it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RttEstimator {
    /// Smoothed round-trip time; zero before the first sample.
    srtt: Duration,
    /// Mean deviation; for [`Estimator::Linux`] the short-term one.
    mdev: Duration,
    /// Added to SRTT: 4 RTTVAR.
    margin: Duration,
    /// [`Estimator::Linux`]: the largest `mdev` of the current window, never below the floor. [`Estimator::Ns2`]: [`Ticks`], packed,
    /// as every connection pays for a field of its own.
    margin_max: Duration,
    /// [`Estimator::Linux`]: the end of the current window.
    window_end: Seq,
    /// The timeout, backed off.
    rto: Duration,
    /// How often the timeout was doubled since the last valid sample.
    backoff: u32,
    /// The least sample so far; [`Duration::MAX`] before the first.
    min_rtt: Duration,
}

/// ns-2's estimator: SRTT in eighths of a tick and the variance in quarters of one, both whole numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Ticks {
    srtt: u32,
    rttvar: u32,
}

impl Ticks {
    fn pack(self) -> Duration {
        Duration::from_nanos(u64::from(self.srtt) << 32 | u64::from(self.rttvar))
    }

    fn unpack(packed: Duration) -> Self {
        let packed = packed.as_nanos();
        Self { srtt: (packed >> 32) as u32, rttvar: packed as u32 }
    }
}

impl RttEstimator {
    pub(crate) fn new(config: &RtoConfig) -> Self {
        Self {
            srtt: Duration::ZERO,
            mdev: Duration::ZERO,
            margin: Duration::ZERO,
            margin_max: config.min,
            window_end: Seq::default(),
            rto: config.initial,
            backoff: 0,
            min_rtt: Duration::MAX,
        }
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        (!self.srtt.is_zero()).then_some(self.srtt)
    }

    pub(crate) fn rttvar(&self) -> Duration {
        self.margin / 4
    }

    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        (self.min_rtt != Duration::MAX).then_some(self.min_rtt)
    }

    pub(crate) fn rto(&self) -> Duration {
        self.rto
    }

    pub(crate) fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Takes a sample and clears the backoff (RFC 6298 sections 2.2, 2.3 and 5.7).
    pub(crate) fn sample(&mut self, config: &RtoConfig, rtt: Duration, snd_una: Seq, snd_nxt: Seq) {
        self.min_rtt = self.min_rtt.min(rtt);
        let measured = rtt;
        // A sample of nothing still is one: a tick, or the smallest span that is not "no sample yet".
        let rtt = rtt.round_up_to(config.tick).max(config.tick).max(Duration::from_micros(1));
        match config.estimator {
            Estimator::Rfc6298 => self.smooth(rtt),
            Estimator::Linux => self.smooth_as_linux(config, rtt, snd_una, snd_nxt),
            Estimator::Ns2 => {
                self.count_as_ns2(config, measured);
                self.smooth(rtt);
            }
        }
        self.backoff = 0;
        self.rto = self.unbacked(config);
    }

    /// RFC 6298 section 2: RTTVAR first, with the old SRTT.
    fn smooth(&mut self, rtt: Duration) {
        if self.srtt.is_zero() {
            self.srtt = rtt;
            self.mdev = rtt / 2;
        } else {
            let deviation = Duration::from_nanos(self.srtt.as_nanos().abs_diff(rtt.as_nanos()));
            self.mdev = (self.mdev * 3 + deviation) / 4;
            self.srtt = (self.srtt * 7 + rtt) / 8;
        }
        self.margin = self.mdev * 4;
    }

    /// Linux `tcp_rtt_estimator`: a deviation that shrinks slowly when the RTT falls, and a margin that is the largest of
    /// each window and decays by a quarter of the difference.
    fn smooth_as_linux(&mut self, config: &RtoConfig, rtt: Duration, snd_una: Seq, snd_nxt: Seq) {
        if self.srtt.is_zero() {
            self.srtt = rtt;
            self.mdev = rtt * 2;
            self.margin = self.mdev.max(config.min);
            self.margin_max = self.margin;
            self.window_end = snd_nxt;
            return;
        }
        let falls = rtt < self.srtt;
        let error = if falls { self.srtt - rtt } else { rtt - self.srtt };
        self.srtt = if falls { self.srtt - error / 8 } else { self.srtt + error / 8 };
        // `mdev` is kept as four mean deviations, so that a quarter of the excess is an eighth of it and so on.
        let mean = self.mdev / 4;
        if error > mean {
            let excess = error - mean;
            self.mdev += if falls { excess / 8 } else { excess };
        } else {
            self.mdev -= mean - error;
        }
        if self.mdev > self.margin_max {
            self.margin_max = self.mdev;
            self.margin = self.margin.max(self.margin_max);
        }
        if snd_una.gt(self.window_end) {
            if self.margin_max < self.margin {
                self.margin -= (self.margin - self.margin_max) / 4;
            }
            self.window_end = snd_nxt;
            self.margin_max = config.min;
        }
    }

    /// ns-2 `TcpAgent::rtt_update`, for the timeout alone.
    fn count_as_ns2(&mut self, config: &RtoConfig, rtt: Duration) {
        // Whole ticks, the nearest; more than any ceiling of the timeout makes no difference.
        let tick = config.tick.as_nanos().max(1);
        let sample = (rtt.as_nanos().saturating_add(tick / 2) / tick).clamp(1, 1 << 20) as u32;
        let ticks = if self.srtt.is_zero() {
            Ticks { srtt: sample * 8, rttvar: sample * 2 }
        } else {
            let Ticks { srtt, rttvar } = Ticks::unpack(self.margin_max);
            let deviation = sample.abs_diff(srtt >> 3);
            Ticks { srtt: (srtt + sample - (srtt >> 3)).max(1), rttvar: (rttvar + deviation - (rttvar >> 2)).max(1) }
        };
        self.margin_max = ticks.pack();
    }

    /// The timeout without backoff.
    fn unbacked(&self, config: &RtoConfig) -> Duration {
        if self.srtt.is_zero() {
            return config.initial;
        }
        let rto = match config.estimator {
            Estimator::Rfc6298 => (self.srtt + self.margin.max(config.tick)).max(config.min),
            Estimator::Linux => self.srtt + self.margin,
            Estimator::Ns2 => {
                let Ticks { srtt, rttvar } = Ticks::unpack(self.margin_max);
                let ticks = u64::from((srtt + (rttvar << 3)) >> 3);
                let rto = Duration::from_nanos(config.tick.as_nanos().max(1).saturating_mul(ticks));
                return rto.max(config.min).min(config.max);
            }
        };
        rto.round_up_to(config.tick).min(config.max)
    }

    pub(crate) fn rto_without_backoff(&self, config: &RtoConfig) -> Duration {
        self.unbacked(config)
    }

    /// Doubles the timeout (RFC 6298 section 5.5).
    pub(crate) fn back_off(&mut self, config: &RtoConfig) {
        self.backoff += 1;
        self.rto = (self.rto * 2).min(config.max);
    }

    /// Begins again with another initial timeout, as no sample has come yet (RFC 6298 section 5.7).
    pub(crate) fn fall_back(&mut self, initial: Duration, config: &RtoConfig) {
        self.backoff = 0;
        self.rto = initial.max(config.min).min(config.max);
    }

    /// Takes every doubling back.
    pub(crate) fn clear_backoff(&mut self, config: &RtoConfig) {
        self.backoff = 0;
        self.rto = self.unbacked(config);
    }

    /// Reverts one doubling and returns the new RTO (RFC 6069 section 3).
    pub(crate) fn revert_one_backoff(&mut self, config: &RtoConfig) -> Duration {
        self.backoff = self.backoff.saturating_sub(1);
        self.rto = self.unbacked(config).saturating_shl(self.backoff).min(config.max);
        self.rto
    }

    /// When a timer of `delay` started at `now` ends: on a tick of the clock, as in 4.3BSD, where a timer of n ticks runs
    /// for between n - 1 and n of them.
    pub(crate) fn on_tick(config: &RtoConfig, now: Instant, delay: Duration) -> Duration {
        if config.tick.is_zero() || config.estimator == Estimator::Ns2 {
            return delay;
        }
        let into_tick = Duration::from_nanos(now.as_nanos() % config.tick.as_nanos());
        delay.round_up_to(config.tick) - into_tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const MS: Duration = Duration::from_millis(1);

    fn rfc() -> RtoConfig {
        Config::rfc().rto
    }

    fn linux() -> RtoConfig {
        RtoConfig { estimator: Estimator::Linux, min: MS * 200, max: MS * 120_000, ..rfc() }
    }

    fn sample(estimator: &mut RttEstimator, config: &RtoConfig, millis: u64) {
        estimator.sample(config, MS * millis, Seq::new(0), Seq::new(10));
    }

    /// RFC 6298 (2.1): 1 s until the first sample.
    #[test]
    fn rfc6298_2_1_initial() {
        assert_eq!(RttEstimator::new(&rfc()).rto(), MS * 1000);
    }

    /// RFC 6298 (2.2): SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
    #[test]
    fn rfc6298_2_2_first_sample() {
        let mut estimator = RttEstimator::new(&rfc());
        sample(&mut estimator, &rfc(), 800);
        assert_eq!(estimator.srtt(), Some(MS * 800));
        assert_eq!(estimator.rttvar(), MS * 400);
        assert_eq!(estimator.rto(), MS * 2400);
    }

    /// RFC 6298 (2.3): RTTVAR is updated before SRTT, with gains 1/4 and 1/8.
    #[test]
    fn rfc6298_2_3_later_samples() {
        let mut estimator = RttEstimator::new(&rfc());
        sample(&mut estimator, &rfc(), 800);
        sample(&mut estimator, &rfc(), 1600);
        assert_eq!(estimator.rttvar(), MS * 500);
        assert_eq!(estimator.srtt(), Some(MS * 900));
        assert_eq!(estimator.rto(), MS * 2900);
    }

    /// RFC 6298 (2.4) and (2.5): a floor of 1 s, a ceiling of at least 60 s.
    #[test]
    fn rfc6298_2_4_floor_and_2_5_ceiling() {
        let mut estimator = RttEstimator::new(&rfc());
        sample(&mut estimator, &rfc(), 10);
        assert_eq!(estimator.rto(), MS * 1000);
        sample(&mut estimator, &rfc(), 600_000);
        assert_eq!(estimator.rto(), MS * 60_000);
    }

    /// RFC 6298 (5.5) doubles, (5.7) a new sample ends the backoff.
    #[test]
    fn rfc6298_5_5_backoff_until_a_sample() {
        let mut estimator = RttEstimator::new(&rfc());
        sample(&mut estimator, &rfc(), 10);
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            estimator.back_off(&rfc());
            assert_eq!(estimator.rto(), MS * 1000 * seconds);
        }
        assert_eq!(estimator.backoff(), 7);
        sample(&mut estimator, &rfc(), 10);
        assert_eq!((estimator.rto(), estimator.backoff()), (MS * 1000, 0));
    }

    /// RFC 6069 section 3: each unreachable takes one doubling back.
    #[test]
    fn rfc6069_each_revert_halves() {
        let mut estimator = RttEstimator::new(&rfc());
        sample(&mut estimator, &rfc(), 10);
        (0..3).for_each(|_| estimator.back_off(&rfc()));
        assert_eq!(estimator.revert_one_backoff(&rfc()), MS * 4000);
        assert_eq!(estimator.revert_one_backoff(&rfc()), MS * 2000);
        assert_eq!(estimator.revert_one_backoff(&rfc()), MS * 1000);
        assert_eq!(estimator.revert_one_backoff(&rfc()), MS * 1000);
    }

    /// Linux: with a steady RTT of 50 ms the RTO is 250 ms, because the floor applies to the margin.
    #[test]
    fn linux_floor_applies_to_the_margin() {
        let mut estimator = RttEstimator::new(&linux());
        for window in 0..200_u32 {
            estimator.sample(&linux(), MS * 50, Seq::new(window * 10 + 1), Seq::new(window * 10 + 10));
        }
        let rto = estimator.rto();
        assert!(rto >= MS * 250 && rto < MS * 252, "{rto}");
    }

    fn ns2() -> RtoConfig {
        RtoConfig { estimator: Estimator::Ns2, tick: MS * 100, min: MS * 200, ..rfc() }
    }

    /// The Freeze-TCP thesis, section 6.3.1: round trips of 228 ms, a first timeout after half a second and the second one a second
    /// later.
    #[test]
    fn ns2_counts_whole_ticks_and_keeps_three_of_them_as_margin() {
        let mut estimator = RttEstimator::new(&ns2());
        sample(&mut estimator, &ns2(), 228);
        assert_eq!(estimator.rto(), MS * 600, "2 ticks, and 4 times half of that");
        (0..50).for_each(|_| sample(&mut estimator, &ns2(), 228));
        assert_eq!(estimator.rto(), MS * 500);
        estimator.back_off(&ns2());
        assert_eq!(estimator.rto(), MS * 1000);
        assert_eq!(RttEstimator::on_tick(&ns2(), Instant::from_millis(1), estimator.rto()), MS * 1000);
    }

    /// A sample that contains a disconnection of 1.2 s: the idle time of some 1.6 s of section 6.3.1.
    #[test]
    fn ns2_inflates_the_rto_by_the_whole_of_a_late_sample() {
        let mut estimator = RttEstimator::new(&ns2());
        (0..50).for_each(|_| sample(&mut estimator, &ns2(), 228));
        sample(&mut estimator, &ns2(), 1200);
        assert_eq!(estimator.rto(), MS * 1600);
    }

    #[test]
    fn a_sample_as_long_as_an_outage_inflates_the_rto_beyond_it() {
        let mut estimator = RttEstimator::new(&linux());
        sample(&mut estimator, &linux(), 50);
        sample(&mut estimator, &linux(), 7000);
        assert!(estimator.rto() > MS * 7000, "{}", estimator.rto());
    }

    /// 4.3BSD: timers of n ticks end between n - 1 and n ticks from now.
    #[test]
    fn ticked_timers_end_on_the_tick() {
        let config = RtoConfig { tick: MS * 500, ..rfc() };
        let end = |at: u64, delay: u64| RttEstimator::on_tick(&config, Instant::from_millis(at), MS * delay);
        assert_eq!(end(0, 1000), MS * 1000);
        assert_eq!(end(499, 1000), MS * 501);
        assert_eq!(end(200, 700), MS * 800);
    }
}
