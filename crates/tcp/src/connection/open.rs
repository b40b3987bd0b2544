//! Opening a connection (RFC 9293 sections 3.5 and 3.10.1) and negotiating options.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_wire::{Flags, RareOptions, Segment, Seq, TcpOptions, Timestamps, UserTimeout};

use super::ecn::EcnState;
use super::fields::{AckState, Pending, ReceiveSpace, SendSpace, TimestampState};
use super::{Connection, Event, EventSet};
use crate::config::Config;
use crate::congestion::CongestionWindow;
use crate::counters::Counters;
use crate::ecn::EcnField;
use crate::on_demand::OnDemand;
use crate::receive_buffer::ReceiveBuffer;
use crate::recovery::Recovery;
use crate::recovery::queue::RetransmissionQueue;
use crate::recovery::sent::Sent;
use crate::rtt::RttEstimator;
use crate::send_buffer::SendBuffer;
use crate::state::State;
use crate::timers::{Timer, Timers};

/// The MSS of a peer that sends no MSS option: 536 bytes over IPv4, 1220 over IPv6 (RFC 9293 section 3.7.1).
const fn default_mss(remote: IpAddr) -> u16 {
    if remote.is_ipv6() { 1220 } else { 536 }
}

/// Parameters of a new connection: addresses and initial numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// The local address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// The initial send sequence number (chosen as in RFC 6528).
    pub iss: Seq,
    /// Offset of the timestamp clock (RFC 7323 section 7.1).
    pub timestamp_offset: u32,
}

impl Connection {
    /// Opens a connection actively (OPEN, RFC 9293 section 3.10.1): a SYN is what [`Self::poll_transmit`] returns next.
    pub fn connect(now: Instant, config: Arc<Config>, opening: Opening) -> Self {
        let mut connection = Self::new(now, config, opening, State::SynSent, false);
        connection.send_syn(now);
        connection
    }

    /// Opens a connection passively with the SYN that a listener received (RFC 9293 section 3.10.7.2, third). The caller
    /// has checked that `syn` is a SYN without ACK and RST.
    pub fn accept(now: Instant, config: Arc<Config>, opening: Opening, syn: &Segment) -> Self {
        Self::accept_with_ecn(now, config, opening, syn, EcnField::NotEct)
    }

    /// As [`Self::accept`], with a SYN whose packet has this ECN field (RFC 3168).
    pub fn accept_with_ecn(now: Instant, config: Arc<Config>, opening: Opening, syn: &Segment, ecn: EcnField) -> Self {
        let mut connection = Self::new(now, config, opening, State::SynReceived, true);
        connection.note_ecn_field(ecn);
        connection.take_syn(now, syn);
        connection.send_syn(now);
        connection
    }

    pub(super) fn new(now: Instant, config: Arc<Config>, opening: Opening, state: State, passive: bool) -> Self {
        let Opening { local, remote, iss, timestamp_offset } = opening;
        let mss = u32::from(config.mss.min(default_mss(remote.ip())));
        Self {
            state,
            passive,
            local: local.into(),
            remote: remote.into(),
            error: None,
            snd: SendSpace::new(now, iss, mss),
            rcv: ReceiveSpace::new(now, &config.receive, mss.min(u32::from(config.mss))),
            sack: config.sack,
            ecn: EcnState::default(),
            accurate_ecn: None,
            timestamps: config.timestamps.map(|_| TimestampState {
                recent: 0,
                recent_at: now,
                offset: timestamp_offset,
            }),
            unsent: SendBuffer::default(),
            queue: RetransmissionQueue::default(),
            received: ReceiveBuffer::default(),
            recovery: Recovery::new(&config.recovery),
            congestion: CongestionWindow::new(&config.congestion, mss, now),
            rtt: RttEstimator::new(&config.rto),
            ack: AckState::new(now, &config.receive.ack),
            pending: Pending::empty(),
            retransmit_head: None,
            probing: None,
            fast_open: None,
            heard_at: now,
            steering: OnDemand::absent(),
            pacer: None,
            model: None,
            timers: Timers::default(),
            challenges: OnDemand::absent(),
            events: EventSet::default(),
            frozen_by_window: false,
            sent_data: false,
            push_pending: false,
            counters: Counters::default(),
            config,
        }
    }

    /// Puts our SYN at the head of the queue; it occupies ISS.
    fn send_syn(&mut self, now: Instant) {
        self.snd.nxt = self.snd.iss + 1;
        self.queue.push(Sent::new(now, self.snd.iss, bytes::Bytes::new()).with_flags(Flags::SYN));
        self.pending.insert(Pending::HANDSHAKE);
        self.arm_retransmit(now, self.rtt.rto());
        self.arm_user_timeout(now);
    }

    /// Takes the peer's SYN: its sequence number, window and options.
    pub(super) fn take_syn(&mut self, now: Instant, syn: &Segment) {
        self.rcv.irs = syn.seq;
        self.rcv.nxt = syn.seq + 1;
        self.rcv.wup = self.rcv.nxt;
        self.rcv.last_ack_sent = self.rcv.nxt;
        self.heard_at = now;
        self.agree_on_ecn(syn);
        self.take_syn_options(now, &syn.options);
        // RFC 7323 section 2.2: the window in a SYN is never scaled.
        self.snd.wnd = u32::from(syn.window);
        self.snd.max_wnd = self.snd.wnd;
        self.snd.wl1 = syn.seq;
        self.snd.wl2 = syn.ack;
    }

    fn take_syn_options(&mut self, now: Instant, options: &TcpOptions) {
        // No peer may ask for segments that are tiny: it would multiply the work per byte.
        let offered = options.mss.unwrap_or(default_mss(self.remote.ip)).max(self.config.path_mtu.min_mss);
        self.snd.peer_mss = offered;
        // Our own limit bounds what we send as well: both ends of a path share its MTU.
        let header_room = if options.timestamps.is_some() && self.timestamps.is_some() { 12 } else { 0 };
        self.snd.mss = u32::from(offered.min(self.config.mss)).saturating_sub(header_room).max(1);
        // The path's limit towards us may be smaller than ours: the full segment size is measured (Linux
        // `tcp_initialize_rcv_mss`).
        self.rcv.mss = u32::from(self.config.mss).saturating_sub(header_room).clamp(1, 536);
        self.sack &= options.sack_permitted;
        match (options.timestamps, &mut self.timestamps) {
            (Some(ts), Some(state)) => {
                state.recent = ts.val;
                state.recent_at = now;
            }
            (None, state) => *state = None,
            (Some(_), None) => {}
        }
        self.start_mtu_search(now, offered);
        // RFC 7323 section 2.3: a shift above 14 is taken for 14; both sides scale or none.
        match (options.window_scale, self.config.window_scale) {
            (Some(theirs), Some(ours)) => {
                self.snd.scale_agreed = true;
                self.snd.scale = theirs.min(14);
                self.rcv.scale = ours.min(14);
            }
            _ => {
                self.snd.scale = 0;
                self.rcv.scale = 0;
            }
        }
        self.congestion = CongestionWindow::new(&self.config.congestion, self.snd.mss, now);
        if let Some(option) = options.user_timeout {
            self.take_user_timeout_option(now, option);
        }
    }

    /// The options of our SYN or SYN-ACK. An answer has only options that the SYN has offered (RFC 7323 sections 1.3 and 3.2).
    pub(super) fn syn_options(&self, now: Instant) -> TcpOptions {
        let answering = self.state == State::SynReceived && self.passive;
        let scaling = self.config.window_scale.filter(|_| !answering || self.snd.scale_agreed);
        let rare = RareOptions {
            mss: Some(self.syn_mss()),
            window_scale: scaling.map(|shift| shift.min(14)),
            sack_permitted: self.sack,
            user_timeout: self.user_timeout_config().advertise.and_then(UserTimeout::from_duration),
            ..RareOptions::default()
        };
        let timestamps =
            self.timestamps.as_ref().map(|ts| Timestamps { val: self.timestamp_clock(now), ecr: ts.recent });
        TcpOptions { timestamps, ..rare.into() }
    }

    /// The handshake is complete: ESTABLISHED (RFC 9293 section 3.10.7.4, fifth, SYN-RECEIVED).
    pub(super) fn establish(&mut self, segment: &Segment) {
        self.state = State::Established;
        self.snd.wnd = if segment.flags.contains(Flags::SYN) {
            u32::from(segment.window)
        } else {
            u32::from(segment.window) << self.snd.scale
        };
        self.snd.max_wnd = self.snd.wnd;
        self.snd.wl1 = segment.seq;
        self.snd.wl2 = segment.ack;
        self.recovery.high_seq = self.snd.nxt;
        self.recovery.retransmits = 0;
        self.grow_send_buffer();
        // RFC 5482 section 3.1: a SYN's option may be lost or stripped; the first segment after it carries it again.
        self.pending.set(Pending::USER_TIMEOUT_OPTION, self.user_timeout_config().advertise.is_some());
    }

    /// RFC 5482 section 3.1: the peer's option may change our user timeout.
    pub(super) fn take_user_timeout_option(&mut self, now: Instant, option: UserTimeout) {
        let remote = option.duration();
        // A value of zero is reserved and ignored (section 2).
        let config = self.user_timeout_config();
        if !config.changeable || remote.is_zero() {
            return;
        }
        let local = config.advertise.unwrap_or(Duration::ZERO);
        let adopted = local.max(remote).max(config.lower_limit).min(config.upper_limit);
        if config.timeout != Some(adopted) {
            self.user_timeout_config_mut().timeout = Some(adopted);
            self.events.insert(Event::UserTimeoutChanged);
            self.arm_user_timeout(now);
        }
    }

    pub(super) fn arm_keep_alive(&mut self, now: Instant) {
        if let Some(keep_alive) = self.config.limits.keep_alive {
            self.timers.arm(now, Timer::KeepAlive, keep_alive.idle);
        }
    }

    /// The user timeout runs from the moment there is something unacknowledged, or by
    /// [`crate::UserTimeoutConfig::from_retransmission`] from its first retransmission on.
    pub(super) fn arm_user_timeout(&mut self, now: Instant) {
        match self.user_timeout() {
            Some(timeout) if self.is_user_timeout_due() => {
                let config = self.user_timeout_config();
                let is_counted = config.from_retransmission && self.recovery.retransmits > 0;
                let since = self.recovery.episode.retransmit_stamp.filter(|_| is_counted).unwrap_or(now);
                let passed = now.saturating_since(since);
                self.timers.arm(now, Timer::UserTimeout, timeout.saturating_sub(passed));
            }
            _ => self.timers.disarm(Timer::UserTimeout),
        }
    }

    /// Whether anything waits for an answer for which the user timeout runs.
    fn is_user_timeout_due(&self) -> bool {
        let waits = self.user_timeout_config().from_retransmission && self.state.is_synchronized();
        let is_probing = self.probing.as_ref().is_some_and(|probing| !waits || probing.sent > 0);
        is_probing || (!self.queue.is_empty() && (!waits || self.recovery.retransmits > 0))
    }
}
