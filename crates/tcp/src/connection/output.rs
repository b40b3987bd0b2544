//! Sending: each segment that `choice` decides on and `build` builds, and the consequences for timers and windows, whether a segment leaves
//! or not.

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, Segment, Seq};

use super::build::Content;
use super::choice::{Blocked, Choice};
use super::fields::{Pending, Timed};
use super::{Connection, Transmit};
use crate::config::{AckPolicy, ProbePayload, ZeroWindow};
use crate::congestion::SendState;
use crate::counters::Reason;
use crate::ecn::EcnField;
use crate::recovery::sent::Sent;
use crate::recovery::{LossProbe, RecoveryState};
use crate::state::State;
use crate::timers::Timer;

impl Connection {
    /// The next segment to send; call until `None`.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let mut segment = Segment::default();
        let (reason, ecn) = self.poll_transmit_into(now, &mut segment)?;
        Some(Transmit { segment, reason, ecn })
    }

    /// As [`Self::poll_transmit`], with the segment written over `place`: moves of whole segments cost as much as decisions. `place` stays
    /// as it is if there is nothing to send.
    #[inline]
    pub fn poll_transmit_into(&mut self, now: Instant, place: &mut Segment) -> Option<(Reason, EcnField)> {
        if self.sends_only_acks() {
            let due = self.ack.due;
            debug_assert_eq!(self.choose(now), due.map(Choice::Ack).ok_or(Blocked::NothingToSend));
            if due.is_none() {
                self.rest();
            }
            return due.map(|reason| self.transmit_ack(now, reason, place));
        }
        let Some(choice) = self.choose_in_bulk(now) else { return self.transmit_chosen(now, place) };
        debug_assert_eq!(self.choose(now), choice.map(|len| Choice::New(len, false, Reason::NewData)));
        match choice {
            Ok(len) => Some(self.transmit_in_bulk(now, len, place)),
            Err(blocked) => {
                self.settle(now, blocked);
                None
            }
        }
    }

    /// As [`Self::poll_transmit_into`], without its shortcuts.
    #[inline(never)]
    pub(super) fn transmit_chosen(&mut self, now: Instant, place: &mut Segment) -> Option<(Reason, EcnField)> {
        if self.accurate_ecn.is_some() {
            self.decide_on_accurate_option(now);
        }
        let choice = match self.choose(now) {
            Ok(choice) => choice,
            Err(blocked) => {
                self.settle(now, blocked);
                return None;
            }
        };
        let reason = choice.reason();
        let is_data = matches!(choice, Choice::New(..) | Choice::Retransmit(..));
        if is_data && reason != Reason::FastRetransmit && self.counts_pipe_by_acks() {
            self.recovery.episode.to_mut().pipe += 1;
        }
        self.counters.count_sent(reason);
        if matches!(choice, Choice::Handshake(_) | Choice::ForeignReset(_)) {
            self.transmit_outside(now, choice, place);
            return Some((reason, EcnField::NotEct));
        }
        let mut content = self.take_content(now, choice);
        let (flags, ecn) = self.mark_departure(choice, &content);
        content.flags |= flags;
        self.build_any(now, content, place);
        Some((reason, ecn))
    }

    /// The next full segment of a transfer, as [`Self::choose_in_bulk`] has found it: of [`Self::take_new`] what is left to do for it.
    #[inline]
    fn transmit_in_bulk(&mut self, now: Instant, len: u32, place: &mut Segment) -> (Reason, EcnField) {
        self.counters.count_sent(Reason::NewData);
        let payload = self.unsent.take(len as usize);
        self.timers.disarm(Timer::SillyWindow);
        let was_empty = self.queue.is_empty();
        if was_empty {
            self.recovery.retransmits = 0;
        }
        let seq = self.snd.nxt;
        self.queue.push(Sent::new(now, seq, payload.clone()));
        self.note_new_data_sent(seq + len, len);
        self.after_new_data(now, was_empty, Reason::NewData);
        self.note_data_sent(now);
        self.build(now, Content { seq, flags: Flags::ACK, payload }, place);
        (Reason::NewData, EcnField::NotEct)
    }

    /// The ACK of a side that sends no data.
    #[inline]
    fn transmit_ack(&mut self, now: Instant, reason: Reason, place: &mut Segment) -> (Reason, EcnField) {
        self.counters.count_sent(reason);
        let (flags, ecn) = self.ecn_of_departure(false, Some(reason));
        let content = Content::ack(self.snd.nxt);
        self.build(now, Content { flags: content.flags | flags, ..content }, place);
        (reason, ecn)
    }

    #[inline]
    fn mark_departure(&mut self, choice: Choice, content: &Content) -> (Flags, EcnField) {
        if matches!(choice, Choice::Reset) {
            return (Flags::empty(), EcnField::NotEct);
        }
        let is_new_data = matches!(choice, Choice::New(..)) && !content.payload.is_empty();
        let pure_ack = match choice {
            Choice::Ack(reason) => Some(reason),
            _ => None,
        };
        self.ecn_of_departure(is_new_data, pure_ack)
    }

    /// A segment of no established connection: of the handshake, or a reset of another connection.
    #[cold]
    fn transmit_outside(&mut self, now: Instant, choice: Choice, place: &mut Segment) {
        match choice {
            Choice::ForeignReset(seq) => {
                self.pending.remove(Pending::FOREIGN_RESET);
                *place = self.bare_reset(seq);
            }
            _ => self.transmit_handshake(now, place),
        }
    }

    /// The content of the segment of `choice`, which counts as sent from now on.
    fn take_content(&mut self, now: Instant, choice: Choice) -> Content {
        match choice {
            Choice::New(len, fin, reason) => self.take_new(now, len, fin, reason),
            Choice::Ack(reason) => {
                if reason == Reason::RequestedAck {
                    self.ack.requested -= 1;
                }
                Content::ack(self.snd.nxt)
            }
            Choice::Retransmit(index, reason) => self.take_again(now, index as usize, reason),
            Choice::WindowProbe => self.take_window_probe(),
            Choice::KeepAlive => {
                self.pending.remove(Pending::KEEP_ALIVE);
                Content::ack(self.snd.una - 1)
            }
            _ => {
                self.pending.remove(Pending::RESET);
                Content { flags: Flags::RST | Flags::ACK, ..Content::ack(self.snd.nxt) }
            }
        }
    }

    /// Reports to the congestion window how much of it is in use, and whether it limits sending.
    fn note_use_of_window(&mut self, now: Instant, limited_by_window: bool) {
        let state = SendState {
            now,
            packets_out: self.queue.packets_out(),
            limited_by_window,
            // An application that has filled the buffer is not what limits the connection.
            can_decay: self.recovery.state == RecoveryState::Open
                && !self.snd.buffer_was_full
                && !self.config.congestion.algorithm.is_model_based(),
            rto: self.rtt.rto(),
            mss: self.snd.mss,
            snd_una: self.snd.una,
            snd_nxt: self.snd.nxt,
        };
        self.congestion.on_sent(&self.config.congestion, &state);
    }

    /// [`Self::settle`] for a connection with nothing to send and nothing outstanding.
    #[inline]
    pub(crate) fn rest(&mut self) {
        self.snd.burst_left = 0;
        self.push_pending = false;
        self.timers.disarm(Timer::SillyWindow);
    }

    /// Nothing more goes out for now: what that means for timers and the window.
    fn settle(&mut self, now: Instant, blocked: Blocked) {
        let has_sent = core::mem::take(&mut self.sent_data);
        self.snd.burst_left = 0;
        let limited_by_window =
            blocked == Blocked::CongestionWindow || self.queue.in_flight() >= self.congestion.cwnd();
        // A window that retransmissions fill limits new data as well, and may grow (Linux `tcp_write_xmit`, which a retransmission timeout
        // does not call).
        let is_pushed = self.push_pending && !self.unsent.is_empty();
        self.push_pending &= blocked == Blocked::Pacer;
        if has_sent || is_pushed && limited_by_window {
            self.note_use_of_window(now, limited_by_window);
        }
        if has_sent {
            self.snd.buffer_was_full &= self.write_room() < self.send_queue_len() / 2;
            // A probe is not followed by another one: it has a whole timeout for its answer (Linux `tcp_write_xmit`).
            let probe = self.recovery.loss_probe.filter(|probe| !probe.retransmitted);
            let was_probe = probe.is_some_and(|probe| probe.high_seq == self.snd.nxt);
            if !was_probe && !self.timers.is_armed(Timer::Reorder) {
                self.schedule_loss_probe(now, false);
            }
        }
        if self.snd.wnd == 0 && !self.queue.is_empty() && self.state.is_synchronized() {
            self.stop_at_zero_window(now);
        }
        self.settle_pacing(now, blocked == Blocked::Pacer);
        match blocked {
            Blocked::PeerWindow if self.queue.is_empty() => self.start_probing(now),
            Blocked::SillyWindow if !self.timers.is_armed(Timer::SillyWindow) => {
                self.timers.arm(now, Timer::SillyWindow, self.config.send.silly_window_override);
            }
            // Linux sends it as it would a window probe.
            Blocked::Held if self.queue.is_empty() && !self.timers.is_armed(Timer::SillyWindow) => {
                self.timers.arm(now, Timer::SillyWindow, self.rtt.rto());
            }
            Blocked::SillyWindow | Blocked::Held => {}
            _ => self.timers.disarm(Timer::SillyWindow),
        }
    }

    /// After a transmission: if the next poll is sure to send nothing, does its work now, and returns true. Most segments of a transfer are
    /// the ACK of a receiver or the last one that the window has room for.
    #[inline]
    pub(crate) fn settle_in_transfer(&mut self, now: Instant) -> bool {
        if self.is_at_rest() {
            self.rest();
            return true;
        }
        if self.queue.packets_out() < self.congestion.cwnd() {
            return false;
        }
        let Some(Err(blocked)) = self.choose_in_bulk(now) else { return false };
        debug_assert_eq!(self.choose(now), Err(blocked));
        self.settle(now, blocked);
        true
    }

    /// The window is closed over outstanding data: reacts as the stack does.
    fn stop_at_zero_window(&mut self, now: Instant) {
        match self.config.recovery.zero_window {
            ZeroWindow::Retransmit => {}
            ZeroWindow::PullBack if self.timers.is_armed(Timer::Persist) => {}
            ZeroWindow::PullBack => self.pull_back(now),
            ZeroWindow::Freeze => {
                self.frozen_by_window = true;
                self.timers.hold(now, Timer::Retransmit);
                self.start_probing(now);
            }
        }
    }

    fn transmit_handshake(&mut self, now: Instant, place: &mut Segment) {
        self.pending.remove(Pending::HANDSHAKE);
        let is_repeated = core::mem::replace(&mut self.snd.handshake_sent, true);
        if is_repeated {
            self.queue.note_retransmission(0, now, false, None);
        }
        let is_syn_ack = self.state != State::SynSent;
        let flags = if is_syn_ack { Flags::SYN | Flags::ACK } else { Flags::SYN };
        let ecn = self.handshake_ecn_flags(is_syn_ack, is_repeated);
        self.build_any(now, Content { seq: self.snd.iss, flags: flags | ecn, payload: Bytes::new() }, place);
        if !is_repeated {
            self.add_fast_open(place);
        }
        if is_syn_ack {
            self.add_handshake_ecn_option(&mut place.options);
        }
    }

    /// A segment of the retransmission queue once more.
    #[inline(never)]
    fn take_again(&mut self, now: Instant, index: usize, reason: Reason) -> Content {
        if index == 0 {
            self.retransmit_head = None;
        }
        if let Some(search) = self.steering.mtu_search_mut() {
            search.forget_probe();
        }
        let most = self.data_room();
        self.queue.split(index, most);
        if self.steering.option_room > 0 {
            // The rest goes into the next segment; alone it would be a tiny one.
            self.queue.join_with_next(index + 1);
        }
        let is_probe = reason == Reason::LossProbe;
        if is_probe {
            self.recovery.loss_probe = Some(LossProbe { high_seq: self.snd.nxt, retransmitted: true });
        } else {
            self.recovery.episode.to_mut().note_retransmission(now);
        }
        let departure = self.note_departure(now, false);
        self.queue.note_retransmission(index, now, !is_probe, departure);
        let len = self.queue.get(index).payload.len();
        self.charge_pacer(now, len);
        let sent = self.queue.get(index);
        let (seq, payload, sent_with) = (sent.seq, sent.payload.clone(), sent.flags());
        self.counters.bytes_retransmitted.0 += payload.len() as u64;
        self.snd.timed = None;
        if len > 0 {
            self.note_data_sent(now);
        }
        let armed_by_caller = matches!(reason, Reason::Timeout | Reason::Requested | Reason::LossProbe);
        if index == 0 && !armed_by_caller && !self.timers.is_armed(Timer::Reorder) {
            self.arm_retransmit(now, self.rtt.rto());
        }
        let flags = Flags::ACK | sent_with & (Flags::FIN | Flags::PSH);
        Content { seq, flags, payload }
    }

    fn take_new(&mut self, now: Instant, len: u32, fin: bool, reason: Reason) -> Content {
        // The copy for the queue is made here and stored below: memory that was just written is slow to read in other units.
        let ends_record = self.unsent.first_record() == Some(len as usize);
        let payload = self.unsent.take(len as usize);
        let kept = payload.clone();
        let len = payload.len() as u32;
        self.pending.remove(Pending::SILLY_WINDOW_OVERRIDE);
        self.timers.disarm(Timer::SillyWindow);
        if self.queue.is_empty() {
            self.recovery.retransmits = 0;
        }
        let seq = self.snd.nxt;
        let mut flags = Flags::ACK;
        let held = self.snd.corked || self.snd.more_follows;
        let push = len > 0 && (ends_record || self.unsent.is_empty() && (self.snd.pushed || held));
        flags.set(Flags::PSH, push);
        if fin {
            flags |= Flags::FIN;
            self.snd.fin = Some(seq + len);
            self.state = match self.state {
                // As long as the owner holds back the ACK of the peer's FIN, ours crosses it: the peer will wait for that ACK after
                // it has given its own.
                State::CloseWait if self.ack_point() != self.rcv.nxt => State::Closing,
                State::CloseWait => State::LastAck,
                _ => State::FinWait1,
            };
        }
        let was_empty = self.queue.is_empty();
        self.note_restart(now);
        let departure = self.note_departure(now, was_empty);
        if len < self.data_room() {
            self.snd.sml = seq + len;
        }
        self.note_new_data_sent(seq + len + u32::from(fin), len);
        self.queue.push(Sent::new(now, seq, kept).with_flags(flags).with_departure(departure));
        if reason == Reason::MtuProbe {
            self.note_mtu_probe(seq);
        }
        self.charge_pacer(now, len as usize);
        self.after_new_data(now, was_empty, reason);
        if len > 0 {
            self.note_data_sent(now);
        }
        Content { seq, flags, payload }
    }

    /// `len` bytes of new data leave; SND.NXT moves to `nxt`.
    #[inline(always)]
    fn note_new_data_sent(&mut self, nxt: Seq, len: u32) {
        self.snd.nxt = nxt;
        self.snd.burst_left = self.snd.burst_left.saturating_sub(1);
        self.snd.probed_byte = false;
        self.counters.bytes_sent.0 += u64::from(len);
        self.sent_data = true;
    }

    #[inline(always)]
    fn after_new_data(&mut self, now: Instant, was_empty: bool, reason: Reason) {
        if self.config.rto.one_sample_per_window && self.snd.timed.is_none() {
            self.snd.timed = Some(Box::new(Timed { end: self.snd.nxt, sent_at: now }));
        }
        if reason == Reason::LossProbe {
            self.recovery.loss_probe = Some(LossProbe { high_seq: self.snd.nxt, retransmitted: false });
        }
        if matches!(self.recovery.state, RecoveryState::Recovery | RecoveryState::Cwr) {
            self.recovery.episode.to_mut().prr.out += 1;
        }
        // RFC 6298 section 5.1: a timer runs while data is outstanding.
        if was_empty {
            self.timers.disarm(Timer::Persist);
            self.probing = None;
            self.arm_retransmit(now, self.rtt.rto());
            self.arm_user_timeout(now);
        } else if !self.is_retransmission_timed() {
            self.arm_retransmit(now, self.rtt.rto());
        }
    }

    /// Data leaves for the first time or again: an answer within the ACK delay makes the exchange interactive (Linux
    /// `tcp_event_data_sent`). A FIN alone is no data.
    #[inline]
    fn note_data_sent(&mut self, now: Instant) {
        if let AckPolicy::Adaptive { .. } = self.config.receive.ack
            && now.saturating_since(self.ack.last_data_at) < self.ack.delay
        {
            self.ack.interactive = true;
        }
        self.snd.last_data_at = now;
    }

    #[cold]
    fn take_window_probe(&mut self) -> Content {
        self.pending.remove(Pending::WINDOW_PROBE);
        let byte = match self.config.persist.payload {
            ProbePayload::Empty => None,
            ProbePayload::OneByte => self.next_byte(),
        };
        match byte {
            Some((seq, payload)) => {
                self.snd.probed_byte |= seq == self.snd.nxt;
                Content { payload, ..Content::ack(seq) }
            }
            None => Content::ack(self.snd.una - 1),
        }
    }

    /// The first byte that the peer does not have: outstanding or unsent.
    fn next_byte(&self) -> Option<(Seq, Bytes)> {
        match self.queue.front() {
            Some(front) if !front.payload.is_empty() => Some((front.seq, front.payload.slice(..1))),
            Some(_) => None,
            None => self.unsent.peek_byte().map(|byte| (self.snd.nxt, byte)),
        }
    }

    /// Sending restarts: has the window become stale?
    pub(super) fn before_sending_after_idle(&mut self, now: Instant) {
        if self.unsent.is_empty() {
            self.restart_after_idle(now);
        }
    }

    /// Sending begins again if nothing is outstanding: the window may have decayed in the meantime.
    pub(super) fn restart_after_idle(&mut self, now: Instant) {
        if !self.is_idle() || !self.may_send() {
            return;
        }
        let idle = now.saturating_since(self.snd.last_data_at);
        if idle > Duration::ZERO {
            self.congestion.after_idle(&self.config.congestion, now, idle, self.rtt.rto(), self.snd.mss);
        }
    }
}
