//! The receiver's half: arrivals of probes, and the answer.

use holdover_base::{Duration, Instant};
use holdover_tcp::Connection;
use holdover_wire::{Seq, SeqRange};

use super::option::Bitmask;

/// The most probes tracked.
const MOST_PROBES: usize = 16;

/// The probes of one handoff that have arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    pub(super) number: u8,
    /// The time of each arrival, and its bytes of data.
    arrived: Vec<Option<(Instant, u32)>>,
    last: Instant,
    answered: bool,
    /// When the receiver stops waiting for more of them: the copy for the [`Agenda`](holdover_filter::Agenda).
    pub(super) due: Option<Instant>,
}

/// An answer for the next ACK.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    number: u8,
    bandwidth: Option<u32>,
    waited: Duration,
    held: Vec<SeqRange>,
}

impl Arrivals {
    pub(super) fn new(now: Instant, number: u8, count: u8) -> Self {
        let count = usize::from(count).min(MOST_PROBES);
        Self { number, arrived: vec![None; count], last: now, answered: false, due: None }
    }

    /// Notes a probe. Returns when the answer is due; nothing changes once it is given.
    pub(super) fn note(&mut self, now: Instant, index: u8, len: u32, patience: Duration) -> Option<Instant> {
        let slot = self.arrived.get_mut(usize::from(index)).filter(|slot| slot.is_none())?;
        if self.answered {
            return None;
        }
        *slot = Some((now, len));
        self.last = now;
        let is_complete = self.arrived.iter().all(Option::is_some);
        Some(if is_complete { now } else { now + patience })
    }

    /// The answer, given once.
    pub(super) fn answer(&mut self, now: Instant, tcp: &Connection) -> Answer {
        self.answered = true;
        Answer {
            number: self.number,
            bandwidth: self.bandwidth(),
            waited: now.saturating_since(self.last),
            held: tcp.ranges_out_of_order().collect(),
        }
    }

    /// Bytes per second between consecutive probes, over all pairs.
    fn bandwidth(&self) -> Option<u32> {
        let mut total = (0_u64, Duration::ZERO, false);
        for pair in self.arrived.windows(2) {
            if let [Some((before, _)), Some((after, len))] = *pair
                && after >= before
            {
                total = (total.0 + u64::from(len), total.1 + after.saturating_since(before), true);
            }
        }
        let (bytes, time, any) = total;
        let rate = u128::from(bytes) * 1_000_000_000 / u128::from(time.as_nanos().max(1));
        any.then(|| u32::try_from(rate).unwrap_or(u32::MAX).max(1))
    }
}

impl Answer {
    /// The bitmask for a segment with this ACK number.
    pub(super) fn bitmask(&self, ack: Seq) -> Bitmask {
        let waited_ms = u32::try_from(self.waited.as_millis()).unwrap_or(u32::MAX);
        let (number, bandwidth) = (self.number, self.bandwidth);
        let mut bitmask = Bitmask { number, bandwidth, waited_ms, highest: 0, runs: Vec::new() };
        bitmask.set_held(ack, &self.held);
        bitmask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bandwidth(arrivals: &[(u8, u64)]) -> Option<u32> {
        let mut probes = Arrivals::new(Instant::ZERO, 1, 3);
        for &(index, at) in arrivals {
            probes.note(Instant::from_millis(at), index, 1000, Duration::from_millis(200));
        }
        probes.bandwidth()
    }

    #[test]
    fn bandwidth_is_that_of_consecutive_probes() {
        assert_eq!(bandwidth(&[(0, 10), (1, 20), (2, 30)]), Some(100_000));
        assert_eq!(bandwidth(&[(0, 10), (1, 20), (2, 50)]), Some(50_000), "both pairs taken together");
        assert_eq!(bandwidth(&[(1, 10), (2, 20)]), Some(100_000));
        assert_eq!(bandwidth(&[(0, 10), (2, 20)]), None);
        assert_eq!(bandwidth(&[(1, 10)]), None);
        assert_eq!(bandwidth(&[(0, 20), (1, 10)]), None, "overtaken");
        assert_eq!(bandwidth(&[(0, 10), (1, 10)]), Some(u32::MAX));
    }

    #[test]
    fn the_answer_waits_for_all_probes_or_for_patience() {
        let mut probes = Arrivals::new(Instant::ZERO, 1, 3);
        let mut due_after = |index, at| {
            let due = probes.note(Instant::from_millis(at), index, 1000, Duration::from_millis(200));
            due.map(|due| due.as_millis())
        };
        assert_eq!(due_after(0, 10), Some(210));
        assert_eq!(due_after(2, 20), Some(220));
        // Duplicates and invalid indices are ignored.
        assert_eq!((due_after(2, 30), due_after(9, 30)), (None, None));
        assert_eq!(due_after(1, 40), Some(40));
    }
}
