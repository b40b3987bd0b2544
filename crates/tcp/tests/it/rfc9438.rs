//! RFC 9438, CUBIC: the window after a loss, and its growth. (Its arithmetic is tested in its own module.)

use holdover_tcp::{Algorithm, Config, InitialWindow, LossDetection, Reason, RecoveryState, Reduction};

use crate::script::*;

/// Segments of 1000 bytes, 40 of them in the first flight.
fn rfc9438() -> Config {
    let mut config = plain();
    config.congestion.algorithm = Algorithm::Cubic;
    config.congestion.initial_window = InitialWindow::Segments(40);
    config.sack = true;
    config.recovery.with_sack = LossDetection::Sack;
    config.recovery.reduction = Reduction::Immediate;
    config.recovery.limited_transmit = false;
    config.recovery.undo = false;
    config
}

/// A bulk sender whose segments are acknowledged one by one, a round trip after they were sent.
struct Bulk {
    script: Script,
    round_trip_ms: u64,
    now_ms: u64,
    acked: i64,
}

impl Bulk {
    fn new(round_trip_ms: u64) -> Self {
        let mut script = Script::established(rfc9438());
        script.inject(seg().win(65_000));
        script.write(200_000);
        script.forget_sent();
        Self { script, round_trip_ms, now_ms: 0, acked: 1 }
    }

    /// All outstanding data is acknowledged, and the window filled again.
    fn round(&mut self) {
        self.now_ms += self.round_trip_ms;
        self.script.at(self.now_ms);
        for _ in 0..self.script.connection.unacked() {
            self.acked += 1000;
            self.script.inject(seg().ack(self.acked));
            self.script.forget_sent();
            self.script.write(1000);
        }
        self.script.forget_sent();
    }

    /// The first segment of the flight is lost: fast recovery, which an ACK of the whole flight ends.
    fn lose_one(&mut self) {
        self.now_ms += self.round_trip_ms;
        self.script.at(self.now_ms);
        self.script.inject(seg().sack(&[(self.acked + 1000, self.acked + 4000)]));
        assert_eq!(self.script.connection.recovery_state(), RecoveryState::Recovery);
        self.script.forget_sent();
        self.now_ms += self.round_trip_ms;
        self.script.at(self.now_ms);
        self.acked += 1000 * i64::from(self.script.connection.unacked());
        self.script.inject(seg().ack(self.acked));
        self.script.forget_sent();
        assert_eq!(self.script.connection.recovery_state(), RecoveryState::Open);
    }

    fn cwnd(&self) -> u32 {
        self.script.connection.cwnd()
    }
}

/// Equation 1, with C = 0.4, after a loss at `w_max` that left `cwnd`.
fn w_cubic(w_max: f64, cwnd: f64, seconds: f64) -> f64 {
    let k = ((w_max - cwnd) / 0.4).cbrt();
    0.4 * (seconds - k).powi(3) + w_max
}

/// Section 4.6: ssthresh is 0.7 of the data in flight.
#[test]
fn rfc9438_4_6_multiplicative_decrease() {
    let mut bulk = Bulk::new(500);
    bulk.lose_one();
    bulk.script.expect_cwnd(28, Some(28));
}

/// Sections 4.2, 4.4 and 4.5: concave up to W_max, convex beyond, whatever the round trip. Each round moves the window from the
/// curve's present value towards its value a round trip later.
#[test]
fn rfc9438_4_2_the_window_follows_the_cubic_function() {
    let mut bulk = Bulk::new(500);
    bulk.lose_one();
    for round in 0..14 {
        bulk.round();
        let at = |round: u32| w_cubic(40.0, 28.0, 0.5 * f64::from(round));
        let cwnd = f64::from(bulk.cwnd());
        assert!(at(round) - 1.0 < cwnd && cwnd <= at(round + 1) + 1.0, "{cwnd} in round {round}");
    }
    assert!(bulk.cwnd() > 55, "the plateau is behind");
}

/// Section 4.3: on a short path the window is Reno's, which gains alpha = 3 (1 - 0.7) / (1 + 0.7) of a segment in a round.
#[test]
fn rfc9438_4_3_the_reno_friendly_region() {
    let mut bulk = Bulk::new(20);
    bulk.lose_one();
    for round in 1..=30 {
        bulk.round();
        let (cwnd, reno) = (f64::from(bulk.cwnd()), 28.0 + f64::from(round) * 9.0 / 17.0);
        // W_est is a whole number, and the window follows it with a delay of one round.
        assert!((-3.0..=1.0).contains(&(cwnd - reno)), "{cwnd} instead of {reno} in round {round}");
    }
    assert!(w_cubic(40.0, 28.0, 0.6) < 36.0, "the curve is far below");
}

/// Section 4.7: a second loss below W_max lowers W_max further, to (1 + 0.7) / 2 of the window: the plateau is there.
#[test]
fn rfc9438_4_7_fast_convergence() {
    let mut bulk = Bulk::new(500);
    bulk.lose_one();
    (0..3).for_each(|_| bulk.round());
    assert_eq!(bulk.cwnd(), 38);
    bulk.lose_one();
    assert_eq!(bulk.cwnd(), 26);
    (0..4).for_each(|_| bulk.round());
    for _ in 0..4 {
        assert_eq!(bulk.cwnd(), 32);
        bulk.round();
    }
}

/// Section 4.8: a timeout cuts ssthresh by the same factor, and the window to one segment.
#[test]
fn rfc9438_4_8_timeout() {
    let mut bulk = Bulk::new(500);
    bulk.script.expect_at(1000, data(1, 1001).reason(Reason::Timeout));
    bulk.script.expect_cwnd(1, Some(28));
}
