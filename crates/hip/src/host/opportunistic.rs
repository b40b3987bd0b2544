//! Opportunistic mode (RFC 7401 section 4.1.8): exchanges with whatever host answers at an address.

use core::net::IpAddr;

use holdover_base::Instant;
use holdover_wire::Packet;

use super::association::Association;
use super::{Arrival, CommandError, Dropped, Host, State};
use crate::codec::Received;
use crate::identity::Hit;

/// The most exchanges in progress.
const MOST: usize = 64;

/// I1s without a receiver, by destination. Each is an association without a peer, which R1 provides.
#[derive(Clone, Default)]
pub(super) struct Opportunistic(Vec<(IpAddr, Association)>);

impl Opportunistic {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Association> {
        self.0.iter().map(|(_, association)| association)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Association> {
        self.0.iter_mut().map(|(_, association)| association)
    }

    /// Forgets those whose I1 is no longer sent.
    pub(super) fn forget_ended(&mut self) {
        self.0.retain(|(_, association)| association.state == State::I1Sent);
    }
}

impl Host {
    /// Whether I1s without a receiver are answered, and sent by [`Self::connect_opportunistic`] ([`HostConfig::opportunistic`](super::HostConfig::opportunistic)).
    pub const fn set_opportunistic(&mut self, is_on: bool) {
        self.local.config.opportunistic = is_on;
    }

    /// Begins an exchange with whatever host answers at an address (RFC 7401 section 4.1.8).
    ///
    /// # Errors
    ///
    /// [`CommandError`] if opportunistic mode is off, or there is nowhere to send from.
    pub fn connect_opportunistic(&mut self, now: Instant, address: IpAddr) -> Result<(), CommandError> {
        if !self.local.config.opportunistic || self.opportunistic.len() >= MOST {
            return Err(CommandError::Opportunistic);
        }
        let peer = Hit::UNSPECIFIED;
        if self.local.source_for(address).is_none() {
            return Err(CommandError::NoAddress { peer });
        }
        let mut association = Association::new(peer);
        association.peer_addresses.add_known(&[address]);
        association.begin_anew(&mut self.local, now);
        self.opportunistic.0.push((address, association));
        Ok(())
    }

    /// An R1 for an I1 without a receiver: its sender becomes the peer. `None` if there was no such I1.
    pub(super) fn handle_opportunistic_r1(
        &mut self,
        now: Instant,
        r1: &Received,
        packet: &Packet,
        arrival: Arrival,
    ) -> Option<Result<(), Dropped>> {
        let exchanges = &self.opportunistic.0;
        let index = exchanges.iter().position(|(address, _)| *address == packet.src)?;
        let peer = r1.packet.sender;
        if self.state(peer) != State::Unassociated {
            return None;
        }
        if peer.suite().is_none() {
            return Some(Err(Dropped::Suite));
        }
        let (_, association) = &mut self.opportunistic.0[index];
        association.peer = peer;
        let result = association.handle_r1(&mut self.local, now, r1, (packet.dst, packet.src), arrival);
        if result.is_ok() {
            let (_, mut association) = self.opportunistic.0.remove(index);
            if let Some(known) = self.associations.remove(&peer) {
                (association.is_configured, association.client) = (known.is_configured, known.client);
            }
            self.associations.insert(peer, association);
        } else {
            association.peer = Hit::UNSPECIFIED;
        }
        Some(result)
    }
}
