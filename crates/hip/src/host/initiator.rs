//! The initiator's half of the base exchange: I1, R1, I2, R2 (RFC 7401 sections 6.6, 6.8 and 6.10).

use std::sync::Arc;

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::Instant;

use super::association::{Association, Offer, Prospect, Secured, SessionKeys, Solving};
use super::client::Offered;
use super::local::{
    LAST_RESERVED_SPI, Local, decrypted, find, missing, push_echoes, unsigned_echoes, value, verify_signature,
};
use super::{Arrival, CommandError, Dropped, Event, Failure, Host, State, connectivity};
use crate::codec::{
    Builder, EspInfo, HipPacket, Locator, NatTraversalMode, PacketType, Parameter, Received, Solution, kind,
};
use crate::crypto::{DhGroup, DhKeyPair, HipCipher, Keymat, PuzzleSearch, puzzle_lifetime};
use crate::esp::{EspKeys, EspSuite, Inbound, Outbound};
use crate::identity::{Hit, HostIdentity};

/// The most R1s that one exchange answers, as puzzles expire.
const R1S: u8 = 4;
/// A receiver ignores further ciphers in HIP_CIPHER (RFC 7401 section 5.2.8).
const MOST_CIPHERS: usize = 6;

impl Host {
    /// Sends an I1 between two addresses to a peer that may be there, and begins an exchange unless one has begun: a packet of an association
    /// that this host does not have came from there. The address is not kept, as the packet may be forged.
    ///
    /// # Errors
    ///
    /// [`CommandError::State`] if there is an association, or R1 has arrived; [`CommandError::NoAddress`] for a peer that is not configured.
    pub fn call_back(&mut self, now: Instant, peer: Hit, between: (IpAddr, IpAddr)) -> Result<(), CommandError> {
        let association = self.associations.get_mut(&peer).filter(|association| association.is_configured);
        association.ok_or(CommandError::NoAddress { peer })?.call_back(&mut self.local, now, between)
    }
}

impl Association {
    /// Begins an exchange.
    pub(super) fn connect(&mut self, local: &mut Local, now: Instant) -> Result<(), CommandError> {
        match self.state {
            State::Unassociated | State::Closing | State::Closed | State::EFailed => {}
            state => return Err(CommandError::State { state }),
        }
        if self.peer.suite().is_none() {
            return Err(CommandError::Suite { peer: self.peer });
        }
        if self.best_for_control(local).is_none() {
            return Err(CommandError::NoAddress { peer: self.peer });
        }
        if self.state == State::Closing {
            // RFC 7401 section 4.4.3, table 7. The CLOSE is not acknowledged.
            local.events.push_back(Event::Closed { peer: self.peer });
        }
        self.abandon_exchange(local);
        self.forget_keys(local);
        self.accepts_lower_r1 = core::mem::take(&mut self.has_lower_r1);
        self.begin_anew(local, now);
        Ok(())
    }

    /// Sends I1 between two addresses, and begins an exchange unless one has begun.
    pub(super) fn call_back(
        &mut self,
        local: &mut Local,
        now: Instant,
        (src, dst): (IpAddr, IpAddr),
    ) -> Result<(), CommandError> {
        match self.state {
            // Retransmissions go to the peer's known addresses, if there are any.
            State::Unassociated | State::EFailed => {
                self.forget_keys(local);
                self.accepts_lower_r1 = core::mem::take(&mut self.has_lower_r1);
                self.begin_anew(local, now);
                if self.best_for_control(local) == Some(dst) {
                    return Ok(());
                }
            }
            State::I1Sent if self.solving.is_none() => {}
            state => return Err(CommandError::State { state }),
        }
        let i1 = i1(local, self.peer);
        local.send_from(&i1, src, dst);
        Ok(())
    }

    /// Sends I1, with all R1s of an exchange left to answer.
    pub(super) fn begin_anew(&mut self, local: &mut Local, now: Instant) {
        self.r1s_left = R1S;
        self.begin(local, now);
    }

    /// Sends I1.
    pub(super) fn begin(&mut self, local: &mut Local, now: Instant) {
        self.abandon_exchange(local);
        self.enter(State::I1Sent, None);
        let i1 = i1(local, self.peer);
        self.send_pending(local, now, PacketType::I1, i1, None);
    }

    /// Handles an R1: checks it, and starts on its puzzle. RFC 7401 section 6.8.
    pub(super) fn handle_r1(
        &mut self,
        local: &mut Local,
        now: Instant,
        r1: &Received,
        between: (IpAddr, IpAddr),
        arrival: Arrival,
    ) -> Result<(), Dropped> {
        if !matches!(self.state, State::I1Sent | State::I2Sent) {
            return Err(Dropped::State { state: self.state });
        }
        let random = find!(r1.packet, Puzzle).map(|puzzle| &puzzle.random);
        let is_known = |offer: &Offer| Some(&offer.random) == random;
        if self.solving.as_ref().is_some_and(|solving| is_known(&solving.offer))
            || self.prospect.as_ref().is_some_and(|prospect| is_known(&prospect.offer))
            || self.r1s_left == 0
        {
            return Err(Dropped::Stale);
        }
        let identity = identity_of_r1(r1, self.peer)?;
        // An R1 of an earlier generation is a replay, unless the peer's counter was reset (RFC 7401 section 4.1.4). In I2-SENT only a newer
        // one is of use, unless this host has asked for one (section 6.8).
        let counter = find!(r1.packet, R1Counter).map(|it| it.counter);
        let has_asked = self.pending.as_ref().is_some_and(|pending| pending.kind == PacketType::I1);
        let is_new = self.state == State::I1Sent || has_asked || counter.is_some_and(|it| it > self.r1_counter);
        let is_lower = counter.is_some_and(|counter| counter < self.r1_counter);
        if !is_new || is_lower && !self.accepts_lower_r1 {
            self.has_lower_r1 |= is_new;
            return Err(Dropped::Stale);
        }
        let offer = match choose(local, now, r1, identity, between, arrival) {
            Ok(offer) => offer,
            // The R1 is authentic: waiting for another one is useless.
            Err(Dropped::Failure(reason)) => {
                self.fail(local, now, reason);
                return Err(Dropped::Failure(reason));
            }
            Err(dropped) => return Err(dropped),
        };
        self.r1_counter = counter.unwrap_or(self.r1_counter);
        (self.has_lower_r1, self.accepts_lower_r1) = (false, false);
        self.r1s_left -= 1;
        let (hit, peer, random) = (local.hit, self.peer, offer.random.clone());
        let search = PuzzleSearch::new(offer.rhash, offer.difficulty, random, hit, peer, &mut *local.rng);
        if self.state == State::I1Sent {
            self.pending = None;
        }
        self.solving = Some(Solving { search, offer, at: now });
        self.solve(local, now)
    }

    /// A bounded number of attempts at the puzzle; sends I2 when it is solved.
    pub(super) fn solve(&mut self, local: &mut Local, now: Instant) -> Result<(), Dropped> {
        let Some(solving) = &mut self.solving else { return Ok(()) };
        let Some(solution) = solving.search.search(local.config.attempts_per_slice) else {
            solving.at = now;
            if now >= solving.offer.expires_at {
                let difficulty = solving.offer.difficulty;
                self.solving = None;
                if self.r1s_left == 0 {
                    self.fail(local, now, Failure::TooDifficult { difficulty });
                    return Ok(());
                }
                // A fresh puzzle is due.
                self.begin(local, now);
            }
            return Ok(());
        };
        let Some(Solving { offer, .. }) = self.solving.take() else { return Ok(()) };
        self.abandon_exchange(local);
        let sent = self.send_i2(local, now, offer, solution);
        if sent.is_err() {
            // An invalid Diffie-Hellman value, from the peer itself.
            self.fail(local, now, Failure::Unusable);
        }
        sent
    }

    fn send_i2(&mut self, local: &mut Local, now: Instant, offer: Offer, solution: Bytes) -> Result<(), Dropped> {
        let pair = DhKeyPair::generate(offer.group, &mut *local.rng);
        let secret = pair.agree(&offer.public)?;
        let keymat = Keymat::new(offer.rhash, secret, local.hit, self.peer, &offer.random, &solution);
        let (outbound, inbound, index) = keymat.hip_keys(offer.cipher, local.hit, self.peer)?;
        let (rhash, suite, group, cipher) = (offer.rhash, offer.suite, offer.group, offer.cipher);
        let (own_public, pair, public) = (pair.public(), Arc::new(pair), offer.public.clone());
        let keys = SessionKeys { rhash, suite, group, cipher, pair, public, keymat, index, outbound, inbound };
        let spi = local.allocate_spi(self.peer);
        let mut i2 = Builder::new(PacketType::I2, local.hit, self.peer);
        i2.push(&Parameter::EspInfo(EspInfo { keymat_index: index as u16, old_spi: 0, new_spi: spi }))?;
        if let Some(counter) = offer.counter {
            i2.push(&Parameter::R1Counter(counter))?;
        }
        let (difficulty, opaque, random) = (offer.difficulty, offer.opaque, offer.random.clone());
        i2.push(&Parameter::Solution(Solution {
            difficulty,
            opaque,
            random: random.clone(),
            solution: solution.clone(),
        }))?;
        i2.push(&Parameter::DiffieHellman { group: offer.group.id(), public: own_public })?;
        i2.push(&Parameter::HipCipher(vec![offer.cipher.id()]))?;
        if let Some(mode) = offer.nat_mode {
            i2.push(&Parameter::NatTraversalMode(vec![mode.id()]))?;
        }
        let has_checks = offer.nat_mode == Some(NatTraversalMode::IceHipUdp);
        if let Some(pacing) = connectivity::pacing_parameter(offer.ta).filter(|_| has_checks) {
            i2.push(&pacing)?;
        }
        let host_id = Parameter::HostId(local.host_id.clone());
        let hidden = Some(&host_id).filter(|_| local.config.hide_identity && offer.cipher != HipCipher::Null);
        let presented = self.presented.as_ref().map(|it| it.parameter(local.hit, self.peer, &random, &solution));
        let echo = offer.echo_signed.clone().map(Parameter::EchoResponseSigned);
        let room = local.room_for_candidates(i2.wire_len(), presented.iter().chain(&echo)).filter(|_| has_checks);
        let room = room.unwrap_or_default();
        if let Some(encrypted) = connectivity::offer(local, &keys, spi, room, hidden)? {
            i2.push(&encrypted)?;
        }
        if hidden.is_none() {
            i2.push(&host_id)?;
        }
        let request = self.client.as_ref().and_then(|client| client.request_from(offer.services.as_ref()));
        let has_requested = request.is_some();
        if let Some(request) = request {
            i2.push(&Parameter::RegRequest(request))?;
        }
        if let Some(echo) = &echo {
            i2.push(echo)?;
        }
        i2.push(&Parameter::TransportFormatList(vec![kind::ESP_TRANSFORM]))?;
        i2.push(&Parameter::EspTransform(vec![offer.suite.id()]))?;
        if let Some(presented) = &presented {
            i2.push(presented)?;
        }
        local.authenticate(&mut i2, keys.rhash, &keys.outbound)?;
        push_echoes(&mut i2, &offer.echo_unsigned);
        let between = offer.between;
        self.prospect = Some(Box::new(Prospect { offer, keys, spi, has_requested }));
        self.enter(State::I2Sent, None);
        self.send_pending(local, now, PacketType::I2, i2, Some(between));
        Ok(())
    }

    /// Handles an R2: the exchange is complete. RFC 7401 section 6.10.
    pub(super) fn handle_r2(
        &mut self,
        local: &mut Local,
        now: Instant,
        r2: &Received,
        arrival: Arrival,
    ) -> Result<(), Dropped> {
        let state = self.state;
        let prospect = self.prospect.as_ref().filter(|_| state == State::I2Sent).ok_or(Dropped::State { state })?;
        let (offer, keys) = (&prospect.offer, &prospect.keys);
        let mac = find!(r2.packet, HipMac2).ok_or(missing(kind::HIP_MAC_2))?;
        let covered = r2.covered_by_mac_2(&offer.host_id).ok_or(missing(kind::HIP_MAC_2))?;
        if !keys.rhash.verify_mac(&keys.inbound.integrity, &covered, mac) {
            return Err(Dropped::Mac);
        }
        verify_signature(r2, &offer.identity)?;
        let info = find!(r2.packet, EspInfo).ok_or(missing(kind::ESP_INFO))?;
        if usize::from(info.keymat_index) != keys.index || info.new_spi <= LAST_RESERVED_SPI {
            return Err(value(kind::ESP_INFO));
        }
        let new_spi = info.new_spi;
        let Some(prospect) = self.prospect.take() else { return Ok(()) };
        let Prospect { offer, mut keys, spi, has_requested } = *prospect;
        let candidates = peer_candidates(&r2.packet, &offer, &keys);
        let (esp_out, esp_in) = EspKeys::draw(keys.suite, &keys.keymat, keys.index, local.hit, self.peer)?;
        keys.index += keys.suite.keymat_len();
        self.forget_keys(local);
        self.secured = Some(Box::new(Secured {
            identity: offer.identity.clone(),
            keys,
            outbound: Outbound::new(new_spi, esp_out, local.config.gcm, local.hit, self.peer),
            inbound: Inbound::new(spi, esp_in, local.config.gcm, local.hit, self.peer),
            old_inbound: None,
            replaced_spi: 0,
            keyed_at: now,
            answered: None,
            close_nonce: None,
        }));
        // Also another R1 of the peer, whose puzzle is being solved.
        (self.pending, self.solving) = (None, None);
        (self.newer_than, self.used_at, self.heard_at) = (Some(now), now, now);
        self.peer_addresses.begin(offer.between.1);
        self.reachability.reset();
        self.updates.begin(offer.between.0);
        self.presented = None;
        self.enter(State::Established, None);
        local.events.push_back(Event::Established { peer: self.peer, initiator: true });
        let offered = Offered::InR1(offer.services.clone());
        let answers = has_requested.then_some((&r2.packet, offer.between));
        self.begin_client(local, now, offered, answers);
        self.offer_services(local, now);
        if let Some(candidates) = candidates {
            self.begin_checks(local, now, true, offer.ta, &candidates);
        }
        if let Some(via) = arrival.via {
            self.note_relay(local, now, &via);
        }
        self.announce_if_moved(local, now);
        Ok(())
    }
}

/// The peer's candidates in an R2; `None` if the exchange has no connectivity checks.
fn peer_candidates(r2: &HipPacket, offer: &Offer, keys: &SessionKeys) -> Option<Vec<Locator>> {
    offer.nat_mode.filter(|mode| *mode == NatTraversalMode::IceHipUdp)?;
    // R2 is authentic: with candidates that cannot be read, those of the peer's checks are left.
    let hidden = decrypted(r2, keys.cipher, &keys.inbound).unwrap_or_default();
    let locators = hidden.into_iter().find_map(|it| if let Parameter::LocatorSet(it) = it { Some(it) } else { None });
    Some(locators.unwrap_or_default())
}

/// An I1.
pub(super) fn i1(local: &Local, peer: Hit) -> Builder {
    let mut i1 = Builder::new(PacketType::I1, local.hit, peer);
    let groups = local.config.groups.iter().map(|group| group.id()).collect();
    // A list of at most 256 numbers always fits.
    let _ = i1.push(&Parameter::DhGroupList(groups));
    i1
}

/// The identity in an R1, if it is that of `hit` and has signed the R1.
pub(super) fn identity_of_r1(r1: &Received, hit: Hit) -> Result<HostIdentity, Dropped> {
    let identity = read_identity(&r1.packet, hit)?;
    let signature = find!(r1.packet, HipSignature2).ok_or(missing(kind::HIP_SIGNATURE_2))?;
    let covered = r1.covered_by_signature_2().ok_or(missing(kind::HIP_SIGNATURE_2))?;
    if identity.verify(&covered, signature) { Ok(identity) } else { Err(Dropped::Signature) }
}

/// The identity in HOST_ID, if it is that of `hit`.
pub(super) fn read_identity(packet: &HipPacket, hit: Hit) -> Result<HostIdentity, Dropped> {
    let host_id = find!(packet, HostId).ok_or(missing(kind::HOST_ID))?;
    let identity = HostIdentity::from_host_id(host_id)?;
    if identity.hit() == hit { Ok(identity) } else { Err(Dropped::WrongHit) }
}

/// Chooses what both hosts support, as the responder prefers.
fn choose(
    local: &Local,
    now: Instant,
    r1: &Received,
    identity: HostIdentity,
    between: (IpAddr, IpAddr),
    arrival: Arrival,
) -> Result<Offer, Dropped> {
    let (packet, config) = (&r1.packet, &local.config);
    let none = |kind| Dropped::Failure(Failure::NoCommon { kind });
    let groups = find!(packet, DhGroupList).ok_or(missing(kind::DH_GROUP_LIST))?;
    let dh = packet.find(|parameter| {
        if let Parameter::DiffieHellman { group, public } = parameter { Some((*group, public.clone())) } else { None }
    });
    let (group, public) = dh.ok_or(missing(kind::DIFFIE_HELLMAN))?;
    // An attacker who changes the group list of an I1 would make the responder choose a weaker group: R1 shows it
    // (section 6.8, step 7).
    let best = groups.iter().filter_map(|&id| DhGroup::from_id(id)).find(|group| config.groups.contains(group));
    let best = best.ok_or(none(kind::DH_GROUP_LIST))?;
    if best.id() != group {
        return Err(value(kind::DIFFIE_HELLMAN));
    }
    let suites = find!(packet, HitSuiteList).ok_or(missing(kind::HIT_SUITE_LIST))?;
    if !suites.contains(&local.keys.identity().algorithm().suite().wire_id()) {
        return Err(none(kind::HIT_SUITE_LIST));
    }
    let formats = find!(packet, TransportFormatList).ok_or(missing(kind::TRANSPORT_FORMAT_LIST))?;
    if !formats.contains(&kind::ESP_TRANSFORM) {
        return Err(none(kind::TRANSPORT_FORMAT_LIST));
    }
    let ciphers = find!(packet, HipCipher).ok_or(missing(kind::HIP_CIPHER))?;
    let cipher = ciphers
        .iter()
        .take(MOST_CIPHERS)
        .filter_map(|&id| HipCipher::from_id(id))
        .find(|it| config.ciphers.contains(it));
    let transforms = find!(packet, EspTransform).ok_or(missing(kind::ESP_TRANSFORM))?;
    let suite = transforms.iter().filter_map(|&id| EspSuite::from_id(id)).find(|it| config.suites.contains(it));
    let puzzle = find!(packet, Puzzle).ok_or(missing(kind::PUZZLE))?;
    let rhash = identity.algorithm().suite().rhash();
    if puzzle.random.len() != rhash.output_len() {
        return Err(value(kind::PUZZLE));
    }
    if puzzle.difficulty > config.max_difficulty {
        return Err(Failure::TooDifficult { difficulty: puzzle.difficulty }.into());
    }
    Ok(Offer {
        between,
        identity,
        host_id: find!(packet, HostId).cloned().ok_or(missing(kind::HOST_ID))?,
        counter: find!(packet, R1Counter).copied(),
        difficulty: puzzle.difficulty,
        opaque: puzzle.opaque,
        random: puzzle.random.clone(),
        expires_at: now + puzzle_lifetime(puzzle.lifetime),
        rhash,
        group: best,
        public,
        cipher: cipher.ok_or(none(kind::HIP_CIPHER))?,
        suite: suite.ok_or(none(kind::ESP_TRANSFORM))?,
        nat_mode: connectivity::select(config, packet, arrival),
        ta: connectivity::ta(config, packet),
        services: find!(packet, RegInfo).cloned(),
        echo_signed: find!(packet, EchoRequestSigned).cloned(),
        echo_unsigned: unsigned_echoes(packet).cloned().collect(),
    })
}
