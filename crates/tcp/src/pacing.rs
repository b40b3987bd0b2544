//! Pacing: data leaves in small bursts, spaced by the rate of congestion control instead of the rate of ACKs.
//!
//! The bursts are those of Linux's internal pacing, which sends a millisecond's worth of the rate at once (two segments
//! at least) and then waits until the burst has left at that rate. Time beyond the end of a wait is credited to the
//! next burst, for at most half of its length.

use holdover_base::{Duration, Instant};

/// A burst has the amount of data that the rate gives in 2^-10 s (Linux `sk_pacing_shift`).
const BURST_SHIFT: u32 = 10;
/// Maximum burst: the limit of segmentation offload, in bytes.
pub(crate) const MAX_BURST_BYTES: u64 = 65_535;
/// Paths shorter than this are given larger bursts (Linux `tcp_tso_rtt_log`): the largest, halved for every 512 us of the least RTT.
const SHORT_RTT: Duration = Duration::from_micros(512);
/// So many data segments leave unpaced at the start of a connection (Linux: the initial window of ten).
const UNPACED_SEGMENTS: u8 = 10;
/// No burst is waited for longer than this: a rate that was measured across an outage can be next to nothing, and may have changed
/// long before it lets another one go (Linux `sch_fq` bounds the delay likewise).
const MAX_WAIT: Duration = Duration::from_secs(1);

/// When the next burst may leave, and what of the current one has not left yet.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Pacer {
    /// When everything sent so far has left at the pacing rate: the next burst may begin.
    next_at: Instant,
    /// Segments that the current burst still holds.
    burst_left: u32,
    /// Time that the current burst began after `next_at`.
    credit: Duration,
    unpaced: u8,
}

impl Pacer {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { next_at: now, burst_left: 0, credit: Duration::ZERO, unpaced: UNPACED_SEGMENTS }
    }

    /// Whether a segment of data may leave at `now`.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.burst_left > 0 || self.next_at <= now
    }

    /// When the next burst may leave.
    pub(crate) fn next_at(&self) -> Instant {
        self.next_at
    }

    /// A segment of `len` bytes leaves, at a rate in bytes per second (0: not known yet, and unpaced) in bursts of `burst` segments.
    pub(crate) fn on_sent(&mut self, now: Instant, len: u32, rate: u64, burst: u32) {
        // A segment that does not wait for the pacer delays the next burst, and begins none.
        if self.burst_left == 0 && self.next_at <= now {
            self.credit = now.saturating_since(self.next_at);
            self.next_at = self.next_at.max(now);
            self.burst_left = burst;
        }
        self.burst_left = self.burst_left.saturating_sub(1);
        if self.unpaced > 0 {
            self.unpaced -= 1;
            return;
        }
        if rate == 0 {
            return;
        }
        let takes = Duration::from_nanos(u64::from(len).saturating_mul(1_000_000_000) / rate);
        let credited = (takes / 2).min(self.credit);
        self.credit -= credited;
        self.next_at = (self.next_at + (takes - credited)).min(now + MAX_WAIT);
    }

    /// Something else than the burst's length has ended it.
    pub(crate) fn end_burst(&mut self) {
        self.burst_left = 0;
    }
}

/// How many segments of `mss` bytes leave at once at `rate` bytes per second: at least `least` (Linux `tcp_tso_autosize`).
pub(crate) fn burst_segments(rate: u64, mss: u32, min_rtt: Option<Duration>, least: u32) -> u32 {
    let halvings = min_rtt.map_or(u64::MAX, |rtt| rtt.as_nanos() / SHORT_RTT.as_nanos());
    let for_short_paths = if halvings < 32 { MAX_BURST_BYTES >> halvings } else { 0 };
    let bytes = ((rate >> BURST_SHIFT) + for_short_paths).min(MAX_BURST_BYTES);
    ((bytes / u64::from(mss.max(1))) as u32).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1_000_000;

    fn started() -> Pacer {
        Pacer { unpaced: 0, ..Pacer::new(Instant::ZERO) }
    }

    #[test]
    fn a_burst_is_followed_by_the_time_that_it_takes() {
        let mut pacer = started();
        for _ in 0..2 {
            assert!(pacer.is_open(Instant::ZERO));
            pacer.on_sent(Instant::ZERO, 1_000, RATE, 2);
        }
        assert!(!pacer.is_open(Instant::from_micros(1_999)));
        assert!(pacer.is_open(Instant::from_millis(2)));
    }

    #[test]
    fn a_burst_that_ends_early_is_charged_for_what_it_held() {
        let mut pacer = started();
        pacer.on_sent(Instant::ZERO, 1_000, RATE, 5);
        pacer.end_burst();
        assert!(!pacer.is_open(Instant::ZERO));
        assert_eq!(pacer.next_at(), Instant::from_millis(1));
    }

    #[test]
    fn time_beyond_a_wait_halves_the_next_one_at_most() {
        let mut pacer = started();
        pacer.on_sent(Instant::from_millis(10), 1_000, RATE, 1);
        assert_eq!(pacer.next_at(), Instant::from_micros(10_500));
        // 0.2 ms late.
        pacer.on_sent(Instant::from_micros(10_700), 1_000, RATE, 1);
        assert_eq!(pacer.next_at(), Instant::from_micros(11_500));
    }

    #[test]
    fn packets_sent_out_of_turn_begin_no_burst() {
        let mut pacer = started();
        pacer.on_sent(Instant::ZERO, 1_000, RATE, 1);
        pacer.on_sent(Instant::ZERO, 1_000, RATE, 2);
        assert!(!pacer.is_open(Instant::ZERO));
        assert_eq!(pacer.next_at(), Instant::from_millis(2));
    }

    #[test]
    fn no_burst_is_waited_for_longer_than_a_second() {
        let mut pacer = started();
        pacer.on_sent(Instant::from_secs(5), 60_000, 1, 1);
        assert_eq!(pacer.next_at(), Instant::from_secs(6));
    }

    #[test]
    fn the_first_ten_segments_leave_unpaced() {
        let mut pacer = Pacer::new(Instant::ZERO);
        for _ in 0..10 {
            assert!(pacer.is_open(Instant::ZERO));
            pacer.on_sent(Instant::ZERO, 1_000, RATE, 1);
        }
        pacer.on_sent(Instant::ZERO, 1_000, RATE, 1);
        assert!(!pacer.is_open(Instant::ZERO));
    }

    #[test]
    fn bursts_hold_a_millisecond_and_more_on_short_paths() {
        let ms = Duration::from_millis;
        assert_eq!(burst_segments(1_250_000, 1448, Some(ms(50)), 2), 2);
        assert_eq!(burst_segments(12_500_000, 1448, Some(ms(50)), 2), 8);
        assert_eq!(burst_segments(12_500_000, 1448, Some(Duration::from_micros(600)), 2), 31);
        assert_eq!(burst_segments(u64::MAX, 1448, None, 2), 45);
        assert_eq!(burst_segments(100, 1448, None, 1), 1);
    }
}
