//! Explicit Congestion Notification (RFC 3168): negotiation, echoing marks, and the response to echoes as in Linux.
//!
//! After a marked segment the receiver sets ECE on every ACK until the sender signals by CWR that it has reduced its
//! window. The sender does so once per window of data, as for a loss, but retransmits nothing.

use holdover_wire::{Flags, Segment};

use super::Connection;
use crate::config::Ecn;
use crate::ecn::EcnField;
use crate::recovery::RecoveryState;

/// ACKs that Linux sends at once after a mark: the sender's window may be very small.
const QUICK_ACKS_AFTER_MARK: u8 = 2;

/// Negotiated state and pending signals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EcnState {
    pub(super) agreed: bool,
    /// Our SYN asked for it, or the peer's did.
    asked: bool,
    /// A mark has arrived, and no CWR since.
    echoes: bool,
    /// The window was reduced: the next new data carries CWR.
    cwr_due: bool,
    /// The field of the segment that is being processed.
    arriving: EcnField,
}

/// Agreeing (section 6.1.1).
impl Connection {
    /// Whether ECN was agreed.
    pub fn ecn_agreed(&self) -> bool {
        self.ecn.agreed
    }

    /// The flags that our SYN or SYN-ACK carries beside SYN and ACK. A SYN that is sent again does not ask: something on the path may
    /// have dropped it for the asking (section 6.1.1.1).
    pub(super) fn handshake_ecn_flags(&mut self, is_syn_ack: bool, is_repeated: bool) -> Flags {
        if is_syn_ack {
            return if self.ecn.agreed { Flags::ECE } else { Flags::empty() };
        }
        self.ecn.asked = self.config.ecn == Ecn::Request && !is_repeated;
        if self.ecn.asked { Flags::ECE | Flags::CWR } else { Flags::empty() }
    }

    /// The peer's SYN or SYN-ACK.
    pub(super) fn agree_on_ecn(&mut self, syn: &Segment) {
        let echoes = syn.flags.contains(Flags::ECE);
        let reduces = syn.flags.contains(Flags::CWR);
        self.ecn.agreed = if syn.flags.contains(Flags::ACK) {
            // Both bits set are a reflection of ours.
            self.ecn.asked && echoes && !reduces
        } else {
            self.config.ecn != Ecn::Off && echoes && reduces
        };
    }
}

/// Receiving (section 6.1.3).
impl Connection {
    pub(super) fn note_ecn_field(&mut self, field: EcnField) {
        self.ecn.arriving = field;
    }

    /// A segment with data or a FIN is accepted.
    pub(super) fn take_ecn_mark(&mut self, segment: &Segment) {
        if !self.ecn.agreed {
            return;
        }
        if segment.flags.contains(Flags::CWR) {
            self.ecn.echoes = false;
            // The sender's window may be a single segment.
            self.ack.quick = self.ack.quick.max(1);
        }
        if self.ecn.arriving == EcnField::Ce && !self.ecn.echoes {
            self.ecn.echoes = true;
            self.ack.quick = self.ack.quick.max(QUICK_ACKS_AFTER_MARK);
            self.ack.interactive = false;
        }
    }
}

/// Sending (section 6.1.2).
impl Connection {
    /// Whether an ACK signals congestion.
    pub(super) fn is_congestion_echoed(&self, segment: &Segment) -> bool {
        self.ecn.agreed && segment.flags.contains(Flags::ECE) && !segment.flags.contains(Flags::SYN)
    }

    /// The flags and the field of a segment that leaves; only new data is marked as capable (section 6.1.4 and 6.1.5).
    pub(super) fn ecn_of_departure(&mut self, is_new_data: bool) -> (Flags, EcnField) {
        if !self.ecn.agreed {
            return (Flags::empty(), EcnField::NotEct);
        }
        let mut flags = Flags::empty();
        flags.set(Flags::ECE, self.ecn.echoes);
        if !is_new_data {
            return (flags, EcnField::NotEct);
        }
        flags.set(Flags::CWR, core::mem::take(&mut self.ecn.cwr_due));
        (flags, EcnField::Ect0)
    }

    /// The window was reduced, by an echo or a loss.
    pub(super) fn queue_cwr(&mut self) {
        self.ecn.cwr_due |= self.ecn.agreed;
    }

    /// The path is congested: the window comes down as after a loss, once for what is outstanding (Linux `tcp_enter_cwr`).
    pub(super) fn enter_cwr(&mut self) {
        if self.recovery.state >= RecoveryState::Cwr {
            return;
        }
        self.start_reduction();
        if let Some(episode) = self.recovery.episode.if_present() {
            episode.prior_ssthresh = 0;
            episode.undo_marker = None;
        }
        self.reduce_at_once_if_asked();
        self.recovery.state = RecoveryState::Cwr;
    }
}
