//! **The ACK stall.** When the cut is foreseen, more can be held in hand than a few segments: in the last moments no ACK is let
//! through at all, neither a new one nor a duplicate. The window stays as open as it was, and the sender goes on until its
//! congestion window is full. If that is a round trip before the cut, queues included, then all that it has sent has arrived when
//! the link breaks, and nothing is lost but time: the sender's timer will run out, but that was spurious, as it learns from the
//! first ACK after the outage (by Eifel, RFC 3522, or F-RTO, RFC 5682). It takes its timeout back, and with it all that it has
//! done to its window. Then the ACKs go one by one (`ack_train.rs`), and the sender goes on where it was.
//!
//! If the cut comes sooner, the rest of the window is lost, and what was held is released as after any cut ([`crate::release`]):
//! the sender finds a large part of its window acknowledged and starts with as much.
//!
//! It does what freezing (a zero window in the last moments) is for, without its trap: a zero window over unacknowledged data
//! makes today's Linux cut ssthresh with each retransmission, so a freeze that comes too late for the data in flight to be
//! acknowledged leaves a sender that is slow for a long time. The two must not be combined.
//!
//! A warning that comes too early costs little: the stall begins only so long before the predicted cut, and ends by itself before
//! it can cause a timeout (Linux waits a round trip and 200 ms).

use holdover_base::{Duration, Instant};

use crate::round_trip::RoundTrip;

/// When no ACK is let through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckStallConfig {
    /// The stall begins so long before the predicted cut; at once if the warning comes later or does not say when. `None` for a
    /// round trip of each connection, queues and a margin included (an eighth and 10 ms).
    pub lead: Option<Duration>,
    /// It ends at the latest so long after the cut was to come, if it does not; or so long after the warning and a round trip,
    /// if the warning does not say when.
    pub overdue: Duration,
}

impl Default for AckStallConfig {
    /// From a round trip before the cut to 100 ms after: less than the 200 ms that Linux gives an ACK beyond its round trip.
    fn default() -> Self {
        Self { lead: None, overdue: Duration::from_millis(100) }
    }
}

/// The name in scenario files.
pub(crate) const NAME: &str = "ack_stall";

/// The lead where no round trip has been measured; what was found to do on Linux 6.18 with one of 50 ms and a queue.
const USUAL_LEAD: Duration = Duration::from_millis(150);

/// What is added to a round trip, for the queue that grows and the gap that shows that nothing more is on its way.
const MARGIN: Duration = Duration::from_millis(10);

/// No connection's ACKs are stalled sooner than so long before the cut.
const LONGEST_LEAD: Duration = Duration::from_secs(1);

/// A stall that is planned or under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stall {
    pub(crate) config: AckStallConfig,
    /// When the link is to break.
    pub(crate) cut_at: Instant,
    pub(crate) until: Instant,
}

impl Stall {
    /// A cut is predicted, `lead` from now if that is known.
    pub(crate) fn before_cut(config: &AckStallConfig, now: Instant, lead: Option<Duration>) -> Self {
        // Whoever says nothing of when means soon.
        let until = now + lead.unwrap_or(USUAL_LEAD) + config.overdue;
        Self { config: *config, cut_at: now + lead.unwrap_or_default(), until }
    }

    /// Whether a later warning is to be believed instead: before this stall has begun, any; after, one that foretells an earlier
    /// cut.
    pub(crate) fn is_replaced_by(&self, later: &Self, now: Instant) -> bool {
        self.cut_at > now + LONGEST_LEAD || later.until < self.until
    }

    /// Whether the ACKs of a connection with this round trip are stalled.
    pub(crate) fn covers(&self, now: Instant, round_trip: &RoundTrip) -> bool {
        let measured = round_trip.with_queues().map(|time| time + time / 8 + MARGIN);
        let lead = self.config.lead.or(measured).unwrap_or(USUAL_LEAD).min(LONGEST_LEAD);
        self.cut_at <= now + lead && now < self.until
    }
}
