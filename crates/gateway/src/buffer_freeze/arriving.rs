//! Packets of one connection that wait at the new base station until they can be sent to the mobile host in order.

use holdover_base::{Duration, Instant};
use holdover_wire::Packet;

use crate::cache::Cache;

/// How long the packets wait for the next record: a request or a record that was lost twice is repeated within 600 ms.
const PATIENCE: Duration = Duration::from_secs(1);

/// Copies of the old base station, and later packets of the fixed host.
#[derive(Debug)]
pub(super) struct Arriving {
    copies: Cache,
    /// The newest state among the records, and how many of its copies have arrived.
    epoch: u32,
    arrived: u16,
    expected: Option<u16>,
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
            copies: Cache::default(),
            epoch: 0,
            arrived: 0,
            expected: None,
            complete_by: now + PATIENCE,
            is_due: false,
            is_last: false,
            until: now + keep,
        }
    }

    /// Keeps a packet. Returns false if there is no room for it in `room` bytes.
    pub(super) fn keep(&mut self, now: Instant, packet: &Packet, room: usize) -> bool {
        let fits = self.copies.bytes() + packet.wire_len() <= room;
        if fits {
            self.copies.insert(now, packet);
        }
        fits
    }

    /// Notes the arrival of a state, which this many copies belong to.
    pub(super) fn note_state(&mut self, now: Instant, epoch: u32, copies: u16) {
        self.complete_by = now + PATIENCE;
        if self.is_current(epoch) {
            self.expected = Some(copies);
            self.is_due |= self.arrived >= copies;
        }
    }

    /// Notes the arrival of a copy, whether it is kept or not.
    pub(super) fn note_copy(&mut self, now: Instant, epoch: u32) {
        self.complete_by = now + PATIENCE;
        if self.is_current(epoch) {
            self.arrived = self.arrived.saturating_add(1);
            self.is_due |= self.expected.is_some_and(|expected| self.arrived >= expected);
        }
    }

    /// Whether a record belongs to the newest state. A newer one begins anew.
    fn is_current(&mut self, epoch: u32) -> bool {
        if epoch > self.epoch {
            (self.epoch, self.arrived, self.expected) = (epoch, 0, None);
        }
        epoch == self.epoch
    }

    /// Nothing more arrives.
    pub(super) fn conclude(&mut self) {
        (self.is_due, self.is_last) = (true, true);
    }

    /// Whether the packets may be sent: none is missing, or it was waited for.
    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }

    pub(super) const fn is_last(&self) -> bool {
        self.is_last
    }

    pub(super) fn take(&mut self) -> Cache {
        core::mem::take(&mut self.copies)
    }

    pub(super) fn bytes(&self) -> usize {
        self.copies.bytes()
    }

    /// Handles a deadline. Returns whether the packets are due now.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
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
