//! Warnings: a mobile host predicts its absence, by a sign in its packets (the thesis on Freeze-TCP, section 4.6.2), or
//! shows by another one that its link works.
//!
//! From a warning on the host is absent ([`Source::Warning`]), although it may still be heard: packets without the sign
//! that its link works do not end that. Reports of its absence by other sources are added; then the absence ends as
//! any other, and the packets are released at the first one that is heard.
//!
//! A warning without an absence lapses after [`DiverterConfig::longest_warning`](super::DiverterConfig::longest_warning).
//! Its sign may be a window that is shut because an application does not read, and it holds up all connections of the host.
//! Until the host shows that its link works, further warnings do not count.

use core::net::IpAddr;

use holdover_base::Instant;
use holdover_filter::Presence;

use super::{Diverter, Mobile, Source, Standing};

impl<T> Mobile<T> {
    /// Whether waiting packets may be released now.
    pub(super) fn may_release(&self, burst: Option<u32>, is_draining: bool) -> bool {
        let is_limited = burst.is_some() && !is_draining && self.standing != Standing::Moved;
        self.standing != Standing::Away && !self.fifo.is_empty() && !(is_limited && self.credit == 0)
    }

    /// A packet for the host has arrived. If others wait for a burst, one of them may be released.
    pub(super) fn note_arrival(&mut self) {
        if self.standing != Standing::Away {
            self.credit = self.credit.saturating_add(1);
        }
    }

    /// One of its packets was released.
    pub(super) fn note_release(&mut self) {
        self.credit = if self.fifo.is_empty() { 0 } else { self.credit.saturating_sub(1) };
    }
}

impl<T> Diverter<T> {
    /// Handles a sign by which a mobile host predicts its absence.
    pub fn handle_warning(&mut self, now: Instant, address: IpAddr) {
        let longest = self.config.longest_warning;
        let Some(mobile) = self.mobile(address) else { return };
        if let Some(lapses_at) = mobile.reports.handle_warning(now, longest) {
            mobile.last_reports.insert(Source::Warning, (Presence::Away, now));
            mobile.tally.warnings += 1;
            let former = mobile.lapses_at.replace(lapses_at);
            self.tally.warnings += 1;
            if let Some(former) = former {
                self.lapses.remove(&(former, address));
            }
            self.lapses.insert((lapses_at, address));
        }
        self.update(now, address);
    }

    /// Handles a sign of a mobile host that its link works.
    pub fn handle_working(&mut self, now: Instant, address: IpAddr) {
        let burst = self.diversions.of(address).burst().unwrap_or(0);
        let Some(mobile) = self.mobiles.get_mut(&address) else { return };
        // If it returns by this sign, `update` gives it a burst.
        if mobile.standing != Standing::Away && !mobile.fifo.is_empty() {
            mobile.credit = mobile.credit.saturating_add(burst);
        }
        if mobile.reports.handle_working(now) {
            mobile.last_reports.insert(Source::Warning, (Presence::Present, now));
        }
        self.update(now, address);
    }

    /// Ends the warnings that have held for too long.
    pub(super) fn end_warnings(&mut self, now: Instant) {
        while let Some((at, address)) = self.lapses.first().copied().filter(|&(at, _)| at <= now) {
            self.lapses.pop_first();
            let Some(mobile) = self.mobiles.get_mut(&address).filter(|mobile| mobile.lapses_at == Some(at)) else {
                continue;
            };
            mobile.lapses_at = None;
            if mobile.reports.end_warning(now) {
                mobile.last_reports.insert(Source::Warning, (Presence::Present, now));
            }
            self.update(now, address);
        }
    }
}
