//! Header prediction: the two segments that a transfer consists of nearly throughout, the next data at the receiver and the ACK of new data
//! at the sender, without the steps of `input` and `ack` that have nothing to do for them.
//!
//! The idea is Van Jacobson's ("4BSD TCP header prediction", ACM SIGCOMM Computer Communication Review 20(2), 1990; Linux
//! `tcp_rcv_established`): in an established connection the flags, the sequence number, the window and the layout of the options of
//! the next segment are known in advance. A prediction saves time and nothing else. Where it holds, the connection ends up exactly as the
//! steps of RFC 9293 section 3.10.7.4 would leave it; where any part of it fails, nothing has happened yet, and the steps follow.

use holdover_base::Instant;
use holdover_wire::{Flags, Segment};

use super::ecn::Feedback;
use super::fields::Pending;
use super::{Connection, Event};
use crate::recovery::RecoveryState;
use crate::state::State;

impl Connection {
    /// Processes a segment as [`Self::handle_in_steps`] does, if it was predicted. Returns whether it was.
    #[inline(always)]
    pub(super) fn handle_predicted(&mut self, now: Instant, segment: &Segment) -> bool {
        if !self.has_predicted_header(segment) {
            return false;
        }
        if segment.payload.is_empty() {
            let is_predicted = self.predicts_ack(segment);
            if is_predicted {
                self.take_predicted_ack(now, segment);
            }
            return is_predicted;
        }
        let is_predicted = self.predicts_data(segment);
        if is_predicted {
            self.take_predicted_data(now, segment);
        }
        is_predicted
    }

    /// Whether a segment is the next one in order, into an open window and with no option but timestamps, and this side has no state that
    /// concerns other segments.
    #[inline]
    fn has_predicted_header(&self, segment: &Segment) -> bool {
        let options = &segment.options;
        let timestamps = match (&self.timestamps, options.timestamps) {
            (Some(state), Some(ts)) => ts.val.wrapping_sub(state.recent) as i32 >= 0,
            (state, ts) => state.is_none() && ts.is_none(),
        };
        let header = timestamps
            && segment.flags.difference(Flags::PSH) == Flags::ACK
            && segment.seq == self.rcv.nxt
            && segment.window > 0
            && options.sack.is_empty()
            && options.user_timeout.is_none();
        header
            && self.state == State::Established
            && self.probing.is_none()
            && !self.snd.probed_byte
            && self.rcv.fin.is_none()
            && self.model.is_none()
            && self.accurate_ecn.is_none()
            && self.ecn.feedback == Feedback::None
            && self.snd.keep_alives_unanswered == 0
            && self.config.limits.keep_alive.is_none()
    }

    /// Does the work of the steps for each segment with a predicted header. Returns whether the peer's window changed.
    #[inline]
    fn take_predicted_header(&mut self, now: Instant, segment: &Segment) -> bool {
        self.note_timestamp(now, segment);
        self.heard_at = now;
        self.snd.more_follows = false;
        self.push_pending = true;
        self.update_send_window(segment)
    }

    /// Whether a segment without data acknowledges new data, and no outstanding segment is marked.
    #[inline]
    fn predicts_ack(&self, segment: &Segment) -> bool {
        let rto = &self.config.rto;
        segment.ack.gt(self.snd.una)
            && segment.ack.le(self.snd.nxt)
            && self.recovery.state == RecoveryState::Open
            && self.recovery.loss_probe.is_none()
            && self.queue.is_unmarked()
            && self.queue.highest_sacked().is_none_or(|highest| highest.le(self.snd.una))
            && self.snd.urgent.is_none()
            && self.steering.mtu_search.is_none()
            && !rto.one_sample_per_window
            && !rto.samples_echo
    }

    fn take_predicted_ack(&mut self, now: Instant, segment: &Segment) {
        let window_changed = self.take_predicted_header(now, segment);
        let ack = segment.ack;
        let echoed = segment.options.timestamps.map(|ts| ts.ecr).filter(|&ecr| ecr != 0);
        self.recovery.retransmits = 0;
        if let Some(episode) = self.recovery.episode.if_present() {
            episode.dup_acks = 0;
        }
        let mut acked = 0;
        let mut is_of_copy = false;
        let (mut first_sent_at, mut last_sent_at) = (now, now);
        let mut queue = core::mem::take(&mut self.queue);
        queue.take_acked_unmarked(ack, |sent| {
            if acked == 0 {
                first_sent_at = sent.sent_at;
            }
            acked += 1;
            last_sent_at = sent.sent_at;
            is_of_copy |= sent.was_retransmitted();
            self.note_delivered(now, sent, echoed);
        });
        queue.trim_front(ack);
        self.queue = queue;
        self.counters.bytes_acked.0 += u64::from(ack - self.snd.una);
        self.counters.delivered = self.counters.delivered.saturating_add(acked);
        self.snd.una = ack;
        // Karn's rule: nothing is measured by when a segment was sent that was sent twice.
        let since = |sent_at| (acked > 0 && !is_of_copy).then(|| now.saturating_since(sent_at));
        let by_echo = || echoed.filter(|_| acked > 0).and_then(|echoed| self.rtt_by_echo(now, echoed));
        if let Some(rtt) = since(first_sent_at).or_else(by_echo) {
            self.rtt.sample(&self.config.rto, rtt, self.snd.una, self.snd.nxt);
        }
        self.recovery.rack.adapt(self.snd.una, self.snd.nxt);
        if self.queue.is_empty() {
            self.all_acknowledged();
        } else {
            // RFC 6298 section 5.3.
            self.restart_retransmit(now);
        }
        if acked > 0 {
            self.open_window_by(now, acked, since(last_sent_at));
        }
        self.pending.remove(Pending::NEW_DATA_FIRST);
        self.note_progress(now);
        if window_changed {
            self.after_window_change(now);
        }
    }

    /// Whether a segment has data that lies in the window, at a side that sends none and misses none. Its own window is that of the
    /// segment before it.
    #[inline]
    fn predicts_data(&self, segment: &Segment) -> bool {
        segment.ack == self.snd.una
            && u32::from(segment.window) << self.snd.scale == self.snd.wnd
            && self.queue.is_empty()
            && segment.payload.len() <= self.receive_window() as usize
            && !self.received.has_gap()
            && self.rcv.urgent.is_none()
            && !self.rcv.reader_gone
    }

    fn take_predicted_data(&mut self, now: Instant, segment: &Segment) {
        self.take_predicted_header(now, segment);
        let len = segment.payload.len() as u32;
        self.measure_receive_rtt(now, segment);
        self.received.push_in_order(segment.payload.clone());
        self.rcv.nxt += len;
        self.ack.duplicates = 0;
        self.counters.bytes_received.0 += u64::from(len);
        self.events.insert(Event::Readable);
        self.note_segment_len(len);
        let window_grew = self.open_limit(len);
        self.schedule_ack_in_order(now, len, segment.flags.contains(Flags::PSH), window_grew);
    }
}
