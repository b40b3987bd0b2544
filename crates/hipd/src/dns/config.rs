//! The resolvers of the system, from `/etc/resolv.conf`.

use std::fs;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::time::Duration;

use resolv_conf::{Config, ScopedIp};

use super::error::DnsError;

/// The file.
pub(super) const PATH: &str = "/etc/resolv.conf";
/// The port of resolvers.
const PORT: u16 = 53;
/// The limits of the C library for `timeout` (seconds) and `attempts`.
const TIMEOUT_S: (u32, u32) = (1, 30);
const ATTEMPTS: (u32, u32) = (1, 5);

/// Resolvers, and how they are asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolvers {
    /// Their addresses, in the order in which they are asked.
    pub addresses: Vec<SocketAddr>,
    /// How long each is waited for.
    pub timeout: Duration,
    /// How often all of them are asked.
    pub attempts: u32,
    /// The administrator trusts the paths to all of them (`options trust-ad`).
    pub trusts_ad: bool,
}

impl Resolvers {
    /// Those of the system.
    ///
    /// # Errors
    /// [`DnsError::Config`] and [`DnsError::NoResolver`].
    pub fn of_system() -> Result<Self, DnsError> {
        let path = Path::new(PATH);
        let text = fs::read(path).map_err(|source| DnsError::Config { path: path.into(), source })?;
        Self::parse(&text).ok_or_else(|| DnsError::NoResolver { path: path.into() })
    }

    /// This one, with the C library's defaults.
    pub fn one(address: SocketAddr) -> Self {
        let defaults = Config::new();
        Self { addresses: vec![address], ..Self::with(&defaults) }
    }

    /// The resolvers in a text in the file's format; unknown lines are ignored, as by the C library. `None` without any resolver.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (mut config, _) = Config::parse_with_errors(text);
        config.glibc_normalize();
        let resolvers = Self::with(&config);
        if resolvers.addresses.is_empty() { None } else { Some(resolvers) }
    }

    fn with(config: &Config) -> Self {
        Self {
            addresses: config.nameservers.iter().filter_map(address).collect(),
            timeout: Duration::from_secs(config.timeout.clamp(TIMEOUT_S.0, TIMEOUT_S.1).into()),
            attempts: config.attempts.clamp(ATTEMPTS.0, ATTEMPTS.1),
            trusts_ad: config.trust_ad,
        }
    }
}

/// `None` if the link of a link-local address does not exist.
fn address(server: &ScopedIp) -> Option<SocketAddr> {
    match server {
        ScopedIp::V6(address, Some(link)) => {
            let index = link.parse().ok().or_else(|| index_of(link))?;
            Some(SocketAddrV6::new(*address, PORT, 0, index).into())
        }
        server => Some(SocketAddr::new(IpAddr::from(server), PORT)),
    }
}

fn index_of(link: &str) -> Option<u32> {
    fs::read_to_string(Path::new("/sys/class/net").join(link).join("ifindex")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_as_the_c_library_does() {
        let text = b"# made by hand\nnameserver 127.0.0.53\nnameserver 2001:db8::53\nnameserver fe80::1%lo\nnameserver 192.0.2.4\n\
                     unknown line\nsearch example.org\noptions edns0 trust-ad timeout:2 attempts:9 unheard-of\n";
        let read = Resolvers::parse(text).unwrap();
        let expected = ["127.0.0.53:53", "[2001:db8::53]:53", "[fe80::1%1]:53"].map(|text| text.parse().unwrap());
        assert_eq!(read.addresses, expected, "three at most");
        assert_eq!((read.timeout, read.attempts, read.trusts_ad), (Duration::from_secs(2), 5, true));
        let read = Resolvers::parse(b"nameserver 192.0.2.1").unwrap();
        assert_eq!(read, Resolvers::one("192.0.2.1:53".parse().unwrap()));
        assert_eq!((read.timeout, read.attempts, read.trusts_ad), (Duration::from_secs(5), 2, false));
        for nothing in [&b""[..], b"search example.org\n", b"nameserver\n", b"nameserver nobody\n", b"\xff\xfe"] {
            assert_eq!(Resolvers::parse(nothing), None);
        }
    }
}
