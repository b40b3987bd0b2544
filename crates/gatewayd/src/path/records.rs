//! The structures that programs and daemon share, as `bpf/gateway/state.h` lays them out.

use std::net::{IpAddr, Ipv6Addr};

use aya::Pod;
use holdover_gateway::divert::Course;

use super::mapped;

/// `struct address`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Address([u8; 16]);

/// `struct mobile`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct MobileRecord {
    lock: u32,
    course: u32,
    pub(super) diverted: u64,
    pub(super) heard_at: u64,
    pub(super) waiting_since: u64,
    noticed_at: u64,
    pub(super) mac: [u8; 6],
    unused: u16,
}

/// `struct notice`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoticeRecord {
    pub(super) at: u64,
    pub(super) address: Address,
}

/// `struct order`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Order {
    address: Address,
    diverted: u64,
    course: u32,
    unused: u32,
}

/// `struct rules`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Rules {
    pub(super) frame_len: u32,
    pub(super) mark: u32,
    pub(super) divert_to: u32,
    pub(super) unused: u32,
}

// SAFETY: `repr(C)` integers without padding (asserted below); any bytes are a value.
unsafe impl Pod for Address {}
// SAFETY: as above.
unsafe impl Pod for MobileRecord {}
// SAFETY: as above.
unsafe impl Pod for Rules {}

const _: () = assert!(size_of::<Address>() == 16 && size_of::<MobileRecord>() == 48 && size_of::<Rules>() == 16);
const _: () = assert!(size_of::<NoticeRecord>() == 24 && size_of::<Order>() == 32);

/// `DIVERT`.
const DIVERT: u32 = 1;

impl Address {
    pub(super) fn new(address: IpAddr) -> Self {
        Self(mapped(address).octets())
    }

    pub(super) fn to_ip(self) -> IpAddr {
        let address = Ipv6Addr::from(self.0);
        address.to_ipv4_mapped().map_or(address.into(), IpAddr::from)
    }
}

impl MobileRecord {
    pub(super) fn course(&self) -> Course {
        if self.course == DIVERT { Course::Divert } else { Course::Pass }
    }
}

impl NoticeRecord {
    /// Reads a record of the ring.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (at, rest) = bytes.split_first_chunk::<8>()?;
        let address = rest.first_chunk::<16>()?;
        Some(Self { at: u64::from_ne_bytes(*at), address: Address(*address) })
    }
}

impl Order {
    pub(super) fn new(mobile: IpAddr, course: Course, diverted: u64) -> Self {
        let course = if course == Course::Divert { DIVERT } else { 0 };
        Self { address: Address::new(mobile), diverted, course, unused: 0 }
    }

    pub(super) fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.address.0);
        bytes[16..24].copy_from_slice(&self.diverted.to_ne_bytes());
        bytes[24..28].copy_from_slice(&self.course.to_ne_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        for text in ["10.0.0.1", "255.255.255.255", "fd00::1", "::1", "2001:db8::a00:1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(Address::new(address).to_ip(), address);
        }
        let notice = [&7u64.to_ne_bytes()[..], &Address::new([10, 0, 0, 1].into()).0].concat();
        let expected = NoticeRecord { at: 7, address: Address::new([10, 0, 0, 1].into()) };
        assert_eq!(NoticeRecord::from_bytes(&notice), Some(expected));
        assert_eq!(NoticeRecord::from_bytes(&notice[..23]), None);
    }

    #[test]
    fn an_order_is_laid_out_as_the_program_reads_it() {
        let bytes = Order::new([10, 0, 0, 1].into(), Course::Divert, 0x0102).to_bytes();
        assert_eq!(bytes[..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
        assert_eq!((&bytes[16..24], &bytes[24..28]), (&0x0102u64.to_ne_bytes()[..], &1u32.to_ne_bytes()[..]));
    }
}
