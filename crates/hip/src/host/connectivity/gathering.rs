//! Gathers this host's candidates, and encrypts them for a peer (RFC 9028 sections 4.2 and 4.3).
//!
//! They are the addresses of its interfaces (host candidates), the address at which each of its relays sees it (server reflexive), and the
//! address at which a relay receives data for it (relayed).

use core::net::IpAddr;

use bytes::Bytes;

use super::super::Dropped;
use super::super::address::AddressProblem;
use super::super::association::SessionKeys;
use super::super::checklist::{Endpoint, MOST_CANDIDATES, MOST_RELAYS, OwnCandidate, priority};
use super::super::local::Local;
use super::super::via::{UDP, UDP_PORT};
use crate::codec::{CandidateKind, Locator, LocatorKind, LocatorTraffic, Parameter, TransportAddress, map};

/// The most addresses of this host that are candidates.
const MOST_OWN: usize = 4;
/// Bytes of a candidate in LOCATOR_SET, and of ENCRYPTED around it: both heads, an initialization vector, and padding.
const CANDIDATE_LEN: usize = 36;
const ENCRYPTED_LEN: usize = 48;

/// The candidates of a host, the best ones first, without redundant ones (RFC 8445 section 5.1.3).
pub(super) fn gather(local: &Local) -> Vec<OwnCandidate> {
    let usable = local.locators.iter().copied().filter(|it| AddressProblem::on_a_link(*it).is_none());
    let mut candidates: Vec<OwnCandidate> = Vec::new();
    let mut add = |kind, at: Endpoint, base| {
        let rank = candidates.iter().filter(|it| it.kind == kind).count();
        if !candidates.iter().any(|it| it.at == at) {
            candidates.push(OwnCandidate { kind, at, base, priority: priority(kind, rank) });
        }
    };
    usable.take(MOST_OWN).for_each(|it| add(CandidateKind::Host, (it, UDP_PORT), it));
    let is_there = |base: &IpAddr| local.locators.contains(base);
    let views = || local.relay_views.values();
    let seen = views()
        .filter(|view| view.is_current && is_there(&view.base))
        .filter_map(|view| Some((view.seen_at?, view.base)));
    seen.take(MOST_RELAYS).for_each(|(at, base)| add(CandidateKind::ServerReflexive, at, base));
    // The relay forwards data to wherever this host is.
    let relayed = views().filter_map(|view| {
        let at = view.relayed_at?;
        Some((at, Some(view.base).filter(is_there).or_else(|| local.source_for(at.0))?))
    });
    relayed.take(MOST_RELAYS).for_each(|(at, base)| add(CandidateKind::Relayed, at, base));
    candidates.truncate(MOST_CANDIDATES);
    candidates
}

/// The ENCRYPTED parameter with this host's candidates and relays, and with `hidden`, as far as there is room (RFC 9028 sections 4.3 and 4.5). The
/// last candidates are left out first: with RSA identities an I2 may be too long for all. The relay comes first, which always works.
pub(in crate::host) fn offer(
    local: &mut Local,
    keys: &SessionKeys,
    spi: u32,
    room: usize,
    hidden: Option<&Parameter>,
) -> Result<Option<Parameter>, Dropped> {
    let lifetime_s = u32::try_from(local.config.locator_lifetime.as_secs()).unwrap_or(u32::MAX).max(1);
    let locator = |traffic, kind, (address, port): Endpoint, priority| Locator {
        traffic,
        preferred: false,
        lifetime_s,
        kind: LocatorKind::Transport(TransportAddress {
            port,
            protocol: UDP,
            kind,
            priority,
            spi,
            address: map(address),
        }),
    };
    let relays = local.relay_views.values().filter_map(|view| view.signalling_at).take(MOST_RELAYS);
    let relays = relays.map(|at| locator(LocatorTraffic::Signalling, CandidateKind::Relayed, (at, UDP_PORT), 0));
    let candidates = gather(local).into_iter().map(|it| locator(LocatorTraffic::Both, it.kind, it.at, it.priority));
    let (mut locators, mut others): (Vec<Locator>, Vec<Locator>) = candidates.partition(is_relayed);
    let mut relays: Vec<Locator> = relays.collect();
    if locators.len() > 1 {
        others.extend(locators.drain(1..));
    }
    locators.extend(relays.drain(..relays.len().min(1)));
    locators.extend(others.into_iter().chain(relays));
    locators.truncate(room.saturating_sub(ENCRYPTED_LEN) / CANDIDATE_LEN);
    let mut plain = Vec::new();
    if !locators.is_empty() {
        Parameter::LocatorSet(locators).put(&mut plain)?;
    }
    hidden.map_or(Ok(()), |parameter| parameter.put(&mut plain))?;
    if plain.is_empty() {
        return Ok(None);
    }
    let data = keys.cipher.encrypt(&keys.outbound.encryption, &plain, &mut *local.rng);
    Ok(Some(Parameter::Encrypted(Bytes::from(data.map_err(|_| Dropped::Encrypted)?))))
}

fn is_relayed(locator: &Locator) -> bool {
    matches!(locator.kind, LocatorKind::Transport(it) if it.kind == CandidateKind::Relayed)
}

/// This host's candidate with this address.
pub(super) fn own_candidate(local: &Local, own: IpAddr) -> Option<OwnCandidate> {
    gather(local).into_iter().find(|it| it.kind == CandidateKind::Host && it.base == own)
}

/// The priority of a peer-reflexive candidate that a check from this address may show to the peer (RFC 9028 section 4.6.2).
pub(in crate::host) fn reflexive_priority(local: &Local, own: IpAddr) -> u32 {
    let rank = local.locators.iter().position(|it| *it == own).unwrap_or_default();
    priority(CandidateKind::PeerReflexive, rank)
}
