//! Readdressing (RFC 8046 sections 3.2, 5.2 to 5.4): a host that has moved notifies its peers, which verify the new
//! address.
//!
//! A host behind a translator does not know its reachable address. Its peer sees it, as the source of authentic
//! packets, and verifies it in the same way (the peer-reflexive candidates of RFC 9028 section 4.6).

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::{Duration, Instant};

use super::association::Association;
use super::check_budget::{Amount, Cause};
use super::in_flight::{Check, Outgoing};
use super::local::Local;
use super::peer_addresses::{PeerAddress, Status};
use super::{Dropped, Event};
use crate::codec::{Builder, Locator, Parameter};

/// The most addresses of a peer checked at the same time: each costs a third party packets if the peer lies.
const MAX_CHECKS: usize = 4;

/// The shortest time between the first and the second restart of checks that were given up; it doubles with each restart until the peer
/// announces its addresses again. It bounds what third parties receive if the peer lies.
const RESTART_AFTER: Duration = Duration::from_secs(30);
/// The longest one while no path answers: a host whose network was gone for hours checks again soon after.
const RESTART_AFTER_AT_MOST: Duration = Duration::from_secs(600);

/// The acknowledgement of an announcement arrives within this time after the answer to the check that was sent before it, unless one of both
/// was lost: both are answered at once.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(10);

/// The shortest time between two moves of an association to the source address of a packet. It bounds how many UPDATEs an attacker who
/// rewrites source addresses on the path can have sent to others.
const FOLLOW_EVERY: Duration = Duration::from_millis(250);

impl Association {
    /// Announces this host's locators if the peer knows others, or prefers another one than data is sent from because a link is silent.
    pub(super) fn announce_if_moved(&mut self, local: &mut Local, now: Instant) {
        // During connectivity checks the peer has this host's candidates.
        let is_due = self.is_usable() && !self.connectivity.is_checking();
        let is_known = self.updates.announced == local.locators;
        let is_preferred = self.updates.announced_standby == self.standby_source(local);
        if is_due && !local.locators.is_empty() && !(is_known && is_preferred) {
            self.announce(local, now);
        }
    }

    /// First message: this host's locators, sent to the best address of the peer, and when retransmitted to its others in turn: both hosts
    /// may have moved.
    pub(super) fn announce(&mut self, local: &mut Local, now: Instant) {
        let id = self.updates.next_id();
        self.updates.announced = local.locators.clone();
        self.updates.announced_standby = self.standby_source(local);
        self.connectivity.announce_at = None;
        self.updates.announcement = Some(Outgoing::new(local, now, id));
        // In seconds on the wire: a shorter lifetime is over at once.
        let lifetime = Some(local.config.locator_lifetime).filter(|it| it.as_secs() > 0);
        self.updates.renew_at = lifetime.map(|lifetime| now + lifetime / 2);
        self.send_announcement(local, now, id, 0);
        self.renew_permissions(now);
        self.check_reachable(local, now);
    }

    /// Announces this host's locators again when half of their lifetime is over.
    pub(super) fn renew_announcement(&mut self, local: &mut Local, now: Instant) {
        if self.updates.renew_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        self.updates.announced.clear();
        // Without locators now, the next ones are announced.
        self.announce_if_moved(local, now);
    }

    /// Checks announced addresses that could not be reached from the former locators: those of another family.
    fn check_reachable(&mut self, local: &mut Local, now: Instant) {
        let announced = self.peer_addresses.iter().filter(|it| it.status == Status::Unverified && it.is_announced());
        let asked = |address| self.updates.checks.iter().any(|check| check.address == address);
        let new = announced.map(|it| it.address).filter(|it| !asked(*it) && local.source_for(*it).is_some());
        for address in new.take(MAX_CHECKS).collect::<Vec<IpAddr>>() {
            self.ask_at(local, now, address);
        }
    }

    /// Restarts checks of the peer's preferred addresses that were given up: if the peer's answers were lost in an outage, the peer has an
    /// acknowledgement and announces nothing more. Called when data from the peer arrive, when data for it have no path, and while no path
    /// answers: then other addresses are checked as well.
    pub(super) fn check_again(&mut self, local: &mut Local, now: Instant) {
        let is_lost = self.reachability.is_lost();
        let restarts = if is_lost { &self.updates.lost_restarts } else { &self.updates.restarts };
        if !restarts.is_due(now) {
            return;
        }
        let is_unverified =
            |it: &PeerAddress| it.status == Status::Unverified && it.is_announced() && (it.is_preferred() || is_lost);
        let is_unsure = |it: &&PeerAddress| is_unverified(it) || it.is_preferred() && it.is_lapsed();
        let given_up = self.peer_addresses.iter().filter(is_unsure).map(|it| it.address);
        let given_up = given_up.filter(|it| !self.is_asking(*it) && local.source_for(*it).is_some());
        let room = MAX_CHECKS.saturating_sub(self.updates.checks.len());
        let given_up: Vec<IpAddr> = given_up.take(room).collect();
        if given_up.is_empty() {
            return;
        }
        match is_lost {
            true => self.updates.lost_restarts.note(now, RESTART_AFTER, Some(RESTART_AFTER_AT_MOST)),
            false => self.updates.restarts.note(now, RESTART_AFTER, None),
        }
        for address in given_up {
            self.ask_at(local, now, address);
        }
    }

    /// Sends a check to an address, and retransmits it until it is answered. `shared_id` is that of a packet that also changes keys, `nonce`
    /// that of a check to be continued.
    fn ask(
        &mut self,
        local: &mut Local,
        now: Instant,
        address: IpAddr,
        shared_id: Option<u32>,
        nonce: Option<[u8; 16]>,
    ) -> Vec<Parameter> {
        let id = shared_id.unwrap_or_else(|| self.updates.next_id());
        let same = self.updates.checks.iter().position(|check| check.address == address);
        let former = same.map(|index| self.updates.checks.remove(index));
        let sent = former.as_ref().map(|check| check.sent).unwrap_or_default();
        if self.updates.checks.len() >= 2 * MAX_CHECKS {
            self.updates.checks.remove(0);
        }
        let mut outgoing = Outgoing::new(local, now, id);
        if let (Some(_), Some(former)) = (nonce, former) {
            // An answer that is on its way acknowledges a former packet.
            outgoing.continues(former.outgoing);
        }
        let nonce = nonce.unwrap_or_else(|| local.random());
        if shared_id.is_some() {
            outgoing.share();
            self.updates.rekey.iter_mut().for_each(|rekey| rekey.outgoing.share());
        }
        self.updates.checks.push(Check { address, nonce, outgoing, sent });
        self.request(id, nonce)
    }

    /// A check. RFC 8046 section 3.2.1 adds an ESP_INFO that changes nothing, for firewalls on the path.
    pub(super) fn request(&self, id: u32, nonce: [u8; 16]) -> Vec<Parameter> {
        let info = self.current_keys().map(Parameter::EspInfo);
        let echo = Parameter::EchoRequestSigned(Bytes::copy_from_slice(&nonce));
        info.into_iter().chain([Parameter::Seq(id), echo]).collect()
    }

    /// Whether an address of the peer is being checked.
    pub(super) fn is_asking(&self, address: IpAddr) -> bool {
        self.updates.checks.iter().any(|check| check.address == address)
    }

    /// Sends a check to an address.
    pub(super) fn ask_at(&mut self, local: &mut Local, now: Instant, address: IpAddr) {
        let request = self.ask(local, now, address, None, None);
        if let Ok(builder) = self.update(local, request) {
            self.send_question(local, now, &builder, (address, 0), Cause::Other);
        }
    }

    /// Whether the budget for addresses at which the peer was not verified lets a packet be sent to this one.
    pub(super) fn may_send_to(&mut self, now: Instant, address: IpAddr, cause: Cause) -> bool {
        self.peer_addresses.is_active(address) || self.check_budget.allows(now, cause)
    }

    /// A packet goes to an address of the peer.
    pub(super) fn charge(&mut self, address: IpAddr, packet: &Builder) {
        if self.peer_addresses.is_active(address) {
            return;
        }
        let amount = Amount::packet(packet.wire_len());
        self.check_budget.charge(amount);
        let check = self.updates.checks.iter_mut().find(|check| check.address == address);
        check.into_iter().for_each(|check| check.sent = check.sent.plus(amount));
    }

    /// The peer has announced an address while this host's own announcement is pending: both have moved. Earlier packets went to an address
    /// that the peer has left, or to a server that did not know the new one yet.
    pub(super) fn announce_at(&mut self, local: &mut Local, now: Instant, address: IpAddr) {
        let is_due = self.updates.announcement.is_some() && self.updates.announced_to != Some(address);
        if !is_due || !self.may_send_to(now, address, Cause::Announcement) {
            return;
        }
        let id = self.updates.next_id();
        self.updates.announcement.iter_mut().for_each(|announcement| announcement.add_id(id));
        self.updates.announced_to = Some(address);
        if let Some(builder) = self.announcement(local, id) {
            self.charge(address, &builder);
            local.send(&builder, address);
        }
    }

    fn announcement(&self, local: &mut Local, id: u32) -> Option<Builder> {
        let info = self.current_keys()?;
        let lifetime_s = u32::try_from(local.config.locator_lifetime.as_secs()).unwrap_or(u32::MAX);
        // First that of the pair which connectivity checks have selected.
        let selected = self.connectivity.selected.filter(|path| !path.is_relayed && local.locators.contains(&path.own));
        // Or that of the link that data takes in place of a silent one.
        let selected = self.updates.announced_standby.or(selected.map(|path| path.own));
        let others = local.locators.iter().copied().filter(|it| Some(*it) != selected);
        let locators = selected.into_iter().chain(others).take(8).enumerate();
        let locators = locators.map(|(index, it)| Locator::esp(it, info.new_spi, lifetime_s, index == 0)).collect();
        self.update(local, vec![Parameter::EspInfo(info), Parameter::LocatorSet(locators), Parameter::Seq(id)]).ok()
    }

    fn send_announcement(&mut self, local: &mut Local, now: Instant, id: u32, attempt: u32) {
        let path = self.control_path(local, attempt);
        let dst = path.map(|(_, dst)| dst);
        self.updates.announced_to = dst;
        let Some(builder) = self.announcement(local, id) else { return };
        path.into_iter().for_each(|(src, dst)| local.send_from(&builder, src, dst));
        if attempt == 0 {
            // The peer may have moved as well: its servers know its address (RFC 8046 section 3.2.3).
            self.send_to_servers(local, now, &builder, dst);
        }
    }

    /// Sends a packet to the peer's servers, except one of them.
    pub(super) fn send_to_servers(
        &mut self,
        local: &mut Local,
        now: Instant,
        builder: &Builder,
        except: Option<IpAddr>,
    ) {
        let servers: Vec<IpAddr> = self.peer_addresses.relays().filter(|it| Some(*it) != except).collect();
        for server in servers {
            if !self.peer_addresses.is_named(server) {
                local.send(builder, server);
            } else if self.may_send_to(now, server, Cause::Other) {
                self.charge(server, builder);
                local.send(builder, server);
            }
        }
    }

    /// Second message: verifies the peer's announced locators. Returns the first address to check and the request to send there, which goes
    /// with the acknowledgement; the others are checked at once. `seen_at` is the source of a packet in UDP: if it is none of the locators,
    /// it is the one that passes a translator. `shared_id` is the ID of the acknowledgement, if it has one.
    pub(super) fn check_locators(
        &mut self,
        local: &mut Local,
        now: Instant,
        locators: &[Locator],
        seen_at: Option<IpAddr>,
        shared_id: Option<u32>,
    ) -> Option<(IpAddr, Vec<Parameter>)> {
        let seen_at = seen_at.filter(|seen_at| !self.peer_addresses.is_relay(*seen_at));
        let translated = seen_at.filter(|seen_at| locators.iter().all(|it| it.address() != Some(*seen_at)));
        let is_checking_there = self.connectivity.is_checking_at(locators);
        let status = translated.and_then(|address| self.peer_addresses.status(address));
        let before = self.peer_addresses.in_use();
        let former = self.preferred_and_verified(local);
        let mut unverified = self.peer_addresses.announce(now, locators, &local.locators);
        if let Some(address) = translated {
            // Checked even if verified, so that the peer learns that the check succeeded.
            let is_verified = status == Some(Status::Active);
            self.peer_addresses.follow(address, if is_verified { Status::Active } else { Status::Unverified });
            unverified.insert(0, address);
        }
        let after = self.peer_addresses.in_use();
        if after != before {
            // Two hosts that change to their standbys at once must not undo each other's change.
            let addresses = |in_use: &[(IpAddr, bool)]| in_use.iter().map(|(address, _)| *address).collect::<Vec<_>>();
            let is_same = translated.is_none() && addresses(&after) == addresses(&before);
            match self
                .usual_path(local, now)
                .filter(|_| is_same && local.config.prefers_standby && self.reachability.detour().is_some())
            {
                Some(usual) => self.reachability.rebase(usual),
                None => self.handle_other_addresses(local, now),
            }
            // The peer has further addresses, but stays where the checks have found it.
            let pair = self.connectivity.nominated.or(self.connectivity.selected);
            let stays = pair.is_some_and(|path| !path.is_relayed && self.peer_addresses.is_preferred(path.peer.0));
            if !stays && !is_checking_there {
                self.connectivity.stop(now);
            }
        }
        self.updates.checks.retain(|check| unverified.contains(&check.address));
        (self.updates.restarts, self.updates.lost_restarts) = Default::default();
        let mut first = None;
        let reachable: Vec<IpAddr> = unverified.into_iter().filter(|it| local.source_for(*it).is_some()).collect();
        for address in reachable.into_iter().take(MAX_CHECKS) {
            // Announced once more, because both hosts have moved: an answer on its way to the first check counts. A translator may have
            // another port by now.
            let pending = self.updates.checks.iter().find(|check| check.address == address);
            let nonce = pending.map(|check| check.nonce).filter(|_| translated != Some(address));
            let request = self.ask(local, now, address, shared_id.filter(|_| first.is_none()), nonce);
            if first.is_none() {
                first = Some((address, request));
            } else if let Ok(builder) = self.update(local, request) {
                self.send_question(local, now, &builder, (address, 0), Cause::Other);
            }
        }
        // The preferred address may be of an IP version that this host does not have.
        let is_reached = |address| self.peer_addresses.is_preferred(address) && local.source_for(address).is_some();
        let stays = self.peer_addresses.iter().any(|it| it.status == Status::Active && is_reached(it.address));
        let moved_to = first.as_ref().map(|(address, _)| *address);
        let moved_to = moved_to.filter(|address| self.peer_addresses.is_preferred(*address) || !stays);
        // Or to an address that was verified before, as that of a standby.
        let is_other = |it: &IpAddr| former.is_some_and(|former| former != *it);
        let moved_to = moved_to.or_else(|| self.preferred_and_verified(local).filter(is_other));
        local.events.extend(moved_to.map(|address| Event::PeerMoved { peer: self.peer, address }));
        first
    }

    /// The peer's preferred address, if it was verified.
    fn preferred_and_verified(&self, local: &Local) -> Option<IpAddr> {
        let is_it = |it: &&PeerAddress| {
            it.status == Status::Active && it.is_preferred() && local.source_for(it.address).is_some()
        };
        self.peer_addresses.iter().find(is_it).map(|it| it.address)
    }

    /// The newest packet of the peer came in UDP from a new address, or from a new port of it if `is_rebound`: a translator has another
    /// binding for it. The address is checked, unless it was verified before; `false` if another one was followed just now.
    pub(super) fn follow(&mut self, local: &mut Local, now: Instant, address: IpAddr, is_rebound: bool) -> bool {
        if self.peer_addresses.is_relay(address) {
            // It is the relay's address, not the peer's.
            return true;
        }
        if !is_rebound && self.peer_addresses.status(address) == Some(Status::Active) {
            self.peer_addresses.return_to(address);
            let is_deprecated = |check: &Check| self.peer_addresses.status(check.address) == Some(Status::Deprecated);
            self.updates.checks.retain(|check| !is_deprecated(check));
            return true;
        }
        let is_early = self.updates.followed_at.is_some_and(|at| now.saturating_since(at) < FOLLOW_EVERY);
        if is_early
            || !self.is_usable()
            || local.source_for(address).is_none()
            || !self.check_budget.allows(now, Cause::Other)
        {
            return false;
        }
        self.updates.followed_at = Some(now);
        self.peer_addresses.follow(address, Status::Unverified);
        self.ask_at(local, now, address);
        local.events.push_back(Event::PeerMoved { peer: self.peer, address });
        true
    }

    /// Third message: the peer is verified at this address. `from` is the source of the packet: a packet through a relay does not show that
    /// another address is reachable.
    pub(super) fn take_echo(&mut self, local: &mut Local, now: Instant, echo: &Bytes, from: IpAddr) {
        let is_relay = self.peer_addresses.is_relay(from);
        let checks = &mut self.updates.checks;
        let is_it = |check: &Check| check.nonce[..] == echo[..] && (!is_relay || check.address == from);
        let Some(index) = checks.iter().position(is_it) else { return };
        let Check { address, sent, .. } = checks.swap_remove(index);
        // An active address is checked if the peer announces itself from behind a translator, whose port may have
        // changed.
        if matches!(self.peer_addresses.status(address), Some(Status::Unverified | Status::Active)) {
            self.peer_addresses.verify(address);
            self.check_budget.credit(sent);
            local.events.push_back(Event::PeerReaddressed { peer: self.peer, address });
            match &mut self.updates.announcement {
                // It was sent to an address that the peer may have left.
                Some(_) if self.updates.announced_to != Some(address) => self.announce(local, now),
                // The check that was sent before it is answered: its acknowledgement is behind that answer, or it is lost.
                Some(announcement) => announcement.hasten(now + ACKNOWLEDGED_WITHIN),
                None => {}
            }
        }
    }

    /// Retransmits due UPDATEs; gives up those without attempts left.
    pub(super) fn retransmit_updates(&mut self, local: &mut Local, now: Instant) -> Result<(), Dropped> {
        if let Some(mut outgoing) = self.updates.announcement.take_if(|it| it.at <= now) {
            match outgoing.again(local, now, self.updates.own_ids()) {
                Some(id) => {
                    self.send_announcement(local, now, id, outgoing.attempts);
                    self.updates.announcement = Some(outgoing);
                }
                None => {
                    self.updates.announced.clear();
                    local.events.push_back(Event::GaveUp { peer: self.peer });
                }
            }
        }
        self.retransmit_checks(local, now)?;
        self.retransmit_offer(local, now);
        self.retransmit_candidates(local, now);
        self.retransmit_rekey(local, now)
    }

    fn retransmit_checks(&mut self, local: &mut Local, now: Instant) -> Result<(), Dropped> {
        let is_due = |check: &Check| check.outgoing.at <= now;
        let (mut due, rest): (Vec<Check>, Vec<Check>) = self.updates.checks.drain(..).partition(is_due);
        self.updates.checks = rest;
        // Preferred addresses first: the budget may not suffice for all.
        due.sort_by_key(|check| !self.peer_addresses.is_preferred(check.address));
        for mut check in due {
            // Data leaves a verified address after two checks only: one may be lost, or the round trip be longer than the first timeout.
            if check.outgoing.attempts > 0 || !self.peer_addresses.is_active(check.address) {
                self.peer_addresses.doubt(check.address);
            }
            if let Some(id) = check.outgoing.again(local, now, self.updates.own_ids()) {
                let (attempt, request) = ((check.address, check.outgoing.attempts), self.request(id, check.nonce));
                self.updates.checks.push(check);
                let builder = self.update(local, request)?;
                self.send_question(local, now, &builder, attempt, Cause::Other);
            }
        }
        Ok(())
    }
}
