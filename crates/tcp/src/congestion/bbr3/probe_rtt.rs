//! The least round-trip time, and PROBE_RTT, which looks for it (draft-ietf-ccwg-bbr-06 section 5.3.4).

use holdover_base::{Duration, Instant};

use super::super::bbr::{BbrAck, Decision};
use super::probe_bandwidth::AckPhase;
use super::{Bbr3, State};

/// BBR.MinRTTFilterLen (section 2.14.1).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// BBR.ProbeRTTInterval and BBR.ProbeRTTDuration (section 2.14.2).
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);

/// The least round-trip times of ten and of five seconds.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct RoundTrips {
    /// `None` before the first sample.
    pub(super) min: Option<Duration>,
    min_at: Instant,
    /// BBR.probe_rtt_min_delay and its stamp.
    recent: Option<Duration>,
    pub(super) recent_at: Instant,
    has_expired: bool,
    done_at: Option<Instant>,
    round_done: bool,
}

impl RoundTrips {
    pub(super) const fn new(now: Instant, srtt: Option<Duration>) -> Self {
        Self {
            min: srtt,
            min_at: now,
            recent: srtt,
            recent_at: now,
            has_expired: false,
            done_at: None,
            round_done: false,
        }
    }
}

impl Bbr3 {
    /// UpdateMinRTT.
    pub(super) fn update_min_rtt(&mut self, ack: &BbrAck) {
        let trips = &mut self.round_trips;
        trips.has_expired = ack.now > trips.recent_at + PROBE_RTT_INTERVAL;
        if let Some(rtt) = ack.rtt
            && (trips.has_expired || trips.recent.is_none_or(|recent| rtt < recent))
        {
            (trips.recent, trips.recent_at) = (Some(rtt), ack.now);
        }
        let min_has_expired = ack.now > trips.min_at + MIN_RTT_WINDOW;
        if let Some(recent) = trips.recent
            && (min_has_expired || trips.min.is_none_or(|min| recent < min))
        {
            (trips.min, trips.min_at) = (Some(recent), trips.recent_at);
        }
    }

    /// CheckProbeRTT.
    pub(super) fn check_probe_rtt(&mut self, ack: &BbrAck, decision: &mut Decision) {
        if self.state != State::ProbeRtt && self.round_trips.has_expired && !self.restarts_from_idle {
            self.save_cwnd(decision.cwnd);
            self.state = State::ProbeRtt;
            self.round_trips.done_at = None;
            self.probing.ack_phase = AckPhase::ProbeStopping;
            self.start_round(ack.totals.delivered);
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(ack, decision);
        }
        if ack.rate.is_some() {
            self.restarts_from_idle = false;
        }
    }

    fn handle_probe_rtt(&mut self, ack: &BbrAck, decision: &mut Decision) {
        decision.is_app_limited = true;
        if self.round_trips.done_at.is_none() {
            if u64::from(ack.in_flight) <= self.probe_rtt_volume(ack.initial_cwnd) {
                self.round_trips.done_at = Some(ack.now + PROBE_RTT_TIME);
                self.round_trips.round_done = false;
                self.start_round(ack.totals.delivered);
            }
            return;
        }
        self.round_trips.round_done |= self.is_round_start;
        if self.round_trips.round_done
            && let Some(cwnd) = self.leave_probe_rtt_if_done(ack.now, ack.totals.delivered, decision.cwnd)
        {
            decision.cwnd = cwnd;
        }
    }

    /// CheckProbeRTTDone and ExitProbeRTT: returns the window that comes back.
    pub(super) fn leave_probe_rtt_if_done(&mut self, now: Instant, delivered: u64, cwnd: u32) -> Option<u32> {
        if self.round_trips.done_at.is_none_or(|done_at| now <= done_at) {
            return None;
        }
        self.round_trips.recent_at = now;
        self.signals.forget_short_term();
        if self.full.reached {
            self.start_down(now, delivered);
            self.start_cruise();
        } else {
            self.state = State::Startup;
        }
        Some(cwnd.max(self.prior_cwnd))
    }
}
