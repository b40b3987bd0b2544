//! The state of connectivity checks, without packets and keys: candidates, pairs of addresses in the order of their priorities, and when each is
//! checked. [`connectivity`](super::connectivity) makes packets of it.

mod candidates;
mod pairs;

use std::borrow::Cow;

use core::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::rate::Rate;
use super::via::ReplyVia;
use crate::codec::Locator;

pub(super) use self::candidates::{
    Endpoint, MOST_CANDIDATES, MOST_RELAYS, OwnCandidate, RelayView, host_addresses, is_candidates, priority, read,
};
pub(super) use self::pairs::{Checklist, MOST_SENDS, Pair, PairState, Path, Transaction};

/// When checks that have found no direct path are repeated: doubled each time. If the peer repeats its own, soon after its first one.
const REPEATED_AFTER: Duration = Duration::from_secs(60);
const REPEATED_AFTER_AT_MOST: Duration = Duration::from_secs(600);
const LEAST_REST: Duration = Duration::from_secs(20);

/// The time from the end of the checks until further addresses are announced.
const ANNOUNCE_AFTER: Duration = Duration::from_secs(1);

/// Ta of a host that names none (RFC 9028 section 4.4).
pub(super) const DEFAULT_TA: Duration = Duration::from_millis(50);

/// The connectivity checks with a peer. By default the association has another mode.
#[derive(Clone, Debug, Default)]
pub(super) struct Connectivity {
    /// Whether ICE-HIP-UDP was selected, and this host is the controlling one.
    pub(super) role: Option<Role>,
    /// The interval of checks.
    pub(super) ta: Duration,
    /// The peer's candidates, as it has last named them.
    pub(super) peer_candidates: Vec<Locator>,
    /// This host's candidates after a move.
    pub(super) handover: Handover,
    /// Until they are concluded.
    pub(super) checklist: Option<Checklist>,
    pub(super) ends_at: Instant,
    /// Checks that have found no direct path, and are repeated.
    pub(super) resting: Option<Resting>,
    /// How often they were.
    pub(super) repeated: u32,
    /// Whether the peer has named its candidates, and none of a relay.
    pub(super) has_no_relayed: bool,
    /// When this host's further addresses are announced, of which a peer forgets those that the checks have not selected.
    pub(super) announce_at: Option<Instant>,
    /// The nomination in flight: the controlling host's, or the controlled one's answer to it.
    pub(super) nomination: Option<Nomination>,
    /// The pair that the controlling host has nominated, until the peer is verified there.
    pub(super) nominated: Option<Path>,
    /// The pair that data takes.
    pub(super) selected: Option<Path>,
    /// How this host's relay forwards checks to a peer that is none of its clients.
    pub(super) reply_via: Option<ReplyVia>,
    /// Answers to repeated checks: each costs a signature.
    pub(super) repeats: Rate,
}

/// This host's candidates after a move (RFC 9028 section 4.9).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handover {
    /// When they are sent, whether or not the relays and the peer have answered.
    pub(super) due_at: Option<Instant>,
    /// They were not acknowledged, or lack those of a relay that had not answered: they are sent again.
    pub(super) is_partial: bool,
    /// They were sent, and the checks have not begun.
    pub(super) is_open: bool,
}

/// Checks that are repeated.
#[derive(Clone, Debug)]
pub(super) struct Resting {
    pub(super) list: Checklist,
    since: Instant,
    pub(super) at: Instant,
}

impl Resting {
    /// Whether checks of the peer, which repeats its own, make this host begin.
    pub(super) fn may_be_hastened(&self, now: Instant) -> bool {
        now.saturating_since(self.since) >= LEAST_REST
    }
}

/// The role of a host, which lasts as long as the association (RFC 9028 section 4.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// It has initiated the exchange.
    Controlling,
    Controlled,
}

impl Connectivity {
    /// The addresses of a host have changed: ends the checks, and forgets which pair works.
    pub(super) fn stop(&mut self, now: Instant) {
        self.end_checks(now);
        self.nomination = None;
        (self.nominated, self.selected) = (None, None);
    }

    /// There are no more checks. What the nomination has yet to tell the peer comes first.
    pub(super) fn end_checks(&mut self, now: Instant) {
        self.rest(now);
        self.resting = None;
    }

    /// There are no more checks for now: they have found no direct path.
    pub(super) fn rest(&mut self, now: Instant) {
        let Some(list) = self.checklist.take() else { return };
        if self.repeated == 0 {
            self.announce_at = Some(now + ANNOUNCE_AFTER);
        }
        let wait = REPEATED_AFTER.saturating_shl(self.repeated).min(REPEATED_AFTER_AT_MOST);
        self.resting = Some(Resting { list, since: now, at: now + wait });
    }

    /// Whether the checks continue when this host has these addresses: those of all pairs, the same one first.
    pub(super) fn outlasts(&self, before: &[IpAddr], locators: &[IpAddr]) -> bool {
        let mut pairs = self.checklist.iter().flat_map(|list| &list.pairs);
        self.checklist.is_some()
            && before.first() == locators.first()
            && pairs.all(|pair| locators.contains(&pair.path.own))
    }

    /// Whether a move to these addresses leaves the checks without a result, or the selected pair without this host's address.
    pub(super) fn is_undecided(&self, locators: &[IpAddr]) -> bool {
        let is_left = |path: &Path| !locators.contains(&path.own);
        self.is_checking() || self.resting.is_some() || self.selected.as_ref().is_some_and(is_left)
    }

    /// Whether checks are in progress with the candidates of a peer at these addresses.
    pub(super) fn is_checking_at(&self, locators: &[Locator]) -> bool {
        let (announced, hosts) =
            (|| locators.iter().filter_map(Locator::address), || host_addresses(&self.peer_candidates));
        self.is_checking()
            && announced().all(|it| hosts().any(|at| at == it))
            && hosts().all(|it| announced().any(|at| at == it))
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

/// A nomination that awaits an answer: the controlling host's check with NOMINATE, or the controlled host's echo request in its answer.
#[derive(Clone, Debug)]
pub(super) struct Nomination {
    pub(super) path: Path,
    pub(super) transaction: Transaction,
}
