//! Opportunistic mode (RFC 7401 section 4.1.8): exchanges with whatever host answers at an address.

use core::net::IpAddr;

use holdover_base::Instant;
use holdover_wire::Packet;

use super::association::Association;
use super::initiator::identity_of_r1;
use super::{Arrival, CommandError, Dropped, Event, Host, State};
use crate::codec::Received;
use crate::identity::Hit;

/// The most exchanges in progress.
const MOST: usize = 64;

/// I1s without a receiver.
#[derive(Clone, Default)]
pub(super) struct Opportunistic {
    last: u64,
    calls: Vec<Call>,
}

#[derive(Clone)]
struct Call {
    number: u64,
    address: IpAddr,
    /// Without a peer, which R1 provides.
    association: Association,
}

impl Opportunistic {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Association> {
        self.calls.iter().map(|call| &call.association)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Association> {
        self.calls.iter_mut().map(|call| &mut call.association)
    }

    /// Forgets those whose I1 is no longer sent.
    pub(super) fn forget_ended(&mut self) {
        self.calls.retain(|call| call.association.state == State::I1Sent);
    }
}

impl Host {
    /// Whether I1s without a receiver are answered, and sent by [`Self::connect_opportunistic`] ([`HostConfig::opportunistic`](super::HostConfig::opportunistic)).
    /// If not, answers to those that were sent are not accepted any more.
    pub fn set_opportunistic(&mut self, is_on: bool) {
        self.local.config.opportunistic = is_on;
        if !is_on {
            self.opportunistic.calls.clear();
        }
    }

    /// Begins an exchange with whatever host answers at an address (RFC 7401 section 4.1.8). Returns the number that
    /// [`Event::Answered`] has.
    ///
    /// # Errors
    ///
    /// [`CommandError`] if opportunistic mode is off, or there is nowhere to send from.
    pub fn connect_opportunistic(&mut self, now: Instant, address: IpAddr) -> Result<u64, CommandError> {
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
        self.opportunistic.last += 1;
        let number = self.opportunistic.last;
        self.opportunistic.calls.push(Call { number, address, association });
        Ok(number)
    }

    /// Accepts no answer to this I1 any more.
    pub fn cancel_opportunistic(&mut self, number: u64) {
        self.opportunistic.calls.retain(|call| call.number != number);
    }

    /// An R1 for an I1 without a receiver: its sender becomes the peer. `None` if there was no such I1.
    pub(super) fn handle_opportunistic_r1(
        &mut self,
        now: Instant,
        r1: &Received,
        packet: &Packet,
        arrival: Arrival,
    ) -> Option<Result<(), Dropped>> {
        let index = self.opportunistic.calls.iter().position(|call| call.address == packet.src)?;
        let peer = r1.packet.sender;
        if self.state(peer) != State::Unassociated {
            return self.handle_r1_of_associated(r1, packet.src, index);
        }
        if peer.suite().is_none() {
            return Some(Err(Dropped::Suite));
        }
        let Call { number, address, association: call } = &self.opportunistic.calls[index];
        // What is known of a peer outlives exchanges: its other addresses, the counter of its R1s, what it may have checked.
        let known = self.associations.get(&peer);
        let mut association = known.cloned().unwrap_or_else(|| Association::new(peer));
        association.peer_addresses.add_known(&[*address]);
        (association.r1s_left, association.pending) = (call.r1s_left, call.pending.clone());
        association.enter(State::I1Sent, None);
        let result = association.handle_r1(&mut self.local, now, r1, (packet.dst, packet.src), arrival);
        if result.is_ok() {
            self.local.events.push_back(Event::Answered { peer, call: *number, is_new: true });
        }
        if result.is_ok() || association.state == State::EFailed {
            self.opportunistic.calls.remove(index);
            self.associations.insert(peer, association);
        } else if let Some(known) = self.associations.get_mut(&peer) {
            known.has_lower_r1 |= association.has_lower_r1;
        }
        Some(result)
    }

    /// The same, of a host that is associated with this one: its authentic R1 from an address where it is known to be is an answer, too.
    fn handle_r1_of_associated(&mut self, r1: &Received, src: IpAddr, index: usize) -> Option<Result<(), Dropped>> {
        let peer = r1.packet.sender;
        self.associations.get(&peer).filter(|association| association.is_usable())?;
        if !self.verified_addresses(peer).contains(&src) {
            return None;
        }
        if let Err(dropped) = identity_of_r1(r1, peer) {
            return Some(Err(dropped));
        }
        let call = self.opportunistic.calls.remove(index).number;
        self.local.events.push_back(Event::Answered { peer, call, is_new: false });
        Some(Ok(()))
    }
}
