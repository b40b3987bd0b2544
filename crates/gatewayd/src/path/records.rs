//! The structures shared by programs and daemon, as in `bpf/gateway/state.h`.

use std::net::{IpAddr, Ipv6Addr};

use aya::Pod;
use holdover_base::Instant;
use holdover_flow::{Link, LinkState};
use holdover_gateway::divert::Course;

use crate::network::mapped;
use crate::split::SplitPlace;

/// `struct address`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Address([u8; 16]);

/// `struct mobile`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MobileRecord {
    lock: u32,
    course: u32,
    pub(super) diverted: u64,
    pub(super) heard_at: u64,
    pub(super) addressed_at: u64,
    pub(super) waiting_since: u64,
    noticed_at: u64,
    pub(super) mac: [u8; 6],
    unused: u16,
    arrival_noticed_at: u64,
    link: Link,
}

/// `struct mobile_notice`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NoticeRecord {
    pub(super) at: u64,
    pub(super) address: Address,
}

/// `struct mobile_order`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MobileOrder {
    address: Address,
    diverted: u64,
    course: u32,
    kind: u32,
    link: Link,
}

/// `struct split_setup`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct SplitSetup {
    device: u32,
    mark: u32,
    /// In the order of the network, as the next ones.
    from_mobiles: [u16; 2],
    from_others: [u16; 2],
}

// SAFETY: `repr(C)` integers without padding; any bytes are a value.
unsafe impl Pod for SplitSetup {}
// SAFETY: `repr(C)` integers without padding (asserted below); any bytes are a value.
unsafe impl Pod for Address {}
// SAFETY: as above.
unsafe impl Pod for MobileRecord {}
// SAFETY: as above.
unsafe impl Pod for MobileOrder {}

const _: () = assert!(size_of::<Address>() == 16 && size_of::<Link>() == 72 && size_of::<MobileRecord>() == 64 + 72);
const _: () = assert!(size_of::<NoticeRecord>() == 24 && size_of::<MobileOrder>() == 32 + 72);

/// `DIVERT`.
const DIVERT: u32 = 1;

/// `MOBILE_COURSE`.
const COURSE: u32 = 0;
/// `MOBILE_LINK`.
const LINK: u32 = 1;

impl SplitSetup {
    pub(super) fn new(place: &SplitPlace) -> Self {
        Self {
            device: place.index,
            mark: place.mark,
            from_mobiles: place.from_mobiles.map(u16::to_be),
            from_others: place.from_others.map(u16::to_be),
        }
    }
}

impl MobileRecord {
    /// A mobile host before its first packet, over this link.
    pub(super) fn new(link: &LinkState) -> Self {
        Self {
            lock: 0,
            course: 0,
            diverted: 0,
            heard_at: 0,
            addressed_at: 0,
            waiting_since: 0,
            noticed_at: 0,
            mac: [0; 6],
            unused: 0,
            arrival_noticed_at: 0,
            link: Link::new(link),
        }
    }
}

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

impl MobileRecord {
    /// Since when its link is down, if it is.
    pub(super) fn down_at(&self) -> Option<Instant> {
        self.link.down_at()
    }
}

impl NoticeRecord {
    /// Parses a record of the ring.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (at, rest) = bytes.split_first_chunk::<8>()?;
        let address = rest.first_chunk::<16>()?;
        Some(Self { at: u64::from_ne_bytes(*at), address: Address(*address) })
    }
}

impl MobileOrder {
    /// Sets the course. [`Course::Pass`] is refused unless exactly `diverted` packets were diverted.
    pub(super) fn course(mobile: IpAddr, course: Course, diverted: u64) -> Self {
        let course = if course == Course::Divert { DIVERT } else { 0 };
        Self { address: Address::new(mobile), diverted, course, kind: COURSE, link: Link::default() }
    }

    /// Sets the link.
    pub(super) fn link(mobile: IpAddr, link: Link) -> Self {
        Self { link, kind: LINK, ..Self::course(mobile, Course::Pass, 0) }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        // SAFETY: `Pod`, so all bytes are initialized, and they live as long as `self`.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_a_round_trip() {
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
        let order = MobileOrder::course([10, 0, 0, 1].into(), Course::Divert, 0x0102);
        let bytes = order.as_bytes();
        assert_eq!(bytes[..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
        assert_eq!((&bytes[16..24], &bytes[24..28]), (&0x0102u64.to_ne_bytes()[..], &1u32.to_ne_bytes()[..]));
        let link = LinkState { epoch: 0x0304, ..LinkState::default() };
        let order = MobileOrder::link([10, 0, 0, 1].into(), Link::new(&link));
        let bytes = order.as_bytes();
        // `epoch` is behind six times of 8 bytes.
        assert_eq!((&bytes[28..32], &bytes[32 + 48..32 + 52]), (&1u32.to_ne_bytes()[..], &0x0304u32.to_ne_bytes()[..]));
    }
}
