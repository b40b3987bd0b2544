//! The probes of next hops and of a peer.

use holdover_base::{Duration, Instant};

use super::suspicion::{BROADCAST_EVERY, ask_every};
use super::{Act, Phase, SilenceWatch};

/// The interval between tests of a next hop that has never answered.
const MEET_AGAIN_AFTER: Duration = Duration::from_secs(60);

impl SilenceWatch {
    /// Sends due probes, to next hops or to a peer.
    pub(super) fn ask(&mut self, now: Instant) {
        if !self.options.asks {
            return;
        }
        let (has_next_hops, is_silent) = (!self.is_alone(), self.is_silent());
        let (is_checking, ask_every) = (matches!(self.phase, Phase::Checking(_)), ask_every(self.answers_in));
        let (Phase::Checking(found) | Phase::Asking(found) | Phase::Suspected(found) | Phase::Silent(found)) =
            &mut self.phase
        else {
            return;
        };
        if has_next_hops && found.next_hops_at <= now {
            let is_broadcast = found.questions >= 2 && found.broadcast_at <= now;
            if is_broadcast {
                found.broadcast_at = now + BROADCAST_EVERY;
            }
            found.questions += 1;
            found.next_hops_at = now + found.seek_every(now, ask_every);
            // The answer to the first of several probes may be late.
            self.asked_at = (found.questions == 1).then_some(now).or(self.asked_at);
            self.acts.push_back(Act::AskNextHops { is_broadcast });
        }
        if let Some(peer) = found.peer.filter(|_| (!is_checking || !has_next_hops) && found.may_ask_peer(now))
            && found.peer_at <= now
        {
            found.peer_questions += 1;
            found.peer_at = now + found.peer_every(now, !has_next_hops, is_silent);
            self.acts.push_back(Act::AskPeer(peer));
        }
    }

    /// Tests once whether next hops answer at all, and how fast, while TCP is active.
    pub(super) fn meet(&mut self, now: Instant, is_answered: bool) {
        let is_timed = self.is_alone() || self.answers_in.is_some();
        let is_known = is_timed && self.next_hops.is_subset(&self.answering);
        let is_soon = self.met_at.is_some_and(|at| now.saturating_since(at) < MEET_AGAIN_AFTER);
        if is_answered && self.options.asks && !is_known && !is_soon {
            (self.met_at, self.asked_at) = (Some(now), Some(now));
            self.acts.push_back(Act::AskNextHops { is_broadcast: false });
        }
    }
}
