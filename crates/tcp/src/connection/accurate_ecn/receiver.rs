//! Marks that arrive: counted, and reported by the flags of each segment (RFC 9768 sections 3.2.1, 3.2.2 and 3.2.2.5.1).

use holdover_wire::{Flags, Segment};

use super::option::{BYTES_BETWEEN_OPTIONS, OPTIONS_AFTER_CHANGE, ORDER};
use crate::ace;
use crate::connection::Connection;
use crate::connection::ecn::Feedback;
use crate::counters::Reason;
use crate::ecn::EcnField;
use crate::state::State;

/// Linux answers at once when so many packets with CE were not reported (`TCP_ACCECN_ACE_MAX_DELTA`). Section
/// 3.2.2.5.1 allows up to 7.
const LINUX_UNREPORTED: u8 = 6;
/// The recommendation of section 3.2.2.5.1: 2, or 3 where only pure ACKs arrive and no data waits for its ACK.
const UNREPORTED: u8 = 2;
const UNREPORTED_OF_ACKS: u8 = 3;

impl Connection {
    /// A packet has arrived that is part of the connection: counts it (section 3.2.1), and determines whether the count is urgent (section
    /// 3.2.2.5.1). `timestamp_is_newer`: no earlier packet had its timestamp.
    #[inline]
    pub(in crate::connection) fn count_ecn_field(&mut self, segment: &Segment, timestamp_is_newer: bool) {
        if self.ecn.feedback != Feedback::Accurate {
            return;
        }
        let field = self.ecn.arriving;
        let Some(state) = &mut self.accurate_ecn else { return };
        state.has_seen_capable |= field != EcnField::NotEct;
        state.timestamp_is_newer = timestamp_is_newer;
        if field == EcnField::Ce {
            state.count_packet();
        }
        let len = segment.payload.len() as u32;
        if len > 0
            && let Some(counter) = ace::counter_of(field)
        {
            let count = state.received_bytes.of_mut(counter);
            let before = *count;
            *count = count.wrapping_add(len);
            let place = ORDER.counters().iter().position(|&other| other == counter).map_or(0, |at| at as u8 + 1);
            state.least_counters = state.least_counters.max(place);
            if (before ^ *count) >= BYTES_BETWEEN_OPTIONS {
                state.options_due = state.options_due.max(1);
            }
        }
        let has_changed = core::mem::replace(&mut state.last_field, field) != field;
        if has_changed || field == EcnField::Ce {
            state.options_due = OPTIONS_AFTER_CHANGE;
        }
        if state.is_linux() {
            state.ack_due |= has_changed || state.unreported >= LINUX_UNREPORTED;
            return;
        }
        let has_data = len > 0 || self.rcv.nxt != self.rcv.last_ack_sent;
        let most = if has_data { UNREPORTED } else { UNREPORTED_OF_ACKS };
        let is_late = state.unreported >= most;
        state.ack_due |= is_late || len > 0 && has_changed && field == EcnField::Ce;
        if is_late && len == 0 {
            self.ack_now(Reason::Ack);
        }
    }

    /// Whether arrived data is to be acknowledged at once for the sake of the counts.
    pub(in crate::connection) fn is_ecn_feedback_due(&self) -> bool {
        self.accurate_ecn.as_ref().is_some_and(|state| state.ack_due)
    }

    /// The flags and the ECN field of a segment. `pure_ack`: why, if it is nothing but an ACK.
    pub(in crate::connection) fn accurate_departure(
        &mut self,
        is_new_data: bool,
        pure_ack: Option<Reason>,
    ) -> (Flags, EcnField) {
        let is_over = self.state == State::TimeWait;
        let Some(state) = &mut self.accurate_ecn else { return (Flags::empty(), EcnField::NotEct) };
        let is_capable = !state.failures.no_ect;
        if is_over && state.is_linux() {
            // Linux has no counters in TIME-WAIT, and keeps ECT off ACKs of segments outside the window (`tcp_v4_timewait_ack`).
            let acks_fin = pure_ack == Some(Reason::FinAck);
            return (Flags::empty(), if is_capable && acks_fin { EcnField::Ect0 } else { EcnField::NotEct });
        }
        let field = match is_capable && (is_new_data || state.is_linux()) {
            true => EcnField::Ect0,
            false => EcnField::NotEct,
        };
        if core::mem::take(&mut state.reflects) && pure_ack.is_some() {
            return (ace::reflection(state.of_handshake), field);
        }
        state.unreported = 0;
        state.ack_due = false;
        (ace::flags(state.received), field)
    }
}
