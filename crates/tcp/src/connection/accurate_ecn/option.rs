//! The option: which segments carry it, with which counters, and whether the path lets it pass (RFC 9768 section 3.2.3).

use holdover_base::Instant;
use holdover_wire::{AccurateEcn, AccurateEcnOrder, Segment, Seq, SeqRange, TcpOptions, Timestamps};

use super::AccurateEcnSeen;
use crate::config::{AccurateEcnConfig, AccurateEcnOption};
use crate::connection::Connection;
use crate::state::State;

/// The order of the options that we send: that of Linux, in which ECT(1) comes first.
pub(super) const ORDER: AccurateEcnOrder = AccurateEcnOrder::One;
/// Options that are due after the ECN field of arriving packets changed: two, so that the loss of one does no harm.
pub(super) const OPTIONS_AFTER_CHANGE: u8 = 2;
/// A byte counter that passes a multiple of this calls for an option, or its 24 bits might wrap unseen.
pub(super) const BYTES_BETWEEN_OPTIONS: u32 = 1 << 22;
/// SACK blocks that are never given up for the option.
const LEAST_BLOCKS: usize = 2;
/// Repetitions in a row of a duplicate that was reported with an option, after which options are left out: one under Linux.
const DUPLICATES_AGAIN: u8 = 2;
const LINUX_DUPLICATES_AGAIN: u8 = 1;
/// The same of duplicates that may be keep-alives.
const KEEP_ALIVES_AGAIN: u8 = 4;

/// Whether segments have it.
impl Connection {
    /// Whether segments may carry the option.
    #[inline]
    pub(in crate::connection) fn sends_ecn_option(&self) -> bool {
        self.accurate_ecn.as_ref().is_some_and(|state| state.option_wanted)
    }
    /// Decides whether the next segment carries an option (section 3.2.3.3). Linux sends none before one of the peer's has arrived; by
    /// section 3.2.3.2.3 the path may drop those of one direction only.
    pub(in crate::connection) fn decide_on_accurate_option(&mut self, now: Instant) {
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
    pub(in crate::connection) fn add_handshake_ecn_option(&self, options: &mut TcpOptions) {
        let Some(state) = self.accurate_ecn.as_ref().filter(|state| state.config.option != AccurateEcnOption::Off)
        else {
            return;
        };
        if state.syn_acks <= 1 {
            fit(options, 0, |counters| AccurateEcn::with(ORDER, counters, |counter| counter.initial()));
        }
    }

    /// Adds the option, if it is wanted and there is room for the counters that have changed. A third SACK block yields to them.
    pub(in crate::connection) fn add_ecn_option(&self, options: &mut TcpOptions) {
        let Some(state) = self.accurate_ecn.as_ref().filter(|state| state.option_wanted) else { return };
        let bytes = state.received_bytes;
        fit(options, state.least_counters.into(), |counters| {
            AccurateEcn::with(ORDER, counters, |counter| bytes.of(counter).wrapping_add(counter.initial()))
        });
    }

    /// A segment is built with these options and this data.
    pub(in crate::connection) fn note_ecn_option_sent(&mut self, now: Instant, options: &TcpOptions, data: SeqRange) {
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
            // An ACK of it would no longer show which copy has arrived.
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
    pub(in crate::connection) fn ecn_and_sack_len(&self) -> u32 {
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

/// Whether segments with it get lost.
impl Connection {
    /// Data that had arrived before came once more, beginning at `seq` (section 3.2.3.2.2). Linux takes the first repetition for a sign
    /// that the path drops options.
    pub(in crate::connection) fn check_duplicate(&mut self, seq: Seq) {
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
    pub(in crate::connection) fn leave_out_options(&mut self) {
        let Some(state) = &mut self.accurate_ecn else { return };
        if state.option_sent_at.is_some() && !state.options_pass {
            state.failures.options_sent |= state.left_out_once;
            state.left_out_once = true;
        }
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
