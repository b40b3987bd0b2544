//! Counters of a link.

use holdover_base::Duration;

use crate::link::DropCause;

/// A number of frames and the bytes in them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Frames.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, len: u32) {
        self.packets += 1;
        self.bytes += u64::from(len);
    }
}

/// Dropped frames by cause.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Drops([Tally; DropCause::ALL.len()]);

impl Drops {
    /// Frames dropped for one cause.
    pub fn of(&self, cause: DropCause) -> Tally {
        self.0[cause as usize]
    }

    /// Each cause with its count, in the order of [`DropCause::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, Tally)> {
        DropCause::ALL.into_iter().zip(self.0)
    }

    /// The sum over all causes.
    pub fn total(&self) -> Tally {
        self.0.iter().fold(Tally::default(), |sum, tally| Tally {
            packets: sum.packets + tally.packets,
            bytes: sum.bytes + tally.bytes,
        })
    }

    pub(crate) fn add(&mut self, cause: DropCause, len: u32) {
        self.0[cause as usize].add(len);
    }
}

/// The queue: frames whose transmission has not started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueueStatistics {
    /// Frames that wait now.
    pub packets: u64,
    /// Bytes that wait now.
    pub bytes: u64,
    /// Most frames that ever waited at once.
    pub high_water_packets: u64,
    /// Most bytes that ever waited at once.
    pub high_water_bytes: u64,
    /// The integral of the number of waiting frames over time, in frame-nanoseconds.
    pub packet_nanos: u128,
    /// The integral of the waiting bytes over time, in byte-nanoseconds.
    pub byte_nanos: u128,
}

impl QueueStatistics {
    /// Mean number of waiting frames over a run of length `run`; 0 for a run of no length.
    pub fn mean_packets(&self, run: Duration) -> f64 {
        mean(self.packet_nanos, run)
    }
}

fn mean(integral: u128, run: Duration) -> f64 {
    if run.is_zero() { 0.0 } else { integral as f64 / run.as_nanos() as f64 }
}

/// Counters of a link since its creation. `offered + duplicated = delivered + dropped + under_way`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Frames that entered.
    pub offered: Tally,
    /// Copies that the link made.
    pub duplicated: Tally,
    /// Transmissions beyond the first of each frame, by the link's ARQ.
    pub retransmitted: Tally,
    /// Frames that arrived, damaged ones included.
    pub delivered: Tally,
    /// Frames that the queue has marked (RFC 3168 section 5).
    pub marked: Tally,
    /// Frames that arrived damaged.
    pub corrupted: Tally,
    /// Frames that did not arrive.
    pub dropped: Drops,
    /// Frames queued or on the wire.
    pub under_way: u64,
    /// The queue.
    pub queue: QueueStatistics,
}

impl Statistics {
    /// Transmissions that have begun, whether or not the frame arrives: not those of frames that wait, or were dropped before their first.
    pub fn transmitted(&self) -> Tally {
        let unsent = [DropCause::QueueFull, DropCause::CoDel, DropCause::LinkDown].map(|cause| self.dropped.of(cause));
        let sent = |of: fn(&Tally) -> u64, waiting: u64| {
            let all = of(&self.offered) + of(&self.duplicated) + of(&self.retransmitted);
            all.saturating_sub(unsent.iter().map(of).sum::<u64>() + waiting)
        };
        Tally {
            packets: sent(|tally| tally.packets, self.queue.packets),
            bytes: sent(|tally| tally.bytes, self.queue.bytes),
        }
    }
}
