//! The model against a path of known rate and delay.

use super::*;

const MSS: u32 = 1_000;

/// A path of 1000 segments per second and 50 ms: a product of 50 segments. Each ACK delivers one.
struct Path {
    bbr: Bbr,
    now: Instant,
    delivered: u64,
    lost: u64,
    cwnd: u32,
    rtt: Duration,
    per_segment: Duration,
    state: RecoveryState,
    app_limited: bool,
    /// The application sends less than the path could carry.
    is_slow: bool,
}

impl Path {
    fn new() -> Self {
        let rtt = Duration::from_millis(50);
        Self {
            bbr: Bbr::new(Instant::ZERO, 1, Some(rtt), 10, MSS),
            now: Instant::ZERO,
            delivered: 0,
            lost: 0,
            cwnd: 10,
            rtt,
            per_segment: Duration::from_millis(1),
            state: RecoveryState::Open,
            app_limited: false,
            is_slow: false,
        }
    }

    /// A product, and more while the sender is faster than the path.
    fn flight(&self) -> u32 {
        self.cwnd.min(if self.bbr.pacing_gain > UNIT && self.bbr.mode == Mode::ProbeBandwidth { 75 } else { 50 })
    }

    fn ack(&self, losses: u32) -> BbrAck {
        let flight = self.flight();
        let sample = RateSample {
            delivered: u64::from(flight),
            interval: (self.per_segment * u64::from(flight)).max(self.rtt),
            prior_delivered: self.delivered.saturating_sub(u64::from(flight)),
            is_app_limited: self.app_limited,
            may_be_delayed: false,
            flight_at_departure: flight,
            lost: 0,
        };
        BbrAck {
            now: self.now,
            departure_at: self.now,
            rate: Some(sample),
            rtt: Some(self.rtt.max(self.per_segment * u64::from(flight))),
            srtt: Some(self.rtt),
            acked: 1,
            losses,
            totals: Totals { delivered: self.delivered, lost: self.lost },
            prior_in_flight: flight,
            in_flight: flight - 1,
            state: self.state,
            mss: MSS,
            cwnd: self.cwnd,
            initial_cwnd: 10,
            is_cwnd_limited: true,
        }
    }

    fn step(&mut self, losses: u32) -> Decision {
        self.now += self.per_segment.max(self.rtt / u64::from(self.flight()));
        self.delivered += 1;
        self.lost += u64::from(losses);
        let decision = self.bbr.on_ack(&self.ack(losses));
        self.cwnd = decision.cwnd;
        self.app_limited = decision.is_app_limited || self.is_slow;
        decision
    }

    fn run(&mut self, acks: u32) {
        for _ in 0..acks {
            self.step(0);
        }
    }
}

/// Sections 4.3.2 and 4.3.3: STARTUP ends when the rate has not grown for three rounds, DRAIN when a product is in flight.
#[test]
fn startup_finds_the_rate_and_drains() {
    let mut path = Path::new();
    let mut ssthresh = None;
    for _ in 0..2_000 {
        ssthresh = path.step(0).ssthresh.or(ssthresh);
        if path.bbr.mode == Mode::Drain {
            assert_eq!(path.bbr.pacing_gain, DRAIN_GAIN);
        }
    }
    assert_eq!(path.bbr.mode, Mode::ProbeBandwidth);
    let rate = bytes_per_second(path.bbr.max_bandwidth.max(), MSS);
    assert!(rate.abs_diff(1_000_000) < 1_000, "{rate}");
    // 50 segments, and room for bursts.
    assert!((50..=60).contains(&ssthresh.unwrap()), "{ssthresh:?}");
    assert!((100..=112).contains(&path.cwnd), "{}", path.cwnd);
}

/// Section 4.3.4: of eight round trips one is faster by a quarter, one slower.
#[test]
fn probing_goes_round_in_eight_phases() {
    let mut path = Path::new();
    path.run(3_000);
    let mut gains = Vec::new();
    for _ in 0..1_000 {
        path.step(0);
        if gains.last() != Some(&path.bbr.pacing_gain) {
            gains.push(path.bbr.pacing_gain);
        }
    }
    let at = gains.iter().position(|&gain| gain == CYCLE[0]).unwrap();
    assert_eq!(gains[at..at + 3], [CYCLE[0], CYCLE[1], UNIT]);
}

/// Section 4.3.5: after ten seconds without a lower round trip the window is four segments for 200 ms and a round.
#[test]
fn the_delay_is_probed_for_every_ten_seconds() {
    let mut path = Path::new();
    let mut probed = None;
    for _ in 0..14_000 {
        let decision = path.step(0);
        if path.bbr.mode == Mode::ProbeRtt {
            probed.get_or_insert(path.now);
            assert!(decision.is_app_limited && decision.cwnd <= 4);
        } else if let Some(since) = probed {
            assert!(path.now.saturating_since(since) >= PROBE_RTT_TIME);
            assert!(path.cwnd >= 100, "the window is back");
            return;
        }
    }
    panic!("PROBE_RTT did not come or did not end");
}

/// Section 4.2.3.4.
#[test]
fn recovery_conserves_packets_for_a_round_and_restores_the_window() {
    let mut path = Path::new();
    path.run(3_000);
    let before = path.cwnd;
    path.bbr.save_cwnd(before);
    path.state = RecoveryState::Recovery;
    let flight = path.flight();
    let first = path.step(3);
    assert_eq!(first.cwnd, flight, "what is in flight and what was delivered");
    assert!(path.bbr.conserves_packets);
    path.run(200);
    assert!(!path.bbr.conserves_packets);
    path.state = RecoveryState::Open;
    path.step(0);
    // The phase that sends faster has two segments more.
    assert!(path.cwnd + 2 >= before, "{} after {before}", path.cwnd);
}

/// Losses do not change the rate.
#[test]
fn losses_are_no_sign_of_congestion() {
    let mut path = Path::new();
    path.run(3_000);
    let rate = path.bbr.max_bandwidth.max();
    for n in 0..2_000 {
        path.step(u32::from(n % 20 == 0));
    }
    assert_eq!(path.bbr.max_bandwidth.max(), rate);
}

/// Section 4.1.1.3: a sample that the application limited does not lower the rate, but may raise it.
#[test]
fn the_applications_rate_is_not_the_paths() {
    let mut path = Path::new();
    path.run(3_000);
    let rate = path.bbr.max_bandwidth.max();
    path.is_slow = true;
    path.per_segment = Duration::from_millis(10);
    path.run(5_000);
    assert_eq!(path.bbr.max_bandwidth.max(), rate);
}

#[test]
fn a_policer_is_met_at_its_rate() {
    let mut path = Path::new();
    path.run(3_000);
    for n in 0..1_500 {
        path.step(u32::from(n % 3 == 0));
    }
    assert!(path.bbr.policer.rate().is_some());
    assert_eq!(path.bbr.pacing_gain, UNIT);
}

#[test]
fn extremes_do_no_harm() {
    assert_eq!(bandwidth(u64::MAX >> 1, Duration::from_nanos(1)), u64::MAX);
    assert_eq!(bdp(u64::MAX, Duration::from_secs(1_000_000), HIGH_GAIN), u64::MAX);
    assert_eq!(segments_in(u64::MAX, Duration::MAX), u64::MAX);
    assert_eq!(Bbr::rate(u64::MAX, HIGH_GAIN, u32::MAX), u64::MAX);
    assert_eq!(Bbr::rate(0, UNIT, 1), 1);
}
