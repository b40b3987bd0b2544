//! **Sleep.** The machine is about to sleep, or has slept.
//!
//! Sleep may be announced ([`logind`](super::logind)): that is a cut predicted [`LEAD`] ahead. Then the link is
//! reported down, and the machine may sleep; if it does not after all, the link is reported up.
//!
//! Two clocks show past sleep without any announcement: the one that runs during sleep (`CLOCK_BOOTTIME`) gains on the
//! one that does not (`CLOCK_MONOTONIC`). Then the link is reported down and up; if it is not up, because the interface
//! has to find its network again, the other sources report that.

use holdover_base::{Duration, Instant};
use holdover_mobility::LinkEvent;

/// Compares the clocks, and tracks announcements of sleep. Call [`Self::handle_clocks`] first whenever the process
/// wakes up.
#[derive(Clone, Copy, Debug)]
pub struct SuspendWatch {
    slept: Duration,
    phase: Phase,
}

/// The phase of an announced sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Awake,
    /// The link is reported down at this time.
    Preparing {
        cut_at: Instant,
    },
    /// The link is reported down; it is up if the machine has not slept by then.
    MaySleep {
        until: Instant,
    },
}

const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };

/// Connections do not notice a shorter sleep.
const LEAST: Duration = Duration::from_millis(100);

/// How long sleep is delayed to prepare connections: a round trip of any link except a satellite's. The user does not
/// notice it, and logind waits for up to 5 s (`InhibitDelayMaxSec`).
pub const LEAD: Duration = Duration::from_millis(400);

/// Without further announcement or sleep within this time (awake), sleep counts as cancelled: logind waits for 5 s, and
/// then runs other programs first.
const LONGEST: Duration = Duration::from_secs(30);

impl SuspendWatch {
    /// `slept` is the total sleep until now.
    pub fn new(slept: Duration) -> Self {
        Self { slept, phase: Phase::Awake }
    }

    /// How long the machine has slept since the last call, if it has; it is then awake, even if logind has not announced it.
    pub fn handle_clocks(&mut self, slept: Duration) -> Option<Duration> {
        let more = slept.saturating_sub(self.slept);
        if more < LEAST {
            return None;
        }
        (self.slept, self.phase) = (slept, Phase::Awake);
        Some(more)
    }

    /// Handles an announcement of sleep, made at a total sleep of `slept`: returns the event; nothing if the machine
    /// has slept since.
    pub fn handle_soon(&mut self, now: Instant, slept: Duration) -> Option<LinkEvent> {
        if self.phase != Phase::Awake || self.slept.saturating_sub(slept) >= LEAST {
            return None;
        }
        self.phase = Phase::Preparing { cut_at: now + LEAD };
        Some(LinkEvent::Fading { lead: Some(LEAD) })
    }

    /// Handles the announced end of sleep: returns the event, unless the clocks showed it before.
    pub fn handle_over(&mut self) -> Option<LinkEvent> {
        match std::mem::replace(&mut self.phase, Phase::Awake) {
            Phase::Awake => None,
            Phase::Preparing { .. } => Some(LinkEvent::Recovered),
            Phase::MaySleep { .. } => Some(UP),
        }
    }

    /// Whether sleep is being prepared.
    pub const fn is_preparing(&self) -> bool {
        matches!(self.phase, Phase::Preparing { .. })
    }

    /// When [`Self::handle_timeout`] is to be called.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Preparing { cut_at } => Some(cut_at),
            Phase::MaySleep { until } => Some(until),
            Phase::Awake => None,
        }
    }

    /// If due: returns the event, after which the machine may sleep.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<LinkEvent> {
        self.poll_timeout().filter(|&at| at <= now)?;
        if self.is_preparing() {
            self.phase = Phase::MaySleep { until: now + LONGEST };
            Some(LinkEvent::Down)
        } else {
            self.handle_over()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_is_told_once_and_the_noise_of_reading_two_clocks_never() {
        let at = Duration::from_millis;
        let mut watch = SuspendWatch::new(at(5000));
        assert_eq!(watch.handle_clocks(at(5000)), None);
        assert_eq!(watch.handle_clocks(at(5001)), None);
        assert_eq!(watch.handle_clocks(at(4999)), None);
        assert_eq!(watch.handle_clocks(at(65_000)), Some(at(60_000)));
        assert_eq!(watch.handle_clocks(at(65_000)), None);
        // Short sleeps add up: no drift.
        assert_eq!(watch.handle_clocks(at(65_060)), None);
        assert_eq!(watch.handle_clocks(at(65_120)), Some(at(120)));
    }

    // Claim: Announced sleep is a predicted cut; sleep that does not follow is withdrawn; unannounced sleep is detected from the
    // clocks.
    // Tests: `suspend::a_sleep_that_does_not_come_is_taken_back`, `suspend::a_sleep_of_which_nothing_more_is_heard_is_none`,
    // `suspend::an_announcement_that_is_heard_after_the_sleep_is_nothing`,
    // `suspend::sleep_is_told_once_and_the_noise_of_reading_two_clocks_never`
    #[test]
    fn a_sleep_that_is_announced_is_a_cut_foreseen() {
        let at = Instant::from_secs;
        let mut watch = SuspendWatch::new(Duration::ZERO);
        assert_eq!(watch.handle_soon(at(10), Duration::ZERO), Some(LinkEvent::Fading { lead: Some(LEAD) }));
        assert_eq!(watch.handle_soon(at(10), Duration::ZERO), None);
        assert_eq!((watch.poll_timeout(), watch.handle_timeout(at(10))), (Some(at(10) + LEAD), None));
        assert_eq!(watch.handle_timeout(at(10) + LEAD), Some(LinkEvent::Down));
        assert_eq!(watch.handle_timeout(at(11)), None);
        // The clocks are first to show the end.
        assert_eq!(watch.handle_clocks(Duration::from_secs(3600)), Some(Duration::from_secs(3600)));
        assert_eq!(watch.handle_over(), None);
    }

    #[test]
    fn a_sleep_that_does_not_come_is_taken_back() {
        let mut watch = SuspendWatch::new(Duration::ZERO);
        assert_eq!(watch.handle_over(), None);
        watch.handle_soon(Instant::from_secs(1), Duration::ZERO);
        assert_eq!(watch.handle_over(), Some(LinkEvent::Recovered));
        watch.handle_soon(Instant::from_secs(2), Duration::ZERO);
        watch.handle_timeout(Instant::from_secs(3));
        assert_eq!(watch.handle_over(), Some(UP));
        assert_eq!((watch.handle_over(), watch.poll_timeout()), (None, None));
    }

    #[test]
    fn a_sleep_of_which_nothing_more_is_heard_is_none() {
        let mut watch = SuspendWatch::new(Duration::ZERO);
        watch.handle_soon(Instant::from_secs(1), Duration::ZERO);
        watch.handle_timeout(Instant::from_secs(2));
        let until = watch.poll_timeout().unwrap();
        assert_eq!((until, watch.handle_timeout(until)), (Instant::from_secs(2) + LONGEST, Some(UP)));
        assert_eq!((watch.poll_timeout(), watch.handle_over()), (None, None));
    }

    #[test]
    fn an_announcement_that_is_heard_after_the_sleep_is_nothing() {
        let mut watch = SuspendWatch::new(Duration::ZERO);
        watch.handle_clocks(Duration::from_secs(60));
        assert_eq!(watch.handle_soon(Instant::from_secs(1), Duration::ZERO), None);
        assert!(watch.handle_soon(Instant::from_secs(2), Duration::from_secs(60)).is_some());
    }
}
