//! How much sooner a connection goes on than by its own timer: an estimate.
//!
//! The sender's timer is not known if it is the peer's. It is taken to be Linux's: a round trip and 200 ms, doubled with each
//! retransmission up to two minutes, begun when the link broke. The timer that would have run out first after the link was back is
//! what the connection would have waited for. The true one differs: its variance is larger, its tail loss probe comes first, and the
//! retransmission at link-up could have been lost as well. So the sum over many connections says more than one of them does.

use holdover_base::Duration;

/// What Linux waits for beyond the round trip (`TCP_RTO_MIN`).
const BEYOND: Duration = Duration::from_millis(200);

/// `TCP_RTO_MAX` of Linux.
const LONGEST: Duration = Duration::from_secs(120);

/// A round trip where none is known.
const USUAL: Duration = Duration::from_millis(100);

/// From the end of an outage to when the sender's own timer would have run out.
pub fn estimate(round_trip: Option<Duration>, outage: Duration) -> Duration {
    let mut timer = round_trip.unwrap_or(USUAL) + BEYOND;
    let mut fires_at = timer;
    while fires_at < outage {
        timer = (timer * 2).min(LONGEST);
        fires_at += timer;
    }
    fires_at - outage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_that_comes_next_counts() {
        let estimate = |outage| estimate(Some(Duration::from_millis(50)), Duration::from_millis(outage));
        // 250 ms, then at 750, 1750, 3750, 7750 ms.
        assert_eq!(estimate(0), Duration::from_millis(250));
        assert_eq!(estimate(250), Duration::ZERO);
        assert_eq!(estimate(251), Duration::from_millis(499));
        assert_eq!(estimate(7000), Duration::from_millis(750));
        // Two minutes at most, however long the outage.
        let hours = super::estimate(None, Duration::from_secs(36_000));
        assert!(hours <= Duration::from_secs(120), "{hours}");
    }
}
