//! Checks as UPDATEs: requests, responses, and checks that those of the peer cause (RFC 9028 sections 4.6.1 and 4.6.2).

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::Instant;

use super::super::address::is_reachable;
use super::super::association::Association;
use super::super::check_budget::{Amount, Cause};
use super::super::checklist::{Endpoint, Pair, Path, Resting, Role};
use super::super::local::{Local, find};
use super::super::peer_addresses::PeerAddresses;
use super::super::relay::is_forwarded;
use super::super::update_ids::Arrived;
use super::super::via::{RelayTarget, Relayed, UDP};
use super::super::{Arrival, Dropped, Event};
use super::AT_MOST;
use super::gathering::{own_candidate, reflexive_priority};
use crate::codec::{Builder, HipPacket, Parameter, RelayAddress, map};

/// The most answers to repeated checks in a second.
const MOST_REPEATED_PER_S: u32 = 20;

impl Association {
    /// Whether a packet is a connectivity check, or the controlled host's answer to a nomination, and both hosts have agreed on checks. A test of
    /// the path through a relay has the keys' SPIs as well (`Association::check_paths`).
    pub(in crate::host) fn is_check(&self, packet: &HipPacket, arrival: Arrival) -> bool {
        let is_check = |it: &Parameter| matches!(it, Parameter::CandidatePriority(_) | Parameter::Nominate);
        self.connectivity.role.is_some()
            && arrival.port.is_some()
            && packet.parameters.iter().any(is_check)
            && find!(packet, EchoRequestSigned).is_some()
            && find!(packet, LocatorSet).is_none()
            && find!(packet, EspInfo).is_none()
    }

    /// The next deadline of [`Self::run_checks`].
    pub(in crate::host) fn checks_deadline(&self) -> Option<Instant> {
        let connectivity = &self.connectivity;
        if !self.is_usable() {
            return None;
        }
        let is_controlling = connectivity.role == Some(Role::Controlling);
        let list = connectivity.checklist.as_ref();
        let next = match &connectivity.nomination {
            // The controlling host's own is over in time.
            Some(nomination) => {
                let ends_at = list.filter(|_| !is_controlling).map(|_| connectivity.ends_at);
                ends_at.into_iter().chain([nomination.transaction.at]).min()
            }
            None => list.and_then(|list| {
                let settled_at = is_controlling.then(|| list.settled_at()).flatten();
                list.poll_timeout().into_iter().chain(settled_at).chain([connectivity.ends_at]).min()
            }),
        };
        let repeated_at = connectivity.resting.as_ref().map(|resting| resting.at);
        let others = connectivity.announce_at.into_iter().chain(repeated_at).chain(connectivity.handover.due_at);
        next.into_iter().chain(others).min()
    }

    /// Sends the check that is due, and concludes the checks if there is nothing left to check.
    pub(in crate::host) fn run_checks(&mut self, local: &mut Local, now: Instant) -> Result<(), Dropped> {
        if self.checks_deadline().is_none_or(|at| at > now) {
            return Ok(());
        }
        if self.connectivity.announce_at.take_if(|at| *at <= now).is_some() {
            match local.locators.len() {
                0 | 1 => self.announce_if_moved(local, now),
                _ => self.announce(local, now),
            }
        }
        self.offer_candidates(local, now);
        self.repeat_checks(now, |resting| resting.at <= now);
        if let Some(nomination) = &self.connectivity.nomination {
            if nomination.transaction.at <= now {
                return self.nominate_again(local, now);
            }
            return if now >= self.connectivity.ends_at { self.conclude(local, now) } else { Ok(()) };
        }
        if self.connectivity.checklist.is_some() {
            let is_allowed = self.check_budget.allows(now, Cause::Candidates);
            let addresses = &self.peer_addresses;
            let may_send = |pair: &Pair| is_allowed || is_relay_in_use(addresses, pair.path);
            let due = self.connectivity.checklist.as_mut().and_then(|list| list.next(now, may_send));
            if let Some(index) = due {
                self.send_check(local, now, index)?;
            }
        }
        self.conclude(local, now)
    }

    /// Begins the checks again, unless the peer was verified at an address of its own meanwhile.
    fn repeat_checks(&mut self, now: Instant, is_due: impl Fn(&Resting) -> bool) {
        let Some(Resting { mut list, .. }) = self.connectivity.resting.take_if(|resting| is_due(resting)) else {
            return;
        };
        if self.peer_addresses.active().any(|address| !self.peer_addresses.is_relay(address)) {
            return;
        }
        list.restart(now);
        let connectivity = &mut self.connectivity;
        (connectivity.checklist, connectivity.ends_at) = (Some(list), now + AT_MOST);
        connectivity.repeated = connectivity.repeated.saturating_add(1);
    }

    fn send_check(&mut self, local: &mut Local, now: Instant, index: usize) -> Result<(), Dropped> {
        let Some(list) = &mut self.connectivity.checklist else { return Ok(()) };
        let path = list.pairs[index].path;
        let updates = &mut self.updates;
        let (id, nonce) = list.note_sent(now, index, || (updates.next_id(), local.random()));
        let priority = Parameter::CandidatePriority(reflexive_priority(local, path.own));
        let echo = Parameter::EchoRequestSigned(Bytes::copy_from_slice(&nonce));
        let check = self.update(local, vec![Parameter::Seq(id), echo, priority])?;
        let charged = self.send_on_path(local, now, check, path);
        let pair = self.connectivity.checklist.as_mut().map(|list| &mut list.pairs[index]);
        pair.into_iter().for_each(|pair| pair.sent = pair.sent.plus(charged));
        Ok(())
    }

    /// Sends an UPDATE on a path, in UDP to its port, as far as the budget allows. Returns what it was charged with.
    pub(super) fn send_on_path(&mut self, local: &mut Local, now: Instant, mut update: Builder, path: Path) -> Amount {
        let (address, port) = path.peer;
        // Other ports of the peer's address may be those of other hosts behind the same translator.
        let has_answered = self.connectivity.selected == Some(path)
            || self.connectivity.checklist.as_ref().is_some_and(|list| list.has_succeeded(path));
        let is_verified = has_answered || is_relay_in_use(&self.peer_addresses, path);
        if !is_verified && !self.check_budget.allows(now, Cause::Candidates) {
            return Amount::default();
        }
        let charged = if is_verified { Amount::default() } else { Amount::packet(update.wire_len()) };
        self.check_budget.charge(charged);
        if let Some(via) = &self.connectivity.reply_via {
            via.address(&mut update, address);
        }
        let packet = update.finish(path.own, address);
        local.relayed.push_back(Relayed { packet, to: RelayTarget::Port(port) });
        charged
    }

    /// Answers a check: from the address at which it has arrived, to the address and port from which it came (RFC 9028 section 4.6.2). A new one
    /// causes a check in return. No MAC covers the outer addresses: repetitions, which anyone can send, are answered at a limited rate, and
    /// from the budget for addresses at which the peer was not verified.
    pub(in crate::host) fn answer_check(
        &mut self,
        local: &mut Local,
        now: Instant,
        packet: &HipPacket,
        id: u32,
        (own, src): (IpAddr, IpAddr),
        arrival: Arrival,
    ) -> Result<(), Dropped> {
        let (Some(port), Some(echo)) = (arrival.port, find!(packet, EchoRequestSigned)) else { return Ok(()) };
        let is_new = match self.updates.peer.classify(id) {
            Arrived::New | Arrived::Late => true,
            Arrived::AsNewest | Arrived::Again => false,
            Arrived::TooOld => return Err(Dropped::Stale),
        };
        let may_repeat = is_new || self.connectivity.repeats.allows(now, MOST_REPEATED_PER_S);
        if !may_repeat || !is_new && !self.may_send_to(now, src, Cause::Other) {
            return Err(Dropped::Stale);
        }
        if is_new {
            self.updates.peer.note(id, packet);
            if self.updates.peer.classify(id) == Arrived::AsNewest {
                // It is not repeated as other answers are.
                self.updates.answer = None;
            }
        }
        if !local.locators.contains(&own) || !is_reachable(&local.locators, src) {
            return Ok(());
        }
        if is_new {
            self.join_checks(local, now, arrival);
        }
        let is_relayed = is_forwarded(packet, arrival) || self.peer_addresses.is_relay(src);
        let path = Path { own, peer: (src, port), is_relayed };
        let seen: Endpoint = arrival.via.map_or((src, port), |via| via.from);
        let mut answer = vec![
            Parameter::Ack(vec![id]),
            Parameter::EchoResponseSigned(echo.clone()),
            Parameter::MappedAddress(RelayAddress { port: seen.1, protocol: UDP, address: map(seen.0) }),
        ];
        if packet.parameters.contains(&Parameter::Nominate) {
            answer.extend(self.take_nomination(local, now, path, is_new));
        }
        let answer = self.update(local, answer)?;
        if !is_new {
            self.charge(src, &answer);
        }
        local.send_from(&answer, own, src);
        if is_new {
            self.repeat_checks(now, |resting| resting.may_be_hastened(now));
        }
        if let Some(priority) = find!(packet, CandidatePriority).filter(|_| is_new)
            && let Some(list) = &mut self.connectivity.checklist
            && let Some(candidate) = own_candidate(local, own)
        {
            list.trigger(path, candidate.priority, *priority);
        }
        Ok(())
    }

    /// The response to an echo request of this host's checks; `false` if it is none. It has to come back between the same addresses and ports
    /// (RFC 9028 section 4.6.2), and by way of a relay only if the candidate is a relayed one: a peer could name its relay's address as its own.
    pub(in crate::host) fn take_check_answer(
        &mut self,
        local: &mut Local,
        now: Instant,
        echo: &Bytes,
        (own, src): (IpAddr, IpAddr),
        (port, is_forwarded): (Option<u16>, bool),
    ) -> Result<bool, Dropped> {
        let peer = (src, port.unwrap_or_default());
        if let Some(nomination) = self.connectivity.nomination.take_if(|it| it.transaction.nonce[..] == echo[..]) {
            let is_refused = is_forwarded && !nomination.path.is_relayed;
            if (nomination.path.own, nomination.path.peer) == (own, peer) && !is_refused {
                self.select(local, now, nomination.path);
            } else {
                self.connectivity.nomination = Some(nomination);
            }
            return Ok(true);
        }
        let Some(list) = self.connectivity.checklist.as_mut().filter(|list| list.has_nonce(echo)) else {
            return Ok(false);
        };
        let is_refused = is_forwarded && !list.is_relayed(own, peer);
        if !is_refused && let Some((path, sent)) = list.succeed(now, own, peer, echo) {
            self.check_budget.credit(sent);
            self.note_success(local, now, path);
            self.conclude(local, now)?;
        }
        Ok(true)
    }

    /// A pair works. Data takes it if it is the best one that does.
    fn note_success(&mut self, local: &mut Local, now: Instant, path: Path) {
        if self.connectivity.nominated == Some(path) {
            return self.select(local, now, path);
        }
        let address = path.peer.0;
        if path.is_relayed {
            self.peer_addresses.add_relay(address);
        }
        self.peer_addresses.verify(address);
        let best = self.connectivity.checklist.as_ref().and_then(|list| list.best());
        if best == Some(path) {
            self.use_meanwhile(local, path);
        }
    }

    /// Data takes the best pair that has answered so far, if it is a direct one.
    pub(super) fn use_meanwhile(&mut self, local: &mut Local, path: Path) {
        if !path.is_relayed {
            let address = path.peer.0;
            self.connectivity.selected = Some(path);
            self.peer_addresses.prefer(address);
            local.events.push_back(Event::PeerReaddressed { peer: self.peer, address });
        }
    }
}

/// Whether the path is that of a relay which has forwarded packets of the peer.
fn is_relay_in_use(addresses: &PeerAddresses, path: Path) -> bool {
    path.is_relayed && addresses.is_relay(path.peer.0) && addresses.is_active(path.peer.0)
}
