//! RACK loss detection and tail loss probes (RFC 8985).

use holdover_base::{Duration, Instant};

use super::Connection;
use super::ack::AckReport;
use super::fields::Pending;
use crate::config::{LossDetection, ZeroWindow};
use crate::recovery::sent::Sent;
use crate::recovery::{LossProbe, RecoveryState};
use crate::timers::Timer;

/// Minimum of the reordering and probe timers, as in Linux (`TCP_TIMEOUT_MIN`, two jiffies at 1000 Hz).
const TIMER_MIN: Duration = Duration::from_millis(2);

/// How long a peer may delay the ACK of a single segment (RFC 8985 section 7.2, TLP.max_ack_delay), as Linux allows for it.
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);

impl Connection {
    /// RFC 8985 section 6.2 step 5, after an ACK. Returns whether the reordering timer was armed instead of the
    /// retransmission timer.
    pub(super) fn rack_mark_lost(&mut self, now: Instant) -> bool {
        if !core::mem::take(&mut self.recovery.rack.advanced) {
            return false;
        }
        match self.rack_detect(now) {
            Some(wait) => {
                self.timers.disarm(Timer::Retransmit);
                self.timers.disarm(Timer::LossProbe);
                self.timers.arm(now, Timer::Reorder, wait + TIMER_MIN);
                true
            }
            None => false,
        }
    }

    /// Marks segments lost that were sent sufficiently before the latest delivered one; returns how long to wait for
    /// the others.
    fn rack_detect(&mut self, now: Instant) -> Option<Duration> {
        if self.is_barred(self.snd.una) && self.recovery.state < RecoveryState::Recovery {
            return None;
        }
        let deadline = self.recovery.rack.rtt + self.reordering_window();
        let mut wait: Option<Duration> = None;
        let mut next = 0;
        while let Some(index) = self.queue.next_in_flight(next) {
            next = index + 1;
            let sent = self.queue.get(index);
            if !self.sent_before_latest_delivery(index) {
                // First transmissions are in order: all that follow were sent later, retransmitted or not.
                if !sent.was_retransmitted() {
                    break;
                }
                continue;
            }
            let elapsed = now.saturating_since(sent.sent_at);
            if elapsed >= deadline {
                // A segment retransmitted at the instant of an earlier ACK is not lost: no delivered segment can have left after it.
                if !(elapsed.is_zero() && sent.is_retransmitted()) {
                    self.queue.mark_lost(index);
                }
            } else {
                let remaining = deadline - elapsed;
                wait = Some(wait.map_or(remaining, |wait| wait.max(remaining)));
            }
        }
        wait
    }

    /// RFC 8985 section 6.2 step 4, with Linux's least RTT and bound.
    fn reordering_window(&self) -> Duration {
        let recovery = &self.recovery;
        if recovery.reordering_seen == 0 {
            // As long as no reordering was seen, DupThresh segments are evidence enough.
            if recovery.state >= RecoveryState::Recovery || self.queue.sacked() >= recovery.reordering {
                return Duration::ZERO;
            }
        }
        let quarter = self.rtt.min_rtt().unwrap_or(Duration::ZERO) / 4;
        (quarter * u64::from(recovery.rack.steps)).min(self.rtt.srtt().unwrap_or(Duration::ZERO))
    }

    /// The reordering timer expired: marks the segments lost (RFC 8985 section 6.3).
    pub(super) fn on_reorder_timeout(&mut self, now: Instant) {
        let in_flight = self.queue.in_flight();
        let _ = self.rack_detect(now);
        if self.queue.in_flight() != in_flight && self.recovery.state < RecoveryState::Recovery {
            self.enter_recovery(now);
            if self.model.is_none() {
                let ssthresh = self.congestion.ssthresh();
                let cwnd = self.recovery.episode.to_mut().prr.window(self.queue.in_flight(), ssthresh, 1, false);
                self.congestion.set_cwnd(&self.config.congestion, cwnd);
            }
        }
        self.restart_retransmit(now);
    }

    /// Arms the probe timer in place of the retransmission timer if a probe is useful (RFC 8985 section 7.2).
    /// `restart`: whether the retransmission timeout restarts.
    pub(super) fn schedule_loss_probe(&mut self, now: Instant, restart: bool) -> bool {
        let wanted = self.config.recovery.loss_probe
            && self.loss_detection() == LossDetection::Rack
            && !self.queue.is_empty()
            && matches!(self.recovery.state, RecoveryState::Open | RecoveryState::Cwr)
            && self.state.is_synchronized();
        if !wanted {
            return false;
        }
        let mut timeout = match self.rtt.srtt() {
            // The peer may delay the ACK of a single segment.
            Some(srtt) if self.queue.packets_out() == 1 => srtt * 2 + MAX_ACK_DELAY,
            Some(srtt) => srtt * 2 + TIMER_MIN,
            None => self.config.rto.initial,
        };
        let rto = self.rtt.rto();
        let left = if restart { rto } else { self.left_of_rto(now, rto) };
        if !left.is_zero() {
            timeout = timeout.min(left);
        }
        self.timers.disarm(Timer::Retransmit);
        self.timers.disarm(Timer::Reorder);
        self.timers.arm(now, Timer::LossProbe, timeout);
        true
    }

    /// Remainder of the RTO, counted from the transmission of the first outstanding segment.
    fn left_of_rto(&self, now: Instant, rto: Duration) -> Duration {
        let sent_at = self.queue.front().map_or(now, |front| front.sent_at);
        rto - now.saturating_since(sent_at)
    }

    /// RFC 6298 section 5.3: restarts the retransmission timer, or the probe timer in its place. If another timer was
    /// armed instead, the time since the first outstanding segment was sent counts.
    pub(super) fn restart_retransmit(&mut self, now: Instant) {
        let pulled_back = self.snd.wnd == 0
            && self.config.recovery.zero_window == ZeroWindow::PullBack
            && self.timers.is_armed(Timer::Persist);
        if self.queue.is_empty() || pulled_back {
            self.timers.disarm(Timer::Retransmit);
            return;
        }
        if self.schedule_loss_probe(now, true) {
            return;
        }
        self.rearm_rto(now);
    }

    pub(super) fn rearm_rto(&mut self, now: Instant) {
        let stand_in = self.timers.is_armed(Timer::LossProbe) || self.timers.is_armed(Timer::Reorder);
        let rto = self.rtt.rto();
        let delay = if stand_in { self.left_of_rto(now, rto).max(Duration::from_micros(1)) } else { rto };
        self.arm_retransmit(now, delay);
    }

    /// The probe timer ran out (RFC 8985 section 7.3): new data if there is any, else the last segment again.
    pub(super) fn on_probe_timeout(&mut self, now: Instant) {
        let rto = self.rtt.rto();
        // One probe at a time, and none beyond a shrunken window.
        if self.recovery.loss_probe.is_none() && self.may_probe_loss() {
            self.pending.insert(Pending::LOSS_PROBE);
            // RFC 8985 section 7.3: a full RTO follows the probe.
            return self.arm_retransmit(now, rto);
        }
        let delay = self.left_of_rto(now, rto).max(Duration::from_micros(1));
        self.arm_retransmit(now, delay);
    }

    /// Whether a loss probe has something to send: new data, or the last segment if the peer's window still covers it.
    fn may_probe_loss(&self) -> bool {
        let window_end = self.snd.una + self.snd.wnd;
        let in_window = |last: &Sent| last.seq == self.snd.una || last.seq.lt(window_end);
        self.queue.iter().next_back().is_some_and(in_window)
    }

    /// RFC 8985 section 7.4: detects a loss that only the probe repaired.
    pub(super) fn judge_loss_probe(&mut self, report: &AckReport) {
        let Some(LossProbe { high_seq, retransmitted }) = self.recovery.loss_probe else { return };
        let ack = self.snd.una;
        if ack.lt(high_seq) {
            return;
        }
        if !retransmitted {
            self.recovery.loss_probe = None;
        } else if ack.gt(high_seq) {
            // The ACK covers the probe without a DSACK: the original was lost, so the window is reduced once.
            self.start_reduction();
            if self.model.is_none() {
                let ssthresh = self.congestion.ssthresh();
                self.congestion.set_cwnd(&self.config.congestion, ssthresh);
            }
            self.recovery.loss_probe = None;
        } else if report.duplicate {
            // Both the original and the probe arrived.
            self.recovery.loss_probe = None;
        }
    }
}
