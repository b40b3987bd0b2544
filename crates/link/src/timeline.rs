//! A link's connectivity over time, drawn as far ahead as needed.

use std::collections::VecDeque;
use std::sync::Arc;

use holdover_base::{Duration, Instant, Rng};

use crate::outage::{Alternating, Outage, Outages};
use crate::trace::ConditionTrace;

/// Whether the link is up, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Up { until: Instant },
    Down { until: Instant },
}

#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    source: Source,
    /// Drawn outages that may still be needed, in order; they do not touch.
    window: VecDeque<Outage>,
    /// Whether the source is exhausted.
    finished: bool,
    /// The start of a manual cut, independent of the schedule.
    manual_cut: Option<Instant>,
    /// Whether the schedule's first outage in the window has begun, as of `pass`.
    in_outage: bool,
    /// The end of the last outage that `pass` has removed, or of the last manual cut.
    last_up: Option<Instant>,
    /// By how much each outage is prolonged.
    longer_by: Duration,
    /// The source's next outage, if it was already drawn.
    ahead: Option<Outage>,
    /// Plans so far depend on connectivity up to here only.
    known_to: Instant,
    /// Whether a manual cut has ended.
    was_cut: bool,
    /// The number of changes that [`Self::pass`] has passed.
    passed: u64,
}

#[derive(Clone, Debug)]
enum Source {
    Never,
    List { list: Vec<Outage>, next: usize },
    Alternating { plan: Alternating, first: bool, count: u64, free_from: Instant, rng: Rng },
    Trace { trace: Arc<ConditionTrace>, from: Instant },
}

impl Timeline {
    /// The connectivity described by `outages`, or else by the `up` column of `trace`. The caller has checked the outages.
    pub(crate) fn new(outages: &Outages, trace: Option<&Arc<ConditionTrace>>, rng: Rng) -> Self {
        let source = match (outages, trace) {
            (Outages::List(list), _) => Source::List { list: list.clone(), next: 0 },
            (Outages::Alternating(plan), _) => {
                Source::Alternating { plan: plan.clone(), first: true, count: 0, free_from: Instant::ZERO, rng }
            }
            (Outages::Never, Some(trace)) if trace.has_up() => {
                Source::Trace { trace: Arc::clone(trace), from: Instant::ZERO }
            }
            (Outages::Never, _) => Source::Never,
        };
        let mut timeline = Self {
            source,
            window: VecDeque::new(),
            finished: false,
            manual_cut: None,
            in_outage: false,
            last_up: None,
            longer_by: Duration::ZERO,
            ahead: None,
            known_to: Instant::ZERO,
            was_cut: false,
            passed: 0,
        };
        timeline.draw();
        timeline
    }

    /// The same with every outage prolonged by `more`. Outages that then touch or overlap are merged; more than
    /// [`Self::MOST_TOUCHING`] of them become one without end.
    pub(crate) fn longer_by(mut self, more: Duration) -> Self {
        self.longer_by = more;
        self.ahead = self.window.pop_front();
        self.finished = false;
        self.draw();
        self
    }

    /// If this many consecutive outages each begin before the link carries again after the previous one, they count as one without end: a
    /// schedule may have no gaps.
    const MOST_TOUCHING: u32 = 10_000;

    /// The last link-up before or at `t`; `None` if the link has been up from the start.
    pub(crate) fn back_at(&self, t: Instant) -> Option<Instant> {
        let index = self.window.partition_point(|outage| outage.up <= t);
        index.checked_sub(1).and_then(|last| self.window.get(last)).map(|outage| outage.up).max(self.last_up)
    }

    /// The state at `t`, which must not be before the outages that `pass` has removed. A caller that depends on the end of an up state
    /// notes until when ([`Self::note_known_to`]).
    pub(crate) fn state(&mut self, t: Instant) -> State {
        let state = self.find_state(t);
        self.note_known_to(if let State::Down { until } = state { until } else { t });
        state
    }

    /// A plan depends on connectivity up to `t`.
    #[inline]
    pub(crate) fn note_known_to(&mut self, t: Instant) {
        self.known_to = self.known_to.max(t);
    }

    /// The instant up to which [`Self::state`] and its callers have depended on connectivity.
    pub(crate) const fn known_to(&self) -> Instant {
        self.known_to
    }

    fn find_state(&mut self, t: Instant) -> State {
        if self.manual_cut.is_some() {
            return State::Down { until: Instant::FAR_FUTURE };
        }
        while !self.finished && self.window.back().is_none_or(|last| last.up <= t) {
            self.draw();
        }
        // A slow link may have planned across many short outages: binary search.
        match self.window.get(self.window.partition_point(|outage| outage.up <= t)) {
            Some(outage) if outage.down <= t => State::Down { until: outage.up },
            Some(outage) => State::Up { until: outage.down },
            None => State::Up { until: Instant::FAR_FUTURE },
        }
    }

    /// The first instant in `[from, to)` at which the link is down.
    pub(crate) fn cut_within(&mut self, from: Instant, to: Instant) -> Option<Instant> {
        if from >= to {
            return None;
        }
        match self.find_state(from) {
            State::Down { .. } => {
                self.note_known_to(from);
                Some(from)
            }
            State::Up { until } => {
                self.note_known_to(until.min(to));
                (until < to).then_some(until)
            }
        }
    }

    /// The next change of the schedule after those of `pass`.
    pub(crate) fn next_change(&self) -> Option<Instant> {
        let outage = self.window.front()?;
        let at = if self.in_outage { outage.up } else { outage.down };
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    /// Passes the next change of the schedule at or before `now`, and returns its time.
    pub(crate) fn pass(&mut self, now: Instant) -> Option<Instant> {
        let at = self.next_change().filter(|&at| at <= now)?;
        if self.in_outage {
            self.last_up = self.window.pop_front().map(|outage| outage.up).max(self.last_up);
            if self.window.is_empty() {
                self.draw();
            }
        }
        self.in_outage = !self.in_outage;
        self.passed += 1;
        Some(at)
    }

    /// The first change that this schedule and another one do not share; [`Instant::FAR_FUTURE`] if there is none. After
    /// [`Self::MOST_COMPARED`] shared changes it is the last of these. Consumes both schedules.
    pub(crate) fn first_difference(mut self, mut other: Self) -> Instant {
        let mut last = Instant::ZERO;
        for _ in 0..Self::MOST_COMPARED {
            let [one, two] = [&self, &other].map(|it| it.next_change().unwrap_or(Instant::FAR_FUTURE));
            let at = one.min(two);
            if one != two || at == Instant::FAR_FUTURE {
                return at;
            }
            (last, _) = (at, (self.pass(at), other.pass(at)));
        }
        last
    }

    /// The most changes that are compared: outages may be without end.
    const MOST_COMPARED: usize = 10_000;

    /// Takes the place of another schedule that has the same changes up to `now`.
    pub(crate) fn take_place_of(&mut self, other: &Self, now: Instant) {
        // The changes of this instant may be still to be passed.
        for _ in 0..other.passed {
            self.pass(now);
        }
        self.note_known_to(other.known_to);
    }

    /// Whether it was cut manually, now or before.
    pub(crate) const fn was_cut_manually(&self) -> bool {
        self.manual_cut.is_some() || self.was_cut
    }

    /// Whether the link is up, as of `pass`.
    pub(crate) fn is_up(&self) -> bool {
        !self.in_outage && self.manual_cut.is_none()
    }

    pub(crate) fn cut(&mut self, now: Instant) {
        self.manual_cut = self.manual_cut.or(Some(now));
    }

    pub(crate) fn mend(&mut self, now: Instant) {
        if self.manual_cut.take().is_some() {
            self.was_cut = true;
            self.last_up = self.last_up.max(Some(now));
        }
    }

    /// Draws one more outage, if there is one, merged with those that touch it.
    fn draw(&mut self) {
        let Some(first) = self.ahead.take().or_else(|| self.source.next()) else {
            self.finished = true;
            return;
        };
        let mut outage = Outage { up: first.up + self.longer_by, ..first };
        // The source's own outages do not touch.
        let mut touching = 0;
        while !self.longer_by.is_zero() && outage.up != Instant::FAR_FUTURE {
            self.ahead = self.source.next();
            let Some(next) = self.ahead.take_if(|next| next.down <= outage.up) else { break };
            outage.up = outage.up.max(next.up + self.longer_by);
            touching += 1;
            if touching == Self::MOST_TOUCHING {
                outage.up = Instant::FAR_FUTURE;
            }
        }
        self.window.push_back(outage);
    }
}

impl Source {
    /// The next outage, which does not touch the one before.
    fn next(&mut self) -> Option<Outage> {
        match self {
            Self::Never => None,
            Self::List { list, next } => {
                // Merges outages that touch.
                let mut outage = *list.get(*next)?;
                *next += 1;
                while let Some(more) = list.get(*next)
                    && more.down == outage.up
                {
                    outage.up = more.up;
                    *next += 1;
                }
                Some(outage)
            }
            Self::Alternating { plan, first, count, free_from, rng } => {
                if *free_from == Instant::FAR_FUTURE || plan.count.is_some_and(|limit| *count >= limit) {
                    return None;
                }
                let connected = match plan.initial_connected.filter(|_| *first) {
                    Some(initial) => initial,
                    None => plan.connected.draw(rng),
                };
                let down = *free_from + connected;
                let up = down + plan.disconnected.draw(rng).max(Duration::from_nanos(1));
                (*first, *count, *free_from) = (false, *count + 1, up);
                (down < up).then_some(Outage { down, up })
            }
            Self::Trace { trace, from } => next_down_rows(trace, from),
        }
    }
}

/// The next run of `down` rows.
fn next_down_rows(trace: &ConditionTrace, from: &mut Instant) -> Option<Outage> {
    let down = seek(trace, *from, false)?;
    let up = seek(trace, down, true).unwrap_or(Instant::FAR_FUTURE);
    *from = up;
    Some(Outage { down, up })
}

/// The first `up` row at or after `from`; `None` if there is none.
fn seek(trace: &ConditionTrace, from: Instant, up: bool) -> Option<Instant> {
    // A table without an `up` row in one whole run never has one.
    let horizon = from + trace.length() + Duration::from_nanos(1);
    let mut at = from;
    while at != Instant::FAR_FUTURE {
        let (row_up, until) = trace.up_until(at);
        if row_up == up {
            return Some(at);
        }
        if at > horizon {
            return None;
        }
        at = until;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outage::Length;
    use crate::trace::AtEnd;

    fn at(secs: u64) -> Instant {
        Instant::from_secs(secs)
    }

    fn changes(timeline: &mut Timeline, until: Instant) -> Vec<u64> {
        core::iter::from_fn(|| timeline.pass(until)).map(|at| at.as_nanos() / 1_000_000_000).collect()
    }

    #[test]
    fn periodic_outages_come_and_go() {
        let outages = Outages::periodic(Duration::from_secs(5), Duration::from_secs(2));
        let mut timeline = Timeline::new(&outages, None, Rng::new(1));
        assert_eq!(timeline.state(at(0)), State::Up { until: at(5) });
        assert_eq!(timeline.state(at(5)), State::Down { until: at(7) });
        assert_eq!(timeline.state(at(700)), State::Up { until: at(705) });
        assert_eq!(timeline.cut_within(at(0), at(5)), None);
        assert_eq!(timeline.cut_within(at(0), at(6)), Some(at(5)));
        assert_eq!(timeline.cut_within(at(6), at(8)), Some(at(6)));
        assert_eq!(changes(&mut timeline, at(21)), [5, 7, 12, 14, 19, 21]);
        assert!(timeline.is_up());
        assert_eq!(timeline.next_change(), Some(at(26)));
    }

    #[test]
    fn the_first_connected_time_and_the_number_of_outages_can_be_given() {
        let outages = Outages::Alternating(Alternating {
            initial_connected: Some(Duration::ZERO),
            connected: Length::Constant(Duration::from_secs(3)),
            disconnected: Length::Constant(Duration::from_secs(1)),
            count: Some(2),
        });
        let mut timeline = Timeline::new(&outages, None, Rng::new(1));
        assert_eq!(changes(&mut timeline, at(1000)), [0, 1, 4, 5]);
        assert_eq!(timeline.state(at(1001)), State::Up { until: Instant::FAR_FUTURE });
    }

    #[test]
    fn listed_outages_that_touch_are_one_and_the_last_may_never_end() {
        let list = vec![
            Outage { down: at(1), up: at(2) },
            Outage { down: at(2), up: at(3) },
            Outage { down: at(9), up: Instant::FAR_FUTURE },
        ];
        let mut timeline = Timeline::new(&Outages::List(list), None, Rng::new(1));
        assert_eq!(timeline.state(at(1)), State::Down { until: at(3) });
        assert_eq!(changes(&mut timeline, at(1000)), [1, 3, 9]);
        assert!(!timeline.is_up());
        assert_eq!(timeline.next_change(), None);
    }

    #[test]
    fn a_table_says_when_the_link_is_up() {
        let timeline = |text, at_end| {
            let trace = Arc::new(ConditionTrace::parse(text, at_end).unwrap());
            Timeline::new(&Outages::Never, Some(&trace), Rng::new(1))
        };
        // Down at the end of one run and at the start of the next is one outage.
        let text = "t,up\n0,0\n2,1\n5,0\n6,0\n7,1\n";
        assert_eq!(changes(&mut timeline(text, AtEnd::Repeat), at(17)), [0, 2, 5, 9, 12, 16]);
        assert_eq!(changes(&mut timeline(text, AtEnd::Stop), at(100)), [0, 2, 5, 7]);
        assert!(changes(&mut timeline("t,up\n0,1\n3,1\n", AtEnd::Repeat), at(100)).is_empty());
        let mut never_up = timeline("t,up\n0,0\n3,0\n", AtEnd::Repeat);
        assert_eq!(never_up.state(at(5)), State::Down { until: Instant::FAR_FUTURE });
    }

    #[test]
    fn a_manual_cut_overrides_the_schedule() {
        let outages = Outages::periodic(Duration::from_secs(5), Duration::from_secs(2));
        let mut timeline = Timeline::new(&outages, None, Rng::new(1));
        timeline.cut(at(1));
        assert_eq!(timeline.state(at(1)), State::Down { until: Instant::FAR_FUTURE });
        timeline.mend(at(1));
        assert_eq!(timeline.state(at(1)), State::Up { until: at(5) });
    }

    #[test]
    fn schedules_differ_from_the_first_change_on_that_they_do_not_share() {
        let once = |connected, disconnected| {
            let outages = Outages::Alternating(Alternating {
                initial_connected: None,
                connected: Length::Constant(Duration::from_secs(connected)),
                disconnected: Length::Constant(Duration::from_secs(disconnected)),
                count: Some(1),
            });
            Timeline::new(&outages, None, Rng::new(1))
        };
        assert_eq!(once(2, 5).first_difference(once(4, 5)), at(2));
        assert_eq!(once(2, 5).first_difference(once(2, 7)), at(7));
        assert_eq!(once(2, 5).first_difference(once(2, 5)), Instant::FAR_FUTURE);
        let never = Timeline::new(&Outages::Never, None, Rng::new(1));
        assert_eq!(once(3, 5).first_difference(never), at(3));
    }

    #[test]
    fn it_notes_until_when_connectivity_was_asked_for() {
        let outages = Outages::periodic(Duration::from_secs(5), Duration::from_secs(2));
        let mut timeline = Timeline::new(&outages, None, Rng::new(1));
        assert_eq!(timeline.cut_within(at(1), at(3)), None);
        assert_eq!(timeline.known_to(), at(3));
        assert_eq!(timeline.cut_within(at(2), at(9)), Some(at(5)));
        assert_eq!(timeline.known_to(), at(5), "the outage's end is not known yet");
        assert_eq!(timeline.cut_within(at(6), at(9)), Some(at(6)));
        assert_eq!(timeline.known_to(), at(6), "nor is it asked for");
        assert_eq!(timeline.state(at(6)), State::Down { until: at(7) });
        assert_eq!(timeline.known_to(), at(7));
    }

    #[test]
    fn queries_do_not_change_the_drawn_outages() {
        let outages = Outages::Alternating(Alternating {
            initial_connected: None,
            connected: Length::Exponential { mean: Duration::from_secs(5) },
            disconnected: Length::Uniform { min: Duration::from_secs(1), max: Duration::from_secs(3) },
            count: None,
        });
        let mut one = Timeline::new(&outages, None, Rng::new(9));
        let mut other = one.clone();
        let _ = other.state(at(500));
        assert_eq!(changes(&mut one, at(1000)), changes(&mut other, at(1000)));
    }
}
