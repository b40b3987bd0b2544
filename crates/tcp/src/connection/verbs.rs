//! The owner's verbs: general operations to steer a connection from outside, for mechanisms that this crate does not
//! contain.

use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_wire::{Seq, SeqRange};

use super::Connection;
use super::fields::{Pending, Steering};
use crate::config::Config;
use crate::counters::Reason;
use crate::state::State;
use crate::timers::Timer;

/// Effect of a requested retransmission on the retransmission timer's backoff.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterRetransmit {
    /// It doubles, as after a timeout.
    BackOff,
    /// It stays as it is.
    Keep,
    /// It is cleared: the next timeout comes after one plain RTO.
    Reset,
}

impl Connection {
    /// Limits the advertised window to `bytes` from now on, and shrinks it if necessary; zero closes it. `None` lifts
    /// the limit. Data already in flight into the wider window is still accepted. This sends nothing: see
    /// [`Self::send_acks`].
    pub fn clamp_window(&mut self, bytes: Option<u32>) {
        self.steer(|steering| steering.window_clamp = bytes);
    }

    /// Holds the ACK field at `point` although more has arrived; `None` lets it follow RCV.NXT again. A point ahead of RCV.NXT has no
    /// effect until it is reached: data that was not received is never acknowledged. A point behind the last ACK sent counts as that ACK.
    ///
    /// Nothing is sent by this alone: see [`Self::send_acks`]. A connection that closes while the ACK of the peer's FIN is held
    /// back goes through CLOSING, as if the FINs had crossed, and stays in TIME-WAIT until the ACK is released.
    pub fn hold_ack_point(&mut self, point: Option<Seq>) {
        // Before the peer's SYN there is nothing to acknowledge.
        let point = point.filter(|_| self.state != State::SynSent);
        let held_at = point.map(|point| point.max(self.rcv.last_ack_sent));
        self.steer(|steering| steering.ack_held_at = held_at);
    }

    /// Sends `count` pure ACKs at once.
    pub fn send_acks(&mut self, count: u8) {
        if self.state.is_synchronized() {
            self.ack.requested = self.ack.requested.saturating_add(count);
        }
    }

    /// Asks the peer for an ACK: a segment without data below SND.UNA, as a keep-alive (RFC 9293 section 3.8.4).
    pub fn send_keep_alive(&mut self) {
        self.pending.set(Pending::KEEP_ALIVE, self.state.is_synchronized());
    }

    /// Adds `ticks` of the peer's timestamp clock to every echoed timestamp from now on. Zero ends it. The peer never
    /// sent the resulting value.
    pub fn shift_timestamp_echo(&mut self, ticks: u32) {
        self.steer(|steering| steering.echo_shift = ticks);
    }

    /// Retransmits the first outstanding segment now, as if the retransmission timer had expired: the window and
    /// ssthresh change accordingly. Returns whether data was outstanding. Does not count towards R1 and R2.
    pub fn retransmit_now(&mut self, now: Instant, after: AfterRetransmit) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        if !matches!(self.state, State::SynSent | State::SynReceived) {
            self.enter_loss(now);
            self.retransmit_head = Some(Reason::Requested);
        } else {
            self.pending.insert(Pending::HANDSHAKE);
        }
        self.settle_backoff(after);
        self.arm_retransmit(now, self.rtt.rto());
        true
    }

    fn settle_backoff(&mut self, after: AfterRetransmit) {
        match after {
            AfterRetransmit::BackOff => self.rtt.back_off(&self.config.rto),
            AfterRetransmit::Keep => {}
            AfterRetransmit::Reset => self.rtt.clear_backoff(&self.config.rto),
        }
    }

    /// Marks outstanding data in `range` lost, retransmissions included, as a timeout does: it is retransmitted as the
    /// windows allow, oldest first, without a later undo. Neither cwnd nor ssthresh changes. The retransmission timer
    /// restarts. Returns whether data in `range` was outstanding; false in the handshake and while the peer's window is
    /// closed.
    pub fn presume_lost(&mut self, now: Instant, range: SeqRange, after: AfterRetransmit) -> bool {
        let in_handshake = matches!(self.state, State::SynSent | State::SynReceived);
        if in_handshake || self.snd.wnd == 0 || !self.queue.mark_lost_in(range) {
            return false;
        }
        self.enter_presumed_loss();
        self.settle_backoff(after);
        self.arm_retransmit(now, self.rtt.rto());
        true
    }

    /// Marks `range` as held by the peer, as if SACKed: it is not retransmitted. A segment that `range` covers in part
    /// is split; data that is not outstanding is ignored.
    pub fn note_held_by_peer(&mut self, range: SeqRange) {
        self.queue.split_at(range.start);
        self.queue.split_at(range.end);
        self.queue.mark_sacked(range, |_| {});
    }

    /// Ranges received out of order, from the lowest on.
    pub fn ranges_out_of_order(&self) -> impl Iterator<Item = SeqRange> + '_ {
        self.received.blocks()
    }

    /// Reserves `bytes` in each data segment from now on, for options that the owner adds. Zero ends it. A
    /// retransmission is cut accordingly, and the rest goes into the next segment.
    pub fn reserve_option_room(&mut self, bytes: u32) {
        self.steer(|steering| steering.option_room = bytes);
    }

    /// Counts one retransmission towards R2, like one by the timer, which gives up at its next expiry if this reached
    /// the limit.
    pub fn count_retransmission(&mut self) {
        self.recovery.retransmits = self.recovery.retransmits.saturating_add(1);
    }

    /// Sets the congestion window in segments, at least 1.
    pub fn set_cwnd(&mut self, segments: u32) {
        self.congestion.set_cwnd(&self.config.congestion, segments);
        self.congestion.clear_credit();
    }

    /// Sets the slow-start threshold in segments, at least 2.
    pub fn set_ssthresh(&mut self, segments: u32) {
        self.congestion.set_ssthresh(segments);
    }

    /// Restarts slow start: the window falls to the initial one, ssthresh stays, and an undo is no longer possible. For
    /// a new path (RFC 5681 section 4.1 does the same after idle time).
    pub fn force_slow_start(&mut self) {
        let initial = self.config.congestion.initial_window.segments(self.snd.mss);
        self.congestion.set_cwnd(&self.config.congestion, initial.min(self.congestion.cwnd()));
        self.congestion.clear_credit();
        self.congestion.forget_path();
        self.restart_model();
        if let Some(episode) = self.recovery.episode.if_present() {
            episode.forget_undo();
        }
    }

    /// Stops `timer` and keeps its remaining time.
    pub fn hold_timer(&mut self, now: Instant, timer: Timer) {
        self.timers.hold(now, timer);
    }

    /// Restarts `timer` with its remaining time.
    pub fn release_timer(&mut self, now: Instant, timer: Timer) {
        self.timers.release(now, timer);
    }

    /// Restarts the retransmission timer with the current RTO: backoff, cwnd and ssthresh do not change. It replaces a
    /// loss probe. Returns whether it was running; does nothing while no data is outstanding, while the peer's window
    /// is closed, or while the reordering timer (RFC 8985 section 6.2) is armed.
    pub fn restart_retransmit_timer(&mut self, now: Instant) -> bool {
        let is_running = self.timers.is_armed(Timer::Retransmit) || self.timers.is_armed(Timer::LossProbe);
        if is_running {
            self.arm_retransmit(now, self.rtt.rto());
        }
        is_running
    }

    /// Bars fast retransmit of anything below `seq`; `None` lifts the bar. The retransmission timer is not affected.
    pub fn bar_fast_retransmit_below(&mut self, seq: Option<Seq>) {
        self.steer(|steering| steering.barred_below = seq);
    }

    /// Sets the user timeout from outside, and whether the peer's option may still change it: an application that sets it
    /// bars that (RFC 5482 section 3). `None` leaves R2 alone to decide.
    pub fn set_user_timeout(&mut self, now: Instant, timeout: Option<Duration>, changeable: bool) {
        let user_timeout = self.user_timeout_config_mut();
        user_timeout.timeout = timeout;
        user_timeout.changeable = changeable;
        self.arm_user_timeout(now);
    }

    /// Advertises `timeout` to the peer on the next segment (RFC 5482 section 3); `None` stops this.
    pub fn advertise_user_timeout(&mut self, timeout: Option<Duration>) {
        self.user_timeout_config_mut().advertise = timeout;
        self.pending.set(Pending::USER_TIMEOUT_OPTION, timeout.is_some());
    }

    /// Replaces the configuration, for socket options set late. Negotiated options, the sizes of the receive buffer and
    /// running timers stay; keep-alives begin or end at once.
    pub fn reconfigure(&mut self, now: Instant, config: Arc<Config>) {
        let keep_alive_changed = self.config.limits.keep_alive != config.limits.keep_alive;
        self.config = config;
        if keep_alive_changed && self.state.is_synchronized() {
            self.timers.disarm(Timer::KeepAlive);
            self.arm_keep_alive(now);
        }
    }

    fn steer(&mut self, set: impl FnOnce(&mut Steering)) {
        set(self.steering.to_mut());
        self.steering.clear_if_unset();
    }
}
