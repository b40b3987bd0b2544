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
//!
//! Whether an ACK is stalled is decided at every packet, in the flow path: `is_stalling` in `crates/flow/c/decisions.h`.

use holdover_base::{Duration, Instant};
use holdover_flow::Stall;

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

/// The lead where no round trip has been measured; the flow path has the same (`USUAL_LEAD` in `crates/flow/c/decisions.h`).
const USUAL_LEAD: Duration = Duration::from_millis(150);

/// No connection's ACKs are stalled sooner than so long before the cut; the flow path has the same.
const LONGEST_LEAD: Duration = Duration::from_secs(1);

/// The stall for a cut that is foreseen, `lead` from now if that is known.
pub(crate) fn before_cut(config: &AckStallConfig, now: Instant, lead: Option<Duration>) -> Stall {
    // A warning without a time means soon.
    let until = now + lead.unwrap_or(USUAL_LEAD) + config.overdue;
    Stall { cut_at: now + lead.unwrap_or_default(), until, lead: config.lead }
}

/// Whether a later warning replaces a stall: before the stall has begun, always; after, if it foretells an earlier cut.
pub(crate) fn is_replaced(stall: &Stall, later: &Stall, now: Instant) -> bool {
    stall.cut_at > now + LONGEST_LEAD || later.until < stall.until
}
