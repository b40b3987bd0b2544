//! Modems: their state as a source of outages, and their signal as a source of warnings.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};

use holdover_base::{Duration, Instant};
use holdover_mobility::LinkEvent;

use crate::config::ModemTable;
use crate::link_watch::modem::{ModemOptions, ModemReport, ModemUpdate, Modems};
use crate::link_watch::wifi::{WifiOptions, WifiWatch};
use crate::link_watch::{Signal, Source};

/// Follows modems.
pub(super) struct ModemLinks {
    address: Option<String>,
    /// A dry run asks for no measurements.
    only_listens: bool,
    config: ModemTable,
    modems: Option<Modems>,
    links: BTreeMap<String, ModemLink>,
}

/// The modem of an interface.
#[derive(Default)]
struct ModemLink {
    is_cut: bool,
    level: Option<WifiWatch>,
    /// The last report.
    quality: Option<u8>,
    is_poor: bool,
}

/// How far above the limit the quality must be to withdraw a warning.
const MARGIN_PERCENT: u8 = 5;

const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };

impl ModemLinks {
    pub(super) fn new(address: Option<String>, only_listens: bool) -> Self {
        let config = ModemTable { state: false, warn: false, ..ModemTable::default() };
        Self { address, only_listens, config, modems: None, links: BTreeMap::new() }
    }

    /// Applies a configuration; returns signals that withdraw the former ones.
    pub(super) fn configure(&mut self, now: Instant, config: &ModemTable) -> Vec<Signal> {
        if self.config == *config {
            return Vec::new();
        }
        self.config = config.clone();
        // The thread ends when it notices.
        self.modems = None;
        let withdrawn = self.forget_all(now);
        if config.is_wanted() {
            let levels_every_s = (config.warn && !self.only_listens).then(|| whole_seconds(config.every.0));
            let options = ModemOptions { address: self.address.clone(), levels_every_s };
            let followed = Modems::follow(options);
            self.modems = followed.inspect_err(|error| tracing::warn!(%error, "cannot follow ModemManager")).ok();
        }
        withdrawn
    }

    /// Readable when there is a report.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.modems.as_ref().map(|modems| modems.as_fd())
    }

    /// Reads reports; returns the signals.
    pub(super) fn handle_ready(&mut self, now: Instant) -> Vec<Signal> {
        let mut signals = Vec::new();
        while let Some(report) = self.modems.as_mut().and_then(Modems::poll_report) {
            tracing::debug!(?report, "ModemManager");
            signals.extend(self.handle_report(now, report));
        }
        if self.modems.as_ref().is_some_and(Modems::has_ended) {
            self.modems = None;
            signals.extend(self.forget_all(now));
        }
        signals
    }

    fn handle_report(&mut self, now: Instant, ModemReport { interface, update }: ModemReport) -> Vec<Signal> {
        let link = self.links.entry(interface.clone()).or_default();
        let event = match update {
            ModemUpdate::Connected(is_connected) if self.config.state => {
                let was_cut = std::mem::replace(&mut link.is_cut, !is_connected);
                (was_cut == is_connected).then_some(if is_connected { UP } else { LinkEvent::Down })
            }
            ModemUpdate::Level(Some(level)) if self.config.warn => {
                let floor = self.config.floor;
                // ModemManager reports changes only.
                let options = WifiOptions { is_adaptive: false, floor, lead: Duration::ZERO, is_smoothed: false };
                let event = link.level.get_or_insert_with(|| WifiWatch::new(options)).handle_level(now, Some(level));
                // The level is more exact than the quality, whose warning it replaces.
                let was_poor = std::mem::take(&mut link.is_poor);
                event.or_else(|| was_poor.then_some(LinkEvent::Recovered))
            }
            ModemUpdate::Level(None) if self.config.warn => {
                let withdrawn = link.level.take().and_then(|mut level| level.handle_level(now, None));
                let by_quality = link.quality.and_then(|percent| link.handle_quality(percent, self.config.quality.0));
                by_quality.or(withdrawn)
            }
            ModemUpdate::Quality(percent) if self.config.warn => {
                link.quality = Some(percent);
                if link.level.is_none() { link.handle_quality(percent, self.config.quality.0) } else { None }
            }
            ModemUpdate::Gone => return self.forget(now, &interface),
            _ => None,
        };
        event.map(|event| Signal::new(now, &interface, event, Source::Modem)).into_iter().collect()
    }

    fn forget_all(&mut self, now: Instant) -> Vec<Signal> {
        let names: Vec<String> = self.links.keys().cloned().collect();
        names.iter().flat_map(|name| self.forget(now, name)).collect()
    }

    /// Withdraws the reports about an interface.
    fn forget(&mut self, now: Instant, interface: &str) -> Vec<Signal> {
        let Some(mut link) = self.links.remove(interface) else { return Vec::new() };
        let is_warned =
            link.is_poor || link.level.as_mut().is_some_and(|level| level.handle_level(now, None).is_some());
        let events = [is_warned.then_some(LinkEvent::Recovered), link.is_cut.then_some(UP)];
        events.into_iter().flatten().map(|event| Signal::new(now, interface, event, Source::Modem)).collect()
    }
}

impl ModemLink {
    fn handle_quality(&mut self, percent: u8, limit: u8) -> Option<LinkEvent> {
        if !self.is_poor && percent < limit {
            self.is_poor = true;
            return Some(LinkEvent::Fading { lead: None });
        }
        if self.is_poor && percent >= limit.saturating_add(MARGIN_PERCENT) {
            self.is_poor = false;
            return Some(LinkEvent::Recovered);
        }
        None
    }
}

/// ModemManager measures at intervals of whole seconds.
fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_watch::Dbm;

    fn events(links: &mut ModemLinks, update: ModemUpdate) -> Vec<LinkEvent> {
        let report = ModemReport { interface: "wwan0".to_owned(), update };
        links.handle_report(Instant::from_secs(1), report).into_iter().map(|signal| signal.event).collect()
    }

    fn links(config: ModemTable) -> ModemLinks {
        ModemLinks { config, ..ModemLinks::new(None, false) }
    }

    #[test]
    fn a_state_is_reported_when_it_changes() {
        let mut links = links(ModemTable::default());
        assert_eq!(events(&mut links, ModemUpdate::Connected(true)), []);
        assert_eq!(events(&mut links, ModemUpdate::Connected(false)), [LinkEvent::Down]);
        assert_eq!(events(&mut links, ModemUpdate::Connected(false)), []);
        assert_eq!(events(&mut links, ModemUpdate::Connected(true)), [UP]);
        assert_eq!(events(&mut links, ModemUpdate::Quality(0)), [], "warnings are off");
        assert_eq!(events(&mut links, ModemUpdate::Connected(false)), [LinkEvent::Down]);
        assert_eq!(events(&mut links, ModemUpdate::Gone), [UP], "no source would report its return");
    }

    #[test]
    fn quality_counts_while_no_level_is_known() {
        let mut links = links(ModemTable { warn: true, ..ModemTable::default() });
        let fading = LinkEvent::Fading { lead: None };
        assert_eq!(events(&mut links, ModemUpdate::Quality(5)), [fading]);
        assert_eq!(events(&mut links, ModemUpdate::Level(Some(Dbm(-80)))), [LinkEvent::Recovered], "the level is good");
        assert_eq!(events(&mut links, ModemUpdate::Quality(4)), []);
        assert_eq!(events(&mut links, ModemUpdate::Level(None)), [fading], "as after a fall to 3G");
        assert_eq!(events(&mut links, ModemUpdate::Quality(60)), [LinkEvent::Recovered]);
        assert_eq!(events(&mut links, ModemUpdate::Level(Some(Dbm(-125)))), [fading]);
        assert_eq!(events(&mut links, ModemUpdate::Level(None)), [LinkEvent::Recovered], "the quality is good");
    }

    /// ModemManager reports a level that stays only once.
    #[test]
    fn one_weak_level_after_a_good_one_is_a_warning() {
        let mut links = links(ModemTable { warn: true, ..ModemTable::default() });
        assert_eq!(events(&mut links, ModemUpdate::Level(Some(Dbm(-80)))), []);
        assert_eq!(events(&mut links, ModemUpdate::Level(Some(Dbm(-126)))), [LinkEvent::Fading { lead: None }]);
        assert_eq!(events(&mut links, ModemUpdate::Level(Some(Dbm(-80)))), [LinkEvent::Recovered]);
    }

    #[test]
    fn a_weak_signal_is_a_warning_and_levels_count_for_more_than_quality() {
        let mut links = links(ModemTable { warn: true, ..ModemTable::default() });
        let fading = LinkEvent::Fading { lead: None };
        assert_eq!(events(&mut links, ModemUpdate::Quality(9)), [fading]);
        assert_eq!(events(&mut links, ModemUpdate::Quality(12)), []);
        assert_eq!(events(&mut links, ModemUpdate::Quality(15)), [LinkEvent::Recovered]);
        assert_eq!(events(&mut links, ModemUpdate::Level(Some(Dbm(-120)))), [fading]);
        assert_eq!(events(&mut links, ModemUpdate::Quality(3)), []);
        assert_eq!(events(&mut links, ModemUpdate::Gone), [LinkEvent::Recovered]);
        assert_eq!(events(&mut links, ModemUpdate::Gone), []);
        assert_eq!(whole_seconds(Duration::from_millis(1001)), 2);
        assert_eq!(whole_seconds(Duration::ZERO), 1);
    }
}
