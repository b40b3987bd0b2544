//! The drop-tail buffer of a node in a cell.

use std::collections::VecDeque;

use holdover_base::Instant;

use crate::queue::QueueLimit;
use crate::statistics::QueueStatistics;

#[derive(Clone, Debug)]
pub(super) struct Buffer<T> {
    limit: QueueLimit,
    waiting: VecDeque<Waiting<T>>,
    bytes: u64,
    left: QueueStatistics,
}

#[derive(Clone, Debug)]
struct Waiting<T> {
    since: Instant,
    len: u32,
    item: T,
}

impl<T> Buffer<T> {
    pub(super) fn new(limit: QueueLimit) -> Self {
        Self { limit, waiting: VecDeque::new(), bytes: 0, left: QueueStatistics::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Queues `item`, or returns it if there is no room.
    pub(super) fn push(&mut self, now: Instant, len: u32, item: T) -> Result<(), T> {
        let fits = match self.limit {
            QueueLimit::Unlimited => true,
            QueueLimit::Packets(packets) => self.waiting.len() < packets as usize,
            QueueLimit::Bytes(bytes) => self.bytes + u64::from(len) <= bytes.0,
        };
        if !fits {
            return Err(item);
        }
        self.waiting.push_back(Waiting { since: now, len, item });
        self.bytes += u64::from(len);
        self.left.high_water_packets = self.left.high_water_packets.max(self.waiting.len() as u64);
        self.left.high_water_bytes = self.left.high_water_bytes.max(self.bytes);
        Ok(())
    }

    pub(super) fn pop(&mut self, now: Instant) -> Option<(u32, T)> {
        let first = self.waiting.pop_front()?;
        self.account(first.since, now, first.len);
        Some((first.len, first.item))
    }

    /// Removes all items that `takes` accepts, in order.
    pub(super) fn take_if(&mut self, now: Instant, takes: impl Fn(&T) -> bool) -> Vec<(u32, T)> {
        let mut taken = Vec::new();
        for waiting in core::mem::take(&mut self.waiting) {
            if takes(&waiting.item) {
                self.account(waiting.since, now, waiting.len);
                taken.push((waiting.len, waiting.item));
            } else {
                self.waiting.push_back(waiting);
            }
        }
        taken
    }

    pub(super) fn statistics(&self, now: Instant) -> QueueStatistics {
        let mut statistics = self.left;
        statistics.packets = self.waiting.len() as u64;
        statistics.bytes = self.bytes;
        for waiting in &self.waiting {
            add_wait(&mut statistics, waiting.since, now, waiting.len);
        }
        statistics
    }

    fn account(&mut self, since: Instant, now: Instant, len: u32) {
        self.bytes -= u64::from(len);
        add_wait(&mut self.left, since, now, len);
    }
}

fn add_wait(statistics: &mut QueueStatistics, since: Instant, now: Instant, len: u32) {
    let waited = u128::from(now.saturating_since(since).as_nanos());
    statistics.packet_nanos += waited;
    statistics.byte_nanos += waited * u128::from(len);
}
