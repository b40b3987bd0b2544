//! CLOSE and NOTIFY (RFC 7401 sections 6.13 to 6.15), and expiring states.

use core::net::IpAddr;

use bytes::Bytes;
use holdover_base::Instant;

use super::association::{Association, SessionKeys};
use super::initiator::i1;
use super::local::{Local, find, missing, push_echoes, unsigned_echoes, value, verify, verify_signature};
use super::{CommandError, Dropped, Event, Failure, State};
use crate::codec::{Builder, NotifyType, PacketType, Parameter, Received, kind};
use crate::identity::HostIdentity;

impl Association {
    /// Ends the association.
    pub(super) fn close(&mut self, local: &mut Local, now: Instant) -> Result<(), CommandError> {
        let state = self.state;
        if !self.is_usable() {
            return Err(CommandError::State { state });
        }
        let nonce: [u8; 16] = local.random();
        let Some(secured) = &mut self.secured else { return Err(CommandError::State { state }) };
        secured.close_nonce = Some(nonce);
        let mut close = Builder::new(PacketType::Close, local.hit, self.peer);
        let echo = Parameter::EchoRequestSigned(Bytes::copy_from_slice(&nonce));
        // A header, 16 bytes, a MAC and a signature always fit.
        let built =
            close.push(&echo).and_then(|()| local.authenticate(&mut close, secured.keys.rhash, &secured.keys.outbound));
        debug_assert!(built.is_ok(), "a CLOSE fits into a packet");
        for spi in self.updates.forget() {
            local.spis.remove(&spi);
        }
        self.enter(State::Closing, None);
        self.send_pending(local, now, PacketType::Close, close, None);
        Ok(())
    }

    /// Handles a CLOSE: confirms it, also a retransmission. In I2-SENT the peer has accepted the I2, and its R2 was lost (RFC 7401 section
    /// 4.4.3, table 4).
    pub(super) fn handle_close(
        &mut self,
        local: &mut Local,
        now: Instant,
        close: &Received,
        between: (IpAddr, IpAddr),
    ) -> Result<(), Dropped> {
        let state = self.state;
        let (keys, identity) = self.keys().ok_or(Dropped::State { state })?;
        verify(close, keys.rhash, &keys.inbound, identity)?;
        let echo = find!(close.packet, EchoRequestSigned).ok_or(missing(kind::ECHO_REQUEST_SIGNED))?;
        let mut ack = Builder::new(PacketType::CloseAck, local.hit, self.peer);
        ack.push(&Parameter::EchoResponseSigned(echo.clone()))?;
        local.authenticate(&mut ack, keys.rhash, &keys.outbound)?;
        push_echoes(&mut ack, unsigned_echoes(&close.packet));
        local.send_from(&ack, between.0, between.1);
        if state != State::Closed {
            // The keys stay, also those of an I2: the CLOSE may be repeated.
            (self.pending, self.solving) = (None, None);
            for spi in self.updates.forget() {
                local.spis.remove(&spi);
            }
            let hold = local.config.unused_lifetime + local.config.max_segment_lifetime * 2;
            self.enter(State::Closed, Some(now + hold));
            local.events.push_back(Event::Closed { peer: self.peer });
        }
        Ok(())
    }

    /// Handles a CLOSE_ACK: the association ends.
    pub(super) fn handle_close_ack(&mut self, local: &mut Local, now: Instant, ack: &Received) -> Result<(), Dropped> {
        let state = self.state;
        // In CLOSED if both hosts have sent CLOSE (RFC 7401 section 6.15).
        let is_expected = matches!(state, State::Closing | State::Closed);
        let secured = self.secured.as_ref().filter(|_| is_expected).ok_or(Dropped::State { state })?;
        verify(ack, secured.keys.rhash, &secured.keys.inbound, &secured.identity)?;
        let echo = find!(ack.packet, EchoResponseSigned).ok_or(missing(kind::ECHO_RESPONSE_SIGNED))?;
        if secured.close_nonce.is_none_or(|nonce| nonce[..] != echo[..]) {
            return Err(value(kind::ECHO_RESPONSE_SIGNED));
        }
        self.end(local, now);
        if state == State::Closing {
            local.events.push_back(Event::Closed { peer: self.peer });
        }
        Ok(())
    }

    /// Handles a NOTIFY: reports it to the owner if the signature is the peer's, unless it is a keep-alive. Never answered, and changes
    /// nothing, as it may be a replay (RFC 7401 section 5.3.6).
    pub(super) fn handle_notify(&self, local: &mut Local, notify: &Received) -> Result<(), Dropped> {
        let (_, identity) = self.keys().ok_or(Dropped::State { state: self.state })?;
        verify_signature(notify, identity)?;
        for parameter in &notify.packet.parameters {
            if let Parameter::Notification(notification) = parameter
                && notification.kind != NotifyType::NAT_KEEPALIVE
            {
                let notification = notification.clone();
                local.events.push_back(Event::Notified { peer: self.peer, notification });
            }
        }
        Ok(())
    }

    /// The keys of the association, or of an I2 that is not confirmed, and the peer's identity.
    fn keys(&self) -> Option<(&SessionKeys, &HostIdentity)> {
        let of_i2 = self.prospect.as_ref().map(|prospect| (&prospect.keys, &prospect.offer.identity));
        self.secured.as_ref().map(|secured| (&secured.keys, &secured.identity)).or(of_i2)
    }

    /// Back to UNASSOCIATED. The peer is remembered as long as an earlier I2 could be accepted.
    pub(super) fn end(&mut self, local: &mut Local, now: Instant) {
        self.abandon_exchange(local);
        self.forget_keys(local);
        self.enter(State::Unassociated, Some(now + local.config.r1_lifetime * 2));
    }

    /// Every deadline at or before `now`.
    pub(super) fn handle_timeout(&mut self, local: &mut Local, now: Instant) -> Result<(), Dropped> {
        if self.solving.as_ref().is_some_and(|solving| solving.at <= now) {
            self.solve(local, now)?;
        }
        if self.pending.as_ref().is_some_and(|pending| pending.at <= now) {
            self.retransmit(local, now);
        }
        if self.ends_at(local).is_some_and(|at| at <= now) {
            // It is established, so that it can be closed.
            let _ = self.close(local, now);
        }
        if let Some(secured) = &mut self.secured {
            let is_over =
                |(at, _): &mut (Instant, _)| *at <= now && self.updates.rekey.is_none() && !self.updates.rekey_in_doubt;
            if let Some((_, old)) = secured.old_inbound.take_if(is_over) {
                local.spis.remove(&old.spi());
            } else if let Some((at, _)) = secured.old_inbound.as_mut().filter(|(at, _)| *at <= now) {
                *at = now + local.config.old_keys_hold;
            }
        }
        if self.state_until.is_some_and(|at| at <= now) {
            match self.state {
                State::R2Sent => self.enter(State::Established, None),
                State::Closed | State::EFailed => self.end(local, now),
                _ => self.state_until = None,
            }
        }
        self.rekey_if_due(local, now);
        self.serve_client(local, now);
        self.renew_announcement(local, now);
        self.check_paths(local, now);
        let checked = self.run_checks(local, now);
        self.retransmit_updates(local, now)?;
        checked
    }

    fn retransmit(&mut self, local: &mut Local, now: Instant) {
        // An I2 whose puzzle has expired is useless: an I1 requests another one (RFC 7401 section 4.4.3 accepts R1 in
        // I2-SENT).
        let has_expired = self.prospect.as_ref().is_some_and(|it| it.offer.expires_at <= now);
        if self.state == State::I2Sent && has_expired {
            let i1 = i1(local, self.peer);
            self.replace_pending(PacketType::I1, i1);
        }
        if self.send_again(local, now) {
            return;
        }
        match self.state {
            State::I1Sent => self.fail(local, now, Failure::NoR1),
            State::I2Sent => self.fail(local, now, Failure::NoR2),
            State::Closing => {
                self.end(local, now);
                local.events.push_back(Event::Closed { peer: self.peer });
            }
            _ => {}
        }
    }

    /// Whether there is nothing to remember.
    pub(super) fn is_forgettable(&self) -> bool {
        self.state == State::Unassociated && self.state_until.is_none() && !self.is_configured
    }
}
