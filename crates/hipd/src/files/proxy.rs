//! `proxy.toml`: hosts without HIP, behind an interface of this host, which holds their identities in `hosts/NAME/identity.toml`.

use core::net::IpAddr;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{FileError, PeerError, WriteError, check_address, check_name, read_toml, replace};

/// The most hosts without HIP: one for each low byte of an SPI but that of this host itself.
pub const MAX_HOSTS: usize = u8::MAX as usize;

const FILE: &str = "proxy.toml";
/// The directory of their identities.
const IDENTITIES: &str = "hosts";
/// `IFNAMSIZ` without the final zero.
const LONGEST_INTERFACE: usize = 15;

/// Interfaces behind which there is no host: the loopback device, and the daemon's own ones by default.
const NOT_OF_HOSTS: [&str; 3] = ["lo", "hip0", "hip0-lan"];

/// A host without HIP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProxiedHost {
    /// Its name here.
    pub name: String,
    /// Its address in each IP version. Connections from peers go to the first one.
    pub addresses: Vec<IpAddr>,
}

/// The hosts without HIP: each name and each address once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxy {
    /// The interface behind which they are.
    pub interface: String,
    #[serde(default, rename = "host")]
    hosts: Vec<ProxiedHost>,
}

/// Why a host cannot be added.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProxyError {
    /// The interface.
    #[error(
        "invalid interface name \"{name}\": expected 1 to {LONGEST_INTERFACE} characters without '/' and spaces, and not {}",
        NOT_OF_HOSTS.join(", ")
    )]
    Interface {
        /// The name.
        name: String,
    },
    /// The name or an address.
    #[error(transparent)]
    Invalid(#[from] PeerError),
    /// A loopback address.
    #[error("{address} is a loopback address: the host has none that is valid here")]
    Loopback {
        /// The address.
        address: IpAddr,
    },
    /// No address, or two of one version.
    #[error("{name} has {count} addresses of one IP version: expected one address, or one in IPv4 and one in IPv6")]
    Addresses {
        /// The name of the host.
        name: String,
        /// How many there are of that version.
        count: usize,
    },
    /// The name is taken.
    #[error("host {name} exists: remove it (holdover hip proxy remove {name}) or choose another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// An address is taken.
    #[error("{address} is the address of host {name} already")]
    AddressTaken {
        /// The address.
        address: IpAddr,
        /// The name of the other host.
        name: String,
    },
    /// Too many.
    #[error("more than {MAX_HOSTS} hosts")]
    TooMany,
    /// The host does not exist.
    #[error("no host \"{name}\"; existing ones: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    Unknown {
        /// The name.
        name: String,
        /// The existing ones.
        known: Vec<String>,
    },
}

/// Why the file is unusable.
pub type ProxyFileError = FileError<ProxyError>;

impl ProxiedHost {
    /// The directory of its identity.
    pub fn identity_directory(&self, directory: &Path) -> PathBuf {
        directory.join(IDENTITIES).join(&self.name)
    }

    fn check(&self) -> Result<(), ProxyError> {
        check_name(&self.name)?;
        for &address in &self.addresses {
            if address.is_loopback() {
                return Err(ProxyError::Loopback { address });
            }
            check_address(address)?;
        }
        let v4 = self.addresses.iter().filter(|address| address.is_ipv4()).count();
        let v6 = self.addresses.len() - v4;
        let count = v4.max(v6);
        if count == 1 { Ok(()) } else { Err(ProxyError::Addresses { name: self.name.clone(), count }) }
    }
}

impl Proxy {
    /// Without hosts, for hosts behind this interface.
    ///
    /// # Errors
    /// [`ProxyError::Interface`].
    pub fn new(interface: &str) -> Result<Self, ProxyError> {
        let is_fine = (1..=LONGEST_INTERFACE).contains(&interface.len())
            && !matches!(interface, "." | "..")
            && !NOT_OF_HOSTS.contains(&interface)
            && interface.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
        if is_fine {
            Ok(Self { interface: interface.to_owned(), hosts: Vec::new() })
        } else {
            Err(ProxyError::Interface { name: interface.to_owned() })
        }
    }

    /// Reads the file in the directory; `None` if there is none.
    ///
    /// # Errors
    /// [`ProxyFileError`] with the position.
    pub fn read(directory: &Path) -> Result<Option<Self>, ProxyFileError> {
        let path = directory.join(FILE);
        let Some(read) = read_toml::<Self, _>(&path)? else { return Ok(None) };
        let invalid = |source| ProxyFileError::Invalid { path: path.clone(), source };
        let mut proxy = Self::new(&read.interface).map_err(invalid)?;
        for host in read.hosts {
            proxy.add(host).map_err(invalid)?;
        }
        Ok(Some(proxy))
    }

    /// Writes the file to the directory.
    ///
    /// # Errors
    /// [`ProxyFileError::Write`].
    pub fn write(&self, directory: &Path) -> Result<(), ProxyFileError> {
        let path = directory.join(FILE);
        let text = toml::to_string_pretty(self);
        let text = text.map_err(|error| ProxyFileError::Contents { path: path.clone(), message: error.to_string() })?;
        Ok(replace(&path, 0o644, &text, false)?)
    }

    /// Writes what [`Self::read`] has returned before a change.
    ///
    /// # Errors
    /// [`ProxyFileError::Write`].
    pub fn restore(before: Option<&Self>, directory: &Path) -> Result<(), ProxyFileError> {
        let path = directory.join(FILE);
        match before {
            Some(before) => before.write(directory),
            None => Ok(fs::remove_file(&path).map_err(|source| WriteError { path, source })?),
        }
    }

    /// Adds a host.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub fn add(&mut self, host: ProxiedHost) -> Result<(), ProxyError> {
        host.check()?;
        if self.hosts.iter().any(|it| it.name == host.name) {
            return Err(ProxyError::NameTaken { name: host.name });
        }
        for &address in &host.addresses {
            if let Some(other) = self.hosts.iter().find(|it| it.addresses.contains(&address)) {
                return Err(ProxyError::AddressTaken { address, name: other.name.clone() });
            }
        }
        if self.hosts.len() >= MAX_HOSTS {
            return Err(ProxyError::TooMany);
        }
        self.hosts.push(host);
        Ok(())
    }

    /// Removes a host by its name. Its identity stays.
    ///
    /// # Errors
    /// [`ProxyError::Unknown`].
    pub fn remove(&mut self, name: &str) -> Result<ProxiedHost, ProxyError> {
        let index = self.hosts.iter().position(|host| host.name == name).ok_or_else(|| self.unknown(name))?;
        Ok(self.hosts.remove(index))
    }

    /// Finds a host by its name.
    ///
    /// # Errors
    /// [`ProxyError::Unknown`].
    pub fn find(&self, name: &str) -> Result<&ProxiedHost, ProxyError> {
        self.hosts.iter().find(|host| host.name == name).ok_or_else(|| self.unknown(name))
    }

    /// All hosts.
    pub fn iter(&self) -> impl Iterator<Item = &ProxiedHost> {
        self.hosts.iter()
    }

    fn unknown(&self, name: &str) -> ProxyError {
        let known = self.hosts.iter().map(|host| host.name.clone()).collect();
        ProxyError::Unknown { name: name.to_owned(), known }
    }
}

/// The directory of the identity of a host without HIP.
///
/// # Errors
/// The name is invalid.
pub fn host_directory(directory: &Path, name: &str) -> Result<PathBuf, PeerError> {
    check_name(name)?;
    Ok(directory.join(IDENTITIES).join(name))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Place;
    use super::*;

    fn host(name: &str, addresses: &[&str]) -> ProxiedHost {
        ProxiedHost { name: name.into(), addresses: addresses.iter().map(|it| it.parse().unwrap()).collect() }
    }

    #[test]
    fn hosts_are_read_as_they_were_written() {
        let place = Place::new("proxy");
        assert_eq!(Proxy::read(&place.0).unwrap(), None);
        let mut proxy = Proxy::new("lan0").unwrap();
        proxy.add(host("printer", &["192.168.7.10", "fd00:7::10"])).unwrap();
        proxy.add(host("camera", &["fd00:7::11"])).unwrap();
        proxy.write(&place.0).unwrap();
        assert_eq!(Proxy::read(&place.0).unwrap().as_ref(), Some(&proxy));
        assert_eq!(proxy.remove("printer").unwrap().addresses.len(), 2);
        assert!(proxy.find("camera").is_ok());
        assert_eq!(proxy.remove("printer").unwrap_err().to_string(), "no host \"printer\"; existing ones: camera");
        assert_eq!(host_directory(&place.0, "camera").unwrap(), place.0.join("hosts/camera"));
        assert!(host_directory(&place.0, "..").is_err() && host_directory(&place.0, "a/b").is_err());
    }

    #[test]
    fn invalid_hosts_are_refused() {
        let mut proxy = Proxy::new("lan0").unwrap();
        proxy.add(host("a", &["192.168.7.10"])).unwrap();
        for (name, addresses, expected) in [
            ("", &["192.168.7.11"][..], "invalid name"),
            ("b", &[], "0 addresses of one IP version"),
            ("b", &["192.168.7.11", "192.168.7.12"], "2 addresses of one IP version"),
            ("b", &["127.0.0.1"], "loopback"),
            ("b", &["2001:25::1"], "it is a HIT"),
            ("b", &["224.0.0.1"], "multicast"),
            ("b", &["192.168.7.10"], "address of host a already"),
            ("a", &["192.168.7.11"], "host a exists"),
        ] {
            let error = proxy.add(host(name, addresses)).unwrap_err().to_string();
            assert!(error.contains(expected), "{name} {addresses:?}: {error}");
        }
        for name in ["", "a b", "a/b", "..", "sixteencharacter", "a:1", "lo", "hip0", "hip0-lan"] {
            assert!(matches!(Proxy::new(name), Err(ProxyError::Interface { .. })), "{name}");
        }
        for number in 1..MAX_HOSTS {
            proxy.add(host(&format!("h{number}"), &[&format!("10.1.{}.{}", number / 200, number % 200 + 1)])).unwrap();
        }
        assert_eq!(proxy.add(host("more", &["10.2.0.1"])), Err(ProxyError::TooMany));
    }

    #[test]
    fn a_file_with_mistakes_is_refused_and_the_place_named() {
        let place = Place::new("proxy-wrong");
        let entry = "[[host]]\nname = \"a\"\naddresses = [\"192.168.7.10\"]\n";
        for (text, expected) in [
            (entry.to_owned(), "interface"),
            ("interface = \"a/b\"\n".to_owned(), "invalid interface name"),
            (format!("interface = \"lan0\"\n{entry}via = \"udp\"\n"), "line 5"),
            (format!("interface = \"lan0\"\n{entry}{entry}"), "host a exists"),
            ("interface = \"lan0\"\n[[host]]\nname = \"a\"\naddresses = [\"home\"]\n".to_owned(), "line 4"),
        ] {
            fs::write(place.0.join(FILE), &text).unwrap();
            let error = Proxy::read(&place.0).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(FILE), "{text}: {error}");
        }
    }
}
