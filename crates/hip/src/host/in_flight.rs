//! The UPDATEs of an association in flight: announcements, checks and changes of keys, until the peer has acknowledged them. `update.rs` sends
//! and takes them.
//!
//! A receiver may drop an UPDATE whose ID is below its window. Several can be in flight, so one of them can arrive late, and all its
//! retransmissions would be dropped. Therefore a retransmission gets a new ID unless it has the newest.

use std::sync::Arc;

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant};

use super::check_budget::Amount;
use super::local::Local;
use super::update_ids::{OwnIds, PeerIds};
use crate::codec::Builder;
use crate::crypto::DhKeyPair;
use crate::esp::Outbound;

/// The most IDs of one UPDATE that are remembered.
const MAX_IDS: usize = 16;

/// The UPDATEs of an association.
#[derive(Clone, Debug, Default)]
pub(super) struct Updates {
    /// This host's IDs.
    own: OwnIds,
    /// The peer's IDs that were processed.
    pub(super) peer: PeerIds,
    /// The answer to the newest one, if it had one.
    pub(super) answer: Option<Answer>,
    /// When an older one was last acknowledged again.
    pub(super) repeated_at: Option<Instant>,
    /// This host's locators known to the peer, once acknowledged.
    pub(super) announced: Vec<IpAddr>,
    /// The one at which the exchange took place.
    pub(super) exchanged_at: Option<IpAddr>,
    /// The one that was announced as preferred because another link is silent.
    pub(super) announced_standby: Option<IpAddr>,
    /// The pending announcement of locators.
    pub(super) announcement: Option<Outgoing>,
    /// Where it was last sent to.
    pub(super) announced_to: Option<IpAddr>,
    /// This host's pending candidates, after a move.
    pub(super) candidates: Option<Outgoing>,
    /// When this host's locators are announced again, before they expire at the peer.
    pub(super) renew_at: Option<Instant>,
    /// The pending checks of the peer's addresses.
    pub(super) checks: Vec<Check>,
    /// Restarts of checks that were given up, since the peer's last announcement.
    pub(super) restarts: Restarts,
    /// Restarts since a path last answered.
    pub(super) lost_restarts: Restarts,
    pub(super) rekey: Option<Rekey>,
    /// The pending announcement of this server's services.
    pub(super) offer: Option<Outgoing>,
    /// A change of keys was given up with open outcome: it is repeated when the peer is heard again.
    pub(super) rekey_in_doubt: bool,
    /// A change of keys was given up: this host does not begin another one by itself before this time.
    pub(super) no_rekey_before: Option<Instant>,
    /// When the peer was last followed to another source address.
    pub(super) followed_at: Option<Instant>,
}

/// Restarts of checks that were given up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Restarts {
    count: u32,
    not_before: Instant,
}

impl Restarts {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.not_before
    }

    /// Checks restart now, and again after this time at the earliest, which doubles with each restart until it is `at_most`.
    pub(super) fn note(&mut self, now: Instant, after: Duration, at_most: Option<Duration>) {
        let wait = after.saturating_shl(self.count);
        self.not_before = now + at_most.map_or(wait, |at_most| wait.min(at_most));
        self.count = self.count.saturating_add(1);
    }
}

/// A packet, and its addresses.
pub(super) type Addressed = (Builder, (IpAddr, IpAddr));

/// The answer to an UPDATE, which is repeated if the UPDATE is.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) packet: Addressed,
    /// It has a check of the address that it goes to.
    pub(super) is_check: bool,
    /// How often it was repeated.
    pub(super) repetitions: u32,
}

/// An UPDATE that is retransmitted until it is acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    /// The IDs that it has had; for a check those that are not acknowledged.
    ids: Vec<u32>,
    /// The packet with the newest ID had another request, too: a retransmission carries this one only, under a new ID.
    is_shared: bool,
    pub(super) attempts: u32,
    timeout: Duration,
    pub(super) at: Instant,
}

impl Outgoing {
    pub(super) fn new(local: &Local, now: Instant, id: u32) -> Self {
        let timeout = local.config.retransmit_after;
        Self { ids: vec![id], is_shared: false, attempts: 0, timeout, at: now + timeout }
    }

    /// The next ID to send it with, and the next timeout; `None` if no attempts are left.
    pub(super) fn again(&mut self, local: &Local, now: Instant, own: &mut OwnIds) -> Option<u32> {
        let steady = local.config.steady_retries;
        if self.attempts >= local.config.retries.saturating_add(steady) {
            return None;
        }
        self.attempts += 1;
        if self.attempts > steady {
            self.timeout = self.timeout * 2;
        }
        self.at = now + self.timeout;
        if core::mem::take(&mut self.is_shared) || self.ids.last().is_none_or(|id| !own.is_newest(*id)) {
            self.add_id(own.next());
        }
        self.ids.last().copied()
    }

    /// It is sent again at this time at the latest, to the peer's best address: even transmissions go there.
    pub(super) fn hasten(&mut self, at: Instant) {
        if at < self.at {
            (self.at, self.attempts) = (at, self.attempts | 1);
        }
    }

    /// Keeps the IDs of the packet that this one replaces: they may still be acknowledged.
    pub(super) fn continues(&mut self, former: Self) {
        let ids = core::mem::replace(&mut self.ids, former.ids);
        ids.into_iter().for_each(|id| self.add_id(id));
    }

    /// It is sent once more, with this ID.
    pub(super) fn add_id(&mut self, id: u32) {
        if self.ids.len() >= MAX_IDS {
            self.ids.remove(0);
        }
        self.ids.push(id);
    }

    pub(super) fn newest_id(&self) -> u32 {
        self.ids.last().copied().unwrap_or_default()
    }

    /// Another request is in the same packet.
    pub(super) const fn share(&mut self) {
        self.is_shared = true;
    }

    /// Forgets acknowledged IDs: another acknowledgement of them is a replay (RFC 7401 section 6.12.2, step 1).
    pub(super) fn forget(&mut self, acks: &[u32]) {
        self.ids.retain(|id| !acks.contains(id));
    }

    pub(super) fn is_acknowledged(&self, acks: &[u32]) -> bool {
        self.ids.iter().any(|id| acks.contains(id))
    }
}

impl Updates {
    /// A new association: nothing is in flight, and the peer knows one address of this host.
    pub(super) fn begin(&mut self, local: IpAddr) {
        *self = Self { announced: vec![local], exchanged_at: Some(local), ..Self::default() };
    }

    pub(super) fn next_id(&mut self) -> u32 {
        self.own.next()
    }

    pub(super) fn own_ids(&mut self) -> &mut OwnIds {
        &mut self.own
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let announcement = self.announcement.as_ref().map(|it| it.at);
        let rekey = self.rekey.as_ref().map(|it| it.outgoing.at);
        let offer = self.offer.as_ref().map(|it| it.at);
        let candidates = self.candidates.as_ref().map(|it| it.at);
        let others = announcement.into_iter().chain(candidates).chain(rekey).chain(offer).chain(self.renew_at);
        self.checks.iter().map(|it| it.outgoing.at).chain(others).min()
    }

    /// Whether a packet of the peer with these acknowledgements, and this response to an echo request, shows that its path works and the usual
    /// one may not: it answers a repetition, or verifies the peer while this host has nothing to announce. The answer to a check has to come
    /// from the checked address: no MAC covers the outer addresses.
    pub(super) fn shows_path(&self, acks: &[u32], echo: Option<&Bytes>, from: IpAddr) -> bool {
        let is_repeated = |it: &Outgoing| it.attempts > 0;
        let is_response = |check: &Check| echo.is_some_and(|echo| check.nonce[..] == echo[..]);
        let is_answered = |it: &Outgoing| is_repeated(it) && it.is_acknowledged(acks);
        let mut checks = self.checks.iter().filter(|check| check.address == from);
        match &self.announcement {
            Some(announcement) => is_answered(announcement) || checks.any(|it| is_answered(&it.outgoing)),
            None => checks.any(is_response),
        }
    }

    /// This host has no locators: those that the peer has not acknowledged are announced again with the next ones.
    pub(super) fn suspend_announcement(&mut self) {
        if self.announcement.take().is_some() {
            self.announced.clear();
        }
    }

    /// Drops everything; returns the SPIs that are free again.
    pub(super) fn forget(&mut self) -> Vec<u32> {
        let spis = self.rekey.as_ref().map(Rekey::reserved_spi);
        *self = Self::default();
        spis.into_iter().flatten().collect()
    }
}

/// A check of an address of the peer.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) address: IpAddr,
    pub(super) nonce: [u8; 16],
    pub(super) outgoing: Outgoing,
    /// The amount sent to the address since it was announced.
    pub(super) sent: Amount,
}

/// A change of keys in progress.
#[derive(Clone, Debug)]
pub(super) struct Rekey {
    pub(super) outgoing: Outgoing,
    /// This host's next SPI.
    pub(super) new_spi: u32,
    pub(super) index: u16,
    pub(super) pair: Option<Arc<DhKeyPair>>,
    pub(super) is_acknowledged: bool,
    /// The keys to use once the peer, which has sent its part, has acknowledged.
    pub(super) ready: Option<Outbound>,
}

impl Rekey {
    /// The SPI that is free again if this is given up; none once it is in use.
    pub(super) fn reserved_spi(&self) -> Option<u32> {
        self.ready.is_none().then_some(self.new_spi)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    const NONCE: [u8; 16] = [5; 16];
    const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 9));

    fn outgoing(id: u32, attempts: u32) -> Outgoing {
        Outgoing { ids: vec![id], is_shared: false, attempts, timeout: Duration::ZERO, at: Instant::ZERO }
    }

    #[test]
    fn restarts_are_further_and_further_apart() {
        let (after, mut now) = (Duration::from_secs(30), Instant::from_secs(1));
        for (at_most, expected_s) in [(None, [30, 60, 120, 240, 480, 960]), (Some(600), [30, 60, 120, 240, 480, 600])] {
            let mut restarts = Restarts::default();
            for wait_s in expected_s {
                assert!(restarts.is_due(now));
                restarts.note(now, after, at_most.map(Duration::from_secs));
                now += Duration::from_secs(wait_s - 1);
                assert!(!restarts.is_due(now));
                now += Duration::from_secs(1);
            }
        }
    }

    /// Any other packet, as a test of the peer, shows that its own direction works, and nothing about this host's.
    #[test]
    fn only_answers_to_a_repeated_announcement_show_a_path() {
        let mut updates = Updates { announcement: Some(outgoing(7, 1)), ..Updates::default() };
        assert!(!updates.shows_path(&[], None, FROM));
        assert!(!updates.shows_path(&[6], None, FROM));
        assert!(updates.shows_path(&[7], None, FROM));
        updates.announcement = Some(outgoing(7, 0));
        assert!(!updates.shows_path(&[7], None, FROM), "the first one went to the usual path");
    }

    #[test]
    fn the_answer_to_a_check_shows_the_path_of_the_checked_address_alone() {
        let check = Check { address: FROM, nonce: NONCE, outgoing: outgoing(8, 1), sent: Amount::default() };
        let mut updates = Updates { checks: vec![check], ..Updates::default() };
        let (echo, elsewhere) = (Bytes::copy_from_slice(&NONCE), [198, 51, 100, 2].into());
        for announcement in [None, Some(outgoing(7, 0))] {
            updates.announcement = announcement;
            assert!(updates.shows_path(&[8], Some(&echo), FROM));
            assert!(!updates.shows_path(&[8], Some(&echo), elsewhere));
        }
    }
}
