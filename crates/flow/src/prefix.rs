//! Prefixes of addresses: IPv4 addresses are part of IPv6, mapped to `::ffff:0:0/96` (RFC 4291 section 2.5.5.2).

use core::net::{IpAddr, Ipv6Addr};

/// Bits of a mapped IPv4 address before the IPv4 address.
pub const MAPPED_PREFIX_LEN: u8 = 96;

/// An address, with IPv4 mapped.
pub const fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The mask of the first `len` bits of an IPv6 address; all of them from 128 on.
pub const fn prefix_mask(len: u8) -> u128 {
    match u128::MAX.checked_shr(len as u32) {
        Some(behind) => !behind,
        None => u128::MAX,
    }
}

/// The first address with the same prefix of `len` bits as `address`, counted in its own IP version.
pub const fn first_of(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let first = v4.to_ipv6_mapped().to_bits() & prefix_mask(MAPPED_PREFIX_LEN.saturating_add(len));
            IpAddr::V4(core::net::Ipv4Addr::from_bits(first as u32))
        }
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & prefix_mask(len))),
    }
}

/// Whether an address begins with the first `len` bits of a network's, which is of the same IP version.
pub fn has_prefix(address: IpAddr, network: IpAddr, len: u8) -> bool {
    address.is_ipv4() == network.is_ipv4() && first_of(address, len) == first_of(network, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_have_any_length() {
        for bits in 0..=32 {
            let (all, first) = (IpAddr::from([255; 4]), first_of([255; 4].into(), bits));
            assert_eq!(first_of(first, bits), first);
            assert!(has_prefix(all, first, bits));
            assert!(bits == 0 || !has_prefix([127, 255, 255, 255].into(), first, bits));
        }
        assert_eq!(first_of(address("10.7.9.255"), 20), address("10.7.0.0"));
        assert_eq!(first_of(address("2001:db8::1"), 128), address("2001:db8::1"));
        assert_eq!(first_of(address("2001:db8::1"), 0), address("::"));
        assert_eq!(first_of(address("2001:db8:ffff::1"), 33), address("2001:db8:8000::"));
        // A prefix longer than the address is the whole address.
        assert_eq!(first_of(address("10.0.0.7"), 255), address("10.0.0.7"));
        assert!(!has_prefix(address("::ffff:10.0.0.1"), address("10.0.0.1"), 0));
    }
}
