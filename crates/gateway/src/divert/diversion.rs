//! Which packets for an absent mobile host are diverted, and how they are released: by the host's network.

use core::net::IpAddr;

use holdover_flow::has_prefix;

use super::Course;

/// The packets that are diverted for a mobile host, and the manner of their release.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Diversion {
    /// Nothing: all packets pass.
    Nothing,
    /// Packets that the owner's rules for single connections choose, and no others. They are released as with
    /// [`Self::All`].
    Chosen,
    /// Packets of any protocol, which are released at [`DiverterConfig::rate`](super::DiverterConfig::rate).
    #[default]
    All,
    /// TCP packets, which are released in bursts of this many, at that rate: one when the host returns, and one with each
    /// sign of the host that its link works; and one packet with each that arrives behind others (the thesis on
    /// Freeze-TCP, section 4.6.5).
    TcpInBursts(u32),
}

impl Diversion {
    /// The course of packets while the host is absent.
    pub(super) const fn course(self) -> Course {
        match self {
            Self::Nothing => Course::Pass,
            Self::Chosen => Course::DivertChosen,
            Self::All => Course::Divert,
            Self::TcpInBursts(_) => Course::DivertTcp,
        }
    }

    /// The number of packets in a burst; `None` if only the rate limits them.
    pub(super) const fn burst(self) -> Option<u32> {
        if let Self::TcpInBursts(packets) = self { Some(packets) } else { None }
    }
}

/// The diversion of each mobile host.
#[derive(Clone, Default, Debug)]
pub(super) struct Diversions {
    /// Address, prefix length; the longest prefix first.
    networks: Vec<(IpAddr, u8, Diversion)>,
    others: Diversion,
}

impl Diversions {
    pub(super) fn set_network(&mut self, address: IpAddr, bits: u8, diversion: Diversion) {
        self.networks.push((address, bits, diversion));
        self.networks.sort_by_key(|&(_, bits, _)| core::cmp::Reverse(bits));
    }

    pub(super) fn set_others(&mut self, diversion: Diversion) {
        self.others = diversion;
    }

    pub(super) fn of(&self, address: IpAddr) -> Diversion {
        let fitting = self.networks.iter().find(|&&(network, bits, _)| has_prefix(address, network, bits));
        fitting.map_or(self.others, |&(_, _, diversion)| diversion)
    }
}
