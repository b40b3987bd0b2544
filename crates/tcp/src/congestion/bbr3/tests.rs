//! The cases of the draft's appendix ("BBR Example Test Cases"), against a path of known rate and delay.

use super::*;
use crate::bandwidth::{bandwidth, bytes_per_second};
use crate::congestion::bbr::Totals;
use crate::delivery_rate::{DeliveryRate, RateSample};
use crate::departure::{Departure, Load};

const MSS: u32 = 1_000;
const RTT: Duration = Duration::from_millis(50);
/// 1000 segments per second and 50 ms.
const PRODUCT: u32 = 50;

/// A path that delivers a segment with each ACK. Data in flight beyond the product waits in its queue.
struct Path {
    bbr: Bbr3,
    now: Instant,
    delivered: u64,
    lost: u64,
    cwnd: u32,
    flight: u32,
    per_segment: Duration,
    state: RecoveryState,
    /// The application, not the window, limits sending.
    is_app_limited: bool,
    /// Minimum in flight, whatever the window.
    least_flight: u32,
    /// Segments in flight at each ACK.
    flights: Vec<u32>,
}

impl Path {
    fn new() -> Self {
        Self {
            bbr: Bbr3::new(Instant::ZERO, 1, Some(RTT), 10, MSS, true),
            now: Instant::ZERO,
            delivered: 0,
            lost: 0,
            cwnd: 10,
            flight: 10,
            per_segment: Duration::from_millis(1),
            state: RecoveryState::Open,
            is_app_limited: false,
            least_flight: 0,
            flights: vec![10],
        }
    }

    fn step(&mut self) -> Decision {
        self.step_with(self.cwnd.max(self.least_flight))
    }

    /// One ACK, after which up to `most` segments are in flight: not more than the pacing rate has filled in.
    fn step_with(&mut self, most: u32) -> Decision {
        let took = self.per_segment.max(RTT / u64::from(self.flight.max(1)));
        self.now += took;
        self.flights.resize(self.delivered as usize + 1, self.flight);
        self.delivered += 1;
        let trip = RTT.max(self.per_segment * u64::from(self.flight));
        let sample = RateSample {
            delivered: u64::from(self.flight),
            interval: trip,
            prior_delivered: self.delivered.saturating_sub(u64::from(self.flight)),
            is_app_limited: self.is_app_limited,
            may_be_delayed: false,
            flight_at_departure: self.flights[(self.delivered as usize).saturating_sub(self.flight as usize)],
            lost: 0,
        };
        let decision = self.bbr.on_ack(&BbrAck {
            now: self.now,
            departure_at: self.now,
            rate: Some(sample),
            rtt: Some(trip),
            srtt: Some(RTT),
            acked: 1,
            losses: 0,
            totals: Totals { delivered: self.delivered, lost: self.lost },
            prior_in_flight: self.flight,
            in_flight: self.flight.saturating_sub(1),
            state: self.state,
            mss: MSS,
            cwnd: self.cwnd,
            initial_cwnd: 10,
            is_cwnd_limited: !self.is_app_limited && self.flight >= self.cwnd,
        });
        self.cwnd = decision.cwnd;
        // A gain above 1 lets the flight grow, one below lets it shrink.
        let gain = self.bbr.state.pacing_gain();
        let flows_in = match gain {
            STARTUP_GAIN => 2,
            UP_GAIN => 1 + u32::from(self.delivered.is_multiple_of(4)),
            DOWN_GAIN => u32::from(!self.delivered.is_multiple_of(10)),
            DRAIN_GAIN => u32::from(self.delivered.is_multiple_of(2)),
            _ if self.flight <= PRODUCT && self.bbr.state != State::ProbeRtt => 2,
            _ => 1,
        };
        self.flight = (self.flight - 1 + flows_in).min(most).max(self.least_flight).max(1);
        decision
    }

    fn run_until(&mut self, state: State) {
        for _ in 0..60_000 {
            if self.bbr.state == state {
                return;
            }
            self.step();
        }
        panic!("{state:?} did not come: {:?}", self.bbr);
    }

    /// `count` segments in places of their own are lost, which were sent with `flight` in flight and `before` lost.
    fn lose(&mut self, count: u32, flight: u32, is_app_limited: bool) {
        let mut rate = DeliveryRate::new(self.now);
        if is_app_limited {
            rate.mark_app_limited(1);
        }
        let departure: Departure = rate.on_sent(self.now, false, Load { flight, lost: self.lost });
        let lost: Vec<LostSegment> = (0..count)
            .map(|n| {
                let seq = Seq::new(10_000 * n);
                self.lost += 1;
                LostSegment { seq, end: seq + MSS, lost: self.lost, departure: departure.clone() }
            })
            .collect();
        self.bbr.on_losses(self.now, &lost, self.delivered, self.cwnd);
    }
}

fn path_in(state: State) -> Path {
    let mut path = Path::new();
    path.run_until(state);
    path
}

/// Exiting STARTUP on a bandwidth plateau; exiting DRAIN by data in flight.
#[test]
fn startup_ends_on_a_plateau_and_drain_with_the_queue() {
    let mut path = Path::new();
    path.run_until(State::Drain);
    let rate = bytes_per_second(path.bbr.signals.max_rate(), MSS);
    assert!(rate.abs_diff(1_000_000) < 20_000, "{rate}");
    assert_eq!((path.bbr.full.rounds, path.bbr.full.now, path.bbr.full.reached), (3, true, true));
    assert!(path.flight > PRODUCT, "a queue has built up");
    assert_eq!(path.bbr.state.pacing_gain(), DRAIN_GAIN);
    while path.bbr.state == State::Drain {
        path.step();
    }
    // Nothing is left to drain, so that the same ACK ends DOWN.
    assert_eq!(path.bbr.state, State::Cruise);
    assert!(path.flight <= PRODUCT + 2, "{}", path.flight);
}

/// Exiting DRAIN by time: after three rounds.
#[test]
fn drain_ends_after_three_rounds_in_any_case() {
    let mut path = path_in(State::Drain);
    path.least_flight = 80;
    let since = path.bbr.rounds;
    path.run_until(State::Down);
    assert_eq!(path.bbr.rounds - since, DRAIN_ROUNDS + 1);
}

/// Exiting STARTUP on losses while the application limits: six ranges, 2 %, and a round of fast recovery.
#[test]
fn startup_ends_on_losses_although_the_application_limits() {
    for (ranges, ends) in [(5, false), (8, true)] {
        let mut path = Path::new();
        path.is_app_limited = true;
        for _ in 0..300 {
            path.step();
        }
        assert_eq!(path.bbr.state, State::Startup, "without losses it goes on for ever");
        path.state = RecoveryState::Recovery;
        path.step();
        path.lose(1, path.flight, true);
        let since = path.bbr.rounds;
        let mut told = false;
        for _ in 0..8 * PRODUCT {
            if path.bbr.rounds > since && !core::mem::replace(&mut told, true) {
                path.lose(ranges, path.flight, true);
            }
            path.step_lossy(u64::from(ranges));
        }
        assert_eq!(path.bbr.full.reached, ends, "{ranges} ranges");
        assert_eq!(path.bbr.state != State::Startup, ends, "{ranges} ranges");
        assert_eq!(path.bbr.long_term_volume.is_some(), ends);
    }
}

impl Path {
    /// A step whose sample has seen losses.
    fn step_lossy(&mut self, lost: u64) {
        let flight = self.flight;
        let sample = RateSample {
            delivered: u64::from(flight),
            interval: RTT,
            prior_delivered: self.delivered.saturating_sub(u64::from(flight)),
            is_app_limited: self.is_app_limited,
            may_be_delayed: false,
            flight_at_departure: flight,
            lost,
        };
        self.now += RTT / u64::from(flight);
        self.delivered += 1;
        let ack = BbrAck {
            now: self.now,
            departure_at: self.now,
            rate: Some(sample),
            rtt: Some(RTT),
            srtt: Some(RTT),
            acked: 1,
            losses: 0,
            totals: Totals { delivered: self.delivered, lost: self.lost },
            prior_in_flight: flight,
            in_flight: flight - 1,
            state: self.state,
            mss: MSS,
            cwnd: self.cwnd,
            initial_cwnd: 10,
            is_cwnd_limited: false,
        };
        self.cwnd = self.bbr.on_ack(&ack).cwnd;
    }
}

/// A whole cycle in its order, with the gains of section 5.6.1.
#[test]
fn probing_goes_down_cruises_refills_and_goes_up() {
    let mut path = path_in(State::Cruise);
    let mut seen = vec![(path.bbr.state, path.now)];
    while seen.len() < 8 {
        path.step();
        if path.bbr.state != seen[seen.len() - 1].0 && path.bbr.state != State::ProbeRtt {
            seen.push((path.bbr.state, path.now));
        }
    }
    let states: Vec<State> = seen.iter().map(|&(state, _)| state).collect();
    let cycle = [State::Cruise, State::Refill, State::Up, State::Down];
    assert_eq!(states[..4], cycle);
    assert_eq!(states[4..8], cycle);
    // A product of 50 segments: after 50 rounds of 50 ms, or two to three seconds.
    let apart = seen[1].1.saturating_since(seen[0].1);
    assert!((1_900..3_200).contains(&apart.as_millis()), "{apart}");
    assert_eq!(cycle.map(State::pacing_gain), [UNIT, UNIT, UP_GAIN, DOWN_GAIN]);
    assert_eq!(cycle.map(State::cwnd_gain), [CWND_GAIN, CWND_GAIN, UP_CWND_GAIN, CWND_GAIN]);
}

/// Exiting PROBE_UP on a plateau: three rounds that do not grow, without losses.
#[test]
fn going_up_ends_on_a_plateau() {
    let mut path = path_in(State::Up);
    let since = path.bbr.rounds;
    path.run_until(State::Down);
    assert!((3..=5).contains(&(path.bbr.rounds - since)), "{}", path.bbr.rounds - since);
    assert_eq!(path.bbr.long_term_volume, None);
}

/// Never exiting PROBE_UP while the application limits and nothing is lost.
#[test]
fn going_up_does_not_end_while_the_application_limits() {
    let mut path = path_in(State::Up);
    path.is_app_limited = true;
    for _ in 0..2_000 {
        path.step();
        if path.bbr.state == State::ProbeRtt {
            break;
        }
        assert_eq!(path.bbr.state, State::Up);
    }
}

/// Handling loss during PROBE_UP: the bound is where the losses became too many, and not below 0.7 of the target.
#[test]
fn too_many_losses_while_going_up_set_the_bound_and_end_the_probe() {
    let mut path = path_in(State::Up);
    for _ in 0..2 * PRODUCT {
        path.step();
    }
    let flight = path.flight;
    path.lose(1, flight, false);
    assert_eq!(path.bbr.state, State::Up, "one of {flight} is too few");
    path.lose(2, flight, false);
    assert_eq!(path.bbr.state, State::Down);
    let bound = path.bbr.long_term_volume.unwrap();
    assert!(bound >= u64::from(PRODUCT) * 7 / 10 && bound <= u64::from(flight), "{bound} of {flight}");
    assert!(path.bbr.probing_was_too_high());
    // Cruising leaves 15 % of it to others.
    path.run_until(State::Cruise);
    path.step();
    let bound = path.bbr.long_term_volume.unwrap();
    assert!(u64::from(path.cwnd) <= (bound - bound * 15 / 100).max(4), "{} of {bound}", path.cwnd);
    // One reaction to each probe.
    path.lose(9, flight, false);
    assert_eq!(path.bbr.long_term_volume, Some(bound));
}

/// Exiting PROBE_UP on losses while the application limits: the state changes, the bound does not.
#[test]
fn losses_end_going_up_although_the_application_limits() {
    let mut path = path_in(State::Up);
    path.lose(3, path.flight, true);
    assert_eq!((path.bbr.state, path.bbr.long_term_volume), (State::Down, None));
}

/// Section 5.3.3.6: after a probe that went too high, the next stops where that one failed, and if it was safe, another follows at once.
#[test]
fn the_probe_after_one_that_was_too_high_is_cautious() {
    let mut path = path_in(State::Up);
    path.lose(3, path.flight, false);
    let bound = path.bbr.long_term_volume.unwrap();
    // PROBE_RTT stays away.
    path.bbr.round_trips.recent_at = Instant::from_secs(100);
    path.run_until(State::Up);
    let mut highest = 0;
    while path.bbr.state == State::Up {
        path.step();
        highest = highest.max(path.flight);
    }
    assert!(u64::from(highest) <= bound + 2, "{highest} of {bound}");
    let since = path.bbr.rounds;
    path.run_until(State::Refill);
    assert!(path.bbr.rounds - since <= 2, "without cruising");
}

/// When not probing, the bounds follow the deliveries of a round with losses, but by 30 % at most (section 5.5.10.3),
/// until REFILL.
#[test]
fn losses_outside_of_probes_set_bounds_for_a_while() {
    let mut path = path_in(State::Cruise);
    let window = path.cwnd;
    let rate = path.bbr.signals.max_rate();
    path.lose(1, path.flight, false);
    path.per_segment = Duration::from_millis(4);
    let since = path.bbr.rounds;
    while path.bbr.signals.short_term_rate.is_none() {
        path.step();
        assert!(path.bbr.rounds <= since + 2);
    }
    let bound = path.bbr.signals.short_term_rate.unwrap();
    assert!(bound >= rate * 69 / 100 && bound <= rate, "{bound} of {rate}");
    assert!(path.bbr.signals.short_term_volume.unwrap() >= u64::from(window) * 7 / 10 - 1);
    assert_eq!(path.bbr.bandwidth(), bound);
    path.run_until(State::Refill);
    assert_eq!((path.bbr.signals.short_term_rate, path.bbr.signals.short_term_volume), (None, None));
}

/// Decreasing bandwidth: the highest rate is forgotten after two cycles.
#[test]
fn the_rate_is_the_highest_of_two_cycles() {
    let mut path = path_in(State::Cruise);
    path.per_segment = Duration::from_millis(10);
    for _ in 0..3 {
        path.run_until(State::Up);
        path.run_until(State::Cruise);
    }
    let rate = bytes_per_second(path.bbr.signals.max_rate(), MSS);
    assert!(rate.abs_diff(100_000) < 10_000, "{rate}");
}

/// Entering and exiting PROBE_RTT: after five seconds, for 200 ms and a round, with half of the product in flight.
#[test]
fn the_delay_is_probed_for_every_five_seconds() {
    let mut path = path_in(State::Down);
    // A queue stands, so that no sample is as low as the first.
    path.least_flight = PRODUCT + 5;
    path.run_until(State::ProbeRtt);
    path.least_flight = 0;
    let (since, window) = (path.now, path.bbr.prior_cwnd);
    let mut least = u32::MAX;
    while path.bbr.state == State::ProbeRtt {
        let decision = path.step();
        assert!(decision.is_app_limited || path.bbr.state != State::ProbeRtt);
        least = least.min(path.cwnd);
    }
    assert!((PRODUCT / 2..=PRODUCT / 2 + 6).contains(&least), "{least}");
    assert!(path.now.saturating_since(since) >= Duration::from_millis(200));
    assert_eq!(path.bbr.state, State::Cruise);
    assert!(path.cwnd >= window.min(PRODUCT), "{} of {window}", path.cwnd);
}

/// Skipping PROBE_RTT after an idle period.
#[test]
fn idle_time_takes_the_place_of_probe_rtt() {
    let mut path = path_in(State::Cruise);
    path.now += Duration::from_secs(6);
    let (now, delivered, cwnd) = (path.now, path.delivered, path.cwnd);
    assert_eq!(path.bbr.on_restart_from_idle(now, delivered, cwnd, MSS), None);
    path.step();
    assert_ne!(path.bbr.state, State::ProbeRtt);
}

/// Entering and exiting PROBE_RTT during STARTUP.
#[test]
fn startup_continues_after_probe_rtt() {
    let mut path = Path::new();
    path.is_app_limited = true;
    path.step();
    path.now += Duration::from_secs(6);
    path.run_until(State::ProbeRtt);
    assert!(!path.bbr.full.reached);
    while path.bbr.state == State::ProbeRtt {
        path.step();
    }
    assert_eq!(path.bbr.state, State::Startup);
}

/// Handling spurious recovery: the window, the bounds and the probe come back.
#[test]
fn an_undo_restores_bounds_and_probe() {
    let mut path = path_in(State::Up);
    path.bbr.save_state(path.cwnd);
    let window = path.cwnd;
    path.lose(5, path.flight, false);
    assert_eq!(path.bbr.state, State::Down);
    assert!(path.bbr.long_term_volume.is_some());
    let cwnd = path.bbr.on_undo(path.delivered, 4);
    assert_eq!((path.bbr.state, path.bbr.long_term_volume, cwnd), (State::Refill, None, window));
}

/// Correctly managing sub-packet products.
#[test]
fn four_segments_are_the_least_window() {
    let mut path = Path::new();
    path.per_segment = Duration::from_millis(100);
    for _ in 0..200 {
        path.step();
        assert!(path.cwnd >= MIN_CWND);
    }
    let rate = bytes_per_second(path.bbr.signals.max_rate(), MSS);
    assert!(rate <= 80_000, "{rate}");
}

/// Increasing bandwidth: the step by which the bound grows doubles in each round of a probe.
#[test]
fn the_bound_grows_by_twice_as_much_in_each_round() {
    let mut path = path_in(State::Up);
    path.bbr.long_term_volume = Some(60);
    path.cwnd = 60;
    let mut bounds = vec![60];
    let mut rounds = path.bbr.rounds;
    for _ in 0..400 {
        // Whatever is allowed is in flight, and the path takes it.
        path.flight = path.cwnd;
        path.per_segment = RTT / u64::from(path.cwnd);
        path.step();
        if path.bbr.state != State::Up {
            break;
        }
        if path.bbr.rounds > rounds {
            rounds = path.bbr.rounds;
            bounds.push(path.bbr.long_term_volume.unwrap());
        }
        path.cwnd = u32::try_from(path.bbr.long_term_volume.unwrap()).unwrap();
    }
    assert!(bounds.len() >= 6 && bounds[5] - bounds[0] >= 1 + 2 + 4 + 8 + 16, "{bounds:?}");
    assert!(bounds[2] - bounds[0] <= 6, "slowly at first: {bounds:?}");
}

#[test]
fn the_flight_at_which_losses_became_too_many() {
    // With 2 of 99 it is passed by the second; with 5 of 100 it was passed before the last.
    assert_eq!(flight_at_loss(99, 2), 98);
    assert_eq!(flight_at_loss(100, 5), 99);
    assert_eq!(flight_at_loss(0, 0), 0);
    assert_eq!(bandwidth(1, Duration::from_secs(1)), (1 << 24) / 1_000_000);
}
