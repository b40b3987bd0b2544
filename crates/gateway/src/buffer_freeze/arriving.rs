//! Packets of one connection that wait at the new base station until they can be sent to the mobile host in order.

use holdover_base::{Duration, Instant};
use holdover_wire::Packet;

use crate::cache::Cache;

/// How long the packets wait for the next piece of the peers' answers: a request that was lost twice is repeated within 600 ms.
const PATIENCE: Duration = Duration::from_secs(1);

/// Copies of the old base station, and later packets of the fixed host.
#[derive(Debug)]
pub(super) struct Arriving {
    packets: Cache,
    /// The record had copies.
    has_copies: bool,
    complete_by: Instant,
    is_due: bool,
    /// All peers have answered, or will not answer: nothing more arrives.
    is_last: bool,
    /// When they are dropped, if the mobile host does not come.
    until: Instant,
}

impl Arriving {
    pub(super) fn new(now: Instant, keep: Duration) -> Self {
        Self {
            packets: Cache::default(),
            has_copies: false,
            complete_by: now + PATIENCE,
            is_due: false,
            is_last: false,
            until: now + keep,
        }
    }

    /// Keeps a packet. Returns false if there is no room for it in `room` bytes.
    pub(super) fn keep(&mut self, now: Instant, packet: &Packet, room: usize) -> bool {
        let fits = self.packets.bytes() + packet.wire_len() <= room;
        if fits {
            self.packets.insert(now, packet);
        }
        fits
    }

    /// The record has arrived: the packets need not wait for it.
    pub(super) fn note_record(&mut self, has_copies: bool) {
        (self.is_due, self.has_copies) = (true, has_copies);
    }

    pub(super) const fn has_copies(&self) -> bool {
        self.has_copies
    }

    /// No record arrives any more.
    pub(super) fn conclude(&mut self) {
        (self.is_due, self.is_last) = (true, true);
    }

    /// Whether the packets may be sent: the record has arrived, or was waited for.
    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }

    pub(super) const fn is_last(&self) -> bool {
        self.is_last
    }

    pub(super) fn take(&mut self) -> Cache {
        core::mem::take(&mut self.packets)
    }

    pub(super) fn bytes(&self) -> usize {
        self.packets.bytes()
    }

    /// Handles a deadline; the latest piece of an answer has arrived at `progressed_at`. Returns whether the packets are due now.
    pub(super) fn handle_timeout(&mut self, now: Instant, progressed_at: Option<Instant>) -> bool {
        if let Some(at) = progressed_at {
            self.complete_by = self.complete_by.max(at + PATIENCE);
        }
        let is_late = !self.is_due && self.complete_by <= now;
        self.is_due |= is_late;
        is_late
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until <= now
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        if self.is_due { self.until } else { self.complete_by.min(self.until) }
    }
}
