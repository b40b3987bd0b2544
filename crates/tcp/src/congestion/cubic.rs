//! CUBIC (RFC 9438) in integer arithmetic, and HyStart's two ways to leave slow start, as Linux combines them.
//!
//! Integers, because a floating-point cube root may differ between platforms and a run must be reproducible.

use holdover_base::{Duration, Instant};

/// beta_cubic = 0.7 (RFC 9438 section 4.6), with Linux's denominator.
const BETA: u64 = 717;
const BETA_SCALE: u64 = 1024;
/// C = 0.4 (RFC 9438 section 5.1), as 2/5.
const C_NUM: u128 = 2;
const C_DEN: u128 = 5;
/// The cubic function is evaluated in units of 2^-10 s, Linux's BICTCP_HZ.
const TIME_SHIFT: u32 = 10;

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Cubic {
    /// The window before the last reduction, W_max, lowered by fast convergence; 0 when none is known.
    w_max: u32,
    /// The current congestion avoidance; `None` in slow start and right after a reduction.
    epoch: Option<Box<Epoch>>,
    /// The least round-trip time seen; zero before the first sample.
    delay_min: Duration,
    /// HyStart has ended slow start, and watches no other until a timeout.
    pub(super) hystart_found: bool,
}

/// One congestion avoidance, from its first ACK to the next reduction.
#[derive(Clone, PartialEq, Debug)]
struct Epoch {
    start: Instant,
    /// The plateau of the window, and the time from the start to it, K, in 2^-10 s.
    origin: u32,
    k: u64,
    /// The window that Reno would have, W_est, and the segments acknowledged towards its next step.
    w_est: u32,
    acked: u32,
    /// The last result, with its input and time.
    per_segment: u32,
    last_cwnd: u32,
    last_at: Instant,
}

impl Cubic {
    pub(super) const fn new() -> Self {
        Self { w_max: 0, epoch: None, delay_min: Duration::ZERO, hystart_found: false }
    }

    /// After a timeout the path may have changed: W_max and the delay are forgotten (Linux `bictcp_reset`).
    pub(super) fn reset(&mut self) {
        *self = Self::new();
    }

    /// RFC 9438 section 4.6, with fast convergence (section 4.7).
    pub(super) fn ssthresh_after_loss(&mut self, cwnd: u32) -> u32 {
        self.epoch = None;
        self.w_max =
            if cwnd < self.w_max { (u64::from(cwnd) * (BETA_SCALE + BETA) / (2 * BETA_SCALE)) as u32 } else { cwnd };
        ((u64::from(cwnd) * BETA / BETA_SCALE) as u32).max(2)
    }

    /// Time in which nothing could be sent does not count (RFC 9438 section 5.8).
    pub(super) fn shift_epoch(&mut self, idle: Duration) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += idle;
        }
    }

    /// How many segments have to be acknowledged for the window to open by one (RFC 9438 sections 4.2 to 4.5).
    pub(super) fn acks_per_segment(&mut self, cwnd: u32, acked: u32, now: Instant) -> u32 {
        if let Some(epoch) = &mut self.epoch {
            epoch.acked = epoch.acked.saturating_add(acked);
            // The curve is evaluated at most 32 times a second for the same window, as Linux does it.
            if epoch.last_cwnd == cwnd && now.saturating_since(epoch.last_at) <= Duration::from_millis(31) {
                return epoch.per_segment;
            }
        }
        let epoch = self.epoch.get_or_insert_with(|| Box::new(Epoch::begin(self.w_max, cwnd, acked, now)));
        epoch.last_cwnd = cwnd;
        epoch.last_at = now;
        let target = epoch.target(now.saturating_since(epoch.start) + self.delay_min);
        let mut per_segment = if target > cwnd { cwnd / (target - cwnd) } else { cwnd.saturating_mul(100) };
        // Without any W_max the curve starts flat, while nothing is known of the path: Linux goes at 5 % a round.
        if self.w_max == 0 {
            per_segment = per_segment.min(20);
        }
        epoch.per_segment = per_segment.min(epoch.reno_pace(cwnd)).max(2);
        epoch.per_segment
    }

    /// Takes a delay sample. Returns the least one, unless this one is of a queue that is draining right after a recovery.
    pub(super) fn on_rtt(&mut self, rtt: Duration, now: Instant) -> Option<Duration> {
        if self.epoch.as_ref().is_some_and(|epoch| now.saturating_since(epoch.start) < Duration::from_secs(1)) {
            return None;
        }
        let rtt = rtt.max(Duration::from_micros(1));
        if self.delay_min.is_zero() || rtt < self.delay_min {
            self.delay_min = rtt;
        }
        Some(self.delay_min)
    }
}

impl Epoch {
    fn begin(w_max: u32, cwnd: u32, acked: u32, now: Instant) -> Self {
        let origin = w_max.max(cwnd);
        // K = cbrt((W_max - cwnd) / C) (RFC 9438 equation 2), in 2^-10 s.
        let distance = u128::from(origin - cwnd) * C_DEN / C_NUM;
        let k = cube_root(distance << (3 * TIME_SHIFT));
        Self { start: now, origin, k, w_est: cwnd, acked, per_segment: 0, last_cwnd: cwnd, last_at: now }
    }

    /// W_cubic(t) = C (t - K)^3 + origin (RFC 9438 equation 1).
    fn target(&self, since_start: Duration) -> u32 {
        let t = (u128::from(since_start.as_nanos()) << TIME_SHIFT) / 1_000_000_000;
        let k = u128::from(self.k);
        let offset = t.abs_diff(k).min(1 << 40);
        let delta = (C_NUM * offset * offset * offset / C_DEN) >> (3 * TIME_SHIFT);
        let delta = u32::try_from(delta).unwrap_or(u32::MAX);
        if t < k { self.origin.saturating_sub(delta) } else { self.origin.saturating_add(delta) }
    }

    /// The Reno-friendly region (RFC 9438 section 4.3): how many ACKs for one segment if W_est is ahead.
    fn reno_pace(&mut self, cwnd: u32) -> u32 {
        // alpha_cubic = 3 (1 - beta) / (1 + beta), about 0.53: W_est opens by one for every cwnd / alpha segments.
        let per = (u64::from(cwnd) * 15 / 8).clamp(1, u64::from(u32::MAX)) as u32;
        let steps = self.acked / per;
        self.acked -= steps * per;
        self.w_est = self.w_est.saturating_add(steps);
        if self.w_est > cwnd { cwnd / (self.w_est - cwnd) } else { u32::MAX }
    }
}

/// The largest integer whose cube is at most `x`.
fn cube_root(x: u128) -> u64 {
    let mut root: u128 = 0;
    for bit in (0..=42).rev() {
        let candidate = root | 1 << bit;
        if candidate * candidate * candidate <= x {
            root = candidate;
        }
    }
    root as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cube_root_is_exact() {
        for x in [0_u128, 1, 7, 8, 26, 27, 1_000_000, 999_999, 1 << 90] {
            let root = u128::from(cube_root(x));
            assert!(root.pow(3) <= x && (root + 1).pow(3) > x, "{x}");
        }
    }

    /// RFC 9438 section 4.6: 0.7 of the window, and at least two segments.
    #[test]
    fn rfc9438_4_6_reduction() {
        assert_eq!(Cubic::new().ssthresh_after_loss(100), 70);
        assert_eq!(Cubic::new().ssthresh_after_loss(2), 2);
    }

    /// An owner may set any window.
    #[test]
    fn a_window_of_billions_of_segments_is_no_harm() {
        // 15/8 of it are just beyond 32 bits.
        assert!(Cubic::new().acks_per_segment(2_290_649_225, 1, Instant::ZERO) >= 2);
        assert!(Cubic::new().acks_per_segment(u32::MAX, u32::MAX, Instant::ZERO) >= 2);
    }

    /// RFC 9438 section 4.7: a window that did not come back to W_max gives up more of it.
    #[test]
    fn rfc9438_4_7_fast_convergence() {
        let mut cubic = Cubic::new();
        cubic.ssthresh_after_loss(100);
        cubic.ssthresh_after_loss(80);
        assert_eq!(cubic.w_max, 68);
    }

    /// RFC 9438 section 4.2: the window is back at W_max after K = cbrt(W_max (1 - beta) / C) seconds.
    #[test]
    fn rfc9438_4_2_plateau_at_k() {
        let mut cubic = Cubic::new();
        let cwnd = cubic.ssthresh_after_loss(1000);
        cubic.acks_per_segment(cwnd, 1, Instant::ZERO);
        // 1000 * 0.3 / 0.4 = 750 (700 segments are left: 750 exactly), cbrt(750) = 9.086 s.
        let k = Duration::from_millis(9086);
        let epoch = cubic.epoch.expect("congestion avoidance has begun");
        assert!(epoch.k.abs_diff(9304) <= 1, "{}", epoch.k);
        assert!(epoch.target(k).abs_diff(1000) <= 1);
        assert!(epoch.target(k * 2) > 1250);
        assert_eq!(epoch.target(Duration::ZERO), 1000 - 299);
    }
}
