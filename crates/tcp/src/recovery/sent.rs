//! One segment in the retransmission queue.

use bytes::Bytes;
use holdover_base::Instant;
use holdover_wire::{Flags, Seq};

use crate::departure::Departure;

/// The retransmissions of a segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Copies {
    None,
    /// None of them is presumed in flight.
    Earlier,
    InFlight,
}

/// One segment in the retransmission queue.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Sent {
    pub(crate) seq: Seq,
    pub(crate) payload: Bytes,
    /// When it was last sent.
    pub(crate) sent_at: Instant,
    /// The bits of [`Self::flags`], in one byte, as a queue has many records.
    flags: u8,
    /// The peer has it (RFC 2018).
    pub(crate) sacked: bool,
    /// It is presumed lost.
    pub(crate) lost: bool,
    copies: Copies,
    /// Delivery-rate state at its last transmission, if rates are measured.
    pub(crate) departure: Option<Box<Departure>>,
}

impl Sent {
    /// Data that is sent at `sent_at` for the first time.
    pub(crate) fn new(sent_at: Instant, seq: Seq, payload: Bytes) -> Self {
        Self { seq, payload, sent_at, flags: 0, sacked: false, lost: false, copies: Copies::None, departure: None }
    }

    /// Data that another endpoint has sent, once or more, and that is in flight.
    pub(crate) fn restored(at: Instant, seq: Seq, payload: Bytes) -> Self {
        Self { copies: Copies::Earlier, ..Self::new(at, seq, payload) }
    }

    pub(crate) fn len(&self) -> u32 {
        self.payload.len() as u32 + (self.flags() & (Flags::SYN | Flags::FIN)).bits().count_ones()
    }

    /// SYN, FIN, and PSH if it ends the data of one write of the application.
    pub(crate) fn flags(&self) -> Flags {
        Flags::from_bits_retain(self.flags.into())
    }

    /// The record with those of `flags` that it keeps.
    pub(crate) fn with_flags(self, flags: Flags) -> Self {
        Self { flags: (flags & (Flags::SYN | Flags::FIN | Flags::PSH)).bits() as u8, ..self }
    }

    pub(crate) fn with_departure(self, departure: Option<Box<Departure>>) -> Self {
        Self { departure, ..self }
    }

    pub(super) fn remove_flags(&mut self, flags: Flags) {
        self.flags &= !(flags.bits() as u8);
    }

    pub(crate) fn is_syn(&self) -> bool {
        self.flags().contains(Flags::SYN)
    }

    /// Whether it was retransmitted since it was presumed lost, and that copy is presumed in flight.
    pub(crate) fn is_retransmitted(&self) -> bool {
        self.copies == Copies::InFlight
    }

    /// Whether it was sent more than once (Karn's rule).
    pub(crate) fn was_retransmitted(&self) -> bool {
        self.copies != Copies::None
    }

    /// It was retransmitted. `is_in_flight`: whether that copy counts as in flight.
    pub(super) fn note_copy(&mut self, is_in_flight: bool) {
        self.copies = self.copies.max(if is_in_flight { Copies::InFlight } else { Copies::Earlier });
    }

    /// The data of `first` were put before its own.
    pub(super) fn take_over_copies(&mut self, first: &Self) {
        self.copies = self.copies.max(first.copies);
    }

    /// A copy that was in flight is not any more.
    pub(super) fn end_flight_of_copy(&mut self) {
        if self.is_retransmitted() {
            self.copies = Copies::Earlier;
        }
    }

    pub(crate) fn end(&self) -> Seq {
        self.seq + self.len()
    }

    /// Presumed lost, and not yet retransmitted.
    pub(crate) fn awaits_retransmission(&self) -> bool {
        self.lost && !self.is_retransmitted() && !self.sacked
    }
}
