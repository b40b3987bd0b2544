//! UPDATE: numbering, acknowledgement and retransmission (RFC 7401 sections 6.11 and 6.12). Their contents are in `readdress.rs` and
//! `rekey.rs`.
//!
//! A receiver drops an UPDATE whose ID is below the newest one that it has received. Several can be in flight, so one of them can arrive
//! late, and all its retransmissions would be dropped. Therefore a retransmission gets a new ID unless it has the newest.

use core::net::IpAddr;

use holdover_base::{Duration, Instant};

use super::association::Association;
use super::local::{Local, find, verify};
use super::paths::Status;
use super::readdress::Check;
use super::rekey::Rekey;
use super::{Arrival, Dropped, Event, State};
use crate::codec::{Builder, PacketType, Parameter, Received, RelayAddress, map};

/// The IP protocol number of UDP.
const UDP: u8 = 17;

/// The UPDATEs of an association.
#[derive(Debug, Default)]
pub(super) struct Updates {
    /// The newest ID of this host.
    newest_id: u32,
    /// The newest ID of the peer.
    peer_id: Option<u32>,
    /// The answer to it, and its addresses.
    answer: Option<Addressed>,
    /// This host's locators known to the peer, once acknowledged.
    pub(super) told: Vec<IpAddr>,
    /// The pending announcement of locators.
    pub(super) announcement: Option<Outgoing>,
    /// The pending checks of the peer's addresses.
    pub(super) checks: Vec<Check>,
    pub(super) rekey: Option<Rekey>,
    /// A change of keys was given up with open outcome: it is repeated when the peer is heard again.
    pub(super) rekey_in_doubt: bool,
    /// A change of keys was given up: this host does not begin another one by itself before this time.
    pub(super) no_rekey_before: Option<Instant>,
    /// When the peer was last followed to another source address.
    pub(super) followed_at: Option<Instant>,
}

/// A packet, and its addresses.
type Addressed = (Builder, (IpAddr, IpAddr));

/// An UPDATE that is retransmitted until it is acknowledged.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The IDs that it has had.
    ids: Vec<u32>,
    pub(super) attempts: u32,
    timeout: Duration,
    pub(super) at: Instant,
}

impl Outgoing {
    pub(super) fn new(local: &Local, now: Instant, id: u32) -> Self {
        let timeout = local.config.retransmit_after;
        Self { ids: vec![id], attempts: 0, timeout, at: now + timeout }
    }

    /// The next ID to send it with, and twice the timeout; `None` if no attempts are left.
    pub(super) fn again(&mut self, local: &Local, now: Instant, newest_id: &mut u32) -> Option<u32> {
        if self.attempts >= local.config.retries {
            return None;
        }
        self.attempts += 1;
        self.timeout = self.timeout * 2;
        self.at = now + self.timeout;
        if self.ids.last() != Some(newest_id) {
            *newest_id = newest_id.wrapping_add(1);
            self.ids.push(*newest_id);
        }
        self.ids.last().copied()
    }

    pub(super) fn is_acknowledged(&self, acks: &[u32]) -> bool {
        self.ids.iter().any(|id| acks.contains(id))
    }
}

impl Updates {
    /// A new association: nothing is in flight, and the peer knows one address of this host.
    pub(super) fn begin(&mut self, local: IpAddr) {
        *self = Self { told: vec![local], ..Self::default() };
    }

    pub(super) fn next_id(&mut self) -> u32 {
        self.newest_id = self.newest_id.wrapping_add(1);
        self.newest_id
    }

    pub(super) fn newest_id_mut(&mut self) -> &mut u32 {
        &mut self.newest_id
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let announcement = self.announcement.as_ref().map(|it| it.at);
        let rekey = self.rekey.as_ref().map(|it| it.outgoing.at);
        self.checks.iter().map(|it| it.outgoing.at).chain(announcement).chain(rekey).min()
    }

    /// Drops everything; returns the SPIs that are free again.
    pub(super) fn forget(&mut self) -> Vec<u32> {
        let spis = self.rekey.as_ref().map(Rekey::reserved_spi);
        *self = Self::default();
        spis.into_iter().flatten().collect()
    }
}

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
        self.note_alive(now);
        let packet = &update.packet;
        let (seq, acks) = (find!(packet, Seq).copied(), find!(packet, Ack));
        if let Some(via) = arrival.via.filter(|_| self.is_news(seq, acks.map_or(&[], |acks| acks.as_slice()))) {
            self.note_relay(local, now, &via);
        }
        let between = answered_between(local, between, arrival);
        self.take_registration(local, now, packet, acks.map_or(&[], |acks| acks.as_slice()));
        if let Some(acks) = acks
            && self.take_acks(acks)
            && find!(packet, EchoRequestSigned).is_none()
        {
            // Nothing to verify: the peer knows this address already.
            local.events.push_back(Event::Readdressed { peer: self.peer, address: between.0 });
        }
        if let Some(echo) = find!(packet, EchoResponseSigned) {
            self.take_echo(local, now, echo);
        }
        self.finish_rekey(local);
        // Restarts what was given up, now that the peer is heard again.
        self.rekey_again(local, now);
        if self.updates.announcement.is_none() {
            self.announce_if_moved(local, now);
        }
        let Some(id) = seq else { return Ok(()) };
        // RFC 7401 section 6.12.1: an older one than the newest is dropped, the newest is answered again.
        match self.updates.peer_id.map(|newest| newest.wrapping_sub(id)) {
            Some(0) => {
                self.answer_again(local);
                return Ok(());
            }
            Some(1..0x8000_0000) => return Err(Dropped::Stale),
            _ => {}
        }
        let answer = self.answer(local, now, update, id, between, arrival)?;
        self.updates.peer_id = Some(id);
        if let Some((builder, (src, dst))) = answer {
            local.send_from(&builder, src, dst);
            self.updates.answer = Some((builder, (src, dst)));
        }
        Ok(())
    }

    /// Whether an UPDATE was not received before: its ID is newer than all others, or it acknowledges a pending UPDATE. Any other one may
    /// be a replay, by a host on or off the path.
    fn is_news(&self, seq: Option<u32>, acks: &[u32]) -> bool {
        let newest = self.updates.peer_id;
        let is_newer = |id: u32| newest.is_none_or(|newest| newest.wrapping_sub(id) >= 0x8000_0000);
        let is_awaited = |it: &Outgoing| it.is_acknowledged(acks);
        let updates = &self.updates;
        let rekey = updates.rekey.as_ref().filter(|it| !it.is_acknowledged).map(|it| &it.outgoing);
        let checks = updates.checks.iter().map(|it| &it.outgoing);
        seq.is_some_and(is_newer)
            || checks.chain(&updates.announcement).chain(rekey).any(is_awaited)
            || self.client.as_ref().is_some_and(|client| client.awaits(acks))
    }

    /// Repeats the answer to the same UPDATE, between the same addresses, unless one of the hosts has left meanwhile.
    fn answer_again(&self, local: &mut Local) {
        let Some((answer, (src, dst))) = &self.updates.answer else { return };
        let left = self.paths.status(*dst) == Some(Status::Deprecated);
        let best = || self.paths.for_control(0, |dst| local.source_for(dst).is_some());
        let dst = if left { best().unwrap_or(*dst) } else { *dst };
        let stays = local.locators.contains(src) && src.is_ipv4() == dst.is_ipv4();
        if let Some(src) = if stays { Some(*src) } else { local.source_for(dst) } {
            local.send_from(answer, src, dst);
        }
    }

    /// The answer to a new UPDATE: an ACK, with the responses to its parameters. A check is sent to each locator to be verified, and the
    /// ACK goes to the first of them; `None` if this host is no longer at the checked address.
    fn answer(
        &mut self,
        local: &mut Local,
        now: Instant,
        update: &Received,
        id: u32,
        (src, dst): (IpAddr, IpAddr),
        arrival: Arrival,
    ) -> Result<Option<Addressed>, Dropped> {
        let packet = &update.packet;
        let relay = arrival.via.filter(|via| via.is_relay());
        let mut answer = vec![Parameter::Ack(vec![id])];
        self.serve(local, now, packet, &mut answer)?;
        if let Some(port) = arrival.port.filter(|_| find!(packet, RegRequest).is_some()) {
            // RFC 5770 section 5.7: the address of a client behind a translator, as seen here.
            answer.push(Parameter::RegFrom(RelayAddress { port, protocol: UDP, address: map(dst) }));
        }
        self.take_rekey(local, now, packet, &mut answer)?;
        let mut dst = dst;
        if let Some(locators) = find!(packet, LocatorSet) {
            let seen_at = relay.map(|via| via.from().0).or(arrival.port.map(|_| dst));
            let asked = self.check_locators(local, now, locators, seen_at);
            if relay.is_some() {
                // Acknowledged on the path on which it arrived; whether the other path works is a separate question.
                if let Some((first, request)) = asked {
                    let question = self.update(local, request)?;
                    self.send_question(local, &question, first);
                }
                return Ok(Some((self.update(local, answer)?, (src, dst))));
            }
            if let Some((first, request)) = asked {
                // From this host's address of that family: the request may have come over the other family.
                answer.extend(request);
                let Some(own) = local.source_for(first) else { return Ok(None) };
                return Ok(Some((self.update(local, answer)?, (own, first))));
            }
            // Nothing to verify; an ACK is sent to the peer's current address.
            dst = self.paths.for_control(0, |it| local.source_for(it).is_some()).unwrap_or(dst);
        }
        if let Some(echo) = find!(packet, EchoRequestSigned) {
            if !local.locators.contains(&src) {
                return Ok(None);
            }
            answer.push(Parameter::EchoResponseSigned(echo.clone()));
            local.events.push_back(Event::Readdressed { peer: self.peer, address: src });
        }
        let src = if src.is_ipv4() == dst.is_ipv4() { Some(src) } else { local.source_for(dst) };
        let Some(src) = src else { return Ok(None) };
        Ok(Some((self.update(local, answer)?, (src, dst))))
    }

    /// Returns whether this host's locators are acknowledged now.
    fn take_acks(&mut self, acks: &[u32]) -> bool {
        let updates = &mut self.updates;
        let announced = updates.announcement.take_if(|it| it.is_acknowledged(acks));
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
        self.used_at = now;
        if self.state == State::R2Sent {
            self.enter(State::Established, None);
        }
    }
}

/// The addresses for the answer to an UPDATE: to the source seen by a rendezvous server, or back through a relay.
fn answered_between(local: &Local, between: (IpAddr, IpAddr), arrival: Arrival) -> (IpAddr, IpAddr) {
    let met = arrival.via.filter(|via| !via.is_relay()).map(|via| via.from().0);
    met.and_then(|from| Some((local.source_for(from)?, from))).unwrap_or(between)
}
