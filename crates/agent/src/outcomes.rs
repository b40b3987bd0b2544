//! Outcomes of the connections that outages had interrupted, as observed on the path.
//!
//! A connection counts once for each outage, when its [`WakeOutcome`] is known. Connections with nothing outstanding at
//! the cut do not count.
//!
//! The time *saved* by a wake is known only where the course without it is known: for data of this host that was not
//! acknowledged, the kernel reports the expiry of its own retransmission timer (`sock_diag(7)`), as of link-up. The
//! retransmission would have been acknowledged a round trip later. The peer's timers are unknown here, so nothing is
//! claimed for the peer's retransmissions.

use std::fmt;

use holdover_base::{Duration, Instant};
use holdover_mobility::{Resumed, WakeOutcome};
use serde::{Deserialize, Serialize};

/// The outcomes of one link.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcomes {
    /// Connections that resumed within two round trips of the attempt that got through.
    pub at_once: Resumes,
    /// Connections that were woken and resumed later than that.
    pub later: Resumes,
    /// Connections that were woken and did not resume before they were given up.
    pub never: u64,
    /// Connections that resumed before anything was sent to wake them.
    pub by_itself: Resumes,
    /// The total time saved, over all connections for which it is known, in seconds; negative where a wake has cost
    /// time. Missing if it is known for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_s: Option<f64>,
}

/// Times from link-up to the first progress of connections.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Resumes {
    /// The number of connections.
    pub count: u64,
    /// The sum, in seconds.
    pub sum_s: f64,
    /// The number of times up to each of [`BOUNDS_S`] and above the one before; the last: above all of them.
    pub buckets: [u64; BOUNDS_S.len() + 1],
}

/// The upper bounds of the buckets of [`Resumes`], in seconds: from a round trip in a local network to Linux's tenth retransmission.
pub const BOUNDS_S: [f64; 12] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// An outcome in reports.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OutcomeLine {
    /// `at_once`, `later`, `never` or `by_itself`.
    pub kind: String,
    /// From link-up to the first progress, in seconds; missing if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_s: Option<f64>,
    /// The number of attempts to wake the connection.
    pub tries: u32,
    /// How long it was watched, in seconds since link-up.
    pub watched_s: f64,
}

impl Outcomes {
    /// Counts an outcome, and the time saved if known.
    pub(crate) fn count(&mut self, outcome: &WakeOutcome, saved_s: Option<f64>) {
        let resumes = match outcome.kind {
            Resumed::AtOnce => &mut self.at_once,
            Resumed::Later => &mut self.later,
            Resumed::ByItself => &mut self.by_itself,
            Resumed::Never => {
                self.never += 1;
                return;
            }
            Resumed::NothingOutstanding => return,
        };
        resumes.count += 1;
        if let Some(time) = outcome.resume_time() {
            resumes.observe(time);
        }
        if let Some(saved_s) = saved_s {
            *self.saved_s.get_or_insert(0.0) += saved_s;
        }
    }
}

impl Resumes {
    fn observe(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.sum_s += seconds;
        self.buckets[BOUNDS_S.partition_point(|&bound| bound < seconds)] += 1;
    }
}

/// How much sooner a connection resumed than by this host's own timer, in seconds; `None` if unknown. `alternative_at`:
/// when the peer's answer to the timer's retransmission would have arrived.
pub(crate) fn saved_s(outcome: &WakeOutcome, alternative_at: Option<Instant>) -> Option<f64> {
    let (Resumed::AtOnce | Resumed::Later, Some(_)) = (outcome.kind, outcome.woken_at) else { return None };
    let (alternative_at, resumed_at) = (alternative_at?, outcome.resumed_at?);
    let sooner = alternative_at.saturating_since(resumed_at).as_secs_f64();
    Some(sooner - resumed_at.saturating_since(alternative_at).as_secs_f64())
}

impl OutcomeLine {
    /// The outcome at `now`, when it became known; `None` if it does not count.
    pub(crate) fn of(outcome: &WakeOutcome, now: Instant) -> Option<Self> {
        (outcome.kind != Resumed::NothingOutstanding).then(|| Self {
            kind: outcome.kind.name().to_owned(),
            resumed_s: outcome.resume_time().map(Duration::as_secs_f64),
            tries: outcome.tries,
            watched_s: now.saturating_since(outcome.up_at).as_secs_f64(),
        })
    }
}

/// `resumed after 0.06 s, 1 try`.
impl fmt::Display for OutcomeLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tries = |tries: u32| if tries == 1 { "1 try".to_owned() } else { format!("{tries} tries") };
        match (self.kind.as_str(), self.resumed_s) {
            ("at_once", Some(after)) => write!(f, "resumed after {after:.2} s, {}", tries(self.tries)),
            ("later", Some(after)) => write!(f, "resumed later ({after:.1} s, {})", tries(self.tries)),
            ("by_itself", Some(after)) => write!(f, "resumed by itself after {after:.2} s"),
            // A second cut may follow within a fraction of a second.
            _ if self.watched_s < 10.0 => {
                write!(f, "did not resume in {:.2} s ({})", self.watched_s, tries(self.tries))
            }
            _ => write!(f, "did not resume in {:.0} s ({})", self.watched_s, tries(self.tries)),
        }
    }
}

#[cfg(test)]
mod tests {
    use holdover_mobility::Connection;

    use super::*;

    fn outcome(kind: Resumed, after_ms: Option<u64>, tries: u32) -> WakeOutcome {
        let up_at = Instant::from_secs(10);
        WakeOutcome {
            connection: Connection {
                local: "192.0.2.7:1024".parse().unwrap(),
                remote: "192.0.2.1:80".parse().unwrap(),
            },
            cut_at: Instant::from_secs(3),
            up_at,
            woken_at: (tries > 0).then_some(up_at),
            resumed_at: after_ms.map(|ms| up_at + Duration::from_millis(ms)),
            tries,
            kind,
        }
    }

    // Claim: Outcomes are counted rather than actions; the time saved is known only if a timer of this host would have resumed
    // the connection.
    // Tests: `outcomes::the_saved_time_is_known_for_a_wake_with_an_alternative_only`
    #[test]
    fn only_what_was_seen_counts() {
        let mut outcomes = Outcomes::default();
        outcomes.count(&outcome(Resumed::AtOnce, Some(60), 1), Some(2.25));
        outcomes.count(&outcome(Resumed::AtOnce, Some(100), 1), None);
        outcomes.count(&outcome(Resumed::Later, Some(61_000), 5), Some(-0.5));
        outcomes.count(&outcome(Resumed::Never, None, 9), None);
        outcomes.count(&outcome(Resumed::ByItself, Some(3), 0), None);
        outcomes.count(&outcome(Resumed::NothingOutstanding, None, 0), None);
        assert_eq!(
            (outcomes.at_once.count, outcomes.later.count, outcomes.never, outcomes.by_itself.count),
            (2, 1, 1, 1)
        );
        // Each bound belongs to its bucket.
        assert_eq!((outcomes.at_once.buckets[3], outcomes.later.buckets[12], outcomes.by_itself.buckets[0]), (2, 1, 1));
        assert!((outcomes.at_once.sum_s - 0.16).abs() < 1e-9);
        assert_eq!(outcomes.saved_s, Some(1.75));
        assert_eq!(Outcomes::default().saved_s, None);
    }

    #[test]
    fn the_saved_time_is_known_for_a_wake_with_an_alternative_only() {
        let at = |ms| Some(Instant::from_secs(10) + Duration::from_millis(ms));
        let woken = outcome(Resumed::AtOnce, Some(60), 1);
        assert_eq!(saved_s(&woken, at(1060)), Some(1.0));
        assert_eq!(saved_s(&woken, at(10)), Some(-0.05));
        assert_eq!(saved_s(&woken, None), None);
        assert_eq!(saved_s(&outcome(Resumed::ByItself, Some(60), 0), at(1060)), None);
        assert_eq!(saved_s(&outcome(Resumed::Never, None, 3), at(1060)), None);
    }

    #[test]
    fn outcomes_are_said_in_words() {
        let line = |kind, after, tries| {
            let now = Instant::from_secs(70);
            OutcomeLine::of(&outcome(kind, after, tries), now).map(|line| line.to_string())
        };
        assert_eq!(line(Resumed::AtOnce, Some(60), 1).unwrap(), "resumed after 0.06 s, 1 try");
        assert_eq!(line(Resumed::Later, Some(2_300), 5).unwrap(), "resumed later (2.3 s, 5 tries)");
        assert_eq!(line(Resumed::Never, None, 9).unwrap(), "did not resume in 60 s (9 tries)");
        let soon = OutcomeLine::of(&outcome(Resumed::Never, None, 5), Instant::from_millis(10_290)).unwrap();
        assert_eq!(soon.to_string(), "did not resume in 0.29 s (5 tries)");
        assert_eq!(line(Resumed::ByItself, Some(300), 0).unwrap(), "resumed by itself after 0.30 s");
        assert_eq!(line(Resumed::NothingOutstanding, None, 0), None);
    }
}
