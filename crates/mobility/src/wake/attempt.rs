//! Attempts to wake a connection after an outage, and their outcome.

use holdover_base::{Duration, Instant};
use holdover_flow::Flow;

use super::at::At;
use crate::{Connection, Direction};
use holdover_filter::{Resumed, WakeOutcome};

/// The state of the path behind the link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Path {
    /// The next hop has not answered yet: packets may be lost.
    Unresolved,
    /// The link is reported up, and the next hop, if any, has answered.
    Reported,
    /// Packets have arrived.
    Proven,
}

/// A connection that is being woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Attempt {
    cut_at: Instant,
    up_at: Instant,
    /// Directions whose senders may have data, by the direction of their ACKs: outgoing, incoming.
    waits: [bool; 2],
    first_at: Option<Instant>,
    last_at: Instant,
    /// The time of the next attempt; `None` before its turn.
    next_at: Option<Instant>,
    tries: u32,
    /// Attempts since the path is known to work.
    proven_tries: u32,
}

/// The interval between attempts is half a round trip while the path is not known to work, within these bounds, which
/// also bound the delay of data.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);
/// See [`LEAST_INTERVAL`].
const LONGEST_INTERVAL: Duration = Duration::from_millis(300);

/// The interval grows with the elapsed time: it is at least this fraction of it.
const BACKOFF_PART: u64 = 16;

/// The allowance for timers, beyond a round trip, until the answer to an attempt.
const ALLOWANCE: Duration = Duration::from_millis(15);

/// The round trip without a measurement (RFC 6298 section 2.1 has 1 s for the timeout; attempts cost little).
pub(super) const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(200);

/// The most attempts once the path is known to work: after that, the cause is elsewhere.
const MOST_PROVEN_TRIES: u32 = 6;

/// The interval between checks of a connection that is left to its own timers.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// After this time a connection is left to its own timers.
pub(super) const GIVE_UP: Duration = Duration::from_secs(60);

impl Attempt {
    pub(super) fn new(cut_at: Instant, up_at: Instant, waits: [bool; 2]) -> Self {
        Self { cut_at, up_at, waits, first_at: None, last_at: up_at, next_at: None, tries: 0, proven_tries: 0 }
    }

    /// The connection can be reached from now on: earlier attempts do not count.
    pub(super) fn begin_again(&mut self, now: Instant) {
        let next_at = self.next_at.map(|_| now);
        *self = Self { next_at, ..Self::new(self.cut_at, now, self.waits) };
    }

    /// The host's own TCP has data outstanding.
    pub(super) fn await_own_data(&mut self) {
        self.waits[1] = true;
    }

    /// The peer may have data from now on.
    pub(super) fn await_download(&mut self) {
        self.waits[0] = true;
    }

    pub(super) fn cut_at(&self) -> Instant {
        self.cut_at
    }

    /// The time of the next attempt, if its turn has come.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.next_at
    }

    /// The number of attempts.
    pub(super) fn tries(&self) -> u32 {
        self.tries
    }

    /// Whether there was an attempt.
    pub(super) fn has_begun(&self) -> bool {
        self.first_at.is_some()
    }

    /// Notes an attempt, beside attempts on `others` connections.
    pub(super) fn note_try(&mut self, now: Instant, path: Path, others: usize, flow: &Flow) {
        self.first_at.get_or_insert(now);
        (self.last_at, self.tries) = (now, self.tries + 1);
        let round_trip = flow.least_round_trip().unwrap_or(UNKNOWN_ROUND_TRIP);
        let answered_in = Self::answered_within(flow);
        let wait = match path {
            // On a path that is reported up, a first attempt counts as one on a working path.
            Path::Reported if self.tries == 1 => answered_in,
            Path::Reported | Path::Unresolved => {
                let interval = (round_trip / 2).clamp(LEAST_INTERVAL, LONGEST_INTERVAL);
                // All attempts together take no more of the link than a few alone.
                let interval = interval * (1 + others as u64 / 4);
                interval.max(now.saturating_since(self.up_at) / BACKOFF_PART)
            }
            Path::Proven => {
                self.proven_tries += 1;
                answered_in.max(round_trip * 2) * (1 << self.proven_tries.saturating_sub(1).min(MOST_PROVEN_TRIES))
            }
        };
        self.next_at = Some(now + wait);
    }

    /// The path is known to work: earlier attempts may have been lost on it.
    pub(super) fn note_proof(&mut self, now: Instant, is_partial: bool, flow: &Flow) {
        let is_under_way = !is_partial && now < self.last_at + Self::answered_within(flow);
        if let Some(next_at) = &mut self.next_at
            && !is_under_way
        {
            *next_at = now.min(*next_at);
        }
    }

    /// Whether the path has carried every attempt without effect: from now on it is only watched.
    pub(super) fn is_exhausted(&self) -> bool {
        self.proven_tries >= MOST_PROVEN_TRIES
    }

    /// How long the answer to a packet takes on a path without queues.
    pub(super) fn answered_within(flow: &Flow) -> Duration {
        flow.least_round_trip().unwrap_or(UNKNOWN_ROUND_TRIP) * 5 / 4 + ALLOWANCE
    }

    /// How long a host's TCP with data outstanding sends nothing and gets no ACK until it counts as stuck: an answer may queue, as the smoothed
    /// round trip shows, unless it has measured an outage.
    pub(super) fn stuck_after(flow: &Flow) -> Duration {
        let queued = flow.smoothed_round_trip().map_or(Duration::ZERO, |round_trip| round_trip * 5 / 4 + ALLOWANCE);
        Self::answered_within(flow).max(queued.min(LONGEST_INTERVAL))
    }

    /// Acts no earlier than this.
    pub(super) fn wait_until(&mut self, at: Instant) {
        self.next_at = Some(at);
    }

    /// Waits for the answer to the first attempt until `patience` is over. Returns whether it does.
    pub(super) fn wait_longer(&mut self, now: Instant, patience: Duration) -> bool {
        let until = self.last_at + patience;
        let waits = self.tries == 1 && now < until;
        if waits {
            self.next_at = Some(until);
        }
        waits
    }

    /// No other connection waits for its turn any more: the answer to the first attempt, behind a queue of `queued`, need not be waited for
    /// longer than it takes.
    pub(super) fn wait_no_longer(&mut self, now: Instant, queued: Duration, flow: &Flow) {
        let until = now.max(self.last_at + Self::answered_within(flow) + queued);
        if self.tries == 1 {
            self.next_at = self.next_at.map(|at| at.min(until));
        }
    }

    /// From the attempt to the progress; `None` after several attempts, of which any may have caused it (Karn's rule).
    pub(super) fn answered_in(&self, resumed_at: Instant) -> Option<Duration> {
        (self.tries == 1).then(|| resumed_at.saturating_since(self.last_at))
    }

    /// The ACKs of a stall are released one by one from now on: the answer to the last of them counts.
    pub(super) fn note_train(&mut self, flow: &Flow) {
        let round_trip = flow.least_round_trip().unwrap_or(UNKNOWN_ROUND_TRIP);
        self.next_at = self.next_at.map(|at| at + round_trip);
    }

    /// Checks for progress later, without an attempt.
    pub(super) fn watch(&mut self, now: Instant) {
        self.next_at = Some(now + WATCH_EVERY);
    }

    /// Whether its time limit has passed.
    pub(super) fn is_given_up(&self, now: Instant) -> bool {
        now >= self.up_at + GIVE_UP
    }

    /// The time of the first progress: new data, or an ACK that advances.
    pub(super) fn resumed_at(&self, flow: &Flow) -> Option<Instant> {
        let progress =
            Direction::BOTH.into_iter().zip(self.waits).filter(|&(_, waits)| waits).filter_map(|(direction, _)| {
                flow.half(direction).progress_at(direction).filter(|&at| at >= self.up_at)
            });
        progress.min()
    }

    /// Whether the peer has answered the last attempt without data: it was not waiting either.
    pub(super) fn is_answered_idle(&self, now: Instant, flow: &Flow) -> bool {
        let is_answered = flow.heard_at().is_some_and(|at| at >= self.last_at);
        let round_trip = flow.least_round_trip().unwrap_or(UNKNOWN_ROUND_TRIP);
        self.has_begun()
            && is_answered
            && !flow.half(Direction::Incoming).has_outstanding()
            && now >= self.last_at + round_trip * 2 + ALLOWANCE
    }

    /// The outcome.
    pub(super) fn outcome(&self, now: Instant, connection: Connection, flow: Option<&Flow>) -> WakeOutcome {
        let resumed_at = flow.and_then(|flow| self.resumed_at(flow)).map(|at| at.min(now));
        let two_round_trips = flow.and_then(Flow::least_round_trip).unwrap_or(UNKNOWN_ROUND_TRIP) * 2;
        let kind = match (self.first_at, resumed_at) {
            (None, Some(_)) => Resumed::ByItself,
            (Some(first_at), Some(at)) if at < first_at => Resumed::ByItself,
            (Some(_), Some(at)) if at <= self.last_at + two_round_trips + ALLOWANCE => Resumed::AtOnce,
            (Some(_), Some(_)) => Resumed::Later,
            (_, None) if flow.is_some_and(|flow| self.is_answered_idle(now, flow)) => Resumed::NothingOutstanding,
            (_, None) => Resumed::Never,
        };
        WakeOutcome {
            connection,
            cut_at: self.cut_at,
            up_at: self.up_at,
            woken_at: self.first_at,
            resumed_at,
            tries: self.tries,
            kind,
        }
    }
}

/// A segment that the peer answers at once, and that changes nothing. The answer proves that the path works.
pub(super) fn path_probe(at: At, flow: &Flow) -> Option<crate::Injected> {
    let outgoing = At { direction: Direction::Outgoing, ..at };
    Some(outgoing.inject(flow.keep_alive(outgoing.receiver())?))
}
