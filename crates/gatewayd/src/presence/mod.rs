//! Reports about mobile hosts from outside the path of their packets: a bridge's forwarding table, stations of access
//! points, WireGuard peers, DHCP leases, mobile hosts themselves ([`registration`]), and scripts over HTTP ([`webhook`]).
//!
//! Each source is optional, and none can stop the gateway: failures are logged, and the others continue.

mod bridge;
mod leases;
mod registration;
mod stations;
mod webhook;
mod wireguard;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use holdover_base::Instant;
use holdover_filter::Presence;
use holdover_gateway::divert::Source;
use rustix::event::PollFlags;
use serde::{Deserialize, Serialize};

use crate::config::{Config, PresenceSources};
use crate::interface::Interface;
use crate::network::Network;
use bridge::Bridge;
use leases::LeaseWatch;
use registration::Registration;
pub use registration::SecretError;
pub(crate) use registration::read_secret;
use stations::StationWatch;
pub(crate) use webhook::HookAnswer;
use webhook::Webhook;
use wireguard::WireGuardWatch;

/// A report of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SourceReport {
    /// About a mobile host, by its address.
    Mobile { mobile: IpAddr, source: Source, presence: Presence },
    /// About the mobile hosts with an Ethernet address.
    Frame { mac: [u8; 6], source: Source, presence: Presence },
    /// About the known mobile hosts of a network, except those of other networks.
    Network { network: Network, except: Vec<Network>, source: Source, presence: Presence },
    /// An address belongs to another host from now on: buffered packets for the former one are not for it.
    OtherHost { mobile: IpAddr },
}

/// Counters of reports from outside.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ReportCounters {
    /// Accepted reports of mobile hosts.
    pub registered: u64,
    /// Reports of mobile hosts that were answered with a nonce.
    pub challenged: u64,
    /// Replayed or reordered reports of mobile hosts.
    pub replayed: u64,
    /// Reports about addresses that their sender may not report about, and requests without the right token.
    pub refused: u64,
    /// Datagrams that are not authentic.
    pub forged: u64,
    /// Accepted requests of the webhook.
    pub requested: u64,
    /// Changes of leases used.
    pub leases: u64,
    /// Changes of the bridge's forwarding table used.
    pub bridge: u64,
    /// Stations that came, left, fell silent or were heard again.
    #[serde(default)]
    pub stations: u64,
    /// Changes of presence of WireGuard peers.
    #[serde(default)]
    pub wireguard: u64,
}

/// All configured sources.
pub(crate) struct Sources {
    bridge: Option<Bridge>,
    leases: Option<LeaseWatch>,
    stations: Option<StationWatch>,
    wireguard: Option<WireGuardWatch>,
    registration: Option<Registration>,
    webhook: Option<Webhook>,
    going: Going,
    counters: ReportCounters,
}

/// The sources that follow the mobile-facing interface by its index.
struct OfInterface {
    bridge: Option<Bridge>,
    stations: Option<StationWatch>,
    wireguard: Option<WireGuardWatch>,
}

impl OfInterface {
    fn open(now: Instant, interface: &Interface, presence: &PresenceSources) -> Self {
        let index = interface.index;
        let bridge = presence.bridge.then(|| Bridge::open(index));
        let bridge = bridge.and_then(|opened| {
            opened.inspect_err(|error| tracing::warn!(%error, "cannot follow the bridge's forwarding table")).ok()
        });
        let stations = presence.stations.then(|| StationWatch::open(now, index));
        let stations = stations
            .and_then(|opened| opened.inspect_err(|error| tracing::warn!(%error, "cannot follow stations")).ok());
        let wireguard = presence.wireguard.then(|| WireGuardWatch::open(now, index, presence.wireguard_silence.0));
        let wireguard = wireguard.and_then(|opened| {
            opened.inspect_err(|error| tracing::warn!(%error, "cannot follow WireGuard peers")).ok().flatten()
        });
        Self { bridge, stations, wireguard }
    }
}

impl Sources {
    /// Opens the configured sources. Unreadable secrets prevent the start: the gateway would accept less than
    /// configured.
    pub(crate) fn open(now: Instant, interface: &Interface, config: &Config) -> Result<Self, SecretError> {
        let OfInterface { bridge, stations, wireguard } = OfInterface::open(now, interface, &config.presence);
        Ok(Self {
            bridge,
            stations,
            wireguard,
            leases: config.leases.file.as_ref().map(|file| LeaseWatch::new(now, file, config.leases.format)),
            registration: Registration::open(&config.registration)?,
            webhook: Webhook::open(&config.webhook)?,
            going: Going::default(),
            counters: ReportCounters::default(),
        })
    }

    /// The interface is another one now.
    pub(crate) fn follow(&mut self, now: Instant, interface: &Interface, presence: &PresenceSources) {
        let OfInterface { bridge, stations, wireguard } = OfInterface::open(now, interface, presence);
        (self.bridge, self.stations, self.wireguard) = (bridge, stations, wireguard);
    }

    pub(crate) fn counters(&self) -> ReportCounters {
        let mut counters = self.counters;
        if let Some(registration) = &self.registration {
            registration.add_to(&mut counters);
        }
        counters
    }

    /// The descriptors to poll.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let bridge = self.bridge.iter().map(Bridge::descriptor);
        let stations = self.stations.iter().filter_map(StationWatch::descriptor);
        let inputs = bridge.chain(stations).chain(self.registration.iter().map(Registration::descriptor));
        let inputs = inputs.map(|descriptor| (descriptor, PollFlags::IN));
        inputs.chain(self.webhook.iter().flat_map(Webhook::descriptors))
    }

    /// Reads pending reports. `may` returns whether an address belongs to a mobile host.
    pub(crate) fn handle_ready(&mut self, now: Instant, may: &dyn Fn(IpAddr) -> bool) -> Vec<SourceReport> {
        let mut reports = Vec::new();
        if let Some(bridge) = &mut self.bridge {
            let before = reports.len();
            bridge.handle_ready(&mut reports);
            self.counters.bridge += (reports.len() - before) as u64;
        }
        if let Some(stations) = &mut self.stations {
            let before = reports.len();
            stations.handle_ready(now, &mut reports);
            self.counters.stations += (reports.len() - before) as u64;
        }
        if let Some(registration) = &mut self.registration {
            registration.handle_ready(now, may, &mut reports);
        }
        reports
    }

    /// The engine has used a report, or had no room for the mobile host.
    pub(crate) fn handle_noted(&mut self, now: Instant, report: &SourceReport, is_noted: bool) {
        self.going.handle_noted(now, report, is_noted);
    }

    /// Requests of the webhook, each to be answered by [`Self::answer`].
    pub(crate) fn requests(&mut self, now: Instant) -> Vec<(webhook::Caller, IpAddr, Presence)> {
        let refused = &mut self.counters.refused;
        self.webhook.as_mut().map(|webhook| webhook.handle_ready(now, refused)).unwrap_or_default()
    }

    /// Answers a request of the webhook.
    pub(crate) fn answer(&mut self, now: Instant, caller: webhook::Caller, answer: &HookAnswer) {
        if *answer == HookAnswer::Noted {
            self.counters.requested += 1;
        }
        if let Some(webhook) = &mut self.webhook {
            webhook.answer(now, caller, answer);
        }
    }

    /// Handles deadlines.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Vec<SourceReport> {
        let mut reports = Vec::new();
        if let Some(leases) = &mut self.leases {
            leases.handle_timeout(now, &mut reports);
            self.counters.leases += reports.len() as u64;
        }
        if let Some(stations) = &mut self.stations {
            let before = reports.len();
            stations.handle_timeout(now, &mut reports);
            self.counters.stations += (reports.len() - before) as u64;
        }
        if let Some(wireguard) = &mut self.wireguard {
            let before = reports.len();
            wireguard.handle_timeout(now, &mut reports);
            self.counters.wireguard += (reports.len() - before) as u64;
        }
        reports.extend(self.going.gone(now));
        if let Some(webhook) = &mut self.webhook {
            webhook.hang_up(now);
        }
        reports
    }

    /// When to call [`Self::handle_timeout`].
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let leases = self.leases.as_ref().map(LeaseWatch::poll_timeout);
        let webhook = self.webhook.as_ref().and_then(Webhook::poll_timeout);
        let stations = self.stations.as_ref().map(StationWatch::poll_timeout);
        let wireguard = self.wireguard.as_ref().map(WireGuardWatch::poll_timeout);
        let due = leases.into_iter().chain(webhook).chain(stations).chain(wireguard);
        due.chain(self.going.0.values().copied()).min()
    }
}

/// The announced times of departure of mobile hosts. The engine knows each of these hosts, so its limit bounds their number.
#[derive(Default, Debug)]
struct Going(BTreeMap<IpAddr, Instant>);

impl Going {
    /// A mobile host that has announced its departure is absent from then on, unless it reports otherwise before.
    fn handle_noted(&mut self, now: Instant, report: &SourceReport, is_noted: bool) {
        let &SourceReport::Mobile { mobile, source: Source::Registration, presence } = report else { return };
        self.0.remove(&mobile);
        if let Presence::Fading { lead: Some(lead) } = presence
            && is_noted
        {
            self.0.insert(mobile, now + lead);
        }
    }

    /// The mobile hosts whose time of departure has passed.
    fn gone(&mut self, now: Instant) -> impl Iterator<Item = SourceReport> + '_ {
        let gone = self.0.extract_if(.., move |_, at| *at <= now);
        gone.map(|(mobile, _)| SourceReport::Mobile { mobile, source: Source::Registration, presence: Presence::Away })
    }
}

#[cfg(test)]
mod tests {
    use holdover_base::Duration;

    use super::*;

    #[test]
    fn only_known_hosts_are_remembered_as_leaving() {
        let now = Instant::from_secs(1);
        let report = |last: u16, presence| SourceReport::Mobile {
            mobile: std::net::Ipv6Addr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]).into(),
            source: Source::Registration,
            presence,
        };
        let fading = Presence::Fading { lead: Some(Duration::from_secs(1)) };
        let mut going = Going::default();
        for last in 0..1000 {
            going.handle_noted(now, &report(last, fading), last < 3);
        }
        assert_eq!(going.0.len(), 3);
        going.handle_noted(now, &report(0, Presence::Present), true);
        assert_eq!(going.gone(now).count(), 0);
        let gone: Vec<SourceReport> = going.gone(now + Duration::from_secs(1)).collect();
        assert_eq!(gone, [1, 2].map(|last| report(last, Presence::Away)));
    }
}
