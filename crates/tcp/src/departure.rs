//! The delivery state that each segment records when it is sent, from which samples of the delivery rate are made
//! (draft-cheng-iccrg-delivery-rate-estimation, with its names).

use holdover_base::Instant;
use holdover_wire::Seq;

/// Delivery state when a segment was sent (section 3.1.2, the packet's state).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Departure {
    /// P.delivered, in segments.
    pub(crate) delivered: u64,
    /// P.delivered_time.
    pub(crate) delivered_at: Instant,
    /// P.first_sent_time.
    pub(crate) first_sent_at: Instant,
    /// P.is_app_limited.
    pub(crate) is_app_limited: bool,
    /// P.tx_in_flight, in segments, with this one.
    pub(crate) flight: u32,
    /// P.lost, in segments.
    pub(crate) lost: u64,
}

/// A segment that was marked lost.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LostSegment {
    pub(crate) seq: Seq,
    pub(crate) end: Seq,
    /// Segments that were lost up to and with this one.
    pub(crate) lost: u64,
    pub(crate) departure: Departure,
}

/// Segments in flight and lost when a segment is sent.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Load {
    /// Segments in flight, with the one that leaves.
    pub(crate) flight: u32,
    /// Segments lost since the connection began.
    pub(crate) lost: u64,
}
