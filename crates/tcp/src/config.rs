//! Everything that differs between TCPs, in one value. Named sets are in [`crate::Profile`].

mod congestion;
mod path_mtu;
mod recovery;
mod timers;

use holdover_base::Duration;

pub use congestion::{
    AckCounting, Algorithm, CongestionConfig, CwndIncrease, HyStartVariant, InitialWindow, PacingConfig, SsthreshBasis,
};
pub use path_mtu::{MtuProbing, PathMtuConfig, UnreportedMtu};
pub use recovery::{LossDetection, RecoveryConfig, Reduction, ZeroWindow};
pub use timers::{
    Estimator, KeepAlive, LimitConfig, PersistConfig, ProbePayload, RetryLimit, RtoConfig, UserTimeoutConfig,
};

/// How a connection behaves. Shared by all connections of a kind (`Arc<Config>`).
///
/// The fields are grouped by the RFC or the part of TCP that they steer. [`Config::rfc`] follows the current standards, a
/// [`crate::Profile`] a named stack.
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
    /// The segments that are accepted despite an old timestamp.
    pub paws: Paws,
    /// Explicit Congestion Notification (RFC 3168).
    pub ecn: Ecn,
    /// Accurate ECN (RFC 9768), where `ecn` allows it.
    pub accurate_ecn: AccurateEcnConfig,
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
    /// Path MTU discovery by probing (RFC 4821).
    pub path_mtu: PathMtuConfig,
}

/// Protection against wrapped sequence numbers: the treatment of a segment whose timestamp is older than the latest (RFC 7323
/// section 5). Where packets overtake each other, most of these are ACKs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paws {
    /// It is dropped and answered by an ACK (section 5.3, R1).
    Rfc7323,
    /// It is taken if it is one tick old, or if it carries no data, repeats RCV.NXT and SND.UNA, may not update the send window, and is no
    /// older than a retransmission timeout: a duplicate ACK that was overtaken, whose SACK blocks are new (Linux
    /// `tcp_disordered_ack`, since 2.4).
    LinuxDuplicates,
    /// Besides, one without data that begins before RCV.NXT is dropped without an answer (Linux since 6.14,
    /// `TCP_RFC7323_PAWS_ACK`; the kernel's counter is `PAWSOldAck`).
    LinuxOldAcks,
}

/// TCP Fast Open (RFC 7413). A client uses it in [`crate::Endpoint::connect_fast_open`] only.
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

/// Whether Explicit Congestion Notification is used (RFC 3168), and with which feedback: once in a round trip, or accurate (RFC 9768). An
/// end that supports both uses the one that its peer supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ecn {
    /// Never.
    Off,
    /// If the peer requests it (Linux `tcp_ecn` = 2, the default).
    Accept,
    /// It is requested in the SYN, and accepted (Linux `tcp_ecn` = 1).
    Request,
    /// Accurate feedback is requested in the SYN, and accepted (Linux `tcp_ecn` = 3).
    RequestAccurate,
    /// Accurate feedback is accepted; the SYN requests ECN (Linux `tcp_ecn` = 4).
    AcceptAccurateRequest,
    /// Accurate feedback is accepted; the SYN requests nothing (Linux `tcp_ecn` = 5).
    AcceptAccurate,
}

impl Ecn {
    /// Whether accurate feedback is accepted.
    pub const fn accepts_accurate(self) -> bool {
        matches!(self, Self::RequestAccurate | Self::AcceptAccurateRequest | Self::AcceptAccurate)
    }
}

/// Accurate ECN (RFC 9768), once it is agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccurateEcnConfig {
    /// When options are sent (Linux `tcp_ecn_option`).
    pub option: AccurateEcnOption,
    /// How many options are sent in a round trip at least, where segments leave; 0 for no such minimum (Linux `tcp_ecn_option_beacon`).
    pub beacons: u32,
    /// Whether signs of a path that rewrites the ECN field or the flags end the use of ECN (Linux `tcp_ecn_fallback`). It also decides
    /// whether retransmitted SYNs stop requesting it.
    pub fallback: bool,
    /// Where the standard leaves a choice, or Linux differs from it.
    pub rules: AccurateEcnRules,
}

impl AccurateEcnConfig {
    const RFC: Self =
        Self { option: AccurateEcnOption::Full, beacons: 3, fallback: true, rules: AccurateEcnRules::Rfc9768 };
}

/// When a segment carries the option of Accurate ECN (RFC 9768 section 3.2.3.3); under [`AccurateEcnRules::Linux`] not before one of the
/// peer's has arrived.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AccurateEcnOption {
    /// Never.
    Off,
    /// When the counters change, and as often as [`AccurateEcnConfig::beacons`] requires.
    Minimum,
    /// Whenever there is room, unless segments with it seem to get lost.
    Full,
    /// Whenever there is room.
    Persist,
}

/// Choices that RFC 9768 leaves open, and those of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccurateEcnRules {
    /// Only new data is ECN-capable (RFC 3168 section 6.1). Marks are reported at once by the recommended rules of section 3.2.2.5.1. A turn
    /// of the counter is ruled out as in appendix A.2.
    Rfc9768,
    /// Linux 7.2: all segments but SYNs are ECN-capable. Data whose ECN field differs from that of the packet before is acknowledged at once,
    /// or if six marks are not reported. The decoder also uses the usual size of ACKs, and the share of bytes with CE. A flags field of 0
    /// is found only in the ACK of a SYN-ACK.
    Linux,
}

/// How data is sent.
#[derive(Clone, PartialEq, Debug)]
pub struct SendConfig {
    /// Bytes that wait to be sent or acknowledged before [`crate::Connection::write`] takes no more.
    pub buffer_bytes: u32,
    /// The largest size to which the buffer grows with the congestion window (Linux `tcp_wmem[2]`). The size is fixed if this does not exceed
    /// [`Self::buffer_bytes`].
    pub max_buffer_bytes: u32,
    /// Whether a small segment waits while data is outstanding (Nagle, RFC 9293 section 3.7.4).
    pub nagle: bool,
    /// Whether it waits only while another small segment is outstanding: the end of a write of several segments then goes out
    /// at once (Minshall's variant, as in Linux).
    pub minshall: bool,
    /// The segments without news that may change the peer's window.
    pub window_update: WindowUpdate,
    /// How long less than a full segment may wait for a window that stays small
    /// (the override timeout of RFC 9293 section 3.8.6.2.1: 0.1 to 1 s).
    pub silly_window_override: Duration,
    /// Whether new data leaves in bursts, and waits for the next ACK if that makes a larger one (Linux `tcp_tso_should_defer`). Paced
    /// connections have the pacer's bursts.
    pub defer_bursts: bool,
}

impl SendConfig {
    /// A buffer of `bytes` that does not grow (`SO_SNDBUF`).
    pub fn fix_buffer(&mut self, bytes: u32) {
        self.buffer_bytes = bytes;
        self.max_buffer_bytes = bytes;
    }

    const RFC: Self = Self {
        buffer_bytes: 4 << 20,
        max_buffer_bytes: 4 << 20,
        nagle: true,
        minshall: false,
        window_update: WindowUpdate::Rfc9293,
        silly_window_override: Duration::from_millis(500),
        defer_bursts: false,
    };
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
    /// The treatment of data beyond the window.
    pub beyond_window: BeyondWindow,
    /// Whether, under [`AckPolicy::Adaptive`], a segment that lets the advertised window grow is acknowledged at once, so that the
    /// sender learns of it (Linux `tcp_grow_window`).
    pub quick_while_growing: bool,
    /// Whether, with SACK, one ACK stands for several segments out of order after the first three (Linux `tcp_comp_sack_delay_ns`).
    pub compress_sacks: bool,
    /// The size of the segments that the device has merged into a longer one (Linux `gso_size`), if it is known; else their size is taken
    /// for our MSS.
    pub merged_segment_bytes: Option<u16>,
}

impl ReceiveConfig {
    const RFC: Self = Self {
        buffer_bytes: 4 << 20,
        max_buffer_bytes: 4 << 20,
        growth: BufferGrowth::Linux2_6,
        initial_window_bytes: u32::MAX,
        ack: AckPolicy::Delayed { delay: Duration::from_millis(200), tick: Duration::ZERO },
        beyond_window: BeyondWindow::Cut,
        quick_while_growing: false,
        compress_sacks: false,
        merged_segment_bytes: None,
    };
}

/// The treatment of a segment that begins in the window and reaches beyond it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BeyondWindow {
    /// It is cut at the edge (RFC 9293 section 3.10.7.4).
    Cut,
    /// It is taken whole if nothing waits to be read, and else dropped and answered; a FIN alone is taken even if the window is closed
    /// (Linux since 6.18, `tcp_sequence` and `tcp_data_queue`).
    WholeIfRead,
}

/// How the receive buffer grows when the reader takes more in a round trip (`read`) than ever before (`most`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferGrowth {
    /// Linux 2.6.7 to 6.15: to w + min(w, 2 w (read - most) / most) bytes, where w is 2 read and 16 segments.
    Linux2_6,
    /// Linux 6.18: to w + 2 w (read - most) / most bytes, where w is 2 read and `most` begins with 10 segments; also for data beyond a hole.
    /// A buffer that grows counts memory; half of it is assumed to be data until a segment shows the actual share (Linux `scaling_ratio`).
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

impl Config {
    /// The current standards, CUBIC included.
    pub const fn rfc() -> Self {
        Self {
            mss: 1460,
            window_scale: Some(7),
            sack: true,
            dsack: true,
            timestamps: Some(Duration::from_millis(1)),
            paws: Paws::Rfc7323,
            ecn: Ecn::Off,
            accurate_ecn: AccurateEcnConfig::RFC,
            send: SendConfig::RFC,
            receive: ReceiveConfig::RFC,
            recovery: RecoveryConfig::RFC,
            congestion: CongestionConfig::RFC,
            rto: RtoConfig::RFC,
            persist: PersistConfig::RFC,
            limits: LimitConfig::RFC,
            user_timeout: UserTimeoutConfig::RFC,
            fast_open: FastOpenConfig::OFF,
            path_mtu: PathMtuConfig::RFC,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_scale_is_the_smallest_that_fits() {
        assert_eq!(Config::window_scale_for(0xffff), 0);
        assert_eq!(Config::window_scale_for(0x1_0000), 1);
        assert_eq!(Config::window_scale_for(6 << 20), 7);
        assert_eq!(Config::window_scale_for(u32::MAX), 14);
    }
}
