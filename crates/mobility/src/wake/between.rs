//! Waking at a gateway, which stands between both hosts at the near end of the link. What is called *this host* elsewhere is the host on
//! the gateway's side; what comes in comes over the link.
//!
//! An agent that flushes an ACK into a link that has broken can say it again later, as nobody has got it. A gateway cannot: the ACKs that come
//! in are flushed to the host on its own side, which gets them. A silent cut is found later than an ACK is flushed, so nothing would be in
//! hand when the link is back. Therefore such ACKs are kept while data are under way that the receiver has not acknowledged: either it
//! does so soon, or its link is cut.

use holdover_base::{Duration, Instant};
use holdover_flow::Half as FlowHalf;

use super::{WakeConfig, WakeControl};

/// What is in hand of data under way is kept for so long after it was to be flushed: longer than it takes to find that a mobile host is
/// silent, and not for ever, as nobody may look for that.
const KEPT_FOR: Duration = Duration::from_secs(1);

impl WakeControl {
    /// A controller at a gateway, before a link that is up, with no connection.
    pub fn between(config: WakeConfig) -> Self {
        Self { is_between: true, ..Self::new(config) }
    }
}

/// Whether the receiver may be cut off, so that what is in hand is not to be flushed.
pub(super) fn may_be_cut_off(now: Instant, flow: &FlowHalf) -> bool {
    flow.awaits_ack() && flow.flush_at().is_some_and(|at| now < at + KEPT_FOR)
}
