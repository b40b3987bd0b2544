//! Outages of a link.

use holdover_base::{Duration, Instant};

/// More intervals than this are not drawn individually.
const MAX_INTERVALS: usize = 2000;

/// The outages of one link.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct OutageLog {
    intervals: Vec<(Instant, Instant)>,
    /// Connected times up to this length are merged into the outages around them.
    merged: Duration,
    down_since: Option<Instant>,
    /// The number of outages.
    pub(crate) count: u64,
    /// Their total duration.
    pub(crate) total: Duration,
    /// The shortest completed outage.
    pub(crate) shortest: Option<Duration>,
    /// The longest completed outage.
    pub(crate) longest: Option<Duration>,
}

impl OutageLog {
    pub(crate) fn down(&mut self, at: Instant) {
        self.down_since = Some(at);
        self.count += 1;
    }

    pub(crate) fn up(&mut self, at: Instant) {
        if let Some(since) = self.down_since.take() {
            let length = at.saturating_since(since);
            self.shortest = Some(self.shortest.map_or(length, |shortest| shortest.min(length)));
            self.longest = Some(self.longest.map_or(length, |longest| longest.max(length)));
            self.push(since, at);
        }
    }

    /// Ends the log at the end of the run.
    pub(crate) fn finish(&mut self, at: Instant) {
        if let Some(since) = self.down_since.take() {
            self.push(since, at);
        }
    }

    pub(crate) fn intervals(&self) -> impl Iterator<Item = (Instant, Instant)> + '_ {
        self.intervals.iter().copied()
    }

    /// Whether every outage has its own interval.
    pub(crate) fn is_complete(&self) -> bool {
        self.merged.is_zero()
    }

    fn push(&mut self, down: Instant, up: Instant) {
        self.total += up.saturating_since(down);
        self.append(down, up);
        while self.intervals.len() > MAX_INTERVALS {
            let span = up.saturating_since(self.intervals[0].0);
            self.merged = (self.merged * 2).max(span / (4 * MAX_INTERVALS as u64)).max(Duration::from_nanos(1));
            for (down, up) in std::mem::take(&mut self.intervals) {
                self.append(down, up);
            }
        }
    }

    fn append(&mut self, down: Instant, up: Instant) {
        match self.intervals.last_mut() {
            Some(last) if !self.merged.is_zero() && down.saturating_since(last.1) <= self.merged => last.1 = up,
            _ => self.intervals.push((down, up)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_outages_are_merged_and_still_counted() {
        let mut log = OutageLog::default();
        for n in 0..100_000 {
            log.down(Instant::from_millis(10 * n));
            log.up(Instant::from_millis(10 * n + 4));
        }
        assert!(log.intervals().count() <= MAX_INTERVALS);
        assert_eq!((log.count, log.total), (100_000, Duration::from_secs(400)));
        assert_eq!(log.longest, Some(Duration::from_millis(4)));
        assert_eq!(log.intervals().next().map(|first| first.0), Some(Instant::ZERO));
        assert_eq!(log.intervals().last().map(|last| last.1), Some(Instant::from_millis(999_994)));
    }

    #[test]
    fn an_outage_that_does_not_end_lasts_to_the_end_of_the_run() {
        let mut log = OutageLog::default();
        log.down(Instant::from_secs(3));
        log.finish(Instant::from_secs(8));
        assert_eq!(log.intervals().collect::<Vec<_>>(), [(Instant::from_secs(3), Instant::from_secs(8))]);
        assert_eq!((log.total, log.longest), (Duration::from_secs(5), None));
    }
}
