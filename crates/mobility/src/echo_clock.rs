//! An estimate of the timestamp clock of one end of a connection, as seen from the other end.

use holdover_base::{Duration, Instant};

/// An estimate of a timestamp clock (RFC 7323 section 4) from observed TSvals. It is behind the clock rather than
/// ahead: by the shortest one-way delay, and by the drift of a bad crystal since.
#[derive(Clone, Copy, Debug, Default)]
pub struct EchoClock(Option<Estimate>);

#[derive(Clone, Copy, Debug)]
struct Estimate {
    first_at: Instant,
    first: u32,
    newest: u32,
    /// The least delayed of the observed segments.
    anchor_at: Instant,
    anchor: u32,
    ticks_per_sec: Option<u64>,
    /// When to re-estimate the rate.
    review_at: Instant,
}

/// The rates of clocks in use: RFC 7323 section 5.4 allows 1 Hz to 1 kHz; BSD ticked at 2 and 100 Hz, Linux at 100, 250 and
/// 1000 Hz, and with `tcp_usec_ts` at 1 MHz. Another rate is taken for a slower one, unless the clock has ticked only a few times in a span that
/// queues may have shortened: 2 Hz seen for 0.4 s counts as 10 Hz. [`EchoClock::not_ahead`] has no such error.
const RATES: [u64; 7] = [1_000_000, 1_000, 250, 100, 10, 2, 1];

/// A TSval, and the time at which it was first seen.
pub(crate) type Stamp = (Instant, u32);

/// The shortest span from which a rate is estimated.
const LEAST_SPAN: Duration = Duration::from_millis(100);

/// The most by which queues may have delayed the newest segment more than the first.
const MOST_QUEUED: Duration = Duration::from_millis(200);

/// Twice the usual tolerance of crystals (100 ppm), in parts per million.
const DRIFT_PPM: u64 = 200;

impl EchoClock {
    /// The estimate from two TSvals, each with the time at which it was first seen.
    pub fn between((first_at, first): Stamp, (newest_at, newest): Stamp) -> Self {
        let span = newest_at.saturating_since(first_at);
        let ticks_per_sec =
            (span >= LEAST_SPAN).then(|| plausible_rate(u64::from(newest.wrapping_sub(first)), span)).flatten();
        let estimate = Estimate {
            first_at,
            first,
            newest,
            anchor_at: newest_at,
            anchor: newest,
            ticks_per_sec,
            review_at: newest_at,
        };
        Self(Some(estimate))
    }

    /// The clock at `at`, from two TSvals that are seen as they are sent: never ahead, whatever its rate. From the first to the newest it has
    /// advanced by more than their difference less one tick. At least the newest TSval.
    pub(crate) fn not_ahead(first: Stamp, newest: Stamp, at: Instant) -> u32 {
        let span = u128::from(newest.0.saturating_since(first.0).as_nanos());
        let since = u128::from(at.saturating_since(newest.0).as_nanos());
        let ticks = u128::from(newest.1.wrapping_sub(first.1).saturating_sub(1));
        let surely = newest.1.wrapping_add((ticks * since).checked_div(span).unwrap_or(0) as u32);
        // Where packets are seen some time after they are sent, a usual rate is the better bound.
        let usually = Self::between(first, newest).at(at);
        usually.filter(|&usually| is_older(usually, surely)).unwrap_or(surely)
    }

    /// Its ticks per second; `None` while unknown.
    pub(crate) fn ticks_per_sec(&self) -> Option<u64> {
        self.0.as_ref().and_then(|estimate| estimate.ticks_per_sec)
    }

    /// Notes a segment with this TSval.
    pub(crate) fn note(&mut self, now: Instant, val: u32) {
        let Some(estimate) = &mut self.0 else {
            self.0 = Some(Estimate {
                first_at: now,
                first: val,
                newest: val,
                anchor_at: now,
                anchor: val,
                ticks_per_sec: None,
                review_at: now + LEAST_SPAN,
            });
            return;
        };
        if is_older(val, estimate.newest) {
            return;
        }
        estimate.newest = val;
        if now >= estimate.review_at {
            let span = now.saturating_since(estimate.first_at);
            estimate.review_at = now + span / 4;
            let rate = plausible_rate(u64::from(val.wrapping_sub(estimate.first)), span);
            if rate != estimate.ticks_per_sec {
                (estimate.ticks_per_sec, estimate.anchor_at, estimate.anchor) = (rate, now, val);
            }
        }
        if is_older(estimate.at(now), val) || estimate.ticks_per_sec.is_none() {
            (estimate.anchor_at, estimate.anchor) = (now, val);
        }
    }

    /// The clock at `at`, which may be before the newest TSval seen. `None` until its rate is known.
    pub(crate) fn around(&self, at: Instant) -> Option<u32> {
        let estimate = self.0.as_ref().filter(|estimate| estimate.ticks_per_sec.is_some())?;
        let back = estimate.anchor_at.saturating_since(at).as_micros();
        let rate = u128::from(estimate.ticks_per_sec.unwrap_or(0));
        let back = (u128::from(back) * rate / 1_000_000) as u32;
        Some(estimate.at(at).wrapping_sub(back))
    }

    /// The clock at `at`, or later; at least the newest TSval seen. `None` until its rate is known.
    pub fn at(&self, at: Instant) -> Option<u32> {
        let estimate = self.0.as_ref().filter(|estimate| estimate.ticks_per_sec.is_some())?;
        let value = estimate.at(at);
        Some(if is_older(value, estimate.newest) { estimate.newest } else { value })
    }
}

impl Estimate {
    fn at(&self, at: Instant) -> u32 {
        let micros = at.saturating_since(self.anchor_at).as_micros();
        let micros = micros - micros / 1_000_000 * DRIFT_PPM;
        let rate = self.ticks_per_sec.unwrap_or(0);
        // Timestamps wrap around; after more than half of the circle they are ambiguous.
        self.anchor.wrapping_add((u128::from(micros) * u128::from(rate) / 1_000_000) as u32)
    }
}

/// Whether timestamp `a` is before `b` (RFC 7323 section 5.2).
pub(crate) fn is_older(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The fastest of the usual rates for a clock that has advanced by `ticks` in `span`.
fn plausible_rate(ticks: u64, span: Duration) -> Option<u64> {
    let micros = span.as_micros();
    RATES.into_iter().find(|&rate| {
        let due = rate * micros / 1_000_000;
        let excused = rate * (MOST_QUEUED.as_micros() + micros / 20) / 1_000_000;
        // One more tick may have been imminent.
        let seen = ticks + 1;
        due <= 2 * seen && due <= seen + excused
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The clock wraps around soon.
    const FIRST: u32 = u32::MAX - 1_994;

    fn at_ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// The host's last retransmission may have been just now: an echo of it would be a round trip of zero.
    // Claim: Packets to the host's own TCP echo its timestamp of a round trip ago, also if it has sent newer ones since.
    #[test]
    fn a_value_of_a_round_trip_ago_may_precede_the_newest() {
        let clock = EchoClock::between((at_ms(0), 1_000), (at_ms(3_000), 4_000));
        let around = |millis| clock.around(at_ms(millis)).unwrap();
        assert_eq!((around(2_950), around(3_000), around(3_500)), (3_950, 4_000, 4_500));
        assert_eq!(clock.at(at_ms(2_950)), Some(4_000));
    }

    /// Segments every 10 ms from a clock of `rate`, each delayed by `delay_ms`.
    fn watched(rate: u64, until_ms: u64, delay_ms: impl Fn(u64) -> u64) -> EchoClock {
        let mut clock = EchoClock::default();
        for ms in (0..until_ms).step_by(10) {
            clock.note(at_ms(ms + delay_ms(ms)), FIRST.wrapping_add((ms * rate / 1000) as u32));
        }
        clock
    }

    #[test]
    fn the_estimate_is_close_and_never_ahead() {
        for rate in [1_000_000, 1_000, 250, 100, 10] {
            let clock = watched(rate, 2_000, |ms| 25 + ms / 20);
            for later in [2_100, 5_000, 42_000] {
                let value = clock.at(at_ms(later)).unwrap().wrapping_sub(FIRST);
                let truth = (later * rate / 1000) as u32;
                assert!(value <= truth, "{rate} Hz: {value} > {truth}");
                assert!(u64::from(truth - value) <= rate / 20 + 1, "{rate} Hz: {value} < {truth}");
            }
        }
    }

    #[test]
    fn an_unusual_rate_is_estimated_as_a_slower_one() {
        let clock = watched(512, 2_000, |_| 25);
        let value = clock.at(at_ms(12_000)).unwrap().wrapping_sub(FIRST);
        assert!((1_024 + 2_400..=6_144).contains(&value), "{value}");
    }

    proptest! {
        #[test]
        fn a_clock_of_any_rate_is_not_ahead(
            tick_us in prop_oneof![1_u64..2_000_000, proptest::sample::select(vec![1, 1_000, 2_000, 10_000, 20_000, 500_000])],
            phase_us in 0_u64..2_000_000,
            [first_us, span_us, since_us] in [0_u64..10_000_000, 0_u64..10_000_000, 0_u64..100_000_000],
        ) {
            let val = |micros: u64| FIRST.wrapping_add(((micros + phase_us) / tick_us) as u32);
            let stamp = |micros| (Instant::from_nanos(micros * 1_000), val(micros));
            let (newest_us, now_us) = (first_us + span_us, first_us + span_us + since_us);
            let found = EchoClock::not_ahead(stamp(first_us), stamp(newest_us), stamp(now_us).0);
            prop_assert!(!is_older(val(now_us), found), "{found} at {}", val(now_us));
            prop_assert!(!is_older(found, val(newest_us)));
        }
    }

    #[test]
    fn a_usual_clock_that_has_ticked_a_hundred_times_is_close() {
        for rate in [1_000_000, 1_000, 250, 100, 10] {
            let stamp = |millis| (at_ms(millis), FIRST.wrapping_add((millis * rate / 1_000) as u32));
            let span_ms = 100_000 / rate.min(1_000);
            let (at, truth) = stamp(span_ms + 10_000);
            let missing = truth.wrapping_sub(EchoClock::not_ahead(stamp(0), stamp(span_ms), at));
            assert!(u64::from(missing) <= rate / 10 + 1, "{rate} Hz: {missing} ticks");
        }
    }

    #[test]
    fn a_slow_clock_is_not_taken_for_a_faster_one() {
        // 2 Hz: a tick between a SYN and a segment 0.3 s later.
        let (first, newest) = ((at_ms(200), 1), (at_ms(500), 2));
        assert_eq!(EchoClock::between(first, newest).at(at_ms(3_500)), Some(31));
        assert_eq!(EchoClock::not_ahead(first, newest, at_ms(3_500)), 2);
        assert_eq!(EchoClock::not_ahead(first, first, at_ms(3_500)), 1);
    }

    #[test]
    fn no_rate_from_a_short_span() {
        assert_eq!(watched(1_000, 90, |_| 25).at(at_ms(1_000)), None);
        assert_eq!(EchoClock::default().at(at_ms(1_000)), None);
    }

    #[test]
    fn the_newest_tsval_is_the_minimum() {
        let mut clock = watched(1_000, 2_000, |_| 25);
        let newest = FIRST.wrapping_add(3_000);
        clock.note(at_ms(2_500), newest);
        assert_eq!(clock.at(at_ms(0)), Some(newest));
        clock.note(at_ms(2_510), FIRST.wrapping_add(1_000));
        assert_eq!(clock.at(at_ms(0)), Some(newest), "an older one changes nothing");
    }
}
