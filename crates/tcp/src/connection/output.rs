//! What to send next, and why: one function chooses, one builds.

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, SackBlocks, Segment, Seq, TcpOptions, Timestamps, UserTimeout};

use super::fields::Timed;
use super::{Connection, Transmit};
use crate::config::{AckPolicy, LossDetection, ProbePayload, ZeroWindow};
use crate::congestion::SendState;
use crate::counters::Reason;
use crate::ecn::EcnField;
use crate::recovery::queue::Sent;
use crate::recovery::{LossProbe, RecoveryState};
use crate::state::State;
use crate::timers::Timer;

/// What goes out next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    Reset,
    /// A reset for a segment that is none of ours, at this sequence number.
    ForeignReset(Seq),
    /// Our SYN or SYN-ACK.
    Handshake(Reason),
    /// The record at this index of the retransmission queue again.
    Retransmit(usize, Reason),
    New(NewData),
    WindowProbe,
    KeepAlive,
    Ack(Reason),
}

impl Choice {
    const fn reason(self) -> Reason {
        match self {
            Self::Reset | Self::ForeignReset(_) => Reason::Reset,
            Self::Handshake(reason) | Self::Retransmit(_, reason) | Self::Ack(reason) => reason,
            Self::New(new) => new.reason,
            Self::WindowProbe => Reason::WindowProbe,
            Self::KeepAlive => Reason::KeepAlive,
        }
    }
}

/// New data: so many bytes, and the FIN with them or alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NewData {
    len: u32,
    fin: bool,
    reason: Reason,
}

/// Why nothing goes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blocked {
    NothingToSend,
    CongestionWindow,
    /// The peer's window is closed to the next byte.
    PeerWindow,
    /// The peer's window is open, but too little for a segment worth its header.
    SillyWindow,
    /// A small segment waits for the ACK of what is outstanding.
    Nagle,
    /// A small segment waits for what the application will write.
    Held,
    /// The previous burst has not left at the pacing rate yet.
    Pacer,
}

impl Connection {
    /// The next segment to send; call until `None`.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let choice = match self.choose(now) {
            Ok(choice) => choice,
            Err(blocked) => {
                self.settle(now, blocked);
                return None;
            }
        };
        let reason = choice.reason();
        let is_data = matches!(choice, Choice::New(_) | Choice::Retransmit(..));
        if is_data && reason != Reason::FastRetransmit && self.counts_pipe_by_acks() {
            self.recovery.episode.to_mut().pipe += 1;
        }
        self.counters.count_sent(reason);
        let mut segment = self.transmit(now, choice);
        let ecn = self.mark_departure(&mut segment, choice);
        Some(Transmit { segment, reason, ecn })
    }

    #[inline]
    fn mark_departure(&mut self, segment: &mut Segment, choice: Choice) -> EcnField {
        if matches!(choice, Choice::Handshake(_) | Choice::Reset | Choice::ForeignReset(_)) {
            return EcnField::NotEct;
        }
        let is_new_data = matches!(choice, Choice::New(_)) && !segment.payload.is_empty();
        let (flags, field) = self.ecn_of_departure(is_new_data);
        segment.flags |= flags;
        field
    }

    fn transmit(&mut self, now: Instant, choice: Choice) -> Segment {
        match choice {
            Choice::Reset => {
                self.pending.reset = false;
                self.build(now, self.snd.nxt, Flags::RST | Flags::ACK, Bytes::new())
            }
            Choice::ForeignReset(seq) => {
                self.pending.foreign_reset = None;
                self.bare_reset(seq)
            }
            Choice::Handshake(_) => self.transmit_handshake(now),
            Choice::Retransmit(index, reason) => self.transmit_again(now, index, reason),
            Choice::New(new) => self.transmit_new(now, new),
            Choice::WindowProbe => self.transmit_window_probe(now),
            Choice::KeepAlive => {
                self.pending.keep_alive = false;
                self.build(now, self.snd.una - 1, Flags::ACK, Bytes::new())
            }
            Choice::Ack(reason) => {
                if reason == Reason::RequestedAck {
                    self.ack.requested -= 1;
                }
                self.build(now, self.snd.nxt, Flags::ACK, Bytes::new())
            }
        }
    }

    /// The one place that decides what to send next, or why nothing is.
    fn choose(&mut self, now: Instant) -> Result<Choice, Blocked> {
        if self.pending.reset {
            return Ok(Choice::Reset);
        }
        if let Some(seq) = self.pending.foreign_reset {
            return Ok(Choice::ForeignReset(seq));
        }
        match self.state {
            State::Closed => return Err(Blocked::NothingToSend),
            State::SynSent if self.pending.handshake => return Ok(Choice::Handshake(Reason::Syn)),
            State::SynSent => return Err(Blocked::NothingToSend),
            State::SynReceived if self.pending.handshake => return Ok(Choice::Handshake(Reason::SynAck)),
            State::SynReceived if !self.is_early() => {
                return self.ack.due.map(Choice::Ack).ok_or(Blocked::NothingToSend);
            }
            _ => {}
        }
        if self.ack.requested > 0 {
            return Ok(Choice::Ack(Reason::RequestedAck));
        }
        let blocked = match self.choose_data(now) {
            Ok(choice) => return Ok(choice),
            Err(blocked) => blocked,
        };
        if self.pending.window_probe {
            return Ok(Choice::WindowProbe);
        }
        if self.pending.keep_alive {
            return Ok(Choice::KeepAlive);
        }
        match self.ack.due {
            Some(reason) => Ok(Choice::Ack(reason)),
            None if self.user_timeout_option_fits(0) => Ok(Choice::Ack(Reason::Ack)),
            None => Err(blocked),
        }
    }

    /// Data, old or new, or why there is none.
    fn choose_data(&mut self, now: Instant) -> Result<Choice, Blocked> {
        let closed = self.snd.wnd == 0 && self.config.recovery.zero_window == ZeroWindow::PullBack;
        if let Some(reason) = self.pending.head {
            if !self.queue.is_empty() && !closed {
                return Ok(Choice::Retransmit(0, reason));
            }
            self.pending.head = None;
        }
        if self.pending.loss_probe {
            self.pending.loss_probe = false;
            if !self.queue.is_empty() {
                return Ok(self.choose_loss_probe());
            }
        }
        let in_flight = self.in_flight_for_window();
        let room = in_flight < self.congestion.cwnd();
        if self.pending.new_data_first {
            let blocked = match self.choose_new() {
                Ok(_) if room && !self.pacer_is_open(now) => return Err(Blocked::Pacer),
                Ok(new) if room => return Ok(Choice::New(new)),
                Ok(_) => Blocked::CongestionWindow,
                Err(blocked) => blocked,
            };
            // RFC 5682 section 3.1 step 2b: the answer to the new data decides, and nothing is sent again before it.
            if self.snd.nxt.gt(self.recovery.high_seq) {
                return Err(blocked);
            }
            // Without new data there is nothing to tell a spurious timeout by (Linux `tcp_xmit_recovery`).
            self.pending.new_data_first = false;
            if let Some(episode) = self.recovery.episode.if_present() {
                episode.frto = false;
            }
        }
        if let Some(index) = self.queue.next_lost() {
            let sent = self.queue.get(index);
            let inside = sent.seq.lt(self.snd.una + self.snd.wnd) || (index == 0 && !closed);
            if !inside {
                return Err(Blocked::PeerWindow);
            }
            if !room {
                return Err(Blocked::CongestionWindow);
            }
            if !self.pacer_is_open(now) {
                return Err(Blocked::Pacer);
            }
            let reason = if self.recovery.episode.first_repair { Reason::FastRetransmit } else { Reason::LossRecovery };
            return Ok(Choice::Retransmit(index, reason));
        }
        let mut new = match self.choose_new() {
            Ok(new) => new,
            Err(blocked) if room => return self.choose_repair_ahead(now, blocked),
            Err(blocked) => return Err(blocked),
        };
        if !room {
            // Linux lets a lone FIN go in any case (`tcp_cwnd_test`).
            let lone_fin = new.fin && new.len == 0;
            if !lone_fin {
                return Err(Blocked::CongestionWindow);
            }
        } else if self.recovery.state == RecoveryState::Disorder && self.queue.packets_out() >= self.congestion.cwnd() {
            new.reason = Reason::LimitedTransmit;
        }
        if !self.pacer_is_open(now) {
            return Err(Blocked::Pacer);
        }
        Ok(Choice::New(new))
    }

    /// What RFC 6675 sends again although it is not held lost: NextSeg rules 3 and 4 (section 4).
    fn choose_repair_ahead(&mut self, now: Instant, blocked: Blocked) -> Result<Choice, Blocked> {
        let is_on = self.config.recovery.repair_ahead && self.loss_detection() == LossDetection::Sack;
        if !is_on || self.recovery.state != RecoveryState::Recovery {
            return Err(blocked);
        }
        let hole = self.queue.first_hole();
        let rescue = || self.queue.last_missing().filter(|_| !self.recovery.episode.rescued);
        let index = hole.or_else(rescue).ok_or(blocked)?;
        if self.queue.get(index).seq.ge(self.snd.una + self.snd.wnd) {
            return Err(blocked);
        }
        if !self.pacer_is_open(now) {
            return Err(Blocked::Pacer);
        }
        self.recovery.episode.to_mut().rescued |= hole.is_none();
        Ok(Choice::Retransmit(index, Reason::LossRecovery))
    }

    /// Segments in flight, as far as the congestion window is concerned. Without limited transmit (RFC 3042) the first
    /// duplicate ACKs make no room.
    fn in_flight_for_window(&self) -> u32 {
        if self.recovery.state < RecoveryState::Recovery && !self.config.recovery.limited_transmit {
            (self.queue.in_flight() + self.queue.sacked()).saturating_sub(self.syns_out())
        } else if self.counts_pipe_by_acks() {
            self.recovery.episode.pipe
        } else {
            self.queue.in_flight().saturating_sub(self.syns_out())
        }
    }

    /// Whether recovery goes by [`crate::config::RecoveryConfig::pipe_by_acks`].
    pub(super) fn counts_pipe_by_acks(&self) -> bool {
        self.config.recovery.pipe_by_acks
            && self.recovery.state == RecoveryState::Recovery
            && self.loss_detection() == LossDetection::Sack
    }

    pub(super) fn can_send_new_data(&self) -> bool {
        !self.unsent.is_empty() && self.window_edge().gt(self.snd.nxt)
    }

    /// New data by the peer's window, silly window avoidance (RFC 9293 section 3.8.6.2.1) and Nagle (section 3.7.4).
    fn choose_new(&self) -> Result<NewData, Blocked> {
        let fin_due = self.snd.closing && self.snd.fin.is_none() && self.state.may_send();
        let queued = self.unsent.len() as u32;
        if (queued == 0 && !fin_due) || !self.may_send() {
            return Err(Blocked::NothingToSend);
        }
        let usable = self.window_edge().saturating_since(self.snd.nxt);
        if usable == 0 {
            return Err(Blocked::PeerWindow);
        }
        let mss = self.data_room();
        let len = queued.min(usable).min(mss);
        let fin = fin_due && len == queued && len < usable;
        let whole = len == mss;
        let idle = self.is_idle();
        let reason = if self.pending.silly_window_override { Reason::SillyWindowOverride } else { Reason::NewData };
        let new = NewData { len, fin, reason };
        // Nagle's exceptions: everything is acknowledged, the stream ends here, or urgent data waits.
        let held_up = self.config.send.nagle && (!self.config.send.minshall || self.has_small_outstanding());
        let is_held = (self.snd.corked || self.snd.more_follows) && !fin;
        let small_may_go = (!held_up || idle || fin || self.snd.urgent.is_some()) && !is_held;
        let all_queued = len == queued;
        let half_window = len >= self.snd.max_wnd / 2;
        if whole || (all_queued && small_may_go) || (half_window && small_may_go) || self.pending.silly_window_override
        {
            return Ok(new);
        }
        Err(match (is_held, all_queued) {
            (true, _) => Blocked::Held,
            (false, true) => Blocked::Nagle,
            (false, false) => Blocked::SillyWindow,
        })
    }

    fn has_small_outstanding(&self) -> bool {
        self.snd.sml.gt(self.snd.una) && !self.snd.sml.gt(self.snd.nxt)
    }

    /// Bytes of data that fit into a segment besides the SACK blocks it has to carry and the room that the owner reserves.
    fn data_room(&self) -> u32 {
        let room = self.snd.mss.saturating_sub(self.steering.option_room).max(1);
        if !self.sack || (!self.received.has_gap() && self.rcv.dsack.is_none()) {
            return room;
        }
        let options = TcpOptions { sack: self.sack_blocks(), ..TcpOptions::default() };
        room.saturating_sub(options.wire_len() as u32).max(1)
    }

    /// RFC 8985 section 7.3.
    fn choose_loss_probe(&self) -> Choice {
        let queued = self.unsent.len() as u32;
        let usable = (self.snd.una + self.snd.wnd).saturating_since(self.snd.nxt);
        let len = queued.min(self.data_room());
        if len > 0 && len <= usable && self.state.may_send() {
            let fin = self.snd.closing && self.snd.fin.is_none() && len == queued && len < usable;
            return Choice::New(NewData { len, fin, reason: Reason::LossProbe });
        }
        Choice::Retransmit(self.queue.packets_out() as usize - 1, Reason::LossProbe)
    }

    /// Tells the congestion window how much of it is in use, and whether it is what limits sending.
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

    /// Nothing more goes out for now: what that means for timers and the window.
    fn settle(&mut self, now: Instant, blocked: Blocked) {
        let has_sent = core::mem::take(&mut self.sent_data);
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

    /// The window is closed over outstanding data: what the stack does then.
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

    fn transmit_handshake(&mut self, now: Instant) -> Segment {
        self.pending.handshake = false;
        let is_repeated = core::mem::replace(&mut self.snd.handshake_sent, true);
        if is_repeated {
            self.queue.note_retransmission(0, now, false, None);
        }
        let is_syn_ack = self.state != State::SynSent;
        let flags = if is_syn_ack { Flags::SYN | Flags::ACK } else { Flags::SYN };
        let ecn = self.handshake_ecn_flags(is_syn_ack, is_repeated);
        let mut segment = self.build(now, self.snd.iss, flags | ecn, Bytes::new());
        if !is_repeated {
            self.add_fast_open(&mut segment);
        }
        segment
    }

    /// A segment of the retransmission queue once more.
    fn transmit_again(&mut self, now: Instant, index: usize, reason: Reason) -> Segment {
        if index == 0 {
            self.pending.head = None;
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
        let (seq, payload, fin, push) = (sent.seq, sent.payload.clone(), sent.fin, sent.push);
        self.counters.bytes_retransmitted.0 += payload.len() as u64;
        self.snd.timed = None;
        let armed_by_caller = matches!(reason, Reason::Timeout | Reason::Requested | Reason::LossProbe);
        if index == 0 && !armed_by_caller && !self.timers.is_armed(Timer::Reorder) {
            self.arm_retransmit(now, self.rtt.rto());
        }
        let mut flags = Flags::ACK;
        flags.set(Flags::FIN, fin);
        flags.set(Flags::PSH, push);
        self.build(now, seq, flags, payload)
    }

    fn transmit_new(&mut self, now: Instant, new: NewData) -> Segment {
        self.pending.silly_window_override = false;
        self.timers.disarm(Timer::SillyWindow);
        if self.queue.is_empty() {
            self.recovery.retransmits = 0;
        }
        let payload = self.unsent.take(new.len as usize);
        let len = payload.len() as u32;
        let seq = self.snd.nxt;
        let mut flags = Flags::ACK;
        let held = self.snd.corked || self.snd.more_follows;
        let push = len > 0 && self.unsent.is_empty() && (self.snd.pushed || held);
        flags.set(Flags::PSH, push);
        if new.fin {
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
        self.queue.push(Sent { fin: new.fin, push, departure, ..Sent::new(now, seq, payload.clone()) });
        if len < self.data_room() {
            self.snd.sml = seq + len;
        }
        self.snd.nxt = seq + len + u32::from(new.fin);
        self.snd.probed_byte = false;
        self.counters.bytes_sent.0 += u64::from(len);
        self.sent_data = true;
        self.charge_pacer(now, payload.len());
        self.after_new_data(now, was_empty, new.reason);
        self.build(now, seq, flags, payload)
    }

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
        // Linux `tcp_event_data_sent`: an answer within the ACK delay makes the exchange interactive.
        if let AckPolicy::Adaptive { .. } = self.config.receive.ack
            && now.saturating_since(self.ack.last_data_at) < self.ack.delay
        {
            self.ack.interactive = true;
        }
        self.snd.last_data_at = now;
    }

    fn transmit_window_probe(&mut self, now: Instant) -> Segment {
        self.pending.window_probe = false;
        let byte = match self.config.persist.payload {
            ProbePayload::Empty => None,
            ProbePayload::OneByte => self.next_byte(),
        };
        match byte {
            Some((seq, payload)) => {
                self.snd.probed_byte |= seq == self.snd.nxt;
                self.build(now, seq, Flags::ACK, payload)
            }
            None => self.build(now, self.snd.una - 1, Flags::ACK, Bytes::new()),
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

    /// Sending begins anew: has the window become stale?
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

/// Building segments.
impl Connection {
    /// A segment with everything that each one carries: the ACK, the window and the options.
    fn build(&mut self, now: Instant, seq: Seq, mut flags: Flags, payload: Bytes) -> Segment {
        let is_syn = flags.contains(Flags::SYN);
        let ack = self.ack_point();
        let options = if is_syn { self.syn_options(now) } else { self.options(now, payload.len()) };
        let window = if is_syn { self.syn_window() } else { self.announce_window(ack) };
        let urgent = match self.snd.urgent {
            Some(end) if end.gt(seq) && !is_syn && !flags.contains(Flags::RST) => {
                flags |= Flags::URG;
                (end - seq).min(0xffff) as u16
            }
            _ => 0,
        };
        let acks = flags.contains(Flags::ACK);
        if acks && !flags.contains(Flags::RST) {
            self.note_ack_sent(ack);
        }
        Segment {
            src_port: self.local.port,
            dst_port: self.remote.port,
            seq,
            ack: if acks { ack } else { Seq::default() },
            flags,
            window,
            urgent,
            options,
            payload,
        }
    }

    /// RFC 7323 section 2.2: the window in a SYN is not scaled.
    fn syn_window(&mut self) -> u16 {
        let window = self.open_window();
        self.steering.window_clamp.map_or(window, |clamp| clamp.min(window)) as u16
    }

    /// The window that a SYN can tell is open to the peer.
    pub(super) fn open_window(&mut self) -> u32 {
        let (window, _) = self.select_window(self.rcv.nxt);
        let window = window.min(0xffff);
        self.rcv.wup = self.rcv.nxt;
        self.rcv.wnd = window;
        window
    }

    fn announce_window(&mut self, ack: Seq) -> u16 {
        let (window, field) = self.select_window(ack);
        self.rcv.wup = ack;
        self.rcv.wnd = window;
        field
    }

    fn options(&mut self, now: Instant, payload_len: usize) -> TcpOptions {
        let timestamps = self.timestamps.as_ref().map(|ts| Timestamps {
            val: self.timestamp_clock(now),
            ecr: ts.recent.wrapping_add(self.steering.echo_shift),
        });
        let mut options = TcpOptions { timestamps, ..TcpOptions::default() };
        if self.sack && (self.received.has_gap() || self.rcv.dsack.is_some()) {
            options.sack = self.sack_blocks();
        }
        if self.user_timeout_option_fits(payload_len) {
            options.user_timeout = self.user_timeout_config().advertise.and_then(UserTimeout::from_duration);
            self.pending.user_timeout_option = false;
        }
        options
    }

    /// Whether a User Timeout option is due and a segment with so much data has room for it: where SACK blocks need all there
    /// is, it waits.
    #[inline]
    fn user_timeout_option_fits(&self, payload_len: usize) -> bool {
        if !self.pending.user_timeout_option {
            return false;
        }
        let options = TcpOptions {
            timestamps: self.timestamps.as_ref().map(|_| Timestamps { val: 0, ecr: 0 }),
            sack: if self.sack { self.sack_blocks() } else { SackBlocks::default() },
            user_timeout: self.user_timeout_config().advertise.and_then(UserTimeout::from_duration),
            ..TcpOptions::default()
        };
        let room = self.snd.mss as usize + if self.timestamps.is_some() { 12 } else { 0 };
        options.wire_len() <= Segment::MAX_OPTIONS_LEN && payload_len + options.wire_len() <= room
    }

    /// As many blocks as fit besides the timestamps (RFC 2018 section 3). Under a held ACK point, only what lies above
    /// RCV.NXT is reported, as ever.
    fn sack_blocks(&self) -> SackBlocks {
        let most = if self.timestamps.is_some() { 3 } else { 4 };
        let Some(duplicate) = self.rcv.dsack else { return self.received.sack_blocks(None, most) };
        let mut sack: SackBlocks = [duplicate].into_iter().collect();
        // RFC 2883 section 4.1.3: a duplicate above the ACK is followed by the block around it.
        let around = self.received.block_with(duplicate);
        let others = self.received.sack_blocks(None, most);
        for block in around.into_iter().chain(others.iter().filter(|&block| Some(block) != around)) {
            if sack.len() < most {
                sack.push(block);
            }
        }
        sack
    }

    fn bare_reset(&self, seq: Seq) -> Segment {
        Segment { src_port: self.local.port, dst_port: self.remote.port, seq, flags: Flags::RST, ..Segment::default() }
    }
}
