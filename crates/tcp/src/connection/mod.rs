//! One TCP connection (RFC 9293), without I/O.
//!
//! Time and segments come in as arguments, segments and events go out as values. The methods of [`Connection`] fall into
//! five groups:
//!
//! - **getters**, which change nothing;
//! - **commands** of the application: [`write`](Connection::write), [`read`](Connection::read),
//!   [`shutdown_write`](Connection::shutdown_write), [`close`](Connection::close), [`abort`](Connection::abort);
//! - **verbs** of the owner, with which a mechanism steers the connection: clamp the window, hold the ACK point, retransmit
//!   now and so on. They are general; no mechanism is named here;
//! - **`handle_*`**, which report events to it: a segment arrived, an ICMP error arrived, a deadline passed;
//! - **`poll_*`**, which return its output: segments to send, events for the application, the next deadline.
//!
//! After any call from the first four groups that takes `now`, a shell calls [`poll_transmit`](Connection::poll_transmit)
//! until it returns `None`, then [`poll_event`](Connection::poll_event) until it returns `None`, and last
//! [`poll_timeout`](Connection::poll_timeout). The order matters: the segments sent determine the next deadline.
//!
//! The code is split by processing step, not by state: `input` walks an arriving segment through the steps of RFC 9293 section 3.10.7.4 in
//! their printed order, of which `paws` checks the timestamp. `ack` takes its acknowledgment and `sack` its blocks. `loss`, `rack` and `undo`
//! decide which segments are lost, and which were not. `choice` decides what to send next and why, `build` and `output` send it. `timeout`
//! handles deadlines, and `receive` the window and the ACKs.

mod accurate_ecn;
mod ack;
mod both_ways;
mod build;
mod choice;
mod commands;
mod ecn;
mod events;
pub(crate) mod fast_open;
mod fields;
mod icmp;
mod input;
mod loss;
mod model;
mod open;
mod output;
mod pace;
mod path_mtu;
mod paws;
mod predict;
mod rack;
mod receive;
mod resume;
mod sack;
mod send_room;
mod snapshot;
mod timeout;
mod undo;
mod verbs;

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_wire::{Packet, Segment, Seq};

use crate::config::{Config, UserTimeoutConfig};
use crate::congestion::CongestionWindow;
use crate::counters::{Counters, Reason};
use crate::ecn::EcnField;
use crate::on_demand::OnDemand;
use crate::pacing::Pacer;
use crate::receive_buffer::ReceiveBuffer;
use crate::recovery::queue::RetransmissionQueue;
use crate::recovery::{Recovery, RecoveryState};
use crate::rtt::RttEstimator;
use crate::send_buffer::SendBuffer;
use crate::state::{ConnectionError, State};
use crate::timers::{Timer, Timers};
use accurate_ecn::AccurateState;
use ecn::EcnState;
use events::EventSet;
use fast_open::FastOpenState;
use fields::{AckState, Address, ChallengeBudget, Pending, Probing, ReceiveSpace, SendSpace, Steering, TimestampState};

use model::Model;

pub use accurate_ecn::AccurateEcnSeen;
pub use ecn::Feedback as EcnFeedback;
pub use events::Event;
pub use icmp::IcmpEffect;
pub use open::Opening;
pub use resume::Resumption;
pub use snapshot::{Fin, Snapshot};
pub use verbs::AfterRetransmit;

/// One TCP connection. See the module documentation for the order of calls.
#[derive(Clone, PartialEq, Debug)]
pub struct Connection {
    config: Arc<Config>,
    local: Address,
    remote: Address,
    state: State,
    /// Whether the connection came from a listener: a reset in SYN-RECEIVED goes unnoticed by the application.
    passive: bool,
    error: Option<ConnectionError>,
    snd: SendSpace,
    rcv: ReceiveSpace,
    /// Agreed options.
    sack: bool,
    ecn: EcnState,
    /// Present with accurate ECN feedback.
    accurate_ecn: Option<Box<AccurateState>>,
    timestamps: Option<TimestampState>,
    unsent: SendBuffer,
    queue: RetransmissionQueue,
    received: ReceiveBuffer,
    recovery: Recovery,
    congestion: CongestionWindow,
    rtt: RttEstimator,
    ack: AckState,
    pending: Pending,
    /// The first outstanding segment is to be sent again, independent of the windows.
    retransmit_head: Option<Reason>,
    /// Zero-window probing, while it lasts.
    probing: Option<Box<Probing>>,
    /// When anything last arrived.
    heard_at: Instant,
    /// Data in the SYN, or a cookie for it.
    fast_open: Option<Box<FastOpenState>>,
    steering: OnDemand<Steering>,
    /// The pacer, if the connection is paced.
    pacer: Option<Box<Pacer>>,
    /// The model of the path, if congestion control uses one.
    model: Option<Box<Model>>,
    timers: Timers,
    challenges: OnDemand<ChallengeBudget>,
    events: EventSet,
    /// The retransmission timer is held because the peer's window is closed (`ZeroWindow::Freeze`).
    frozen_by_window: bool,
    /// A burst of sending is in progress: its effect on the window is computed at its end.
    sent_data: bool,
    /// An ACK or the application has called for new data to be sent, and what that means for the window is not settled
    /// (Linux `tcp_push_pending_frames`).
    push_pending: bool,
    counters: Counters,
}

/// A segment to send, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The segment.
    pub segment: Segment,
    /// Why it is sent.
    pub reason: Reason,
    /// The ECN field of its packet.
    pub ecn: EcnField,
}

/// Getters.
impl Connection {
    /// The local address and port. IPv6 flow labels and scopes are not kept.
    pub fn local(&self) -> SocketAddr {
        self.local.into()
    }

    /// The peer's address and port.
    pub fn remote(&self) -> SocketAddr {
        self.remote.into()
    }

    /// The local and the remote IP address.
    #[inline]
    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.local.ip, self.remote.ip)
    }

    /// Whether nothing is to be sent, nothing is outstanding and no ACK is due, as at a receiver between its ACKs:
    /// [`Self::poll_transmit`] has nothing to decide.
    #[inline]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.ack.due.is_none() && self.sends_only_acks()
    }

    /// Whether nothing is to be sent and nothing is outstanding, but for an ACK that may be due.
    #[inline]
    fn sends_only_acks(&self) -> bool {
        self.state == State::Established
            && self.ack.requested == 0
            && self.unsent.is_empty()
            && self.queue.is_empty()
            && !self.snd.closing
            && !self.sent_data
            && self.pacer.is_none()
            && self.accurate_ecn.is_none()
            && !self.has_pending()
    }

    /// Whether a transmission besides data and ACKs is pending. Leave to send less than a full segment is not one.
    #[inline(always)]
    fn has_pending(&self) -> bool {
        self.retransmit_head.is_some() || self.pending.intersects(Pending::SILLY_WINDOW_OVERRIDE.complement())
    }

    /// Whether `packet` is from the peer to here.
    #[inline]
    pub(crate) fn is_addressed_by(&self, packet: &Packet, segment: &Segment) -> bool {
        (self.local.port, self.remote.port) == (segment.dst_port, segment.src_port)
            && self.local.ip == packet.dst
            && self.remote.ip == packet.src
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why the connection ended, if not in good order.
    pub fn error(&self) -> Option<ConnectionError> {
        self.error
    }

    /// How it behaves.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Its counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// SND.UNA: the oldest unacknowledged sequence number.
    pub fn snd_una(&self) -> Seq {
        self.snd.una
    }

    /// SND.NXT: the next sequence number to send.
    pub fn snd_nxt(&self) -> Seq {
        self.snd.nxt
    }

    /// Our FIN's sequence number, once it was sent.
    pub fn fin_sent(&self) -> Option<Seq> {
        self.snd.fin
    }

    /// SND.WND: the peer's window in bytes.
    pub fn snd_wnd(&self) -> u32 {
        self.snd.wnd
    }

    /// The largest window that the peer has offered, in bytes.
    pub fn max_snd_wnd(&self) -> u32 {
        self.snd.max_wnd
    }

    /// Whether the application has filled the send buffer, and a third of it has not come free since.
    pub fn is_buffer_full(&self) -> bool {
        self.snd.buffer_was_full
    }

    /// RCV.NXT: the next sequence number expected.
    pub fn rcv_nxt(&self) -> Seq {
        self.rcv.nxt
    }

    /// The largest segment that is sent, in bytes of data.
    pub fn snd_mss(&self) -> u32 {
        self.snd.mss
    }

    /// The congestion window in segments.
    pub fn cwnd(&self) -> u32 {
        self.congestion.cwnd()
    }

    /// The slow-start threshold in segments; `None` before the first loss.
    pub fn ssthresh(&self) -> Option<u32> {
        let ssthresh = self.congestion.ssthresh();
        (ssthresh < crate::congestion::INFINITE_SSTHRESH).then_some(ssthresh)
    }

    /// Segments presumed in flight: RFC 6675's pipe, or in recovery what
    /// [`crate::config::RecoveryConfig::pipe_by_acks`] counts.
    pub fn in_flight(&self) -> u32 {
        if self.counts_pipe_by_acks() { self.recovery.episode.pipe } else { self.queue.in_flight() }
    }

    /// Segments sent and not acknowledged cumulatively.
    pub fn unacked(&self) -> u32 {
        self.queue.packets_out()
    }

    /// Outstanding segments that the peer has SACKed, or that duplicate ACKs stand for.
    pub fn sacked(&self) -> u32 {
        self.queue.sacked()
    }

    /// Outstanding segments that are presumed lost.
    pub fn lost(&self) -> u32 {
        self.queue.lost()
    }

    /// Outstanding segments that were sent again and are not known to have arrived.
    pub fn retransmitted(&self) -> u32 {
        self.queue.retransmitted()
    }

    /// How many segments' reordering is tolerated before a loss is inferred.
    pub fn reordering(&self) -> u32 {
        self.recovery.reordering
    }

    /// How often segments have turned out to be reordered, not lost, up to `u16::MAX` (Linux `tcpi_reord_seen`).
    pub fn reordering_seen(&self) -> u16 {
        self.recovery.reordering_seen
    }

    /// Probes of a closed window, or keep-alives, that were not answered.
    pub fn unanswered_probes(&self) -> u32 {
        self.probing.as_ref().map_or(self.snd.keep_alives_unanswered.into(), |probing| probing.sent)
    }

    /// Snd.Wind.Shift and Rcv.Wind.Shift; `None` if scaling was not agreed.
    pub fn window_scales(&self) -> Option<(u8, u8)> {
        self.snd.scale_agreed.then_some((self.snd.scale, self.rcv.scale))
    }

    /// The size of a full segment of the peer, in bytes of data.
    pub fn rcv_mss(&self) -> u32 {
        self.rcv.mss
    }

    /// When data last arrived.
    pub fn last_data_received_at(&self) -> Instant {
        self.ack.last_data_at
    }

    /// When data was last sent, for the first time or again.
    pub fn last_data_sent_at(&self) -> Instant {
        self.snd.last_data_at
    }

    /// The state of loss recovery.
    pub fn recovery_state(&self) -> RecoveryState {
        self.recovery.state
    }

    /// The smoothed round-trip time; `None` before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    /// The variation of the round-trip time.
    pub fn rttvar(&self) -> Duration {
        self.rtt.rttvar()
    }

    /// The least round-trip time seen.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.rtt.min_rtt()
    }

    /// The retransmission timeout, backed off.
    pub fn rto(&self) -> Duration {
        self.rtt.rto()
    }

    /// How often the retransmission timeout was doubled since the last sample.
    pub fn backoff(&self) -> u32 {
        self.rtt.backoff()
    }

    /// Consecutive retransmissions of the first outstanding segment by the timer.
    pub fn retransmits(&self) -> u32 {
        self.recovery.retransmits
    }

    /// Whether SACK was agreed.
    pub fn sack_agreed(&self) -> bool {
        self.sack
    }

    /// Whether timestamps were agreed.
    pub fn timestamps_agreed(&self) -> bool {
        self.timestamps.is_some()
    }

    /// Bytes written that are not acknowledged yet.
    pub fn send_queue_len(&self) -> usize {
        self.unsent.len() + (self.snd.nxt - self.snd.una) as usize
    }

    /// Bytes written that are not sent yet.
    pub fn unsent_len(&self) -> usize {
        self.unsent.len()
    }

    /// Bytes that can be read.
    pub fn readable_len(&self) -> usize {
        self.received.readable_len()
    }

    /// Bytes of data held by the receiver, in order or not.
    pub fn receive_buffer_len(&self) -> usize {
        self.received.held()
    }

    /// The user timeout in force; `None` leaves R2 alone to decide.
    pub fn user_timeout(&self) -> Option<Duration> {
        self.user_timeout_config().timeout
    }

    /// When `timer` ends, if it is armed and not held.
    pub fn deadline(&self, timer: Timer) -> Option<Instant> {
        self.timers.deadline(timer)
    }

    /// The end of the urgent data that the peer has announced, for an application to learn whether more is to be read (RFC 9293
    /// section 3.8.5, MUST-33). `None` if all of it has arrived.
    pub fn urgent_until(&self) -> Option<Seq> {
        self.rcv.urgent
    }

    /// Whether the peer opened the connection.
    pub fn is_passive(&self) -> bool {
        self.passive
    }

    /// Whether `segment` has a timestamp later than any seen on this connection.
    pub fn is_newer_by_timestamp(&self, segment: &Segment) -> bool {
        match (&self.timestamps, segment.options.timestamps) {
            (Some(state), Some(ts)) => (ts.val.wrapping_sub(state.recent) as i32) > 0,
            _ => false,
        }
    }

    /// Checks that the bookkeeping agrees with itself, for tests and fuzzing.
    ///
    /// # Panics
    ///
    /// If it does not, which is a bug of this crate.
    pub fn assert_invariants(&self) {
        self.queue.assert_consistent();
        assert!(self.snd.una.le(self.snd.nxt), "SND.UNA is beyond SND.NXT");
        assert!(self.congestion.cwnd() >= 1, "the congestion window is closed");
        let front = self.queue.front().map_or(self.snd.nxt, |front| front.seq);
        assert!(self.state == State::Closed || front == self.snd.una, "the queue does not begin at SND.UNA");
        assert!(self.ack_point().le(self.rcv.nxt), "what was not received is acknowledged");
        let timed = [Timer::Retransmit, Timer::LossProbe, Timer::Reorder, Timer::Persist];
        let timer_runs = timed.iter().any(|&timer| self.timers.is_armed(timer));
        let must_run = !self.queue.is_empty() && self.state != State::Closed;
        assert!(timer_runs || !must_run, "data is outstanding and no timer runs");
    }

    /// Whether everything is over and the connection can be dropped.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether all of the peer's data was read: its FIN has arrived, or the connection has ended without an error.
    pub fn is_read_out(&self) -> bool {
        let is_over = self.is_closed() && self.error().is_none();
        let has_closed = self.state.is_synchronized() && !self.state.may_receive();
        (is_over || has_closed) && self.readable_len() == 0
    }
}

/// Output of the connection.
impl Connection {
    /// The next event; call until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// The next deadline and its purpose. [`Self::handle_timeout`] is due then.
    pub fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        self.timers.next()
    }

    /// The time of [`Self::poll_timeout`], or [`Instant::FAR_FUTURE`].
    #[inline]
    pub(crate) fn earliest_deadline(&self) -> Instant {
        self.timers.earliest()
    }
}

/// Small steps that several parts share.
impl Connection {
    /// The connection is over. Everything it held is given back; a pending reset can still be polled.
    fn end(&mut self, error: Option<ConnectionError>) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.error = error;
        self.timers.disarm_all();
        self.unsent.clear();
        self.queue.clear();
        self.pending = Pending::empty();
        self.retransmit_head = None;
        self.ack.due = None;
        self.ack.requested = 0;
        self.events.insert(Event::Closed);
    }

    /// TIME-WAIT ends before its time: the peer has opened a new connection between the same addresses.
    pub(crate) fn end_time_wait(&mut self) {
        self.end(None);
    }

    fn arm_retransmit(&mut self, now: Instant, delay: Duration) {
        self.timers.disarm(Timer::LossProbe);
        self.timers.disarm(Timer::Reorder);
        let delay = RttEstimator::on_tick(&self.config.rto, now, delay);
        self.timers.arm(now, Timer::Retransmit, delay);
    }

    /// Whether a timer is armed whose expiry retransmits.
    fn is_retransmission_timed(&self) -> bool {
        [Timer::Retransmit, Timer::LossProbe, Timer::Reorder].iter().any(|&timer| self.timers.is_armed(timer))
    }

    /// The peer's window in segments, for windows counted in segments.
    fn peer_window_segments(&self) -> u32 {
        self.snd.wnd / self.snd.mss.max(1)
    }

    /// The user timeout in force, the advertised one, and the rules for both.
    pub fn user_timeout_config(&self) -> &UserTimeoutConfig {
        self.steering.user_timeout.as_deref().unwrap_or(&self.config.user_timeout)
    }

    fn user_timeout_config_mut(&mut self) -> &mut UserTimeoutConfig {
        let own = &mut self.steering.to_mut().user_timeout;
        own.get_or_insert_with(|| Box::new(self.config.user_timeout.clone()))
    }

    /// The timestamp clock at `now`.
    #[inline(always)]
    fn timestamp_clock(&self, now: Instant) -> u32 {
        let offset = self.timestamps.as_ref().map_or(0, |ts| ts.offset);
        let ticks = match self.config.timestamps {
            // The usual tick is a constant to divide by, which is a multiplication.
            None | Some(MILLISECOND) => now.as_millis(),
            Some(tick) => whole_ticks(now, tick),
        };
        (ticks as u32).wrapping_add(offset)
    }

    /// The largest sequence number the peer may acknowledge: SND.NXT, and one more after a probe with a byte.
    pub fn snd_max(&self) -> Seq {
        self.snd.nxt + u32::from(self.snd.probed_byte)
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// Ticks since the start of the run. Not inlined, as the compiler would join it with the division by the usual tick.
#[inline(never)]
fn whole_ticks(now: Instant, tick: Duration) -> u64 {
    now.as_nanos() / tick.as_nanos().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host has many connections that do nothing. A field that such a one does not need belongs into a [`OnDemand`]; for one
    /// that it does need there are a few bytes of slack here, and 1 KiB in all (see the endpoint's test).
    #[test]
    fn an_idle_connection_is_small() {
        let size = size_of::<Connection>();
        assert!(size <= 832, "{size}");
    }
}
