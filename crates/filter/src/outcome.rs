//! Outcomes of waking connections after an outage, as seen from the packets in the path.
//!
//! A mechanism that wakes senders reports one outcome for each connection that the outage interrupted, once it is
//! known: when the connection carries data again, or when the mechanism gives up. An action ([`Action`](crate::Action))
//! alone proves nothing: its packet may be lost like any other.

use holdover_base::{Duration, Instant};

use crate::Connection;

/// The outcome of one connection after one outage.
///
/// A connection *resumes* when the path shows progress after the link came up: new data, or an ACK that advances (RFC
/// 9293 section 3.10.7.4, `SND.UNA < SEG.ACK`). Duplicate ACKs, window updates and retransmissions of received data are
/// no progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WakeOutcome {
    /// The connection.
    pub connection: Connection,
    /// When the link went down.
    pub cut_at: Instant,
    /// When the link came up again.
    pub up_at: Instant,
    /// When the mechanism sent the first packet to wake it; `None` if it sent none.
    pub woken_at: Option<Instant>,
    /// The first progress after `up_at`; `None` if none was seen.
    pub resumed_at: Option<Instant>,
    /// The number of attempts to wake it.
    pub tries: u32,
    /// How it resumed.
    pub kind: Resumed,
}

/// How a connection resumed after an outage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resumed {
    /// By itself, before anything was sent to wake it.
    ByItself,
    /// Within two round trips of the attempt that got through.
    AtOnce,
    /// Later than that: a retransmission timer may have been the cause.
    Later,
    /// Not at all: the time limit passed, the link went down again, or the connection was closed.
    Never,
    /// No data was outstanding in either direction. Such connections do not count as woken.
    NothingOutstanding,
}

impl Resumed {
    /// All variants, in the order in which reports name them.
    pub const ALL: [Self; 5] = [Self::AtOnce, Self::Later, Self::Never, Self::ByItself, Self::NothingOutstanding];

    /// The name in metrics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ByItself => "by_itself",
            Self::AtOnce => "at_once",
            Self::Later => "later",
            Self::Never => "never",
            Self::NothingOutstanding => "nothing_outstanding",
        }
    }
}

impl WakeOutcome {
    /// From link-up to the first progress; `None` if there was none.
    pub fn resume_time(&self) -> Option<Duration> {
        self.resumed_at.map(|at| at.saturating_since(self.up_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resume_time_begins_when_the_link_is_up() {
        let up_at = Instant::from_secs(7);
        let outcome = WakeOutcome {
            connection: Connection {
                local: "192.0.2.7:1024".parse().unwrap(),
                remote: "192.0.2.1:80".parse().unwrap(),
            },
            cut_at: Instant::from_secs(1),
            up_at,
            woken_at: Some(up_at + Duration::from_millis(20)),
            resumed_at: Some(up_at + Duration::from_millis(80)),
            tries: 1,
            kind: Resumed::AtOnce,
        };
        assert_eq!(outcome.resume_time(), Some(Duration::from_millis(80)));
        assert_eq!(WakeOutcome { resumed_at: None, kind: Resumed::Never, ..outcome }.resume_time(), None);
    }

    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<&str> = Resumed::ALL.into_iter().map(Resumed::name).collect();
        assert_eq!(names.len(), Resumed::ALL.len());
    }
}
