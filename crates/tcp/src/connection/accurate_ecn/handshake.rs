//! The handshake: each end reflects the ECN field of the other's SYN, which shows both how the path treats that field (RFC 9768 sections
//! 3.1 and 3.2.2.1 to 3.2.2.3).

use holdover_wire::{AccurateEcn, Flags, Segment};

use super::option::OPTIONS_AFTER_CHANGE;
use super::{AccurateEcnSeen, AccurateState};
use crate::ace;
use crate::config::AccurateEcnRules;
use crate::connection::Connection;
use crate::connection::ecn::Feedback;
use crate::counters::Reason;
use crate::ecn::EcnField;

impl AccurateState {
    /// The handshake's field of a passive connection, which has an option to send with its first segment.
    pub(in crate::connection) fn accepted(mut self) -> Self {
        self.last_field = self.of_handshake;
        self.options_due = 1;
        self
    }

    /// The option of the peer's SYN-ACK or of the ACK that ends the handshake.
    pub(super) fn check_first_option(&mut self, segment: &Segment) {
        let Some(option) = &segment.options.accurate_ecn else { return };
        if self.seen >= AccurateEcnSeen::Counters {
            return;
        }
        self.seen = classify(option);
        self.failures.options_received |= self.seen == AccurateEcnSeen::Mangled;
    }

    /// A SYN-ACK has agreed to accurate feedback. `reflected` is the ECN field of our SYN as the peer has received it; we sent no ECT.
    pub(in crate::connection) fn check_syn_ack(&mut self, segment: &Segment, arrived: EcnField) {
        self.check_first_option(segment);
        if segment.options.accurate_ecn.is_some() {
            self.options_due = OPTIONS_AFTER_CHANGE;
        }
        let is_marked = arrived == EcnField::Ce;
        // Linux looks at the reflection only if the SYN-ACK was marked.
        let is_valid = if is_marked || !self.is_linux() { self.check_reflection(segment) } else { true };
        if is_marked && (is_valid || !self.is_linux()) {
            self.count_packet();
        }
        if !self.failures.options_received {
            self.decoder.take_syn_ack(segment.options.accurate_ecn.as_ref());
        }
    }

    /// Section 3.2.2.3: the ECN field that the peer received must be one that we may have sent.
    fn check_reflection(&mut self, segment: &Segment) -> bool {
        let Some(arrived) = ace::reflected(ace::field(segment.flags)) else { return true };
        self.handshake_marked |= arrived == EcnField::Ce;
        let is_valid = !self.config.fallback || ace::is_valid_transition(EcnField::NotEct, arrived);
        self.failures.no_ect |= !is_valid;
        is_valid
    }
}

/// Section 3.2.3.2.4: the first and the last counter begin with 1.
fn classify(option: &AccurateEcn) -> AccurateEcnSeen {
    let mut fields = option.fields().map(|(_, value)| value);
    match (fields.next(), fields.nth(1)) {
        (None, _) => AccurateEcnSeen::Empty,
        (Some(0), _) | (_, Some(0)) => AccurateEcnSeen::Mangled,
        _ => AccurateEcnSeen::Counters,
    }
}

impl Connection {
    /// The ACK that ends the handshake of a connection in SYN-RECEIVED (section 3.2.2.1, table 4). If it was lost, a later segment comes
    /// in its place, whose flags are a count.
    pub(in crate::connection) fn check_handshake_ack(&mut self, segment: &Segment) {
        let Some(state) = &mut self.accurate_ecn else { return };
        let has_no_sack = segment.options.sack.is_empty();
        match ace::field(segment.flags) {
            0 if has_no_sack => {
                state.failures.no_ect = true;
                state.failures.ignores_counts = true;
                state.failures.options_received = true;
            }
            field => {
                let is_pure = segment.seq_len() == 0 && has_no_sack;
                let reflected = ace::reflected(field).filter(|_| is_pure);
                let is_valid = reflected.is_none() || state.check_reflection(segment);
                if reflected == Some(EcnField::Ce) && (is_valid || !state.is_linux()) {
                    state.decoder.packets = state.decoder.packets.max(1);
                }
            }
        }
        state.is_past_handshake = true;
        state.check_first_option(segment);
    }

    /// The handshake ends. If the peer has reported CE of our part of it, sending begins with one segment, as after a lost SYN (section
    /// 3.2.2.2; RFC 5681 section 3.1). Linux does not look at it.
    pub(in crate::connection) fn respond_to_marked_handshake(&mut self) {
        let Some(state) = &mut self.accurate_ecn else { return };
        let was_marked = core::mem::take(&mut state.handshake_marked);
        if !was_marked || state.is_linux() || state.failures.ignores_counts {
            return;
        }
        if self.is_idle() { self.congestion.set_cwnd(&self.config.congestion, 1) } else { self.enter_cwr() }
    }

    /// Whether a SYN requests other feedback than the first one (section 3.1.5): the peer cannot know which of them counts.
    pub(in crate::connection) fn asks_for_other_feedback(&self, syn: &Segment) -> bool {
        let config = &self.config;
        if config.accurate_ecn.rules != AccurateEcnRules::Rfc9768 || !config.ecn.accepts_accurate() || !self.passive {
            return false;
        }
        match (self.ecn.feedback, ace::field(syn.flags)) {
            (_, 0b000) | (Feedback::None, _) => false,
            (Feedback::Accurate, field) => field == 0b011,
            (Feedback::Classic, field) => field != 0b011,
        }
    }

    /// Whether the ACK that ends our handshake goes before any data: only a pure one reflects the ECN field of the SYN-ACK (section
    /// 3.2.2.1).
    pub(in crate::connection) fn reflects_before_data(&self) -> bool {
        let is_due = self.ack.due == Some(Reason::HandshakeAck);
        is_due && self.accurate_ecn.as_ref().is_some_and(|state| state.reflects && !state.is_linux())
    }

    /// The SYN-ACK that answers our SYN after SYNs have crossed. Its flags reflect our SYN and are not a count. Our ACK of it has the count:
    /// our own SYN-ACK may have brought the peer to ESTABLISHED.
    pub(in crate::connection) fn check_crossed_syn_ack(&mut self, segment: &Segment) {
        let arriving = self.ecn.arriving;
        if let Some(state) = &mut self.accurate_ecn {
            state.check_syn_ack(segment, arriving);
        }
    }

    /// The peer's SYN or SYN-ACK once more, in SYN-RECEIVED: the answer reflects the latest.
    pub(in crate::connection) fn take_repeated_syn(&mut self, segment: &Segment) {
        let arriving = self.ecn.arriving;
        let Some(state) = &mut self.accurate_ecn else { return };
        state.of_handshake = arriving;
        if !segment.flags.contains(Flags::ACK) && ace::field(segment.flags) == 0 {
            // The peer no longer requests it, or its flags get lost (section 3.1.5).
            state.failures.no_ect = true;
        }
    }

    /// A SYN in a synchronized state. Its flags are ignored (section 3.1.5), and all of it if it has another ISN. If a challenge ACK
    /// `is_queued` for it and for nothing else, this ACK reflects the ECN field of the SYN. An ACK of data has the count: the peer that
    /// sent the data reads it so.
    pub(in crate::connection) fn reflect_challenged_syn(&mut self, segment: &Segment, is_queued: bool) {
        if segment.seq != self.rcv.irs {
            return;
        }
        let acks_data = self.ack_point() != self.rcv.last_ack_sent;
        let arriving = self.ecn.arriving;
        let answers_ours = !self.passive && segment.flags.contains(Flags::ACK) && segment.ack == self.snd.iss + 1;
        let Some(state) = &mut self.accurate_ecn else { return };
        if is_queued && !acks_data {
            state.of_handshake = arriving;
            state.reflects = true;
        }
        // The option of a SYN is ignored (section 3.2.3.2.1).
        if !answers_ours {
            return;
        }
        state.check_first_option(segment);
        if segment.options.accurate_ecn.is_some() {
            state.options_due = state.options_due.max(1);
        }
        state.syn_acks_again = state.syn_acks_again.saturating_add(1);
        state.failures.options_sent |= state.syn_acks_again > 1 && state.option_sent_at.is_some();
    }

    /// The ACK that ends our handshake is due.
    pub(in crate::connection) fn reflect_syn_ack(&mut self) {
        if let Some(state) = &mut self.accurate_ecn {
            state.reflects = true;
        }
    }

    /// The flags of our SYN-ACK (section 3.1.4.2). The second retransmission by the timer has none, and no packet is ECN-capable after it.
    pub(in crate::connection) fn accurate_syn_ack_flags(&mut self) -> Flags {
        let timeouts = self.recovery.retransmits;
        let Some(state) = &mut self.accurate_ecn else { return Flags::empty() };
        state.syn_acks = state.syn_acks.saturating_add(1);
        let gives_up = timeouts.saturating_sub(state.syn_timeouts) > 1;
        state.failures.no_ect |= gives_up || state.syn_acks > 2;
        if gives_up { Flags::empty() } else { ace::reflection(state.of_handshake) }
    }
}
