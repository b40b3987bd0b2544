//! Recent deliveries: the highest rate of the last two probing cycles, and the deliveries of a round with losses
//! (draft-ietf-ccwg-bbr-06 section 5.5).

use super::super::bbr::BbrAck;
use super::Bbr3;
use crate::delivery_rate::RateSample;

/// A loss of more than one in this number of segments is too high (section 2.6, BBR.LossThresh: 2 %).
const LOSS_SHARE: u64 = 50;

/// Samples of rounds, and the bounds that follow from losses.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Signals {
    /// BBR.max_bw_filter: the highest rate of the current and of the previous cycle.
    max_rates: [u64; 2],
    /// BBR.bw_latest and BBR.inflight_latest: the highest of the current round.
    pub(super) latest_rate: u64,
    pub(super) latest_volume: u64,
    /// BBR.bw_shortterm and BBR.inflight_shortterm; `None` for no bound.
    pub(super) short_term_rate: Option<u64>,
    pub(super) short_term_volume: Option<u64>,
    pub(super) loss_round_delivered: u64,
    pub(super) is_loss_round_start: bool,
    pub(super) is_loss_in_round: bool,
}

impl Signals {
    /// BBR.max_bw.
    pub(super) fn max_rate(&self) -> u64 {
        self.max_rates[0].max(self.max_rates[1])
    }

    /// Section 5.5.6, AdvanceMaxBwFilter. A cycle without a sample leaves the one before in force.
    pub(super) fn begin_cycle(&mut self) {
        if self.max_rates[0] > 0 {
            self.max_rates = [0, self.max_rates[0]];
        }
    }

    /// ResetCongestionSignals.
    pub(super) fn reset(&mut self) {
        (self.is_loss_in_round, self.latest_rate, self.latest_volume) = (false, 0, 0);
    }

    /// ResetShortTermModel.
    pub(super) fn forget_short_term(&mut self) {
        (self.short_term_rate, self.short_term_volume) = (None, None);
    }

    /// AdvanceLatestDeliverySignals.
    pub(super) fn advance(&mut self, sample: Option<&RateSample>) {
        if let Some(sample) = sample.filter(|_| self.is_loss_round_start) {
            (self.latest_rate, self.latest_volume) = (sample.rate(), sample.delivered);
        }
    }
}

impl Bbr3 {
    /// Section 5.5.10.3, UpdateLatestDeliverySignals.
    pub(super) fn update_latest_delivery(&mut self, ack: &BbrAck) {
        let signals = &mut self.signals;
        signals.is_loss_round_start = false;
        let Some(sample) = &ack.rate else { return };
        signals.latest_rate = signals.latest_rate.max(sample.rate());
        signals.latest_volume = signals.latest_volume.max(sample.delivered);
        if sample.prior_delivered >= signals.loss_round_delivered {
            signals.loss_round_delivered = ack.totals.delivered;
            signals.is_loss_round_start = true;
        }
    }

    /// Section 5.5.10.3, UpdateCongestionSignals; sections 5.5.1 and 5.5.5, UpdateMaxBw.
    pub(super) fn update_congestion(&mut self, ack: &BbrAck) {
        self.is_round_start = false;
        let Some(sample) = &ack.rate else { return };
        if sample.prior_delivered >= self.next_round_delivered {
            self.start_round(ack.totals.delivered);
            self.rounds += 1;
            self.probing.rounds_since_up += 1;
            self.is_round_start = true;
        }
        let rate = sample.rate();
        if rate >= self.signals.max_rate() || !sample.is_app_limited {
            self.signals.max_rates[0] = self.signals.max_rates[0].max(rate);
        }
        if self.signals.is_loss_round_start {
            self.adapt_short_term(ack);
            self.signals.is_loss_in_round = false;
        }
    }

    /// Section 5.5.10.3, AdaptLowerBoundsFromCongestion: once a round, to its deliveries, but by 30 % at most.
    fn adapt_short_term(&mut self, ack: &BbrAck) {
        if self.state.seeks_bandwidth() || !self.signals.is_loss_in_round {
            return;
        }
        let window = if ack.state >= crate::recovery::RecoveryState::Recovery {
            ack.cwnd.max(self.prior_cwnd)
        } else {
            ack.cwnd
        };
        let signals = &mut self.signals;
        let rate = signals.short_term_rate.unwrap_or(signals.max_rate());
        let volume = signals.short_term_volume.unwrap_or(window.into());
        signals.short_term_rate = Some(signals.latest_rate.max(beta(rate)));
        signals.short_term_volume = Some(signals.latest_volume.max(beta(volume)));
    }

    /// Section 5.5.10.2, IsInflightTooHigh.
    pub(super) fn is_too_high(&self, lost: u64, flight: u64) -> bool {
        lost.saturating_mul(LOSS_SHARE) > flight || (lost > 0 && !self.has_sack)
    }

    /// The same of a sample.
    pub(super) fn is_flight_too_high(&self, sample: Option<&RateSample>) -> bool {
        sample.is_some_and(|sample| self.is_too_high(sample.lost, sample.flight_at_departure.into()))
    }
}

/// BBR.Beta: 0.7 of `value` (section 2.6).
pub(super) fn beta(value: u64) -> u64 {
    u64::try_from(u128::from(value) * 7 / 10).unwrap_or(u64::MAX)
}
