//! Everything that differs between TCPs, in one value. Named sets are in [`crate::Profile`].

use holdover_base::Duration;

/// How a connection behaves. Shared by all connections of a kind (`Arc<Config>`).
///
/// The fields are grouped by the RFC or the part of TCP that they steer. [`Config::rfc`] is what the current standards
/// say; a [`crate::Profile`] is what a named stack does.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// The largest segment this side is willing to receive, in bytes of data (RFC 9293 section 3.7.1). The MTU less the
    /// bytes of the IP and TCP headers.
    pub mss: u16,
    /// The window scale shift that is offered; `None` offers none (RFC 7323 section 2).
    pub window_scale: Option<u8>,
    /// Whether SACK is offered (RFC 2018).
    pub sack: bool,
    /// Whether duplicates are reported by DSACK (RFC 2883).
    pub dsack: bool,
    /// The timestamp clock's tick; `None` offers no timestamps (RFC 7323 section 3).
    pub timestamps: Option<Duration>,
    /// Which segments with an old timestamp are taken all the same.
    pub paws: Paws,
    /// Explicit Congestion Notification (RFC 3168).
    pub ecn: Ecn,
    /// Sending.
    pub send: SendConfig,
    /// Receiving.
    pub receive: ReceiveConfig,
    /// Loss detection and recovery.
    pub recovery: RecoveryConfig,
    /// Congestion control.
    pub congestion: CongestionConfig,
    /// The retransmission timer.
    pub rto: RtoConfig,
    /// Probing zero windows.
    pub persist: PersistConfig,
    /// Giving up, and keeping alive.
    pub limits: LimitConfig,
    /// The user timeout option (RFC 5482).
    pub user_timeout: UserTimeoutConfig,
    /// Data in SYNs (RFC 7413).
    pub fast_open: FastOpenConfig,
}

/// Protection against wrapped sequence numbers: what becomes of a segment whose timestamp is older than the latest (RFC 7323
/// section 5). Where packets overtake each other, most of these are ACKs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paws {
    /// It is dropped and answered by an ACK (section 5.3, R1).
    Rfc7323,
    /// It is taken if it is one tick old, or if it carries no data, repeats RCV.NXT and SND.UNA, may not update the send window, and is no
    /// older than a retransmission timeout: a duplicate ACK that was overtaken, whose SACK blocks are news (Linux
    /// `tcp_disordered_ack`, since 2.4).
    LinuxDuplicates,
    /// Besides, one without data that begins before RCV.NXT is dropped without an answer (Linux since 6.14,
    /// `TCP_RFC7323_PAWS_ACK`; the kernel's counter is `PAWSOldAck`).
    LinuxOldAcks,
}

/// TCP Fast Open (RFC 7413). A client uses it where it is asked to, by [`crate::Endpoint::connect_fast_open`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FastOpenConfig {
    /// As a server: how many connections may be the application's at a time whose handshake has not ended (section 5.1,
    /// PendingFastOpenRequests). With 0, data in SYNs is not taken and no cookies are given.
    pub max_pending: u32,
    /// As a server: data is taken from a SYN without a valid cookie, too (Linux `tcp_fastopen` & 0x200).
    pub takes_without_cookie: bool,
    /// As a client: data is sent in the SYN without a cookie (Linux `tcp_fastopen` & 4).
    pub sends_without_cookie: bool,
    /// As a server: the key of a listener's own cookies, in place of the endpoint's.
    pub key: Option<[u8; 16]>,
}

impl FastOpenConfig {
    /// No data in SYNs, and no cookies.
    pub const OFF: Self = Self { max_pending: 0, takes_without_cookie: false, sends_without_cookie: false, key: None };
}

/// Whether Explicit Congestion Notification is used (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ecn {
    /// Never.
    Off,
    /// If the peer asks for it (Linux `tcp_ecn` = 2, the default).
    Accept,
    /// It is asked for in the SYN, and accepted (Linux `tcp_ecn` = 1).
    Request,
}

/// How data is sent.
#[derive(Clone, PartialEq, Debug)]
pub struct SendConfig {
    /// Bytes that wait to be sent or acknowledged before [`crate::Connection::write`] takes no more.
    pub buffer_bytes: u32,
    /// Whether a small segment waits while data is outstanding (Nagle, RFC 9293 section 3.7.4).
    pub nagle: bool,
    /// Whether it waits only while another small segment is outstanding: the end of a write of several segments then goes out
    /// at once (Minshall's variant, as in Linux).
    pub minshall: bool,
    /// Which segments with nothing new may change the peer's window.
    pub window_update: WindowUpdate,
    /// How long less than a full segment may wait for a window that stays small
    /// (the override timeout of RFC 9293 section 3.8.6.2.1: 0.1 to 1 s).
    pub silly_window_override: Duration,
}

/// Whether an ACK that repeats sequence and acknowledgment number may change the send window.
///
/// It decides whether a sender can be stopped by a zero window on a pure duplicate ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowUpdate {
    /// Any may (RFC 9293 section 3.10.7.4: SND.WL1 = SEG.SEQ and SND.WL2 =< SEG.ACK).
    Rfc9293,
    /// Only to open it (Linux before the change below).
    LargerOnly,
    /// To open it or to close it altogether (Linux 6.18, measured).
    LargerOrZero,
}

/// How data is received and acknowledged.
#[derive(Clone, PartialEq, Debug)]
pub struct ReceiveConfig {
    /// The receive buffer at first, in bytes.
    pub buffer_bytes: u32,
    /// The size up to which the buffer grows by itself while the reader keeps up; equal to `buffer_bytes` for a fixed one.
    pub max_buffer_bytes: u32,
    /// How it grows.
    pub growth: BufferGrowth,
    /// The largest window that is advertised at first; it grows by two segments for each one received, as in Linux
    /// (`rcv_ssthresh`). `u32::MAX` advertises the whole buffer from the start.
    pub initial_window_bytes: u32,
    /// When to acknowledge.
    pub ack: AckPolicy,
    /// Whether, under [`AckPolicy::Adaptive`], a segment that lets the advertised window grow is acknowledged at once, so that the
    /// sender hears of it (Linux `tcp_grow_window`).
    pub quick_while_growing: bool,
}

/// How the receive buffer grows when the reader takes more in a round trip (`read`) than ever before (`most`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferGrowth {
    /// Linux 2.6.7 to 6.15: to w + min(w, 2 w (read - most) / most) bytes, where w is 2 read and 16 segments.
    Linux2_6,
    /// Linux 6.18: to w + 2 w (read - most) / most bytes, where w is 2 read and `most` begins with 10 segments; also for data beyond a hole.
    /// A buffer that grows counts memory, of which half is taken for data until a segment shows more or less (Linux `scaling_ratio`).
    Linux6_18,
}

/// When data is acknowledged (RFC 9293 section 3.8.6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckPolicy {
    /// Every segment at once.
    Immediate,
    /// Every second full-sized segment at once, others after `delay`. With a `tick`, delays end on its multiples
    /// (4.3BSD's 200 ms fast timeout).
    Delayed {
        /// The longest delay.
        delay: Duration,
        /// The grain of the delay; zero for none.
        tick: Duration,
    },
    /// As Linux does it: the first `quick_acks` segments, and those after a pause, are acknowledged at once; after that
    /// every second full-sized segment, others after a delay that follows the spacing of arrivals.
    Adaptive {
        /// How many segments are acknowledged at once after the start or a pause.
        quick_acks: u8,
        /// The shortest delay.
        min: Duration,
        /// The longest delay.
        max: Duration,
    },
}

/// How losses are detected and repaired.
#[derive(Clone, PartialEq, Debug)]
pub struct RecoveryConfig {
    /// The algorithm for connections on which SACK was agreed.
    pub with_sack: LossDetection,
    /// The algorithm for all others.
    pub without_sack: LossDetection,
    /// Duplicate ACKs that begin recovery (RFC 5681: 3).
    pub dup_ack_threshold: u32,
    /// How cwnd comes down to ssthresh in recovery.
    pub reduction: Reduction,
    /// New data on the first two duplicate ACKs (RFC 3042).
    pub limited_transmit: bool,
    /// Whether recovery by [`LossDetection::Sack`] sends again what is not held lost, if the window has room and there is nothing
    /// new: holes below what was SACKed, and once the end of what is outstanding (RFC 6675 section 4, NextSeg rules 3 and 4).
    pub repair_ahead: bool,
    /// Tail loss probes (RFC 8985 section 7). Only with RACK.
    pub loss_probe: bool,
    /// Forward RTO-Recovery (RFC 5682).
    pub frto: bool,
    /// Eifel detection by timestamps and DSACK, and undoing what a spurious timeout or recovery did
    /// (RFC 3522, RFC 3708, RFC 4015).
    pub undo: bool,
    /// Whether fast retransmit is barred until everything that was outstanding at a timeout is acknowledged
    /// (RFC 6582 section 4, "recover"). 4.3BSD does not bar it.
    pub bar_after_timeout: bool,
    /// Whether ssthresh is cut again at each timeout of the same segment (4.3BSD, ns-2), or once (RFC 5681 section 3.1).
    pub cut_on_each_timeout: bool,
    /// Whether a duplicate ACK must carry a SACK block with news to count (ns-2 Sack1).
    pub dup_ack_needs_new_sack: bool,
    /// Whether recovery by [`LossDetection::Sack`] counts what is in flight by ACKs alone: what was outstanding less the duplicate
    /// ACKs that began it, less one for each ACK and one more for each that advances, plus what it sends (Fall and Floyd,
    /// "Simulation-based Comparisons of Tahoe, Reno and SACK TCP", section 4; ns-2 Sack1). What is lost stays in flight, so that a sender
    /// that has lost more than half of its window waits for its timer. RFC 6675 takes out what is lost.
    pub pipe_by_acks: bool,
    /// Whether a timeout forgets what was SACKed (RFC 2018 section 8; ns-2 Sack1), so that all of it is sent again.
    pub timeout_forgets_sacks: bool,
    /// The most segments that reordering is tolerated for (Linux: 300).
    pub max_reordering: u32,
    /// What happens to outstanding data when the peer closes its window.
    pub zero_window: ZeroWindow,
}

/// How a loss is inferred from acknowledgments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossDetection {
    /// 4.3BSD Tahoe: the third duplicate ACK is taken for a timeout.
    Tahoe,
    /// 4.3BSD Reno: fast recovery that ends with the first ACK that advances.
    Reno,
    /// RFC 6582: a partial ACK shows the next hole.
    NewReno,
    /// RFC 6675: a segment is lost when enough data above it has been SACKed.
    Sack,
    /// Forward acknowledgment: everything more than the threshold below the highest SACK is lost (Linux 2.4).
    Fack,
    /// RFC 8985: a segment is lost when one sent sufficiently later has arrived.
    Rack,
}

/// How cwnd comes down to ssthresh in recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// At once (RFC 5681, RFC 6675).
    Immediate,
    /// By one segment for every second ACK (Linux 2.1 to 3.1).
    RateHalving,
    /// Proportional rate reduction (RFC 6937).
    Proportional,
}

/// What a sender does with outstanding data when the peer closes its window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZeroWindow {
    /// It keeps the retransmission timer and sends the first outstanding segment at each run, cutting ssthresh each
    /// time (Linux).
    Retransmit,
    /// It freezes the retransmission timer where it is, and probes; the timer goes on when the window opens (the persist mode that
    /// the profile `sack1-ns2` copies).
    Freeze,
    /// It stops the retransmission timer, takes what is outstanding back to be sent again, and probes (4.3BSD).
    PullBack,
}

/// Congestion control.
#[derive(Clone, PartialEq, Debug)]
pub struct CongestionConfig {
    /// How the window grows and shrinks.
    pub algorithm: Algorithm,
    /// The window at the start.
    pub initial_window: InitialWindow,
    /// Whether an ACK opens the window by what it acknowledges (RFC 3465) or by one segment whatever it acknowledges.
    pub counting: AckCounting,
    /// Which ACKs open the window.
    pub increase: CwndIncrease,
    /// How often a SYN may be retransmitted before the connection begins with a window of one segment (RFC 5681 section
    /// 3.1: 0; Linux: 1).
    pub syn_retransmissions_forgiven: u32,
    /// What ssthresh is computed from when a loss shows.
    pub ssthresh_basis: SsthreshBasis,
    /// Whether the window decays while idle and while the application does not use it (RFC 2861, as Linux does it:
    /// `tcp_slow_start_after_idle`).
    pub validate_after_idle: bool,
    /// Whether the window is cut to the initial one after one idle RTO (RFC 5681 section 4.1, 4.3BSD).
    pub restart_after_idle: bool,
    /// Slow start leaves on a growing delay.
    pub hystart: bool,
    /// How it does.
    pub hystart_variant: HyStartVariant,
    /// The largest window in segments (`snd_cwnd_clamp`; ns-2: `window_`).
    pub max_window_segments: u32,
    /// Whether data is spread over the round trip, and how fast; `None` sends as fast as ACKs allow, as Linux does unless a socket
    /// or queueing discipline asks for pacing.
    pub pacing: Option<PacingConfig>,
}

/// The pacing rate as a share of cwnd / SRTT, in percent (Linux `tcp_pacing_ss_ratio` and `tcp_pacing_ca_ratio`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacingConfig {
    /// While cwnd is less than half of ssthresh.
    pub slow_start_percent: u32,
    /// From there on.
    pub avoidance_percent: u32,
}

impl PacingConfig {
    /// Linux's ratios: 200 % and 120 %.
    pub const LINUX: Self = Self { slow_start_percent: 200, avoidance_percent: 120 };
}

/// The congestion control algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// Additive increase, multiplicative decrease by half (RFC 5681).
    Reno,
    /// RFC 9438.
    Cubic,
    /// BBR version 1, as in Linux (draft-cardwell-iccrg-bbr-congestion-control-00). Always paced.
    Bbr,
    /// BBR version 3 as published (draft-ietf-ccwg-bbr-06). Always paced.
    Bbr3,
}

impl Algorithm {
    /// Whether the window follows a model of the path, and losses and idle time leave it alone.
    pub const fn is_model_based(self) -> bool {
        matches!(self, Self::Bbr | Self::Bbr3)
    }

    /// Whether it does not work without pacing.
    pub const fn is_paced(self) -> bool {
        match self {
            Self::Reno | Self::Cubic => false,
            Self::Bbr | Self::Bbr3 => true,
        }
    }
}

/// How slow start finds out that it has filled the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HyStartVariant {
    /// HyStart as in Linux's CUBIC, and with no other algorithm: by the delay and by the length of trains of ACKs.
    Linux,
    /// HyStart++ (RFC 9406), in the first slow start of a connection.
    Rfc9406,
}

/// The congestion window at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitialWindow {
    /// So many segments.
    Segments(u32),
    /// min(4 MSS, max(2 MSS, 4380 bytes)) (RFC 3390).
    Rfc3390,
    /// min(10 MSS, max(2 MSS, 14600 bytes)) (RFC 6928).
    Rfc6928,
}

/// By how much an ACK opens the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckCounting {
    /// As one segment, whatever it acknowledges (4.3BSD, ns-2).
    PerAck,
    /// As the segments it acknowledges (RFC 3465, Linux).
    PerSegment,
}

/// Which ACKs of new data open the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CwndIncrease {
    /// Those that come while the congestion window is what limits sending (RFC 7661, Linux `tcp_is_cwnd_limited`).
    WhileLimiting,
    /// All, also where the peer's window or the application is the limit, up to the largest window that the peer can advertise (4.3BSD's
    /// `TCP_MAXWIN`; ns-2, which opens with every ACK, too, bounds what it sends by its `window_`).
    EveryAck,
}

/// What ssthresh is computed from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SsthreshBasis {
    /// What is in flight (RFC 5681, equation 4).
    FlightSize,
    /// The congestion window (Linux).
    CongestionWindow,
    /// The smaller of the congestion window and the peer's window (4.3BSD, ns-2).
    SendWindow,
}

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
    /// Timers run for exactly as long as they are set, whatever the tick.
    Ns2,
}

/// Probing zero windows (RFC 9293 section 3.8.6.1).
#[derive(Clone, PartialEq, Debug)]
pub struct PersistConfig {
    /// The least time to the first probe; the RTO if that is longer.
    pub min: Duration,
    /// The ceiling of the backoff.
    pub max: Duration,
    /// What a probe carries.
    pub payload: ProbePayload,
    /// After how many unanswered probes the connection is given up; `None` never.
    pub give_up_after: Option<u32>,
}

/// What a window probe carries.
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
    /// Retransmissions of a segment before the application is told (R1, RFC 9293 section 3.8.3).
    pub r1: u32,
    /// Retransmissions of a segment before the connection is given up (R2).
    pub r2: RetryLimit,
    /// Keep-alives; `None` for none, the default that RFC 9293 section 3.8.4 asks for.
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
    /// Whether a segment that acknowledges what was never sent is answered by an ACK (RFC 9293 section 3.10.7.4, RFC 5961
    /// section 5.2) or dropped in silence (Linux).
    pub answers_ack_of_unsent: bool,
    /// Whether an ICMP error that says that a host or network is out of reach ends an attempt to connect, as Linux has it; RFC 9293
    /// section 3.9.2.2 (MUST-56) forbids it.
    pub unreachable_ends_connecting: bool,
}

/// When to give up retransmitting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryLimit {
    /// After so many retransmissions.
    Retries(u32),
    /// When as much time has passed since the first retransmission as so many would take from an RTO of 200 ms on
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
    /// ADV_UTO: what is advertised to the peer; `None` advertises nothing.
    pub advertise: Option<Duration>,
    /// CHANGEABLE: whether the peer's advertisement may change the timeout.
    pub changeable: bool,
    /// L_LIMIT: the least that is adopted.
    pub lower_limit: Duration,
    /// U_LIMIT: the most that is adopted.
    pub upper_limit: Duration,
    /// Whether the timeout also ends a connection whose zero-window probes are answered (Linux does).
    pub covers_zero_window: bool,
}

impl Config {
    /// What the current standards say, CUBIC included.
    pub const fn rfc() -> Self {
        Self {
            mss: 1460,
            window_scale: Some(7),
            sack: true,
            dsack: true,
            timestamps: Some(Duration::from_millis(1)),
            paws: Paws::Rfc7323,
            ecn: Ecn::Off,
            send: SendConfig {
                buffer_bytes: 4 << 20,
                nagle: true,
                minshall: false,
                window_update: WindowUpdate::Rfc9293,
                silly_window_override: Duration::from_millis(500),
            },
            receive: ReceiveConfig {
                buffer_bytes: 4 << 20,
                max_buffer_bytes: 4 << 20,
                growth: BufferGrowth::Linux2_6,
                initial_window_bytes: u32::MAX,
                ack: AckPolicy::Delayed { delay: Duration::from_millis(200), tick: Duration::ZERO },
                quick_while_growing: false,
            },
            recovery: RecoveryConfig {
                with_sack: LossDetection::Rack,
                without_sack: LossDetection::NewReno,
                dup_ack_threshold: 3,
                reduction: Reduction::Proportional,
                limited_transmit: true,
                repair_ahead: true,
                loss_probe: true,
                frto: true,
                undo: true,
                bar_after_timeout: true,
                cut_on_each_timeout: false,
                dup_ack_needs_new_sack: false,
                pipe_by_acks: false,
                timeout_forgets_sacks: false,
                max_reordering: 300,
                zero_window: ZeroWindow::Retransmit,
            },
            congestion: CongestionConfig {
                algorithm: Algorithm::Cubic,
                initial_window: InitialWindow::Rfc6928,
                counting: AckCounting::PerSegment,
                increase: CwndIncrease::WhileLimiting,
                syn_retransmissions_forgiven: 0,
                ssthresh_basis: SsthreshBasis::FlightSize,
                validate_after_idle: false,
                restart_after_idle: true,
                hystart: false,
                hystart_variant: HyStartVariant::Rfc9406,
                max_window_segments: u32::MAX,
                pacing: None,
            },
            rto: RtoConfig {
                initial: Duration::from_secs(1),
                min: Duration::from_secs(1),
                max: Duration::from_secs(60),
                tick: Duration::ZERO,
                estimator: Estimator::Rfc6298,
                one_sample_per_window: false,
                samples_echo: false,
            },
            persist: PersistConfig {
                min: Duration::ZERO,
                max: Duration::from_secs(60),
                payload: ProbePayload::OneByte,
                give_up_after: None,
            },
            limits: LimitConfig {
                // RFC 9293 section 3.8.3: R2 of a SYN at least 3 minutes; 1+2+4+8+16+32+60+60 s is the first sum above.
                syn_retries: 7,
                syn_linear_timeouts: 0,
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
            },
            user_timeout: UserTimeoutConfig {
                timeout: None,
                advertise: None,
                changeable: true,
                lower_limit: Duration::from_secs(100),
                upper_limit: Duration::from_secs(7 * 86_400),
                covers_zero_window: false,
            },
            fast_open: FastOpenConfig::OFF,
        }
    }

    /// The window scale shift needed so that `bytes` fit into the 16 bits of the window field (RFC 7323 section 2.3).
    pub const fn window_scale_for(bytes: u32) -> u8 {
        let mut shift = 0;
        while shift < 14 && bytes >> shift > 0xffff {
            shift += 1;
        }
        shift
    }
}

impl InitialWindow {
    /// The window in segments of `mss` bytes.
    pub const fn segments(self, mss: u32) -> u32 {
        let (most, bytes) = match self {
            Self::Segments(n) => return n,
            Self::Rfc3390 => (4, 4380),
            Self::Rfc6928 => (10, 14_600),
        };
        let by_bytes = bytes / mss;
        if by_bytes < 2 {
            2
        } else if by_bytes > most {
            most
        } else {
            by_bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_windows_follow_their_rfcs() {
        assert_eq!(InitialWindow::Rfc6928.segments(1460), 10);
        assert_eq!(InitialWindow::Rfc6928.segments(9000), 2);
        assert_eq!(InitialWindow::Rfc3390.segments(1460), 3);
        assert_eq!(InitialWindow::Rfc3390.segments(536), 4);
        assert_eq!(InitialWindow::Rfc3390.segments(2200), 2);
    }

    #[test]
    fn the_window_scale_is_the_smallest_that_fits() {
        assert_eq!(Config::window_scale_for(0xffff), 0);
        assert_eq!(Config::window_scale_for(0x1_0000), 1);
        assert_eq!(Config::window_scale_for(6 << 20), 7);
        assert_eq!(Config::window_scale_for(u32::MAX), 14);
    }
}
