//! When the detector reads the counters.

use holdover_base::{Duration, Instant};

use super::{Phase, SilenceWatch};

/// The interval between readings of the counters while TCP is active.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The interval once TCP has had no packet for [`ACTIVE_FOR`].
const SLOW_LOOK_EVERY: Duration = Duration::from_millis(250);

/// The interval while TCP has sent something and nothing has arrived.
pub(super) const UNANSWERED_LOOK_EVERY: Duration = Duration::from_millis(50);

/// The interval on an idle link: TCP has had no packet for [`AWAKE_FOR`].
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long TCP counts as active after its last packet.
const ACTIVE_FOR: Duration = Duration::from_secs(1);

/// How long after its last packet TCP is expected to continue.
const AWAKE_FOR: Duration = Duration::from_secs(5);

impl SilenceWatch {
    /// The time until the next reading of the counters, without a suspicion.
    fn look_every(&self, now: Instant) -> Duration {
        let since_active = self.active_at.map(|at| now.saturating_since(at));
        let is_unanswered = self.sent_since.is_some() || self.stream_at.is_some() && self.heard_at < now;
        match since_active {
            Some(since) if since < ACTIVE_FOR && is_unanswered && self.may_check() => UNANSWERED_LOOK_EVERY,
            Some(since) if since < ACTIVE_FOR => LOOK_EVERY,
            Some(since) if since < AWAKE_FOR => SLOW_LOOK_EVERY,
            _ => IDLE_LOOK_EVERY,
        }
    }

    /// Sets the time of the next reading.
    pub(super) fn schedule(&mut self, now: Instant) {
        let every = self.look_every(now);
        let look_at = now + every;
        let has_stream = self.stream_at.is_some() && self.options.asks;
        let is_calm = matches!(self.phase, Phase::Calm) && self.sent_since.is_none() && !has_stream;
        self.is_at_rest = is_calm && every == IDLE_LOOK_EVERY;
        self.look_at = match &self.phase {
            Phase::Calm => self.sent_since.map_or(look_at, |since| {
                let due = since + self.options.after;
                if due > now { look_at.min(due) } else { look_at }
            }),
            Phase::Checking(found) | Phase::Asking(found) | Phase::Suspected(found) | Phase::Silent(found) => {
                let checks_next_hops = matches!(self.phase, Phase::Checking(_)) && !self.is_alone();
                let next_hops_at = if self.is_alone() { look_at } else { found.next_hops_at };
                let peer_at = if !checks_next_hops && found.may_ask_peer(now) { found.peer_at } else { look_at };
                look_at.min(next_hops_at.min(peer_at).max(now + Duration::from_millis(1)))
            }
        };
        if !self.options.asks {
            self.look_at = look_at;
        }
    }
}
