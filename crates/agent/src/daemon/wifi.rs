//! Wi-Fi: associations of stations, and the signal strength of their access points.

use std::os::fd::{AsFd as _, BorrowedFd};

use holdover_base::Instant;
use holdover_host::nl80211::has_devices;
use holdover_mobility::LinkEvent;

use super::Daemon;
use crate::link_watch::association::{AssociationChange, Associations, WifiEvent};
use crate::link_watch::kernel::{Change, Interfaces};
use crate::link_watch::nl80211::events::WifiEvents;
use crate::link_watch::nl80211::{Station, StationError};
use crate::link_watch::{Signal, Source};
use crate::path_engine::Attach;

/// The nl80211 sockets of the daemon.
#[derive(Default)]
pub(super) struct Wifi {
    /// For levels; opened on first use.
    station: Option<Station>,
    /// Opened when the kernel has wireless devices.
    events: Option<WifiEvents>,
    associations: Associations,
}

impl Wifi {
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(|events| events.as_fd())
    }

    /// Subscribes to associations, if there is a wireless device and no subscription yet. Returns the changes since
    /// then.
    fn listen(&mut self) -> Vec<(u32, AssociationChange)> {
        if self.events.is_some() || !has_devices() {
            return Vec::new();
        }
        match WifiEvents::open() {
            Ok(events) => {
                self.events = Some(events);
                self.ask_all()
            }
            Err(error) => {
                tracing::debug!(%error, "cannot follow associations");
                Vec::new()
            }
        }
    }

    /// Queries the associations of all stations.
    fn ask_all(&mut self) -> Vec<(u32, AssociationChange)> {
        let found = self.station().map(Station::associations);
        match found {
            Some(Ok(found)) => {
                let change = |(index, bssid)| Some((index, self.associations.handle_snapshot(index, bssid)?));
                found.into_iter().filter_map(change).collect()
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "cannot query associations");
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    fn station(&mut self) -> Option<&mut Station> {
        if self.station.is_none() {
            self.station = Station::open().inspect_err(|error| tracing::debug!(%error, "no nl80211")).ok();
        }
        self.station.as_mut()
    }
}

impl<A: Attach> Daemon<A> {
    /// New interfaces may be wireless devices.
    pub(super) fn follow_wifi(&mut self, now: Instant) {
        let changes = self.wifi.listen();
        self.report_associations(now, &changes);
    }

    pub(super) fn read_wifi(&mut self, now: Instant) {
        let Some(events) = &mut self.wifi.events else { return };
        let heard = match events.handle_ready() {
            Ok(heard) => heard,
            Err(error) => {
                tracing::debug!(%error, "cannot follow associations any more");
                self.wifi.events = None;
                return;
            }
        };
        let mut changes = Vec::new();
        for event in &heard.events {
            tracing::trace!(?event, "nl80211");
            self.measure(now, event);
            changes.extend(self.wifi.associations.handle(event).map(|change| (event.index(), change)));
        }
        if heard.is_torn {
            changes.extend(self.wifi.ask_all());
        }
        self.report_associations(now, &changes);
        let interfaces = &self.interfaces;
        self.wifi.associations.retain(|index| interfaces.name(index).is_some());
    }

    /// The operational state arrives on another socket and must not be older than the association: a newly associated
    /// interface is dormant until it is authenticated.
    fn report_associations(&mut self, now: Instant, changes: &[(u32, AssociationChange)]) {
        for &(index, change) in changes {
            if change != AssociationChange::Lost
                && let Err(error) = self.monitor.ask_link(now, index, &mut self.interfaces)
            {
                tracing::debug!(%error, index, "cannot query the state of an associated interface");
            }
            self.report_changes(now);
            for signal in signals(now, &self.interfaces, index, change) {
                self.core.handle_change(now, Change::Signal(signal));
            }
        }
    }

    fn measure(&mut self, now: Instant, event: &WifiEvent) {
        let Some(interface) = self.interfaces.name(event.index()).map(Box::<str>::from) else { return };
        match event {
            WifiEvent::Level { level, .. } => self.core.handle_level(now, &interface, Some(*level)),
            WifiEvent::BeaconsLost { .. } | WifiEvent::PacketsLost { .. } => self.core.handle_losses(now, &interface),
            _ => {}
        }
    }

    /// Reads the signal levels that are due.
    pub(super) fn measure_wifi_levels(&mut self, now: Instant) {
        for interface in self.core.take_wifi_due(now) {
            let level = match self.wifi.station().map(|station| station.level(&interface)) {
                Some(Ok(level)) => level,
                // The interface will not become a Wi-Fi interface.
                Some(Err(StationError::NotWifi { .. })) => {
                    self.core.forget_wifi(&interface);
                    continue;
                }
                Some(Err(_)) | None => None,
            };
            self.core.handle_level(now, &interface, level);
        }
    }
}

fn signals(now: Instant, interfaces: &Interfaces, index: u32, change: AssociationChange) -> Vec<Signal> {
    const UP: LinkEvent = LinkEvent::Up { symmetric: false, moved: false };
    let Some(interface) = interfaces.name(index) else { return Vec::new() };
    let events: &[LinkEvent] = match change {
        AssociationChange::Lost => &[LinkEvent::Down],
        AssociationChange::Made => &[UP],
        AssociationChange::Moved => &[LinkEvent::Down, UP],
    };
    events.iter().map(|&event| Signal::new(now, interface, event, Source::Association)).collect()
}
