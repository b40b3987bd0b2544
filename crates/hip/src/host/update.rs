//! UPDATE: authentication, acknowledgement and answers (RFC 7401 sections 6.11 and 6.12). Their contents are in `readdress.rs` and
//! `rekey.rs`; those in flight and their retransmission are in `in_flight.rs`, and which IDs of the peer were processed in `update_ids.rs`.

use std::borrow::Cow;

use core::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::association::{Association, Secured};
use super::check_budget::{Amount, Cause};
use super::in_flight::{Addressed, Answer, Outgoing};
use super::local::{Local, decrypted, find, missing, push_echoes, unsigned_echoes, verify};
use super::peer_addresses::Status;
use super::relay::{checks_path, is_forwarded};
use super::update_ids::Arrived;
use super::{Arrival, Dropped, Event, State};
use crate::codec::{Builder, HipPacket, HostId, PacketType, Parameter, Received, kind, map};
use crate::identity::HostIdentity;

/// The shortest time between two further acknowledgements of UPDATEs that were acknowledged before (RFC 7401 section 6.12.1, step 2).
const REPEAT_EVERY: Duration = Duration::from_millis(100);

impl Association {
    /// Handles an UPDATE: authenticates it, takes its acknowledgements, and answers it. `between` are this host's
    /// address and the peer's.
    pub(super) fn handle_update(
        &mut self,
        local: &mut Local,
        now: Instant,
        update: &Received,
        between: (IpAddr, IpAddr),
        arrival: Arrival,
    ) -> Result<(), Dropped> {
        let state = self.state;
        let secured = self.secured.as_ref().filter(|_| matches!(state, State::R2Sent | State::Established));
        let secured = secured.ok_or(Dropped::State { state })?;
        verify(update, secured.keys.rhash, &secured.keys.inbound, &secured.identity)?;
        let packet = opened(update, secured)?;
        let packet = &*packet;
        let (seq, acks) = (find!(packet, Seq).copied(), find!(packet, Ack));
        if seq.is_none() && acks.is_none() {
            // RFC 7401 section 5.3.5.
            return Err(missing(kind::SEQ));
        }
        if find!(packet, LocatorSet).is_some() {
            self.check_budget.credit(Amount::packet(update.bytes().len()));
        }
        let is_fresh = self.is_fresh(seq, acks.map_or(&[], |acks| acks.as_slice()));
        let echo = find!(packet, EchoResponseSigned);
        let shows_path = self.updates.shows_path(acks.map_or(&[], |acks| acks.as_slice()), echo, between.1);
        if seq.is_none() && !is_fresh {
            // RFC 7401 section 6.12.2: no UPDATE awaits this ACK.
            return Err(Dropped::Stale);
        }
        let is_unprocessed =
            seq.is_some_and(|id| matches!(self.updates.peer.classify(id), Arrived::New | Arrived::Late));
        if is_fresh || is_unprocessed {
            let used_at = self.used_at;
            self.note_alive(now);
            if self.is_check(packet, arrival) || self.connectivity.awaits(acks.map_or(&[], |acks| acks.as_slice())) {
                // Checks are repeated as long as the association lasts.
                self.used_at = used_at;
            }
        }
        match arrival.via {
            Some(via) if is_fresh => self.note_relay(local, now, &via),
            Some(_) => {}
            None => local.has_shown_source = is_fresh,
        }
        let arrived = between;
        // First, as whatever else arrives ends a test without an answer.
        let is_forwarded = is_forwarded(packet, arrival);
        let is_test_answer = echo.is_some_and(|echo| self.take_test_answer(local, now, echo, arrived));
        if is_fresh {
            self.note_heard(local, now, arrived, false);
        }
        let between = answered_between(local, between, arrival);
        let is_new = (is_fresh && arrival.via.is_none(), is_unprocessed);
        self.take_registration(local, now, packet, acks.map_or(&[], |acks| acks.as_slice()), is_new, arrived);
        if let Some(acks) = acks {
            self.take_candidates(local, now, packet, acks, arrival);
        }
        if let Some(acks) = acks
            && self.take_acks(acks)
            && find!(packet, EchoRequestSigned).is_none()
        {
            // Nothing to verify: the peer knows this address already.
            local.events.push_back(Event::Readdressed { peer: self.peer, address: between.0 });
        }
        if let Some(echo) = echo
            && !is_test_answer
            && !self.take_check_answer(local, now, echo, arrived, (arrival.port, is_forwarded))?
            && !is_forwarded
        {
            self.take_echo(local, now, echo, arrived.1);
        }
        if is_fresh && shows_path && arrival.via.is_none() {
            self.divert(local, now, arrived);
        }
        self.finish_rekey(local);
        // Restarts exchanges that were given up, now that the peer is heard again.
        self.rekey_again(local, now);
        if self.updates.announcement.is_none() {
            self.announce_if_moved(local, now);
        }
        let Some(id) = seq else { return Ok(()) };
        if self.is_check(packet, arrival) {
            return self.answer_check(local, now, packet, id, arrived, arrival);
        }
        self.answer_any(local, now, packet, id, between, arrival)?;
        if is_fresh && find!(packet, LocatorSet).is_some() {
            // Also on the paths that it announces.
            self.note_heard(local, now, arrived, false);
        }
        Ok(())
    }

    /// Answers an UPDATE with this ID, or answers it again.
    fn answer_any(
        &mut self,
        local: &mut Local,
        now: Instant,
        packet: &HipPacket,
        id: u32,
        between: (IpAddr, IpAddr),
        arrival: Arrival,
    ) -> Result<(), Dropped> {
        match self.updates.peer.classify(id) {
            Arrived::AsNewest if self.updates.answer.is_some() => self.answer_again(local, now, id, between)?,
            Arrived::AsNewest | Arrived::Again => return self.acknowledge_again(local, now, id, between.0),
            Arrived::TooOld => return Err(Dropped::Stale),
            Arrived::New | Arrived::Late => {
                let packet = self.updates.peer.without_overtaken(packet, id);
                if find!(packet, LocatorSet).is_some() && !self.check_budget.allows(now, Cause::Announcement) {
                    return Err(Dropped::Overload);
                }
                let mut answer = self.answer(local, now, &packet, id, between, arrival)?;
                if let Some((builder, _)) = &mut answer {
                    match arrival.met_by() {
                        // RFC 8046 section 3.2.3.
                        Some(via) => builder.push(&Parameter::ViaRvs(vec![map(via.at)]))?,
                        None => push_echoes(builder, unsigned_echoes(&packet)),
                    }
                }
                self.updates.peer.note(id, &packet);
                self.send_answer(local, now, &packet, id, answer, arrival);
                if let Some(locators) = self.offered(&packet) {
                    self.begin_checks_again(local, now, locators, arrival);
                }
            }
        }
        Ok(())
    }

    /// Sends the answer to an UPDATE, and keeps it if that is the newest one. If the UPDATE announces locators while this host's own
    /// announcement is pending, that goes to the same address.
    fn send_answer(
        &mut self,
        local: &mut Local,
        now: Instant,
        packet: &HipPacket,
        id: u32,
        answer: Option<Addressed>,
        arrival: Arrival,
    ) {
        let Some((builder, (src, dst))) = answer else {
            if self.updates.peer.classify(id) == Arrived::AsNewest {
                self.updates.answer = None;
            }
            return;
        };
        let is_announcement = find!(packet, LocatorSet).is_some();
        if is_announcement {
            self.charge(dst, &builder);
        }
        local.send_from(&builder, src, dst);
        if self.updates.peer.classify(id) == Arrived::AsNewest {
            let is_check = is_announcement && self.is_asking(dst);
            self.updates.answer = Some(Answer { packet: (builder, (src, dst)), is_check, repetitions: 0 });
        }
        if is_announcement && arrival.via.is_none_or(|via| !via.is_relay) {
            self.announce_at(local, now, dst);
        }
    }

    /// Acknowledges an UPDATE that was processed before, and is not the newest, or had no answer: from the address at which it has arrived.
    fn acknowledge_again(
        &mut self,
        local: &mut Local,
        now: Instant,
        id: u32,
        arrived_at: IpAddr,
    ) -> Result<(), Dropped> {
        self.limit_repeats(now)?;
        let ack = self.update(local, vec![Parameter::Ack(vec![id])])?;
        let dst = self.best_for_control(local);
        if let Some(dst) = dst.filter(|dst| self.may_send_to(now, *dst, Cause::Other)) {
            self.charge(dst, &ack);
            local.source_of_answer(arrived_at, dst).into_iter().for_each(|src| local.send_from(&ack, src, dst));
        }
        Ok(())
    }

    /// Anybody can send a packet again: each new acknowledgement takes a signature.
    fn limit_repeats(&mut self, now: Instant) -> Result<(), Dropped> {
        if self.updates.repeated_at.is_some_and(|at| now.saturating_since(at) < REPEAT_EVERY) {
            return Err(Dropped::Stale);
        }
        self.updates.repeated_at = Some(now);
        Ok(())
    }

    /// Whether an UPDATE was not received before: its ID is newer than all others, or it acknowledges a pending UPDATE. Any other one may
    /// be a replay, by a host on or off the path.
    fn is_fresh(&self, seq: Option<u32>, acks: &[u32]) -> bool {
        let is_newer = |id: u32| self.updates.peer.classify(id) == Arrived::New;
        let is_awaited = |it: &Outgoing| it.is_acknowledged(acks);
        let updates = &self.updates;
        let rekey = updates.rekey.as_ref().filter(|it| !it.is_acknowledged).map(|it| &it.outgoing);
        let checks = updates.checks.iter().map(|it| &it.outgoing);
        seq.is_some_and(is_newer)
            || checks
                .chain(&updates.announcement)
                .chain(&updates.candidates)
                .chain(&updates.offer)
                .chain(rekey)
                .any(is_awaited)
            || self.client.as_ref().is_some_and(|client| client.awaits(acks))
            || self.reachability.awaits(acks)
            || self.connectivity.awaits(acks)
    }

    /// Repeats the answer to the same UPDATE, which has arrived again `between` these addresses. No MAC covers the source of a packet: the
    /// answer goes there only if the peer is known there, and every other time to the peer's best address, as either may be dead. A check
    /// goes to the checked address alone: answered from elsewhere, it would show nothing. If that does not answer, the acknowledgement goes to
    /// a verified address, without the check, which has a timer of its own.
    fn answer_again(
        &mut self,
        local: &mut Local,
        now: Instant,
        id: u32,
        between: (IpAddr, IpAddr),
    ) -> Result<(), Dropped> {
        let Some(Answer { packet: (answer, (src, first)), is_check, repetitions }) = self.updates.answer.clone() else {
            return Ok(());
        };
        let is_there = |at: IpAddr| matches!(self.peer_addresses.status(at), Some(Status::Active | Status::Unverified));
        let best = self.best_for_control(local);
        let is_checked = is_check && self.is_asking(first) && is_there(first);
        if is_checked && let Some(other) = self.verified_alternative(first, between.1, best) {
            self.limit_repeats(now)?;
            return self.acknowledge_at(local, id, between.0, other);
        }
        let came = Some(between.1).filter(|at| is_there(*at) && repetitions.is_multiple_of(2));
        let dst = if is_checked { first } else { came.or(best).unwrap_or(first) };
        if !self.may_send_to(now, dst, if is_check { Cause::Announcement } else { Cause::Other }) {
            return Ok(());
        }
        // On the path on which it arrived this time: another one may be dead.
        let src = if dst == between.1 { between.0 } else { src };
        let src = if is_check { local.source_of_check(src, dst) } else { local.source_of_answer(src, dst) };
        if let Some(src) = src {
            self.charge(dst, &answer);
            local.send_from(&answer, src, dst);
        }
        self.updates.answer.iter_mut().for_each(|it| it.repetitions = it.repetitions.wrapping_add(1));
        Ok(())
    }

    /// Where to acknowledge an announcement, if the checked address does not answer: at its source or the best address, if the peer is
    /// verified there.
    fn verified_alternative(&self, checked: IpAddr, source: IpAddr, best: Option<IpAddr>) -> Option<IpAddr> {
        let is_verified = |it: &IpAddr| *it != checked && self.peer_addresses.is_active(*it);
        [Some(source), best]
            .into_iter()
            .flatten()
            .find(is_verified)
            .filter(|_| self.peer_addresses.is_doubtful(checked))
    }

    fn acknowledge_at(&self, local: &mut Local, id: u32, arrived_at: IpAddr, to: IpAddr) -> Result<(), Dropped> {
        let ack = self.update(local, vec![Parameter::Ack(vec![id])])?;
        if let Some(src) = local.source_of_answer(arrived_at, to) {
            local.send_from(&ack, src, to);
        }
        Ok(())
    }

    /// The answer to a new UPDATE: an ACK, with the responses to its parameters. A check is sent to each locator to be verified, and the
    /// ACK goes to the first of them; `None` if this host is no longer at the checked address.
    fn answer(
        &mut self,
        local: &mut Local,
        now: Instant,
        packet: &HipPacket,
        id: u32,
        (src, dst): (IpAddr, IpAddr),
        arrival: Arrival,
    ) -> Result<Option<Addressed>, Dropped> {
        let relay = arrival.via.filter(|via| via.is_relay);
        let mut answer = vec![Parameter::Ack(vec![id])];
        answer.extend(self.serve(local, now, packet, (src, dst), arrival)?);
        self.take_rekey(local, now, packet, &mut answer)?;
        // Of both checks and changes of keys, the answer has one SEQ and one ESP_INFO (RFC 8046 section 3.2.2).
        let shared_id = answer.iter().find_map(|it| if let Parameter::Seq(id) = it { Some(*id) } else { None });
        let mut dst = dst;
        let seen_at = relay.map(|via| via.from.0).or(arrival.port.map(|_| dst));
        let is_known = match self.offered(packet) {
            Some(locators) => {
                answer.extend(self.answer_candidates(local));
                self.has_announced(locators, id, seen_at)
            }
            None => false,
        };
        if let Some(locators) = find!(packet, LocatorSet).filter(|_| !is_known) {
            let shared_id = shared_id.filter(|_| relay.is_none());
            let locators = self.connectivity.locators(locators);
            let asked = self.check_locators(local, now, &locators, seen_at, shared_id);
            if relay.is_some() {
                // Acknowledged on the path on which it arrived; whether the other path works is a separate question.
                if let Some((first, request)) = asked {
                    let question = self.update(local, request)?;
                    self.send_question(local, now, &question, (first, 0), Cause::Announcement);
                }
                return Ok(Some((self.update(local, answer)?, (src, dst))));
            }
            if let Some((first, request)) = asked {
                let best = self.best_for_control(local);
                if let Some(other) = self.verified_alternative(first, dst, best) {
                    self.acknowledge_at(local, id, src, other)?;
                }
                // From an address of that family: the request may have come over the other family.
                let has = |kind| answer.iter().any(|it: &Parameter| it.kind() == kind);
                let (has_seq, has_info) = (has(kind::SEQ), has(kind::ESP_INFO));
                let is_missing = |it: &Parameter| match it {
                    Parameter::Seq(_) => !has_seq,
                    Parameter::EspInfo(_) => !has_info,
                    _ => true,
                };
                answer.extend(request.into_iter().filter(is_missing));
                answer.extend(self.echo(local, packet, src, arrival));
                let Some(own) = local.source_of_check(src, first) else { return Ok(None) };
                return Ok(Some((self.update(local, answer)?, (own, first))));
            }
            // Nothing to verify; an ACK is sent to the peer's current address.
            dst = self.best_for_control(local).unwrap_or(dst);
        }
        let echo = self.echo(local, packet, src, arrival);
        if echo.is_none() && find!(packet, EchoRequestSigned).is_some() && arrival.met_by().is_none() {
            return Ok(None);
        }
        answer.extend(echo);
        let src = if src.is_ipv4() == dst.is_ipv4() { Some(src) } else { local.source_for(dst) };
        let Some(src) = src else { return Ok(None) };
        Ok(Some((self.update(local, answer)?, (src, dst))))
    }

    /// The answer to a check of one of this host's addresses: none if the host has left it, or if the check came by way of a server, which
    /// shows nothing about the address. A test of the path through a relay is answered.
    fn echo(&self, local: &mut Local, packet: &HipPacket, address: IpAddr, arrival: Arrival) -> Option<Parameter> {
        let echo = find!(packet, EchoRequestSigned)?;
        let shows_nothing = arrival.met_by().is_some() || arrival.via.is_some() && !checks_path(packet);
        if shows_nothing || !local.locators.contains(&address) {
            return None;
        }
        if arrival.via.is_none() {
            local.events.push_back(Event::Readdressed { peer: self.peer, address });
        }
        Some(Parameter::EchoResponseSigned(echo.clone()))
    }

    /// Returns whether this host's locators are acknowledged now.
    fn take_acks(&mut self, acks: &[u32]) -> bool {
        let updates = &mut self.updates;
        let announced = updates.announcement.take_if(|it| it.is_acknowledged(acks));
        updates.offer.take_if(|it| it.is_acknowledged(acks));
        updates.checks.iter_mut().for_each(|check| check.outgoing.forget(acks));
        if let Some(rekey) = updates.rekey.as_mut().filter(|it| it.outgoing.is_acknowledged(acks)) {
            rekey.is_acknowledged = true;
        }
        announced.is_some()
    }

    /// An UPDATE with these parameters, MAC and signature.
    pub(super) fn update(&self, local: &mut Local, mut parameters: Vec<Parameter>) -> Result<Builder, Dropped> {
        let state = self.state;
        let keys = &self.secured.as_ref().ok_or(Dropped::State { state })?.keys;
        parameters.sort_by_key(Parameter::kind);
        let mut builder = Builder::new(PacketType::Update, local.hit, self.peer);
        for parameter in &parameters {
            builder.push(parameter)?;
        }
        local.authenticate(&mut builder, keys.rhash, &keys.outbound)?;
        Ok(builder)
    }

    /// The peer has this association's keys: the exchange is complete.
    pub(super) fn note_alive(&mut self, now: Instant) {
        (self.used_at, self.heard_at) = (now, now);
        if self.state == State::R2Sent {
            self.newer_than = Some(now);
            self.enter(State::Established, None);
        }
    }
}

/// The parameters of an UPDATE, with those in ENCRYPTED. A HOST_ID has to be that of the association (RFC 8046 section 4.3).
fn opened<'a>(update: &'a Received, secured: &Secured) -> Result<Cow<'a, HipPacket>, Dropped> {
    let packet = &update.packet;
    let hidden = decrypted(packet, secured.keys.cipher, &secured.keys.inbound)?;
    let packet = if hidden.is_empty() {
        Cow::Borrowed(packet)
    } else {
        let parameters = packet.parameters.iter().cloned().chain(hidden).collect();
        Cow::Owned(HipPacket { parameters, ..packet.clone() })
    };
    let is_own = |host_id: &HostId| HostIdentity::from_host_id(host_id).is_ok_and(|it| it == secured.identity);
    if find!(packet, HostId).is_some_and(|host_id| !is_own(host_id)) {
        return Err(Dropped::WrongHit);
    }
    Ok(packet)
}

/// The addresses for the answer to an UPDATE: to the source seen by a rendezvous server, or back through a relay.
fn answered_between(local: &Local, between: (IpAddr, IpAddr), arrival: Arrival) -> (IpAddr, IpAddr) {
    let met = arrival.met_by().map(|via| via.from.0);
    met.and_then(|from| Some((local.source_for(from)?, from))).unwrap_or(between)
}
