//! Timers: retransmission, window probes, keep-alive, and when to give up.

use holdover_base::Duration;

/// The retransmission timer (RFC 6298).
#[derive(Clone, PartialEq, Debug)]
pub struct RtoConfig {
    /// Before the first sample.
    pub initial: Duration,
    /// The floor.
    pub min: Duration,
    /// The ceiling, backed off or not.
    pub max: Duration,
    /// The grain of the clock: samples are measured in it, and timers end on its multiples (but not with [`Estimator::Ns2`]). Zero for
    /// none.
    pub tick: Duration,
    /// How samples become an RTO.
    pub estimator: Estimator,
    /// Whether only one segment is timed per window, as without timestamps in 4.3BSD; else every segment is.
    pub one_sample_per_window: bool,
    /// Whether timestamps, where they were agreed, are the only source of samples (RFC 7323 section 4.1; ns-2). Otherwise the time at which
    /// the segment was sent is taken where that is unambiguous (Linux).
    pub samples_echo: bool,
}

impl RtoConfig {
    pub(super) const RFC: Self = Self {
        initial: Duration::from_secs(1),
        min: Duration::from_secs(1),
        max: Duration::from_secs(60),
        tick: Duration::ZERO,
        estimator: Estimator::Rfc6298,
        one_sample_per_window: false,
        samples_echo: false,
    };
}

/// How samples of the round-trip time become an RTO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Estimator {
    /// RFC 6298 section 2: SRTT + max(G, 4 RTTVAR), the floor applied to the sum.
    Rfc6298,
    /// Linux: the variance is the largest of a window, decays slowly, and the floor applies to it, so that
    /// RTO >= SRTT + floor.
    Linux,
    /// The TCP agents of ns-2.1b7 (`rtt_update` in `tcp.cc`): 4.3BSD's arithmetic on whole ticks, samples rounded to the nearest
    /// one and never less than one. The variance does not fall below three quarters of a tick, so that RTO >= SRTT + 3 ticks.
    /// Timers run for exactly as long as they are set, independent of the tick.
    Ns2,
}

/// Probing zero windows (RFC 9293 section 3.8.6.1).
#[derive(Clone, PartialEq, Debug)]
pub struct PersistConfig {
    /// The least time to the first probe; the RTO if that is longer.
    pub min: Duration,
    /// The ceiling of the backoff.
    pub max: Duration,
    /// The content of a probe.
    pub payload: ProbePayload,
    /// After how many unanswered probes the connection is given up; `None` never.
    pub give_up_after: Option<u32>,
}

impl PersistConfig {
    pub(super) const RFC: Self =
        Self { min: Duration::ZERO, max: Duration::from_secs(60), payload: ProbePayload::OneByte, give_up_after: None };
}

/// The content of a window probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbePayload {
    /// Nothing, with a sequence number that was acknowledged before (Linux).
    Empty,
    /// The next byte beyond the window (RFC 9293, 4.3BSD).
    OneByte,
}

/// When to give up, and keep-alives.
#[derive(Clone, PartialEq, Debug)]
pub struct LimitConfig {
    /// Retransmissions of a SYN or SYN-ACK before giving up.
    pub syn_retries: u32,
    /// Timeouts of a SYN, not a SYN-ACK, that come before these and do not double the next one (Linux 6.5 and later,
    /// `tcp_syn_linear_timeouts`).
    pub syn_linear_timeouts: u32,
    /// Until this many timeouts of a SYN-ACK, an ACK without data does not end the handshake; after the first such ACK no SYN-ACK is sent
    /// before the last of these timeouts (Linux `TCP_DEFER_ACCEPT`); 0 for none.
    pub deferred_timeouts: u32,
    /// Retransmissions of a segment before the application is notified (R1, RFC 9293 section 3.8.3).
    pub r1: u32,
    /// Retransmissions of a segment before the connection is given up (R2).
    pub r2: RetryLimit,
    /// Keep-alives; `None` for none, the default of RFC 9293 section 3.8.4.
    pub keep_alive: Option<KeepAlive>,
    /// How long TIME-WAIT lasts: 2 MSL.
    pub time_wait: Duration,
    /// How long a connection whose application has gone stays in FIN-WAIT-2.
    pub fin_wait_2: Duration,
    /// At most this many challenge ACKs in a second (RFC 5961 section 10).
    pub challenge_acks_per_second: u16,
    /// Challenge ACKs, and answers to unacceptable segments without data and FIN, are at least so far apart; `None` for no such limit
    /// (Linux `tcp_invalid_ratelimit`, since 4.0).
    pub invalid_ack_interval: Option<Duration>,
    /// Whether a segment that acknowledges data that was never sent is answered by an ACK (RFC 9293 section 3.10.7.4, RFC 5961 section 5.2;
    /// Linux 6.18.44) or dropped in silence (Linux 6.12).
    pub answers_ack_of_unsent: bool,
    /// Whether an ICMP error of an unreachable host or network ends an attempt to connect, as in Linux; RFC 9293
    /// section 3.9.2.2 (MUST-56) forbids it.
    pub unreachable_ends_connecting: bool,
    /// Whether an ICMP error may quote SND.NXT (Linux `tcp_v4_err`), which nothing outstanding has (RFC 5927 section 4.1).
    pub icmp_may_quote_next: bool,
}

impl LimitConfig {
    pub(super) const RFC: Self = Self {
        // RFC 9293 section 3.8.3: R2 of a SYN at least 3 minutes; 1+2+4+8+16+32+60+60 s is the first sum above.
        syn_retries: 7,
        syn_linear_timeouts: 0,
        deferred_timeouts: 0,
        r1: 3,
        // RFC 9293 section 3.8.3: R2 at least 100 s; 1+2+4+8+16+32+60 s, and one more for good measure.
        r2: RetryLimit::Retries(8),
        keep_alive: None,
        time_wait: Duration::from_secs(240),
        fin_wait_2: Duration::from_secs(60),
        challenge_acks_per_second: 100,
        invalid_ack_interval: None,
        answers_ack_of_unsent: true,
        unreachable_ends_connecting: false,
        icmp_may_quote_next: false,
    };
}

/// When to give up retransmitting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryLimit {
    /// After this number of retransmissions.
    Retries(u32),
    /// When as much time has passed since the first retransmission as this number would take from an RTO of 200 ms on
    /// (Linux, `tcp_retries2`).
    LinuxTime(u32),
    /// Never; only the user timeout ends the connection.
    Never,
}

/// Keep-alive probing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// How long the connection is idle before the first probe.
    pub idle: Duration,
    /// The time between probes.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up.
    pub probes: u32,
}

/// The user timeout and its option (RFC 5482 section 3).
#[derive(Clone, PartialEq, Debug)]
pub struct UserTimeoutConfig {
    /// USER_TIMEOUT at the start; `None` leaves R2 alone to decide.
    pub timeout: Option<Duration>,
    /// ADV_UTO: the timeout advertised to the peer; `None` advertises nothing.
    pub advertise: Option<Duration>,
    /// CHANGEABLE: whether the peer's advertisement may change the timeout.
    pub changeable: bool,
    /// L_LIMIT: the least that is adopted.
    pub lower_limit: Duration,
    /// U_LIMIT: the most that is adopted.
    pub upper_limit: Duration,
    /// Whether the timeout also ends a connection whose zero-window probes are answered (Linux does).
    pub covers_zero_window: bool,
    /// Whether it runs from the first zero-window probe (Linux `icsk_probes_tstamp`), or from the first retransmission of the loss episode,
    /// once its timer has run out (`retransmits_timed_out`), and not from when the data was sent or the window closed. That of a handshake
    /// runs from the SYN.
    pub from_retransmission: bool,
}

impl UserTimeoutConfig {
    pub(super) const RFC: Self = Self {
        timeout: None,
        advertise: None,
        changeable: true,
        lower_limit: Duration::from_secs(100),
        upper_limit: Duration::from_secs(7 * 86_400),
        covers_zero_window: false,
        from_retransmission: false,
    };
}
