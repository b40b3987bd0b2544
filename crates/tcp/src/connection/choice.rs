//! The decision on what to send next and why, or why nothing, in one function.

use holdover_base::Instant;
use holdover_wire::Seq;

use super::Connection;
use super::ecn::Feedback;
use super::fields::Pending;
use crate::config::{LossDetection, ZeroWindow};
use crate::counters::Reason;
use crate::recovery::RecoveryState;
use crate::state::State;

/// The next output. Eight bytes, and no value within a value: it stays in registers from the decision to the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    Reset,
    /// A reset for a segment of no connection, at this sequence number.
    ForeignReset(Seq),
    /// Our SYN or SYN-ACK.
    Handshake(Reason),
    /// The record at this index of the retransmission queue again.
    Retransmit(u32, Reason),
    /// New data: so many bytes, and whether the FIN goes with them or alone.
    New(u32, bool, Reason),
    WindowProbe,
    KeepAlive,
    Ack(Reason),
}

impl Choice {
    pub(super) const fn reason(self) -> Reason {
        match self {
            Self::Reset | Self::ForeignReset(_) => Reason::Reset,
            Self::Handshake(reason) | Self::Retransmit(_, reason) | Self::New(_, _, reason) | Self::Ack(reason) => {
                reason
            }
            Self::WindowProbe => Reason::WindowProbe,
            Self::KeepAlive => Reason::KeepAlive,
        }
    }
}

const _: () = assert!(size_of::<Result<Choice, Blocked>>() <= 8);

/// Why nothing goes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blocked {
    NothingToSend,
    CongestionWindow,
    /// The peer's window is closed to the next byte.
    PeerWindow,
    /// The peer's window is open, but too little for a segment worth its header.
    SillyWindow,
    /// A small segment waits for the ACK of outstanding data.
    Nagle,
    /// A small segment waits for further writes of the application.
    Held,
    /// The previous burst has not left at the pacing rate yet.
    Pacer,
    /// A probe of the path MTU waits for room in both windows.
    MtuProbe,
}

impl Connection {
    /// The one place that decides what to send next, or why nothing is.
    pub(super) fn choose(&mut self, now: Instant) -> Result<Choice, Blocked> {
        if self.pending.contains(Pending::RESET) {
            return Ok(Choice::Reset);
        }
        if self.pending.contains(Pending::FOREIGN_RESET) {
            return Ok(Choice::ForeignReset(self.challenges.reset_at));
        }
        match self.state {
            State::Closed => return Err(Blocked::NothingToSend),
            State::SynSent if self.pending.contains(Pending::HANDSHAKE) => return Ok(Choice::Handshake(Reason::Syn)),
            State::SynSent => return Err(Blocked::NothingToSend),
            State::SynReceived if self.pending.contains(Pending::HANDSHAKE) => {
                return Ok(Choice::Handshake(Reason::SynAck));
            }
            State::SynReceived if !self.is_early() => {
                return self.ack.due.map(Choice::Ack).ok_or(Blocked::NothingToSend);
            }
            _ => {}
        }
        if self.ack.requested > 0 {
            return Ok(Choice::Ack(Reason::RequestedAck));
        }
        if self.reflects_before_data() {
            return Ok(Choice::Ack(Reason::HandshakeAck));
        }
        let blocked = match self.choose_data(now) {
            Ok(choice) => return Ok(choice),
            Err(blocked) => blocked,
        };
        if self.pending.contains(Pending::WINDOW_PROBE) {
            return Ok(Choice::WindowProbe);
        }
        if self.pending.contains(Pending::KEEP_ALIVE) {
            return Ok(Choice::KeepAlive);
        }
        match self.ack.due {
            Some(reason) => Ok(Choice::Ack(reason)),
            None if self.user_timeout_option_fits(0) => Ok(Choice::Ack(Reason::Ack)),
            None => Err(blocked),
        }
    }

    /// The choice of [`Self::choose`] at the sender of a transfer nearly always, without a look at anything else that may be due: the length
    /// of the next full segment, with more data behind it, or that it does not go yet. `None` if anything is out of the ordinary.
    #[inline(always)]
    pub(super) fn choose_in_bulk(&mut self, now: Instant) -> Option<Result<u32, Blocked>> {
        if self.has_rare_options() || self.steering.mtu_search.is_some() {
            return None;
        }
        let len = self.data_room();
        let window = (self.snd.una + self.snd.wnd).saturating_since(self.snd.nxt);
        let is_ordinary = (len as usize) < self.unsent.front_len()
            && len <= window
            && self.state == State::Established
            && self.recovery.state == RecoveryState::Open
            && self.queue.is_unmarked()
            && self.pending.is_empty()
            && self.retransmit_head.is_none()
            && self.ack.requested == 0
            && self.pacer.is_none()
            && self.model.is_none()
            && self.ecn.feedback == Feedback::None;
        if !is_ordinary {
            return None;
        }
        let choice = if self.queue.packets_out() < self.congestion.cwnd() {
            self.begin_burst(now).map(|()| len)
        } else {
            Err(Blocked::CongestionWindow)
        };
        // An ACK that is due goes alone if data does not.
        (choice.is_ok() || self.ack.due.is_none()).then_some(choice)
    }

    /// Data, old or new, or why there is none.
    fn choose_data(&mut self, now: Instant) -> Result<Choice, Blocked> {
        let closed = self.snd.wnd == 0 && self.config.recovery.zero_window == ZeroWindow::PullBack;
        if let Some(reason) = self.retransmit_head {
            if !self.queue.is_empty() && !closed {
                return Ok(Choice::Retransmit(0, reason));
            }
            self.retransmit_head = None;
        }
        if self.pending.contains(Pending::LOSS_PROBE) {
            self.pending.remove(Pending::LOSS_PROBE);
            if !self.queue.is_empty() {
                return Ok(self.choose_loss_probe());
            }
        }
        let in_flight = self.in_flight_for_window();
        let room = in_flight < self.congestion.cwnd();
        if self.pending.contains(Pending::NEW_DATA_FIRST)
            && let Some(result) = self.choose_new_first(now, room)
        {
            return result;
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
            return Ok(Choice::Retransmit(index as u32, reason));
        }
        if self.steering.mtu_search.is_some()
            && let Some(result) = self.choose_mtu_probe(now)
        {
            return result;
        }
        let (len, fin, mut reason) = match self.choose_new() {
            Ok(new) => new,
            Err(blocked) if room => return self.choose_repair_ahead(now, blocked),
            Err(blocked) => return Err(blocked),
        };
        if !room {
            // Linux lets a lone FIN go in any case (`tcp_cwnd_test`).
            let lone_fin = fin && len == 0;
            if !lone_fin {
                return Err(Blocked::CongestionWindow);
            }
        } else if self.recovery.state == RecoveryState::Disorder && self.queue.packets_out() >= self.congestion.cwnd() {
            reason = Reason::LimitedTransmit;
        }
        if !self.pacer_is_open(now) {
            return Err(Blocked::Pacer);
        }
        if room {
            self.begin_burst(now)?;
        }
        Ok(Choice::New(len, fin, reason))
    }

    /// RFC 5682 section 3.1 step 2b: new data goes before retransmissions; `None` if there is none to go.
    #[cold]
    fn choose_new_first(&mut self, now: Instant, room: bool) -> Option<Result<Choice, Blocked>> {
        let blocked = match self.choose_new() {
            Ok(_) if room && !self.pacer_is_open(now) => return Some(Err(Blocked::Pacer)),
            Ok((len, fin, reason)) if room => return Some(Ok(Choice::New(len, fin, reason))),
            Ok(_) => Blocked::CongestionWindow,
            Err(blocked) => blocked,
        };
        // RFC 5682 section 3.1 step 2b: the answer to the new data decides, and nothing is retransmitted before it.
        if self.snd.nxt.gt(self.recovery.high_seq) {
            return Some(Err(blocked));
        }
        // Without new data a spurious timeout cannot be detected (Linux `tcp_xmit_recovery`).
        self.pending.remove(Pending::NEW_DATA_FIRST);
        if let Some(episode) = self.recovery.episode.if_present() {
            episode.frto = false;
        }
        None
    }

    /// Segments that RFC 6675 retransmits although they are not presumed lost: NextSeg rules 3 and 4 (section 4).
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
        Ok(Choice::Retransmit(index as u32, Reason::LossRecovery))
    }

    /// Segments in flight, as far as the congestion window is concerned.
    fn in_flight_for_window(&self) -> u32 {
        if self.duplicates_make_no_room() {
            // After a timeout a report of a mechanism or of SACK is not a duplicate ACK.
            let is_after_timeout = self.recovery.state == RecoveryState::Loss;
            let held = if is_after_timeout { self.queue.dup_acked() } else { self.queue.sacked() };
            (self.queue.in_flight() + held).saturating_sub(self.syns_out())
        } else if self.counts_pipe_by_acks() {
            self.recovery.episode.pipe
        } else {
            self.queue.in_flight().saturating_sub(self.syns_out())
        }
    }

    /// Whether what duplicate ACKs report still fills the window: before a fast retransmit, if limited transmit (RFC 3042) is
    /// off. A timeout changes nothing in 4.3BSD, whose `tcp_input` enlarges the window in fast recovery only.
    fn duplicates_make_no_room(&self) -> bool {
        if self.config.recovery.limited_transmit {
            return false;
        }
        match self.recovery.state {
            RecoveryState::Recovery => false,
            RecoveryState::Loss => self.counts_as_4_3bsd(),
            RecoveryState::Open | RecoveryState::Disorder | RecoveryState::Cwr => true,
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

    /// New data (bytes, FIN, reason) by the peer's window, silly window avoidance (RFC 9293 section 3.8.6.2.1) and Nagle (section 3.7.4).
    #[inline(always)]
    fn choose_new(&self) -> Result<(u32, bool, Reason), Blocked> {
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
        let record = self.unsent.front_len() as u32;
        let len = record.min(usable).min(mss);
        let fin = fin_due && len == queued && len < usable;
        let whole = len == mss;
        let idle = self.is_idle();
        let reason = if self.pending.contains(Pending::SILLY_WINDOW_OVERRIDE) {
            Reason::SillyWindowOverride
        } else {
            Reason::NewData
        };
        // Nagle's exceptions: everything is acknowledged, the stream ends here, or urgent data waits.
        let held_up = self.config.send.nagle && (!self.config.send.minshall || self.has_small_outstanding());
        let is_held = (self.snd.corked || self.snd.more_follows) && !fin;
        // Data before a record cannot grow any more (Linux `TCP_NAGLE_PUSH`).
        let is_followed = record < queued;
        let small_may_go = is_followed || (!held_up || idle || fin || self.snd.urgent.is_some()) && !is_held;
        let all_queued = len == record;
        let half_window = len >= self.snd.max_wnd / 2;
        if whole
            || (all_queued && small_may_go)
            || (half_window && small_may_go)
            || self.pending.contains(Pending::SILLY_WINDOW_OVERRIDE)
        {
            return Ok((len, fin, reason));
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

    /// RFC 8985 section 7.3.
    fn choose_loss_probe(&self) -> Choice {
        let queued = self.unsent.len() as u32;
        let usable = (self.snd.una + self.snd.wnd).saturating_since(self.snd.nxt);
        let len = (self.unsent.front_len() as u32).min(self.data_room());
        if len > 0 && len <= usable && self.state.may_send() {
            let fin = self.snd.closing && self.snd.fin.is_none() && len == queued && len < usable;
            return Choice::New(len, fin, Reason::LossProbe);
        }
        Choice::Retransmit(self.queue.packets_out() - 1, Reason::LossProbe)
    }
}
