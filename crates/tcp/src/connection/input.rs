//! Processing of an arriving segment, step by step as in RFC 9293 section 3.10.7.

use holdover_base::Instant;
use holdover_wire::{Flags, Segment, Seq, SeqRange};

use super::fields::Pending;
use super::receive::Arrival;
use super::{Connection, Event};
use crate::config::{BeyondWindow, Paws};
use crate::counters::{Disposition, Reason};
use crate::ecn::EcnField;
use crate::recovery::RecoveryState;
use crate::state::{ConnectionError, State};
use crate::timers::Timer;

/// A step either passes the segment on to the next one, or ends its processing.
pub(super) type Step = Result<(), Disposition>;

pub(super) fn is_ack_without_data(segment: &Segment) -> bool {
    segment.flags.contains(Flags::ACK) && segment.seq_len() == 0
}

impl Connection {
    /// Processes an arriving segment of this connection (SEGMENT ARRIVES, RFC 9293 section 3.10.7).
    pub fn handle_segment(&mut self, now: Instant, segment: &Segment) -> Disposition {
        self.handle_segment_with_ecn(now, segment, EcnField::NotEct)
    }

    /// As [`Self::handle_segment`], of a packet with this ECN field (RFC 3168).
    #[inline(always)]
    pub fn handle_segment_with_ecn(&mut self, now: Instant, segment: &Segment, ecn: EcnField) -> Disposition {
        self.note_ecn_field(ecn);
        if self.handle_predicted(now, segment) {
            self.counters.count_received(Disposition::Accepted);
            return Disposition::Accepted;
        }
        self.handle_in_steps(now, segment)
    }

    /// As [`Self::handle_segment`], without header prediction.
    #[inline(never)]
    pub(super) fn handle_in_steps(&mut self, now: Instant, segment: &Segment) -> Disposition {
        let outcome = match self.state {
            State::Closed => Err(Disposition::Closed),
            State::SynSent => self.arrive_in_syn_sent(now, segment),
            _ => self.arrive(now, segment),
        };
        let disposition = outcome.err().unwrap_or(Disposition::Accepted);
        self.counters.count_received(disposition);
        disposition
    }

    /// RFC 9293 section 3.10.7.3.
    fn arrive_in_syn_sent(&mut self, now: Instant, segment: &Segment) -> Step {
        // First, check the ACK bit.
        let acks = segment.flags.contains(Flags::ACK);
        if acks && (segment.ack.le(self.snd.iss) || segment.ack.gt(self.snd.nxt)) {
            if !segment.flags.contains(Flags::RST) {
                self.reset_at(segment);
            }
            return Err(Disposition::UnacceptableHandshakeAck);
        }
        // Second, check the RST bit.
        if segment.flags.contains(Flags::RST) {
            if !acks {
                return Err(Disposition::NotASyn);
            }
            self.end(Some(ConnectionError::Refused));
            return Err(Disposition::ResetAccepted);
        }
        // Fourth, check the SYN bit (third, security, is not used).
        if !segment.flags.contains(Flags::SYN) {
            return Err(Disposition::NotASyn);
        }
        if acks && self.echoes_no_syn(now, segment) {
            self.reset_at(segment);
            return Err(Disposition::UnacceptableHandshakeAck);
        }
        self.take_syn(now, segment);
        if !acks {
            // Simultaneous open (RFC 9293 section 3.5, figure 7).
            self.state = State::SynReceived;
            self.pending.insert(Pending::HANDSHAKE);
            return Ok(());
        }
        self.end_handshake(now, segment)?;
        self.ack_now(Reason::HandshakeAck);
        self.reflect_syn_ack();
        // A SYN-ACK may carry data (RFC 9293 section 3.10.7.3): it is processed as in ESTABLISHED.
        if !segment.payload.is_empty() || segment.flags.contains(Flags::FIN) {
            self.take_text_and_fin(now, segment, true)?;
        }
        Ok(())
    }

    /// A SYN-ACK that echoes a timestamp that none of our SYNs had is of another connection, or made up (RFC 7323 section 3.2; Linux
    /// answers with a reset).
    fn echoes_no_syn(&self, now: Instant, segment: &Segment) -> bool {
        let (Some(_), Some(ts)) = (&self.timestamps, segment.options.timestamps) else { return false };
        // The connection was made when its first SYN was sent.
        let first = self.timestamp_clock(self.snd.last_data_at);
        ts.ecr != 0 && ts.ecr.wrapping_sub(first) > self.timestamp_clock(now).wrapping_sub(first)
    }

    /// RFC 9293 section 3.10.7.4.
    fn arrive(&mut self, now: Instant, segment: &Segment) -> Step {
        self.check_paws(now, segment)?;
        if self.completes_simultaneous_open(segment) {
            self.check_crossed_syn_ack(segment);
            self.end_handshake(now, segment)?;
            // The SYN has arrived twice (Linux `tcp_data_queue`).
            if self.sack && self.config.dsack {
                self.rcv.dsack = Some(SeqRange::new(segment.seq, segment.seq + 1));
            }
            self.ack_now(Reason::HandshakeAck);
            return Ok(());
        }
        self.check_sequence_number(now, segment)?;
        self.check_reset(now, segment)?;
        self.check_syn(now, segment)?;
        let timestamp_is_newer = self.note_timestamp(now, segment);
        self.count_ecn_field(segment, timestamp_is_newer);
        self.heard_at = now;
        if self.snd.keep_alives_unanswered > 0 || self.config.limits.keep_alive.is_some() {
            self.snd.keep_alives_unanswered = 0;
            self.arm_keep_alive(now);
        }
        self.check_ack(now, segment)?;
        if let Some(option) = segment.options.user_timeout {
            self.take_user_timeout_option(now, option);
        }
        if self.state == State::Closed {
            return Ok(());
        }
        self.check_urgent(segment);
        self.take_text_and_fin(now, segment, false)
    }

    /// First, check the sequence number.
    fn check_sequence_number(&mut self, now: Instant, segment: &Segment) -> Step {
        let window = self.receive_window();
        let len = segment.seq_len();
        let edge = self.rcv.nxt + window;
        let starts_inside = self.rcv.nxt.le(segment.seq) && segment.seq.lt(edge);
        let acceptable = match (len, window) {
            (0, 0) => segment.seq == self.rcv.nxt,
            // A sender that has filled the window sends pure ACKs at the right edge (Linux accepts them too).
            (0, _) => starts_inside || segment.seq == edge,
            (_, 0) => self.takes_bare_fin(segment),
            _ => {
                let last = segment.seq + (len - 1);
                (starts_inside || (self.rcv.nxt.le(last) && last.lt(edge))) && !self.is_refused_beyond(segment, edge)
            }
        };
        // Data in a SYN may reach into the window; the SYN has come before in any case.
        if self.is_retransmitted_syn(segment) && !segment.flags.intersects(Flags::ACK | Flags::RST) {
            if self.asks_for_other_feedback(segment) {
                self.end(Some(ConnectionError::Reset));
                self.pending.insert(Pending::RESET);
                return Err(Disposition::HandshakeAbandoned);
            }
            return Err(self.repeat_handshake(segment));
        }
        if acceptable {
            return Ok(());
        }
        if segment.flags.contains(Flags::RST) {
            // Text does not make a reset at RCV.NXT less valid, even if the window is closed to it.
            if window == 0 && segment.seq == self.rcv.nxt {
                return Ok(());
            }
            return Err(Disposition::OutsideWindow);
        }
        if self.is_retransmitted_syn(segment) {
            return Err(self.repeat_handshake(segment));
        }
        // The window may be closed to data, not to acknowledgments and urgent pointers (section 3.10.7.4: "special
        // allowance should be made to accept valid ACKs, URGs, and RSTs").
        if window == 0 && segment.seq == self.rcv.nxt && self.state.is_synchronized() {
            self.check_syn(now, segment)?;
            self.check_ack(now, segment)?;
            self.check_urgent(segment);
            self.ack_now(Reason::ChallengeAck);
            return Err(Disposition::OutsideWindow);
        }
        // A probe byte into a closed window does not count as sent until it is acknowledged, so a probing peer's ACKs
        // begin one byte before its SND.NXT. Two peers that probe each other's windows would otherwise drop each
        // other's ACKs.
        if len == 0 && segment.seq + 1 == self.rcv.nxt && self.state.is_synchronized() {
            self.check_ack(now, segment)?;
        }
        let data_end = segment.seq + len;
        let duplicate = len > 0 && data_end.le(self.rcv.nxt);
        if duplicate {
            self.note_duplicate_segment(now, segment, data_end);
        }
        if segment.flags.contains(Flags::SYN) {
            let is_queued = self.challenge(now);
            self.reflect_challenged_syn(segment, is_queued);
        } else {
            self.answer_unacceptable(now, segment);
        }
        if self.state == State::TimeWait && segment.flags.contains(Flags::FIN) && duplicate && data_end == self.rcv.nxt
        {
            // Section 3.10.7.4, eighth: the peer's FIN again restarts the 2 MSL timeout.
            self.timers.arm(now, Timer::TimeWait, self.config.limits.time_wait);
        }
        Err(if duplicate { Disposition::DuplicateData } else { Disposition::OutsideWindow })
    }

    /// Notes a segment whose data up to `data_end` have arrived before.
    fn note_duplicate_segment(&mut self, now: Instant, segment: &Segment, data_end: Seq) {
        let data = SeqRange::new(segment.seq, segment.seq + segment.payload.len() as u32);
        if !data.is_empty() {
            self.note_duplicate(data);
            if !segment.flags.contains(Flags::SYN) {
                self.check_duplicate(segment.seq);
            }
        }
        // Linux's window begins at its last ACK (`tcp_sequence`): a duplicate that reaches it is echoed. The answer to a retransmission
        // whose ACK was lost is then no proof that the retransmission was spurious (RFC 3522).
        let reaches = data_end.ge(self.rcv.last_ack_sent) && segment.ack.ge(self.snd.una);
        if self.config.paws != Paws::Rfc7323 && reaches && !segment.flags.contains(Flags::SYN) {
            let timestamp_is_newer = self.note_timestamp(now, segment);
            self.count_ecn_field(segment, timestamp_is_newer);
        }
    }

    /// Whether text beyond the window makes a segment unacceptable, by [`BeyondWindow`].
    fn is_refused_beyond(&self, segment: &Segment, edge: Seq) -> bool {
        self.config.receive.beyond_window == BeyondWindow::WholeIfRead
            && self.received.readable_len() > 0
            && (segment.seq + segment.payload.len() as u32).gt(edge)
            && !segment.flags.contains(Flags::RST)
    }

    /// Whether a FIN without text is taken although the window is closed: some peers send it again and again (Linux).
    fn takes_bare_fin(&self, segment: &Segment) -> bool {
        self.config.receive.beyond_window == BeyondWindow::WholeIfRead
            && segment.payload.is_empty()
            && segment.flags & (Flags::SYN | Flags::FIN | Flags::RST) == Flags::FIN
            && segment.seq == self.rcv.nxt
    }

    /// An unacceptable segment is answered by an ACK (section 3.10.7.4, first): a SYN or one without sequence numbers within the budget of
    /// RFC 5961 and [`crate::LimitConfig::invalid_ack_interval`]; one that carries data or a FIN tells the peer where we are.
    pub(super) fn answer_unacceptable(&mut self, now: Instant, segment: &Segment) {
        let occupies = segment.seq_len() > 0 && !segment.flags.contains(Flags::SYN);
        if occupies && segment.seq.lt(self.rcv.nxt) {
            self.ack_now(Reason::DuplicateData);
        } else if occupies && self.config.limits.invalid_ack_interval.is_some() {
            // It cannot be part of an ACK loop (Linux `tcp_oow_rate_limited`).
            self.ack_now(Reason::ChallengeAck);
        } else {
            self.challenge(now);
        }
    }

    /// The peer's SYN once more: our SYN-ACK was lost.
    pub(super) fn is_retransmitted_syn(&self, segment: &Segment) -> bool {
        self.state == State::SynReceived && segment.flags.contains(Flags::SYN) && segment.seq == self.rcv.irs
    }

    /// Answers the peer's SYN once more.
    pub(super) fn repeat_handshake(&mut self, syn: &Segment) -> Disposition {
        self.take_repeated_syn(syn);
        self.pending.insert(Pending::HANDSHAKE);
        Disposition::DuplicateData
    }

    /// The SYN-ACK that answers our SYN after SYNs have crossed (section 3.5, figure 7): its SYN was taken already, its ACK
    /// is what counts.
    fn completes_simultaneous_open(&self, segment: &Segment) -> bool {
        !self.passive
            && self.is_retransmitted_syn(segment)
            && segment.flags.contains(Flags::ACK)
            && !segment.flags.contains(Flags::RST)
            && segment.ack.gt(self.snd.una)
            && segment.ack.le(self.snd.nxt)
    }

    /// Second, check the RST bit (with RFC 5961 section 3.2).
    fn check_reset(&mut self, now: Instant, segment: &Segment) -> Step {
        if !segment.flags.contains(Flags::RST) {
            return Ok(());
        }
        if segment.seq != self.rcv.nxt {
            self.challenge(now);
            return Err(Disposition::ResetChallenged);
        }
        match self.state {
            // Passive: back to LISTEN, which is the endpoint's; active: refused.
            State::SynReceived if self.passive => self.end(Some(ConnectionError::Reset)),
            State::SynReceived => self.end(Some(ConnectionError::Refused)),
            State::Closing | State::LastAck | State::TimeWait => self.end(None),
            _ => self.end(Some(ConnectionError::Reset)),
        }
        Err(Disposition::ResetAccepted)
    }

    /// Fourth, check the SYN bit (with RFC 5961 section 4.2; third, security, is not used).
    #[inline]
    fn check_syn(&mut self, now: Instant, segment: &Segment) -> Step {
        if !segment.flags.contains(Flags::SYN) {
            return Ok(());
        }
        if self.state == State::SynReceived && self.passive {
            // Back to LISTEN, which is the endpoint's.
            self.end(Some(ConnectionError::Reset));
            return Err(Disposition::HandshakeAbandoned);
        }
        let is_queued = self.challenge(now);
        self.reflect_challenged_syn(segment, is_queued);
        Err(Disposition::SynChallenged)
    }

    /// Whether an ACK without data leaves a server in the handshake (Linux `tcp_check_req`).
    fn defers_handshake(&self, segment: &Segment) -> bool {
        let is_bare = segment.payload.is_empty() && !segment.flags.contains(Flags::FIN);
        let is_too_soon = self.recovery.retransmits < self.config.limits.deferred_timeouts;
        self.passive && is_bare && !self.is_early() && is_too_soon
    }

    /// Fifth, check the ACK field.
    fn check_ack(&mut self, now: Instant, segment: &Segment) -> Step {
        if !segment.flags.contains(Flags::ACK) {
            return Err(Disposition::NoAck);
        }
        if self.state == State::SynReceived {
            if segment.ack.le(self.snd.una) || segment.ack.gt(self.snd.nxt) {
                self.reset_at(segment);
                return Err(Disposition::UnacceptableHandshakeAck);
            }
            if self.defers_handshake(segment) {
                return Err(Disposition::HandshakeDeferred);
            }
            self.check_handshake_ack(segment);
            self.end_handshake(now, segment)?;
        } else {
            self.process_ack(now, segment)?;
        }
        let fin_acked = self.snd.fin.is_some_and(|fin| self.snd.una.gt(fin));
        match self.state {
            State::FinWait1 if fin_acked => {
                self.state = State::FinWait2;
                self.events.insert(Event::AllAcknowledged);
                if self.rcv.reader_gone {
                    self.timers.arm(now, Timer::FinWait2, self.config.limits.fin_wait_2);
                }
            }
            State::Closing if fin_acked => self.enter_time_wait(now),
            State::LastAck if fin_acked => {
                self.events.insert(Event::AllAcknowledged);
                self.end(None);
            }
            _ => {}
        }
        Ok(())
    }

    /// Sixth, check the URG bit (RFC 9293 section 3.8.5; the pointer is to the byte after the urgent data, RFC 6093).
    fn check_urgent(&mut self, segment: &Segment) {
        if !segment.flags.contains(Flags::URG) || !self.state.may_receive() {
            return;
        }
        let until = segment.seq + u32::from(segment.urgent);
        if until.gt(self.rcv.nxt) && self.rcv.urgent.is_none_or(|known| until.gt(known)) {
            self.rcv.urgent = Some(until);
            self.events.insert(Event::Urgent);
        }
    }

    /// Seventh, the segment text, and eighth, the FIN bit.
    fn take_text_and_fin(&mut self, now: Instant, segment: &Segment, in_handshake: bool) -> Step {
        // The text of a SYN begins after it.
        let start = segment.seq + u32::from(segment.flags.contains(Flags::SYN));
        let was_ack_due = self.ack.due.is_some();
        let mut refused = false;
        if !segment.payload.is_empty() {
            if !self.state.may_receive() {
                return Err(Disposition::AfterFin);
            }
            // A FIN may bring data along that was read before the reader left.
            let has_new_text = (start + segment.payload.len() as u32).gt(self.rcv.nxt);
            if self.rcv.reader_gone && has_new_text {
                // RFC 9293 section 3.6.1: no reader is left, and the peer must learn this. The connection is gone, so
                // that the reset is that of CLOSED (section 3.10.7.1).
                self.end(Some(ConnectionError::Aborted));
                self.reset_at(segment);
                return Err(Disposition::ReceiverGone);
            }
            self.take_ecn_mark(segment);
            refused = self.take_text(now, segment, start) == Some(Arrival::Refused);
        }
        if segment.flags.contains(Flags::FIN) {
            self.take_fin(now, start + segment.payload.len() as u32, in_handshake);
        }
        self.finish_at_fin(now, was_ack_due);
        if refused { Err(Disposition::ReassemblyFull) } else { Ok(()) }
    }

    /// Returns how the text arrived, if any of it lies in the window.
    fn take_text(&mut self, now: Instant, segment: &Segment, start: Seq) -> Option<Arrival> {
        self.measure_receive_rtt(now, segment);
        let mut data = segment.payload.clone();
        if self.config.receive.beyond_window == BeyondWindow::Cut || segment.flags.contains(Flags::SYN) {
            // Data beyond the window is discarded.
            let room = (self.rcv.nxt + self.receive_window()).saturating_since(start);
            data.truncate(room as usize);
        }
        if let Some(fin) = self.rcv.fin {
            data.truncate(fin.saturating_since(start) as usize);
        }
        let len = data.len() as u32;
        if len == 0 {
            return None;
        }
        let arrival = self.take_data(start, data);
        match arrival {
            Arrival::InOrder | Arrival::FilledGap => self.note_segment_len(len),
            Arrival::OutOfOrder | Arrival::SpreadOutOfOrder => self.grow_buffer_for_hole(),
            _ => {}
        }
        // Without SACK a window that opens would keep the sender from counting this ACK as a duplicate (Linux
        // `tcp_data_queue_ofo`).
        let opens = match arrival {
            Arrival::Refused => false,
            Arrival::OutOfOrder | Arrival::SpreadOutOfOrder => self.sack,
            _ => true,
        };
        let grew = opens && self.open_limit(len);
        self.schedule_ack(now, arrival, len, segment.flags.contains(Flags::PSH), grew);
        if self.rcv.urgent.is_some_and(|until| until.le(self.rcv.nxt)) {
            self.rcv.urgent = None;
        }
        Some(arrival)
    }

    /// Remembers where the stream ends, unless an end is known already.
    fn take_fin(&mut self, now: Instant, fin: Seq, in_handshake: bool) {
        let in_window = fin.lt(self.rcv.nxt + self.receive_window()) || fin == self.rcv.nxt;
        // Text that lies beyond it has arrived already: this is not where the stream ends.
        let belied = self.received.highest().is_some_and(|highest| fin.lt(highest));
        if (self.state.may_receive() || in_handshake) && in_window {
            if !belied {
                self.rcv.fin.get_or_insert(fin);
            }
            if fin.gt(self.rcv.nxt) {
                if self.rcv.fin == Some(fin) {
                    self.received.insert_fin(fin);
                }
                self.ack_now(Reason::DuplicateAck);
            }
        } else if self.state == State::TimeWait {
            self.ack_now(Reason::FinAck);
            self.timers.arm(now, Timer::TimeWait, self.config.limits.time_wait);
        }
    }

    /// If everything before the peer's FIN has arrived, takes the FIN (section 3.10.7.4, eighth). `was_ack_due`: before this segment.
    fn finish_at_fin(&mut self, now: Instant, was_ack_due: bool) {
        if self.rcv.fin != Some(self.rcv.nxt) {
            return;
        }
        self.rcv.nxt += 1;
        self.received.take_fin();
        // Nothing is left to report to a peer that has sent all it had (Linux `tcp_fin`).
        self.rcv.dsack = None;
        self.schedule_fin_ack(now, was_ack_due);
        self.events.insert(Event::PeerClosed);
        match self.state {
            State::SynReceived | State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }

    fn enter_time_wait(&mut self, now: Instant) {
        if self.state != State::FinWait2 {
            self.events.insert(Event::AllAcknowledged);
        }
        self.state = State::TimeWait;
        for timer in Timer::ALL {
            if timer != Timer::DelayedAck {
                self.timers.disarm(timer);
            }
        }
        self.timers.arm(now, Timer::TimeWait, self.config.limits.time_wait);
    }

    /// Answers with a challenge ACK, within the budget of RFC 5961 section 10 and [`crate::LimitConfig::invalid_ack_interval`]. Returns
    /// whether an ACK is due for this alone.
    pub(super) fn challenge(&mut self, now: Instant) -> bool {
        let second = (now.as_millis() / 1000) as u32;
        let limits = &self.config.limits;
        let budget = self.challenges.to_mut();
        if budget.second != second {
            budget.second = second;
            budget.used = 0;
        }
        let is_too_soon = |interval| budget.last_at.is_some_and(|last| now < last + interval);
        if budget.used >= limits.challenge_acks_per_second || limits.invalid_ack_interval.is_some_and(is_too_soon) {
            return false;
        }
        budget.used += 1;
        budget.last_at = Some(now);
        let is_only = self.ack.due.is_none();
        self.ack_now(Reason::ChallengeAck);
        is_only
    }

    /// Answers with a reset at SEG.ACK: to an unacceptable ACK in the handshake (section 3.10.7.3, first), after which
    /// the connection continues, and to data after CLOSE.
    fn reset_at(&mut self, segment: &Segment) {
        self.pending.insert(Pending::FOREIGN_RESET);
        self.challenges.to_mut().reset_at = segment.ack;
    }

    /// Our SYN is acknowledged: the sample of its round trip, and the end of its retransmission.
    pub(super) fn acknowledge_syn(&mut self, now: Instant, segment: &Segment) {
        self.snd.una = self.snd.iss + 1;
        if let Some(syn) = self.queue.pop_acked(self.snd.una) {
            if !syn.was_retransmitted() {
                let rtt = now.saturating_since(syn.sent_at);
                self.rtt.sample(&self.config.rto, rtt, self.snd.una, self.snd.nxt);
            } else if let Some(rtt) = self.rtt_by_timestamp(now, segment) {
                self.rtt.sample(&self.config.rto, rtt, self.snd.una, self.snd.nxt);
            }
            // RFC 6298 section 5.7: after a SYN that had to be retransmitted, data begins with 3 s; RFC 5681 section
            // 3.1: and with a window of one segment.
            if syn.was_retransmitted() && self.recovery.retransmits > 0 {
                self.after_lost_syn();
            }
        }
        self.counters.delivered = self.counters.delivered.saturating_add(1);
        self.recovery.state = RecoveryState::Open;
        self.recovery.episode.clear();
        self.pending.remove(Pending::HANDSHAKE);
        self.timers.disarm(Timer::Retransmit);
        self.timers.disarm(Timer::UserTimeout);
    }
}
