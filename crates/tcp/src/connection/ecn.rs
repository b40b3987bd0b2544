//! Explicit Congestion Notification (RFC 3168): negotiation, also of accurate feedback (RFC 9768), echoing marks, and the response to
//! echoes as in Linux.
//!
//! After a marked segment the receiver sets ECE on every ACK until the sender signals by CWR that it has reduced its
//! window. The sender does so once per window of data, as for a loss, but retransmits nothing.

use holdover_wire::{Flags, Segment};

use super::Connection;
use super::accurate_ecn::AccurateState;
use crate::ace;
use crate::config::Ecn;
use crate::counters::Reason;
use crate::ecn::EcnField;
use crate::recovery::RecoveryState;

/// ACKs that Linux sends at once after a mark: the sender's window may be very small.
const QUICK_ACKS_AFTER_MARK: u8 = 2;

/// How a receiver reports marks to the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Feedback {
    /// Not at all: ECN is not in use.
    #[default]
    None,
    /// Once in a round trip (RFC 3168).
    Classic,
    /// By counters (RFC 9768).
    Accurate,
}

/// Negotiated state and pending signals.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct EcnState {
    pub(super) feedback: Feedback,
    /// The feedback that our SYN requested, also if accurate feedback was requested by an earlier SYN only.
    asked: Feedback,
    /// A mark has arrived, and no CWR since.
    echoes: bool,
    /// The window was reduced: the next new data carries CWR.
    cwr_due: bool,
    /// The field of the packet that is being processed.
    pub(super) arriving: EcnField,
}

/// Agreeing (section 6.1.1).
impl Connection {
    /// Whether ECN was agreed.
    pub fn ecn_agreed(&self) -> bool {
        self.ecn.feedback != Feedback::None
    }

    /// The feedback that was agreed on.
    pub fn ecn_feedback(&self) -> Feedback {
        self.ecn.feedback
    }

    /// The flags that our SYN or SYN-ACK carries beside SYN and ACK. A retransmitted SYN does not request ECN, and accurate feedback only
    /// in the first retransmission: a node on the path may have dropped it because of the request (section 6.1.1.1, RFC 9768 section 3.1.4.1).
    pub(super) fn handshake_ecn_flags(&mut self, is_syn_ack: bool, is_repeated: bool) -> Flags {
        if is_syn_ack {
            return match self.ecn.feedback {
                Feedback::None => Flags::empty(),
                Feedback::Classic => Flags::ECE,
                Feedback::Accurate => self.accurate_syn_ack_flags(),
            };
        }
        let falls_back = self.config.accurate_ecn.fallback;
        match self.config.ecn {
            Ecn::Off | Ecn::Accept | Ecn::AcceptAccurate => Flags::empty(),
            Ecn::Request | Ecn::AcceptAccurateRequest => {
                let asks = !(is_repeated && falls_back);
                self.ecn.asked = if asks { Feedback::Classic } else { Feedback::None };
                if asks { Flags::ECE | Flags::CWR } else { Flags::empty() }
            }
            Ecn::RequestAccurate => {
                self.ecn.asked = Feedback::Accurate;
                if self.asks_for_accurate_ecn() { Flags::AE | Flags::ECE | Flags::CWR } else { Flags::empty() }
            }
        }
    }

    /// Whether our latest SYN requests accurate feedback, if it is configured.
    fn asks_for_accurate_ecn(&self) -> bool {
        self.recovery.retransmits <= 1 || !self.config.accurate_ecn.fallback
    }

    /// The peer's SYN or SYN-ACK (RFC 9768 sections 3.1.1 to 3.1.3, table 2).
    pub(super) fn agree_on_ecn(&mut self, syn: &Segment) {
        let is_answer = syn.flags.contains(Flags::ACK);
        let field = ace::field(syn.flags);
        self.ecn.feedback = match (is_answer, field) {
            // Both bits set are a reflection of ours.
            (true, 0b000 | 0b111) => Feedback::None,
            (true, _) if self.ecn.asked == Feedback::Accurate && field != 0b001 => Feedback::Accurate,
            (true, 0b001 | 0b101) if self.ecn.asked != Feedback::None => Feedback::Classic,
            (true, _) => Feedback::None,
            // Any other combination requests accurate feedback: later standards may give the others a meaning.
            (false, field) if !matches!(field, 0b000 | 0b011) && self.config.ecn.accepts_accurate() => {
                Feedback::Accurate
            }
            (false, 0b011 | 0b111) if self.config.ecn != Ecn::Off => Feedback::Classic,
            (false, _) => Feedback::None,
        };
        if self.ecn.feedback != Feedback::Accurate {
            return;
        }
        let arriving = self.ecn.arriving;
        let mut state = Box::new(AccurateState::new(self.config.accurate_ecn, arriving));
        if is_answer {
            state.check_syn_ack(syn, arriving);
        } else {
            *state = state.accepted();
            state.syn_timeouts = self.recovery.retransmits;
        }
        self.accurate_ecn = Some(state);
    }
}

/// Receiving (section 6.1.3).
impl Connection {
    pub(super) fn note_ecn_field(&mut self, field: EcnField) {
        self.ecn.arriving = field;
        if let Some(state) = &mut self.accurate_ecn {
            // Some segments are acknowledged without a look at their timestamp.
            state.timestamp_is_newer = false;
        }
    }

    /// A segment with data or a FIN is accepted.
    pub(super) fn take_ecn_mark(&mut self, segment: &Segment) {
        if self.ecn.feedback != Feedback::Classic {
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
        self.ecn.feedback == Feedback::Classic
            && segment.flags.contains(Flags::ECE)
            && !segment.flags.contains(Flags::SYN)
    }

    /// The flags and the field of a segment that leaves; only new data is marked as capable (section 6.1.4 and 6.1.5).
    #[inline]
    pub(super) fn ecn_of_departure(&mut self, is_new_data: bool, pure_ack: Option<Reason>) -> (Flags, EcnField) {
        match self.ecn.feedback {
            Feedback::None => return (Flags::empty(), EcnField::NotEct),
            Feedback::Accurate => return self.accurate_departure(is_new_data, pure_ack),
            Feedback::Classic => {}
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
        self.ecn.cwr_due |= self.ecn.feedback == Feedback::Classic;
    }

    /// The path is congested: the window is reduced as after a loss, once for the outstanding data (Linux `tcp_enter_cwr`).
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
