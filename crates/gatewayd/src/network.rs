//! A network: an address and the length of its prefix, such as `10.0.1.0/24`.

use core::fmt;
use core::str::FromStr;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

pub(crate) use holdover_flow::mapped;
use holdover_flow::{MAPPED_PREFIX_LEN, first_of};
use holdover_wire::ip_addresses;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::{Serialize, Serializer};

/// All addresses with a common prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

const EXPECTED: &str = "a network such as \"10.0.1.0/24\" or \"2001:db8::/64\", or one address";

impl Network {
    /// The network of an address; `None` if the prefix is longer than the address.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        (bits <= whole(address)).then(|| Self { address: first_of(address, bits), bits })
    }

    /// Its first address.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Bits of its prefix.
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether an address belongs to this network.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && Self::new(address, self.bits) == Some(*self)
    }

    /// Whether a network belongs to this one, or is the same.
    pub(crate) fn holds(&self, inner: &Self) -> bool {
        self.bits <= inner.bits && self.contains(inner.address)
    }

    /// The bits of an address of this network.
    pub(crate) fn whole(&self) -> u8 {
        whole(self.address)
    }

    /// The same network as an IPv6 prefix; IPv4 addresses are mapped.
    pub(crate) fn mapped(&self) -> (Ipv6Addr, u8) {
        (mapped(self.address), self.mapped_bits(self.bits))
    }

    /// The length of a prefix of an address of this network, as one of an IPv6 address.
    pub(crate) fn mapped_bits(&self, bits: u8) -> u8 {
        bits + if self.address.is_ipv4() { MAPPED_PREFIX_LEN } else { 0 }
    }
}

/// The bits of an address.
fn whole(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| EXPECTED)?;
        let bits = bits.map_or(Ok(whole(address)), str::parse).map_err(|_| EXPECTED)?;
        Self::new(address, bits).ok_or(EXPECTED)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(|expected| de::Error::custom(format!("\"{text}\" is not {expected}")))
    }
}

impl JsonSchema for Network {
    fn schema_name() -> Cow<'static, str> {
        "Network".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "A network such as 10.0.1.0/24, or one address." })
    }
}

/// The destination of an IP packet.
pub(crate) fn destination(packet: &[u8]) -> Option<IpAddr> {
    ip_addresses(packet).map(|(_, destination)| destination)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_contain_their_addresses() {
        let network: Network = "10.0.1.7/24".parse().unwrap();
        assert_eq!(network.to_string(), "10.0.1.0/24");
        assert!(network.contains([10, 0, 1, 255].into()) && !network.contains([10, 0, 2, 0].into()));
        assert_eq!(network.mapped(), ("::ffff:10.0.1.0".parse().unwrap(), 120));
        let all: Network = "::/0".parse().unwrap();
        assert!(all.contains("fd00::1".parse().unwrap()) && !all.contains([10, 0, 0, 1].into()));
        assert_eq!("fd00::1".parse::<Network>().unwrap().to_string(), "fd00::1/128");
        for text in ["", "10.0.0.1/33", "10.0.0/8", "fd00::/129", "10.0.0.0/-1", "10.0.0.0/8/8"] {
            assert_eq!(text.parse::<Network>(), Err(EXPECTED), "{text}");
        }
    }
}
