//! Rekeying (RFC 7402 sections 6.8 to 6.10): both hosts announce a new SPI and the index of its keys in the keying
//! material, or send new Diffie-Hellman values for new material.

use std::sync::Arc;

use bytes::Bytes;
use holdover_base::{Duration, Instant};

use super::association::{Association, Secured};
use super::in_flight::{Outgoing, Rekey};
use super::local::{LAST_RESERVED_SPI, Local, find, value};
use super::{CommandError, Dropped, Event, RekeyLimits};
use crate::codec::{EspInfo, HipPacket, Parameter, kind};
use crate::crypto::{DhKeyPair, KeymatError};
use crate::esp::{EspKeys, Inbound, Outbound};

/// After a change of keys was given up, the time until this host begins another one by itself.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(60);

impl RekeyLimits {
    /// The limits of the host that waits longer.
    fn extended(self) -> Self {
        let more = |limit: u64| limit.saturating_add(limit / 8);
        Self { packets: more(self.packets), bytes: more(self.bytes), age: self.age + self.age / 8, ..self }
    }
}

impl Association {
    /// When this host changes the keys by itself; in the past if they are used up.
    pub(super) fn rekey_at(&self, local: &Local) -> Option<Instant> {
        let limits = local.config.rekey?;
        let limits = if local.hit > self.peer { limits } else { limits.extended() };
        let secured = self.secured.as_ref().filter(|_| self.is_usable() && self.updates.rekey.is_none())?;
        let (outbound, inbound) = (&secured.outbound, &secured.inbound);
        let packets = outbound.packets().max(inbound.greatest());
        let is_used_up = packets >= limits.packets || outbound.bytes().max(inbound.bytes()) >= limits.bytes;
        let at = if is_used_up { secured.keyed_at } else { secured.keyed_at + limits.age };
        (packets > 0).then(|| self.updates.no_rekey_before.map_or(at, |before| at.max(before)))
    }

    /// Whether nothing may be sent with the keys any more.
    pub(super) fn is_worn_out(&self, local: &Local) -> bool {
        local.config.rekey.zip(self.secured.as_ref()).is_some_and(|(limits, secured)| {
            let is_beyond = |used: u64, limit: u64| used >= limit.saturating_mul(2);
            is_beyond(secured.outbound.packets(), limits.packets) || is_beyond(secured.outbound.bytes(), limits.bytes)
        })
    }

    /// Changes the keys if due.
    pub(super) fn rekey_if_due(&mut self, local: &mut Local, now: Instant) {
        let Some(limits) = local.config.rekey else { return };
        if self.rekey_at(local).is_none_or(|at| at > now) {
            return;
        }
        let begun = self.rekey(local, now, limits.new_dh);
        if begun.is_err() {
            // The keying material is used up; new material has no precondition.
            let _ = self.rekey(local, now, true);
        }
    }

    /// Begins a change of keys: from the same material, or with new Diffie-Hellman values.
    pub(super) fn rekey(&mut self, local: &mut Local, now: Instant, new_dh: bool) -> Result<(), CommandError> {
        let state = self.state;
        let secured = self.secured.as_ref().filter(|_| self.is_usable()).ok_or(CommandError::State { state })?;
        if self.updates.rekey.is_some() {
            return Ok(());
        }
        let keys = &secured.keys;
        let (needed, available) = (keys.index + keys.suite.keymat_len(), keys.keymat.capacity());
        if !new_dh && needed > available {
            return Err(KeymatError { needed, available }.into());
        }
        let pair = new_dh.then(|| Arc::new(DhKeyPair::generate(keys.group, &mut *local.rng)));
        let index = if new_dh { 0 } else { keys.index as u16 };
        let id = self.updates.next_id();
        let (outgoing, new_spi) = (Outgoing::new(local, now, id), local.allocate_spi(self.peer));
        self.updates.rekey = Some(Rekey { outgoing, new_spi, index, pair, is_acknowledged: false, ready: None });
        // A failed transmission is repaired by a retransmission.
        let _ = self.send_rekey(local, id, 0, None);
        Ok(())
    }

    /// This host's SPI that the peer is known to use: the former one until the peer has acknowledged a change.
    fn current_spi(&self, secured: &Secured) -> u32 {
        let is_open = self.updates.rekey_in_doubt || self.updates.rekey.as_ref().is_some_and(|it| it.ready.is_some());
        let old = secured.old_inbound.as_ref().map(|(_, old)| old.spi()).filter(|_| is_open);
        old.unwrap_or(secured.inbound.spi())
    }

    /// ESP_INFO that changes nothing. The index of the keying material is 0 only for new material (RFC 7402 section 5.1.1).
    pub(super) fn current_keys(&self) -> Option<EspInfo> {
        let secured = self.secured.as_ref()?;
        let spi = self.current_spi(secured);
        Some(EspInfo { keymat_index: secured.keys.index as u16, old_spi: spi, new_spi: spi })
    }

    fn rekey_parameters(&self, id: u32) -> Vec<Parameter> {
        let (Some(rekey), Some(secured)) = (&self.updates.rekey, &self.secured) else { return Vec::new() };
        // The peer may know either SPI if a change was given up: it is asked for a new one (RFC 8046 section 5.3, case 3).
        let old_spi = if self.updates.rekey_in_doubt { 0 } else { self.current_spi(secured) };
        let info = EspInfo { keymat_index: rekey.index, old_spi, new_spi: rekey.new_spi };
        let mut parameters = vec![Parameter::EspInfo(info), Parameter::Seq(id)];
        if let Some(pair) = &rekey.pair {
            parameters.push(Parameter::DiffieHellman { group: pair.group().id(), public: pair.public() });
        }
        parameters
    }

    fn send_rekey(&mut self, local: &mut Local, id: u32, attempt: u32, ack: Option<u32>) -> Result<(), Dropped> {
        let mut parameters = self.rekey_parameters(id);
        parameters.extend(ack.map(|id| Parameter::Ack(vec![id])));
        let builder = self.update(local, parameters)?;
        if let Some((src, dst)) = self.control_path(local, attempt) {
            local.send_from(&builder, src, dst);
        }
        Ok(())
    }

    /// The peer's part of a change of keys, if the packet has one. The answer contains this host's part, unless it was sent already.
    pub(super) fn take_rekey(
        &mut self,
        local: &mut Local,
        now: Instant,
        packet: &HipPacket,
        answer: &mut Vec<Parameter>,
    ) -> Result<(), Dropped> {
        let Some(&info) = find!(packet, EspInfo) else { return Ok(()) };
        let Some(secured) = &self.secured else { return Ok(()) };
        let current = secured.outbound.spi();
        let next = self.updates.rekey.as_ref().and_then(|rekey| rekey.ready.as_ref()).map(Outbound::spi);
        if [info.old_spi, current, next.unwrap_or(0)].contains(&info.new_spi) && info.new_spi != 0 {
            // Nothing changes, or the peer repeats a change that has been made.
            return Ok(());
        }
        // RFC 8046 section 5.3. The peer may not know yet that this host uses its current SPI.
        let is_known = [0, current, secured.replaced_spi].contains(&info.old_spi);
        if !is_known || info.new_spi <= LAST_RESERVED_SPI || next.is_some() {
            return Err(value(kind::ESP_INFO));
        }
        let dh = packet.find(|parameter| {
            if let Parameter::DiffieHellman { group, public } = parameter {
                Some((*group, public.clone()))
            } else {
                None
            }
        });
        let is_answer = self.updates.rekey.is_some();
        if !is_answer {
            let group = secured.keys.group;
            let pair = dh.as_ref().map(|_| Arc::new(DhKeyPair::generate(group, &mut *local.rng)));
            let index = if dh.is_some() { 0 } else { info.keymat_index.max(secured.keys.index as u16) };
            let id = self.updates.next_id();
            let (outgoing, new_spi) = (Outgoing::new(local, now, id), local.allocate_spi(self.peer));
            self.updates.rekey = Some(Rekey { outgoing, new_spi, index, pair, is_acknowledged: false, ready: None });
            answer.extend(self.rekey_parameters(id));
        }
        let installed = self.install(local, now, info, dh);
        if installed.is_err() && !is_answer {
            // Nothing was announced yet.
            if let Some(rekey) = self.updates.rekey.take() {
                local.spis.remove(&rekey.new_spi);
            }
        }
        installed?;
        self.finish_rekey(local);
        Ok(())
    }

    /// Derives the new keys, and accepts packets with them; sending with them waits for the acknowledgement.
    fn install(
        &mut self,
        local: &mut Local,
        now: Instant,
        info: EspInfo,
        dh: Option<(u8, Bytes)>,
    ) -> Result<(), Dropped> {
        let (Some(rekey), Some(secured)) = (&mut self.updates.rekey, &mut self.secured) else { return Ok(()) };
        let keys = &mut secured.keys;
        if dh.as_ref().is_some_and(|(group, _)| *group != keys.group.id() || info.keymat_index != 0) {
            return Err(value(kind::DIFFIE_HELLMAN));
        }
        let pair = rekey.pair.as_ref().unwrap_or(&keys.pair);
        let public = dh.as_ref().map_or(&keys.public, |(_, public)| public);
        let (keymat, index) = if rekey.pair.is_some() || dh.is_some() {
            (keys.keymat.rekeyed(pair.agree(public)?), 0)
        } else {
            (keys.keymat.clone(), usize::from(rekey.index.max(info.keymat_index)))
        };
        let (esp_out, esp_in) = EspKeys::draw(keys.suite, &keymat, index, local.hit, self.peer)?;
        (keys.pair, keys.public) = (Arc::clone(pair), public.clone());
        (keys.keymat, keys.index) = (keymat, index + keys.suite.keymat_len());
        secured.keyed_at = now;
        let inbound = Inbound::new(rekey.new_spi, esp_in, local.config.gcm, local.hit, self.peer);
        let old = core::mem::replace(&mut secured.inbound, inbound);
        let until = now + local.config.old_keys_hold;
        if let Some((_, oldest)) = secured.old_inbound.replace((until, old)) {
            local.spis.remove(&oldest.spi());
        }
        rekey.ready = Some(Outbound::new(info.new_spi, esp_out, local.config.gcm, local.hit, self.peer));
        Ok(())
    }

    /// Sends with the new keys, if both parts are complete and the peer has this host's part.
    pub(super) fn finish_rekey(&mut self, local: &mut Local) {
        let is_done = |rekey: &mut Rekey| rekey.is_acknowledged && rekey.ready.is_some();
        let Some(rekey) = self.updates.rekey.take_if(is_done) else { return };
        if let (Some(outbound), Some(secured)) = (rekey.ready, &mut self.secured) {
            secured.replaced_spi = secured.outbound.spi();
            secured.outbound = outbound;
            self.updates.rekey_in_doubt = false;
            local.events.push_back(Event::Rekeyed { peer: self.peer });
        }
    }

    /// The peer has returned: repeats a change of keys that one host may have completed, and the other has not. It
    /// brings new material, because that of the two hosts may differ by now.
    pub(super) fn rekey_again(&mut self, local: &mut Local, now: Instant) {
        if self.updates.rekey_in_doubt && self.updates.rekey.is_none() {
            // With keys that may be used, it cannot fail.
            let _ = self.rekey(local, now, true);
        }
    }

    pub(super) fn retransmit_rekey(&mut self, local: &mut Local, now: Instant) -> Result<(), Dropped> {
        let Some(mut rekey) = self.updates.rekey.take_if(|rekey| rekey.outgoing.at <= now) else { return Ok(()) };
        match rekey.outgoing.again(local, now, self.updates.own_ids()) {
            Some(id) => {
                let attempt = rekey.outgoing.attempts;
                self.updates.rekey = Some(rekey);
                self.send_rekey(local, id, attempt, None)
            }
            None => {
                // Packets with either key are accepted until the next change succeeds.
                if rekey.ready.is_none() {
                    local.spis.remove(&rekey.new_spi);
                }
                self.updates.rekey_in_doubt |= rekey.ready.is_some();
                self.updates.no_rekey_before = Some(now + TRY_AGAIN_AFTER);
                local.events.push_back(Event::GaveUp { peer: self.peer });
                Ok(())
            }
        }
    }
}
