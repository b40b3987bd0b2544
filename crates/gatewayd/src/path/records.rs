//! The structures that programs and daemon share. `build.rs` generates the Rust declarations from `bpf/gateway/records.h`.

use std::net::{IpAddr, Ipv6Addr};

use aya::Pod;
use holdover_base::Instant;
use holdover_flow::{ConnectionRule, Course, Link, LinkState, Selector};
use holdover_gateway::WarningSign;

use self::layout::{
    LINKS, MOBILE_COURSE, MOBILE_LINK, MOST_FLOW_RULES, Mac, RULE_SPLITS, SIGN_BY_FLAG, SIGN_BY_WINDOW, SIGN_WARNING,
    SIGN_WORKING, SPLIT_ALL, SPLIT_CHOSEN,
};
use crate::config::{FlowMode, MOST_LINKS, MOST_SELECTORS, Mode};
use crate::network::mapped;
use crate::split::{SplitPlace, Splits};

pub(super) use self::layout::{
    Address, FlowRule, Mobile, MobileCounter, MobileNotice, MobileOrder, NO_LINK, SplitSetup,
};

/// Generated.
mod layout {
    // Some are of the kernel only.
    #![allow(dead_code, unreachable_pub, clippy::enum_variant_names)]

    use holdover_flow::{Counter, Link, Selector};

    include!(concat!(env!("OUT_DIR"), "/layout.rs"));
}

// SAFETY: `repr(C)` integers without padding (asserted where they are generated); any bytes are a value.
unsafe impl Pod for SplitSetup {}
// SAFETY: as above.
unsafe impl Pod for Address {}
// SAFETY: as above.
unsafe impl Pod for Mobile {}
// SAFETY: as above.
unsafe impl Pod for MobileOrder {}
// SAFETY: as above.
unsafe impl Pod for FlowRule {}

// The configuration counts links and rules as the programs do.
const _: () = assert!(LINKS == MOST_LINKS && MOST_FLOW_RULES as usize == MOST_SELECTORS);

impl FlowRule {
    /// A rule for connections with these ends.
    pub(super) fn new(selector: Selector, rule: &FlowMode) -> Self {
        let diverts = if rule.mode.diverts() { ConnectionRule::Diverts } else { ConnectionRule::Passes };
        let splits = if rule.mode == Mode::Split { RULE_SPLITS } else { 0 };
        Self { selector, verdict: diverts.verdict() | splits | rule.link.map_or(NO_LINK, u32::from) }
    }
}

/// [`SPLIT_ALL`] or [`SPLIT_CHOSEN`] for the programs; 0 for hosts without split connections.
pub(super) fn split_kind(splits: Splits) -> u32 {
    match splits {
        Splits::None => 0,
        Splits::All => SPLIT_ALL,
        Splits::Chosen => SPLIT_CHOSEN,
    }
}

/// The sign of a packet of a mobile host in mode `thesis`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sign {
    /// It predicts its absence.
    Warning,
    /// Its link works.
    Working,
}

/// `SIGN_BY_*` for the programs; 0 without mode `thesis`.
pub(super) fn sign_kind(sign: Option<WarningSign>) -> u32 {
    match sign {
        None => 0,
        Some(WarningSign::Window) => SIGN_BY_WINDOW,
        Some(WarningSign::IpFlag) => SIGN_BY_FLAG,
    }
}

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

impl Mobile {
    /// A mobile host before its first packet, over these links. Those without a state are not used.
    pub(super) fn new(states: &[LinkState]) -> Self {
        let mut links = [Link::default(); LINKS];
        links.iter_mut().zip(states).for_each(|(link, state)| *link = Link::new(state));
        Self { links, ..Self::default() }
    }
}

impl Address {
    pub(super) fn new(address: IpAddr) -> Self {
        let octets = mapped(address).octets();
        let (words, _) = octets.as_chunks::<4>();
        Self { words: std::array::from_fn(|at| u32::from_ne_bytes(words[at])) }
    }

    pub(super) fn octets(self) -> [u8; 16] {
        let mut octets = [0; 16];
        for (place, word) in octets.chunks_exact_mut(4).zip(self.words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        octets
    }

    pub(super) fn to_ip(self) -> IpAddr {
        let address = Ipv6Addr::from(self.octets());
        address.to_ipv4_mapped().map_or(address.into(), IpAddr::from)
    }
}

impl Mobile {
    pub(super) fn course(&self) -> Course {
        Course::from_number(self.course)
    }

    /// The source of its frames; `None` before the first one, or without Ethernet.
    pub(super) fn mac(&self) -> Option<[u8; 6]> {
        let Mac { words: [a, b, c], .. } = self.mac;
        let [[a0, a1], [b0, b1], [c0, c1]] = [a, b, c].map(u16::to_ne_bytes);
        Some([a0, a1, b0, b1, c0, c1]).filter(|mac| *mac != [0; 6])
    }

    /// Since when its links are down, if one of them is.
    pub(super) fn down_at(&self) -> Option<Instant> {
        self.links.iter().find_map(Link::down_at)
    }
}

impl MobileNotice {
    /// Parses a record of the ring.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (at, rest) = bytes.split_first_chunk::<8>()?;
        let (address, rest) = rest.split_first_chunk::<16>()?;
        let sign = rest.first_chunk::<4>()?;
        Some(Self {
            at: u64::from_ne_bytes(*at),
            address: Address::new(Ipv6Addr::from(*address).into()),
            sign: u32::from_ne_bytes(*sign),
            unused: 0,
        })
    }

    /// The sign of the packet, if the notice is about a sign.
    pub(super) fn sign(&self) -> Option<Sign> {
        match self.sign {
            SIGN_WARNING => Some(Sign::Warning),
            SIGN_WORKING => Some(Sign::Working),
            _ => None,
        }
    }
}

impl MobileOrder {
    /// Sets the course. [`Course::Pass`] is refused unless exactly `diverted` packets were diverted.
    pub(super) fn course(mobile: IpAddr, course: Course, diverted: u64) -> Self {
        Self {
            address: Address::new(mobile),
            diverted,
            course: course.number(),
            kind: MOBILE_COURSE,
            ..Self::default()
        }
    }

    /// Sets the link of this number.
    pub(super) fn link(mobile: IpAddr, number: u8, link: Link) -> Self {
        Self { link, number: number.into(), kind: MOBILE_LINK, ..Self::course(mobile, Course::Pass, 0) }
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
        let address = Address::new([10, 0, 0, 1].into());
        let sign = |sign: u32| [&7u64.to_ne_bytes()[..], &address.octets(), &sign.to_ne_bytes(), &[0; 4]].concat();
        let expected = MobileNotice { at: 7, address, sign: SIGN_WARNING, unused: 0 };
        assert_eq!(MobileNotice::from_bytes(&sign(SIGN_WARNING)), Some(expected));
        assert_eq!(expected.sign(), Some(Sign::Warning));
        assert_eq!(MobileNotice::from_bytes(&sign(0)).unwrap().sign(), None);
        assert_eq!(MobileNotice::from_bytes(&sign(0)[..27]), None);
    }

    #[test]
    fn an_order_is_laid_out_as_the_program_reads_it() {
        let order = MobileOrder::course([10, 0, 0, 1].into(), Course::Divert, 0x0102);
        let bytes = order.as_bytes();
        assert_eq!(bytes[..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
        assert_eq!((&bytes[16..24], &bytes[24..28]), (&0x0102u64.to_ne_bytes()[..], &1u32.to_ne_bytes()[..]));
        let link = LinkState { epoch: 0x0304, ..LinkState::default() };
        let order = MobileOrder::link([10, 0, 0, 1].into(), 2, Link::new(&link));
        let bytes = order.as_bytes();
        assert_eq!((&bytes[28..32], &bytes[32..36]), (&1u32.to_ne_bytes()[..], &2u32.to_ne_bytes()[..]));
        // `epoch` is behind six times of 8 bytes.
        assert_eq!(bytes[40 + 48..40 + 52], 0x0304u32.to_ne_bytes());
    }
}
