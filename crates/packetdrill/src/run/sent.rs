//! A segment that the endpoint has sent.

use holdover_base::Instant;
use holdover_wire::{Packet, Segment};

/// An outgoing segment, or several that the script sees as one, because a sender with segmentation offload passes them to its device as
/// one.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) at: Instant,
    pub(super) segment: Segment,
    pub(super) len: usize,
    pub(super) traffic_class: u8,
    pub(super) ttl: u8,
    /// Whether it was merged from several segments.
    pub(super) gathered: bool,
}

impl Sent {
    pub(super) fn new(at: Instant, packet: &Packet, segment: &Segment) -> Self {
        let segment = segment.clone();
        Self {
            at,
            len: segment.payload.len(),
            segment,
            traffic_class: packet.traffic_class,
            ttl: packet.ttl,
            gathered: false,
        }
    }
}
