//! What does not change while a flow path runs.

use holdover_base::Duration;

use crate::layout::Rules;

/// How much is held back while the link is up, and when nothing is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldBack {
    /// How many whole segments.
    pub segments: u8,
    /// Nothing is held before so many bytes have been acknowledged.
    pub after_bytes: u64,
    /// Nothing is held for so long after link-up.
    pub pause: Duration,
    /// What is held is flushed if no newer ACK comes for so long.
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

    /// The same for programs on an interface whose frames have `frame_len` bytes before the IP header: 14 or 0. Packets of the agent
    /// have one of these marks if they go out, or are for the host itself.
    #[must_use]
    pub fn on_interface(self, frame_len: u32, mark_out: u32, mark_in: u32) -> Self {
        Self { frame_len, mark_out, mark_in, ..self }
    }

    /// The same for tests: the time of a packet is what its `tstamp` says.
    #[must_use]
    pub fn with_test_clock(self) -> Self {
        Self { test_clock: 1, ..self }
    }

    /// The same where flows have details from so many acknowledged bytes on ([`Entry`](crate::Entry)).
    #[must_use]
    pub fn with_details_after(self, bytes: u32) -> Self {
        Self { detail_after: bytes, ..self }
    }

    /// Bytes before the IP header.
    pub const fn frame_len(&self) -> u32 {
        self.frame_len
    }
}

/// Few enough to be added to any time.
fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().min(i64::MAX as u64)
}
