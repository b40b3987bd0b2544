//! Congestion control.

/// Congestion control.
#[derive(Clone, PartialEq, Debug)]
pub struct CongestionConfig {
    /// How the window grows and shrinks.
    pub algorithm: Algorithm,
    /// The window at the start.
    pub initial_window: InitialWindow,
    /// Whether an ACK opens the window by the acknowledged data (RFC 3465), or always by one segment.
    pub counting: AckCounting,
    /// The ACKs that open the window.
    pub increase: CwndIncrease,
    /// How often a SYN may be retransmitted before the connection begins with a window of one segment (RFC 5681 section
    /// 3.1: 0; Linux: 1).
    pub syn_retransmissions_forgiven: u32,
    /// The base of ssthresh at a loss.
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
    /// or queueing discipline enables pacing.
    pub pacing: Option<PacingConfig>,
}

impl CongestionConfig {
    pub(super) const RFC: Self = Self {
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
    };
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

/// By how much an ACK opens the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckCounting {
    /// By one segment (4.3BSD, ns-2).
    PerAck,
    /// By the segments that it acknowledges (RFC 3465, Linux).
    PerSegment,
}

/// The ACKs of new data that open the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CwndIncrease {
    /// Those that come while the congestion window is what limits sending (RFC 7661, Linux `tcp_is_cwnd_limited`).
    WhileLimiting,
    /// All, also where the peer's window or the application is the limit, up to the largest window that the peer can advertise (4.3BSD's
    /// `TCP_MAXWIN`; ns-2 also opens with every ACK, and bounds the data in flight by its `window_`).
    EveryAck,
}

/// The base of ssthresh.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SsthreshBasis {
    /// Data in flight (RFC 5681, equation 4).
    FlightSize,
    /// The congestion window (Linux).
    CongestionWindow,
    /// The smaller of the congestion window and the peer's window (4.3BSD, ns-2).
    SendWindow,
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
}
