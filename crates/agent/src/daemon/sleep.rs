//! Sleep of the machine: logind's announcements, the inhibitor lock that delays sleep, and the clocks that show past
//! sleep.

use std::os::fd::{AsFd as _, BorrowedFd};

use holdover_base::{Duration, Instant};
use holdover_host::clock;
use holdover_mobility::LinkEvent;

use crate::link_watch::logind::{Announcement, Inhibitor, Logind, LogindOptions};
use crate::link_watch::suspend::SuspendWatch;

/// Tracks sleep of the machine.
pub(super) struct Sleep {
    watch: SuspendWatch,
    options: LogindOptions,
    /// The connection to logind, if sleep is tracked.
    logind: Option<Logind>,
    /// Delays sleep until dropped.
    inhibitor: Option<Inhibitor>,
}

impl Sleep {
    pub(super) fn new(options: LogindOptions) -> Self {
        Self { watch: SuspendWatch::new(clock::slept()), options, logind: None, inhibitor: None }
    }

    /// Connects to logind if sleep is tracked and it is not connected yet.
    pub(super) fn follow(&mut self, is_wanted: bool) {
        if is_wanted && self.logind.is_none() {
            let followed = Logind::follow(self.options.clone());
            self.logind =
                followed.inspect_err(|error| tracing::warn!(%error, "cannot follow sleep announcements")).ok();
        }
    }

    /// Readable when logind has announced something.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.logind.as_ref().map(|logind| logind.as_fd())
    }

    /// How long the machine has slept since the last call, if it has.
    pub(super) fn handle_clocks(&mut self) -> Option<Duration> {
        let slept = self.watch.handle_clocks(clock::slept());
        if slept.is_some() {
            self.allow();
        }
        slept
    }

    /// Reads announcements; returns the event for the links. If sleep is not tracked, or no link is managed, the
    /// machine may sleep at once.
    pub(super) fn handle_ready(&mut self, now: Instant, is_wanted: bool, has_links: bool) -> Vec<LinkEvent> {
        let Some(logind) = &mut self.logind else { return Vec::new() };
        let mut events = Vec::new();
        while let Some(announcement) = logind.poll_announcement() {
            events.extend(match announcement {
                Announcement::Soon { .. } if !is_wanted => None,
                Announcement::Soon { inhibitor, slept } => {
                    let event = self.watch.handle_soon(now, slept);
                    if event.is_some() && has_links {
                        self.inhibitor = inhibitor;
                    }
                    event
                }
                Announcement::Over => {
                    self.inhibitor = None;
                    self.watch.handle_over()
                }
            });
        }
        if logind.has_ended() {
            self.logind = None;
            events.extend(self.forget());
        }
        events
    }

    /// The connection is lost, so no end will be announced: returns the event for the links.
    pub(super) fn forget(&mut self) -> Option<LinkEvent> {
        self.allow();
        self.watch.handle_over()
    }

    /// Returns the event for the links when it is due. Call [`Self::allow`] after passing it on.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<LinkEvent> {
        self.watch.handle_timeout(now)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.watch.poll_timeout()
    }

    /// Releases the inhibitor lock.
    pub(super) fn allow(&mut self) {
        self.inhibitor = None;
    }
}
