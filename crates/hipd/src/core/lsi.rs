//! Local scope identifiers (LSIs; RFC 9063, RFC 5338): IPv4 addresses that stand for hosts, valid on this host only, for programs without
//! IPv6. On the way to a peer their packets are translated to packets between HITs, so that both ends may use different IP versions: one
//! end's program may use the peer's LSI while the other's listens on IPv6.
//!
//! An LSI consists of the low bits of the HIT only, so that adding or removing a peer changes no other peer's LSI. Peers whose HITs share
//! these bits have none.

use std::collections::BTreeMap;

use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

use holdover_hip::identity::Hit;

/// A prefix for the LSIs of this host's peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LsiPrefix {
    network: Ipv4Addr,
    len: u8,
}

impl Default for LsiPrefix {
    /// 198.18.0.0/15, which no network forwards (RFC 2544, RFC 6890).
    fn default() -> Self {
        Self { network: Ipv4Addr::new(198, 18, 0, 0), len: 15 }
    }
}

/// Why a prefix is not valid for LSIs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LsiPrefixError {
    /// Not a prefix.
    #[error("\"{text}\" is not an IPv4 prefix such as 198.18.0.0/15")]
    Form {
        /// The text.
        text: String,
    },
    /// Too small or too large.
    #[error("/{len}: expected a prefix of 8 to 16 bits, so that peers' addresses hardly ever collide")]
    Len {
        /// Its bits.
        len: u8,
    },
    /// It contains addresses with another meaning.
    #[error("{network}/{len} contains addresses that no host can have")]
    Reserved {
        /// Its first address.
        network: Ipv4Addr,
        /// Its bits.
        len: u8,
    },
}

impl FromStr for LsiPrefix {
    type Err = LsiPrefixError;

    fn from_str(text: &str) -> Result<Self, LsiPrefixError> {
        let form = || LsiPrefixError::Form { text: text.to_owned() };
        let (network, len) = text.split_once('/').ok_or_else(form)?;
        let (network, len): (Ipv4Addr, u8) = (network.parse().map_err(|_| form())?, len.parse().map_err(|_| form())?);
        if !(8..=16).contains(&len) {
            return Err(LsiPrefixError::Len { len });
        }
        if network.is_loopback() || network.is_multicast() || network.octets()[0] == 0 || network.octets()[0] >= 240 {
            return Err(LsiPrefixError::Reserved { network, len });
        }
        let prefix = Self { network, len };
        Ok(Self { network: Ipv4Addr::from_bits(network.to_bits() & !prefix.host_bits()), len })
    }
}

impl fmt::Display for LsiPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.len)
    }
}

impl LsiPrefix {
    /// The LSI of this host itself: the first host address of the prefix.
    pub const fn own(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() + 1)
    }

    /// Its first address.
    pub const fn network(self) -> Ipv4Addr {
        self.network
    }

    /// The number of common bits.
    pub const fn prefix_len(self) -> u8 {
        self.len
    }

    /// Whether an address is an LSI.
    pub const fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & !self.host_bits() == self.network.to_bits()
    }

    const fn host_bits(self) -> u32 {
        u32::MAX >> self.len
    }

    /// The LSIs of these peers. Peers whose HITs end with the same bits have none.
    pub fn assign(self, hits: impl IntoIterator<Item = Hit>) -> BTreeMap<Hit, Ipv4Addr> {
        let mut claimed: BTreeMap<Ipv4Addr, Vec<Hit>> = BTreeMap::new();
        for hit in hits {
            claimed.entry(self.of(hit)).or_default().push(hit);
        }
        claimed.into_iter().filter(|(_, hits)| hits.len() == 1).map(|(lsi, hits)| (hits[0], lsi)).collect()
    }

    fn of(self, hit: Hit) -> Ipv4Addr {
        // Without the network's own address, this host's LSI and the address for broadcasts.
        let count = self.host_bits() - 2;
        let low = u128::from(hit.0) as u32 & self.host_bits();
        Ipv4Addr::from_bits(self.network.to_bits() + 2 + low % count)
    }
}
