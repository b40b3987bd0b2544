//! The round trip and the retransmission timer over the wireless link, like TCP's retransmission timer (RFC 6298).

use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

/// The round trip between a node and a mobile host, host included, and the timeout for an ACK.
#[derive(Clone, Debug)]
pub(crate) struct LocalTimer {
    /// A new sample has a weight of 1 in `parts`.
    parts: u64,
    smoothed: Option<Duration>,
    deviation: Duration,
    /// The end of data that was sent once, and when.
    timed: Option<(Seq, Instant)>,
}

impl Default for LocalTimer {
    /// Alpha is 1/8 (RFC 6298 section 2).
    fn default() -> Self {
        Self::weighing(8)
    }
}

impl LocalTimer {
    /// A timer with an alpha of `1 / parts`; `parts` is at least 1.
    pub(crate) const fn weighing(parts: u64) -> Self {
        Self { parts, smoothed: None, deviation: Duration::ZERO, timed: None }
    }

    /// Notes data up to `end` sent to the mobile host; `again` for a retransmission.
    pub(crate) fn note_sent(&mut self, now: Instant, end: Seq, again: bool) {
        if again {
            // Karn's rule: a retransmission measures nothing.
            self.timed = None;
        } else {
            self.timed.get_or_insert((end, now));
        }
    }

    /// Notes that the mobile host acknowledges everything below `ack`.
    pub(crate) fn note_acked(&mut self, now: Instant, ack: Seq) {
        if let Some((_, sent_at)) = self.timed.take_if(|(end, _)| end.le(ack)) {
            self.sample(now.saturating_since(sent_at));
        }
    }

    /// Drops the pending measurement: the host was absent in between.
    pub(crate) fn forget_pending(&mut self) {
        self.timed = None;
    }

    /// SRTT + 4 RTTVAR, and at least `least`; `None` before the first sample.
    pub(crate) fn timeout(&self, least: Duration) -> Option<Duration> {
        self.smoothed.map(|smoothed| (smoothed + self.deviation * 4).max(least))
    }

    /// A timer that continues another one's estimate.
    pub(crate) fn continuing((smoothed, deviation): (Duration, Duration)) -> Self {
        Self { smoothed: Some(smoothed), deviation, ..Self::default() }
    }

    /// SRTT and RTTVAR; `None` before the first sample.
    pub(crate) fn estimate(&self) -> Option<(Duration, Duration)> {
        self.smoothed.map(|smoothed| (smoothed, self.deviation))
    }

    /// The smoothed round trip; `None` before the first sample.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// RFC 6298 section 2: RTTVAR first, with the old SRTT.
    fn sample(&mut self, sample: Duration) {
        match self.smoothed {
            None => (self.smoothed, self.deviation) = (Some(sample), sample / 2),
            Some(smoothed) => {
                let error = smoothed.max(sample).saturating_sub(smoothed.min(sample));
                self.deviation = (self.deviation * 3 + error) / 4;
                self.smoothed = Some((smoothed * (self.parts - 1) + sample) / self.parts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    // Claim: The local round trip follows RFC 6298, with Karn's rule; copies stay in order, and their size is tracked.
    // Tests: `timer::tests::retransmitted_segments_give_no_sample`, `cache::tests::it_stays_in_order_and_knows_its_size`
    #[test]
    fn it_follows_rfc_6298() {
        let mut timer = LocalTimer::default();
        assert_eq!(timer.timeout(MS), None);
        let at = |ms| Instant::ZERO + MS * ms;
        timer.note_sent(at(0), Seq::new(10), false);
        timer.note_sent(at(50), Seq::new(20), false);
        timer.note_acked(at(100), Seq::new(20));
        assert_eq!((timer.smoothed(), timer.timeout(MS)), (Some(MS * 100), Some(MS * 300)));
        timer.note_sent(at(200), Seq::new(30), false);
        timer.note_acked(at(220), Seq::new(20));
        timer.note_acked(at(280), Seq::new(30));
        // RTTVAR (3 * 50 + 20) / 4 = 42.5 ms, SRTT (7 * 100 + 80) / 8 = 97.5 ms.
        assert_eq!(timer.timeout(MS), Some(Duration::from_micros(97_500 + 4 * 42_500)));
        assert_eq!(timer.timeout(MS * 500), Some(MS * 500));
    }

    #[test]
    fn alpha_can_be_another_one() {
        let mut timer = LocalTimer::weighing(4);
        for (sent, acked, end) in [(0, 100, 10), (200, 220, 20)] {
            timer.note_sent(Instant::ZERO + MS * sent, Seq::new(end), false);
            timer.note_acked(Instant::ZERO + MS * acked, Seq::new(end));
        }
        // (3 * 100 + 20) / 4
        assert_eq!(timer.smoothed(), Some(MS * 80));
    }

    #[test]
    fn retransmitted_segments_give_no_sample() {
        let mut timer = LocalTimer::default();
        timer.note_sent(Instant::ZERO, Seq::new(10), false);
        timer.note_sent(Instant::ZERO + MS, Seq::new(10), true);
        timer.note_acked(Instant::ZERO + MS * 2, Seq::new(10));
        assert_eq!(timer.smoothed(), None);
    }
}
