//! **The ACK stall.** Before a predicted cut, more than a few segments can be held: in the last moments no ACK passes,
//! neither a new one nor a duplicate. The window stays as it is, and the sender continues until its congestion window
//! is full. If the stall begins a round trip before the cut, queues included, everything sent has arrived when the link
//! breaks, and only time is lost: the sender's timer expires, but the first ACK after the outage shows that the timeout
//! was spurious (Eifel, RFC 3522, or F-RTO, RFC 5682). The sender undoes it, with all changes of its window. Then the
//! ACKs are released one by one (`ack_train.rs`), and the sender resumes with its former window.
//!
//! If the cut comes sooner, the rest of the window is lost, and held ACKs are released as after any cut
//! ([`crate::release`]): the sender finds a large part of its window acknowledged, and starts with as many segments.
//!
//! The stall has the purpose of freezing (a zero window in the last moments) without its trap: a zero window over
//! unacknowledged data makes current Linux cut ssthresh with each retransmission. A freeze that is too late for the
//! data in flight to be acknowledged therefore slows the sender down for a long time. The two must not be combined.
//!
//! An early warning costs little: the stall begins only a lead before the predicted cut, and ends before it can cause a
//! timeout (Linux waits a round trip and 200 ms).
//!
//! The decision for each packet is part of the flow path: `is_stalling` in `crates/flow/c/decisions.h`.

use holdover_base::{Duration, Instant};
use holdover_flow::{LONGEST_LEAD, Stall, USUAL_LEAD};

/// When ACKs are stalled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckStallConfig {
    /// The stall begins this long before the predicted cut; at once if the warning is later or names no time. `None`
    /// for a round trip of each connection, queues and a margin included (an eighth and 10 ms).
    pub lead: Option<Duration>,
    /// It ends at the latest this long after the predicted cut, if that does not come; or this long after the warning
    /// and a round trip, if the warning names no time.
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

/// The stall for a cut that is predicted, `lead` from now if known.
pub(crate) fn before_cut(config: &AckStallConfig, now: Instant, lead: Option<Duration>) -> Stall {
    // A warning without a time means soon.
    let until = now + lead.unwrap_or(USUAL_LEAD) + config.overdue;
    Stall { cut_at: now + lead.unwrap_or_default(), until, lead: config.lead }
}

/// Whether a later warning replaces a stall: always before the stall has begun; after, if it predicts an earlier cut.
pub(crate) fn is_replaced(stall: &Stall, later: &Stall, now: Instant) -> bool {
    stall.cut_at > now + LONGEST_LEAD || later.until < stall.until
}
