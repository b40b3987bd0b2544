//! PROBE_BW: DOWN, CRUISE, REFILL and UP, and the resulting bound on data in flight (draft-ietf-ccwg-bbr-06 section
//! 5.3.3).

use holdover_base::{Duration, Instant};

use super::super::bbr::BbrAck;
use super::signals::beta;
use super::{Bbr3, MIN_CWND, State, UNIT};

/// Share of the bound that is left to other flows, in percent (section 2.6, BBR.Headroom).
const HEADROOM_PERCENT: u64 = 15;
/// Section 5.3.3.8: probes are two to three seconds apart.
const LEAST_WAIT: Duration = Duration::from_secs(2);
const WAIT_SPREAD: Duration = Duration::from_secs(1);
/// Section 5.3.3.8: or as many rounds as the target in flight has segments, but no more than this.
const MOST_ROUNDS: u64 = 63;
const MOST_UP_ROUNDS: u32 = 30;

/// BBR.ack_phase: relation of the ACKs to a probe (section 2.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// The state of probing.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Probing {
    pub(super) ack_phase: AckPhase,
    /// BBR.is_bw_probe_sample: ACKs cover data sent while probing, and no loss was evaluated yet.
    pub(super) is_sample: bool,
    /// BBR.bw_probe_up_acked, BBR.probe_up_acked_per_inc (`None` while the bound does not grow) and BBR.bw_probe_up_rounds.
    up_acked: u64,
    acked_per_increment: Option<u64>,
    up_rounds: u32,
    pub(super) rounds_since_up: u64,
    wait: Duration,
    /// BBR.cycle_stamp.
    since: Instant,
    /// BBR.prev_probe_too_high and BBR.prev_probe_precautionary.
    was_too_high: bool,
    was_precautionary: bool,
}

impl Probing {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            ack_phase: AckPhase::Init,
            is_sample: false,
            up_acked: 0,
            acked_per_increment: None,
            up_rounds: 0,
            rounds_since_up: 0,
            wait: Duration::ZERO,
            since: now,
            was_too_high: false,
            was_precautionary: false,
        }
    }
}

/// Entering the states.
impl Bbr3 {
    pub(super) fn start_down(&mut self, now: Instant, delivered: u64) {
        self.signals.reset();
        self.probing.acked_per_increment = None;
        self.probing.rounds_since_up = self.rng.below(2);
        self.probing.wait = LEAST_WAIT + Duration::from_nanos(self.rng.below(WAIT_SPREAD.as_nanos()));
        self.probing.since = now;
        self.probing.ack_phase = AckPhase::ProbeStopping;
        self.start_round(delivered);
        self.state = State::Down;
    }

    pub(super) fn start_cruise(&mut self) {
        self.state = State::Cruise;
    }

    pub(super) fn start_refill(&mut self, delivered: u64) {
        self.signals.forget_short_term();
        self.probing.up_rounds = 0;
        self.probing.up_acked = 0;
        self.probing.was_precautionary = false;
        self.probing.ack_phase = AckPhase::Refilling;
        self.start_round(delivered);
        self.state = State::Refill;
    }

    fn start_up(&mut self, ack: &BbrAck) {
        self.probing.ack_phase = AckPhase::ProbeStarting;
        self.start_round(ack.totals.delivered);
        self.full.look_anew(ack.rate.map_or(0, |sample| sample.rate()));
        self.state = State::Up;
        self.raise_slope(ack.cwnd);
    }
}

/// The cycle.
impl Bbr3 {
    /// UpdateProbeBWCyclePhase.
    pub(super) fn update_cycle(&mut self, ack: &BbrAck) {
        if !self.full.reached || self.adapt_long_term(ack) {
            return;
        }
        let state = self.state;
        match state {
            State::Down if !self.refill_if_due(ack) && self.is_time_to_cruise(ack) => self.start_cruise(),
            State::Cruise => _ = self.refill_if_due(ack),
            State::Refill if self.is_round_start => {
                self.probing.is_sample = true;
                self.start_up(ack);
            }
            State::Up if self.is_time_to_go_down(ack) => {
                self.probing.was_too_high = false;
                self.start_down(ack.now, ack.totals.delivered);
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW.
    fn refill_if_due(&mut self, ack: &BbrAck) -> bool {
        let rounds = self.target_volume(ack.initial_cwnd, ack.cwnd).min(MOST_ROUNDS);
        let is_due = ack.now > self.probing.since + self.probing.wait || self.probing.rounds_since_up >= rounds;
        if is_due {
            self.start_refill(ack.totals.delivered);
        }
        is_due
    }

    fn is_time_to_cruise(&self, ack: &BbrAck) -> bool {
        let in_flight = u64::from(ack.in_flight);
        self.volume_with_headroom().is_none_or(|most| in_flight <= most)
            && in_flight <= self.volume(self.signals.max_rate(), UNIT, ack)
    }

    fn is_time_to_go_down(&mut self, ack: &BbrAck) -> bool {
        let Some(bound) = self.long_term_volume else { return self.full.now };
        // Data in flight before this ACK.
        if self.probing.was_too_high && u64::from(ack.prior_in_flight) >= bound {
            self.probing.was_precautionary = true;
            return true;
        }
        if ack.is_cwnd_limited && u64::from(ack.cwnd) >= bound {
            // The bound, not the path, limits the rate.
            self.full.look_anew(ack.rate.map_or(0, |sample| sample.rate()));
            return false;
        }
        self.full.now
    }

    /// TargetInflight.
    fn target_volume(&self, initial_cwnd: u32, cwnd: u32) -> u64 {
        self.product(UNIT, initial_cwnd).min(cwnd.into())
    }

    /// InflightWithHeadroom; `None` for no bound.
    pub(super) fn volume_with_headroom(&self) -> Option<u64> {
        let bound = self.long_term_volume?;
        let headroom = (bound.saturating_mul(HEADROOM_PERCENT) / 100).max(1);
        Some(bound.saturating_sub(headroom).max(MIN_CWND.into()))
    }
}

/// The bound.
impl Bbr3 {
    /// AdaptLongTermModel. Returns whether the state has changed.
    fn adapt_long_term(&mut self, ack: &BbrAck) -> bool {
        if self.probing.ack_phase == AckPhase::ProbeStarting && self.is_round_start {
            self.probing.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.probing.ack_phase == AckPhase::ProbeStopping && self.is_round_start {
            self.probing.is_sample = false;
            self.probing.ack_phase = AckPhase::Init;
            if self.state.is_probe_bandwidth() && ack.rate.is_some_and(|sample| !sample.is_app_limited) {
                self.signals.begin_cycle();
            }
            // The cautious probe succeeded: the next one follows at once (section 5.3.3.6).
            if self.state.is_probe_bandwidth() && self.probing.was_precautionary && !self.probing.was_too_high {
                self.start_refill(ack.totals.delivered);
                return true;
            }
        }
        if let (Some(bound), Some(sample)) = (self.long_term_volume, &ack.rate)
            && !self.is_flight_too_high(Some(sample))
        {
            self.long_term_volume = Some(bound.max(sample.flight_at_departure.into()));
            if self.state == State::Up {
                self.raise_long_term(ack);
            }
        }
        false
    }

    /// ProbeInflightLongtermUpward.
    fn raise_long_term(&mut self, ack: &BbrAck) {
        let Some(bound) = self.long_term_volume else { return };
        if !ack.is_cwnd_limited || u64::from(ack.cwnd) < bound {
            return;
        }
        self.probing.up_acked += u64::from(ack.acked);
        if let Some(per_increment) = self.probing.acked_per_increment {
            let increments = self.probing.up_acked / per_increment;
            self.probing.up_acked -= increments * per_increment;
            self.long_term_volume = Some(bound.saturating_add(increments));
        }
        if self.is_round_start {
            self.raise_slope(ack.cwnd);
        }
    }

    /// RaiseInflightLongtermSlope: by one segment in the first round, by two in the second, by four in the third.
    fn raise_slope(&mut self, cwnd: u32) {
        let growth = 1_u64 << self.probing.up_rounds;
        self.probing.up_rounds = (self.probing.up_rounds + 1).min(MOST_UP_ROUNDS);
        self.probing.acked_per_increment = Some((u64::from(cwnd) / growth).max(1));
    }

    /// Section 5.5.10.2, HandleInflightTooHigh: too many losses with `flight` segments in flight.
    pub(super) fn handle_flight_too_high(
        &mut self,
        now: Instant,
        flight: u64,
        is_app_limited: bool,
        delivered: u64,
        cwnd: u32,
    ) {
        self.probing.was_too_high = true;
        self.probing.is_sample = false;
        if !is_app_limited {
            let least = beta(self.target_volume(cwnd, cwnd));
            self.long_term_volume = Some(flight.max(least));
        }
        if self.state == State::Up {
            self.undo.state = Some(State::Up);
            self.start_down(now, delivered);
        }
    }
}

#[cfg(test)]
impl Bbr3 {
    pub(super) fn probing_was_too_high(&self) -> bool {
        self.probing.was_too_high
    }
}
