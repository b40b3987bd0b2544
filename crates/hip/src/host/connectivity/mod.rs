//! Connectivity checks of the NAT traversal mode ICE-HIP-UDP (RFC 9028 section 4.6): two hosts whose exchange went through a relay look for a
//! path of their own.
//!
//! Translators drop what they do not expect. So both hosts send UPDATEs with an echo request, from each of their addresses to each candidate of the
//! other, in the same order: the packets of one host open its translator for those of the other. A candidate is an address and a port: one of the
//! host itself, or at which a relay has seen it, or of a relay that forwards data ([`gathering`]); both hosts have exchanged theirs in I2
//! and R2. The pairs of addresses are in a checklist by priority ([`checklist`](super::checklist)). A check that arrives from somewhere else shows a further
//! candidate, as a translator that has another port for each destination makes them: it is checked in return ([`checks`]).
//! The initiator, which is the controlling host, nominates the best pair that works ([`nomination`]).
//!
//! When a host moves, both exchange candidates again, and begin new checks ([`handover`]).
//!
//! Meanwhile, data goes through the relay, or on the best pair that has answered so far (RFC 8445 section 12.1). Checks to addresses at which
//! the peer was not verified come out of the [budget](super::check_budget) for such addresses.

mod checks;
mod gathering;
mod handover;
mod negotiation;
mod nomination;

use core::net::IpAddr;

use holdover_base::{Duration, Instant};

use self::gathering::gather;
use super::association::Association;
use super::checklist::{Checklist, Connectivity, Role, priority, read};
use super::local::Local;
use super::via::Via;
use crate::codec::{CandidateKind, Locator};

pub(super) use self::gathering::{offer, reflexive_priority};
pub(super) use self::negotiation::{named, offered, pacing_parameter, select, ta};

/// How long the checks of an exchange may take: longer than those of all pairs with the default Ta.
const AT_MOST: Duration = Duration::from_secs(60);

impl Association {
    /// ICE-HIP-UDP was selected in an exchange that is complete now: begins the checks. `locators` are the peer's.
    pub(super) fn begin_checks(
        &mut self,
        local: &Local,
        now: Instant,
        is_controlling: bool,
        ta: Duration,
        locators: &[Locator],
    ) {
        let (peer, relays) = read(locators, &local.locators);
        self.peer_addresses.name_relays(&relays);
        let has_no_relayed = !peer.is_empty() && peer.iter().all(|it| it.kind != CandidateKind::Relayed);
        let checklist = Checklist::new(now, is_controlling, ta, &gather(local), &peer);
        let role = if is_controlling { Role::Controlling } else { Role::Controlled };
        let (role, checklist, ends_at) = (Some(role), Some(checklist), now + AT_MOST);
        let peer_candidates = locators.to_vec();
        self.connectivity =
            Connectivity { role, ta, checklist, ends_at, has_no_relayed, peer_candidates, ..Connectivity::default() };
    }

    /// This host's relay has forwarded a packet of the peer: adds the peer's candidate as the relay sees it, and this host's relayed candidate,
    /// which reaches it. `false` without checks in progress.
    pub(super) fn note_candidates(&mut self, local: &Local, via: &Via) -> bool {
        self.connectivity.reply_via.clone_from(&local.reply_via);
        let Some(list) = &mut self.connectivity.checklist else { return false };
        let own = gather(local);
        let (address, port) = via.from;
        let priority = priority(CandidateKind::PeerReflexive, 0);
        let host = |dst: IpAddr| {
            let base = local.source_for(dst)?;
            own.iter().find(|it| it.kind == CandidateKind::Host && it.base == base)
        };
        if port != 0
            && address != via.at
            && let Some(host) = host(address)
        {
            list.add_peer(host.base, via.from, host.priority, priority);
        }
        let relayed = own.iter().find(|it| it.kind == CandidateKind::Relayed && it.at.0 == via.at);
        if let (Some(relayed), Some(host)) = (relayed, host(via.at)) {
            list.add_relayed(host.base, via.at, relayed.priority, priority);
        }
        true
    }
}
