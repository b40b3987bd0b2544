//! Invitations that are open: a stranger that knows the secret of one becomes a peer, and then it is used up.
//!
//! An invitation ends at its time, and a lease after the last question about it: the command that made it waits for the joining host, and if
//! the command ends, nothing stays open. The command also writes the peer into the file of peers; a peer that is in no file when the
//! lease ends is removed.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_hip::host::{CommandError, SECRET_LEN, State};
use holdover_hip::identity::Hit;

use super::Core;
use super::peer::PeerState;

/// How long an invitation lasts after the last question about it.
const LEASE: Duration = Duration::from_secs(10);
/// The most open invitations.
pub const MAX_OPEN: usize = 16;

/// The state of an invitation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InvitationState {
    /// It was not accepted.
    Open,
    /// A host has.
    Joined {
        /// Its identity.
        peer: Hit,
        /// The data that it has sent with its proof.
        data: Bytes,
    },
    /// It does not exist, any more or at all.
    Ended,
}

#[derive(Default, Debug)]
pub(super) struct Offers {
    last: u64,
    offers: BTreeMap<u64, Offer>,
}

#[derive(Debug)]
struct Offer {
    until: Instant,
    leased_until: Instant,
    joined: Option<(Hit, Bytes)>,
}

impl Offer {
    /// A host that has joined may be written into the file of peers until the lease ends.
    fn ends_at(&self) -> Instant {
        if self.joined.is_some() { self.leased_until } else { self.until.min(self.leased_until) }
    }
}

impl Offers {
    pub(super) fn note_joined(&mut self, number: u64, peer: Hit, data: &Bytes) {
        if let Some(offer) = self.offers.get_mut(&number) {
            offer.joined = Some((peer, data.clone()));
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.offers.values().map(Offer::ends_at).min()
    }
}

impl Core {
    /// Opens an invitation with this secret, which must be random; returns its number, or `None` if there are [`MAX_OPEN`] already.
    pub fn invite(&mut self, now: Instant, secret: [u8; SECRET_LEN], valid: Duration) -> Option<u64> {
        if self.offers.offers.len() >= MAX_OPEN {
            return None;
        }
        self.offers.last += 1;
        let (number, until) = (self.offers.last, now + valid);
        self.offers.offers.insert(number, Offer { until, leased_until: now + LEASE, joined: None });
        self.host.invite(now, number, secret, until);
        Some(number)
    }

    /// The state of an invitation, whose lease begins again.
    pub fn invitation(&mut self, now: Instant, number: u64) -> InvitationState {
        self.end_offers(now);
        let Some(offer) = self.offers.offers.get_mut(&number) else { return InvitationState::Ended };
        offer.leased_until = now + LEASE;
        match &offer.joined {
            Some((peer, data)) => InvitationState::Joined { peer: *peer, data: data.clone() },
            None => InvitationState::Open,
        }
    }

    /// Ends an invitation. A peer that has joined by it and is in no file of peers is removed.
    pub fn withdraw(&mut self, now: Instant, number: u64) {
        self.end_offer(now, number);
        self.collect(now, None);
    }

    /// Proves to a peer in the next exchange to know the secret of its invitation, and begins the exchange.
    ///
    /// # Errors
    /// [`CommandError`] if it is no peer, or there is an association already.
    pub fn present(
        &mut self,
        now: Instant,
        peer: Hit,
        secret: [u8; SECRET_LEN],
        data: Bytes,
    ) -> Result<(), CommandError> {
        self.host.present(now, peer, secret, data)?;
        let is_begun = self.locators.is_empty() || self.host.state(peer) == State::I1Sent;
        let result = if is_begun { Ok(()) } else { self.host.connect(now, peer) };
        self.collect(now, None);
        result
    }

    pub(super) fn end_offers(&mut self, now: Instant) {
        let ended = self.offers.offers.iter().filter(|(_, offer)| offer.ends_at() <= now);
        for number in ended.map(|(&number, _)| number).collect::<Vec<_>>() {
            self.end_offer(now, number);
        }
    }

    fn end_offer(&mut self, now: Instant, number: u64) {
        self.host.withdraw(number);
        let joined = self.offers.offers.remove(&number).and_then(|offer| offer.joined);
        if let Some((peer, _)) = joined
            && !self.peers.get(&peer).is_some_and(PeerState::is_configured)
        {
            self.host.remove_peer(now, peer);
            self.forget_peer(peer);
        }
    }
}
