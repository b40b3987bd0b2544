//! Accurate ECN (RFC 9768): both ends count marks, and every segment carries the count.
//!
//! As a receiver, a connection counts the packets that arrived with CE, and the bytes of each codepoint. Every segment carries three bits
//! of the first count in AE, CWR and ECE, and, where there is room, an option with the others. As a sender, it reduces its window once in
//! a round trip in which the peer's count grew, as for an echo of RFC 3168; nothing is signalled back by CWR.
//!
//! The counts survive what lies between only if it leaves flags and options alone. Both ends look for signs that it does not (sections
//! 3.1.5, 3.2.2.3, 3.2.2.4 and 3.2.3.2), and then stop sending ECN-capable packets, or options.

mod handshake;
mod option;
mod receiver;
mod sender;

use holdover_base::Instant;
use holdover_wire::Seq;

use super::Connection;
use crate::ace::{Decoder, EcnBytes};
use crate::config::{AccurateEcnConfig, AccurateEcnRules};
use crate::ecn::EcnField;

/// The options of the peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum AccurateEcnSeen {
    /// None has arrived.
    #[default]
    Nothing,
    /// One without counters has.
    Empty,
    /// Counters have.
    Counters,
    /// A counter was 0 at first: something on the path rewrites options, and they are ignored.
    Mangled,
}

/// Failures detected on the path; none is reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Failures {
    /// No packet is sent ECN-capable: flags do not reach the other end, or the ECN field is rewritten.
    pub(super) no_ect: bool,
    /// The path zeroes the ACE field: its counts cause no reduction (section 3.2.2.4).
    ignores_counts: bool,
    /// Segments with our options get lost.
    options_sent: bool,
    /// The peer's options are rewritten.
    options_received: bool,
}

/// The state of a connection with accurate feedback.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct AccurateState {
    config: AccurateEcnConfig,
    pub(super) failures: Failures,
    seen: AccurateEcnSeen,

    /// Packets that arrived with CE (r.cep without its initial value), and bytes by codepoint.
    received: u32,
    received_bytes: EcnBytes,
    /// Of those packets, how many no segment of ours has reported.
    unreported: u8,
    /// The ECN field of the last packet.
    last_field: EcnField,
    /// The ECN field of the peer's SYN or SYN-ACK, and whether the next pure ACK reflects it.
    of_handshake: EcnField,
    reflects: bool,
    /// The peer has reported CE of our SYN or SYN-ACK.
    handshake_marked: bool,
    /// The next ACK of data is not delayed.
    ack_due: bool,
    /// A segment without SYN has arrived.
    is_past_handshake: bool,
    /// An ECN-capable packet has arrived.
    has_seen_capable: bool,
    /// The timestamp of the segment that is being processed is the newest.
    pub(super) timestamp_is_newer: bool,

    /// Options that are due, and the counters that the next one must have.
    options_due: u8,
    least_counters: u8,
    option_sent_at: Option<Instant>,
    /// The option goes onto the next segment: decided once for each, so that the data leaves room.
    option_wanted: bool,
    /// Where the duplicate began that the last segment reported, if that had an option: the same duplicate once more shows that the segment
    /// was lost.
    duplicate_reported: Option<Seq>,
    /// Where the last duplicate began: without DSACK it stands for the one reported.
    last_duplicate: Option<Seq>,
    /// The end of the data that was sent, and of a segment of it whose only copy has an option and is not acknowledged.
    data_end: Option<Seq>,
    only_with_option: Option<Seq>,
    /// Such a segment was acknowledged: the path lets options pass.
    options_pass: bool,
    /// SYN-ACKs that came again, although our ACK with an option was sent.
    syn_acks_again: u8,
    /// How often in a row the same duplicate came again although it was reported with an option.
    duplicates_again: u8,
    /// A timeout has left options out once.
    left_out_once: bool,

    decoder: Decoder,
    /// SYN-ACKs that were sent.
    syn_acks: u8,
    /// Timeouts of our SYN before that of the peer crossed it.
    pub(super) syn_timeouts: u32,
}

impl AccurateState {
    pub(super) fn new(config: AccurateEcnConfig, of_handshake: EcnField) -> Self {
        Self {
            config,
            failures: Failures::default(),
            seen: AccurateEcnSeen::Nothing,
            received: 0,
            received_bytes: EcnBytes::default(),
            unreported: 0,
            last_field: EcnField::NotEct,
            of_handshake,
            reflects: false,
            handshake_marked: false,
            ack_due: false,
            is_past_handshake: false,
            has_seen_capable: false,
            timestamp_is_newer: false,
            options_due: 0,
            least_counters: 0,
            option_sent_at: None,
            option_wanted: false,
            duplicate_reported: None,
            last_duplicate: None,
            data_end: None,
            only_with_option: None,
            options_pass: false,
            syn_acks_again: 0,
            duplicates_again: 0,
            left_out_once: false,
            decoder: Decoder::default(),
            syn_acks: 0,
            syn_timeouts: 0,
        }
    }

    fn is_linux(&self) -> bool {
        self.config.rules == AccurateEcnRules::Linux
    }
    fn count_packet(&mut self) {
        self.received = self.received.wrapping_add(1);
        self.unreported = self.unreported.saturating_add(1);
    }
}

/// Getters.
impl Connection {
    /// Packets that the peer has reported to have arrived with CE (Linux `tcpi_delivered_ce`), under accurate feedback.
    pub fn delivered_ce(&self) -> u32 {
        self.accurate_ecn.as_ref().map_or(0, |state| state.decoder.packets)
    }

    /// Bytes that the peer has reported by the ECN field of their packets, or that were ascribed to one between options.
    pub fn delivered_ecn_bytes(&self) -> EcnBytes {
        self.accurate_ecn.as_ref().map_or(EcnBytes::default(), |state| state.decoder.bytes)
    }

    /// Packets that have arrived with CE, under accurate feedback.
    pub fn received_ce(&self) -> u32 {
        self.accurate_ecn.as_ref().map_or(0, |state| state.received)
    }

    /// Bytes that have arrived, by the ECN field of their packets.
    pub fn received_ecn_bytes(&self) -> EcnBytes {
        self.accurate_ecn.as_ref().map_or(EcnBytes::default(), |state| state.received_bytes)
    }

    /// The options for accurate feedback that the peer has sent.
    pub fn accurate_ecn_seen(&self) -> AccurateEcnSeen {
        self.accurate_ecn.as_ref().map_or(AccurateEcnSeen::Nothing, |state| state.seen)
    }

    /// Whether an ECN-capable packet has arrived, under accurate feedback (Linux `TCPI_OPT_ECN_SEEN`).
    pub fn ecn_seen(&self) -> bool {
        self.accurate_ecn.as_ref().is_some_and(|state| state.has_seen_capable)
    }

    /// Whether accurate feedback has failed so that no packet is sent ECN-capable.
    pub fn accurate_ecn_failed(&self) -> bool {
        self.accurate_ecn.as_ref().is_some_and(|state| state.failures.no_ect)
    }

    /// Changes when options for accurate feedback are sent, from now on.
    pub fn set_accurate_ecn(&mut self, config: AccurateEcnConfig) {
        if let Some(state) = &mut self.accurate_ecn {
            state.config = config;
        }
    }
}
