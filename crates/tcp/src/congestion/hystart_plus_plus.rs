//! HyStart++ (RFC 9406): slow start slows down when the RTT grows, and ends if the growth lasts.
//!
//! A longer RTT may be the beginning of a queue, or chance. So slow start continues at a quarter of its pace
//! (Conservative Slow Start), and returns to full pace if the RTT shrinks again.

use holdover_base::Duration;
use holdover_wire::Seq;

use super::AckSample;

/// Section 4.3.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u64 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u8 = 5;
/// L: the most segments by which an ACK opens the window, unless the sender is paced.
const L: u32 = 8;

/// The current round, and Conservative Slow Start if it has begun.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct HyStartPlusPlus {
    window_end: Option<Seq>,
    last_round_min_rtt: Duration,
    current_round_min_rtt: Duration,
    samples: u32,
    css: Option<Css>,
}

#[derive(Clone, PartialEq, Debug)]
struct Css {
    baseline_min_rtt: Duration,
    rounds: u8,
    /// Acknowledged segments that have not opened the window yet.
    credit: u32,
}

/// The reaction of slow start to an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// The window opens by this number of segments.
    Open(u32),
    /// Slow start is over.
    Exit,
}

impl HyStartPlusPlus {
    pub(super) const fn new() -> Self {
        Self {
            window_end: None,
            last_round_min_rtt: Duration::MAX,
            current_round_min_rtt: Duration::MAX,
            samples: 0,
            css: None,
        }
    }

    /// An ACK of `acked` segments in the initial slow start.
    pub(super) fn on_ack(&mut self, acked: u32, sample: &AckSample) -> Growth {
        let acked = if sample.is_paced { acked } else { acked.min(L) };
        if self.window_end.is_none_or(|end| sample.snd_una.gt(end)) && self.begin_round(sample) {
            return Growth::Exit;
        }
        if let Some(rtt) = sample.rtt {
            self.current_round_min_rtt = self.current_round_min_rtt.min(rtt);
            self.samples += 1;
            self.judge();
        }
        let Some(css) = &mut self.css else { return Growth::Open(acked) };
        css.credit += acked;
        let opened = css.credit / CSS_GROWTH_DIVISOR;
        css.credit %= CSS_GROWTH_DIVISOR;
        Growth::Open(opened)
    }

    /// Returns whether Conservative Slow Start has reached its limit of rounds.
    fn begin_round(&mut self, sample: &AckSample) -> bool {
        let is_first = self.window_end.replace(sample.snd_nxt).is_none();
        self.last_round_min_rtt = core::mem::replace(&mut self.current_round_min_rtt, Duration::MAX);
        self.samples = 0;
        let Some(css) = self.css.as_mut().filter(|_| !is_first) else { return false };
        css.rounds += 1;
        css.rounds >= CSS_ROUNDS
    }

    fn judge(&mut self) {
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        match &self.css {
            None if self.last_round_min_rtt != Duration::MAX => {
                let last = self.last_round_min_rtt;
                let threshold = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if self.current_round_min_rtt >= last + threshold {
                    self.css = Some(Css { baseline_min_rtt: self.current_round_min_rtt, rounds: 0, credit: 0 });
                }
            }
            Some(css) if self.current_round_min_rtt < css.baseline_min_rtt => self.css = None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdover_base::Instant;

    /// A round of ten ACKs of one segment each, with this round-trip time; returns by how much the window opened.
    fn round(hystart: &mut HyStartPlusPlus, number: u32, rtt_ms: u64) -> Option<u32> {
        let mut opened = 0;
        for n in 0..10 {
            let growth = hystart.on_ack(1, &sample(number * 100 + n * 10 + 1, (number + 1) * 100, rtt_ms));
            let Growth::Open(by) = growth else { return None };
            opened += by;
        }
        Some(opened)
    }

    fn sample(una: u32, nxt: u32, rtt_ms: u64) -> AckSample {
        AckSample {
            now: Instant::ZERO,
            acked: 1,
            rtt: Some(Duration::from_millis(rtt_ms)),
            snd_una: Seq::new(una),
            snd_nxt: Seq::new(nxt),
            is_paced: false,
            largest_send_window: u32::MAX,
        }
    }

    /// Section 4.2: a quarter of the pace for five rounds, then congestion avoidance.
    #[test]
    fn rfc9406_a_longer_round_trip_slows_down_and_ends_slow_start() {
        let mut hystart = HyStartPlusPlus::new();
        assert_eq!(
            (round(&mut hystart, 0, 50), round(&mut hystart, 1, 56)),
            (Some(10), Some(10)),
            "less than an eighth"
        );
        // The eighth sample shows it.
        assert_eq!(round(&mut hystart, 2, 64), Some(7));
        for number in 3..7 {
            assert!(matches!(round(&mut hystart, number, 64), Some(2 | 3)));
        }
        assert_eq!(round(&mut hystart, 7, 64), None);
    }

    /// Section 4.2: chance is forgiven.
    #[test]
    fn rfc9406_a_shorter_round_trip_resumes_slow_start() {
        let mut hystart = HyStartPlusPlus::new();
        round(&mut hystart, 0, 50);
        round(&mut hystart, 1, 60);
        assert!(hystart.css.is_some());
        round(&mut hystart, 2, 52);
        assert!(hystart.css.is_none());
        assert_eq!(round(&mut hystart, 3, 52), Some(10));
    }

    /// Section 4.3: L.
    #[test]
    fn rfc9406_an_ack_opens_by_eight_segments_at_most_without_pacing() {
        let mut hystart = HyStartPlusPlus::new();
        assert_eq!(hystart.on_ack(20, &sample(1, 100, 50)), Growth::Open(8));
        assert_eq!(hystart.on_ack(20, &AckSample { is_paced: true, ..sample(2, 100, 50) }), Growth::Open(20));
    }
}
