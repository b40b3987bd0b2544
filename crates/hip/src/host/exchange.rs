//! The responder's half of the base exchange: I1 and I2 (RFC 7401 sections 6.7 and 6.9).

use std::sync::Arc;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_wire::Packet;

use super::association::{Association, Pending, Secured, SessionKeys};
use super::client::Offered;
use super::initiator::read_identity;
use super::local::{
    LAST_RESERVED_SPI, Local, decrypted, find, missing, push_echoes, unsigned_echoes, value, verify_mac,
    verify_signature,
};
use super::reachability::Between;
use super::responder::Solved;
use super::{Arrival, Dropped, Event, Host, State, connectivity};
use crate::codec::{
    Builder, EspInfo, HEADER_LEN, HipPacket, Locator, NatTraversalMode, NotifyType, PacketType, Parameter, Received,
    kind, map,
};
use crate::crypto::{HipCipher, Keymat};
use crate::esp::{EspKeys, EspSuite, Inbound, Outbound};
use crate::identity::{Hit, HostIdentity};

/// Bytes of ESP_INFO and of the longest answers to a registration.
const LONGEST_ANSWERS: usize = 16 + 16 + 16 + 24 + 24;

/// An I2 that has passed every check.
struct Accepted {
    identity: HostIdentity,
    keys: SessionKeys,
    /// When the R1 was sent that it answers.
    issued_at: Instant,
    /// The initiator's SPI.
    spi: u32,
    /// Its candidates.
    locators: Vec<Locator>,
}

/// Where an I2 comes from, and its NAT traversal mode.
#[derive(Clone, Copy)]
struct Origin {
    between: Between,
    arrival: Arrival,
    nat_mode: Option<NatTraversalMode>,
}

impl Host {
    /// Handles an I1: answers it with an R1, without keeping state.
    pub(super) fn handle_i1(
        &mut self,
        now: Instant,
        i1: &HipPacket,
        packet: &Packet,
        arrival: Arrival,
    ) -> Result<(), Dropped> {
        let local = &mut self.local;
        if i1.receiver == Hit::UNSPECIFIED && !local.config.opportunistic {
            return Err(Dropped::Policy);
        }
        if i1.sender.suite().is_none() {
            return Err(Dropped::Suite);
        }
        if !self.invitations.is_any_open(now) {
            self.check_policy(i1.sender)?;
        }
        let local = &mut self.local;
        if let Some(association) = self.associations.get(&i1.sender) {
            // Both hosts have begun: the one with the greater HIT is the responder (RFC 7401 section 6.7, step 3). If this host's I1 has had
            // no answer, the initiator may be unreachable for it, as behind a translator.
            let state = association.state;
            let is_unanswered = association.pending.as_ref().is_some_and(Pending::is_sent_again);
            if state == State::I1Sent && !is_unanswered && local.hit < i1.sender {
                return Err(Dropped::State { state });
            }
        }
        let offered = find!(i1, DhGroupList).ok_or(missing(kind::DH_GROUP_LIST))?;
        // From a rendezvous server: answered to the initiator's address. From a relay: answered through it.
        let met = arrival.via.filter(|via| !via.is_relay);
        let from = met.map_or(packet.src, |via| via.from.0);
        let own = if met.is_some() { local.source_for(from).ok_or(Dropped::NotForUs)? } else { packet.dst };
        let seen_at = arrival.via.map_or(packet.src, |via| via.from.0);
        let mut r1 = self.responder.answer(local, now, i1.sender, (from, own), seen_at, offered)?;
        if let Some(via) = met {
            r1.push(&Parameter::ViaRvs(vec![map(via.at)]))?;
        }
        local.send_from(&r1, own, from);
        Ok(())
    }

    /// Handles an I2: if every check passes, establishes the association and answers with R2.
    pub(super) fn handle_i2(
        &mut self,
        now: Instant,
        i2: &Received,
        packet: &Packet,
        arrival: Arrival,
    ) -> Result<(), Dropped> {
        let peer = i2.packet.sender;
        if peer.suite().is_none() {
            return Err(Dropped::Suite);
        }
        let policy = self.check_policy(peer);
        if !self.invitations.is_any_open(now) {
            policy?;
        }
        let covered = i2.covered_before(kind::HIP_SIGNATURE).ok_or(missing(kind::HIP_SIGNATURE))?;
        if let Some(association) = self.associations.get_mut(&peer) {
            let state = association.state;
            if state == State::I2Sent && self.local.hit < peer {
                return Err(Dropped::State { state });
            }
            if association.answer_i2_again(&mut self.local, &covered) {
                return Ok(());
            }
        } else if self.associations.len() >= self.local.config.max_associations {
            return Err(Dropped::Overload);
        }
        let seen_at = arrival.via.map_or(packet.src, |via| via.from.0);
        let solved = self.responder.check(&self.local, now, &i2.packet, (packet.src, packet.dst), seen_at)?;
        let newer_than = self.associations.get(&peer).and_then(|association| association.newer_than);
        if newer_than.is_some_and(|at| solved.issued_at <= at) {
            // The exchange began before that of the association: it was delayed, or is a replay.
            return Err(Dropped::Stale);
        }
        // Before Diffie-Hellman: a stranger without the secret causes no more work than one I2's puzzle.
        let invitation = self.invitations.find(now, &i2.packet, self.local.hit);
        if invitation.is_none() {
            policy?;
        }
        let accepted = match accept(&self.local, i2, solved) {
            Ok(accepted) => accepted,
            Err(error) => {
                // Its puzzle is solved (RFC 7401 section 6.9.1).
                self.local.notify_error(now, peer, &error, (packet.dst, packet.src))?;
                return Err(error);
            }
        };
        let nat_mode = self.check_nat_mode(now, i2, packet, arrival)?;
        let origin = Origin { between: (packet.dst, packet.src), arrival, nat_mode };
        let association = self.associations.entry(peer).or_insert_with(|| Association::new(peer));
        association.become_responder(&mut self.local, now, accepted, i2, origin)?;
        if let Some(via) = arrival.via {
            association.note_relay(&mut self.local, now, &via);
        }
        if let Some((invitation, data)) = invitation {
            self.invitations.remove(invitation);
            association.is_configured = true;
            self.local.events.push_back(Event::Joined { peer, invitation, data });
        }
        Ok(())
    }

    /// The NAT traversal mode of an I2. One that may not be selected ends the exchange, with a NOTIFY (RFC 9028 sections 4.3 and 4.7.2).
    fn check_nat_mode(
        &mut self,
        now: Instant,
        i2: &Received,
        packet: &Packet,
        arrival: Arrival,
    ) -> Result<Option<NatTraversalMode>, Dropped> {
        let mode = connectivity::named(&self.local.config, &i2.packet, arrival);
        if mode.is_err() {
            let kind = NotifyType::NO_VALID_NAT_TRAVERSAL_MODE_PARAMETER;
            self.local.notify_refusal(now, i2.packet.sender, i2, kind, (packet.dst, packet.src))?;
        }
        mode
    }

    /// Whether the peer may open an association without an invitation.
    fn check_policy(&self, peer: Hit) -> Result<(), Dropped> {
        let is_known = self.associations.get(&peer).is_some_and(|association| association.is_configured);
        if is_known || self.local.config.accept_unknown_peers { Ok(()) } else { Err(Dropped::Policy) }
    }
}

impl Association {
    /// A retransmission of the accepted I2: resends its R2, to the peer's current address.
    fn answer_i2_again(&mut self, local: &mut Local, covered: &[u8]) -> bool {
        let secured = self.secured.as_ref().filter(|_| matches!(self.state, State::R2Sent | State::Established));
        let answered = secured.and_then(|secured| secured.answered.as_ref());
        let Some((_, r2)) = answered.filter(|(i2, _)| i2 == covered) else { return false };
        if let Some(dst) = self.best_for_control(local) {
            local.send(r2, dst);
        }
        true
    }

    /// Replaces any other association by that of the accepted I2.
    fn become_responder(
        &mut self,
        local: &mut Local,
        now: Instant,
        accepted: Accepted,
        i2: &Received,
        origin: Origin,
    ) -> Result<(), Dropped> {
        let Origin { between, arrival, nat_mode } = origin;
        let has_checks = nat_mode == Some(NatTraversalMode::IceHipUdp);
        let Accepted { identity, mut keys, issued_at, spi: peer_spi, locators } = accepted;
        let covered = i2.covered_before(kind::HIP_SIGNATURE).ok_or(missing(kind::HIP_SIGNATURE))?;
        let (esp_out, esp_in) = EspKeys::draw(keys.suite, &keys.keymat, keys.index, local.hit, self.peer)?;
        let echo = find!(i2.packet, EchoRequestSigned).cloned().map(Parameter::EchoResponseSigned);
        // Before the former association ends.
        local.room_for_candidates(HEADER_LEN + LONGEST_ANSWERS, &echo).ok_or(Dropped::TooLong)?;
        self.abandon_exchange(local);
        self.forget_keys(local);
        let spi = local.allocate_spi(self.peer);
        let mut r2 = Builder::new(PacketType::R2, local.hit, self.peer);
        r2.push(&Parameter::EspInfo(EspInfo { keymat_index: keys.index as u16, old_spi: 0, new_spi: spi }))?;
        let mut answers = self.registration_answers(local, now, &i2.packet, between, arrival);
        answers.extend(echo);
        if has_checks {
            let room = local.room_for_candidates(r2.wire_len(), &answers).unwrap_or_default();
            answers.extend(connectivity::offer(local, &keys, spi, room, None)?);
        }
        answers.sort_by_key(Parameter::kind);
        for answer in &answers {
            r2.push(answer)?;
        }
        let mac = keys.rhash.mac(&keys.outbound.integrity, &r2.covered_by_mac_2(&local.host_id)?);
        r2.push(&Parameter::HipMac2(Bytes::from(mac)))?;
        local.sign(&mut r2)?;
        push_echoes(&mut r2, unsigned_echoes(&i2.packet));
        keys.index += keys.suite.keymat_len();
        self.secured = Some(Box::new(Secured {
            identity,
            keys,
            outbound: Outbound::new(peer_spi, esp_out, local.config.gcm, local.hit, self.peer),
            inbound: Inbound::new(spi, esp_in, local.config.gcm, local.hit, self.peer),
            old_inbound: None,
            replaced_spi: 0,
            keyed_at: now,
            answered: Some((covered, r2.clone())),
            close_nonce: None,
        }));
        (self.newer_than, self.used_at, self.heard_at) = (Some(issued_at), now, now);
        self.peer_addresses.begin(between.1);
        self.reachability.reset();
        self.updates.begin(between.0);
        self.enter(State::R2Sent, Some(now + local.config.exchange_complete));
        local.send_from(&r2, between.0, between.1);
        local.events.push_back(Event::Established { peer: self.peer, initiator: false });
        self.begin_client(local, now, Offered::Before, None);
        if has_checks {
            let ta = connectivity::ta(&local.config, &i2.packet);
            self.begin_checks(local, now, false, ta, &locators);
        }
        self.announce_if_moved(local, now);
        Ok(())
    }
}

/// Checks an I2 whose puzzle is solved, cheap checks first (RFC 7401 section 6.9).
fn accept(local: &Local, i2: &Received, solved: Solved<'_>) -> Result<Accepted, Dropped> {
    let (packet, peer) = (&i2.packet, i2.packet.sender);
    let cipher = chosen(find!(packet, HipCipher), kind::HIP_CIPHER, |id| {
        HipCipher::from_id(id).filter(|cipher| local.config.ciphers.contains(cipher))
    })?;
    let suite = chosen(find!(packet, EspTransform), kind::ESP_TRANSFORM, |id| {
        EspSuite::from_id(id).filter(|suite| local.config.suites.contains(suite))
    })?;
    let formats = find!(packet, TransportFormatList).ok_or(missing(kind::TRANSPORT_FORMAT_LIST))?;
    if formats.first() != Some(&kind::ESP_TRANSFORM) {
        return Err(value(kind::TRANSPORT_FORMAT_LIST));
    }
    let info = *find!(packet, EspInfo).ok_or(missing(kind::ESP_INFO))?;
    let solution = find!(packet, Solution).ok_or(missing(kind::SOLUTION))?;
    let secret = solved.pair.agree(solved.public)?;
    let rhash = local.keys.identity().algorithm().suite().rhash();
    let keymat = Keymat::new(rhash, secret, local.hit, peer, &solution.random, &solution.solution);
    let (outbound, inbound, index) = keymat.hip_keys(cipher, local.hit, peer)?;
    if usize::from(info.keymat_index) != index || info.new_spi <= LAST_RESERVED_SPI || info.old_spi != 0 {
        return Err(value(kind::ESP_INFO));
    }
    verify_mac(i2, rhash, &inbound)?;
    // ENCRYPTED has HOST_ID or other parameters (RFC 9028 section 4.3: LOCATOR_SET).
    let hidden = decrypted(packet, cipher, &inbound)?;
    let (hidden, others): (Vec<Parameter>, Vec<Parameter>) =
        hidden.into_iter().partition(|parameter| matches!(parameter, Parameter::HostId(_)));
    let locators = others.into_iter().find_map(|it| if let Parameter::LocatorSet(it) = it { Some(it) } else { None });
    let hidden = HipPacket { parameters: hidden, ..HipPacket::new(PacketType::I2, peer, local.hit) };
    let identity = read_identity(if hidden.parameters.is_empty() { packet } else { &hidden }, peer)?;
    verify_signature(i2, &identity)?;
    let (group, pair, public) = (solved.pair.group(), Arc::clone(solved.pair), solved.public.clone());
    let keys = SessionKeys { rhash, suite, group, cipher, pair, public, keymat, index, outbound, inbound };
    let issued_at = solved.issued_at;
    Ok(Accepted { identity, keys, issued_at, spi: info.new_spi, locators: locators.unwrap_or_default() })
}

/// The one choice of an I2, if it was offered.
fn chosen<T>(ids: Option<&Vec<u16>>, kind: u16, read: impl Fn(u16) -> Option<T>) -> Result<T, Dropped> {
    let ids = ids.ok_or(missing(kind))?;
    ids.first().filter(|_| ids.len() == 1).and_then(|&id| read(id)).ok_or(value(kind))
}
