//! Loss detection and recovery.

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
    /// Whether recovery by [`LossDetection::Sack`] retransmits segments that are not presumed lost, if the window has room and there is no new
    /// data: holes below SACKed data, and once the end of the outstanding data (RFC 6675 section 4, NextSeg rules 3 and 4).
    pub repair_ahead: bool,
    /// Tail loss probes (RFC 8985 section 7). Only with RACK.
    pub loss_probe: bool,
    /// Forward RTO-Recovery (RFC 5682).
    pub frto: bool,
    /// Eifel detection by timestamps and DSACK, and undoing the effects of a spurious timeout or recovery (RFC 3522, RFC 3708, RFC 4015).
    pub undo: bool,
    /// Whether fast retransmit is barred until everything that was outstanding at a timeout is acknowledged
    /// (RFC 6582 section 4, "recover"). 4.3BSD does not bar it.
    pub bar_after_timeout: bool,
    /// Whether ssthresh is cut again at each timeout of the same segment (4.3BSD, ns-2), or once (RFC 5681 section 3.1).
    pub cut_on_each_timeout: bool,
    /// Whether a duplicate ACK must carry a new SACK block to count (ns-2 Sack1).
    pub dup_ack_needs_new_sack: bool,
    /// Whether recovery by [`LossDetection::Sack`] counts the data in flight by ACKs alone: the outstanding segments less the duplicate
    /// ACKs that began it, less one for each ACK and one more for each that advances, plus the segments that it sends (Fall and Floyd,
    /// "Simulation-based Comparisons of Tahoe, Reno and SACK TCP", section 4; ns-2 Sack1). Lost segments still count, so that a sender that
    /// has lost more than half of its window waits for its timer. RFC 6675 subtracts lost segments.
    pub pipe_by_acks: bool,
    /// Whether a timeout clears the SACK marks (RFC 2018 section 8; ns-2 Sack1), so that all outstanding data is sent again.
    pub timeout_forgets_sacks: bool,
    /// The most segments that reordering is tolerated for (Linux: 300).
    pub max_reordering: u32,
    /// The treatment of outstanding data when the peer closes its window.
    pub zero_window: ZeroWindow,
}

impl RecoveryConfig {
    pub(super) const RFC: Self = Self {
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
    };
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

/// The treatment of outstanding data when the peer closes its window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZeroWindow {
    /// It keeps the retransmission timer and sends the first outstanding segment at each run, cutting ssthresh each
    /// time (Linux).
    Retransmit,
    /// It freezes the retransmission timer where it is, and probes; the timer continues when the window opens (the persist mode of
    /// the profile `sack1-ns2`).
    Freeze,
    /// It stops the retransmission timer, takes SND.NXT back to SND.UNA, so that outstanding data is sent again, and probes (4.3BSD).
    PullBack,
}
