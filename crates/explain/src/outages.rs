//! Finds outages in a capture.
//!
//! Where the sender's packets are captured, an outage is a stretch of repeated transmissions without a response. At the receiver, where
//! lost packets are not captured, it is a silence that ends with a retransmission by timer. Neither capture shows the exact times at which
//! the path failed and recovered, but both bound them: the path was up when the last packet passed, still down when the last lost one was
//! sent, and up again when the next one passed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};
use serde::Serialize;

use crate::conversation::{Conversation, Place};
use crate::evidence::{EndedBy, Silence, Unanswered};

/// A time in which the path is known to have been down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// Its start.
    pub down: Instant,
    /// Its end.
    pub up: Instant,
}

/// The certainty of an inferred outage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// Consecutive losses could look the same.
    Likely,
    /// Several consecutive transmissions, at growing intervals, were lost.
    Sure,
}

/// An outage inferred from a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundOutage {
    /// The best estimate; `up` is [`Instant::FAR_FUTURE`] if the path did not recover within the capture.
    pub guess: Outage,
    /// The bounds of the time of failure.
    pub down: (Instant, Instant),
    /// The bounds of the time of recovery.
    pub up: (Instant, Instant),
    /// The certainty.
    pub certainty: Certainty,
}

impl FoundOutage {
    fn overlaps(&self, other: &Self) -> bool {
        self.guess.down < other.guess.up && other.guess.down < self.guess.up
    }

    /// Combines the evidence of two connections over the same path.
    fn joined(self, other: &Self) -> Self {
        let narrowed = |a: (Instant, Instant), b: (Instant, Instant)| {
            let both = (a.0.max(b.0), a.1.min(b.1));
            if both.0 <= both.1 { both } else { (a.0.min(b.0), a.1.max(b.1)) }
        };
        let (down, up) = (narrowed(self.down, other.down), narrowed(self.up, other.up));
        let within = |at: Instant, (from, to): (Instant, Instant)| at.max(from).min(to);
        Self {
            guess: Outage { down: within(self.guess.down, down), up: within(self.guess.up, up) },
            down,
            up,
            certainty: self.certainty.max(other.certainty),
        }
    }
}

/// The outages of a conversation: those given, and further ones inferred.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownOutages {
    /// The given outages, in order and without overlaps.
    pub given: Vec<Outage>,
    /// Inferred outages that overlap no given one: knowledge replaces inference.
    pub found: Vec<FoundOutage>,
}

impl KnownOutages {
    /// Combines `given`, in any order, with those of `found` that overlap none of them.
    pub fn new(given: Vec<Outage>, mut found: Vec<FoundOutage>) -> Self {
        let given = united(given);
        let is_given = |found: &FoundOutage| given.iter().any(|one| one.down < found.up.1 && found.down.0 < one.up);
        found.retain(|found| !is_given(found));
        Self { given, found }
    }

    /// All outages, in order and without overlaps.
    pub fn all(&self) -> Vec<Outage> {
        united(self.given.iter().copied().chain(self.found.iter().map(|found| found.guess)).collect())
    }
}

/// Merges overlaps and sorts.
fn united(mut outages: Vec<Outage>) -> Vec<Outage> {
    outages.sort_by_key(|outage| outage.down);
    let mut united: Vec<Outage> = Vec::with_capacity(outages.len());
    for outage in outages {
        match united.last_mut() {
            Some(last) if outage.down <= last.up => last.up = last.up.max(outage.up),
            _ => united.push(outage),
        }
    }
    united
}

/// The outages of each path, combined from all conversations between the same two hosts. One list per conversation: those within its
/// time, in order and without overlaps.
pub fn outages_of_paths(conversations: &[Conversation]) -> Vec<Vec<FoundOutage>> {
    let mut found: BTreeMap<_, Vec<FoundOutage>> = BTreeMap::new();
    for conversation in conversations {
        found.entry(conversation.path()).or_default().extend(conversation.outages());
    }
    for outages in found.values_mut() {
        *outages = merged(core::mem::take(outages));
    }
    let within = |conversation: &Conversation| {
        let of_path = found[&conversation.path()].iter();
        let is_met =
            |outage: &&FoundOutage| outage.guess.down < conversation.end && conversation.begin < outage.guess.up;
        of_path.filter(is_met).copied().collect()
    };
    conversations.iter().map(within).collect()
}

fn merged(mut outages: Vec<FoundOutage>) -> Vec<FoundOutage> {
    outages.sort_by_key(|outage| outage.guess.down);
    let mut merged: Vec<FoundOutage> = Vec::with_capacity(outages.len());
    for outage in outages {
        match merged.last_mut() {
            Some(last) if last.overlaps(&outage) => *last = last.joined(&outage),
            _ => merged.push(outage),
        }
    }
    merged
}

impl Conversation {
    /// Its two hosts, the same in both directions.
    pub(crate) fn path(&self) -> (IpAddr, IpAddr) {
        let (a, b) = (self.sender.ip(), self.receiver.ip());
        (a.min(b), a.max(b))
    }

    /// The outages inferred from this direction, in order.
    pub fn outages(&self) -> Vec<FoundOutage> {
        let unanswered = self.evidence.unanswered.iter().filter_map(|stretch| self.of_unanswered(stretch));
        let silences = self.evidence.silences.iter().filter_map(|silence| self.of_silence(silence));
        merged(unanswered.chain(silences).collect())
    }

    /// An outage from lost transmissions, including at least one retransmission.
    fn of_unanswered(&self, stretch: &Unanswered) -> Option<FoundOutage> {
        let rtt = self.rtt();
        let last = stretch.last;
        // The transmission that got through, judged by the response time, and the one before.
        let got_through = |sent: &Instant| stretch.answered.is_some_and(|at| at.saturating_since(*sent) >= rtt * 4 / 5);
        let index = last.iter().rposition(|sent| sent.as_ref().is_some_and(got_through));
        // A response later than any round trip plus delayed ACK: the path held the packets until it recovered.
        let longest = rtt * 2 + Duration::from_millis(300);
        let is_held = |sent: Instant| stretch.answered.is_some_and(|at| at.saturating_since(sent) > longest);
        let (lost_at, through) = match (stretch.answered, index) {
            (None, _) => (last[2]?, None),
            (Some(at), Some(2)) if last[2].is_some_and(is_held) => (last[2]?, Some(earlier(at, rtt).max(last[2]?))),
            (Some(_), Some(index)) if index > 0 => (last[index - 1]?, last[index]),
            _ => return None,
        };
        let after_lost = last.iter().flatten().filter(|sent| **sent > lost_at).count() as u32;
        let lost_repeats = stretch.repeats.saturating_sub(after_lost);
        let is_short = stretch.answered.is_some() && stretch.len() < self.usual_rto();
        if is_short
            || lost_repeats == 0
            || stretch.transmissions.saturating_sub(after_lost) + u32::from(stretch.outstanding) < 2
        {
            return None;
        }
        let down = if stretch.outstanding {
            let to_receiver = self.rtt_to_receiver.unwrap_or(rtt);
            (earlier(stretch.heard, to_receiver), (stretch.heard + rtt).min(lost_at))
        } else {
            (stretch.heard.min(stretch.first), stretch.first)
        };
        let up = (lost_at, stretch.answered.unwrap_or(Instant::FAR_FUTURE));
        let guess = Outage {
            down: if stretch.outstanding { stretch.heard } else { stretch.first },
            up: match through {
                None => Instant::FAR_FUTURE,
                Some(through) if last[2] == Some(lost_at) => through,
                Some(through) => middle(lost_at, through),
            },
        };
        let certainty = if lost_repeats >= 2 { Certainty::Sure } else { Certainty::Likely };
        Some(FoundOutage { guess, down, up, certainty })
    }

    /// An outage from the silence of a waiting sender, captured elsewhere.
    fn of_silence(&self, silence: &Silence) -> Option<FoundOutage> {
        let (length, rto) = (silence.len(), self.usual_rto());
        // Two timeouts, the second twice as long as the first: the first retransmission was lost as well.
        if !self.sender_waited(silence) || length < rto * 3 * 9 / 10 {
            return None;
        }
        if silence.ended_by == EndedBy::End && (length < Duration::from_secs(3) || self.place == Place::Unknown) {
            return None;
        }
        let rtt = self.rtt();
        let is_held = silence.ended_by == EndedBy::New && silence.burst > 2;
        let lost_at = silence.from + length / 3;
        let (up, guess) = if silence.ended_by == EndedBy::End {
            ((silence.from + length / 2, Instant::FAR_FUTURE), Instant::FAR_FUTURE)
        } else if is_held {
            ((earlier(silence.to, rtt), silence.to), silence.to)
        } else {
            ((lost_at, silence.to), middle(silence.from + last_timeout(length, rto), silence.to))
        };
        let down = (earlier(silence.from, rtt), silence.from + rtt);
        // RFC 6298 allows an initial timeout of 1 s: three of these.
        let is_long = length >= rto.max(Duration::from_secs(1)) * 7;
        let certainty = if silence.stale_echo || is_long { Certainty::Sure } else { Certainty::Likely };
        Some(FoundOutage { guess: Outage { down: silence.from, up: guess }, down, up, certainty })
    }
}

/// The time of the last timeout within `length`, given the first timeout `rto` and its doublings.
fn last_timeout(length: Duration, rto: Duration) -> Duration {
    let ratio = length.as_nanos() / rto.as_nanos().max(1) + 1;
    // The best-fitting number of timeouts, of 1, 2, 4... times the first.
    let timeouts = (ratio.ilog2() + u32::from(ratio >> ratio.ilog2().saturating_sub(1) == 3)).clamp(1, 30);
    let (before, all) = ((1_u64 << (timeouts - 1)) - 1, (1_u64 << timeouts) - 1);
    length * before / all
}

fn earlier(at: Instant, by: Duration) -> Instant {
    Instant::from_nanos(at.as_nanos().saturating_sub(by.as_nanos()))
}

fn middle(a: Instant, b: Instant) -> Instant {
    a + b.saturating_since(a) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_timer_of_a_backoff_is_reckoned_from_its_length() {
        let (rto, millis) = (Duration::from_millis(250), Duration::from_millis);
        // 250, 750, 1750, 3750 ms after the last data.
        assert_eq!(last_timeout(millis(250), rto), Duration::ZERO);
        assert_eq!(last_timeout(millis(750), rto), millis(250));
        assert_eq!(last_timeout(millis(1750), rto), millis(750));
        assert_eq!(last_timeout(millis(3750), rto), millis(1750));
    }
}
