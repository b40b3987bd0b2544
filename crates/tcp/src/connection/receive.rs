//! The receiver's side: the advertised window, and the scheduling of ACKs.

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_wire::{Segment, Seq, SeqRange};

use super::fields::TIMESTAMPS_LEN;
use super::{Connection, Event};
use crate::config::{AckPolicy, BufferGrowth};
use crate::counters::Reason;
use crate::right_sizing::{RightSizing, share_of_data};
use crate::state::State;
use crate::timers::Timer;

/// Segments with less data do not open the advertised window (Linux `tcp_event_data_recv`).
const LEAST_THAT_OPENS: u32 = 128;
/// A sender's initial window in segments (Linux `TCP_INIT_CWND`).
const FIRST_SEGMENTS: u32 = 10;
/// So many duplicate ACKs in a row leave at once: the sender's evidence of a loss (Linux `TCP_FASTRETRANS_THRESH`).
const SACKS_AT_ONCE: u8 = 3;
/// No ACK stands for more than this number of segments out of order (Linux `tcp_comp_sack_nr`).
const MAX_COMPRESSED: u8 = 44;
/// A held-back ACK waits for a twentieth of the round trip, at most `tcp_comp_sack_delay_ns`, and then for the timer's slack
/// (`tcp_comp_sack_slack_ns`).
const COMPRESSION_RTT_SHARE: u64 = 20;
const MAX_COMPRESSION_DELAY: Duration = Duration::from_millis(1);
const COMPRESSION_SLACK: Duration = Duration::from_micros(100);
/// More SACK blocks than this are reported at once, as an ACK with them may get lost (Linux `TCP_SACK_BLOCKS_EXPECTED`).
const BLOCKS_HELD_BACK: usize = 2;

/// Data.
impl Connection {
    /// Accepts data inside the window (RFC 9293 section 3.10.7.4, seventh); returns how it arrived.
    pub(super) fn take_data(&mut self, seq: Seq, mut data: Bytes) -> Arrival {
        let end = seq + data.len() as u32;
        let known = self.rcv.nxt.saturating_since(seq).min(data.len() as u32);
        if known > 0 {
            self.note_duplicate(SeqRange::new(seq, seq + known));
            drop(data.split_to(known as usize));
        }
        if data.is_empty() {
            self.check_duplicate(seq);
            return Arrival::Duplicate;
        }
        if seq.gt(self.rcv.nxt) {
            let is_recent = self.config.receive.compress_sacks && self.extends_recent_blocks(SeqRange::new(seq, end));
            let inserted = self.received.insert(seq, data);
            if let Some(range) = inserted.duplicate_range {
                self.note_duplicate(range);
            }
            return match inserted.refused {
                true => Arrival::Refused,
                false if is_recent => Arrival::OutOfOrder,
                false => Arrival::SpreadOutOfOrder,
            };
        }
        let had_gap = self.received.has_gap();
        if had_gap {
            // Data that arrived out of order is now in order (Linux `tcp_ofo_queue`).
            self.received.blocks_below(end).into_iter().for_each(|range| self.note_duplicate(range));
        }
        self.received.push_in_order(data);
        let before = self.rcv.nxt;
        self.rcv.nxt = if had_gap { self.received.advance(end) } else { end };
        self.ack.duplicates = 0;
        self.counters.bytes_received.0 += u64::from(self.rcv.nxt - before);
        self.events.insert(Event::Readable);
        match (had_gap, known > 0) {
            (true, _) => Arrival::FilledGap,
            (false, true) => Arrival::Duplicate,
            (false, false) => Arrival::InOrder,
        }
    }

    /// Whether `range` extends one of the latest blocks out of order, or there are no more.
    fn extends_recent_blocks(&self, range: SeqRange) -> bool {
        let recent = self.received.sack_blocks(None, BLOCKS_HELD_BACK);
        let touches = |block: &SeqRange| range.start.le(block.end) && block.start.le(range.end);
        recent.len() < BLOCKS_HELD_BACK || recent.as_slice().iter().any(touches)
    }

    pub(super) fn note_duplicate(&mut self, range: SeqRange) {
        self.counters.bytes_duplicate.0 += u64::from(range.len());
        if self.sack && self.config.dsack {
            self.rcv.dsack.get_or_insert(range);
        }
    }

    /// Schedules the ACK of arrived data (RFC 5681 section 4.2, RFC 9293 section 3.8.6.3). `window_grew`: the data lets
    /// the advertised window grow.
    pub(super) fn schedule_ack(&mut self, now: Instant, arrival: Arrival, len: u32, pushed: bool, window_grew: bool) {
        match arrival {
            Arrival::OutOfOrder if self.may_hold_back_sack(window_grew) => self.hold_back_sack(now),
            // RFC 5681 section 4.2: at once, so that the sender sees the loss; and at once when a gap is filled.
            Arrival::OutOfOrder | Arrival::SpreadOutOfOrder | Arrival::Refused => self.ack_now(Reason::DuplicateAck),
            Arrival::FilledGap => self.ack_now(Reason::GapFilled),
            Arrival::Duplicate => self.ack_now(Reason::DuplicateData),
            Arrival::InOrder => self.schedule_ack_in_order(now, len, pushed, window_grew),
        }
    }

    /// As [`Self::schedule_ack`], of data in order.
    #[inline]
    pub(super) fn schedule_ack_in_order(&mut self, now: Instant, len: u32, pushed: bool, window_grew: bool) {
        // Linux `tcp_measure_rcv_mss`: less than a full segment also ends a write.
        let ends_a_write = pushed || len < self.rcv.mss;
        self.ack.pushed |= ends_a_write && matches!(self.config.receive.ack, AckPolicy::Adaptive { .. });
        self.delay_or_send_ack(now, window_grew);
    }

    /// Whether the ACK of data out of order may wait for more of it (Linux `__tcp_ack_snd_check`).
    fn may_hold_back_sack(&mut self, window_grew: bool) -> bool {
        let receive = &self.config.receive;
        if !receive.compress_sacks || !self.sack {
            return false;
        }
        if window_grew && receive.quick_while_growing {
            self.ack.quick |= 1;
        }
        let unacked = self.rcv.nxt.saturating_since(self.rcv.last_ack_sent);
        let is_quick = self.ack.quick > 0 && !self.ack.interactive;
        if is_quick || unacked > self.rcv.mss || self.ack.compressed >= MAX_COMPRESSED || self.is_ecn_feedback_due() {
            return false;
        }
        if self.ack.duplicates < SACKS_AT_ONCE {
            self.ack.duplicates += 1;
            return false;
        }
        true
    }

    fn hold_back_sack(&mut self, now: Instant) {
        self.ack.compressed += 1;
        // As long as the receiver has not measured a round trip, only the slack remains.
        let measured = self.rcv.sizing.rtt();
        let rtt = self.srtt().map_or(measured, |srtt| srtt.min(measured));
        self.delay_ack(now, (rtt / COMPRESSION_RTT_SHARE).min(MAX_COMPRESSION_DELAY) + COMPRESSION_SLACK);
    }

    #[inline(always)]
    fn delay_or_send_ack(&mut self, now: Instant, window_grew: bool) {
        self.follow_arrivals(now);
        if window_grew && self.config.receive.quick_while_growing {
            self.ack.quick |= 1;
        }
        if self.is_ecn_feedback_due() {
            return self.ack_now(Reason::Ack);
        }
        let unacked = self.rcv.nxt.saturating_since(self.rcv.last_ack_sent);
        let delay = match self.config.receive.ack {
            AckPolicy::Immediate => return self.ack_now(Reason::Ack),
            AckPolicy::Delayed { delay, tick } => {
                if unacked >= 2 * self.rcv.mss {
                    return self.ack_now(Reason::Ack);
                }
                if tick.is_zero() {
                    delay
                } else {
                    // 4.3BSD: delayed ACKs are sent at the next fast timeout.
                    tick - Duration::from_nanos(now.as_nanos() % tick.as_nanos())
                }
            }
            AckPolicy::Adaptive { min, max, .. } => {
                if unacked > self.rcv.mss || (self.ack.quick > 0 && !self.ack.interactive) {
                    return self.ack_now(Reason::Ack);
                }
                self.adaptive_delay(min, max)
            }
        };
        self.delay_ack(now, delay);
    }

    /// The delay of [`AckPolicy::Adaptive`].
    fn adaptive_delay(&self, min: Duration, max: Duration) -> Duration {
        let most = self.srtt().map_or(max, |srtt| srtt.max(min)).min(max);
        self.ack.delay.clamp(min, most)
    }

    fn delay_ack(&mut self, now: Instant, delay: Duration) {
        if !self.timers.is_armed(Timer::DelayedAck) {
            self.timers.arm(now, Timer::DelayedAck, delay);
        }
    }

    /// Schedules the ACK of the peer's FIN. In ESTABLISHED Linux expects an answer that carries it, if only our own FIN (`tcp_fin`): it
    /// delays the ACK as that of data, unless more than a full segment is not acknowledged, the window is closed, or an ACK is due for
    /// something else, or was due before this segment.
    pub(super) fn schedule_fin_ack(&mut self, now: Instant, was_ack_due: bool) {
        let is_first = matches!(self.state, State::SynReceived | State::Established);
        if let AckPolicy::Adaptive { min, max, .. } = self.config.receive.ack
            && is_first
        {
            self.ack.interactive = true;
            let unacked = self.rcv.nxt.saturating_since(self.rcv.last_ack_sent);
            let is_urgent = was_ack_due
                || self.ack.due.is_some_and(|due| due != Reason::Ack)
                || self.is_ecn_feedback_due()
                || self.receive_window() == 0;
            // Before the first data there is no delay yet.
            if !is_urgent && unacked <= self.rcv.mss && !self.ack.delay.is_zero() {
                self.ack.due = None;
                return self.delay_ack(now, self.adaptive_delay(min, max));
            }
        }
        self.ack.due = Some(Reason::FinAck);
    }

    /// Linux `tcp_event_data_recv`: the delay follows the spacing of segments, and a pause longer than the RTO brings
    /// quick ACKs back.
    fn follow_arrivals(&mut self, now: Instant) {
        let AckPolicy::Adaptive { quick_acks, min, .. } = self.config.receive.ack else { return };
        let gap = now.saturating_since(self.ack.last_data_at);
        self.ack.last_data_at = now;
        if self.ack.delay.is_zero() {
            // The first data: bytes acknowledged in the handshake do not count.
            self.ack.delay = min;
            self.ack.quick = quick_acks;
        } else if gap <= min / 2 {
            self.ack.delay = self.ack.delay / 2 + min / 2;
        } else if gap < self.ack.delay {
            self.ack.delay = (self.ack.delay / 2 + gap).min(self.rtt.rto());
        } else if gap > self.rtt.rto() {
            self.ack.quick = quick_acks;
            self.ack.interactive = false;
        }
    }

    /// An ACK is due at once.
    pub(super) fn ack_now(&mut self, reason: Reason) {
        // The first reason stays, unless the new one is more specific than data arrival.
        if self.ack.due.is_none_or(|due| due == Reason::Ack) {
            self.ack.due = Some(reason);
        }
    }

    /// An ACK was sent, pure or with data.
    pub(super) fn note_ack_sent(&mut self, point: Seq) {
        self.ack.due = None;
        self.ack.pushed = false;
        self.ack.compressed = 0;
        self.timers.disarm(Timer::DelayedAck);
        self.rcv.last_ack_sent = point;
        self.ack.quick = self.ack.quick.saturating_sub(1);
        self.rcv.dsack = None;
    }

    /// Measures the round trip for the growth of the buffer, and for how long SACKs are held back.
    #[inline(always)]
    pub(super) fn measure_receive_rtt(&mut self, now: Instant, segment: &Segment) {
        let may_grow = self.rcv.capacity < self.config.receive.max_buffer_bytes;
        if !may_grow && !self.config.receive.compress_sacks {
            return;
        }
        let growth = self.config.receive.growth;
        if growth == BufferGrowth::Linux6_18 {
            self.rcv.sizing.time_window(now, self.rcv.nxt, self.rcv.nxt + self.rcv.wnd);
        }
        let Some(echoed) = segment.options.timestamps.map(|ts| ts.ecr).filter(|&ecr| ecr != 0) else { return };
        if !self.rcv.sizing.takes_echo(growth, echoed) {
            return;
        }
        let is_full = segment.payload.len() as u32 >= self.rcv.mss;
        if let Some(rtt) = self.rtt_by_echo(now, echoed).filter(|_| is_full) {
            self.rcv.sizing.time_echo(growth, rtt, self.received.readable_len() == 0);
        }
    }
}

/// The window.
impl Connection {
    /// The right edge of the window last advertised.
    pub(super) fn advertised_edge(&self) -> Seq {
        self.rcv.wup + self.rcv.wnd
    }

    /// RCV.WND: the unused part of the advertised window.
    pub(super) fn receive_window(&self) -> u32 {
        self.advertised_edge().saturating_since(self.rcv.nxt)
    }

    /// The value of the ACK field: RCV.NXT, or the owner's hold.
    pub(super) fn ack_point(&self) -> Seq {
        self.steering.ack_held_at.map_or(self.rcv.nxt, |held| held.min(self.rcv.nxt))
    }

    /// The window that could be offered: free space up to the growing limit, without silly windows
    /// (RFC 9293 section 3.8.6.2.2).
    pub(super) fn offerable_window(&self) -> u32 {
        let free = self.free_space();
        if free < self.least_window_step() { 0 } else { free.min(self.rcv.limit) }
    }

    fn free_space(&self) -> u32 {
        self.rcv.capacity.saturating_sub(self.received.held() as u32)
    }

    /// The minimum step of the right edge: a full segment, or half of the largest window if that is less (RFC 9293
    /// section 3.8.6.2.2).
    fn least_window_step(&self) -> u32 {
        self.rcv.mss.min(self.rcv.capacity.min(self.rcv.limit) / 2)
    }

    /// The window for a segment with `ack_point`, and its field on the wire.
    ///
    /// The edge never moves back on its own by more than the scale's rounding (RFC 9293 section 3.8.6.2.2, RFC 7323
    /// section 2.4). The owner's clamp changes the advertised window, not the accepted data: data that was sent into
    /// the window before it closed is still accepted.
    pub(super) fn select_window(&self, ack_point: Seq) -> (u32, u16) {
        let current = self.advertised_edge().saturating_since(ack_point);
        // Data between a held ACK point and RCV.NXT occupies window too.
        let held_back = self.rcv.nxt.saturating_since(ack_point);
        let offer = self.offerable_window().saturating_add(held_back);
        let step = self.least_window_step();
        let unit = 1_u32 << self.rcv.scale;
        let most = 0xffff_u32 << self.rcv.scale;
        let window = if offer >= current.saturating_add(step) { offer } else { current }.min(most);
        // Rounding up needs free buffer, or single bytes would advance the edge for ever. The growing limit yields: a
        // window smaller than the unit cannot be advertised.
        // The next multiple of the unit, which is a power of two; it stays below 2^30 and the unit.
        let rounded = ((window + (unit - 1)) & !(unit - 1)).min(most);
        let has_room = window > 0 && rounded <= self.free_space().saturating_add(held_back);
        let window = if has_room { rounded } else { window };
        let advertised = self.steering.window_clamp.map_or(window, |clamp| window.min(clamp));
        (window, (advertised >> self.rcv.scale) as u16)
    }

    /// The reader took `len` bytes: the buffer may grow, and a window update may be due.
    #[inline(always)]
    pub(super) fn after_read(&mut self, now: Instant, len: u32) {
        self.grow_buffer(now, len);
        // Linux `tcp_cleanup_rbuf`: the reader has all pushed data, and no reply is expected that would carry the ACK.
        if self.ack.pushed && !self.ack.interactive && self.received.readable_len() == 0 {
            self.ack_now(Reason::Ack);
        }
        let current = self.receive_window();
        // Under the owner's clamp no update is due; the owner lifts it.
        if !self.state.may_receive() || self.steering.window_clamp.is_some_and(|clamp| clamp <= current) {
            return;
        }
        if current >= self.rcv.mss.saturating_mul(2) {
            return;
        }
        // An update is due if the peer may wait for it: Linux `tcp_cleanup_rbuf`, twice the remaining window.
        let (window, _) = self.select_window(self.rcv.nxt);
        if window > current && window >= 2 * current {
            self.ack_now(Reason::WindowUpdate);
        }
    }

    /// Opens the limit on the advertised window by two segments for each full one received (Linux `tcp_grow_window`),
    /// as far as unread data leaves room. Returns whether it opens.
    pub(super) fn open_limit(&mut self, len: u32) -> bool {
        let room = self.free_space().saturating_sub(self.rcv.limit);
        if room == 0 || len < LEAST_THAT_OPENS {
            return false;
        }
        self.rcv.limit += room.min(2 * self.rcv.mss.max(len));
        true
    }

    /// The reader took `len` bytes: the buffer grows if this is a new maximum per round trip.
    #[inline(always)]
    fn grow_buffer(&mut self, now: Instant, len: u32) {
        let receive = &self.config.receive;
        if self.rcv.capacity >= receive.max_buffer_bytes {
            return;
        }
        let left = self.received.readable_len() as u32;
        let wanted = self.rcv.sizing.on_read(now, receive.growth, len, left, self.srtt(), self.rcv.mss);
        if let Some(wanted) = wanted {
            self.grow_buffer_to(wanted.saturating_add(self.beyond_hole()));
        }
    }

    fn grow_buffer_to(&mut self, wanted: u32) {
        self.rcv.capacity = self.rcv.capacity.max(wanted.min(self.config.receive.max_buffer_bytes));
    }

    /// Data can arrive from now on (Linux `tcp_init_buffer_space`).
    pub(super) fn begin_right_sizing(&mut self, now: Instant) {
        let options = if self.timestamps.is_some() { TIMESTAMPS_LEN.into() } else { 0 };
        let advertised = u32::from(self.syn_mss()).saturating_sub(options);
        let first = (FIRST_SEGMENTS * advertised).min(self.rcv.limit).min(self.rcv.wnd);
        self.rcv.sizing = RightSizing::new(now, self.config.receive.growth, first);
    }

    /// Data lies beyond a hole: the reader will read all of it at once.
    pub(super) fn grow_buffer_for_hole(&mut self) {
        if self.config.receive.growth == BufferGrowth::Linux6_18 {
            self.grow_buffer_to(self.rcv.sizing.with_hole(self.beyond_hole()));
        }
    }

    /// Extent of the data beyond a hole, in bytes; 0 for Linux before 6.18, which ignores it.
    fn beyond_hole(&self) -> u32 {
        let highest = self.received.highest().filter(|_| self.config.receive.growth == BufferGrowth::Linux6_18);
        highest.map_or(0, |highest| highest.saturating_since(self.rcv.nxt))
    }

    /// The full segment size follows the largest segment seen.
    pub(super) fn note_segment_len(&mut self, len: u32) {
        if len <= self.rcv.mss {
            return;
        }
        // Several segments may arrive as one: the size is at most our MSS.
        let most = self.config.receive.merged_segment_bytes.unwrap_or(self.config.mss).min(self.config.mss);
        self.rcv.mss = len.min(most.into()).max(self.rcv.mss);
        self.note_share_of_data();
    }

    /// Derives the share of data in the buffer's memory from the largest segment (Linux `tcp_measure_rcv_mss`).
    pub(super) fn note_share_of_data(&mut self) {
        let receive = &self.config.receive;
        // A buffer of fixed size counts data only.
        if receive.growth != BufferGrowth::Linux6_18 || receive.buffer_bytes == receive.max_buffer_bytes {
            return;
        }
        let share = share_of_data(self.rcv.mss);
        let before = core::mem::replace(&mut self.rcv.share, share);
        let capacity = u64::from(self.rcv.capacity) * u64::from(share) / u64::from(before.max(1));
        self.rcv.capacity = u32::try_from(capacity).unwrap_or(u32::MAX).min(receive.max_buffer_bytes);
        self.rcv.sizing.bound_by(self.rcv.capacity);
    }
}

/// How data arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    InOrder,
    /// In order, and there was a gap behind it.
    FilledGap,
    /// Beyond a gap, in one of the latest blocks or the first ones.
    OutOfOrder,
    /// Beyond a gap, and more blocks than two are to be reported.
    SpreadOutOfOrder,
    /// All or part of it had arrived before.
    Duplicate,
    /// There was no room for it.
    Refused,
}
