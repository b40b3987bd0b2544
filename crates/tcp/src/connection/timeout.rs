//! Deadlines.

use holdover_base::{Duration, Instant};

use super::fields::Pending;
use super::{Connection, Event};
use crate::config::{AckPolicy, RetryLimit, ZeroWindow};
use crate::counters::{Disposition, Reason};
use crate::recovery::RecoveryState;
use crate::state::{ConnectionError, State};
use crate::timers::Timer;

/// Linux's `TCP_RTO_MIN`, the base of [`RetryLimit::LinuxTime`].
const LINUX_RTO_MIN: Duration = Duration::from_millis(200);

/// The least time that a timer of Linux runs: a tick, with `CONFIG_HZ` of 1000.
const LINUX_TICK: Duration = Duration::from_millis(1);

impl Connection {
    /// Handles every deadline at or before `now`. Calling it early or twice is harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        // Each timer runs at most once in a call: one that is armed again for `now` waits for the next.
        for _ in 0..Timer::COUNT {
            let Some(timer) = self.timers.expire(now) else { break };
            match timer {
                Timer::Retransmit => self.on_retransmit_timeout(now),
                Timer::LossProbe => self.on_probe_timeout(now),
                Timer::Reorder => self.on_reorder_timeout(now),
                Timer::Persist => self.on_persist_timeout(now),
                Timer::SillyWindow => self.pending.insert(Pending::SILLY_WINDOW_OVERRIDE),
                Timer::DelayedAck => self.on_delayed_ack_timeout(),
                Timer::KeepAlive => self.on_keep_alive_timeout(now),
                Timer::UserTimeout => self.on_user_timeout(now),
                Timer::TimeWait if self.ack_point() != self.rcv.nxt => {
                    self.timers.arm(now, Timer::TimeWait, self.config.limits.time_wait);
                }
                Timer::FinWait2 | Timer::TimeWait => self.end(None),
                // `poll_transmit` chooses the delayed segment next.
                Timer::Pacing => {}
            }
        }
    }

    /// RFC 6298 section 5.4 to 5.6.
    pub(super) fn on_retransmit_timeout(&mut self, now: Instant) {
        if self.queue.is_empty() || self.state == State::Closed {
            return;
        }
        if matches!(self.state, State::SynSent | State::SynReceived) {
            return self.on_handshake_timeout(now);
        }
        if self.snd.wnd == 0 && self.config.recovery.zero_window == ZeroWindow::PullBack {
            self.pull_back(now);
            return;
        }
        if self.gives_up(now) {
            return self.end(Some(ConnectionError::TimedOut));
        }
        if self.recovery.retransmits + 1 == self.config.limits.r1 {
            self.events.insert(Event::DeliveryTrouble);
        }
        if self.steering.mtu_search.is_some()
            && self.snd.wnd > 0
            && self.has_retransmitted_for(now, self.config.limits.r1)
        {
            self.suspect_black_hole(now);
        }
        self.counters.timeouts += 1;
        if self.recovery.retransmits == 0 && self.snd.wnd > 0 {
            self.leave_out_options();
        }
        self.enter_loss(now);
        // A closed window does not indicate a broken path, so that it does not count towards R2 (Linux
        // `tcp_retransmit_timer`; ssthresh is cut each time for the same reason).
        if self.snd.wnd > 0 {
            self.recovery.retransmits += 1;
        }
        self.retransmit_head = Some(Reason::Timeout);
        self.rtt.back_off(&self.config.rto);
        self.arm_retransmit(now, self.rtt.rto());
        // The episode may have begun with a fast retransmit.
        self.start_user_timeout(now, self.recovery.episode.retransmit_stamp.unwrap_or(now));
    }

    /// The retransmission timer has run out, or the window is probed: a user timeout that has waited for this runs from `since` on. If it has
    /// passed already, the retransmission is sent first (Linux `tcp_clamp_rto_to_user_timeout`).
    fn start_user_timeout(&mut self, now: Instant, since: Instant) {
        if !self.user_timeout_config().from_retransmission || self.timers.is_armed(Timer::UserTimeout) {
            return;
        }
        if let Some(timeout) = self.user_timeout() {
            let left = timeout.saturating_sub(now.saturating_since(since)).max(LINUX_TICK);
            self.timers.arm(now, Timer::UserTimeout, left);
        }
    }

    fn on_handshake_timeout(&mut self, now: Instant) {
        let limits = &self.config.limits;
        let linear = if self.state == State::SynSent { limits.syn_linear_timeouts } else { 0 };
        // To a peer that has acknowledged the SYN-ACK, it is sent again only at the end (Linux `syn_ack_recalc`).
        let has_acknowledged = self.counters.received(Disposition::HandshakeDeferred) > 0;
        let deferred = if has_acknowledged { limits.deferred_timeouts } else { 0 };
        let is_last = self.recovery.retransmits >= limits.syn_retries.saturating_add(linear).max(deferred);
        if is_last || self.is_connecting_too_long(now) {
            return self.end(Some(ConnectionError::TimedOut));
        }
        self.recovery.retransmits += 1;
        self.counters.timeouts += 1;
        self.pending.set(Pending::HANDSHAKE, self.recovery.retransmits >= deferred);
        if self.recovery.retransmits > linear {
            self.rtt.back_off(&self.config.rto);
        }
        self.arm_retransmit(now, self.rtt.rto());
    }

    /// Timeouts that do not double add to the number of SYNs, not to the time that as many doubling ones would take (Linux
    /// `retransmits_timed_out`). It matters if few are allowed. A user timeout replaces that time.
    fn is_connecting_too_long(&self, now: Instant) -> bool {
        let limits = &self.config.limits;
        let is_bounded = limits.syn_linear_timeouts > 0 && self.user_timeout().is_none();
        if self.state != State::SynSent || !is_bounded || self.recovery.retransmits == 0 {
            return false;
        }
        // The connection was made when its first SYN was sent.
        let since_first = now.saturating_since(self.snd.last_data_at);
        since_first >= self.linux_time(limits.syn_retries, self.config.rto.initial)
    }

    /// R2 (RFC 9293 section 3.8.3). A configured user timeout replaces R2.
    fn gives_up(&self, now: Instant) -> bool {
        if self.user_timeout().is_some() {
            return false;
        }
        match self.config.limits.r2 {
            RetryLimit::Never => false,
            RetryLimit::Retries(most) => self.recovery.retransmits >= most,
            RetryLimit::LinuxTime(retries) => self.has_retransmitted_for(now, retries),
        }
    }

    /// Whether the first retransmission was as long ago as this number would take from an RTO of 200 ms on (Linux
    /// `retransmits_timed_out`).
    fn has_retransmitted_for(&self, now: Instant, retries: u32) -> bool {
        let since = self.recovery.episode.retransmit_stamp.filter(|_| self.recovery.retransmits > 0);
        since.is_some_and(|since| now.saturating_since(since) >= self.linux_time(retries, LINUX_RTO_MIN))
    }

    /// How long R2 (RFC 9293 section 3.8.3) lets a segment stay unacknowledged at the current RTO; `None` for ever. A
    /// user timeout, which replaces R2, does not count.
    pub fn r2_span(&self) -> Option<Duration> {
        match self.config.limits.r2 {
            RetryLimit::Never => None,
            RetryLimit::LinuxTime(retries) => Some(self.linux_time(retries, LINUX_RTO_MIN)),
            RetryLimit::Retries(most) => {
                let (rto, max) = (self.rtt.rto_without_backoff(&self.config.rto), self.config.rto.max);
                // After each retransmission one more timeout, each twice as long as the one before.
                let nth = |n: u32| rto.saturating_shl(n).min(max);
                Some((0..=most.min(1_000)).map(nth).fold(Duration::ZERO, |sum, timeout| sum + timeout))
            }
        }
    }

    /// The time that `retries` retransmissions take if the first timeout is `first` (Linux `tcp_model_timeout`).
    fn linux_time(&self, retries: u32, first: Duration) -> Duration {
        let max = self.config.rto.max;
        let doublings = (max.as_nanos() / first.as_nanos().max(1)).max(1).ilog2();
        if retries <= doublings {
            return first * ((2_u64 << retries) - 1);
        }
        first * ((2_u64 << doublings) - 1) + max * u64::from(retries - doublings)
    }

    /// 4.3BSD: the window has closed over outstanding data: takes it back to be sent again, and starts probing. This is
    /// not a loss, and keeps the congestion window; but as after a timeout, duplicate ACKs of earlier data do not count
    /// until all of it is acknowledged.
    pub(super) fn pull_back(&mut self, now: Instant) {
        self.queue.reset_dup_acked();
        self.queue.mark_all_lost(|_, sent| sent.sacked);
        self.recovery.state = RecoveryState::Loss;
        self.recovery.high_seq = self.snd.nxt;
        let episode = self.recovery.episode.to_mut();
        (episode.undo_marker, episode.marked_below, episode.dup_acks) = (None, None, 0);
        (episode.frto, episode.first_repair, episode.pulled_back) = (false, false, true);
        self.timers.disarm(Timer::Retransmit);
        self.timers.disarm(Timer::LossProbe);
        self.timers.disarm(Timer::Reorder);
        self.retransmit_head = None;
        self.recovery.retransmits = 0;
        self.start_probing(now);
    }

    /// Zero-window probing begins (RFC 9293 section 3.8.6.1).
    pub(super) fn start_probing(&mut self, now: Instant) {
        if self.probing.is_none() {
            self.probing = Some(Box::default());
            self.arm_user_timeout(now);
        }
        if !self.timers.is_armed(Timer::Persist) {
            self.timers.arm(now, Timer::Persist, self.probe_delay());
        }
    }

    fn probe_delay(&self) -> Duration {
        let persist = &self.config.persist;
        let mut base = self.config.rto.min.max(persist.min);
        // The RTO without backoff: probing has its own.
        base = base.max(self.rtt.rto_without_backoff(&self.config.rto));
        base.saturating_shl(self.probing.as_ref().map_or(0, |probing| probing.backoff)).min(persist.max)
    }

    fn on_persist_timeout(&mut self, now: Instant) {
        // Everything may have been acknowledged while the window stayed closed.
        let fin_waits = self.snd.closing && self.snd.fin.is_none();
        if self.queue.is_empty() && self.unsent.is_empty() && !fin_waits {
            self.probing = None;
            return;
        }
        let Some(probing) = &mut self.probing else { return };
        if self.config.persist.give_up_after.is_some_and(|most| probing.sent >= most) {
            return self.end(Some(ConnectionError::ProbesUnanswered));
        }
        self.pending.insert(Pending::WINDOW_PROBE);
        probing.sent += 1;
        // Linux `tcp_send_probe0`: the limit of unanswered probes is one of the backoff, too.
        if self.config.persist.give_up_after.is_none_or(|most| probing.backoff < most) {
            probing.backoff += 1;
        }
        self.timers.arm(now, Timer::Persist, self.probe_delay());
        self.start_user_timeout(now, now);
    }

    fn on_delayed_ack_timeout(&mut self) {
        if self.ack.compressed > 0 {
            return self.ack_now(Reason::DuplicateAck);
        }
        if let AckPolicy::Adaptive { min, .. } = self.config.receive.ack {
            // Linux `tcp_delack_timer`: the delay was wasted, so the sender is slower than estimated, and the exchange
            // is no longer interactive.
            self.ack.delay = if self.ack.interactive { min } else { (self.ack.delay * 2).min(self.rtt.rto()) };
            self.ack.interactive = false;
        }
        self.ack.due = Some(Reason::DelayedAck);
    }

    /// RFC 9293 section 3.8.4.
    fn on_keep_alive_timeout(&mut self, now: Instant) {
        let Some(keep_alive) = self.config.limits.keep_alive else { return };
        if !self.state.is_synchronized() || self.state == State::TimeWait {
            return;
        }
        // Outstanding data has its own timers.
        if !self.queue.is_empty() || !self.unsent.is_empty() {
            return self.timers.arm(now, Timer::KeepAlive, keep_alive.idle);
        }
        let idle = now.saturating_since(self.heard_at);
        if idle < keep_alive.idle {
            return self.timers.arm(now, Timer::KeepAlive, keep_alive.idle - idle);
        }
        if u32::from(self.snd.keep_alives_unanswered) >= keep_alive.probes.min(u16::MAX.into()) {
            self.end(Some(ConnectionError::ProbesUnanswered));
            self.pending.insert(Pending::RESET);
            return;
        }
        self.snd.keep_alives_unanswered = self.snd.keep_alives_unanswered.saturating_add(1);
        self.pending.insert(Pending::KEEP_ALIVE);
        self.timers.arm(now, Timer::KeepAlive, keep_alive.interval);
    }

    /// RFC 9293 section 3.9.1, RFC 5482: data was not acknowledged for the user timeout.
    fn on_user_timeout(&mut self, now: Instant) {
        let probing_answered = self.queue.is_empty()
            && self.probing.as_ref().is_some_and(|probing| probing.sent <= 1)
            && !self.user_timeout_config().covers_zero_window;
        if probing_answered {
            return self.arm_user_timeout(now);
        }
        self.end(Some(ConnectionError::UserTimeout));
    }
}
