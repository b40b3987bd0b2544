//! BBR, version 1, as in Linux 6 (draft-cardwell-iccrg-bbr-congestion-control-00; Cardwell and others, "BBR: Congestion-Based Congestion
//! Control", ACM Queue 14(5), 2016; and for later additions, ACK aggregation and policers, their reports to the IETF's ICCRG).
//!
//! The sender keeps a model of the path: the highest delivery rate of the last ten rounds, and the least round-trip time of the last
//! ten seconds. It paces at that rate times a gain, and keeps at most a small multiple of their product in flight. It sees one of the
//! two at a time: the rate by sending somewhat faster for a round trip, the delay by sending almost nothing for 200 ms. Losses do not
//! change the model.
//!
//! The draft's names: `BBR.BtlBw` is `max_bandwidth`, `BBR.RTprop` is `min_rtt`. Rates are in segments per 2^24 us, gains in 1/256.

pub(super) mod aggregation;
mod max_filter;
mod policer;

use holdover_base::{Duration, Instant, Rng};

use crate::bandwidth::{BW_SHIFT, bandwidth, bytes_per_second, segments_in};
use crate::delivery_rate::RateSample;
use crate::pacing::burst_segments;
use crate::recovery::RecoveryState;
use aggregation::Aggregation;
use max_filter::MaxFilter;
use policer::{Policer, PolicerAck, PolicerEvent};

pub(super) const UNIT: u64 = 256;
/// 2 / ln 2, the least gain that doubles the rate in each round (section 4.1.1, BBRHighGain).
const HIGH_GAIN: u64 = 739;
/// The inverse gain drains the queue of a STARTUP round in one round (section 4.3.3).
const DRAIN_GAIN: u64 = 88;
/// Twice the product is allowed in flight: ACKs may be delayed or come in bunches (section 4.2.3.3).
const CWND_GAIN: u64 = 2 * UNIT;
/// One round trip faster, one slower to drain what that has queued, six at the rate (section 4.3.4.2).
const CYCLE: [u64; 8] = [UNIT * 5 / 4, UNIT * 3 / 4, UNIT, UNIT, UNIT, UNIT, UNIT, UNIT];
/// The window of the highest rate (section 4.1.1.3, BtlBwFilterLen).
const BANDWIDTH_ROUNDS: u64 = 10;
/// The window of the least round-trip time, and how long PROBE_RTT lasts (section 4.1.2, RTpropFilterLen and ProbeRTTDuration).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// The least window, and the one of PROBE_RTT (section 4.2.3.2, BBRMinPipeCwnd).
pub(super) const MIN_CWND: u32 = 4;
/// The pipe is full when the rate has grown by less than a quarter in three rounds (section 4.3.2.2).
const FULL_BANDWIDTH_ROUNDS: u8 = 3;
/// How far pacing stays below the rate, in percent, so that no queue builds up (Linux `bbr_pacing_margin_percent`).
const MARGIN_PERCENT: u64 = 1;
/// Below 1.2 Mbit/s segments leave one by one (section 4.2.2), in bytes per second.
const SINGLE_SEGMENTS_BELOW: u64 = 150_000;

/// BBR.state (section 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// The model of the path and the state of its probing.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bbr {
    mode: Mode,
    pacing_gain: u64,
    cwnd_gain: u64,
    /// In bytes per second.
    pacing_rate: u64,
    has_seen_rtt: bool,
    max_bandwidth: MaxFilter,
    policer: Policer,
    aggregation: Aggregation,
    /// Round trips, counted by the delivered count when the now delivered segments were sent (section 4.1.1.1).
    rounds: u64,
    next_round_delivered: u64,
    is_round_start: bool,
    full_bandwidth: u64,
    full_bandwidth_rounds: u8,
    is_pipe_full: bool,
    /// `None` before the first sample.
    min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    probe_rtt_done_at: Option<Instant>,
    probe_rtt_round_done: bool,
    cycle: usize,
    cycle_at: Instant,
    /// The window before recovery or PROBE_RTT, which comes back afterwards.
    prior_cwnd: u32,
    prior_state: RecoveryState,
    /// In the first round of recovery as much leaves as is delivered (section 4.2.3.4).
    conserves_packets: bool,
    restarts_from_idle: bool,
    rng: Rng,
}

/// Input from an ACK.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct BbrAck {
    pub(crate) now: Instant,
    /// When the pacer lets the next segment go.
    pub(crate) departure_at: Instant,
    pub(crate) rate: Option<RateSample>,
    /// The round-trip time of the latest segment that it delivers.
    pub(crate) rtt: Option<Duration>,
    pub(crate) srtt: Option<Duration>,
    /// Segments that it delivers, and that it shows lost.
    pub(crate) acked: u32,
    pub(crate) losses: u32,
    pub(crate) totals: Totals,
    /// Before and after it.
    pub(crate) prior_in_flight: u32,
    pub(crate) in_flight: u32,
    pub(crate) state: RecoveryState,
    pub(crate) mss: u32,
    pub(crate) cwnd: u32,
    pub(crate) initial_cwnd: u32,
    /// Whether the window is what limits sending.
    pub(crate) is_cwnd_limited: bool,
}

/// Segments delivered and lost since the connection began.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Totals {
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
}

/// The result of an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decision {
    pub(crate) cwnd: u32,
    /// Where slow start would end: no concern of BBR's, but seen by `ss`.
    pub(crate) ssthresh: Option<u32>,
    /// The application sends less than the path could carry: samples from here on do not measure the path.
    pub(crate) is_app_limited: bool,
}

/// `gain` times the product of `bw` and `rtt`, in segments, rounded up.
pub(super) fn bdp(bw: u64, rtt: Duration, gain: u64) -> u64 {
    let product =
        (u128::from(bw) * u128::from(rtt.as_nanos() / 1_000)).saturating_mul(u128::from(gain)) / u128::from(UNIT);
    u64::try_from(product.div_ceil(1 << BW_SHIFT)).unwrap_or(u64::MAX)
}

/// Segments that leave at once at `rate` bytes per second, at least (section 4.2.2).
pub(crate) fn least_burst(rate: u64) -> u32 {
    if rate < SINGLE_SEGMENTS_BELOW { 1 } else { 2 }
}

impl Bbr {
    /// At the start of a connection whose handshake took `srtt`. `seed` chooses the phases in which bandwidth is probed for.
    pub(crate) fn new(now: Instant, seed: u64, srtt: Option<Duration>, cwnd: u32, mss: u32) -> Self {
        let mut bbr = Self {
            mode: Mode::Startup,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            pacing_rate: 0,
            has_seen_rtt: false,
            max_bandwidth: MaxFilter::new(BANDWIDTH_ROUNDS),
            policer: Policer::default(),
            aggregation: Aggregation::default(),
            rounds: 0,
            next_round_delivered: 0,
            is_round_start: false,
            full_bandwidth: 0,
            full_bandwidth_rounds: 0,
            is_pipe_full: false,
            min_rtt: srtt,
            min_rtt_at: now,
            probe_rtt_done_at: None,
            probe_rtt_round_done: false,
            cycle: 0,
            cycle_at: now,
            prior_cwnd: 0,
            prior_state: RecoveryState::Open,
            conserves_packets: false,
            restarts_from_idle: false,
            rng: Rng::new(seed),
        };
        bbr.policer.reset(now, 0, 0);
        bbr.aggregation.begin_epoch(now);
        bbr.init_pacing_rate(srtt, cwnd, mss);
        bbr
    }

    /// In bytes per second.
    pub(crate) fn pacing_rate(&self) -> u64 {
        self.pacing_rate
    }

    /// The window is reduced temporarily and restored later (section 4.2.3.4, BBRSaveCwnd).
    pub(crate) fn save_cwnd(&mut self, cwnd: u32) {
        let is_settled = self.prior_state < RecoveryState::Recovery && self.mode != Mode::ProbeRtt;
        self.prior_cwnd = if is_settled { cwnd } else { self.prior_cwnd.max(cwnd) };
    }

    /// The retransmission timer has expired: the full-pipe estimate restarts.
    pub(crate) fn on_timeout(&mut self, now: Instant, totals: Totals, mss: u32) {
        self.prior_state = RecoveryState::Loss;
        self.full_bandwidth = 0;
        self.is_round_start = true;
        let event = self.policer.on_ack(&PolicerAck {
            now,
            delivered: totals.delivered,
            lost: totals.lost,
            has_losses: true,
            is_app_limited: false,
            is_round_start: true,
            is_probing_bandwidth: self.mode == Mode::ProbeBandwidth,
            mss,
        });
        self.apply_policer_event(event, now);
    }

    /// A presumed loss was spurious.
    pub(crate) fn on_undo(&mut self, now: Instant, totals: Totals) {
        self.full_bandwidth = 0;
        self.full_bandwidth_rounds = 0;
        self.policer.reset(now, totals.delivered, totals.lost);
    }

    /// Sending restarts with nothing in flight, after the application had nothing to send (section 4.4.3): without a
    /// burst.
    pub(crate) fn on_restart_from_idle(&mut self, now: Instant, mss: u32) {
        self.restarts_from_idle = true;
        self.aggregation.begin_epoch(now);
        if self.mode == Mode::ProbeBandwidth {
            self.set_pacing_rate(self.bandwidth(), UNIT, mss);
        }
    }

    /// The same in PROBE_RTT, which may have ended; returns the window to restore.
    pub(crate) fn probe_rtt_is_over_after_idle(&mut self, now: Instant, cwnd: u32) -> Option<u32> {
        (self.mode == Mode::ProbeRtt).then(|| self.leave_probe_rtt_if_done(now, cwnd)).flatten()
    }

    /// An ACK while data was outstanding (section 4.1, BBRUpdateOnACK).
    pub(crate) fn on_ack(&mut self, ack: &BbrAck) -> Decision {
        let mut decision = Decision { cwnd: ack.cwnd, ssthresh: None, is_app_limited: false };
        self.update_bandwidth(ack);
        if ack.acked > 0 && ack.rate.is_some() {
            self.aggregation.on_ack(ack.now, self.bandwidth(), ack.acked, ack.cwnd, self.is_round_start);
        }
        self.update_cycle(ack);
        self.check_full_pipe(ack);
        self.check_drain(ack, &mut decision);
        self.update_min_rtt(ack, &mut decision);
        self.set_gains();
        self.note_first_rtt(ack);
        let bw = self.bandwidth();
        self.set_pacing_rate(bw, self.pacing_gain, ack.mss);
        self.set_cwnd(ack, bw, &mut decision);
        decision
    }

    /// The rate in use: the highest one, or a policer's.
    fn bandwidth(&self) -> u64 {
        self.policer.rate().unwrap_or(self.max_bandwidth.max())
    }
}

/// The model.
impl Bbr {
    /// Sections 4.1.1.1 to 4.1.1.3.
    fn update_bandwidth(&mut self, ack: &BbrAck) {
        self.is_round_start = false;
        let Some(sample) = ack.rate else { return };
        if sample.prior_delivered >= self.next_round_delivered {
            self.next_round_delivered = ack.totals.delivered;
            self.rounds += 1;
            self.is_round_start = true;
            self.conserves_packets = false;
        }
        let event = self.policer.on_ack(&PolicerAck {
            now: ack.now,
            delivered: ack.totals.delivered,
            lost: ack.totals.lost,
            has_losses: ack.losses > 0,
            is_app_limited: sample.is_app_limited,
            is_round_start: self.is_round_start,
            is_probing_bandwidth: self.mode == Mode::ProbeBandwidth,
            mss: ack.mss,
        });
        self.apply_policer_event(event, ack.now);
        let bw = bandwidth(sample.delivered, sample.interval);
        // A sample limited by the application is below the path's rate, but may exceed the estimate.
        if !sample.is_app_limited || bw >= self.max_bandwidth.max() {
            self.max_bandwidth.update(self.rounds, bw);
        }
    }

    fn apply_policer_event(&mut self, event: PolicerEvent, now: Instant) {
        match event {
            PolicerEvent::None => {}
            PolicerEvent::Found => self.pacing_gain = UNIT,
            PolicerEvent::Over => self.enter_probe_bandwidth(now),
        }
    }

    /// Section 4.1.2 and 4.3.5.
    fn update_min_rtt(&mut self, ack: &BbrAck, decision: &mut Decision) {
        let has_expired = ack.now > self.min_rtt_at + MIN_RTT_WINDOW;
        if let Some(rtt) = ack.rtt {
            let may_be_delayed = ack.rate.is_some_and(|sample| sample.may_be_delayed);
            if self.min_rtt.is_none_or(|least| rtt < least) || (has_expired && !may_be_delayed) {
                self.min_rtt = Some(rtt);
                self.min_rtt_at = ack.now;
            }
        }
        if has_expired && !self.restarts_from_idle && self.mode != Mode::ProbeRtt {
            self.save_cwnd(decision.cwnd);
            self.mode = Mode::ProbeRtt;
            self.probe_rtt_done_at = None;
        }
        if self.mode == Mode::ProbeRtt {
            decision.is_app_limited = true;
            if self.probe_rtt_done_at.is_none() && ack.in_flight <= MIN_CWND {
                self.probe_rtt_done_at = Some(ack.now + PROBE_RTT_TIME);
                self.probe_rtt_round_done = false;
                self.next_round_delivered = ack.totals.delivered;
            } else if self.probe_rtt_done_at.is_some() {
                self.probe_rtt_round_done |= self.is_round_start;
                if self.probe_rtt_round_done
                    && let Some(cwnd) = self.leave_probe_rtt_if_done(ack.now, decision.cwnd)
                {
                    decision.cwnd = cwnd;
                }
            }
        }
        if ack.rate.is_some() {
            self.restarts_from_idle = false;
        }
    }

    fn leave_probe_rtt_if_done(&mut self, now: Instant, cwnd: u32) -> Option<u32> {
        if self.probe_rtt_done_at.is_none_or(|done_at| now <= done_at) {
            return None;
        }
        self.min_rtt_at = now;
        if self.is_pipe_full {
            self.enter_probe_bandwidth(now);
        } else {
            self.mode = Mode::Startup;
        }
        Some(cwnd.max(self.prior_cwnd))
    }
}

/// The state machine.
impl Bbr {
    /// Section 4.3.4.3: the phase is random, but not the one that sends slower.
    fn enter_probe_bandwidth(&mut self, now: Instant) {
        self.mode = Mode::ProbeBandwidth;
        self.cycle = CYCLE.len() - 1 - self.rng.below(CYCLE.len() as u64 - 1) as usize;
        self.advance_cycle(now);
    }

    fn advance_cycle(&mut self, now: Instant) {
        self.cycle = (self.cycle + 1) % CYCLE.len();
        self.cycle_at = now;
    }

    /// Section 4.3.4.3: each phase lasts a round trip; the faster one lasts until its target is in flight or a loss
    /// occurs, the slower one until the queue is drained.
    fn update_cycle(&mut self, ack: &BbrAck) {
        if self.mode != Mode::ProbeBandwidth {
            return;
        }
        let is_full_length = ack.now.saturating_since(self.cycle_at) > self.min_rtt.unwrap_or(Duration::ZERO);
        let bw = self.max_bandwidth.max();
        let in_flight = u64::from(self.in_flight_at_departure(ack, ack.prior_in_flight));
        let is_over = match self.pacing_gain {
            UNIT => is_full_length,
            gain if gain > UNIT => is_full_length && (ack.losses > 0 || in_flight >= self.target(ack, bw, gain)),
            _ => is_full_length || in_flight <= self.target(ack, bw, UNIT),
        };
        if is_over {
            self.advance_cycle(ack.now);
        }
    }

    /// Section 4.3.2.2.
    fn check_full_pipe(&mut self, ack: &BbrAck) {
        if self.is_pipe_full || !self.is_round_start || ack.rate.is_none_or(|sample| sample.is_app_limited) {
            return;
        }
        let bw = self.max_bandwidth.max();
        if bw >= self.full_bandwidth.saturating_mul(5) / 4 {
            self.full_bandwidth = bw;
            self.full_bandwidth_rounds = 0;
            return;
        }
        self.full_bandwidth_rounds += 1;
        self.is_pipe_full = self.full_bandwidth_rounds >= FULL_BANDWIDTH_ROUNDS;
    }

    /// Section 4.3.3.
    fn check_drain(&mut self, ack: &BbrAck, decision: &mut Decision) {
        let target = self.target(ack, self.max_bandwidth.max(), UNIT);
        if self.mode == Mode::Startup && self.is_pipe_full {
            self.mode = Mode::Drain;
            decision.ssthresh = Some(u32::try_from(target).unwrap_or(u32::MAX));
        }
        if self.mode == Mode::Drain && u64::from(self.in_flight_at_departure(ack, ack.in_flight)) <= target {
            self.enter_probe_bandwidth(ack.now);
        }
    }

    fn set_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth if self.policer.rate().is_some() => (UNIT, CWND_GAIN),
            Mode::ProbeBandwidth => (CYCLE[self.cycle], CWND_GAIN),
            Mode::ProbeRtt => (UNIT, UNIT),
        };
    }
}

/// The rate and the window.
impl Bbr {
    fn init_pacing_rate(&mut self, srtt: Option<Duration>, cwnd: u32, mss: u32) {
        self.has_seen_rtt = srtt.is_some();
        let bw = bandwidth(cwnd.into(), srtt.unwrap_or(Duration::from_millis(1)));
        self.pacing_rate = Self::rate(bw, HIGH_GAIN, mss);
    }

    fn note_first_rtt(&mut self, ack: &BbrAck) {
        if !self.has_seen_rtt && ack.srtt.is_some() {
            self.init_pacing_rate(ack.srtt, ack.cwnd, ack.mss);
        }
    }

    pub(super) fn rate(bw: u64, gain: u64, mss: u32) -> u64 {
        let rate =
            u128::from(bytes_per_second(bw, mss)) * u128::from(gain * (100 - MARGIN_PERCENT)) / u128::from(UNIT * 100);
        u64::try_from(rate).unwrap_or(u64::MAX).max(1)
    }

    /// Section 4.2.1: before the pipe is full, the rate only grows.
    fn set_pacing_rate(&mut self, bw: u64, gain: u64, mss: u32) {
        let rate = Self::rate(bw, gain, mss);
        if self.is_pipe_full || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// Target in-flight: `gain` times the product, plus room for bursts at both ends (section 4.2.3.1, BBRInflight).
    fn target(&self, ack: &BbrAck, bw: u64, gain: u64) -> u64 {
        let product = self.min_rtt.map_or(u64::from(ack.initial_cwnd), |rtt| bdp(bw, rtt, gain));
        let quanta = 3 * u64::from(self.burst(ack.mss));
        let even = product.saturating_add(quanta + 1) & !1;
        // The faster phase must have an effect even on a path with a tiny product.
        even.saturating_add(if self.mode == Mode::ProbeBandwidth && self.cycle == 0 { 2 } else { 0 })
    }

    fn burst(&self, mss: u32) -> u32 {
        burst_segments(self.pacing_rate, mss, None, least_burst(self.pacing_rate))
    }

    /// The part of `in_flight` that will be outstanding when the next segment leaves.
    fn in_flight_at_departure(&self, ack: &BbrAck, in_flight: u32) -> u32 {
        let wait = ack.departure_at.saturating_since(ack.now);
        let delivered = segments_in(self.bandwidth(), wait);
        let in_flight = in_flight + if self.pacing_gain > UNIT { self.burst(ack.mss) } else { 0 };
        in_flight.saturating_sub(u32::try_from(delivered).unwrap_or(u32::MAX))
    }

    /// Section 4.2.3.
    fn set_cwnd(&mut self, ack: &BbrAck, bw: u64, decision: &mut Decision) {
        if ack.acked > 0 && !self.recover_or_restore(ack, decision) {
            let extra = if self.is_pipe_full { self.aggregation.allowance(bw) } else { 0 };
            let target = self.cwnd_target(ack, bw, extra);
            let grown = decision.cwnd.saturating_add(ack.acked);
            if self.is_pipe_full {
                decision.cwnd = grown.min(target);
            } else if decision.cwnd < target || ack.totals.delivered < u64::from(ack.initial_cwnd) {
                decision.cwnd = grown;
            }
            decision.cwnd = decision.cwnd.max(MIN_CWND);
        }
        if self.mode == Mode::ProbeRtt {
            decision.cwnd = decision.cwnd.min(MIN_CWND);
        }
    }

    fn cwnd_target(&self, ack: &BbrAck, bw: u64, extra: u64) -> u32 {
        let target = self.target(ack, bw, self.cwnd_gain).saturating_add(extra);
        u32::try_from(target).unwrap_or(u32::MAX)
    }

    /// Section 4.2.3.4: subtracts losses from the window; conserves packets in the first round of recovery; restores
    /// the window afterwards. Returns whether the window stays as it is.
    fn recover_or_restore(&mut self, ack: &BbrAck, decision: &mut Decision) -> bool {
        decision.cwnd = decision.cwnd.saturating_sub(ack.losses).max(1);
        let prior = core::mem::replace(&mut self.prior_state, ack.state);
        if ack.state == RecoveryState::Recovery && prior != RecoveryState::Recovery {
            self.conserves_packets = true;
            self.next_round_delivered = ack.totals.delivered;
            decision.cwnd = ack.in_flight + ack.acked;
        } else if prior >= RecoveryState::Recovery && ack.state < RecoveryState::Recovery {
            decision.cwnd = decision.cwnd.max(self.prior_cwnd);
            self.conserves_packets = false;
        }
        if self.conserves_packets {
            decision.cwnd = decision.cwnd.max(ack.in_flight + ack.acked);
        }
        self.conserves_packets
    }
}

#[cfg(test)]
mod tests;
