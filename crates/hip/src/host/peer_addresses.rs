//! The addresses of a peer, and which of them may be used (RFC 8046 sections 3.2 and 5).

use core::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::address::{AddressProblem, is_reachable};
use crate::codec::{Locator, LocatorTraffic};

/// The most addresses of a peer.
const MAX_ADDRESSES: usize = 8;
/// How often credit ages, and the part that remains (RFC 8046 section 5.6.2 suggests 5 s and 7/8).
const CREDIT_AGING: Duration = Duration::from_secs(5);
const CREDIT_LEFT: (u64, u64) = (7, 8);

/// An address of a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PeerAddress {
    pub(super) address: IpAddr,
    pub(super) status: Status,
    preferred: bool,
    expires_at: Option<Instant>,
    /// The kind of traffic that the peer receives there.
    traffic: LocatorTraffic,
    /// The peer does not know it: packets of the peer come from it, behind a translator.
    is_translated: bool,
    /// It is a server of the peer, which forwards packets to it.
    is_relay: bool,
    /// A check was not answered in time.
    is_doubtful: bool,
    /// Connectivity checks have selected it for data.
    is_selected: bool,
    /// It is a server that the peer itself has named.
    is_named: bool,
}

impl PeerAddress {
    /// For HIP packets and data, not announced.
    const fn new(address: IpAddr, status: Status) -> Self {
        Self {
            address,
            status,
            preferred: false,
            expires_at: None,
            traffic: LocatorTraffic::Both,
            is_translated: false,
            is_relay: false,
            is_doubtful: false,
            is_selected: false,
            is_named: false,
        }
    }

    /// Whether the peer has announced it, with a lifetime.
    pub(super) const fn is_announced(&self) -> bool {
        self.expires_at.is_some()
    }

    pub(super) const fn is_preferred(&self) -> bool {
        self.preferred
    }

    /// Whether it was verified, and did not answer a later check.
    pub(super) fn is_lapsed(&self) -> bool {
        self.status == Status::Active && self.is_doubtful
    }

    /// Data may go through a relay again.
    const fn allow_relaying(&mut self) {
        if self.is_relay {
            self.traffic = LocatorTraffic::Both;
        }
    }

    /// It is to be verified again.
    const fn distrust(&mut self) {
        (self.preferred, self.is_selected) = (false, false);
        (self.status, self.is_doubtful) = (Status::Unverified, true);
    }

    fn takes_data(&self) -> bool {
        self.status == Status::Active && self.traffic != LocatorTraffic::Signalling
    }

    fn is_unverified_translation(&self) -> bool {
        self.is_translated && self.status == Status::Unverified
    }

    /// Packets came from it, but the peer has not answered a check there since.
    fn is_presumed(&self) -> bool {
        self.is_unverified_translation() || self.is_translated && self.is_doubtful
    }
}

/// The state of an address (RFC 8046 section 5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    /// The peer is reachable there.
    Active,
    /// Announced by the peer only.
    Unverified,
    /// The peer has left it, or it has expired. HIP packets are sent there as a last resort.
    Deprecated,
}

/// The addresses of a peer, and the credit for unverified ones.
#[derive(Clone, Debug, Default)]
pub(super) struct PeerAddresses {
    addresses: Vec<PeerAddress>,
    credit_bytes: u64,
    aged_at: Instant,
}

impl PeerAddresses {
    /// Adds configured addresses: unverified, but usable for HIP packets.
    pub(super) fn add_known(&mut self, addresses: &[IpAddr]) {
        for &address in addresses {
            if self.get(address).is_none() && self.addresses.len() < MAX_ADDRESSES {
                self.addresses.push(PeerAddress::new(address, Status::Unverified));
            }
        }
    }

    /// Adds a server that forwards packets to the peer. Without room it replaces an unused address.
    pub(super) fn add_relay(&mut self, address: IpAddr) {
        if AddressProblem::on_a_link(address).is_some() {
            return;
        }
        if self.get(address).is_none() && self.addresses.len() >= MAX_ADDRESSES {
            let left = self.addresses.iter().position(|it| it.status == Status::Deprecated);
            let is_idle = |it: &PeerAddress| it.status == Status::Unverified && !it.preferred && !it.is_relay;
            let Some(index) = left.or_else(|| self.addresses.iter().rposition(is_idle)) else { return };
            self.addresses.remove(index);
        }
        self.add_known(&[address]);
        self.addresses.iter_mut().filter(|it| it.address == address).for_each(|it| it.is_relay = true);
    }

    /// The peer names its servers in an exchange: they replace those of the last one, and unused addresses only if the peer has left them.
    pub(super) fn name_relays(&mut self, relays: &[IpAddr]) {
        self.addresses.retain(|it| !it.is_named || it.status == Status::Active);
        for &relay in relays {
            if self.get(relay).is_some() {
                self.add_relay(relay);
                continue;
            }
            let left = self.addresses.iter().position(|it| it.status == Status::Deprecated);
            if let Some(index) = left.filter(|_| self.addresses.len() >= MAX_ADDRESSES) {
                self.addresses.remove(index);
            }
            if self.addresses.len() < MAX_ADDRESSES {
                self.add_relay(relay);
                self.addresses.iter_mut().filter(|it| it.address == relay).for_each(|it| it.is_named = true);
            }
        }
    }

    /// Whether the peer has announced this address, and has not left it.
    pub(super) fn has_announced(&self, address: IpAddr) -> bool {
        self.get(address).is_some_and(|it| it.is_announced() && it.status != Status::Deprecated)
    }

    /// Whether the peer itself has named this server.
    pub(super) fn is_named(&self, address: IpAddr) -> bool {
        self.get(address).is_some_and(|it| it.is_named)
    }

    /// Servers that forward packets to the peer.
    pub(super) fn relays(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().filter(|it| it.is_relay).map(|it| it.address)
    }

    /// Whether a server that forwards packets to the peer is active.
    pub(super) fn has_active_relay(&self) -> bool {
        self.addresses.iter().any(|it| it.is_relay && it.status == Status::Active)
    }

    pub(super) fn is_relay(&self, address: IpAddr) -> bool {
        self.get(address).is_some_and(|it| it.is_relay)
    }

    pub(super) fn is_active(&self, address: IpAddr) -> bool {
        self.status(address) == Some(Status::Active)
    }

    /// Whether data may go there whatever its length: verified, and not for HIP packets alone (RFC 8046 section 4.1).
    pub(super) fn takes_data(&self, address: IpAddr) -> bool {
        self.get(address).is_some_and(PeerAddress::takes_data)
    }

    /// The peer has answered from there.
    pub(super) fn verify(&mut self, address: IpAddr) {
        self.add_known(&[address]);
        if self.get(address).is_none() {
            // Without room it replaces the oldest address that the peer has left, or the last one.
            let index = self.addresses.iter().position(|it| it.status == Status::Deprecated);
            self.addresses.remove(index.unwrap_or(MAX_ADDRESSES - 1));
            self.add_known(&[address]);
        }
        if let Some(entry) = self.addresses.iter_mut().find(|it| it.address == address) {
            (entry.status, entry.is_doubtful) = (Status::Active, false);
            let is_translated = entry.is_translated;
            // The translator has replaced its binding for the peer, or the peer is behind another translator.
            let replaced = |it: &&mut PeerAddress| is_translated && it.is_translated && it.address != address;
            self.addresses.iter_mut().filter(replaced).for_each(|it| it.status = Status::Deprecated);
        }
    }

    /// The peer's packets come from this address, which the peer itself does not know: it is preferred from now on.
    pub(super) fn follow(&mut self, address: IpAddr, status: Status) {
        if AddressProblem::on_a_link(address).is_some() {
            return;
        }
        for entry in &mut self.addresses {
            (entry.preferred, entry.is_selected) = (entry.address == address, false);
        }
        match self.addresses.iter_mut().find(|it| it.address == address) {
            Some(entry) => {
                (entry.status, entry.is_translated, entry.expires_at) = (status, true, None);
                entry.traffic = LocatorTraffic::Both;
                // A verified one that has not answered lately is used again once it does.
                entry.is_doubtful &= status == Status::Active;
            }
            None => {
                let entry = PeerAddress::new(address, status);
                self.addresses.push(PeerAddress { preferred: true, is_translated: true, ..entry });
                self.forget_excess();
            }
        }
    }

    /// The exchange took place there: the only active address. What the peer has announced, and for how long, belonged to the former
    /// association.
    pub(super) fn begin(&mut self, address: IpAddr) {
        for entry in &mut self.addresses {
            (entry.status, entry.preferred, entry.is_doubtful) = (Status::Unverified, false, false);
            (entry.is_selected, entry.expires_at, entry.traffic) = (false, None, LocatorTraffic::Both);
        }
        self.verify(address);
    }

    /// Sets the peer's announced locators, as far as a host with the addresses `own` may send to them. Returns those to verify, the
    /// preferred ones first.
    pub(super) fn announce(&mut self, now: Instant, locators: &[Locator], own: &[IpAddr]) -> Vec<IpAddr> {
        for entry in &mut self.addresses {
            (entry.preferred, entry.expires_at, entry.is_selected) = (false, None, false);
            entry.allow_relaying();
        }
        let mut announced: Vec<(IpAddr, bool)> = Vec::new();
        // RFC 8046 section 4: a lifetime is not 0; other uses than those of section 4.1 are not known.
        let is_valid = |it: &&Locator| it.lifetime_s > 0 && !matches!(it.traffic, LocatorTraffic::Unknown(_));
        for locator in locators.iter().filter(is_valid).take(MAX_ADDRESSES) {
            let Some(address) = locator.address().filter(|address| is_reachable(own, *address)) else { continue };
            announced.push((address, locator.preferred));
            let expires_at = now + Duration::from_secs(u64::from(locator.lifetime_s));
            let known = self.addresses.iter_mut().find(|it| it.address == address);
            if let Some(entry) = known {
                (entry.preferred, entry.expires_at) = (locator.preferred, Some(expires_at));
                (entry.is_translated, entry.traffic) = (false, locator.traffic);
                if entry.status == Status::Deprecated || entry.is_lapsed() {
                    (entry.status, entry.is_doubtful) = (Status::Unverified, false);
                }
            } else {
                let (preferred, expires_at, traffic) = (locator.preferred, Some(expires_at), locator.traffic);
                let entry = PeerAddress::new(address, Status::Unverified);
                self.addresses.push(PeerAddress { preferred, expires_at, traffic, ..entry });
            }
        }
        for entry in &mut self.addresses {
            if !entry.is_relay && !announced.iter().any(|(address, _)| *address == entry.address) {
                entry.status = Status::Deprecated;
            }
        }
        self.forget_excess();
        announced.sort_by_key(|(_, preferred)| !preferred);
        let unverified = |address: &IpAddr| self.get(*address).is_some_and(|it| it.status == Status::Unverified);
        announced.into_iter().map(|(address, _)| address).filter(unverified).collect()
    }

    fn forget_excess(&mut self) {
        while self.addresses.len() > MAX_ADDRESSES {
            let oldest = self.addresses.iter().position(|it| it.status == Status::Deprecated);
            let other = || self.addresses.iter().position(|it| !it.preferred);
            self.addresses.remove(oldest.or_else(other).unwrap_or(0));
        }
    }

    /// Deprecates addresses whose lifetime is over.
    fn expire(&mut self, now: Instant) {
        for entry in &mut self.addresses {
            if entry.expires_at.is_some_and(|at| at <= now) {
                entry.status = Status::Deprecated;
            }
        }
    }

    /// A check of an address was not answered in time.
    pub(super) fn doubt(&mut self, address: IpAddr) {
        self.addresses.iter_mut().filter(|it| it.address == address).for_each(|it| it.is_doubtful = true);
    }

    /// A test of a path to a verified address was answered.
    pub(super) fn trust(&mut self, address: IpAddr) {
        let verified = self.addresses.iter_mut().filter(|it| it.address == address && it.status == Status::Active);
        verified.for_each(|it| it.is_doubtful = false);
    }

    pub(super) fn is_doubtful(&self, address: IpAddr) -> bool {
        self.get(address).is_some_and(|it| it.is_doubtful)
    }

    /// The destination of data: a preferred address that is active; else a preferred unverified one, within the credit; else any active
    /// one, else any unverified one with credit (RFC 8046 section 5.6). Other active ones come first if a check of the preferred one was not
    /// answered in time: the credit, which every packet of the peer renews, would go to a dead address. A relay through which the exchange
    /// took place ranks after active addresses and before unverified ones.
    pub(super) fn for_data(
        &mut self,
        now: Instant,
        bytes: usize,
        is_reachable: impl Fn(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        self.expire(now);
        self.age(now);
        let credit = self.credit_bytes >= bytes as u64;
        let for_data = self.addresses.iter().filter(|it| it.traffic != LocatorTraffic::Signalling);
        let usable =
            |status| for_data.clone().filter(move |it| it.status == status).filter(|it| is_reachable(it.address));
        if let Some(selected) = usable(Status::Active).find(|it| it.is_selected) {
            return Some(selected.address);
        }
        // RFC 8046 section 4.1: of two preferred addresses the one for data alone.
        let candidate = |status, preferred: bool| {
            let candidates = usable(status).filter(|it| !it.is_relay && (it.preferred || !preferred));
            let rank = |it: &&PeerAddress| (it.is_doubtful, !it.preferred, it.traffic != LocatorTraffic::Data);
            candidates.min_by_key(rank).map(|it| it.address)
        };
        let relay = usable(Status::Active).find(|it| it.is_relay).map(|it| it.address);
        if let Some(address) = candidate(Status::Active, true) {
            // A verified address that does not answer a later check: an announcement came from there, forged or left by the peer.
            let other = candidate(Status::Active, false).filter(|it| !self.is_doubtful(*it)).or(relay);
            return other.filter(|_| self.is_doubtful(address)).or(Some(address));
        }
        if let Some(relay) = relay {
            let has_moved = candidate(Status::Unverified, true).is_some_and(|address| !self.is_doubtful(address));
            let other = candidate(Status::Active, false).filter(|it| !has_moved && !self.is_doubtful(*it));
            return other.or(Some(relay));
        }
        let unverified = |preferred| candidate(Status::Unverified, preferred).filter(|_| credit);
        let active = candidate(Status::Active, false).map(|address| (address, false));
        let preferred = unverified(true).map(|address| (address, true));
        let is_doubtful = preferred.is_some_and(|(address, _)| self.is_doubtful(address));
        let chosen = if is_doubtful { active.or(preferred) } else { preferred.or(active) };
        let (address, spends) = chosen.or(unverified(false).map(|address| (address, true)))?;
        if spends {
            self.credit_bytes -= bytes as u64;
        }
        Some(address)
    }

    /// The destination of data of this length now. Takes no credit.
    pub(super) fn destination(
        &mut self,
        now: Instant,
        bytes: usize,
        is_reachable: impl Fn(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        self.age(now);
        let credit = self.credit_bytes;
        let destination = self.for_data(now, bytes, is_reachable);
        self.credit_bytes = credit;
        destination
    }

    /// The destinations of HIP packets, the best one first.
    pub(super) fn for_control(&self, is_reachable: impl Fn(IpAddr) -> bool) -> impl Iterator<Item = IpAddr> {
        let for_control = self.addresses.iter().filter(|it| it.traffic != LocatorTraffic::Data);
        let mut order: Vec<&PeerAddress> = for_control.filter(|it| is_reachable(it.address)).collect();
        let is_general = |it: &PeerAddress| it.traffic != LocatorTraffic::Signalling;
        let is_doubtful = |it: &PeerAddress| it.is_doubtful && it.status == Status::Active;
        order.sort_by_key(|it| (it.status.rank(), is_doubtful(it), it.is_relay, !it.preferred, is_general(it)));
        order.into_iter().map(|it| it.address)
    }

    /// The peer has sent data: the same amount may be sent to an unverified address of it.
    pub(super) fn earn(&mut self, now: Instant, bytes: usize) {
        self.age(now);
        self.credit_bytes += bytes as u64;
    }

    fn age(&mut self, now: Instant) {
        // After 64 steps almost nothing is left.
        for _ in 0..64 {
            if now.saturating_since(self.aged_at) < CREDIT_AGING {
                return;
            }
            self.credit_bytes = self.credit_bytes / CREDIT_LEFT.1 * CREDIT_LEFT.0;
            self.aged_at += CREDIT_AGING;
        }
        self.aged_at = now;
    }

    /// The addresses that the peer has not left, and whether they are preferred: tests of paths depend on these.
    pub(super) fn in_use(&self) -> Vec<(IpAddr, bool)> {
        let in_use = self.addresses.iter().filter(|it| it.status != Status::Deprecated);
        in_use.map(|it| (it.address, it.preferred)).collect()
    }

    fn get(&self, address: IpAddr) -> Option<&PeerAddress> {
        self.addresses.iter().find(|it| it.address == address)
    }

    pub(super) fn status(&self, address: IpAddr) -> Option<Status> {
        self.get(address).map(|it| it.status)
    }

    /// The newest packet comes from a verified address: drops the presumed one that was followed.
    pub(super) fn return_to(&mut self, address: IpAddr) {
        for entry in &mut self.addresses {
            (entry.preferred, entry.is_selected) = (entry.address == address, false);
            entry.is_doubtful &= !entry.preferred;
            if entry.is_presumed() {
                entry.status = Status::Deprecated;
            }
        }
    }

    /// Data takes this verified address from now on, which was nominated or has succeeded first. A relay forwards data until the peer is
    /// verified at another address.
    pub(super) fn prefer(&mut self, address: IpAddr) {
        let is_relay = self.is_relay(address);
        for entry in &mut self.addresses {
            let is_chosen = entry.address == address && !is_relay;
            (entry.preferred, entry.is_selected) = (is_chosen, is_chosen);
            if is_relay && !entry.is_relay && entry.status == Status::Active {
                entry.distrust();
            }
        }
    }

    /// The peer has answered at this address, but no more.
    pub(super) fn distrust(&mut self, address: IpAddr) {
        self.addresses.iter_mut().filter(|it| it.address == address && !it.is_relay).for_each(PeerAddress::distrust);
    }

    /// No pair of addresses is selected.
    pub(super) fn deselect(&mut self) {
        self.addresses.iter_mut().for_each(|it| it.is_selected = false);
    }

    /// No data is sent through relays, until the peer moves or there is another exchange.
    pub(super) fn keep_relays_for_signalling(&mut self) {
        let relays = self.addresses.iter_mut().filter(|it| it.is_relay);
        relays.for_each(|it| it.traffic = LocatorTraffic::Signalling);
    }

    /// Whether a packet from there is expected: the address is in use or being checked, and no presumed address of a translator is
    /// preferred. One that was verified before gives way to verified addresses only.
    pub(super) fn is_expected(&self, address: IpAddr) -> bool {
        let is_presumed =
            |it: &PeerAddress| it.is_unverified_translation() || it.is_presumed() && self.is_active(address);
        let is_elsewhere = |it: &PeerAddress| it.preferred && it.address != address && is_presumed(it);
        let is_in_use = |it: &PeerAddress| it.address == address && it.status != Status::Deprecated;
        self.addresses.iter().any(is_in_use) && !self.addresses.iter().any(is_elsewhere)
    }

    /// Verified addresses for data: preferred ones first, relays last.
    pub(super) fn active(&self) -> impl Iterator<Item = IpAddr> {
        let mut active: Vec<&PeerAddress> = self.addresses.iter().filter(|it| it.takes_data()).collect();
        active.sort_by_key(|it| (it.is_relay, !it.preferred));
        active.into_iter().map(|it| it.address)
    }

    pub(super) fn is_preferred(&self, address: IpAddr) -> bool {
        self.get(address).is_some_and(|it| it.preferred)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PeerAddress> {
        self.addresses.iter()
    }
}

impl Status {
    const fn rank(self) -> u8 {
        match self {
            Self::Active => 0,
            Self::Unverified => 1,
            Self::Deprecated => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_that_was_selected_is_used_until_the_peer_is_verified_elsewhere() {
        let [relay, former, direct] = ["203.0.113.3", "198.51.100.1", "198.51.100.2"].map(|it| it.parse().unwrap());
        let (mut addresses, now) = (PeerAddresses::default(), Instant::from_secs(1000));
        addresses.add_relay(relay);
        [relay, former].into_iter().for_each(|it| addresses.verify(it));
        addresses.prefer(relay);
        let data = |addresses: &mut PeerAddresses| addresses.for_data(now, 100, |_| true);
        assert_eq!(data(&mut addresses), Some(relay));
        addresses.verify(direct);
        assert_eq!(data(&mut addresses), Some(direct));
    }

    /// An announcement with the source of a former address: of an attacker on the path, or of a translator that is no longer there.
    #[test]
    fn an_address_that_does_not_answer_gives_way_to_one_that_has() {
        let [former, present, relay] = ["198.51.100.1", "198.51.100.2", "203.0.113.3"].map(|it| it.parse().unwrap());
        let now = Instant::from_secs(1000);
        let data = |addresses: &mut PeerAddresses| addresses.for_data(now, 100, |_| true);
        let control = |addresses: &PeerAddresses| addresses.for_control(|_| true).next();
        let mut addresses = PeerAddresses::default();
        [former, present].into_iter().for_each(|it| addresses.verify(it));
        addresses.follow(former, Status::Active);
        assert_eq!((data(&mut addresses), control(&addresses)), (Some(former), Some(former)));
        addresses.doubt(former);
        assert_eq!((data(&mut addresses), control(&addresses)), (Some(present), Some(present)));
        // The peer's packets from there move the preference, too.
        assert!(!addresses.is_expected(present));
        addresses.return_to(present);
        assert!(addresses.is_expected(present) && addresses.is_preferred(present));

        addresses.follow(former, Status::Active);
        addresses.doubt(former);
        addresses.verify(former);
        assert_eq!((data(&mut addresses), control(&addresses)), (Some(former), Some(former)), "it answers after all");

        // One that is being checked for the first time does not take its place.
        addresses.doubt(former);
        let announced: IpAddr = "198.51.100.9".parse().unwrap();
        let locators = |at: IpAddr| [Locator::esp(at, 7, 3600, true)];
        assert_eq!(addresses.announce(now, &locators(announced), &[present]), [announced]);
        addresses.follow(former, Status::Active);
        assert!(addresses.is_expected(announced) && addresses.is_doubtful(former));
        // It is checked once more if the peer announces it, and trusted if a test of a path is answered.
        assert_eq!(addresses.announce(now, &locators(former), &[present]), [former]);
        addresses.verify(former);
        addresses.doubt(former);
        addresses.trust(former);
        assert!(!addresses.is_doubtful(former));

        let mut alone = PeerAddresses::default();
        alone.verify(former);
        alone.follow(former, Status::Active);
        alone.doubt(former);
        assert_eq!(data(&mut alone), Some(former), "there is no other");
        alone.add_relay(relay);
        alone.verify(relay);
        assert_eq!(data(&mut alone), Some(relay));
    }

    /// A hostile peer names servers in each exchange.
    #[test]
    fn servers_that_the_peer_names_replace_the_last_ones() {
        let configured: Vec<IpAddr> = (1..=4).map(|n| [198, 51, 100, n].into()).collect();
        let mut addresses = PeerAddresses::default();
        addresses.add_known(&configured);
        addresses.add_relay([203, 0, 113, 3].into());
        for n in 0..50 {
            addresses.name_relays(&[[192, 0, 2, 2 * n].into(), [192, 0, 2, 2 * n + 1].into()]);
        }
        assert!(configured.iter().all(|it| addresses.status(*it).is_some()));
        let relays: Vec<IpAddr> = addresses.relays().collect();
        assert_eq!(relays, [[203, 0, 113, 3], [192, 0, 2, 98], [192, 0, 2, 99]].map(IpAddr::from));
        assert_eq!(relays.iter().filter(|it| addresses.is_named(**it)).count(), 2);
    }
}
