//! Base stations of Snoop that fill the caches of nearby ones before a handoff.

use core::net::IpAddr;

use holdover_base::Duration;
use holdover_filter::{ControlMessage, Presence, SegmentFilter as _};
use holdover_gateway::snoop::{Snoop, SnoopConfig};
use holdover_wire::{Flags, Payload};

use crate::support::{Script, ack, assert_out, data, mobile};

const OLD: usize = 0;
const NEW: usize = 1;

fn address(station: usize) -> IpAddr {
    [10, 0, 1, station as u8].into()
}

/// Two base stations that are peers. No timer expires within the script.
struct Stations([Script<Snoop>; 2]);

impl Stations {
    /// Segments 1 to `last` have passed the old one, and all below 1 are acknowledged there.
    fn forwarded(buffer_bytes: usize, last: u32, is_told: bool) -> Self {
        Self::forwarded_with(Duration::from_secs(3_600), buffer_bytes, last, is_told)
    }

    fn forwarded_with(least_timeout: Duration, buffer_bytes: usize, last: u32, is_told: bool) -> Self {
        let persist = Duration::from_secs(3_600);
        let station = |peer: usize| {
            let peers = vec![address(peer)];
            let config = SnoopConfig { least_timeout, persist, buffer_bytes, peers, ..SnoopConfig::default() };
            Script::new(Snoop::new(config))
        };
        let mut stations = Self([station(NEW), station(OLD)]);
        if is_told {
            stations.0[OLD].filter.handle_mobile(stations.0[OLD].now, mobile(), Presence::Present);
        }
        assert_out!(stations.0[OLD].fixed_sends(data(0)), "data 0");
        stations.copy(OLD);
        assert_out!(stations.0[OLD].at(20).mobile_sends(ack(1)), "ack 1");
        for n in 1..=last {
            assert_out!(stations.0[OLD].fixed_sends(data(n)), &*format!("data {n}"));
        }
        stations
    }

    /// Delivers the messages of a station. Returns what the other one sends then.
    fn copy(&mut self, from: usize) -> Vec<String> {
        let to = 1 - from;
        while let Some(message) = self.0[from].filter.poll_control() {
            assert_eq!(message.peer, address(to));
            let message = ControlMessage { peer: address(from), payload: message.payload };
            let now = self.0[from].now;
            self.0[to].now = self.0[to].now.max(now);
            let now = self.0[to].now;
            assert!(self.0[to].filter.handle_control(now, &message), "a valid copy");
        }
        self.0[to].made()
    }

    fn tell(&mut self, station: usize, presence: Presence) -> Vec<String> {
        let script = &mut self.0[station];
        script.filter.handle_mobile(script.now, mobile(), presence);
        script.made()
    }

    fn stored(&self) -> [u64; 2] {
        [OLD, NEW].map(|station| self.0[station].filter.stored().bytes)
    }
}

const NOTHING: [&str; 0] = [];

/// Three copies of 140 bytes are at both stations; the new one sends them when the phone is there, and is Snoop from then on.
// Claim: A base station of Snoop that is nearby has the copies of the one in charge, sends nothing, and sends them at the handoff; it drops the
// duplicate ACKs for those that the mobile host had, and repairs losses of the others.
// Tests: `nearby::copies_that_the_mobile_host_had_cause_no_duplicates`, `nearby::without_reports_a_packet_shows_the_path`,
// `nearby::a_copy_that_is_late_is_sent_at_once`, `nearby::a_host_that_returns_gets_what_it_lacks`
#[test]
fn a_nearby_base_station_has_the_copies_at_the_handoff() {
    let mut stations = Stations::forwarded(256_000, 3, true);
    assert_eq!(stations.copy(OLD), NOTHING);
    assert_eq!(stations.stored(), [3 * 140; 2]);
    assert_eq!(stations.tell(OLD, Presence::Moved), NOTHING);
    assert_eq!(stations.tell(NEW, Presence::Present), ["data 1", "data 2", "data 3"]);
    let new = &mut stations.0[NEW];
    assert_out!(new.fixed_sends(data(4)), "data 4");
    // The first copy is lost: 2, 3 and 4 cause duplicates.
    assert_out!(new.mobile_sends(ack(1)), "data 1");
    assert_out!(new.mobile_sends(ack(1)));
    assert_out!(new.mobile_sends(ack(1)));
    assert_out!(new.mobile_sends(ack(5)), "ack 5");
    assert_eq!(new.filter.stored().bytes, 0);
    // The new one is in charge now.
    assert_out!(new.fixed_sends(data(5)), "data 5");
    assert_eq!(stations.copy(NEW), NOTHING);
    assert_eq!(stations.stored(), [140; 2], "the copies have shown what is acknowledged");
}

/// The phone had the first two, whose ACKs were lost.
#[test]
fn copies_that_the_mobile_host_had_cause_no_duplicates() {
    let mut stations = Stations::forwarded(256_000, 4, true);
    stations.copy(OLD);
    stations.tell(OLD, Presence::Moved);
    assert_eq!(stations.tell(NEW, Presence::Present).len(), 4);
    let new = &mut stations.0[NEW];
    assert_out!(new.mobile_sends(ack(3)), "ack 3");
    assert_out!(new.mobile_sends(ack(3)));
    assert_out!(new.mobile_sends(ack(4)), "ack 4");
    assert_out!(new.mobile_sends(ack(5)), "ack 5");
}

/// A packet of the phone, or one of the fixed host, which follows the copies.
#[test]
fn without_reports_a_packet_shows_the_path() {
    let mut stations = Stations::forwarded(256_000, 3, false);
    stations.copy(OLD);
    let new = &mut stations.0[NEW];
    assert_out!(new.at(1_000).fixed_sends(data(4)), "data 1", "data 2", "data 3", "data 4");
    let mut stations = Stations::forwarded(256_000, 3, false);
    stations.copy(OLD);
    let new = &mut stations.0[NEW];
    assert_out!(new.at(1_000).mobile_sends(ack(2)), "ack 2", "data 2", "data 3");
    // The former one gets copies, and is nearby.
    new.fixed_sends(data(4));
    assert_eq!(stations.copy(NEW), NOTHING);
    assert_out!(stations.0[OLD].at(2_000).fixed_sends(data(5)), "data 2", "data 3", "data 4", "data 5");
}

/// A packet was on its way to the old station when the phone left.
#[test]
fn a_copy_that_is_late_is_sent_at_once() {
    let mut stations = Stations::forwarded(256_000, 2, true);
    stations.copy(OLD);
    stations.tell(OLD, Presence::Moved);
    assert_eq!(stations.tell(NEW, Presence::Present), ["data 1", "data 2"]);
    assert_out!(stations.0[OLD].fixed_sends(data(3)), "data 3");
    assert_eq!(stations.copy(OLD), ["data 3"]);
    assert_eq!(stations.stored(), [3 * 140; 2]);
}

#[test]
fn a_host_that_returns_gets_what_it_lacks() {
    let mut stations = Stations::forwarded(256_000, 2, true);
    stations.copy(OLD);
    stations.tell(OLD, Presence::Moved);
    stations.tell(NEW, Presence::Present);
    assert_out!(stations.0[NEW].mobile_sends(ack(2)), "ack 2");
    assert_out!(stations.0[NEW].fixed_sends(data(3)), "data 3");
    stations.copy(NEW);
    stations.tell(NEW, Presence::Moved);
    assert_eq!(stations.tell(OLD, Presence::Present), ["data 2", "data 3"]);
}

/// The last ACK passes the old station, and no copy follows that would tell the new one: the ACK itself is copied. So is the end of the
/// connection.
// Claim: Nearby base stations of Snoop learn of the last ACKs and of the ends of connections, and forget copies after 30 s: they do not send
// again what the mobile host has.
// Tests: `nearby::copies_are_not_kept_for_long`
#[test]
fn a_nearby_base_station_learns_of_the_last_ack_and_of_the_end() {
    for ends in [false, true] {
        let mut stations = Stations::forwarded(256_000, 2, true);
        stations.copy(OLD);
        let mut last = if ends { ack(2) } else { ack(3) };
        if ends && let Payload::Tcp(segment) = &mut last.payload {
            segment.flags |= Flags::RST;
        }
        stations.0[OLD].mobile_sends(last);
        assert_eq!(stations.copy(OLD), NOTHING);
        assert_eq!(stations.stored(), [0; 2], "ends {ends}");
        stations.tell(OLD, Presence::Moved);
        assert_eq!(stations.tell(NEW, Presence::Present), NOTHING);
    }
}

/// The last ACK is lost between the stations.
#[test]
fn copies_are_not_kept_for_long() {
    let mut stations = Stations::forwarded(256_000, 2, true);
    stations.copy(OLD);
    assert_eq!(stations.stored(), [2 * 140; 2]);
    let new = &mut stations.0[NEW];
    assert_eq!(new.at(29_000).made(), NOTHING);
    assert_eq!(new.filter.stored().bytes, 2 * 140);
    assert_eq!(new.at(31_000).made(), NOTHING);
    assert_eq!(new.filter.stored().bytes, 0);
}

/// The copies have waited for 20 s when the phone arrives. Their ACKs are no measurement of the link: the timer of the next segment is short.
#[test]
fn the_wait_of_copies_is_no_round_trip() {
    let mut stations = Stations::forwarded_with(Duration::from_millis(40), 256_000, 2, true);
    stations.copy(OLD);
    stations.tell(OLD, Presence::Moved);
    let new = &mut stations.0[NEW];
    new.at(20_000);
    assert_eq!(stations.tell(NEW, Presence::Present), ["data 1", "data 2"]);
    assert_out!(stations.0[NEW].at(20_010).mobile_sends(ack(3)), "ack 3");
    assert_out!(stations.0[NEW].fixed_sends(data(3)), "data 3");
    assert_out!(stations.0[NEW].at(20_020).mobile_sends(ack(4)), "ack 4");
    assert_out!(stations.0[NEW].fixed_sends(data(4)), "data 4");
    assert_eq!(stations.0[NEW].wait_until(20_200).first(), Some(&(20_060, "data 4".to_owned())));
}

/// Without room the oldest copies go at a nearby station.
// Claim: A nearby base station of Snoop keeps within its cache, and discards the oldest copies.
#[test]
fn the_latest_copies_are_kept() {
    let mut stations = Stations::forwarded(300, 4, true);
    stations.copy(OLD);
    assert_eq!(stations.stored(), [2 * 140; 2]);
    stations.tell(OLD, Presence::Moved);
    assert_eq!(stations.tell(NEW, Presence::Present), ["data 3", "data 4"]);
}

/// Others than peers, and other bytes.
#[test]
fn messages_of_others_change_nothing() {
    let mut stations = Stations::forwarded(256_000, 1, true);
    let message = stations.0[OLD].filter.poll_control().expect("a copy");
    let before = stations.stored()[NEW];
    let now = stations.0[NEW].now;
    let new = &mut stations.0[NEW].filter;
    assert!(!new.handle_control(now, &ControlMessage { peer: [10, 9, 9, 9].into(), payload: message.payload.clone() }));
    for payload in [message.payload.slice(1..), message.payload.slice(..9), [0; 60].to_vec().into()] {
        assert!(!new.handle_control(now, &ControlMessage { peer: address(OLD), payload }));
    }
    assert_eq!(new.stored().bytes, before);
}
