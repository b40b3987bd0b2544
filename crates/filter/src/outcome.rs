//! What became of a connection after an outage, as the packets in the path showed it.
//!
//! A mechanism that wakes senders reports an outcome for each connection that the outage had interrupted, once it is known: when the
//! connection carries data again, or when the mechanism gives it up. An action alone ([`Action`](crate::Action)) proves nothing: a packet
//! that was sent may be lost like any other.

use holdover_base::{Duration, Instant};

use crate::Connection;

/// What became of one connection after one outage.
///
/// A connection *resumes* when the path shows progress after the link came up: data that was not seen before, or an ACK that advances
/// (RFC 9293 section 3.10.7.4, `SND.UNA < SEG.ACK`). Duplicate ACKs, window updates and retransmissions of what the receiver
/// already has are no progress.
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
    /// How often it was tried to wake it.
    pub tries: u32,
    /// How it went on.
    pub kind: Resumed,
}

/// How a connection went on after an outage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resumed {
    /// It flowed before anything was sent to wake it.
    ByItself,
    /// Within two round trips of the try that the path let through.
    AtOnce,
    /// Later than that: a retransmission timer may have been the cause.
    Later,
    /// It was given up without progress: the time for it was over, the link was cut again, or the connection was closed.
    Never,
    /// Neither end was waiting for anything. Such connections do not count as woken.
    NothingOutstanding,
}

impl Resumed {
    /// All of them, in the order in which reports name them.
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
    /// From the link's return to the first progress; `None` if there was none.
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
