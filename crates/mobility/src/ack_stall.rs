//! **The ACK stall.** When the cut is foreseen, more can be held in hand than a few segments: in the last moments no ACK is let
//! through at all, neither a new one nor a duplicate. The window stays as open as it was, the sender goes on sending until its
//! congestion window is full, and a short wait is no reason for a timeout. When the link is back, everything of these moments is
//! released ([`crate::release`]): the sender finds a large part of its window acknowledged and starts with as much.
//!
//! It does what freezing (a zero window in the last moments) is for, without its trap: a zero window over unacknowledged data
//! makes today's Linux cut ssthresh with each retransmission, so a freeze that comes too late for the data in flight to be
//! acknowledged leaves a sender that is slow for a long time. The two must not be combined.
//!
//! A warning that comes too early costs little: the stall begins only so long before the predicted cut, and ends by itself before
//! it can cause a timeout (Linux waits 200 ms and more).

use holdover_base::{Duration, Instant};

/// When no ACK is let through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckStallConfig {
    /// The stall begins so long before the predicted cut; at once if the warning comes later or does not say when.
    pub lead: Duration,
    /// It ends at the latest so long after it has begun, if the cut does not come.
    pub most: Duration,
}

impl Default for AckStallConfig {
    /// From 100 ms before the cut, for at most 250 ms: anything between 60 and 250 ms did equally well on Linux 6.18.
    fn default() -> Self {
        Self { lead: Duration::from_millis(100), most: Duration::from_millis(250) }
    }
}

/// The name in scenario files.
pub(crate) const NAME: &str = "ack_stall";

/// A stall that is planned or under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stall {
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl Stall {
    /// A cut is predicted, `lead` from now if that is known.
    pub(crate) fn before_cut(config: &AckStallConfig, now: Instant, lead: Option<Duration>) -> Self {
        let from = now + lead.map_or(Duration::ZERO, |lead| lead.saturating_sub(config.lead));
        Self { from, until: from + config.most }
    }

    pub(crate) fn covers(&self, now: Instant) -> bool {
        self.from <= now && now < self.until
    }
}
