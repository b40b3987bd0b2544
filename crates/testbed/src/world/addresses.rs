//! Addresses of hosts and routers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdover_wire::MacAddress;

pub(super) fn host_prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The prefix from which the host with this address makes it: the first 64 bits.
pub(super) fn advertised_prefix(address: Ipv6Addr) -> Ipv6Addr {
    let [a, b, c, d, ..] = address.segments();
    Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)
}

/// All addresses of the family.
pub(super) fn any(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The link-local address that a kernel derives from this Ethernet address (RFC 4291 appendix A).
pub(super) fn link_local(mac: MacAddress) -> IpAddr {
    let [a, b, c, d, e, g] = mac.0;
    let pair = |high, low| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfe80, 0, 0, 0, pair(a ^ 2, b), pair(c, 0xff), pair(0xfe, d), pair(e, g)).into()
}
