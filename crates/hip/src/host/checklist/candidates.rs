//! Candidates: the addresses and ports at which a host may be reached (RFC 9028 sections 4.2 and 5.7, RFC 8445 section 5.1).
//!
//! `connectivity/gathering.rs` collects those of this host.

use core::net::IpAddr;

use super::super::address::is_reachable;
use super::super::via::UDP;
use crate::codec::{CandidateKind, Locator, LocatorKind, LocatorTraffic, unmap};

/// An address and a UDP port.
pub(in crate::host) type Endpoint = (IpAddr, u16);

/// The most candidates that are sent to a peer, and the most of a peer that are used: as many as LOCATOR_SETs have locators here.
pub(in crate::host) const MOST_CANDIDATES: usize = 8;
/// The most relays for HIP packets that are named beside the candidates.
pub(in crate::host) const MOST_RELAYS: usize = 2;

/// Recommended type preferences (RFC 9028 section 4.2).
const fn type_preference(kind: CandidateKind) -> u32 {
    match kind {
        CandidateKind::Host => 126,
        CandidateKind::PeerReflexive => 110,
        CandidateKind::ServerReflexive => 100,
        CandidateKind::Relayed | CandidateKind::Unknown(_) => 0,
    }
}

/// The priority of a candidate; `rank` is its place among those of its type (RFC 9028 section 4.2). The component ID is always 1.
pub(in crate::host) fn priority(kind: CandidateKind, rank: usize) -> u32 {
    let local_preference = u32::from(u16::MAX - u16::try_from(rank).unwrap_or(u16::MAX));
    (type_preference(kind) << 24) + (local_preference << 8) + (256 - 1)
}

/// A candidate of this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::host) struct OwnCandidate {
    pub(in crate::host) kind: CandidateKind,
    pub(in crate::host) at: Endpoint,
    /// The address from which packets of this candidate leave.
    pub(in crate::host) base: IpAddr,
    pub(in crate::host) priority: u32,
}

/// A candidate of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::host) struct PeerCandidate {
    pub(in crate::host) kind: CandidateKind,
    pub(in crate::host) at: Endpoint,
    pub(in crate::host) priority: u32,
}

/// What a relay of this host knows about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::host) struct RelayView {
    /// Whether the relay has answered since this host's last move.
    pub(in crate::host) is_current: bool,
    /// This host's address towards the relay.
    pub(in crate::host) base: IpAddr,
    /// The relay's address, if it relays HIP packets.
    pub(in crate::host) signalling_at: Option<IpAddr>,
    /// REG_FROM: this host as the relay sees it.
    pub(in crate::host) seen_at: Option<Endpoint>,
    /// RELAYED_ADDRESS: where the relay receives data for this host.
    pub(in crate::host) relayed_at: Option<Endpoint>,
}

/// The candidates in a LOCATOR_SET of the peer, the best ones first, and its relays for HIP packets. Addresses to which this host may not send
/// are left out.
pub(in crate::host) fn read(locators: &[Locator], own: &[IpAddr]) -> (Vec<PeerCandidate>, Vec<IpAddr>) {
    let (mut candidates, mut relays): (Vec<PeerCandidate>, Vec<IpAddr>) = (Vec::new(), Vec::new());
    let is_valid = |it: &&Locator| it.lifetime_s > 0 && matches!(it.kind, LocatorKind::Transport(_));
    for locator in locators.iter().filter(is_valid).take(MOST_CANDIDATES + MOST_RELAYS) {
        let LocatorKind::Transport(it) = locator.kind else { continue };
        let at = (unmap(it.address), it.port);
        if it.protocol != UDP || it.port == 0 || !is_reachable(own, at.0) {
            continue;
        }
        match locator.traffic {
            LocatorTraffic::Signalling if relays.len() < MOST_RELAYS => relays.push(at.0),
            LocatorTraffic::Both | LocatorTraffic::Data
                if candidates.len() < MOST_CANDIDATES
                    && !matches!(it.kind, CandidateKind::Unknown(_))
                    && candidates.iter().all(|known| known.at != at) =>
            {
                candidates.push(PeerCandidate { kind: it.kind, at, priority: it.priority });
            }
            _ => {}
        }
    }
    candidates.sort_by_key(|it| core::cmp::Reverse(it.priority));
    (candidates, relays)
}

/// Whether locators are candidates, not the addresses of a host without translators.
pub(in crate::host) fn is_candidates(locators: &[Locator]) -> bool {
    locators.iter().any(|it| matches!(it.kind, LocatorKind::Transport(_)))
}

/// The addresses of a host's interfaces among its candidates.
pub(in crate::host) fn host_addresses(locators: &[Locator]) -> impl Iterator<Item = IpAddr> + '_ {
    locators.iter().filter_map(|locator| match locator.kind {
        LocatorKind::Transport(it) if it.kind == CandidateKind::Host => Some(unmap(it.address)),
        _ => None,
    })
}

/// Locators of a host that has moved, with its host candidates as addresses (RFC 8046): those are verified where it has announced them, and
/// another one at the source of its packets.
pub(in crate::host) fn as_addresses(locators: &[Locator]) -> Vec<Locator> {
    let is_any_preferred = locators.iter().any(|it| it.preferred && it.address().is_some());
    let mut is_first = !is_any_preferred;
    let locators = locators.iter().map(|locator| match locator.kind {
        LocatorKind::Transport(it) if it.kind == CandidateKind::Host && it.protocol == UDP => {
            let preferred = core::mem::take(&mut is_first);
            Locator { preferred, kind: LocatorKind::EspSpi { spi: it.spi, address: it.address }, ..locator.clone() }
        }
        _ => locator.clone(),
    });
    locators.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{TransportAddress, map};

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn transport(traffic: LocatorTraffic, kind: CandidateKind, at: &str, port: u16, priority: u32) -> Locator {
        let address = map(address(at));
        let transport = TransportAddress { port, protocol: UDP, kind, priority, spi: 300, address };
        Locator { traffic, preferred: false, lifetime_s: 60, kind: LocatorKind::Transport(transport) }
    }

    /// RFC 9028 section 4.2, and RFC 8445 section 5.1.2.1.
    #[test]
    fn priorities_follow_the_recommended_formula() {
        assert_eq!(priority(CandidateKind::Host, 0), (126 << 24) + (65_535 << 8) + 255);
        assert_eq!(priority(CandidateKind::ServerReflexive, 1), (100 << 24) + (65_534 << 8) + 255);
        assert_eq!(priority(CandidateKind::Relayed, 0), (65_535 << 8) + 255);
        assert!(priority(CandidateKind::PeerReflexive, 0) > priority(CandidateKind::ServerReflexive, 0));
    }

    #[test]
    fn only_addresses_to_which_a_host_may_send_become_candidates() {
        let own = [address("192.0.2.1")];
        let both = LocatorTraffic::Both;
        let mut hostile: Vec<Locator> =
            ["127.0.0.1", "224.0.0.1", "0.0.0.0", "255.255.255.255", "192.0.2.1", "2001:25::7"]
                .map(|at| transport(both, CandidateKind::Host, at, 10_500, 9))
                .into();
        hostile.push(transport(both, CandidateKind::Host, "198.51.100.2", 0, 9));
        hostile.push(Locator { lifetime_s: 0, ..transport(both, CandidateKind::Host, "198.51.100.3", 1, 9) });
        assert_eq!(read(&hostile, &own), (Vec::new(), Vec::new()));
        let good = [
            transport(both, CandidateKind::Relayed, "203.0.113.3", 10_500, 1),
            transport(both, CandidateKind::Host, "10.0.0.7", 10_500, 7),
            transport(both, CandidateKind::Unknown(9), "10.0.0.8", 10_500, 8),
            transport(LocatorTraffic::Signalling, CandidateKind::Relayed, "203.0.113.4", 10_500, 0),
            transport(both, CandidateKind::ServerReflexive, "10.0.0.7", 10_500, 6),
        ];
        let (candidates, relays) = read(&good, &own);
        assert_eq!(candidates.iter().map(|it| it.priority).collect::<Vec<u32>>(), [7, 1]);
        assert_eq!(relays, [address("203.0.113.4")]);
    }

    /// RFC 9028 section 4.9: the locators of a host that has moved are candidates.
    #[test]
    fn host_candidates_are_addresses_of_a_host_that_has_moved() {
        let both = LocatorTraffic::Both;
        let moved = [
            transport(both, CandidateKind::ServerReflexive, "198.51.100.2", 30_001, 1),
            transport(both, CandidateKind::Host, "10.0.0.7", 10_500, 7),
            transport(both, CandidateKind::Host, "10.0.0.8", 10_500, 6),
        ];
        let addresses: Vec<(Option<IpAddr>, bool)> =
            as_addresses(&moved).iter().map(|it| (it.address(), it.preferred)).collect();
        assert_eq!(addresses, [(None, false), (Some(address("10.0.0.7")), true), (Some(address("10.0.0.8")), false)]);
    }

    #[test]
    fn a_peer_with_many_candidates_uses_bounded_memory() {
        let many = (0..200).map(|n| transport(LocatorTraffic::Both, CandidateKind::Host, "10.0.0.7", 1 + n, 5));
        let many: Vec<Locator> = many.collect();
        assert_eq!(read(&many, &[]).0.len(), MOST_CANDIDATES);
    }
}
