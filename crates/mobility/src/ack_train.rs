//! Stalled ACKs, released one by one.
//!
//! A sender whose whole window has arrived lacks only its ACK clock. Acknowledging the whole window at once would make
//! it send a window at once, which no queue on the path can hold. So the ACKs are released with their original spacing,
//! but within a round trip without queues: by then the first answer arrives, and the queue is as long as before.

use std::collections::VecDeque;

use holdover_base::{Duration, Instant};
use holdover_wire::Seq;

/// The ACKs of a stall: recorded first, then released.
#[derive(Clone, Debug, Default)]
pub(crate) struct AckTrain {
    acks: VecDeque<Seq>,
    /// The number of segments for each ACK (a power of two, as its exponent), and for the last ACK, possibly fewer.
    thinned: u32,
    in_last: u32,
    first_at: Instant,
    last_at: Instant,
    departs: Option<Departure>,
}

#[derive(Clone, Copy, Debug)]
struct Departure {
    next_at: Instant,
    every: Duration,
}

impl AckTrain {
    /// The most ACKs. Beyond that they are thinned out: each then acknowledges twice as much.
    const MOST: usize = 512;

    /// Records that the receiver acknowledges data up to `ack` during the stall.
    pub(crate) fn record(&mut self, now: Instant, ack: Seq) {
        if self.acks.is_empty() {
            self.first_at = now;
        }
        self.last_at = now;
        self.append(ack);
    }

    /// Appends an ACK of the receiver, from any time.
    pub(crate) fn append(&mut self, ack: Seq) {
        if self.acks.back().is_some_and(|last| ack.le(*last)) {
            return;
        }
        if self.acks.len() >= Self::MOST {
            let mut keeps = true;
            self.acks.retain(|_| {
                keeps = !keeps;
                keeps
            });
            self.thinned += 1;
        }
        let is_full = self.in_last >> self.thinned > 0;
        match self.acks.back_mut() {
            Some(last) if !is_full => {
                *last = ack;
                self.in_last += 1;
            }
            _ => {
                self.acks.push_back(ack);
                self.in_last = 1;
            }
        }
    }

    /// Starts to release the ACKs: all within `span`, and no slower than they arrived.
    pub(crate) fn depart(&mut self, now: Instant, span: Option<Duration>) {
        let taken = self.last_at.saturating_since(self.first_at);
        let span = span.map_or(taken, |span| span.min(taken));
        let every = span / self.acks.len().max(1) as u64;
        self.departs = (!self.acks.is_empty()).then_some(Departure { next_at: now, every });
    }

    /// Whether recorded ACKs wait to be released.
    pub(crate) fn is_waiting(&self) -> bool {
        self.departs.is_none() && !self.acks.is_empty()
    }

    /// Whether ACKs are being released.
    pub(crate) fn is_under_way(&self) -> bool {
        self.departs.is_some()
    }

    /// The mean interval between segments, given their number for each ACK.
    pub(crate) fn spacing(&self) -> Duration {
        self.last_at.saturating_since(self.first_at) / (self.acks.len().max(2) - 1) as u64
    }

    /// The next ACK, if due; of several overdue ones the last.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Seq> {
        let departure = self.departs.as_mut()?;
        let mut due = None;
        while departure.next_at <= now
            && let Some(ack) = self.acks.pop_front()
        {
            due = Some(ack);
            departure.next_at += departure.every;
            if departure.every.is_zero() {
                break;
            }
        }
        if self.acks.is_empty() {
            self.cancel();
        }
        due
    }

    /// When the next one is due.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.departs.map(|departure| departure.next_at)
    }

    /// Drops everything.
    pub(crate) fn cancel(&mut self) {
        self.acks.clear();
        (self.departs, self.thinned, self.in_last) = (None, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn recorded(count: u32) -> AckTrain {
        let mut train = AckTrain::default();
        for n in 0..count {
            train.record(at_ms(u64::from(n) * 2), Seq::new(n * 1000));
        }
        train
    }

    /// Releases it, checking every millisecond. Returns the times of the ACKs.
    fn departures(train: &mut AckTrain, at: u64, span: Option<Duration>) -> Vec<(u64, u32)> {
        train.depart(at_ms(at), span);
        let mut gone = Vec::new();
        for ms in at..at + 20_000 {
            gone.extend(train.take_due(at_ms(ms)).map(|ack| (ms - at, ack.value())));
        }
        assert!(!train.is_under_way() && train.next_at().is_none());
        gone
    }

    #[test]
    fn acks_keep_their_spacing() {
        let gone = departures(&mut recorded(50), 5_000, None);
        assert_eq!(gone.len(), 50);
        assert_eq!((gone[0], gone[49].1), ((0, 0), 49_000));
        assert!((95..=98).contains(&gone[49].0), "{gone:?}");
    }

    #[test]
    fn acks_are_released_within_a_round_trip() {
        let gone = departures(&mut recorded(100), 5_000, Some(Duration::from_millis(50)));
        assert_eq!(gone.last().map(|gone| gone.1), Some(99_000));
        assert!(gone.iter().all(|gone| gone.0 <= 50) && gone.len() >= 49, "{gone:?}");
    }

    #[test]
    fn a_long_stall_takes_bounded_memory() {
        let mut train = recorded(100_000);
        assert!(train.acks.len() <= AckTrain::MOST);
        let gone = departures(&mut train, 500_000, Some(Duration::from_secs(2)));
        assert_eq!(gone.last().map(|gone| gone.1), Some(99_999_000), "the last is never thinned out");
        let steps: Vec<u32> = gone.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        assert!(steps.iter().all(|&step| step <= 2 * 256_000), "they stay even: {steps:?}");
    }

    #[test]
    fn a_single_ack_is_released_at_once() {
        assert_eq!(departures(&mut recorded(1), 5_000, None), [(0, 0)]);
        assert_eq!(departures(&mut recorded(0), 5_000, None), []);
    }
}
