//! Warnings to a host before it loses its current link.

use holdover_base::{Duration, Instant};
use holdover_link::Capacity;

use crate::config::WorldConfig;
use crate::ids::LinkId;
use crate::network::capacity_of;

/// A host's knowledge of coming outages.
#[derive(Clone, Debug)]
pub(crate) struct Forewarning {
    lead: Duration,
    /// When the link in use goes down next.
    down_at: Option<Instant>,
    /// When that was found out: a warning is not due before.
    known_at: Instant,
    warned: bool,
}

impl Forewarning {
    pub(crate) const fn new(lead: Duration) -> Self {
        Self { lead, down_at: None, known_at: Instant::ZERO, warned: false }
    }

    /// The host uses `link` from now on, or none.
    pub(crate) fn look_at(&mut self, now: Instant, link: Option<LinkId>, config: &WorldConfig) {
        let capacity = link.and_then(|link| capacity_of(config, link.0 as usize * 2, None));
        self.down_at = capacity.as_ref().and_then(|capacity| Capacity::next_down(capacity, now));
        self.known_at = now;
        self.warned = false;
    }

    /// As [`Self::look_at`] for a description with other outages later: a coming one may be another one.
    pub(crate) fn look_again(&mut self, now: Instant, link: Option<LinkId>, config: &WorldConfig) {
        let before = self.down_at;
        if before.is_none_or(|at| at > now) {
            let warned = self.warned;
            self.look_at(now, link, config);
            self.warned = warned && self.down_at == before;
        }
    }

    /// When the next warning is due.
    pub(crate) fn warn_at(&self) -> Option<Instant> {
        let down_at = self.down_at.filter(|_| !self.warned)?;
        Some(Instant::from_nanos(down_at.as_nanos().saturating_sub(self.lead.as_nanos())).max(self.known_at))
    }

    /// The due warning: the time until the link goes down.
    pub(crate) fn warn(&mut self, now: Instant) -> Option<Duration> {
        let due = self.warn_at().is_some_and(|at| at <= now);
        self.warned |= due;
        due.then(|| self.down_at.map(|at| at.saturating_since(now)))?
    }
}
