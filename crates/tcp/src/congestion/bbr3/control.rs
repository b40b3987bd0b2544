//! The pacing rate and the window (draft-ietf-ccwg-bbr-06 section 5.6).

use holdover_base::Duration;

use super::super::bbr::{Bbr, BbrAck, Decision, bdp};
use super::{Bbr3, MIN_CWND, STARTUP_GAIN, State};
use crate::bandwidth::bandwidth;
use crate::pacing::burst_segments;

/// A burst is two segments at least (section 5.6.3).
pub(crate) const LEAST_BURST: u32 = 2;

/// The rate.
impl Bbr3 {
    /// BBR.bw: the highest rate, but no more than the short-term bound.
    pub(super) fn bandwidth(&self) -> u64 {
        self.signals.max_rate().min(self.signals.short_term_rate.unwrap_or(u64::MAX))
    }

    /// InitPacingRate (section 5.6.2).
    pub(super) fn init_pacing_rate(&mut self, srtt: Option<Duration>, cwnd: u32, mss: u32) {
        self.has_seen_rtt = srtt.is_some();
        let bw = bandwidth(cwnd.into(), srtt.unwrap_or(Duration::from_millis(1)));
        self.pacing_rate = Bbr::rate(bw, STARTUP_GAIN, mss);
    }

    pub(super) fn note_first_rtt(&mut self, ack: &BbrAck) {
        if !self.has_seen_rtt && ack.srtt.is_some() {
            self.init_pacing_rate(ack.srtt, ack.cwnd, ack.mss);
        }
    }

    /// SetPacingRateWithGain: before the pipe is full, the rate only grows.
    pub(super) fn set_pacing_rate(&mut self, gain: u64, mss: u32) {
        let rate = Bbr::rate(self.bandwidth(), gain, mss);
        if self.full.reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }
}

/// The window.
impl Bbr3 {
    /// BDPMultiple, by BBR.bw.
    pub(super) fn product(&self, gain: u64, initial_cwnd: u32) -> u64 {
        self.round_trips.min.map_or(u64::from(initial_cwnd), |rtt| bdp(self.bandwidth(), rtt, gain))
    }

    /// Inflight: target at `bw` (section 5.6.4.2).
    pub(super) fn volume(&self, bw: u64, gain: u64, ack: &BbrAck) -> u64 {
        let product = self.round_trips.min.map_or(u64::from(ack.initial_cwnd), |rtt| bdp(bw, rtt, gain));
        self.with_bursts(product, ack.mss)
    }

    /// QuantizationBudget: room for bursts that wait at both ends.
    fn with_bursts(&self, volume: u64, mss: u32) -> u64 {
        let burst = burst_segments(self.pacing_rate, mss, None, LEAST_BURST);
        let volume = volume.max(3 * u64::from(burst)).max(MIN_CWND.into());
        volume.saturating_add(if self.state == State::Up { 2 } else { 0 })
    }

    /// ProbeRTTCwnd (section 5.6.4.5).
    pub(super) fn probe_rtt_volume(&self, initial_cwnd: u32) -> u64 {
        self.product(super::PROBE_RTT_CWND_GAIN, initial_cwnd).max(MIN_CWND.into())
    }

    /// SetCwnd (section 5.6.4.6).
    pub(super) fn set_cwnd(&self, ack: &BbrAck, decision: &mut Decision) {
        let extra = if self.full.reached { self.aggregation.allowance(self.bandwidth()) } else { 0 };
        let most = self.product(self.state.cwnd_gain(), ack.initial_cwnd).saturating_add(extra);
        let most = u32::try_from(self.with_bursts(most, ack.mss)).unwrap_or(u32::MAX);
        let grown = decision.cwnd.saturating_add(ack.acked);
        if self.full.reached {
            decision.cwnd = grown.min(most);
        } else if decision.cwnd < most || ack.totals.delivered < u64::from(ack.initial_cwnd) {
            decision.cwnd = grown;
        }
        decision.cwnd = decision.cwnd.max(MIN_CWND);
        if self.state == State::ProbeRtt {
            decision.cwnd =
                decision.cwnd.min(u32::try_from(self.probe_rtt_volume(ack.initial_cwnd)).unwrap_or(u32::MAX));
        }
        self.bound_cwnd(decision);
    }

    /// BoundCwndForModel (section 5.6.4.7).
    fn bound_cwnd(&self, decision: &mut Decision) {
        let long_term = match self.state {
            State::Down | State::Refill | State::Up => self.long_term_volume,
            State::Cruise | State::ProbeRtt => self.volume_with_headroom(),
            State::Startup | State::Drain => None,
        };
        let cap = long_term.unwrap_or(u64::MAX).min(self.signals.short_term_volume.unwrap_or(u64::MAX));
        let cap = u32::try_from(cap).unwrap_or(u32::MAX).max(MIN_CWND);
        decision.cwnd = decision.cwnd.min(cap);
    }
}
