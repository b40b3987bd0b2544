//! Groups of a connection's state, with their initial values.

use core::net::{IpAddr, SocketAddr};

use holdover_base::{Duration, Instant};
use holdover_wire::{Seq, SeqRange};

use crate::config::{AckPolicy, ReceiveConfig, UserTimeoutConfig};
use crate::counters::Reason;
use crate::on_demand::{Absent, OnDemand};
use crate::path_mtu::MtuSearch;
use crate::right_sizing::{ASSUMED_SHARE, RightSizing};

/// An address and port: a [`SocketAddr`] without the flow label and scope that a TCP segment does not have.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Address {
    pub(crate) ip: IpAddr,
    pub(crate) port: u16,
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self { ip: address.ip(), port: address.port() }
    }
}

impl From<Address> for SocketAddr {
    fn from(address: Address) -> Self {
        Self::new(address.ip, address.port)
    }
}

/// The send sequence space (RFC 9293 section 3.3.1), in the RFC's names.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SendSpace {
    /// ISS.
    pub(crate) iss: Seq,
    /// SND.UNA.
    pub(crate) una: Seq,
    /// SND.NXT.
    pub(crate) nxt: Seq,
    /// SND.WND in bytes, scaled.
    pub(crate) wnd: u32,
    /// SND.WL1 and SND.WL2.
    pub(crate) wl1: Seq,
    pub(crate) wl2: Seq,
    /// Max(SND.WND).
    pub(crate) max_wnd: u32,
    /// The end of the latest segment that was less than a full one (`snd_sml` in Linux).
    pub(crate) sml: Seq,
    /// Snd.Wind.Shift, and whether scaling was agreed (a shift may be 0).
    pub(crate) scale: u8,
    pub(crate) scale_agreed: bool,
    /// The largest segment that is sent, in bytes of data, timestamps taken off.
    pub(crate) mss: u32,
    /// The MSS that the peer's SYN has offered.
    pub(crate) peer_mss: u16,
    /// The end of the urgent data, SND.UP.
    pub(crate) urgent: Option<Seq>,
    /// The owner has closed: a FIN follows the data.
    pub(crate) closing: bool,
    /// The FIN's sequence number, once sent.
    pub(crate) fin: Option<Seq>,
    /// The SYN or SYN-ACK has been sent at least once.
    pub(crate) handshake_sent: bool,
    /// Less than a full segment waits until the owner uncorks, or until the next ACK.
    pub(crate) corked: bool,
    pub(crate) more_follows: bool,
    /// Segments that the current burst still holds, with [`crate::SendConfig::defer_bursts`].
    pub(crate) burst_left: u8,
    /// The last write completed the application's data: its end is marked by PSH.
    pub(crate) pushed: bool,
    /// A window probe has carried the first unsent byte: the peer may acknowledge one byte beyond SND.NXT.
    pub(crate) probed_byte: bool,
    /// The application has filled the send buffer, and a third of it has not come free since (Linux `SOCK_NOSPACE`).
    pub(crate) buffer_was_full: bool,
    /// The size to which the send buffer has grown.
    pub(crate) grown_buffer: u32,
    /// Keep-alive probes sent since anything last arrived.
    pub(crate) keep_alives_unanswered: u16,
    /// When data was last sent, for the first time or again.
    pub(crate) last_data_at: Instant,
    /// The one segment that is being timed, where only one is.
    pub(crate) timed: Option<Box<Timed>>,
}

impl SendSpace {
    /// Before the SYN.
    pub(super) fn new(now: Instant, iss: Seq, mss: u32) -> Self {
        Self {
            iss,
            una: iss,
            nxt: iss,
            wnd: 0,
            wl1: Seq::default(),
            wl2: Seq::default(),
            max_wnd: 0,
            sml: iss,
            scale: 0,
            scale_agreed: false,
            mss,
            peer_mss: 0,
            urgent: None,
            closing: false,
            fin: None,
            handshake_sent: false,
            corked: false,
            more_follows: false,
            burst_left: 0,
            pushed: true,
            probed_byte: false,
            buffer_was_full: false,
            grown_buffer: 0,
            keep_alives_unanswered: 0,
            last_data_at: now,
            timed: None,
        }
    }
}

/// A segment whose round trip is measured.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Timed {
    pub(crate) end: Seq,
    pub(crate) sent_at: Instant,
}

/// The receive sequence space and the window that is advertised.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ReceiveSpace {
    /// IRS.
    pub(crate) irs: Seq,
    /// RCV.NXT.
    pub(crate) nxt: Seq,
    /// The ACK of the last window advertisement, and that window: their sum is the right edge.
    pub(crate) wup: Seq,
    pub(crate) wnd: u32,
    /// Rcv.Wind.Shift.
    pub(crate) scale: u8,
    /// The share of the buffer's memory that is data, in 256ths.
    pub(crate) share: u8,
    /// The buffer in bytes of data.
    pub(crate) capacity: u32,
    /// The most that is advertised, growing towards the capacity.
    pub(crate) limit: u32,
    /// The largest data segment seen: what counts as full-sized.
    pub(crate) mss: u32,
    /// Last.ACK.sent.
    pub(crate) last_ack_sent: Seq,
    /// The peer's FIN, once it is in order.
    pub(crate) fin: Option<Seq>,
    /// RCV.UP.
    pub(crate) urgent: Option<Seq>,
    /// A duplicate to report by DSACK, and whether the block after it has to be the one around it.
    pub(crate) dsack: Option<SeqRange>,
    /// Growth of the buffer.
    pub(crate) sizing: RightSizing,
    /// Whether the reader is gone: new data is answered by a reset.
    pub(crate) reader_gone: bool,
}

impl ReceiveSpace {
    /// Before the peer's SYN.
    pub(super) fn new(now: Instant, config: &ReceiveConfig, mss: u32) -> Self {
        Self {
            irs: Seq::default(),
            nxt: Seq::default(),
            wup: Seq::default(),
            wnd: 0,
            scale: 0,
            share: ASSUMED_SHARE,
            capacity: config.buffer_bytes,
            limit: config.initial_window_bytes.min(config.buffer_bytes),
            mss,
            last_ack_sent: Seq::default(),
            fin: None,
            urgent: None,
            dsack: None,
            sizing: RightSizing::new(now, config.growth, 0),
            reader_gone: false,
        }
    }
}

/// Bytes of the timestamps option (RFC 7323) in each segment, with its padding.
pub(crate) const TIMESTAMPS_LEN: u16 = 12;

/// Timestamps (RFC 7323), when agreed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TimestampState {
    /// TS.Recent and when it was set.
    pub(crate) recent: u32,
    pub(crate) recent_at: Instant,
    /// Offset of the clock, which hides the host's uptime.
    pub(crate) offset: u32,
}

/// When the next ACK is due (RFC 9293 section 3.8.6.3).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AckState {
    /// An ACK is due now, for this reason.
    pub(crate) due: Option<Reason>,
    /// ACKs that the owner has requested.
    pub(crate) requested: u8,
    /// How many segments are still acknowledged at once.
    pub(crate) quick: u8,
    /// The delay that follows the spacing of arrivals.
    pub(crate) delay: Duration,
    pub(crate) last_data_at: Instant,
    /// Data is going both ways in turn: answers carry the ACKs.
    pub(crate) interactive: bool,
    /// Data since the last ACK has completed a write of the peer (PSH).
    pub(crate) pushed: bool,
    /// ACKs of data out of order since RCV.NXT moved on, up to those that leave at once, and how many more are held back.
    pub(crate) duplicates: u8,
    pub(crate) compressed: u8,
}

impl AckState {
    /// Before the handshake.
    pub(super) fn new(now: Instant, policy: &AckPolicy) -> Self {
        Self {
            due: None,
            requested: 0,
            quick: match *policy {
                AckPolicy::Adaptive { quick_acks, .. } => quick_acks,
                _ => 0,
            },
            delay: Duration::ZERO,
            last_data_at: now,
            interactive: false,
            pushed: false,
            duplicates: 0,
            compressed: 0,
        }
    }
}

bitflags::bitflags! {
    /// Pending transmissions besides data and ACKs, in one word: whether there are any is asked several times for each segment.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) struct Pending: u16 {
        const HANDSHAKE = 1;
        const RESET = 1 << 1;
        const LOSS_PROBE = 1 << 2;
        /// New data goes before retransmissions (RFC 5682 section 3.1 step 2b).
        const NEW_DATA_FIRST = 1 << 3;
        const WINDOW_PROBE = 1 << 4;
        const KEEP_ALIVE = 1 << 5;
        /// Less than a full segment may go.
        const SILLY_WINDOW_OVERRIDE = 1 << 6;
        /// A reset for a segment that belongs to no connection of ours, at [`ChallengeBudget::reset_at`].
        const FOREIGN_RESET = 1 << 7;
        /// A User Timeout option is due on the next segment.
        const USER_TIMEOUT_OPTION = 1 << 8;
    }
}

/// Probing a zero window.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Probing {
    /// Probes that were not answered.
    pub(crate) sent: u32,
    pub(crate) backoff: u32,
}

/// State set by the owner's verbs, and by the peer's options; and what only some configurations have.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Steering {
    /// The limit of the window that is advertised, in bytes.
    pub(crate) window_clamp: Option<u32>,
    /// The ACK point is held here.
    pub(crate) ack_held_at: Option<Seq>,
    /// Added to echoed timestamps.
    pub(crate) echo_shift: u32,
    /// Fast retransmit of anything below is barred.
    pub(crate) barred_below: Option<Seq>,
    /// Bytes of each segment's space that data leaves free for options.
    pub(crate) option_room: u32,
    /// The user timeout, where it is not the configuration's any more.
    pub(crate) user_timeout: Option<Box<UserTimeoutConfig>>,
    /// The search for the path MTU by probes, if configured.
    pub(crate) mtu_search: Option<Box<MtuSearch>>,
}

impl OnDemand<Steering> {
    #[inline]
    pub(crate) fn mtu_search_mut(&mut self) -> Option<&mut MtuSearch> {
        self.if_present()?.mtu_search.as_deref_mut()
    }
}

impl Absent for Steering {
    const ABSENT: &'static Self = &Self {
        window_clamp: None,
        ack_held_at: None,
        echo_shift: 0,
        barred_below: None,
        option_room: 0,
        user_timeout: None,
        mtu_search: None,
    };
}

/// Answers to segments that may be forged: the number of challenge ACKs in this second (RFC 5961 section 10), the time of the last answer
/// that counts for [`crate::LimitConfig::invalid_ack_interval`], and the sequence number of a reset.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChallengeBudget {
    pub(crate) second: u32,
    pub(crate) used: u16,
    pub(crate) last_at: Option<Instant>,
    pub(crate) reset_at: Seq,
}

impl Absent for ChallengeBudget {
    const ABSENT: &'static Self = &Self { second: 0, used: 0, last_at: None, reset_at: Seq::new(0) };
}
