//! Handoff: buffered packets of a mobile host at another gateway are sent there, and those from other gateways are
//! stored.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use holdover_base::Instant;
use holdover_filter::Presence;
use holdover_gateway::divert::{Course, Source};
use holdover_host::Offload;

use super::{Engine, EngineError, FORGET_AFTER, destination};
use crate::handoff::{Event, Handoff, HandoffCounters, LONGEST_PACKET};
use crate::store::Stored;

impl Engine {
    /// Readable when another gateway has sent a datagram.
    pub(crate) fn handoff_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.handoff.as_ref().map(Handoff::descriptor)
    }

    pub(crate) fn handoffs(&self) -> Option<HandoffCounters> {
        self.handoff.as_ref().map(Handoff::counters)
    }

    /// Handles datagrams of other gateways.
    pub(crate) fn handle_handoff(&mut self, now: Instant) {
        if let Some(handoff) = &mut self.handoff {
            handoff.handle_ready(now, &mut |_, _, _| crate::cluster::Admission::Admitted);
        }
    }

    /// A mobile host is here now: requests its packets from the other gateways.
    pub(crate) fn claim(&mut self, now: Instant, mobile: IpAddr) -> Result<(), String> {
        if !self.serves(mobile) {
            return Err(format!("{mobile} is no mobile host behind {}: [mobiles] networks", self.interface.name));
        }
        let handoff = self.handoff.as_mut().ok_or("there are no other gateways: [handoff]")?;
        self.met.insert(mobile);
        self.moved_at.remove(&mobile);
        tracing::info!(%mobile, "claimed from the other gateways");
        handoff.claim_from_all(now, mobile);
        Ok(())
    }

    /// Handles requests of other gateways.
    pub(super) fn serve_handoffs(&mut self, now: Instant) -> Result<(), EngineError> {
        if let Some(handoff) = &mut self.handoff {
            handoff.handle_timeout(now);
        }
        while let Some(event) = self.handoff.as_mut().and_then(Handoff::poll_event) {
            match event {
                Event::Claimed { mobile } => {
                    tracing::info!(%mobile, "moved to another gateway");
                    self.met.remove(&mobile);
                    self.moved_at.insert(mobile, now);
                    self.diverter.handle_report(now, mobile, Source::Command, Presence::Moved);
                }
                Event::Packet { mobile, bytes } => self.take_in(now, mobile, &bytes),
                Event::Offered { .. } | Event::Refused { .. } => {}
                Event::Done { mobile, packets } => tracing::info!(%mobile, packets, "arrived from another gateway"),
                Event::Lost { mobile, peer } => tracing::warn!(%mobile, %peer, "a gateway does not answer"),
            }
        }
        // The packets of hosts that have moved are sent: drop their state here.
        let leaving: Vec<IpAddr> = self.moved_at.keys().copied().filter(|&mobile| self.is_leaving(mobile)).collect();
        for mobile in leaving {
            let status = self.diverter.status(mobile);
            if status.is_none_or(|status| status.waiting == 0 && status.course == Course::Pass) {
                if let Some(handoff) = &mut self.handoff {
                    handoff.end(now, mobile);
                }
                if self.diverter.forget(mobile) {
                    self.path.forget(mobile);
                    if let Some(waker) = &mut self.waker {
                        waker.forget(mobile);
                    }
                }
            }
        }
        self.moved_at.retain(|_, at| now.saturating_since(*at) < FORGET_AFTER);
        Ok(())
    }

    pub(super) fn is_leaving(&self, mobile: IpAddr) -> bool {
        self.handoff.as_ref().is_some_and(|handoff| handoff.is_leaving(mobile))
    }

    /// A packet has arrived from the mobile host's former gateway.
    pub(super) fn take_in(&mut self, now: Instant, mobile: IpAddr, bytes: &[u8]) {
        let Some((offload, packet)) = bytes.split_at_checked(Offload::LEN) else { return };
        if destination(packet) != Some(mobile) || !self.serves(mobile) {
            return;
        }
        let Self { store, diverter, .. } = self;
        let stored = diverter.handle_packet(now, mobile, packet.len() as u32, || {
            let appended = store.append(mobile, now, Offload::from_bytes(offload), packet);
            appended.inspect_err(|error| tracing::warn!(%error, %mobile, "cannot store a packet")).ok()
        });
        if let Err(loss) = stored {
            tracing::trace!(?loss, %mobile, "dropped a packet");
        }
    }

    /// Hands the next packet to the gateway to which its mobile host has moved. Returns whether there was room.
    pub(super) fn hand_on(&mut self, now: Instant, mobile: IpAddr, stored: Stored) -> bool {
        let Some(handoff) = &mut self.handoff else { return false };
        match self.store.read(mobile, stored, &mut self.packet) {
            Ok(offload) if self.packet.len() <= LONGEST_PACKET => {
                handoff.hand_on(now, mobile, [&offload.to_bytes()[..], &self.packet].concat())
            }
            Ok(_) | Err(_) => {
                self.unsendable.refused += 1;
                true
            }
        }
    }
}
