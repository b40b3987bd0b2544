//! The drop-tail queue in front of a transmitter.
//!
//! A frame is in the queue from its arrival until its transmission starts, as in ns-2 and ns-3, where the device takes a frame out of the
//! queue to send it: a 75-packet queue holds 75 packets and one more is being sent. A frame that finds the transmitter idle never enters.
//! (netem's `limit` differs: it counts every packet in the qdisc, including those in propagation.)
//!
//! Transmissions start in the order of arrival and each start is known when the frame arrives, so the queue stores only the starts, and
//! removes frames when it is next accessed: a dequeue needs no event, and yet the limit is exact. When a frame arrives at the instant at
//! which the transmission of another frame starts, that frame has left.

use std::collections::VecDeque;

use holdover_base::{ByteCount, Instant};

use crate::statistics::QueueStatistics;

/// The limit of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum QueueLimit {
    /// No limit.
    #[default]
    Unlimited,
    /// At most this many frames. With 0, only a frame that finds the transmitter idle gets through.
    Packets(u32),
    /// At most this many bytes of frames.
    Bytes(ByteCount),
}

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    max_packets: u64,
    max_bytes: u64,
    bytes: u64,
    waiting: VecDeque<Waiting>,
    left: QueueStatistics,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    since: Instant,
    until: Instant,
    len: u32,
}

impl Queue {
    pub(crate) fn new(limit: QueueLimit) -> Self {
        let (max_packets, max_bytes) = match limit {
            QueueLimit::Unlimited => (u64::MAX, u64::MAX),
            QueueLimit::Packets(packets) => (u64::from(packets), u64::MAX),
            QueueLimit::Bytes(bytes) => (u64::MAX, bytes.0),
        };
        Self { max_packets, max_bytes, bytes: 0, waiting: VecDeque::new(), left: QueueStatistics::default() }
    }

    /// Removes the frames whose transmission has started by `now`.
    #[inline]
    pub(crate) fn release(&mut self, now: Instant) {
        while let Some(head) = self.waiting.front()
            && head.until <= now
        {
            let head = *head;
            self.waiting.pop_front();
            self.leave(head, head.until);
        }
    }

    #[inline]
    pub(crate) fn has_room_for(&self, len: u32) -> bool {
        (self.waiting.len() as u64) < self.max_packets && self.bytes + u64::from(len) <= self.max_bytes
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, now: Instant, until: Instant, len: u32) {
        self.waiting.push_back(Waiting { since: now, until, len });
        self.bytes += u64::from(len);
        self.left.high_water_packets = self.left.high_water_packets.max(self.waiting.len() as u64);
        self.left.high_water_bytes = self.left.high_water_bytes.max(self.bytes);
    }

    /// Inserts a frame before the one at `index`, ignoring the limit.
    pub(crate) fn insert(&mut self, index: usize, now: Instant, until: Instant, len: u32) {
        self.waiting.insert(index, Waiting { since: now, until, len });
        self.bytes += u64::from(len);
        self.left.high_water_packets = self.left.high_water_packets.max(self.waiting.len() as u64);
        self.left.high_water_bytes = self.left.high_water_bytes.max(self.bytes);
    }

    /// Gives the queued frames new start times, from `next`. Those that start by `now` leave, wherever they are: what CoDel discards
    /// may do so before frames that came earlier.
    pub(crate) fn reschedule(&mut self, now: Instant, mut next: impl FnMut(usize) -> Instant) {
        for (index, waiting) in core::mem::take(&mut self.waiting).into_iter().enumerate() {
            let until = next(index);
            if until > now {
                self.waiting.push_back(Waiting { until, ..waiting });
            } else {
                self.leave(waiting, until);
            }
        }
    }

    pub(crate) fn statistics(&self, now: Instant) -> QueueStatistics {
        let mut then = self.clone();
        then.release(now);
        for waiting in core::mem::take(&mut then.waiting) {
            then.left.packets += 1;
            then.left.bytes += u64::from(waiting.len);
            then.leave(waiting, now);
        }
        then.left
    }

    #[inline]
    fn leave(&mut self, waiting: Waiting, at: Instant) {
        let waited = u128::from(at.saturating_since(waiting.since).as_nanos());
        self.bytes -= u64::from(waiting.len);
        self.left.packet_nanos += waited;
        self.left.byte_nanos += waited * u128::from(waiting.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_limit_in_packets_or_bytes_is_exact() {
        let mut queue = Queue::new(QueueLimit::Packets(2));
        queue.push(at(0), at(10), 100);
        assert!(queue.has_room_for(u32::MAX));
        queue.push(at(0), at(20), 100);
        assert!(!queue.has_room_for(1));
        queue.release(at(9));
        assert!(!queue.has_room_for(1));
        queue.release(at(10));
        assert!(queue.has_room_for(1), "a frame that leaves now makes room now");

        let mut queue = Queue::new(QueueLimit::Bytes(ByteCount(250)));
        queue.push(at(0), at(10), 100);
        assert!(queue.has_room_for(150));
        assert!(!queue.has_room_for(151));
    }

    #[test]
    fn the_integral_is_time_spent_waiting_to_the_nanosecond() {
        let mut queue = Queue::new(QueueLimit::Unlimited);
        queue.push(at(0), at(10), 100);
        queue.push(at(5), at(30), 200);
        let statistics = queue.statistics(at(20));
        assert_eq!(statistics.packet_nanos, 10_000_000 + 15_000_000);
        assert_eq!(statistics.byte_nanos, 100 * 10_000_000 + 200 * 15_000_000);
        assert_eq!((statistics.packets, statistics.bytes), (1, 200));
        assert_eq!((statistics.high_water_packets, statistics.high_water_bytes), (2, 300));
        assert_eq!(queue.statistics(at(40)).packet_nanos, 10_000_000 + 25_000_000);
    }
}
