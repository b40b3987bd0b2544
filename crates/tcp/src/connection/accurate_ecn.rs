//! Accurate ECN (RFC 9768): both ends count marks, and every segment carries the count.
//!
//! As a receiver, a connection counts the packets that arrived with CE, and the bytes of each codepoint. Every segment carries three bits
//! of the first count in AE, CWR and ECE, and, where there is room, an option with the others. As a sender, it reduces its window once in
//! a round trip in which the peer's count grew, as for an echo of RFC 3168; nothing is signalled back by CWR.
//!
//! The counts survive what lies between only if it leaves flags and options alone. Both ends look for signs that it does not (sections
//! 3.1.5, 3.2.2.3, 3.2.2.4 and 3.2.3.2), and then stop sending ECN-capable packets, or options.

use holdover_base::Instant;
use holdover_wire::{AccurateEcn, AccurateEcnOrder, Flags, Segment, Seq, SeqRange, TcpOptions, Timestamps};

use super::Connection;
use super::ack::AckReport;
use super::ecn::Feedback;
use crate::ace::{self, Acked, Decoder, EcnBytes};
use crate::config::{AccurateEcnConfig, AccurateEcnOption, AccurateEcnRules};
use crate::counters::Reason;
use crate::ecn::EcnField;
use crate::state::State;

/// The order of the options that we send: that of Linux, in which ECT(1) comes first.
const ORDER: AccurateEcnOrder = AccurateEcnOrder::One;
/// Options that are due after the ECN field of arriving packets changed: two, so that the loss of one is no harm.
const OPTIONS_AFTER_CHANGE: u8 = 2;
/// A byte counter that passes a multiple of this calls for an option, or its 24 bits might wrap unseen.
const BYTES_BETWEEN_OPTIONS: u32 = 1 << 22;
/// SACK blocks that are never given up for the option.
const LEAST_BLOCKS: usize = 2;
/// Linux answers at once when so many packets with CE were not reported (`TCP_ACCECN_ACE_MAX_DELTA`). Section
/// 3.2.2.5.1 allows up to 7.
const LINUX_UNREPORTED: u8 = 6;
/// What section 3.2.2.5.1 recommends: 2, or 3 where only pure ACKs arrive and no data waits for its ACK.
const UNREPORTED: u8 = 2;
const UNREPORTED_OF_ACKS: u8 = 3;
/// Repetitions in a row of a duplicate that was reported with an option, after which options are left out: one under Linux.
const DUPLICATES_AGAIN: u8 = 2;
const LINUX_DUPLICATES_AGAIN: u8 = 1;
/// The same of duplicates that may be keep-alives.
const KEEP_ALIVES_AGAIN: u8 = 4;
/// An option that appears only after so many bytes were sent is not believed: counters may have wrapped (Linux).
const LAST_BYTE_FOR_OPTION: u64 = (1 << 23) - 1;

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

/// What was found to fail on the path, each for good.
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
#[derive(Clone, Debug)]
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
    /// Where the duplicate began that the last segment reported, if that had an option: the same duplicate once more tells that the segment
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

    /// The handshake's field of a passive connection, which has an option to send with its first segment.
    pub(super) fn accepted(mut self) -> Self {
        self.last_field = self.of_handshake;
        self.options_due = 1;
        self
    }

    /// The option of the peer's SYN-ACK or of the ACK that ends the handshake.
    fn check_first_option(&mut self, segment: &Segment) {
        let Some(option) = &segment.options.accurate_ecn else { return };
        if self.seen >= AccurateEcnSeen::Counters {
            return;
        }
        self.seen = classify(option);
        self.failures.options_received |= self.seen == AccurateEcnSeen::Mangled;
    }

    /// A SYN-ACK has agreed to accurate feedback. `reflected` is what it says of our SYN, which had no ECT.
    pub(super) fn check_syn_ack(&mut self, segment: &Segment, arrived: EcnField) {
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

    /// Section 3.2.2.3: what the peer received must be what we may have sent.
    fn check_reflection(&mut self, segment: &Segment) -> bool {
        let Some(arrived) = ace::reflected(ace::field(segment.flags)) else { return true };
        let is_valid = !self.config.fallback || ace::is_valid_transition(EcnField::NotEct, arrived);
        self.failures.no_ect |= !is_valid;
        is_valid
    }

    fn count_packet(&mut self) {
        self.received = self.received.wrapping_add(1);
        self.unreported = self.unreported.saturating_add(1);
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

    /// What options for accurate feedback the peer has sent.
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

/// The handshake.
impl Connection {
    /// Whether segments may carry the option.
    #[inline]
    pub(super) fn sends_ecn_option(&self) -> bool {
        self.accurate_ecn.as_ref().is_some_and(|state| state.option_wanted)
    }

    /// The ACK that ends the handshake of a connection in SYN-RECEIVED (section 3.2.2.1, table 4). If it was lost, a later segment comes
    /// in its place, whose flags are a count.
    pub(super) fn check_handshake_ack(&mut self, segment: &Segment) {
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
                if reflected.is_some() && state.check_reflection(segment) && reflected == Some(EcnField::Ce) {
                    state.decoder.packets = state.decoder.packets.max(1);
                }
            }
        }
        state.is_past_handshake = true;
        state.check_first_option(segment);
    }

    /// The SYN-ACK that answers our SYN after SYNs have crossed. Its flags reflect our SYN and are no count. Our ACK of it has the count:
    /// our own SYN-ACK may have brought the peer to ESTABLISHED.
    pub(super) fn check_crossed_syn_ack(&mut self, segment: &Segment) {
        let arriving = self.ecn.arriving;
        if let Some(state) = &mut self.accurate_ecn {
            state.check_syn_ack(segment, arriving);
        }
    }

    /// The peer's SYN or SYN-ACK once more, in SYN-RECEIVED: the answer reflects the latest.
    pub(super) fn take_repeated_syn(&mut self, segment: &Segment) {
        let arriving = self.ecn.arriving;
        let Some(state) = &mut self.accurate_ecn else { return };
        state.of_handshake = arriving;
        if !segment.flags.contains(Flags::ACK) && ace::field(segment.flags) == 0 {
            // The peer has given up asking for it, or its flags get lost (section 3.1.5).
            state.failures.no_ect = true;
        }
    }

    /// A SYN in a synchronized state. Its flags are ignored (section 3.1.5), and all of it if it has another ISN. If a challenge ACK
    /// `is_queued` for it and for nothing else, this ACK reflects the ECN field of the SYN. An ACK of data has the count: the peer that
    /// sent the data reads it so.
    pub(super) fn reflect_challenged_syn(&mut self, segment: &Segment, is_queued: bool) {
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
    pub(super) fn reflect_syn_ack(&mut self) {
        if let Some(state) = &mut self.accurate_ecn {
            state.reflects = true;
        }
    }
}

/// Receiving.
impl Connection {
    /// A packet has arrived that is part of the connection: counts it (section 3.2.1), and determines whether the count is urgent (section
    /// 3.2.2.5.1). `timestamp_is_newer`: no earlier packet had its timestamp.
    #[inline]
    pub(super) fn count_ecn_field(&mut self, segment: &Segment, timestamp_is_newer: bool) {
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
    pub(super) fn is_ecn_feedback_due(&self) -> bool {
        self.accurate_ecn.as_ref().is_some_and(|state| state.ack_due)
    }

    /// Data that had arrived before came once more, beginning at `seq` (section 3.2.3.2.2). Linux takes the first repetition for a sign
    /// that the path drops options.
    pub(super) fn check_duplicate(&mut self, seq: Seq) {
        // A single byte: it may be a keep-alive, which is repeated without a loss.
        let is_keep_alive = seq + 1 == self.rcv.nxt;
        let Some(state) = &mut self.accurate_ecn else { return };
        state.last_duplicate = Some(seq);
        if state.duplicate_reported != Some(seq) {
            state.duplicates_again = 0;
            return;
        }
        state.duplicates_again = state.duplicates_again.saturating_add(1);
        let most = match (is_keep_alive, state.is_linux()) {
            (true, _) => KEEP_ALIVES_AGAIN,
            (false, true) => LINUX_DUPLICATES_AGAIN,
            (false, false) => DUPLICATES_AGAIN,
        };
        state.failures.options_sent |= state.duplicates_again >= most;
    }

    /// The retransmission timer has run out for the first time since data was acknowledged, and nothing shows that segments with options
    /// pass: the path may drop them, or all packets for a while. Options are left out until data is acknowledged, and tried once more.
    pub(super) fn leave_out_options(&mut self) {
        let Some(state) = &mut self.accurate_ecn else { return };
        if state.option_sent_at.is_some() && !state.options_pass {
            state.failures.options_sent |= state.left_out_once;
            state.left_out_once = true;
        }
    }

    /// The feedback of an ACK (section 3.2.2.5.2): `report` has what it acknowledges.
    #[inline]
    pub(super) fn take_accurate_feedback(&mut self, segment: &Segment, report: &mut AckReport) {
        if self.ecn.feedback != Feedback::Accurate {
            return;
        }
        let sent = self.counters.bytes_sent.0 + self.counters.bytes_retransmitted.0;
        let delivered = report.delivered();
        let acked = Acked {
            packets: delivered,
            bytes: report.delivered_bytes,
            mss: self.snd.mss,
            is_exact: self.sack || self.recovery.state <= crate::recovery::RecoveryState::Cwr,
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
        // An ACK without news may have been overtaken.
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
        report.congestion_echoed = counts > 0;
    }
}

/// Sending.
impl Connection {
    /// The flags and the ECN field of a segment. `pure_ack`: why, if it is nothing but an ACK.
    pub(super) fn accurate_departure(&mut self, is_new_data: bool, pure_ack: Option<Reason>) -> (Flags, EcnField) {
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

    /// The flags of our SYN-ACK (section 3.1.4.2). The second retransmission by the timer has none, and no packet is ECN-capable after it.
    pub(super) fn accurate_syn_ack_flags(&mut self) -> Flags {
        let timeouts = self.recovery.retransmits;
        let Some(state) = &mut self.accurate_ecn else { return Flags::empty() };
        state.syn_acks = state.syn_acks.saturating_add(1);
        let gives_up = timeouts.saturating_sub(state.syn_timeouts) > 1;
        state.failures.no_ect |= gives_up || state.syn_acks > 2;
        if gives_up { Flags::empty() } else { ace::reflection(state.of_handshake) }
    }

    /// Decides whether the next segment carries an option (section 3.2.3.3). Linux sends none before one of the peer's has arrived; by
    /// section 3.2.3.2.3 the path may drop those of one direction only.
    pub(super) fn decide_on_accurate_option(&mut self, now: Instant) {
        let srtt = self.rtt.srtt();
        let is_over = self.state == State::TimeWait;
        let is_repairing = self.recovery.retransmits > 0;
        let Some(state) = &mut self.accurate_ecn else { return };
        let AccurateEcnConfig { option, beacons, .. } = state.config;
        let is_allowed = match option {
            AccurateEcnOption::Off => false,
            AccurateEcnOption::Minimum | AccurateEcnOption::Full => {
                !(state.failures.options_sent || state.left_out_once && !state.options_pass && is_repairing)
            }
            AccurateEcnOption::Persist => true,
        };
        let is_beacon_due = || {
            let Some(sent_at) = state.option_sent_at else { return true };
            now.saturating_since(sent_at) * u64::from(beacons) >= srtt.unwrap_or_default()
        };
        state.option_wanted = is_allowed
            && !(is_over && state.is_linux())
            && (state.seen != AccurateEcnSeen::Nothing || !state.is_linux())
            && (option >= AccurateEcnOption::Full || state.options_due > 0 || beacons > 0 && is_beacon_due());
    }

    /// The option of a SYN-ACK, as far as there is room. It has the initial values.
    pub(super) fn add_handshake_ecn_option(&self, options: &mut TcpOptions) {
        let Some(state) = self.accurate_ecn.as_ref().filter(|state| state.config.option != AccurateEcnOption::Off)
        else {
            return;
        };
        if state.syn_acks <= 1 {
            fit(options, 0, |counters| AccurateEcn::with(ORDER, counters, |counter| counter.initial()));
        }
    }

    /// Adds the option, if it is wanted and there is room for the counters that have changed. A third SACK block yields to them.
    pub(super) fn add_ecn_option(&self, options: &mut TcpOptions) {
        let Some(state) = self.accurate_ecn.as_ref().filter(|state| state.option_wanted) else { return };
        let bytes = state.received_bytes;
        fit(options, state.least_counters.into(), |counters| {
            AccurateEcn::with(ORDER, counters, |counter| bytes.of(counter).wrapping_add(counter.initial()))
        });
    }

    /// A segment is built with these options and this data.
    pub(super) fn note_ecn_option_sent(&mut self, now: Instant, options: &TcpOptions, data: SeqRange) {
        let dsack = self.rcv.dsack.map(|range| range.start);
        let reports_duplicates = self.sack && self.config.dsack;
        let Some(state) = &mut self.accurate_ecn else { return };
        let duplicate = if reports_duplicates { dsack } else { state.last_duplicate.take() };
        state.duplicate_reported = None;
        let is_new = !data.is_empty() && state.data_end.is_none_or(|end| data.end.gt(end));
        if is_new {
            state.data_end = Some(data.end);
        }
        if options.accurate_ecn.is_none() {
            // An ACK of it would no longer tell which copy has arrived.
            state.only_with_option.take_if(|end| data.start.lt(*end) && end.le(data.end));
            return;
        }
        state.least_counters = 0;
        state.options_due = state.options_due.saturating_sub(1);
        state.option_sent_at = Some(now);
        state.duplicate_reported = duplicate;
        if is_new && !state.options_pass {
            state.only_with_option.get_or_insert(data.end);
        }
    }

    /// Bytes of a segment's space that SACK blocks and the option take from its data.
    pub(super) fn ecn_and_sack_len(&self) -> u32 {
        let timestamps = self.timestamps.as_ref().map(|_| Timestamps { val: 0, ecr: 0 });
        let mut options = TcpOptions { timestamps, ..TcpOptions::default() };
        let before = options.wire_len();
        if self.sack && (self.received.has_gap() || self.rcv.dsack.is_some()) {
            options.sack = self.sack_blocks();
        }
        self.add_ecn_option(&mut options);
        (options.wire_len() - before) as u32
    }
}

/// Puts in the longest option that fits, with `least` counters or more; else gives up a SACK block, or the option.
fn fit(options: &mut TcpOptions, least: usize, option: impl Fn(usize) -> AccurateEcn) {
    let blocks = options.sack;
    loop {
        for counters in (least..=AccurateEcn::MAX_COUNTERS).rev() {
            options.accurate_ecn = Some(option(counters));
            if options.aligned_len() <= Segment::MAX_OPTIONS_LEN {
                return;
            }
        }
        if least == 0 || options.sack.len() <= LEAST_BLOCKS {
            break;
        }
        options.sack.truncate(options.sack.len() - 1);
    }
    options.accurate_ecn = None;
    options.sack = blocks;
}
