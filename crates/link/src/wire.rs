//! Frames in the link, in the order of their arrival.
//!
//! Arrivals nearly always keep the order of departure, so a ring buffer holds them; frames that overtake go to a
//! separate heap, and the fronts of both are compared on removal. In steady state nothing is allocated.

use std::collections::{BinaryHeap, VecDeque};

use holdover_base::Instant;

use crate::link::DropCause;

/// The planned fate of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Delivered,
    Corrupted,
    Dropped(DropCause),
}

/// The random impairments of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    Clean,
    Damaged,
    Lost,
    /// It is not sent: CoDel drops it from the queue in its turn.
    Discarded,
}

#[derive(Clone, Debug)]
pub(crate) struct UnderWay<F> {
    pub(crate) at: Instant,
    /// Entry number: of simultaneous arrivals, the frame that entered first arrives first.
    pub(crate) order: u64,
    /// Start of the transmission; if later than now, the frame is still queued.
    pub(crate) start: Instant,
    /// End of the transmission.
    pub(crate) end: Instant,
    /// Its random impairments, independent of outages.
    pub(crate) mark: Mark,
    pub(crate) fate: Fate,
    /// The number of transmissions, this one included.
    pub(crate) attempts: u32,
    /// Bytes on the link, after compression.
    pub(crate) len: u32,
    pub(crate) frame: F,
}

#[derive(Clone, Debug)]
pub(crate) struct Wire<F> {
    in_order: VecDeque<UnderWay<F>>,
    overtaking: BinaryHeap<Overtaking<F>>,
    /// The time of the next arrival; [`Instant::FAR_FUTURE`] if there is none.
    earliest: Instant,
}

impl<F> Wire<F> {
    pub(crate) fn new() -> Self {
        Self { in_order: VecDeque::new(), overtaking: BinaryHeap::new(), earliest: Instant::FAR_FUTURE }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.overtaking.len()
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, item: UnderWay<F>) {
        self.earliest = self.earliest.min(item.at);
        match self.in_order.back() {
            Some(last) if item.at < last.at => self.overtaking.push(Overtaking(item)),
            _ => self.in_order.push_back(item),
        }
    }

    /// The time of the next arrival; [`Instant::FAR_FUTURE`] if there is none before.
    #[inline]
    pub(crate) fn earliest(&self) -> Instant {
        self.earliest
    }

    /// The time of the next arrival.
    #[inline]
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let in_order = self.in_order.front().map(|item| item.at);
        match self.overtaking.peek() {
            None => in_order,
            Some(Overtaking(item)) => Some(in_order.map_or(item.at, |at| at.min(item.at))),
        }
    }

    /// Removes the next frame if it is due.
    #[inline(always)]
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<UnderWay<F>> {
        if self.earliest > now {
            return None;
        }
        let next = if !self.overtaking.is_empty() && self.overtaker_is_first() {
            self.overtaking.pop().map(|item| item.0)
        } else {
            self.in_order.pop_front()
        };
        self.earliest = self.next_at().unwrap_or(Instant::FAR_FUTURE);
        next
    }

    /// Removes all frames, in the order of departure.
    pub(crate) fn drain(&mut self) -> Vec<UnderWay<F>> {
        let mut all: Vec<_> = self.in_order.drain(..).chain(self.overtaking.drain().map(|item| item.0)).collect();
        all.sort_by_key(|item| item.order);
        self.earliest = Instant::FAR_FUTURE;
        all
    }

    fn overtaker_is_first(&self) -> bool {
        match (self.overtaking.peek(), self.in_order.front()) {
            (Some(Overtaking(early)), Some(front)) => (early.at, early.order) < (front.at, front.order),
            (early, _) => early.is_some(),
        }
    }
}

/// Ordered so that the heap's greatest is the next to arrive.
#[derive(Clone, Debug)]
struct Overtaking<F>(UnderWay<F>);

impl<F> Ord for Overtaking<F> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (other.0.at, other.0.order).cmp(&(self.0.at, self.0.order))
    }
}

impl<F> PartialOrd for Overtaking<F> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> PartialEq for Overtaking<F> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<F> Eq for Overtaking<F> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_come_out_by_time_and_then_by_departure(times in prop::collection::vec(0_u64..50, 0..100)) {
            let mut wire = Wire::new();
            for (order, &at) in (0..).zip(&times) {
                let at = Instant::from_nanos(at);
                wire.push(UnderWay { at, order, start: at, end: at, mark: Mark::Clean, fate: Fate::Delivered, attempts: 1, len: 1, frame: () });
            }
            let mut expected: Vec<_> = (0..).zip(&times).map(|(order, &at)| (at, order)).collect();
            expected.sort_unstable();
            let mut seen = Vec::new();
            for now in 0..50 {
                while let Some(item) = wire.pop_due(Instant::from_nanos(now)) {
                    prop_assert_eq!(item.at.as_nanos(), now);
                    seen.push((now, item.order));
                }
                prop_assert!(wire.next_at().is_none_or(|at| at.as_nanos() > now));
            }
            prop_assert_eq!(seen, expected);
        }
    }
}
