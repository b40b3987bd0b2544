//! The congestion window: how it grows, shrinks, decays and recovers (RFC 5681, RFC 9438, RFC 2861).
//!
//! Windows are counted in segments, as in Linux and ns-2; with full-sized segments this equals RFC 5681's bytes.

pub(crate) mod bbr;
pub(crate) mod bbr3;
mod cubic;
mod hystart;
mod hystart_plus_plus;
pub(crate) mod path_model;

use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

use crate::config::{AckCounting, Algorithm, CongestionConfig, CwndIncrease, HyStartVariant, SsthreshBasis};
use cubic::Cubic;
use hystart::{HyStart, LOW_WINDOW};
use hystart_plus_plus::{Growth, HyStartPlusPlus};

/// "No limit yet": the slow-start threshold before the first loss.
pub(crate) const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// The congestion window of a connection.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CongestionWindow {
    cwnd: u32,
    ssthresh: u32,
    /// Acknowledged segments that have not opened the window yet (congestion avoidance).
    credit: u32,
    cubic: Cubic,
    /// The round of Linux's HyStart: whether there is one, when it began, and with which segment it ends.
    hystart_runs: bool,
    hystart_start: Instant,
    hystart_end: Seq,
    /// The detector of the end of slow start, while it lasts.
    watch: Option<Box<SlowStartWatch>>,
    /// The most that was in flight since `used_since` while the application, not the window, was the limit.
    used: u32,
    used_since: Instant,
    /// Whether the window was the limit during the current round, and the most that was out in it.
    limited: bool,
    max_out: u32,
    round_end: Seq,
}

/// One of the ways to leave slow start before it loses segments.
#[derive(Clone, PartialEq, Debug)]
enum SlowStartWatch {
    Linux(HyStart),
    Rfc9406(HyStartPlusPlus),
}

/// The window's input from an ACK.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct AckSample {
    pub(crate) now: Instant,
    /// Segments newly acknowledged, cumulatively or by SACK.
    pub(crate) acked: u32,
    /// The round-trip time of the newest segment acknowledged, if it was never retransmitted.
    pub(crate) rtt: Option<Duration>,
    pub(crate) snd_una: Seq,
    pub(crate) snd_nxt: Seq,
    pub(crate) is_paced: bool,
    /// The largest window that the peer can advertise, in segments, for [`CwndIncrease::EveryAck`].
    pub(crate) largest_send_window: u32,
}

impl CongestionWindow {
    pub(crate) fn new(config: &CongestionConfig, mss: u32, now: Instant) -> Self {
        Self {
            cwnd: config.initial_window.segments(mss).min(config.max_window_segments).max(1),
            ssthresh: INFINITE_SSTHRESH,
            credit: 0,
            cubic: Cubic::new(),
            hystart_runs: false,
            hystart_start: now,
            hystart_end: Seq::default(),
            watch: None,
            used: 0,
            used_since: now,
            limited: false,
            max_out: 0,
            round_end: Seq::default(),
        }
    }

    pub(crate) fn cwnd(&self) -> u32 {
        self.cwnd
    }

    pub(crate) fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    pub(crate) fn set_cwnd(&mut self, config: &CongestionConfig, cwnd: u32) {
        self.cwnd = cwnd.clamp(1, config.max_window_segments.max(1));
    }

    pub(crate) fn set_ssthresh(&mut self, ssthresh: u32) {
        self.ssthresh = ssthresh.clamp(2, INFINITE_SSTHRESH);
    }

    pub(crate) fn clear_credit(&mut self) {
        self.credit = 0;
    }

    /// The new ssthresh after a loss; the algorithm remembers where the loss was.
    pub(crate) fn ssthresh_after_loss(&mut self, config: &CongestionConfig, flight: u32, peer_window: u32) -> u32 {
        let basis = match config.ssthresh_basis {
            SsthreshBasis::FlightSize => flight,
            SsthreshBasis::CongestionWindow => self.cwnd,
            SsthreshBasis::SendWindow => self.cwnd.min(peer_window),
        };
        match config.algorithm {
            Algorithm::Reno => (basis / 2).max(2),
            Algorithm::Cubic => self.cubic.ssthresh_after_loss(basis),
            // It does not take losses for congestion.
            Algorithm::Bbr | Algorithm::Bbr3 => self.ssthresh,
        }
    }

    /// A retransmission timeout: the estimates of the path are discarded.
    pub(crate) fn forget_path(&mut self) {
        self.cubic.reset();
        self.hystart_runs = false;
        self.watch = None;
    }

    /// The ssthresh that leads back to the present window (Linux `tcp_current_ssthresh`).
    pub(crate) fn ssthresh_for_current(&self, reducing: bool) -> u32 {
        if reducing { self.ssthresh } else { self.ssthresh.max(self.cwnd / 2 + self.cwnd / 4) }
    }

    /// An ACK outside of recovery acknowledges `sample.acked` segments: the window opens, subject to [`CwndIncrease`].
    pub(crate) fn on_ack(&mut self, config: &CongestionConfig, sample: &AckSample) {
        if config.algorithm == Algorithm::Cubic
            && let Some(rtt) = sample.rtt
        {
            self.watch_slow_start(config, rtt, sample);
        }
        let may_open = match config.increase {
            CwndIncrease::WhileLimiting => self.is_limiting(),
            CwndIncrease::EveryAck => self.cwnd < sample.largest_send_window,
        };
        if !may_open {
            return;
        }
        let before = self.cwnd;
        self.open(config, sample);
        if config.increase == CwndIncrease::EveryAck {
            self.cwnd = self.cwnd.min(sample.largest_send_window.max(before));
        }
    }

    /// Slow start or congestion avoidance.
    #[inline(always)]
    fn open(&mut self, config: &CongestionConfig, sample: &AckSample) {
        let mut acked = match config.counting {
            AckCounting::PerAck => 1,
            AckCounting::PerSegment => sample.acked,
        };
        if self.in_slow_start() {
            acked = self.open_in_slow_start(config, acked, sample);
            if acked == 0 {
                return;
            }
        }
        let per = match config.algorithm {
            Algorithm::Reno | Algorithm::Bbr | Algorithm::Bbr3 => self.cwnd,
            Algorithm::Cubic => self.cubic.acks_per_segment(self.cwnd, acked, sample.now),
        };
        self.open_by_credit(config, per, acked);
    }

    /// Linux's HyStart, with CUBIC.
    fn watch_slow_start(&mut self, config: &CongestionConfig, rtt: Duration, sample: &AckSample) {
        let delay_min = self.cubic.on_rtt(rtt, sample.now);
        if !config.hystart || config.hystart_variant != HyStartVariant::Linux {
            return;
        }
        if !self.in_slow_start() || self.cubic.hystart_found {
            self.hystart_runs = false;
            self.watch = None;
            return;
        }
        let Some(delay_min) = delay_min else { return };
        if !self.hystart_runs || sample.snd_una.gt(self.hystart_end) {
            self.hystart_runs = true;
            self.hystart_start = sample.now;
            self.hystart_end = sample.snd_nxt;
            if let Some(watch) = self.watch.as_deref_mut() {
                *watch = SlowStartWatch::Linux(HyStart::new(sample.now));
            }
        }
        // Most connections that do little stay here, and need no watch.
        if self.cwnd < LOW_WINDOW {
            return;
        }
        let start = self.hystart_start;
        let watch = self.watch.get_or_insert_with(|| Box::new(SlowStartWatch::Linux(HyStart::new(start))));
        let SlowStartWatch::Linux(hystart) = &mut **watch else { return };
        if hystart.on_ack(start, delay_min, rtt.max(Duration::from_micros(1)), sample) {
            self.cubic.hystart_found = true;
            self.ssthresh = self.cwnd;
        }
    }

    /// Slow start; returns how many of the acknowledged segments are left for congestion avoidance.
    fn open_in_slow_start(&mut self, config: &CongestionConfig, acked: u32, sample: &AckSample) -> u32 {
        let watches = config.hystart && config.hystart_variant == HyStartVariant::Rfc9406;
        if !watches || self.ssthresh != INFINITE_SSTHRESH {
            let opened = acked.min(self.ssthresh - self.cwnd);
            self.set_cwnd(config, self.cwnd.saturating_add(opened));
            return acked - opened;
        }
        if !matches!(self.watch.as_deref(), Some(SlowStartWatch::Rfc9406(_))) {
            self.watch = Some(Box::new(SlowStartWatch::Rfc9406(HyStartPlusPlus::new())));
        }
        let Some(SlowStartWatch::Rfc9406(hystart)) = self.watch.as_deref_mut() else { return acked };
        match hystart.on_ack(acked, sample) {
            Growth::Open(opened) => {
                self.set_cwnd(config, self.cwnd.saturating_add(opened));
                0
            }
            Growth::Exit => {
                self.ssthresh = self.cwnd;
                self.watch = None;
                acked
            }
        }
    }

    /// Opens the window by one segment for every `per` acknowledged ones.
    fn open_by_credit(&mut self, config: &CongestionConfig, per: u32, acked: u32) {
        // Credit left over from a time with a larger `per` opens one segment, not many.
        if self.credit >= per {
            self.credit = 0;
            self.set_cwnd(config, self.cwnd.saturating_add(1));
        }
        self.credit += acked;
        if self.credit >= per {
            let opened = self.credit / per;
            self.credit -= opened * per;
            self.set_cwnd(config, self.cwnd.saturating_add(opened));
        }
    }

    /// Whether the window was what limited sending, in this round or the one before.
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    /// Whether the window has limited sending: only then may it grow (not in RFC 9293; Linux `tcp_is_cwnd_limited`; in
    /// slow start it may grow to twice the amount used).
    fn is_limiting(&self) -> bool {
        self.limited || (self.in_slow_start() && self.cwnd < 2 * self.max_out)
    }

    /// Notes after a burst of sending whether the window was the limit, and lets it decay if it is long unused
    /// (RFC 2861 as Linux does it, `tcp_cwnd_validate`).
    pub(crate) fn on_sent(&mut self, config: &CongestionConfig, state: &SendState) {
        if state.limited_by_window
            || !self.limited && state.packets_out > self.max_out
            || !state.snd_una.lt(self.round_end)
        {
            self.limited = state.limited_by_window;
            self.max_out = state.packets_out;
            self.round_end = state.snd_nxt;
        }
        if self.is_limiting() {
            self.used = 0;
            self.used_since = state.now;
            return;
        }
        self.used = self.used.max(state.packets_out);
        let unused_for = state.now.saturating_since(self.used_since);
        if config.validate_after_idle && unused_for >= state.rto && state.can_decay {
            let used = self.used.max(config.initial_window.segments(state.mss));
            if used < self.cwnd {
                self.ssthresh = self.ssthresh_for_current(false);
                self.cwnd = u32::midpoint(self.cwnd, used);
            }
            self.used = 0;
            self.used_since = state.now;
        }
    }

    /// Sending begins again after `idle` with nothing outstanding: the window has decayed by half for each RTO
    /// (RFC 2861 section 3.2), or is back at the start (RFC 5681 section 4.1).
    pub(crate) fn after_idle(
        &mut self,
        config: &CongestionConfig,
        now: Instant,
        idle: Duration,
        rto: Duration,
        mss: u32,
    ) {
        self.cubic.shift_epoch(idle);
        if idle <= rto || config.algorithm.is_model_based() {
            return;
        }
        let restart = config.initial_window.segments(mss).min(self.cwnd);
        if config.restart_after_idle {
            self.cwnd = restart;
        } else if config.validate_after_idle {
            self.ssthresh = self.ssthresh_for_current(false);
            let halvings = (idle.as_nanos() / rto.as_nanos().max(1)).min(31) as u32;
            self.cwnd = (self.cwnd >> halvings).max(restart);
        } else {
            return;
        }
        self.used = 0;
        self.used_since = now;
    }

    /// An event at `now`, not use, has set the window: usage before `now` no longer counts (Linux `snd_cwnd_stamp`).
    pub(crate) fn set_by_recovery(&mut self, now: Instant) {
        self.used_since = now;
    }

    /// The window before the loss that is being undone.
    pub(crate) fn undo_target(&self, config: &CongestionConfig, prior_cwnd: u32) -> u32 {
        // A model restores its window when recovery ends.
        if config.algorithm.is_model_based() { self.cwnd } else { self.cwnd.max(prior_cwnd) }
    }
}

/// Input of [`CongestionWindow::on_sent`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SendState {
    pub(crate) now: Instant,
    pub(crate) packets_out: u32,
    pub(crate) limited_by_window: bool,
    /// Whether the connection is in the open state, so that a decay cannot disturb a recovery.
    pub(crate) can_decay: bool,
    pub(crate) rto: Duration,
    pub(crate) mss: u32,
    pub(crate) snd_una: Seq,
    pub(crate) snd_nxt: Seq,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, InitialWindow};

    fn reno() -> CongestionConfig {
        CongestionConfig {
            algorithm: Algorithm::Reno,
            initial_window: InitialWindow::Segments(1),
            ..Config::rfc().congestion
        }
    }

    fn window(config: &CongestionConfig, cwnd: u32, ssthresh: u32) -> CongestionWindow {
        let mut window = CongestionWindow::new(config, 1460, Instant::ZERO);
        window.cwnd = cwnd;
        window.ssthresh = ssthresh;
        window.limited = true;
        window
    }

    fn ack(window: &mut CongestionWindow, config: &CongestionConfig, acked: u32) {
        let sample = AckSample {
            now: Instant::ZERO,
            acked,
            rtt: None,
            snd_una: Seq::new(0),
            snd_nxt: Seq::new(0),
            is_paced: false,
            largest_send_window: u32::MAX,
        };
        window.on_ack(config, &sample);
    }

    /// RFC 5681 section 3.1, equation 2: slow start opens cwnd by the amount acknowledged.
    #[test]
    fn rfc5681_slow_start_doubles_in_a_round() {
        let mut window = window(&reno(), 4, INFINITE_SSTHRESH);
        (0..4).for_each(|_| ack(&mut window, &reno(), 1));
        assert_eq!(window.cwnd(), 8);
    }

    /// RFC 5681 section 3.1, equation 3: congestion avoidance opens by one segment in a round.
    #[test]
    fn rfc5681_congestion_avoidance_opens_by_one_in_a_round() {
        let mut window = window(&reno(), 10, 10);
        (0..9).for_each(|_| ack(&mut window, &reno(), 1));
        assert_eq!(window.cwnd(), 10);
        ack(&mut window, &reno(), 1);
        assert_eq!(window.cwnd(), 11);
    }

    #[test]
    fn slow_start_stops_at_ssthresh_within_one_ack() {
        let mut window = window(&reno(), 8, 10);
        ack(&mut window, &reno(), 4);
        assert_eq!(window.cwnd(), 10);
    }

    #[test]
    fn counting_acks_opens_by_one_whatever_is_acknowledged() {
        let config = CongestionConfig { counting: AckCounting::PerAck, ..reno() };
        let mut window = window(&config, 4, INFINITE_SSTHRESH);
        ack(&mut window, &config, 2);
        assert_eq!(window.cwnd(), 5);
    }

    /// RFC 5681 equation 4, and the bases that other stacks use.
    #[test]
    fn ssthresh_has_a_basis_and_a_floor_of_two() {
        let of = |basis, cwnd, flight, peer| {
            let config = CongestionConfig { ssthresh_basis: basis, ..reno() };
            window(&config, cwnd, INFINITE_SSTHRESH).ssthresh_after_loss(&config, flight, peer)
        };
        assert_eq!(of(SsthreshBasis::FlightSize, 20, 12, 8), 6);
        assert_eq!(of(SsthreshBasis::CongestionWindow, 20, 12, 8), 10);
        assert_eq!(of(SsthreshBasis::SendWindow, 20, 12, 8), 4);
        assert_eq!(of(SsthreshBasis::FlightSize, 20, 1, 8), 2);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut window = window(&reno(), 10, 5);
        window.limited = false;
        ack(&mut window, &reno(), 20);
        assert_eq!(window.cwnd(), 10);
    }

    /// RFC 2861 section 3.2 with Linux's floor at the initial window.
    #[test]
    fn idle_halves_the_window_once_for_each_rto() {
        let config = CongestionConfig {
            validate_after_idle: true,
            restart_after_idle: false,
            initial_window: InitialWindow::Segments(10),
            ..reno()
        };
        let rto = Duration::from_secs(1);
        let idle = |millis: u64| {
            let mut window = window(&config, 100, 50);
            window.after_idle(&config, Instant::from_secs(100), Duration::from_millis(millis), rto, 1460);
            (window.cwnd(), window.ssthresh())
        };
        assert_eq!(idle(1000), (100, 50));
        assert_eq!(idle(1500), (50, 75));
        assert_eq!(idle(2500), (25, 75));
        assert_eq!(idle(60_000), (10, 75));
    }

    /// RFC 5681 section 4.1: after an idle RTO, the restart window.
    #[test]
    fn rfc5681_4_1_restart_after_idle() {
        let mut window = window(&reno(), 100, 50);
        window.after_idle(&reno(), Instant::from_secs(9), Duration::from_secs(2), Duration::from_secs(1), 1460);
        assert_eq!((window.cwnd(), window.ssthresh()), (1, 50));
    }
}
