//! Wi-Fi by nl80211 (`linux/nl80211.h`) over generic netlink: queries here, notifications in [`events`].
//!
//! A station interface knows one other station, its access point, and its signal level.

pub mod events;

use std::io;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::association::Bssid;
use crate::link_watch::Dbm;

/// A socket for queries.
pub struct Station {
    generic: Generic,
    /// The multicast group of association events.
    association_group: Option<u32>,
}

/// A socket for queries of one family of generic netlink.
pub(super) struct Generic {
    socket: Socket,
    family: u16,
    /// The kernel's description of the family.
    description: Vec<Vec<u8>>,
    sequence: u32,
}

/// A level is not available.
#[derive(Debug, thiserror::Error)]
pub enum StationError {
    /// The kernel has no nl80211.
    #[error("this kernel has no Wi-Fi (nl80211: is cfg80211 loaded?)")]
    NoWifi,
    /// The interface does not exist, or is no Wi-Fi interface.
    #[error("{interface} is no Wi-Fi interface")]
    NotWifi {
        /// The interface.
        interface: Box<str>,
    },
    /// The socket failed.
    #[error("netlink socket for Wi-Fi: {0}")]
    Socket(#[from] io::Error),
}

/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME` (`linux/genetlink.h`).
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `CTRL_ATTR_MCAST_GROUPS`, `CTRL_ATTR_MCAST_GRP_NAME` and `CTRL_ATTR_MCAST_GRP_ID` (`linux/genetlink.h`), and
/// `NL80211_MULTICAST_GROUP_MLME`.
const GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;
const ASSOCIATION_GROUP: &[u8] = b"mlme\0";

/// `NL80211_CMD_GET_INTERFACE`, `NL80211_CMD_GET_STATION`, `NL80211_ATTR_IFINDEX`, `NL80211_ATTR_IFTYPE`, `NL80211_ATTR_MAC`,
/// `NL80211_ATTR_STA_INFO` and `NL80211_STA_INFO_SIGNAL` (`linux/nl80211.h`).
const GET_INTERFACE: u8 = 5;
const GET_STATION: u8 = 17;
const INTERFACE: u16 = 3;
const KIND: u16 = 5;
const MAC: u16 = 6;
const STATION_INFO: u16 = 21;
const SIGNAL: u16 = 7;

/// `NL80211_IFTYPE_STATION` and `NL80211_IFTYPE_P2P_CLIENT`.
const STATIONS: [u32; 2] = [2, 8];

/// `nlmsghdr` and `genlmsghdr`.
const HEADERS: usize = 16 + 4;

/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;

/// The timeout for the kernel. It answers during the request, unless the driver is busy.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

impl Station {
    /// Looks for nl80211.
    ///
    /// # Errors
    /// The kernel has none, or refuses the socket.
    pub fn open() -> Result<Self, StationError> {
        let generic = Generic::open(b"nl80211\0").map_err(|error| match error.raw_os_error() {
            Some(errno) if errno == rustix::io::Errno::NOENT.raw_os_error() => StationError::NoWifi,
            _ => StationError::Socket(error),
        })?;
        let association_group = generic.description.iter().find_map(|answer| group_of(answer, ASSOCIATION_GROUP));
        Ok(Self { generic, association_group })
    }

    /// The access point of each station interface, by interface index; `None` for one that is not associated.
    ///
    /// # Errors
    /// The kernel does not answer, or refuses.
    pub fn associations(&mut self) -> Result<Vec<(u32, Option<Bssid>)>, StationError> {
        let interfaces = self.generic.ask(GET_INTERFACE, NLM_F_DUMP, None)?;
        let stations = interfaces.iter().filter_map(|interface| {
            let u32_of = |kind| value(interface, kind)?.try_into().ok().map(u32::from_ne_bytes);
            u32_of(KIND).filter(|kind| STATIONS.contains(kind)).and_then(|_| u32_of(INTERFACE))
        });
        let associated = |index: u32| -> Result<_, StationError> {
            let answers = self.generic.ask(GET_STATION, NLM_F_DUMP, Some((INTERFACE, &index.to_ne_bytes())))?;
            Ok((index, answers.iter().find_map(|answer| bssid_of(answer))))
        };
        stations.map(associated).collect()
    }

    /// The level of an interface's access point; `None` if it is not associated.
    ///
    /// # Errors
    /// It is no Wi-Fi interface.
    pub fn level(&mut self, interface: &str) -> Result<Option<Dbm>, StationError> {
        let not_wifi = || StationError::NotWifi { interface: interface.into() };
        let index = rustix::net::netdevice::name_to_index(&self.generic.socket, interface).map_err(|_| not_wifi())?;
        let answers = self.generic.ask(GET_STATION, NLM_F_DUMP, Some((INTERFACE, &index.to_ne_bytes())));
        match answers {
            Ok(answers) => Ok(answers.iter().filter_map(|answer| level_of(answer)).max()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error.into()),
            Err(_) => Err(not_wifi()),
        }
    }
}

impl Generic {
    /// Looks for a family by its name, which ends with a zero byte.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has none; or it refuses the socket.
    pub(super) fn open(name: &[u8]) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        let mut generic = Self { socket, family: CONTROLLER, description: Vec::new(), sequence: 0 };
        generic.description = generic.ask(GET_FAMILY, 0, Some((FAMILY_NAME, name)))?;
        let family = generic.description.iter().find_map(|answer| family_of(answer));
        generic.family = family.ok_or(io::Error::from(rustix::io::Errno::NOENT))?;
        Ok(generic)
    }

    /// Sends a query with at most one attribute; returns the attributes of each message of the answer.
    pub(super) fn ask(&mut self, command: u8, flags: u16, attribute: Option<(u16, &[u8])>) -> io::Result<Vec<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(self.family, command, flags, self.sequence, attribute);
        self.socket.send_to(&request, &SocketAddr::new(0, 0), 0)?;
        let mut answers = Vec::new();
        loop {
            let mut ready = [PollFd::new(&self.socket, PollFlags::IN)];
            if poll(&mut ready, Some(&PATIENCE))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let (datagram, _) = self.socket.recv_from_full()?;
            if take_answers(&datagram, self.sequence, flags & NLM_F_DUMP == 0, &mut answers)? {
                return Ok(answers);
            }
        }
    }
}

fn request(family: u16, command: u8, flags: u16, sequence: u32, attribute: Option<(u16, &[u8])>) -> Vec<u8> {
    let length = HEADERS + attribute.map_or(0, |(_, value)| (4 + value.len()).next_multiple_of(4));
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&(length as u32).to_ne_bytes());
    bytes.extend_from_slice(&family.to_ne_bytes());
    bytes.extend_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    bytes.extend_from_slice(&[command, 1, 0, 0]);
    if let Some((kind, value)) = attribute {
        bytes.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
    }
    bytes.resize(length, 0);
    bytes
}

/// Parses the messages of a datagram; returns whether the answer ends with it.
fn take_answers(mut datagram: &[u8], sequence: u32, is_single: bool, answers: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    while let Some((header, _)) = datagram.split_at_checked(16) {
        let u32_at = |at: usize| header[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let length = u32_at(0) as usize;
        let Some(message) = datagram.get(..length).filter(|_| length >= 16) else { return Ok(true) };
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        if u32_at(8) != sequence {
            continue;
        }
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let code = message.get(16..20).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
                return if code == 0 { Ok(true) } else { Err(io::Error::from_raw_os_error(code.saturating_neg())) };
            }
            _ => answers.extend(message.get(HEADERS..).map(<[u8]>::to_vec)),
        }
        if is_single {
            return Ok(true);
        }
    }
    Ok(false)
}

fn family_of(attributes: &[u8]) -> Option<u16> {
    value(attributes, FAMILY_ID)?.try_into().ok().map(u16::from_ne_bytes)
}

/// The id of a multicast group in the description of a family.
fn group_of(family: &[u8], name: &[u8]) -> Option<u32> {
    let (_, group) = attributes(value(family, GROUPS)?).find(|&(_, group)| value(group, GROUP_NAME) == Some(name))?;
    value(group, GROUP_ID)?.try_into().ok().map(u32::from_ne_bytes)
}

fn bssid_of(attributes: &[u8]) -> Option<Bssid> {
    value(attributes, MAC)?.try_into().ok().map(Bssid)
}

fn level_of(attributes: &[u8]) -> Option<Dbm> {
    match value(value(attributes, STATION_INFO)?, SIGNAL)? {
        // A signed number in an unsigned byte. Drivers without dBm report 0 or something beyond.
        &[level] => Some(Dbm(i8::from_ne_bytes([level]))).filter(|&level| level < Dbm(0) && level >= Dbm(-120)),
        _ => None,
    }
}

/// The value of the first attribute of a type.
pub(super) fn value(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|&(found, _)| found == kind).map(|(_, value)| value)
}

/// Attributes as type and value. A truncated one ends them. Two bits of the type are flags (`NLA_TYPE_MASK`).
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (header, _) = bytes.split_at_checked(4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([header[2], header[3]]) & 0x3fff, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&sequence.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(body);
        bytes
    }

    fn station(level: i8) -> Vec<u8> {
        let info = [attribute(1, &[0; 4]), attribute(SIGNAL, &level.to_ne_bytes()), attribute(13, &[0xaa])].concat();
        // Nested attributes have a flag (`NLA_F_NESTED`).
        let body = [attribute(INTERFACE, &3u32.to_ne_bytes()), attribute(STATION_INFO | 0x8000, &info)].concat();
        [&[GET_STATION, 1, 0, 0], &body[..]].concat()
    }

    #[test]
    fn a_level_is_found_in_its_message() {
        let datagram = [
            message(28, 6, &station(-30)),
            message(28, 7, &station(-71)),
            message(28, 7, &station(0)),
            message(DONE, 7, &[0; 4]),
        ]
        .concat();
        let mut answers = Vec::new();
        assert!(take_answers(&datagram, 7, false, &mut answers).unwrap());
        let levels: Vec<_> = answers.iter().map(|answer| level_of(answer)).collect();
        assert_eq!(levels, [Some(Dbm(-71)), None]);
    }

    #[test]
    fn an_error_is_one_and_half_a_message_is_the_end() {
        let refused = message(ERROR, 7, &(-95i32).to_ne_bytes());
        let error = take_answers(&refused, 7, false, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(95));
        let whole = message(28, 7, &station(-71));
        for cut in 0..whole.len() {
            let mut answers = Vec::new();
            let _ = take_answers(&whole[..cut], 7, false, &mut answers);
            assert!(answers.is_empty(), "{cut}");
        }
        for cut in 0..whole.len() {
            assert_eq!(level_of(&whole[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn what_is_asked_is_as_long_as_it_says() {
        let bytes = request(CONTROLLER, GET_FAMILY, 0, 9, Some((FAMILY_NAME, b"nl80211\0")));
        assert_eq!(bytes.len(), 32);
        assert_eq!(&bytes[..4], 32u32.to_ne_bytes());
        assert_eq!(value(&bytes[HEADERS..], FAMILY_NAME), Some(&b"nl80211\0"[..]));
    }

    #[test]
    fn a_multicast_group_is_found_by_its_name() {
        let group = |name: &[u8], number: u32| {
            [attribute(GROUP_NAME, name), attribute(GROUP_ID, &number.to_ne_bytes())].concat()
        };
        let groups = [attribute(1, &group(b"scan\0", 20)), attribute(2, &group(b"mlme\0", 22))].concat();
        let family = attribute(GROUPS | 0x8000, &groups);
        assert_eq!(group_of(&family, ASSOCIATION_GROUP), Some(22));
        assert_eq!(group_of(&family, b"nan\0"), None);
    }

    /// With Wi-Fi it finds no interface of that name; without, it reports that.
    #[test]
    fn this_kernel_answers_one_way_or_the_other() {
        match Station::open() {
            Ok(mut station) => assert!(matches!(station.level("lo"), Err(StationError::NotWifi { .. }))),
            Err(error) => assert!(matches!(error, StationError::NoWifi), "{error}"),
        }
    }
}
