//! nl80211's multicast group `mlme`: associations, roams, and the driver's connection quality reports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use holdover_host::generic_netlink::{GenericEvents, GenericNotification, u32_value, value};
use holdover_host::nl80211::ASSOCIATION_GROUP;

use super::{INTERFACE, Station, StationError, bssid_of};
use crate::link_watch::Dbm;
use crate::link_watch::association::{Bssid, WifiEvent};

/// A socket for association events, opened in the network namespace of the calling thread.
pub struct WifiEvents(GenericEvents);

/// The events read from a socket.
#[derive(Debug, Default)]
pub struct EventBatch {
    /// In order.
    pub events: Vec<WifiEvent>,
    /// Events were lost; associations must be queried.
    pub is_torn: bool,
}

/// Commands of nl80211 (`enum nl80211_commands`, `linux/nl80211.h`).
mod command {
    pub(super) const DEAUTHENTICATE: u8 = 39;
    pub(super) const DISASSOCIATE: u8 = 40;
    pub(super) const JOIN_IBSS: u8 = 43;
    pub(super) const CONNECT: u8 = 46;
    pub(super) const ROAM: u8 = 47;
    pub(super) const DISCONNECT: u8 = 48;
    pub(super) const NOTIFY_CQM: u8 = 64;
}

/// Attributes of nl80211 (`enum nl80211_attrs`) and of `NL80211_ATTR_CQM` (`enum nl80211_attr_cqm`).
mod attribute {
    pub(super) const FRAME: u16 = 51;
    pub(super) const STATUS_CODE: u16 = 72;
    pub(super) const CQM: u16 = 94;
    pub(super) const CQM_PACKET_LOSS: u16 = 4;
    pub(super) const CQM_BEACON_LOSS: u16 = 8;
    pub(super) const CQM_LEVEL: u16 = 9;
}

/// The offset of the BSSID in a management frame (IEEE 802.11-2020 section 9.3.3.1): after frame control, duration and
/// two addresses.
const BSSID_AT: usize = 16;

impl WifiEvents {
    /// Subscribes.
    ///
    /// # Errors
    /// The kernel has no nl80211, or refuses the socket.
    pub fn open() -> Result<Self, StationError> {
        let station = Station::open()?;
        Ok(Self(GenericEvents::open(&station.generic, ASSOCIATION_GROUP)?))
    }

    /// Reads pending events.
    ///
    /// # Errors
    /// The socket fails.
    pub fn handle_ready(&mut self) -> io::Result<EventBatch> {
        let mut batch = EventBatch::default();
        while let Some(notification) = self.0.receive()? {
            match notification {
                GenericNotification::Messages(messages) => {
                    batch.events.extend(messages.iter().filter_map(|(command, message)| event_of(*command, message)));
                }
                GenericNotification::Overrun => batch.is_torn = true,
            }
        }
        Ok(batch)
    }
}

impl AsFd for WifiEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Parses an association event.
fn event_of(command: u8, message: &[u8]) -> Option<WifiEvent> {
    let index = u32_value(message, INTERFACE)?;
    match command {
        // A status other than 0 is a failed attempt; a former association has ended by an event of its own.
        command::CONNECT => {
            let status = value(message, attribute::STATUS_CODE);
            status
                .is_none_or(|status| status == [0, 0])
                .then(|| WifiEvent::Connected { index, bssid: bssid_of(message) })
        }
        command::JOIN_IBSS => Some(WifiEvent::Connected { index, bssid: bssid_of(message) }),
        command::ROAM => Some(WifiEvent::Roamed { index, bssid: bssid_of(message) }),
        command::DISCONNECT => Some(WifiEvent::Disconnected { index }),
        command::DEAUTHENTICATE | command::DISASSOCIATE => {
            let frame = value(message, attribute::FRAME)?;
            let bssid = frame.get(BSSID_AT..BSSID_AT + 6)?.try_into().ok()?;
            Some(WifiEvent::Left { index, bssid: Bssid(bssid) })
        }
        command::NOTIFY_CQM => quality(index, value(message, attribute::CQM)?),
        _ => None,
    }
}

/// Parses a connection quality report.
fn quality(index: u32, report: &[u8]) -> Option<WifiEvent> {
    if value(report, attribute::CQM_BEACON_LOSS).is_some() {
        return Some(WifiEvent::BeaconsLost { index });
    }
    if value(report, attribute::CQM_PACKET_LOSS).is_some() {
        return Some(WifiEvent::PacketsLost { index });
    }
    let level = i32::from_ne_bytes(value(report, attribute::CQM_LEVEL)?.try_into().ok()?);
    let level = Dbm(i8::try_from(level).ok()?);
    Some(WifiEvent::Level { index, level })
}

#[cfg(test)]
mod tests {
    use holdover_host::generic_netlink::{attribute, messages};

    use super::super::MAC;
    use super::*;

    const AP: [u8; 6] = [2, 0, 0, 0, 1, 0];

    fn interface() -> Vec<u8> {
        attribute(INTERFACE, &3u32.to_ne_bytes())
    }

    // Claim: The end of an association is reported once, also if only a snapshot of the kernel's shows it; another access point
    // is a move.
    // Tests: `association::repeated_ends_of_an_association_count_once`, `association::another_access_point_is_a_move`,
    // `association::a_snapshot_makes_up_for_lost_events`
    #[test]
    fn a_recorded_outage_is_told_in_order() {
        let heard: Vec<WifiEvent> = include_str!("recorded.hex")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(|line| {
                let byte = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
                let bytes: Vec<u8> = (0..line.len()).step_by(2).map(byte).collect();
                let family = u16::from_ne_bytes([bytes[4], bytes[5]]);
                let read = messages(&bytes, family).filter_map(|(command, message)| event_of(command, message));
                read.collect::<Vec<_>>()
            })
            .collect();
        let index = 2;
        let connected = WifiEvent::Connected { index, bssid: Some(Bssid(AP)) };
        let left = WifiEvent::Left { index, bssid: Bssid(AP) };
        let disconnected = WifiEvent::Disconnected { index };
        let expected =
            [connected, WifiEvent::BeaconsLost { index }, left, disconnected, connected, left, disconnected, connected];
        assert_eq!(heard, expected);
    }

    #[test]
    fn a_failed_attempt_is_no_connection() {
        let mac = attribute(MAC, &AP);
        let status = |code: u16| attribute(attribute::STATUS_CODE, &code.to_ne_bytes());
        let refused = [interface(), mac.clone(), status(17)].concat();
        assert_eq!(event_of(command::CONNECT, &refused), None);
        assert_eq!(
            event_of(command::ROAM, &[interface(), mac].concat()),
            Some(WifiEvent::Roamed { index: 3, bssid: Some(Bssid(AP)) }),
            "made up: mac80211 has no such event"
        );
    }

    #[test]
    fn levels_and_losses_are_read() {
        let report = |inner: Vec<u8>| {
            event_of(command::NOTIFY_CQM, &[interface(), attribute(attribute::CQM | 0x8000, &inner)].concat())
        };
        let level = attribute(attribute::CQM_LEVEL, &(-71i32).to_ne_bytes());
        assert_eq!(report(level), Some(WifiEvent::Level { index: 3, level: Dbm(-71) }));
        let lost = attribute(attribute::CQM_PACKET_LOSS, &50u32.to_ne_bytes());
        assert_eq!(report(lost), Some(WifiEvent::PacketsLost { index: 3 }));
        assert_eq!(report(attribute(attribute::CQM_LEVEL, &[0; 2])), None);
    }

    #[test]
    fn a_message_that_is_cut_short_says_nothing() {
        let frame = attribute(attribute::FRAME, &[&[0xc0; 16][..], &AP].concat());
        let whole = [interface(), frame].concat();
        let left = WifiEvent::Left { index: 3, bssid: Bssid(AP) };
        assert_eq!(event_of(command::DEAUTHENTICATE, &whole), Some(left));
        // The frame is padded at its end.
        for cut in 0..whole.len() - 2 {
            assert_eq!(event_of(command::DEAUTHENTICATE, &whole[..cut]), None, "{cut}");
        }
    }
}
