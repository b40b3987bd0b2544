//! Mobile hosts with a network behind them, such as a router in a vehicle: one mobile host for all addresses of a prefix, which leave and
//! return together. Its name is the first address of the prefix.

use core::net::IpAddr;

use holdover_flow::{first_of, has_prefix};

/// How many bits of an address name a mobile host, by network. The longest matching prefix applies; outside of all networks every address
/// is a mobile host of its own.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Prefixes {
    /// A network's address and length, and the length of its mobile hosts' prefixes; the longest network first.
    networks: Vec<(IpAddr, u8, u8)>,
}

impl Prefixes {
    /// In this network each prefix of `of_host` bits is one mobile host.
    pub fn add(&mut self, network: IpAddr, bits: u8, of_host: u8) {
        self.networks.push((network, bits, of_host));
        self.networks.sort_by_key(|&(_, bits, _)| core::cmp::Reverse(bits));
    }

    /// The name of the mobile host to which an address belongs.
    pub fn host_of(&self, address: IpAddr) -> IpAddr {
        self.bits_of(address).map_or(address, |bits| first_of(address, bits))
    }

    /// The length of the prefix of the mobile host to which an address belongs; `None` if it is the address alone.
    pub fn bits_of(&self, address: IpAddr) -> Option<u8> {
        let fitting = self.networks.iter().find(|&&(network, bits, _)| has_prefix(address, network, bits));
        let whole = if address.is_ipv4() { 32 } else { 128 };
        fitting.map(|&(_, _, of_host)| of_host).filter(|&of_host| of_host < whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_of_a_prefix_have_one_name() {
        let mut prefixes = Prefixes::default();
        assert_eq!(prefixes.host_of(address("10.3.1.7")), address("10.3.1.7"));
        prefixes.add(address("10.3.0.0"), 16, 24);
        prefixes.add(address("10.3.9.0"), 24, 32);
        prefixes.add(address("2001:db8::"), 32, 64);
        for (of, name) in [
            ("10.3.1.7", "10.3.1.0"),
            ("10.3.1.255", "10.3.1.0"),
            ("10.3.2.0", "10.3.2.0"),
            ("10.3.9.7", "10.3.9.7"),
            ("10.4.1.7", "10.4.1.7"),
            ("2001:db8:7:8:9::a", "2001:db8:7:8::"),
            ("2001:db9::a", "2001:db9::a"),
            // An IPv4-mapped address, which is not an IPv4 address here.
            ("::ffff:10.3.1.7", "::ffff:10.3.1.7"),
        ] {
            assert_eq!(prefixes.host_of(address(of)), address(name), "{of}");
        }
    }
}
