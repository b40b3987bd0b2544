//! `peers.toml`: the hosts that may communicate with this host, and their possible addresses.

use core::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use holdover_hip::host::{AddressProblem, Service};
use holdover_hip::identity::Hit;
use holdover_host::lock_file::LockFile;
use serde::{Deserialize, Serialize};

use super::{DIRECTORY_MODE, FileError, read_toml, replace};

const FILE: &str = "peers.toml";
/// Locked by a process that changes the peers.
const LOCK: &str = "peers.toml.lock";
/// The time to wait for another process's change, which takes one write to the disk.
const PATIENCE: Duration = Duration::from_secs(10);
/// The limit of `holdover_hip` for a peer.
pub const MAX_ADDRESSES: usize = 8;
/// The most addresses of servers among a peer's addresses.
pub const MAX_SERVERS: usize = 4;
/// The length of a DNS label (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 63;

/// How a peer's HIP and ESP packets are carried.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// As IP protocols 139 and 50.
    #[default]
    Ip,
    /// In UDP on port 10500 (RFC 9028 section 5.1, RFC 3948).
    Udp,
}

/// A peer's service for this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Serves {
    /// It is this host's rendezvous server (RFC 8004).
    Rendezvous,
    /// It is its relay, for HIP and data in UDP (RFC 9028). A host is not a client of both services of a server (RFC 9028 section 7.8).
    Relay,
}

impl Serves {
    /// The services to register for.
    pub const fn services(self) -> &'static [Service] {
        match self {
            Self::Rendezvous => &[Service::Rendezvous],
            Self::Relay => &[Service::RelayHip, Service::RelayEsp],
        }
    }
}

impl core::fmt::Display for Serves {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Rendezvous => "rendezvous",
            Self::Relay => "relay",
        })
    }
}

/// A peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its name on this host.
    pub name: String,
    /// Its HIT.
    hit: Ipv6Addr,
    /// Its possible addresses.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// How its packets are carried.
    #[serde(default)]
    pub via: Via,
    /// Addresses of its rendezvous servers and relays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<IpAddr>,
    /// Its service for this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<Serves>,
}

/// The peers of a host: each name and each HIT once.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    #[serde(default, rename = "peer")]
    peers: Vec<Peer>,
}

/// Why a peer is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PeerError {
    /// The name.
    #[error(
        "invalid name \"{name}\": expected 1 to {MAX_NAME} letters, digits, '-', '_' and '.', beginning with a letter or digit"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("peer {name} exists, with HIT {hit}: remove it (holdover hip peer remove {name}) or choose another name")]
    NameTaken {
        /// The name.
        name: String,
        /// The HIT of the other peer.
        hit: Hit,
    },
    /// The HIT is taken.
    #[error("{hit} exists as {name}: remove it first (holdover hip peer remove {name})")]
    HitTaken {
        /// The HIT.
        hit: Hit,
        /// Its name.
        name: String,
    },
    /// Not a HIT.
    #[error("{hit} is not a HIT of a supported suite (2001:21, 2001:22 or 2001:25)")]
    Hit {
        /// The address.
        hit: Hit,
    },
    /// Not a valid address of a host.
    #[error("invalid address {address}: {problem}")]
    Address {
        /// The address.
        address: IpAddr,
        /// The reason.
        problem: AddressProblem,
    },
    /// Too many.
    #[error("{count} addresses exceed the limit of {MAX_ADDRESSES}")]
    TooMany {
        /// Their number.
        count: usize,
    },
    /// Too many servers.
    #[error("{count} addresses of servers exceed the limit of {MAX_SERVERS}")]
    TooManyServers {
        /// Their number.
        count: usize,
    },
    /// The peer does not exist.
    #[error("no peer \"{name}\"; existing ones: {}", list(known))]
    Unknown {
        /// The name or HIT.
        name: String,
        /// The existing ones.
        known: Vec<String>,
    },
}

/// Why the file of peers is unusable.
pub type PeersFileError = FileError<PeerError>;

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Checks a peer's name.
///
/// # Errors
/// [`PeerError::Name`].
pub fn check_name(name: &str) -> Result<(), PeerError> {
    let is_fine = (1..=MAX_NAME).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if is_fine { Ok(()) } else { Err(PeerError::Name { name: name.into() }) }
}

/// Checks a host's address. IPv4 link-local ones are left to the routes of the system, which have one link for them.
///
/// # Errors
/// [`PeerError::Address`].
pub fn check_address(address: IpAddr) -> Result<(), PeerError> {
    AddressProblem::on_a_link(address).map_or(Ok(()), |problem| Err(PeerError::Address { address, problem }))
}

impl Peer {
    /// A peer.
    ///
    /// # Errors
    /// [`PeerError`], if any part is invalid.
    pub fn new(name: &str, hit: Hit, addresses: Vec<IpAddr>, via: Via) -> Result<Self, PeerError> {
        let peer = Self { name: name.into(), hit: hit.0, addresses, via, servers: Vec::new(), serves: None };
        peer.check()?;
        Ok(peer)
    }

    /// The same, with servers through which it may be reached.
    ///
    /// # Errors
    /// [`PeerError`] if one of them is invalid.
    pub fn with_servers(self, servers: Vec<IpAddr>) -> Result<Self, PeerError> {
        let peer = Self { servers, ..self };
        peer.check()?;
        Ok(peer)
    }

    /// The same, with a service for this host.
    #[must_use]
    pub fn serving(self, serves: Option<Serves>) -> Self {
        Self { serves, ..self }
    }

    /// Its HIT.
    pub const fn hit(&self) -> Hit {
        Hit(self.hit)
    }

    fn check(&self) -> Result<(), PeerError> {
        check_name(&self.name)?;
        if self.hit().suite().is_none() {
            return Err(PeerError::Hit { hit: self.hit() });
        }
        if self.addresses.len() > MAX_ADDRESSES {
            return Err(PeerError::TooMany { count: self.addresses.len() });
        }
        if self.servers.len() > MAX_SERVERS {
            return Err(PeerError::TooManyServers { count: self.servers.len() });
        }
        self.addresses.iter().chain(&self.servers).try_for_each(|&address| check_address(address))
    }
}

impl Peers {
    /// Reads the peers of the directory; none without a file.
    ///
    /// # Errors
    /// [`PeersFileError`] with the position.
    pub fn read(directory: &Path) -> Result<Self, PeersFileError> {
        let path = directory.join(FILE);
        let read: Self = read_toml(&path)?.unwrap_or_default();
        let mut peers = Self::default();
        for peer in read.peers {
            peers.add(peer).map_err(|source| PeersFileError::Invalid { path: path.clone(), source })?;
        }
        Ok(peers)
    }

    /// Changes the peers of the directory. Processes that change them at once take turns, from the reading to the writing: otherwise the
    /// last one to write would undo the others' changes. Without a change, and after an error, the file stays as it is.
    ///
    /// # Errors
    /// Those of `change`; [`PeersFileError`] if the file cannot be locked, read or written.
    pub fn change<T, E: From<PeersFileError>>(
        directory: &Path,
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let lock = LockFile::take(&directory.join(LOCK), DIRECTORY_MODE, Instant::now() + PATIENCE);
        let _lock = lock.map_err(|source| PeersFileError::Lock { path: directory.join(FILE), source })?;
        let before = Self::read(directory)?;
        let mut peers = before.clone();
        let changed = change(&mut peers)?;
        if peers != before {
            peers.write(directory)?;
        }
        Ok(changed)
    }

    fn write(&self, directory: &Path) -> Result<(), PeersFileError> {
        let path = directory.join(FILE);
        let text = toml::to_string_pretty(self);
        let text = text.map_err(|error| PeersFileError::Contents { path: path.clone(), message: error.to_string() })?;
        Ok(replace(&path, 0o644, &text, false)?)
    }

    /// Adds a peer.
    ///
    /// # Errors
    /// [`PeerError`] if it is a duplicate, or one too many.
    pub fn add(&mut self, peer: Peer) -> Result<(), PeerError> {
        peer.check()?;
        for other in &self.peers {
            if other.hit == peer.hit {
                return Err(PeerError::HitTaken { hit: peer.hit(), name: other.name.clone() });
            }
            if other.name == peer.name {
                return Err(PeerError::NameTaken { name: peer.name, hit: other.hit() });
            }
        }
        self.peers.push(peer);
        Ok(())
    }

    /// A peer at an address of the loopback interface, for tests with sockets.
    #[cfg(test)]
    pub(crate) fn on_loopback(name: &str, hit: Hit, address: IpAddr, via: Via) -> Self {
        let addresses = vec![address];
        let peer = Peer { name: name.into(), hit: hit.0, addresses, via, servers: Vec::new(), serves: None };
        Self { peers: vec![peer] }
    }

    /// Removes a peer by its name or HIT.
    ///
    /// # Errors
    /// [`PeerError::Unknown`].
    pub fn remove(&mut self, name: &str) -> Result<Peer, PeerError> {
        let hit = self.find(name)?.hit;
        let index = self.peers.iter().position(|peer| peer.hit == hit).unwrap_or_default();
        Ok(self.peers.remove(index))
    }

    /// Finds a peer by its name or HIT.
    ///
    /// # Errors
    /// [`PeerError::Unknown`].
    pub fn find(&self, name: &str) -> Result<&Peer, PeerError> {
        let hit = name.parse::<Ipv6Addr>().ok();
        let found = self.peers.iter().find(|peer| peer.name == name || Some(peer.hit) == hit);
        let known = || self.peers.iter().map(|peer| peer.name.clone()).collect();
        found.ok_or_else(|| PeerError::Unknown { name: name.into(), known: known() })
    }

    /// All of them, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::Place;
    use super::*;

    fn hit(last: u16) -> Hit {
        Hit(format!("2001:25::{last:x}").parse().unwrap())
    }

    fn peer(name: &str, last: u16) -> Peer {
        Peer::new(name, hit(last), vec!["192.0.2.1".parse().unwrap()], Via::Udp).unwrap()
    }

    #[test]
    fn peers_are_read_as_they_were_written() {
        let place = Place::new("peers");
        assert_eq!(Peers::read(&place.0).unwrap(), Peers::default());
        let mut peers = Peers::default();
        peers.add(peer("server", 1)).unwrap();
        peers.add(Peer::new("laptop", hit(2), Vec::new(), Via::Ip).unwrap()).unwrap();
        let met = peer("met", 3).with_servers(vec!["203.0.113.9".parse().unwrap()]).unwrap();
        peers.add(met.serving(Some(Serves::Relay))).unwrap();
        peers.write(&place.0).unwrap();
        assert_eq!(Peers::read(&place.0).unwrap(), peers);
        assert_eq!(peers.find("2001:25::2").unwrap().name, "laptop");
        assert_eq!(peers.remove("server").unwrap().hit(), hit(1));
        assert_eq!(peers.iter().count(), 2);
        let unknown = peers.remove("server").unwrap_err();
        assert_eq!(unknown.to_string(), "no peer \"server\"; existing ones: laptop, met");
    }

    // Claim: Of peers that are added to the file at the same time, as by two invitations, none is lost.
    #[test]
    fn changes_at_the_same_time_are_all_kept() {
        let place = Place::new("peers-at-once");
        std::thread::scope(|scope| {
            for number in 1..=8 {
                let directory = &place.0;
                scope.spawn(move || {
                    let added = Peers::change(directory, |peers| {
                        peers.add(peer(&format!("host{number}"), number)).unwrap();
                        Ok::<_, PeersFileError>(())
                    });
                    added.unwrap();
                });
            }
        });
        let peers = Peers::read(&place.0).unwrap();
        assert!((1..=8).all(|number| peers.find(&format!("host{number}")).is_ok()), "{peers:?}");
        let files: Vec<_> = fs::read_dir(&place.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files, [FILE], "no lock stays");
    }

    #[test]
    fn a_file_without_a_change_is_not_written() {
        let place = Place::new("peers-unchanged");
        let path = place.0.join(FILE);
        let text = "# by hand\n[[peer]]\nname = \"a\"\nhit = \"2001:25::1\"\n";
        fs::write(&path, text).unwrap();
        let known = Peers::change(&place.0, |peers| Ok::<_, PeersFileError>(peers.iter().count()));
        assert_eq!(known.unwrap(), 1);
        let refused = Peers::change(&place.0, |peers| {
            peers.remove("a").unwrap();
            Err::<(), _>(PeersFileError::Contents { path: path.clone(), message: "refused".to_owned() })
        });
        assert!(refused.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn duplicate_names_and_hits_are_refused() {
        let mut peers = Peers::default();
        peers.add(peer("server", 1)).unwrap();
        assert!(matches!(peers.add(peer("server", 2)), Err(PeerError::NameTaken { .. })));
        assert!(matches!(peers.add(peer("other", 1)), Err(PeerError::HitTaken { .. })));
    }

    #[test]
    fn invalid_peers_are_refused() {
        let new = |name: &str, hit, address: &str| Peer::new(name, hit, vec![address.parse().unwrap()], Via::Ip);
        assert!(new("a", hit(1), "192.0.2.1").is_ok());
        for name in ["", "-a", "a b", "ä", "a\n", &"a".repeat(64)] {
            assert!(matches!(new(name, hit(1), "192.0.2.1"), Err(PeerError::Name { .. })), "{name}");
        }
        for (address, reason) in [
            ("0.0.0.0", AddressProblem::Unspecified),
            ("0.1.2.3", AddressProblem::Unspecified),
            ("::", AddressProblem::Unspecified),
            ("127.0.0.1", AddressProblem::Loopback),
            ("127.1.2.3", AddressProblem::Loopback),
            ("::1", AddressProblem::Loopback),
            ("224.0.0.1", AddressProblem::Multicast),
            ("ff02::1", AddressProblem::Multicast),
            ("255.255.255.255", AddressProblem::Broadcast),
            ("fe80::1", AddressProblem::LinkLocal),
            ("2001:25::9", AddressProblem::Hit),
            ("::ffff:192.0.2.1", AddressProblem::Mapped),
        ] {
            let error = new("a", hit(1), address).unwrap_err();
            assert!(matches!(error, PeerError::Address { problem, .. } if problem == reason), "{error}");
        }
        let not_a_hit = Hit("2001:db8::1".parse().unwrap());
        assert!(matches!(new("a", not_a_hit, "192.0.2.1"), Err(PeerError::Hit { .. })));
        let many = Peer::new("a", hit(1), vec!["192.0.2.1".parse().unwrap(); 9], Via::Ip);
        assert_eq!(many, Err(PeerError::TooMany { count: 9 }));
        let many = peer("a", 1).with_servers(vec!["192.0.2.1".parse().unwrap(); 5]);
        assert_eq!(many, Err(PeerError::TooManyServers { count: 5 }));
        let nowhere = peer("a", 1).with_servers(vec!["224.0.0.1".parse().unwrap()]);
        assert!(matches!(nowhere, Err(PeerError::Address { .. })));
    }

    #[test]
    fn a_file_with_mistakes_is_refused_and_the_place_named() {
        let place = Place::new("peers-wrong");
        let entry = "[[peer]]\nname = \"a\"\nhit = \"2001:25::1\"\n";
        for (text, word) in [
            ("[[peer]]\n", "name"),
            ("peer = 3\n", "line 1"),
            ("[[peer]]\nname = \"a\"\nhit = \"2001:db8::1\"\n", "not a HIT"),
            (&format!("{entry}address = \"1.2.3.4\"\n"), "line 4"),
            (&format!("{entry}via = \"pigeon\"\n"), "pigeon"),
            (&format!("{entry}{entry}"), "exists as a"),
        ] {
            fs::write(place.0.join(FILE), text).unwrap();
            let error = Peers::read(&place.0).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains(FILE), "{text}: {error}");
        }
    }
}
