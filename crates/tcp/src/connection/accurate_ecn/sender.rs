//! Marks that the peer has reported (RFC 9768 section 3.2.2.5.2).

use holdover_wire::Segment;

use super::AccurateEcnSeen;
use crate::ace::{self, Acked};
use crate::connection::Connection;
use crate::connection::ack::AckReport;
use crate::connection::ecn::Feedback;
use crate::recovery::RecoveryState;

/// An option that first appears after this many sent bytes is ignored: counters may have wrapped (Linux).
const LAST_BYTE_FOR_OPTION: u64 = (1 << 23) - 1;

impl Connection {
    /// The feedback of an ACK (section 3.2.2.5.2): `report` has the data that it acknowledges.
    #[inline]
    pub(in crate::connection) fn take_accurate_feedback(&mut self, segment: &Segment, report: &mut AckReport) {
        if self.ecn.feedback != Feedback::Accurate {
            return;
        }
        let sent = self.counters.bytes_sent.0 + self.counters.bytes_retransmitted.0;
        let delivered = report.delivered();
        let acked = Acked {
            packets: delivered,
            bytes: report.delivered_bytes,
            mss: self.snd.mss,
            is_exact: self.sack || self.recovery.state <= RecoveryState::Cwr,
        };
        let Some(state) = &mut self.accurate_ecn else { return };
        let has_progress = report.acked > 0 || report.sacked > 0 || state.timestamp_is_newer;
        let field = ace::field(segment.flags);
        if !core::mem::replace(&mut state.is_past_handshake, true) && field == 0 && !state.is_linux() {
            // Section 3.2.2.4: the field never begins with 0.
            state.failures.no_ect = true;
            state.failures.ignores_counts = true;
        }
        state.options_pass |= state.only_with_option.take_if(|end| end.le(segment.ack)).is_some();
        // An ACK without new information may have been overtaken.
        if !has_progress {
            return;
        }
        if state.failures.ignores_counts && !state.is_linux() {
            return;
        }
        let option = segment.options.accurate_ecn.as_ref();
        if option.is_none() && state.seen == AccurateEcnSeen::Nothing && sent >= LAST_BYTE_FOR_OPTION {
            state.failures.options_received = true;
        }
        if !state.failures.options_received {
            state.check_first_option(segment);
        }
        let counts = if state.failures.options_received {
            state.decoder.take_ack_without_bytes(state.config.rules, field, &acked)
        } else {
            state.decoder.take_ack(state.config.rules, field, option, &acked)
        };
        // Section 3.2.3.2.5: something rewrites one of the two.
        state.failures.no_ect |= state.decoder.is_inconsistent() && !state.is_linux();
        report.congestion_echoed = counts > 0;
    }
}
