//! BBR, version 3, as published (draft-ietf-ccwg-bbr-06, whose section numbers are given here, and its names where they are words).
//!
//! As in version 1 the sender paces at a measured delivery rate and bounds the data in flight by a multiple of rate times delay. It differs
//! in its reaction to losses. Probing finds a *long-term* bound on the data in flight: the volume at which more than 2 % are lost.
//! *Short-term* bounds of rate and volume follow the delivery in rounds with losses, and are dropped before the next probe. Probing is
//! rare, every two to three seconds, or as often as Reno would have grown its window to the same flight.
//!
//! Three things are not the draft's. It leaves the answer to ECN open (section 3.7): here an echo counts as a loss of its round. And the
//! short-term volume begins at the window before a timeout, not at the one segment that a timeout leaves of it, which would outlast
//! the recovery by seconds. The state that an undo restores is saved once for a recovery: the draft saves it again at the first loss after
//! each change of state, and so saves the recovery's own changes.
//!
//! Rates are in segments per 2^24 us, gains in 1/256, volumes in segments.

mod control;
mod probe_bandwidth;
mod probe_rtt;
mod signals;

use holdover_base::{Duration, Instant, Rng};
use holdover_wire::Seq;

use super::bbr::aggregation::Aggregation;
use super::bbr::{BbrAck, Decision, MIN_CWND, UNIT};
use crate::departure::LostSegment;
use crate::recovery::RecoveryState;
pub(crate) use control::LEAST_BURST;
use probe_bandwidth::Probing;
use probe_rtt::RoundTrips;
use signals::Signals;

/// Section 5.3.1.1, BBR.StartupPacingGain: 2.77.
const STARTUP_GAIN: u64 = 709;
/// Section 5.3.2, BBR.DrainPacingGain: 0.5.
const DRAIN_GAIN: u64 = UNIT / 2;
/// Section 5.3.3.1: 0.9.
const DOWN_GAIN: u64 = 230;
/// Section 5.3.3.4: 1.25.
const UP_GAIN: u64 = UNIT * 5 / 4;
/// Section 5.6.1: of the product of rate and delay; 2.25 while probing upwards, and 0.5 in PROBE_RTT.
const CWND_GAIN: u64 = 2 * UNIT;
const UP_CWND_GAIN: u64 = UNIT * 9 / 4;
const PROBE_RTT_CWND_GAIN: u64 = UNIT / 2;
/// Section 5.3.1.2: the pipe is full when the rate has grown by less than a quarter in three rounds.
const FULL_BANDWIDTH_ROUNDS: u8 = 3;
/// Section 5.3.1.3, BBRStartupFullLossCnt.
const STARTUP_LOSS_RANGES: u32 = 6;
/// Section 5.3.2: DRAIN ends after this number of rounds in any case.
const DRAIN_ROUNDS: u64 = 3;

/// BBR.state (section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// One of the ProbeBW states.
    const fn is_probe_bandwidth(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// IsProbingBW: losses are to be expected, and do not lower the short-term bounds.
    const fn seeks_bandwidth(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    const fn pacing_gain(self) -> u64 {
        match self {
            Self::Startup => STARTUP_GAIN,
            Self::Drain => DRAIN_GAIN,
            Self::Down => DOWN_GAIN,
            Self::Cruise | Self::Refill | Self::ProbeRtt => UNIT,
            Self::Up => UP_GAIN,
        }
    }

    const fn cwnd_gain(self) -> u64 {
        match self {
            Self::Up => UP_CWND_GAIN,
            Self::ProbeRtt => PROBE_RTT_CWND_GAIN,
            _ => CWND_GAIN,
        }
    }
}

/// Whether the pipe is full (section 5.3.1.2).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct FullBandwidth {
    rate: u64,
    rounds: u8,
    /// Since the last reset: ends PROBE_UP.
    now: bool,
    /// Ever: ends STARTUP.
    reached: bool,
}

impl FullBandwidth {
    /// ResetFullBW; `rate` is the rate to exceed.
    fn look_anew(&mut self, rate: u64) {
        *self = Self { rate, rounds: 0, now: false, reached: self.reached };
    }
}

/// State to restore if a recovery turns out to be spurious (section 5.5.11).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Undo {
    state: Option<State>,
    short_term_rate: Option<u64>,
    short_term_volume: Option<u64>,
    long_term_volume: Option<u64>,
}

/// The model of the path and the state of its probing.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bbr3 {
    state: State,
    /// In bytes per second.
    pacing_rate: u64,
    has_seen_rtt: bool,
    signals: Signals,
    probing: Probing,
    round_trips: RoundTrips,
    aggregation: Aggregation,
    full: FullBandwidth,
    /// BBR.inflight_longterm; `None` for no bound.
    long_term_volume: Option<u64>,
    undo: Undo,
    /// BBR.round_count and its delivered mark (section 5.5.1).
    rounds: u64,
    next_round_delivered: u64,
    is_round_start: bool,
    drain_since_round: u64,
    /// The round in which fast recovery began, if it lasts.
    recovery_since_round: Option<u64>,
    /// Loss ranges in the current round, and the end of the last.
    lost_ranges: u32,
    lost_range_end: Option<Seq>,
    /// The window before recovery or PROBE_RTT.
    prior_cwnd: u32,
    prior_state: RecoveryState,
    /// The saved state belongs to the current recovery.
    is_state_saved: bool,
    restarts_from_idle: bool,
    has_sack: bool,
    rng: Rng,
}

impl Bbr3 {
    /// Section 5.2.1, OnInit, at the start of a connection whose handshake took `srtt`. `seed` randomizes the probe
    /// interval.
    pub(crate) fn new(now: Instant, seed: u64, srtt: Option<Duration>, cwnd: u32, mss: u32, has_sack: bool) -> Self {
        let mut bbr = Self {
            state: State::Startup,
            pacing_rate: 0,
            has_seen_rtt: false,
            signals: Signals::default(),
            probing: Probing::new(now),
            round_trips: RoundTrips::new(now, srtt),
            aggregation: Aggregation::default(),
            full: FullBandwidth::default(),
            long_term_volume: None,
            undo: Undo::default(),
            rounds: 0,
            next_round_delivered: 0,
            is_round_start: false,
            drain_since_round: 0,
            recovery_since_round: None,
            lost_ranges: 0,
            lost_range_end: None,
            prior_cwnd: 0,
            prior_state: RecoveryState::Open,
            is_state_saved: false,
            restarts_from_idle: false,
            has_sack,
            rng: Rng::new(seed),
        };
        bbr.aggregation.begin_epoch(now);
        bbr.init_pacing_rate(srtt, cwnd, mss);
        bbr
    }

    /// In bytes per second.
    pub(crate) fn pacing_rate(&self) -> u64 {
        self.pacing_rate
    }

    /// An ACK while data was outstanding (section 5.2.3, UpdateOnACK).
    pub(crate) fn on_ack(&mut self, ack: &BbrAck) -> Decision {
        let mut decision = Decision { cwnd: ack.cwnd, ssthresh: None, is_app_limited: false };
        self.follow_recovery(ack, &mut decision);
        self.update_latest_delivery(ack);
        self.update_congestion(ack);
        if ack.acked > 0 && ack.rate.is_some() {
            let (bw, starts) = (self.bandwidth(), self.is_round_start);
            self.aggregation.on_ack(ack.now, bw, ack.acked, ack.cwnd, starts);
        }
        self.check_full_bandwidth(ack);
        self.check_startup_done(ack);
        self.check_drain_done(ack);
        self.update_cycle(ack);
        self.update_min_rtt(ack);
        self.check_probe_rtt(ack, &mut decision);
        self.signals.advance(ack.rate.as_ref());
        self.note_first_rtt(ack);
        self.set_pacing_rate(self.state.pacing_gain(), ack.mss);
        self.set_cwnd(ack, &mut decision);
        decision
    }

    /// The end of recovery restores the window (section 5.6.4.4).
    fn follow_recovery(&mut self, ack: &BbrAck, decision: &mut Decision) {
        let prior = core::mem::replace(&mut self.prior_state, ack.state);
        if prior >= RecoveryState::Recovery && ack.state < RecoveryState::Recovery {
            decision.cwnd = decision.cwnd.max(self.prior_cwnd);
        }
        self.is_state_saved &= ack.state >= RecoveryState::Recovery;
        if ack.state != RecoveryState::Recovery {
            self.recovery_since_round = None;
        } else if self.recovery_since_round.is_none() {
            self.recovery_since_round = Some(self.rounds);
        }
    }

    /// SaveCwnd (section 5.6.4.4).
    pub(crate) fn save_cwnd(&mut self, cwnd: u32) {
        let is_settled = self.prior_state < RecoveryState::Recovery && self.state != State::ProbeRtt;
        self.prior_cwnd = if is_settled { cwnd } else { self.prior_cwnd.max(cwnd) };
    }

    /// Fast recovery begins or the retransmission timer expires (section 5.5.11.1, SaveStateUponLoss).
    pub(crate) fn save_state(&mut self, cwnd: u32) {
        self.save_cwnd(cwnd);
        self.is_state_saved = true;
        self.undo = Undo {
            state: None,
            short_term_rate: self.signals.short_term_rate,
            short_term_volume: self.signals.short_term_volume,
            long_term_volume: self.long_term_volume,
        };
    }

    /// The retransmission timer has expired.
    pub(crate) fn on_timeout(&mut self) {
        self.prior_state = RecoveryState::Loss;
    }

    /// Presumed losses were spurious (section 5.5.11.2). Returns the window.
    pub(crate) fn on_undo(&mut self, delivered: u64, cwnd: u32) -> u32 {
        self.signals.is_loss_in_round = false;
        self.full.look_anew(0);
        let undo = core::mem::take(&mut self.undo);
        self.signals.short_term_rate = larger(self.signals.short_term_rate, undo.short_term_rate);
        self.signals.short_term_volume = larger(self.signals.short_term_volume, undo.short_term_volume);
        self.long_term_volume = larger(self.long_term_volume, undo.long_term_volume);
        match undo.state {
            Some(State::Startup) if self.state != State::Startup => {
                self.full.reached = false;
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if !matches!(self.state, State::Up | State::ProbeRtt) => self.start_refill(delivered),
            _ => {}
        }
        cwnd.max(self.prior_cwnd)
    }

    /// Sending restarts with nothing in flight, after the application had nothing to send (section 5.4.1). Returns the
    /// window if this ends PROBE_RTT.
    pub(crate) fn on_restart_from_idle(&mut self, now: Instant, delivered: u64, cwnd: u32, mss: u32) -> Option<u32> {
        self.restarts_from_idle = true;
        self.aggregation.begin_epoch(now);
        if self.state.is_probe_bandwidth() {
            self.set_pacing_rate(UNIT, mss);
        }
        (self.state == State::ProbeRtt).then(|| self.leave_probe_rtt_if_done(now, delivered, cwnd)).flatten()
    }

    fn start_round(&mut self, delivered: u64) {
        self.next_round_delivered = delivered;
    }
}

/// The larger of two bounds; `None`: unbounded.
fn larger(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.zip(b).map(|(a, b)| a.max(b))
}

/// STARTUP and DRAIN.
impl Bbr3 {
    /// Section 5.3.1.2, CheckFullBWReached.
    fn check_full_bandwidth(&mut self, ack: &BbrAck) {
        let Some(sample) = ack.rate.filter(|sample| !sample.is_app_limited) else { return };
        if self.full.now || !self.is_round_start {
            return;
        }
        let rate = sample.rate();
        if rate >= self.full.rate.saturating_mul(5) / 4 {
            self.full.look_anew(rate);
            return;
        }
        self.full.rounds += 1;
        self.full.now = self.full.rounds >= FULL_BANDWIDTH_ROUNDS;
        self.full.reached |= self.full.now;
    }

    fn check_startup_done(&mut self, ack: &BbrAck) {
        self.check_startup_losses(ack);
        if self.state == State::Startup && self.full.reached {
            self.state = State::Drain;
            self.drain_since_round = self.rounds;
        }
    }

    /// Section 5.3.1.3, CheckStartupHighLoss: more than 2 % of a round, in six places, while fast recovery has lasted for a round.
    fn check_startup_losses(&mut self, ack: &BbrAck) {
        if self.state == State::Startup && !self.full.reached && ack.state == RecoveryState::Recovery {
            let is_enough = if self.has_sack {
                let lasts = self.recovery_since_round.is_some_and(|since| self.rounds > since);
                let is_scattered = self.lost_ranges >= STARTUP_LOSS_RANGES;
                lasts && is_scattered && self.signals.is_loss_round_start && self.is_flight_too_high(ack.rate.as_ref())
            } else {
                self.lost_ranges > 0
            };
            if is_enough {
                self.undo.state = Some(State::Startup);
                (self.full.reached, self.full.now) = (true, true);
                let product = self.product(UNIT, ack.initial_cwnd);
                self.long_term_volume = Some(product.max(self.signals.latest_volume));
            }
        }
        if self.signals.is_loss_round_start {
            (self.lost_ranges, self.lost_range_end) = (0, None);
        }
    }

    /// Section 5.3.2, CheckDrainDone.
    fn check_drain_done(&mut self, ack: &BbrAck) {
        let is_drained = || u64::from(ack.in_flight) <= self.volume(self.bandwidth(), UNIT, ack);
        if self.state == State::Drain && (is_drained() || self.rounds > self.drain_since_round + DRAIN_ROUNDS) {
            self.start_down(ack.now, ack.totals.delivered);
        }
    }
}

/// Losses.
impl Bbr3 {
    /// Section 5.5.10.2, HandleLostPacket, for segments marked lost since the last call.
    pub(crate) fn on_losses(&mut self, now: Instant, lost: &[LostSegment], delivered: u64, cwnd: u32) {
        for segment in lost {
            self.note_loss(delivered, cwnd);
            if self.lost_range_end != Some(segment.seq) {
                self.lost_ranges += 1;
            }
            self.lost_range_end = Some(segment.end);
            if !self.probing.is_sample {
                continue;
            }
            let lost_since = segment.lost - segment.departure.lost;
            let flight = u64::from(segment.departure.flight);
            if self.is_too_high(lost_since, flight) {
                let at_loss = flight_at_loss(flight, lost_since);
                self.handle_flight_too_high(now, at_loss, segment.departure.is_app_limited, delivered, cwnd);
            }
        }
    }

    /// An ACK echoes a congestion mark: counts as a loss in its round.
    pub(crate) fn on_congestion_echo(&mut self, ack: &BbrAck) {
        self.note_loss(ack.totals.delivered, ack.cwnd);
        if let Some(sample) = ack.rate.filter(|_| self.probing.is_sample) {
            let (flight, is_app_limited) = (u64::from(sample.flight_at_departure), sample.is_app_limited);
            self.handle_flight_too_high(ack.now, flight, is_app_limited, ack.totals.delivered, ack.cwnd);
        }
    }

    fn note_loss(&mut self, delivered: u64, cwnd: u32) {
        if !core::mem::replace(&mut self.signals.is_loss_in_round, true) {
            self.signals.loss_round_delivered = delivered;
            if !self.is_state_saved {
                self.save_state(cwnd);
            }
        }
    }
}

/// Section 5.5.10.2, InflightAtLoss: how much was in flight when the losses exceeded 2 %.
fn flight_at_loss(flight: u64, lost: u64) -> u64 {
    let (flight_before, lost_before) = (flight.saturating_sub(1), lost.saturating_sub(1));
    flight_before + (2 * flight_before).saturating_sub(100 * lost_before) / 98
}

#[cfg(test)]
mod tests;
