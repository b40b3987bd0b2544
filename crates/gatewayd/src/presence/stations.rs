//! Stations of access points on this host (`hostapd`), by nl80211 (`linux/nl80211.h`): of the mobile-facing interface itself, or of
//! its ports if it is a bridge. The kernel notifies of each association and disassociation, whichever program manages the
//! access point; counters of each station are queried.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::Source;
use holdover_host::Requests;
use holdover_host::generic_netlink::{Generic, GenericEvents, GenericNotification, attribute, u32_value, value};
use holdover_host::nl80211::{
    ASSOCIATION_GROUP, FAMILY, GET_INTERFACE, GET_STATION, INTERFACE, KIND, MAC, STATION_INFO, has_devices,
};
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};

use super::SourceReport;

/// `NL80211_CMD_NEW_STATION` and `NL80211_CMD_DEL_STATION`.
const NEW_STATION: u8 = 19;
const DEL_STATION: u8 = 20;

/// `NL80211_STA_INFO_INACTIVE_TIME`, `NL80211_STA_INFO_TX_FAILED` and `NL80211_STA_INFO_STA_FLAGS`.
const INACTIVE_TIME: u16 = 1;
const TX_FAILED: u16 = 12;
const FLAGS: u16 = 17;

/// `NL80211_STA_FLAG_AUTHORIZED`: data frames pass.
const AUTHORIZED: u32 = 1 << 1;

/// `NL80211_IFTYPE_AP` and `NL80211_IFTYPE_AP_VLAN`.
const ACCESS_POINTS: [u32; 2] = [3, 4];

/// How often stations are queried; and while one is being authorized, which takes some round trips.
const QUERY_EVERY: Duration = Duration::from_millis(250);
const QUERY_JOINING_EVERY: Duration = Duration::from_millis(20);
/// A station that is not authorized after this time is queried as the others are.
const JOINING: Duration = Duration::from_secs(3);

/// How often the list of access points is read, and nl80211 is looked for.
const LIST_EVERY: Duration = Duration::from_secs(5);

/// A station is silent after this many frames without acknowledgement, each after all its retries, since it was last
/// active.
const FAILURES: u32 = 3;

/// See the [module](self).
pub(super) struct StationWatch {
    requests: Requests,
    /// The mobile-facing interface.
    index: u32,
    /// `None` without wireless devices.
    nl80211: Option<Nl80211>,
    list_at: Instant,
    query_at: Instant,
    access_points: BTreeSet<u32>,
    stations: Stations,
}

struct Nl80211 {
    queries: Generic,
    events: GenericEvents,
}

/// The state of a station in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct StationInfo {
    mac: [u8; 6],
    /// `None` if the message has no flags.
    is_authorized: Option<bool>,
    /// Since its last frame or acknowledgement.
    inactive: Option<Duration>,
    /// Frames that it has not acknowledged.
    failed: Option<u32>,
}

impl StationWatch {
    /// In the network namespace of the calling thread.
    pub(super) fn open(now: Instant, index: u32) -> io::Result<Self> {
        let requests = Requests::open()?;
        let (access_points, stations) = (BTreeSet::new(), Stations::default());
        let mut watch = Self { requests, index, nl80211: None, list_at: now, query_at: now, access_points, stations };
        // Stations that are associated already are not reported: mobile hosts are present until a source reports otherwise.
        watch.handle_timeout(now, &mut Vec::new());
        Ok(watch)
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.nl80211.as_ref().map(|nl80211| nl80211.events.as_fd())
    }

    /// Reads notifications.
    pub(super) fn handle_ready(&mut self, now: Instant, reports: &mut Vec<SourceReport>) {
        loop {
            let Some(nl80211) = &self.nl80211 else { return };
            match nl80211.events.receive() {
                Ok(Some(GenericNotification::Messages(messages))) => {
                    for (command, message) in messages {
                        self.handle_message(now, command, &message, reports);
                    }
                }
                Ok(Some(GenericNotification::Overrun)) => self.query_at = now,
                Ok(None) => return,
                Err(error) => return self.give_up(&error),
            }
        }
    }

    fn handle_message(&mut self, now: Instant, command: u8, message: &[u8], reports: &mut Vec<SourceReport>) {
        let (Some(index), Some(info)) = (u32_value(message, INTERFACE), read_station(message)) else { return };
        if !matches!(command, NEW_STATION | DEL_STATION) {
            return;
        }
        if !self.access_points.contains(&index) {
            // It may have been created, or become a port, since.
            self.list();
        }
        if !self.access_points.contains(&index) {
            return;
        }
        if command == NEW_STATION {
            self.stations.handle_station(now, index, info, reports);
            self.query_at = now;
        } else {
            self.stations.handle_gone(index, info.mac, reports);
        }
    }

    /// Handles deadlines.
    pub(super) fn handle_timeout(&mut self, now: Instant, reports: &mut Vec<SourceReport>) {
        if now >= self.list_at {
            self.list_at = now + LIST_EVERY;
            if self.nl80211.is_none() && has_devices() {
                let opened = Nl80211::open();
                self.nl80211 = opened.inspect_err(|error| tracing::warn!(%error, "cannot follow stations")).ok();
            }
            self.list();
        }
        if now < self.query_at {
            return;
        }
        for index in self.access_points.clone() {
            let Some(nl80211) = &mut self.nl80211 else { break };
            match nl80211.stations(index) {
                Ok(found) => self.stations.handle_list(now, index, &found, reports),
                // The interface may just have gone; its stations are reported by notifications.
                Err(error) => tracing::debug!(%error, index, "cannot query stations"),
            }
        }
        self.query_at = now + if self.stations.is_joining(now) { QUERY_JOINING_EVERY } else { QUERY_EVERY };
    }

    pub(super) fn poll_timeout(&self) -> Instant {
        if self.stations.is_empty() { self.list_at } else { self.list_at.min(self.query_at) }
    }

    /// Finds the access points that are the mobile-facing interface or its ports.
    fn list(&mut self) {
        let Some(nl80211) = &mut self.nl80211 else { return };
        let ports = self.requests.request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP);
        let (Ok(access_points), Ok(links)) = (nl80211.access_points(), ports) else { return };
        let is_port = |message: &RouteNetlinkMessage| match message {
            RouteNetlinkMessage::NewLink(link) => {
                let is_ours = link.attributes.contains(&LinkAttribute::Controller(self.index));
                (is_ours || link.header.index == self.index).then_some(link.header.index)
            }
            _ => None,
        };
        let ports: BTreeSet<u32> = links.iter().filter_map(is_port).collect();
        self.access_points = access_points.into_iter().filter(|index| ports.contains(index)).collect();
    }

    fn give_up(&mut self, error: &io::Error) {
        tracing::warn!(%error, "stations are not followed for a while");
        self.nl80211 = None;
    }
}

impl Nl80211 {
    fn open() -> io::Result<Self> {
        let queries = Generic::open(FAMILY)?;
        let events = GenericEvents::open(&queries, ASSOCIATION_GROUP)?;
        Ok(Self { queries, events })
    }

    /// The interfaces that are access points.
    fn access_points(&mut self) -> io::Result<Vec<u32>> {
        let interfaces = self.queries.ask(GET_INTERFACE, NLM_F_DUMP, &[])?;
        let access_point = |message: &Vec<u8>| {
            u32_value(message, KIND).filter(|kind| ACCESS_POINTS.contains(kind))?;
            u32_value(message, INTERFACE)
        };
        Ok(interfaces.iter().filter_map(access_point).collect())
    }

    fn stations(&mut self, index: u32) -> io::Result<Vec<StationInfo>> {
        match self.queries.ask(GET_STATION, NLM_F_DUMP, &attribute(INTERFACE, &index.to_ne_bytes())) {
            Ok(answers) => Ok(answers.iter().filter_map(|answer| read_station(answer)).collect()),
            // The interface was removed meanwhile, or its driver does not list stations.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// The station in a message.
fn read_station(message: &[u8]) -> Option<StationInfo> {
    let mac = value(message, MAC)?.try_into().ok()?;
    let info = value(message, STATION_INFO).unwrap_or_default();
    // `struct nl80211_sta_flag_update`: which flags are given, and which of them are set.
    let flags = value(info, FLAGS).and_then(|flags| <[u8; 8]>::try_from(flags).ok()).map(|flags| {
        let word = |at: usize| u32::from_ne_bytes([flags[at], flags[at + 1], flags[at + 2], flags[at + 3]]);
        (word(0), word(4))
    });
    Some(StationInfo {
        mac,
        is_authorized: flags.filter(|(mask, _)| mask & AUTHORIZED != 0).map(|(_, set)| set & AUTHORIZED != 0),
        inactive: u32_value(info, INACTIVE_TIME).map(|ms| Duration::from_millis(ms.into())),
        failed: u32_value(info, TX_FAILED),
    })
}

/// The associated stations, without I/O.
#[derive(Debug, Default)]
struct Stations(BTreeMap<[u8; 6], Station>);

#[derive(Clone, Copy, Debug)]
struct Station {
    interface: u32,
    since: Instant,
    state: State,
    /// When it was last queried.
    queried_at: Instant,
    /// Unacknowledged frames when it was last active.
    failed: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Associated, and no data frames pass yet.
    Joining,
    Present,
    /// It acknowledges no frames.
    Silent,
}

impl Stations {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a station is being authorized.
    fn is_joining(&self, now: Instant) -> bool {
        let is_joining =
            |station: &Station| station.state == State::Joining && now.saturating_since(station.since) < JOINING;
        self.0.values().any(is_joining)
    }

    /// A station that is associated.
    fn handle_station(&mut self, now: Instant, interface: u32, info: StationInfo, reports: &mut Vec<SourceReport>) {
        let StationInfo { mac, is_authorized, inactive, failed } = info;
        let anew = Station { interface, since: now, state: State::Joining, queried_at: now, failed };
        let station = self.0.entry(mac).or_insert(anew);
        if station.interface != interface {
            // It has come from another access point of the same bridge.
            *station = anew;
        }
        let elapsed = now.saturating_since(station.queried_at);
        let is_active = inactive.is_some_and(|inactive| inactive < elapsed);
        if is_active || station.failed.is_none() {
            station.failed = failed;
        }
        let failures = failed.zip(station.failed).map_or(0, |(failed, before)| failed.saturating_sub(before));
        station.queried_at = now;
        let state = match (station.state, is_authorized) {
            (_, Some(false)) => State::Joining,
            (State::Joining, Some(true)) => State::Present,
            (State::Present, _) if failures >= FAILURES && inactive.is_some() => State::Silent,
            (State::Silent, _) if is_active => State::Present,
            (state, _) => state,
        };
        let before = std::mem::replace(&mut station.state, state);
        let presence = match (before, state) {
            (State::Joining | State::Silent, State::Present) => Presence::Present,
            (State::Present, State::Silent) => Presence::Away,
            (State::Present, State::Joining) => {
                // Its authorization was withdrawn: data frames are dropped.
                station.since = now;
                Presence::Away
            }
            _ => return,
        };
        reports.push(SourceReport::Frame { mac, source: Source::Station, presence });
    }

    /// A station is not associated any more. It may be at another access point of the same bridge.
    fn handle_gone(&mut self, interface: u32, mac: [u8; 6], reports: &mut Vec<SourceReport>) {
        if self.0.get(&mac).is_none_or(|station| station.interface == interface) {
            self.0.remove(&mac);
            reports.push(SourceReport::Frame { mac, source: Source::Station, presence: Presence::Away });
        }
    }

    /// All stations of an access point.
    fn handle_list(&mut self, now: Instant, interface: u32, found: &[StationInfo], reports: &mut Vec<SourceReport>) {
        let macs: BTreeSet<[u8; 6]> = found.iter().map(|info| info.mac).collect();
        let gone = self.0.iter().filter(|(mac, station)| station.interface == interface && !macs.contains(*mac));
        for mac in gone.map(|(&mac, _)| mac).collect::<Vec<_>>() {
            self.handle_gone(interface, mac, reports);
        }
        found.iter().for_each(|&info| self.handle_station(now, interface, info, reports));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHONE: [u8; 6] = [2, 0, 0, 0, 0, 7];

    fn at(ms: u64) -> Instant {
        Instant::from_millis(1_000_000 + ms)
    }

    fn report(presence: Presence) -> SourceReport {
        SourceReport::Frame { mac: PHONE, source: Source::Station, presence }
    }

    fn info(is_authorized: bool, inactive_ms: u64, failed: u32) -> StationInfo {
        let inactive = Some(Duration::from_millis(inactive_ms));
        StationInfo { mac: PHONE, is_authorized: Some(is_authorized), inactive, failed: Some(failed) }
    }

    fn message(flags: (u32, u32), inactive: u32, failed: u32) -> Vec<u8> {
        let flags = [flags.0.to_ne_bytes(), flags.1.to_ne_bytes()].concat();
        let info = [
            attribute(INACTIVE_TIME, &inactive.to_ne_bytes()),
            attribute(TX_FAILED, &failed.to_ne_bytes()),
            attribute(FLAGS, &flags),
        ];
        let info = attribute(STATION_INFO | 0x8000, &info.concat());
        [attribute(INTERFACE, &4u32.to_ne_bytes()), attribute(MAC, &PHONE), info].concat()
    }

    #[test]
    fn a_station_is_read_from_its_message() {
        let whole = message((0xff, AUTHORIZED | 1 << 7), 40, 9);
        assert_eq!(read_station(&whole), Some(info(true, 40, 9)));
        let unauthorized = message((0xff, 1 << 7), 40, 9);
        assert_eq!(read_station(&unauthorized), Some(info(false, 40, 9)));
        let unknown = message((1 << 7, 1 << 7), 40, 9);
        assert_eq!(read_station(&unknown).unwrap().is_authorized, None);
        // A notification has no counters.
        let bare = [attribute(INTERFACE, &4u32.to_ne_bytes()), attribute(MAC, &PHONE)].concat();
        let expected = StationInfo { mac: PHONE, is_authorized: None, inactive: None, failed: None };
        assert_eq!(read_station(&bare), Some(expected));
        for cut in 0..whole.len() {
            let read = read_station(&whole[..cut]);
            assert!(read.is_none() || read == Some(expected), "{cut}: {read:?}");
        }
    }

    // Claim: Stations, from made-up messages of nl80211: one is present once it is authorized, and away when it leaves, also if
    // the notification was lost, or when its authorization is withdrawn; one that roams between two access points of a bridge
    // stays; an idle one is not silent, but one that acknowledges nothing. Messages cut short at every byte say nothing.
    // Tests: `stations::a_station_without_authorization_is_away_until_it_is_authorized_again`,
    // `stations::a_station_that_roams_between_two_access_points_of_a_bridge_stays`,
    // `stations::an_idle_station_is_not_silent_but_one_that_acknowledges_nothing`,
    // `stations::without_counters_no_station_is_silent`, `stations::a_station_is_read_from_its_message`
    #[test]
    fn a_station_is_present_once_it_is_authorized_and_away_when_it_leaves() {
        let (mut stations, mut reports) = (Stations::default(), Vec::new());
        let bare = StationInfo { mac: PHONE, is_authorized: None, inactive: None, failed: None };
        stations.handle_station(at(0), 4, bare, &mut reports);
        assert!(stations.is_joining(at(100)) && reports.is_empty(), "the handshake of WPA is not over");
        stations.handle_list(at(20), 4, &[info(false, 1, 0)], &mut reports);
        stations.handle_list(at(40), 4, &[info(true, 1, 0)], &mut reports);
        stations.handle_list(at(290), 4, &[info(true, 200, 0)], &mut reports);
        assert_eq!(reports, [report(Presence::Present)], "once");
        assert!(!stations.is_joining(at(300)));
        stations.handle_gone(4, PHONE, &mut reports);
        assert_eq!(reports[1..], [report(Presence::Away)]);
        // Notifications were lost.
        stations.handle_list(at(500), 4, &[info(true, 1, 0)], &mut reports);
        stations.handle_list(at(750), 4, &[], &mut reports);
        assert_eq!(reports[2..], [report(Presence::Present), report(Presence::Away)]);
        assert!(stations.is_empty());
    }

    #[test]
    fn a_station_without_authorization_is_away_until_it_is_authorized_again() {
        let (mut stations, mut reports) = (Stations::default(), Vec::new());
        let mut list = |ms, is_authorized| {
            stations.handle_list(at(ms), 4, &[info(is_authorized, 1, 0)], &mut reports);
            (std::mem::take(&mut reports), stations.is_joining(at(ms)))
        };
        assert_eq!(list(0, true), (vec![report(Presence::Present)], false));
        assert_eq!(list(60_000, false), (vec![report(Presence::Away)], true), "it is queried more often");
        assert_eq!(list(60_020, false), (vec![], true), "once");
        assert_eq!(list(60_040, true), (vec![report(Presence::Present)], false));
    }

    #[test]
    fn a_station_that_roams_between_two_access_points_of_a_bridge_stays() {
        let (mut stations, mut reports) = (Stations::default(), Vec::new());
        stations.handle_station(at(0), 4, info(true, 1, 0), &mut reports);
        stations.handle_station(at(900), 5, info(true, 1, 0), &mut reports);
        stations.handle_gone(4, PHONE, &mut reports);
        stations.handle_list(at(950), 4, &[], &mut reports);
        assert_eq!(reports, vec![report(Presence::Present); 2]);
        stations.handle_gone(5, PHONE, &mut reports);
        assert_eq!(reports[2..], [report(Presence::Away)]);
    }

    #[test]
    fn an_idle_station_is_not_silent_but_one_that_acknowledges_nothing() {
        let (mut stations, mut reports) = (Stations::default(), Vec::new());
        let mut list = |ms: u64, inactive, failed| {
            let mut reports = Vec::new();
            stations.handle_list(at(ms), 4, &[info(true, inactive, failed)], &mut reports);
            reports
        };
        reports.extend(list(0, 1, 100));
        // Nothing is sent to it for a minute.
        for query in 1..240 {
            reports.extend(list(query * 250, query * 250, 100));
        }
        // Some frames get lost, others are acknowledged.
        for query in 240..250 {
            reports.extend(list(query * 250, 20, 100 + query as u32));
        }
        assert_eq!(reports, [report(Presence::Present)]);
        assert_eq!(list(62_500, 270, 351), []);
        assert_eq!(list(62_750, 520, 352), [report(Presence::Away)], "three frames after its last sign");
        assert_eq!(list(63_000, 770, 380), []);
        assert_eq!(list(63_250, 10, 380), [report(Presence::Present)]);
        assert_eq!(list(63_500, 260, 381), []);
    }

    /// Drivers may leave counters out.
    #[test]
    fn without_counters_no_station_is_silent() {
        let (mut stations, mut reports) = (Stations::default(), Vec::new());
        let without = StationInfo { inactive: None, failed: None, ..info(true, 0, 0) };
        for query in 0..100 {
            stations.handle_list(at(query * 250), 4, &[without], &mut reports);
        }
        assert_eq!(reports, [report(Presence::Present)]);
    }
}
