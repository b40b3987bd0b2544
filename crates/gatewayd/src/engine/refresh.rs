//! Periodic work on many mobile hosts, a few at a time, so that packets and notices do not wait for it.

use std::collections::VecDeque;
use std::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::KEEP_NEIGHBOURS_EVERY;

/// Rounds over all absent mobile hosts: each is due once in [`KEEP_NEIGHBOURS_EVERY`].
#[derive(Debug)]
pub(super) struct Refresh {
    /// The rest of this round.
    waiting: VecDeque<IpAddr>,
    /// The pause between parts of this round.
    pause: Duration,
    /// The next round has no pauses.
    is_urgent: bool,
    rounds: u32,
    at: Instant,
}

/// One of so many rounds is for all hosts.
const ROUNDS_FOR_ALL: u32 = 8;

/// The hosts of one part: a millisecond of work.
const AT_ONCE: usize = 64;

impl Refresh {
    pub(super) fn new(now: Instant) -> Self {
        Self { waiting: VecDeque::new(), pause: Duration::ZERO, is_urgent: true, rounds: 0, at: now }
    }

    /// The kernel has lost its entries: all hosts are due, with turns of other work in between, but without pauses.
    pub(super) fn restart(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        self.at
    }

    /// Whether this round is for all hosts, or for those to which packets are sent.
    pub(super) fn is_for_all(&self) -> bool {
        self.rounds.is_multiple_of(ROUNDS_FOR_ALL)
    }

    /// The hosts that are due. `all` returns those of a new round.
    pub(super) fn due(&mut self, now: Instant, all: impl FnOnce() -> Vec<IpAddr>) -> Vec<IpAddr> {
        if now < self.at {
            return Vec::new();
        }
        if self.waiting.is_empty() {
            self.waiting = all().into();
            let parts = self.waiting.len().div_ceil(AT_ONCE).max(1) as u64;
            let is_urgent = std::mem::take(&mut self.is_urgent);
            self.rounds = if is_urgent { 0 } else { self.rounds + 1 };
            self.pause = if is_urgent { Duration::ZERO } else { KEEP_NEIGHBOURS_EVERY / parts };
        }
        let due = self.waiting.drain(..AT_ONCE.min(self.waiting.len())).collect();
        let is_over = self.waiting.is_empty() && self.pause == Duration::ZERO;
        self.at = now + if is_over { KEEP_NEIGHBOURS_EVERY } else { self.pause };
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(count: u16) -> Vec<IpAddr> {
        (0..count).map(|number| IpAddr::from([10, 0, number.to_be_bytes()[0], number.to_be_bytes()[1]])).collect()
    }

    // Claim: The neighbour entries of thousands of absent hosts are refreshed a few at a time, each every 2 s, and all at once, with turns for other
    // work, after a change of the carrier.
    #[test]
    fn each_host_is_due_once_in_two_seconds() {
        let mut refresh = Refresh::new(Instant::ZERO);
        let all = hosts(10_000);
        let mut last = std::collections::BTreeMap::new();
        let mut now = Instant::ZERO;
        while now < Instant::from_secs(9) {
            let due = refresh.due(now, || all.clone());
            assert!(due.len() <= AT_ONCE);
            for host in due {
                let before = last.insert(host, now);
                let apart = before.map(|before| now.saturating_since(before));
                assert!(apart.is_none_or(|apart| apart <= Duration::from_secs(4)), "{host}: {apart:?}");
            }
            if refresh.poll_timeout() > now {
                now = refresh.poll_timeout();
            }
        }
        assert_eq!(last.len(), all.len());
        assert!(last.values().all(|&at| at >= Instant::from_secs(5)), "{last:?}");
    }

    #[test]
    fn after_a_change_of_the_carrier_no_time_passes_within_a_round() {
        let mut refresh = Refresh::new(Instant::ZERO);
        assert_eq!(refresh.due(Instant::ZERO, Vec::new), Vec::<IpAddr>::new());
        let at = Instant::from_millis(100);
        assert_eq!((refresh.due(at, || hosts(200)).len(), refresh.poll_timeout()), (0, Instant::from_secs(2)));
        refresh.restart(at);
        let parts: Vec<usize> = (0..5).map(|_| refresh.due(at, || hosts(200)).len()).collect();
        assert_eq!(parts, [64, 64, 64, 8, 0]);
        assert_eq!(refresh.poll_timeout(), at + KEEP_NEIGHBOURS_EVERY);
        assert!(refresh.is_for_all());
    }

    #[test]
    fn one_round_of_eight_is_for_hosts_without_packets() {
        let mut refresh = Refresh::new(Instant::ZERO);
        let for_all = (0..17).map(|_| {
            let due = refresh.due(refresh.poll_timeout(), || hosts(10));
            assert_eq!(due.len(), 10);
            refresh.is_for_all()
        });
        let for_all: Vec<usize> = for_all.enumerate().filter(|(_, is)| *is).map(|(round, _)| round).collect();
        assert_eq!(for_all, [0, 8, 16]);
    }
}
