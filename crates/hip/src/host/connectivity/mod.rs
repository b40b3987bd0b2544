//! Connectivity checks of the NAT traversal mode ICE-HIP-UDP (RFC 9028 section 4.6): two hosts whose exchange went through a relay look for a
//! path of their own.
//!
//! Translators drop what they do not expect. So both hosts send UPDATEs with an echo request, from each of their addresses to each candidate of the
//! other, in the same order: the packets of one host open its translator for those of the other. A candidate is an address and a port: one of the
//! host itself, or at which a relay has seen it, or of a relay that forwards data ([`candidates`]); both hosts have exchanged theirs in I2
//! and R2. The pairs of addresses are in a checklist by priority ([`pairs`]). A check that arrives from somewhere else shows a further
//! candidate, as a translator that has another port for each destination makes them: it is checked in return ([`checks`]).
//! The initiator, which is the controlling host, nominates the best pair that works ([`nomination`]).
//!
//! Meanwhile, data goes through the relay, or on the best pair that has answered so far (RFC 8445 section 12.1). Checks to addresses at which
//! the peer was not verified come out of the [budget](super::check_budget) for such addresses.

mod candidates;
mod checks;
mod negotiation;
mod nomination;
mod pairs;

use std::borrow::Cow;

use core::net::IpAddr;

use holdover_base::{Duration, Instant};

use self::nomination::Nomination;
use self::pairs::Checklist;
use super::association::Association;
use super::local::Local;
use super::rate::Rate;
use super::via::{ReplyVia, Via};
use crate::codec::{CandidateKind, Locator};

pub(super) use self::candidates::{RelayView, offer};
pub(super) use self::negotiation::{DEFAULT_TA, named, offered, pacing_parameter, select, ta};
pub(super) use self::pairs::Path;

/// How long the checks of an exchange may take: longer than those of all pairs with the default Ta.
const AT_MOST: Duration = Duration::from_secs(60);

/// The connectivity checks with a peer. By default the association has another mode.
#[derive(Clone, Debug, Default)]
pub(super) struct Connectivity {
    /// Whether ICE-HIP-UDP was selected, and this host is the controlling one.
    role: Option<Role>,
    /// Until they are concluded.
    checklist: Option<Checklist>,
    ends_at: Instant,
    /// The nomination in flight: the controlling host's, or the controlled one's answer to it.
    nomination: Option<Nomination>,
    /// The pair that the controlling host has nominated, until the peer is verified there.
    nominated: Option<Path>,
    /// The pair that data takes.
    selected: Option<Path>,
    /// How this host's relay forwards checks to a peer that is none of its clients.
    reply_via: Option<ReplyVia>,
    /// Answers to repeated checks: each costs a signature.
    repeats: Rate,
}

/// The role of a host, which lasts as long as the association (RFC 9028 section 4.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    /// It has initiated the exchange.
    Controlling,
    Controlled,
}

impl Connectivity {
    /// The addresses of a host have changed: ends the checks, and forgets which pair works.
    pub(super) fn stop(&mut self) {
        (self.checklist, self.nomination) = (None, None);
        (self.nominated, self.selected) = (None, None);
    }

    /// The locators that the peer announces, as this mode has them: candidates are addresses.
    pub(super) fn locators<'a>(&self, announced: &'a [Locator]) -> Cow<'a, [Locator]> {
        if self.role.is_some() { candidates::as_addresses(announced).into() } else { announced.into() }
    }

    /// Whether checks are in progress.
    pub(super) const fn is_checking(&self) -> bool {
        self.checklist.is_some()
    }

    /// This host's address for data to an address of the peer, if a pair with that is in use.
    pub(super) fn source_towards(&self, dst: IpAddr) -> Option<IpAddr> {
        self.selected.filter(|path| path.peer.0 == dst).map(|path| path.own)
    }

    /// Whether one of these acknowledgements is pending.
    pub(super) fn awaits(&self, acks: &[u32]) -> bool {
        self.checklist.as_ref().is_some_and(|list| list.awaits(acks))
            || self.nomination.as_ref().is_some_and(|it| acks.contains(&it.transaction.id))
    }
}

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
        let (peer, relays) = candidates::read(locators, &local.locators);
        relays.into_iter().for_each(|relay| self.peer_addresses.add_relay(relay));
        // The peer has the candidates of this host; there is nothing to announce.
        self.updates.announced.clone_from(&local.locators);
        let checklist = Checklist::new(now, is_controlling, ta, &candidates::gather(local), &peer);
        let role = if is_controlling { Role::Controlling } else { Role::Controlled };
        let (role, checklist, ends_at) = (Some(role), Some(checklist), now + AT_MOST);
        self.connectivity = Connectivity { role, checklist, ends_at, ..Connectivity::default() };
    }

    /// This host's relay has forwarded a packet of the peer: adds the peer's candidate as the relay sees it, and this host's relayed candidate,
    /// which reaches it. `false` without checks in progress.
    pub(super) fn note_candidates(&mut self, local: &Local, via: &Via) -> bool {
        self.connectivity.reply_via.clone_from(&local.reply_via);
        let Some(list) = &mut self.connectivity.checklist else { return false };
        let own = candidates::gather(local);
        let (address, port) = via.from;
        let priority = candidates::priority(CandidateKind::PeerReflexive, 0);
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
