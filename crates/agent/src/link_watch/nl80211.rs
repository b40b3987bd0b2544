//! Wi-Fi by nl80211 (`linux/nl80211.h`) over generic netlink: queries here, notifications in [`events`].
//!
//! A station interface knows one other station, its access point, and its signal level.

pub mod events;

use std::io;

use holdover_host::generic_netlink::{Generic, attribute, u32_value, value};
use holdover_host::nl80211::{FAMILY, GET_INTERFACE, GET_STATION, INTERFACE, KIND, MAC, STATION_INFO};
use netlink_packet_core::NLM_F_DUMP;

use super::association::Bssid;
use crate::link_watch::Dbm;

/// A socket for queries.
pub struct Station {
    generic: Generic,
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

/// `NL80211_STA_INFO_SIGNAL`.
const SIGNAL: u16 = 7;

/// `NL80211_IFTYPE_STATION` and `NL80211_IFTYPE_P2P_CLIENT`.
const STATIONS: [u32; 2] = [2, 8];

impl Station {
    /// Looks for nl80211.
    ///
    /// # Errors
    /// The kernel has none, or refuses the socket.
    pub fn open() -> Result<Self, StationError> {
        let generic = Generic::open(FAMILY).map_err(|error| match error.raw_os_error() {
            Some(errno) if errno == rustix::io::Errno::NOENT.raw_os_error() => StationError::NoWifi,
            _ => StationError::Socket(error),
        })?;
        Ok(Self { generic })
    }

    /// The access point of each station interface, by interface index; `None` for one that is not associated. Interfaces whose association
    /// is not known are left out.
    ///
    /// # Errors
    /// The kernel does not answer, or refuses.
    pub fn associations(&mut self) -> Result<Vec<(u32, Option<Bssid>)>, StationError> {
        let interfaces = self.generic.ask(GET_INTERFACE, NLM_F_DUMP, &[])?;
        let stations = interfaces.iter().filter_map(|interface| {
            let kind = u32_value(interface, KIND).filter(|kind| STATIONS.contains(kind));
            kind.and_then(|_| u32_value(interface, INTERFACE))
        });
        let associations = stations.filter_map(|index| {
            let answer = self.generic.ask(GET_STATION, NLM_F_DUMP, &attribute(INTERFACE, &index.to_ne_bytes()));
            association(answer).map(|bssid| -> Result<_, StationError> { Ok((index, bssid?)) })
        });
        associations.collect()
    }

    /// The level of an interface's access point; `None` if it is not associated.
    ///
    /// # Errors
    /// It is no Wi-Fi interface.
    pub fn level(&mut self, interface: &str) -> Result<Option<Dbm>, StationError> {
        let not_wifi = || StationError::NotWifi { interface: interface.into() };
        let index = rustix::net::netdevice::name_to_index(&self.generic, interface).map_err(|_| not_wifi())?;
        let answers = self.generic.ask(GET_STATION, NLM_F_DUMP, &attribute(INTERFACE, &index.to_ne_bytes()));
        match answers {
            Ok(answers) => Ok(answers.iter().filter_map(|answer| level_of(answer)).max()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error.into()),
            Err(_) => Err(not_wifi()),
        }
    }
}

/// The access point in the answer to a query for the stations of an interface, or the socket's error. `None` if the answer does not tell: the
/// interface was removed meanwhile, or its driver does not list stations, associated or not.
fn association(answer: io::Result<Vec<Vec<u8>>>) -> Option<io::Result<Option<Bssid>>> {
    match answer {
        Ok(stations) => Some(Ok(stations.iter().find_map(|station| bssid_of(station)))),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP)) => None,
        Err(error) => Some(Err(error)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn station(level: i8) -> Vec<u8> {
        let info = [attribute(1, &[0; 4]), attribute(SIGNAL, &level.to_ne_bytes()), attribute(13, &[0xaa])].concat();
        // Nested attributes have a flag (`NLA_F_NESTED`).
        [attribute(INTERFACE, &3u32.to_ne_bytes()), attribute(STATION_INFO | 0x8000, &info)].concat()
    }

    #[test]
    fn a_level_is_found_in_its_message() {
        assert_eq!(level_of(&station(-71)), Some(Dbm(-71)));
        assert_eq!(level_of(&station(0)), None);
        let whole = station(-71);
        for cut in 0..whole.len() {
            assert_eq!(level_of(&whole[..cut]), None, "{cut}");
        }
    }

    /// "Not associated" would be link-down: a driver that cannot tell is not to end a link that carries packets.
    // Claim: A Wi-Fi driver that does not list its stations is not taken for a link that is not associated.
    #[test]
    fn a_driver_that_does_not_list_stations_says_nothing_of_its_association() {
        let refused = |errno: i32| association(Err(io::Error::from_raw_os_error(errno)));
        assert!(refused(libc::EOPNOTSUPP).is_none() && refused(libc::ENODEV).is_none());
        assert!(matches!(refused(libc::EPERM), Some(Err(error)) if error.raw_os_error() == Some(libc::EPERM)));
        assert!(matches!(association(Ok(Vec::new())), Some(Ok(None))));
        let bssid = [2, 0, 0, 0, 1, 0];
        let answer = association(Ok(vec![station(-71), attribute(MAC, &bssid)]));
        assert!(matches!(answer, Some(Ok(Some(found))) if found == Bssid(bssid)), "{answer:?}");
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
