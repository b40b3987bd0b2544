//! Active queue management (AQM) by waiting time: CoDel (RFC 8289), and a step threshold for marks (Linux `fq_codel`'s
//! `ce_threshold`).
//!
//! A frame's wait is known when it arrives, because transmissions start in the order of arrival. So the verdict on
//! dequeue is computed at once, in the same order. One condition of RFC 8289 cannot be evaluated that way: CoDel also
//! rests while less than a full frame is left in the queue, which depends on later arrivals.

use holdover_base::{Duration, Instant};

/// CoDel's parameters, under the names of RFC 8289 and of Linux's `codel`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoDel {
    /// The acceptable wait (TARGET).
    pub target: Duration,
    /// How long waits have to exceed it before CoDel acts: a worst-case round trip (INTERVAL).
    pub interval: Duration,
    /// Whether frames with ECN are marked instead of dropped (RFC 3168 section 5).
    pub ecn: bool,
}

impl Default for CoDel {
    /// RFC 8289 section 4.3 and 4.4: 5 ms and 100 ms.
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100), ecn: true }
    }
}

/// The verdict on a frame that leaves the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Pass,
    /// The queue is too long: mark the frame, or pass it if it cannot be marked.
    Mark,
    /// Mark it, or drop it if it cannot be marked.
    MarkOrDrop,
    Drop,
}

#[derive(Clone, Debug)]
pub(crate) struct Manager {
    codel: Option<CoDel>,
    threshold: Option<Duration>,
    /// When the wait will have been above target for an interval.
    first_above_at: Option<Instant>,
    drop_next_at: Instant,
    count: u32,
    last_count: u32,
    is_dropping: bool,
}

impl Manager {
    /// `None` if the queue is not managed.
    pub(crate) fn new(codel: Option<CoDel>, threshold: Option<Duration>) -> Option<Self> {
        (codel.is_some() || threshold.is_some()).then_some(Self {
            codel,
            threshold,
            first_above_at: None,
            drop_next_at: Instant::ZERO,
            count: 0,
            last_count: 0,
            is_dropping: false,
        })
    }

    /// Judges a frame that arrived at `since` and leaves the queue at `at`.
    pub(crate) fn judge(&mut self, since: Instant, at: Instant) -> Verdict {
        let wait = at.saturating_since(since);
        if let Some(codel) = self.codel
            && self.is_due(&codel, wait, at)
        {
            return if codel.ecn { Verdict::MarkOrDrop } else { Verdict::Drop };
        }
        if self.threshold.is_some_and(|threshold| wait > threshold) { Verdict::Mark } else { Verdict::Pass }
    }

    /// RFC 8289 section 5.6.
    fn is_due(&mut self, codel: &CoDel, wait: Duration, at: Instant) -> bool {
        let may_drop = self.has_been_above(codel, wait, at);
        if self.is_dropping {
            if !may_drop {
                self.is_dropping = false;
                return false;
            }
            if at < self.drop_next_at {
                return false;
            }
            self.count += 1;
            self.drop_next_at += Self::spacing(codel, self.count);
            return true;
        }
        if !may_drop {
            return false;
        }
        self.is_dropping = true;
        // If the last episode ended shortly before, its rate is a better start than the slowest one.
        let delta = self.count.saturating_sub(self.last_count);
        let is_recent = at.saturating_since(self.drop_next_at) < codel.interval * 16;
        self.count = if delta > 1 && is_recent { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next_at = at + Self::spacing(codel, self.count);
        true
    }

    /// RFC 8289 section 5.5, `dodequeue`.
    fn has_been_above(&mut self, codel: &CoDel, wait: Duration, at: Instant) -> bool {
        if wait < codel.target {
            self.first_above_at = None;
            return false;
        }
        match self.first_above_at {
            None => {
                self.first_above_at = Some(at + codel.interval);
                false
            }
            Some(first) => at >= first,
        }
    }

    /// The control law: the interval over the square root of the count.
    fn spacing(codel: &CoDel, count: u32) -> Duration {
        let nanos = codel.interval.as_nanos() as f64 / f64::from(count.max(1)).sqrt();
        Duration::from_nanos(nanos as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// The times at which a frame is not passed, given a frame per millisecond, each after a wait of `wait` ms.
    fn acts(manager: &mut Manager, wait: u64, from: u64, until: u64) -> Vec<u64> {
        (from..until).filter(|&ms| manager.judge(at(ms), at(ms + wait)) != Verdict::Pass).map(|ms| ms - from).collect()
    }

    fn codel() -> Manager {
        Manager::new(Some(CoDel::default()), None).unwrap()
    }

    #[test]
    fn waits_below_the_target_are_left_alone() {
        assert_eq!(acts(&mut codel(), 4, 0, 1_000), [0; 0]);
    }

    /// 100 ms after waits went above the target, then after 100, 71, 58 and 50 ms.
    #[test]
    fn the_spacing_falls_with_the_square_root() {
        let acted = acts(&mut codel(), 20, 0, 400);
        assert_eq!(acted[0], 100);
        let spacings: Vec<u64> = acted.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(spacings[..4].iter().zip([100, 71, 58, 50]).all(|(&is, want)| is.abs_diff(want) <= 1), "{spacings:?}");
    }

    #[test]
    fn one_short_wait_ends_the_episode_and_a_new_one_begins_where_it_was() {
        let mut manager = codel();
        let first = acts(&mut manager, 20, 0, 1_000).len();
        assert!(first > 10);
        assert_eq!(manager.judge(at(1_000), at(1_001)), Verdict::Pass);
        let second = acts(&mut manager, 20, 1_001, 1_301);
        assert_eq!(second[0], 100);
        assert!(second.len() > 6, "not from the slowest rate on: {second:?}");
    }

    #[test]
    fn a_threshold_marks_whatever_waits_longer() {
        let mut manager = Manager::new(None, Some(Duration::from_millis(1))).unwrap();
        assert_eq!(manager.judge(at(0), at(1)), Verdict::Pass);
        assert_eq!(manager.judge(at(0), at(2)), Verdict::Mark);
        assert!(Manager::new(None, None).is_none());
    }

    #[test]
    fn without_ecn_frames_are_dropped() {
        let mut manager = Manager::new(Some(CoDel { ecn: false, ..CoDel::default() }), None).unwrap();
        let verdicts: Vec<Verdict> = (0..200).map(|ms| manager.judge(at(ms), at(ms + 50))).collect();
        assert!(verdicts.contains(&Verdict::Drop) && !verdicts.contains(&Verdict::MarkOrDrop));
    }
}
