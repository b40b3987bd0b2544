//! The fixed parameters of a flow path.

use holdover_base::Duration;

use crate::layout::Rules;

/// How much is held back while the link is up, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldBack {
    /// The number of whole segments.
    pub segments: u8,
    /// Nothing is held before this many bytes have been acknowledged.
    pub after_bytes: u64,
    /// Nothing is held for this long after link-up.
    pub pause: Duration,
    /// Held ACKs are flushed if no newer ACK arrives for this long.
    pub flush: Duration,
}

impl Rules {
    /// `holds` says whether ACKs are ever withheld; echoes of timestamps are refreshed for `refresh_for` after link-up.
    pub fn new(hold_back: Option<HoldBack>, holds: bool, refresh_for: Duration) -> Self {
        Self {
            hold_after_bytes: hold_back.map_or(0, |hold| hold.after_bytes),
            hold_pause: hold_back.map_or(0, |hold| nanos(hold.pause)),
            hold_flush: hold_back.map_or(0, |hold| nanos(hold.flush)),
            refresh_for: nanos(refresh_for),
            hold_segments: hold_back.map_or(0, |hold| hold.segments.into()),
            holds: holds.into(),
            ..Self::default()
        }
    }

    /// The parameters for programs on an interface whose frames have `frame_len` bytes before the IP header: 14 or 0.
    /// The agent's own packets carry one of these marks: outgoing, or to the host itself.
    #[must_use]
    pub fn on_interface(self, frame_len: u32, mark_out: u32, mark_in: u32) -> Self {
        Self { frame_len, mark_out, mark_in, ..self }
    }

    /// For tests: the time of a packet is its `tstamp`.
    #[must_use]
    pub fn with_test_clock(self) -> Self {
        Self { test_clock: 1, ..self }
    }

    /// Flows get details from this many acknowledged bytes on ([`Entry`](crate::Entry)).
    #[must_use]
    pub fn with_details_after(self, bytes: u32) -> Self {
        Self { detail_after: bytes, ..self }
    }

    /// Bytes before the IP header.
    pub const fn frame_len(&self) -> u32 {
        self.frame_len
    }
}

/// Bounded, so that it can be added to any time without overflow.
fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().min(i64::MAX as u64)
}
