//! Output and events of the host, and the paths of its packets.

use core::net::IpAddr;

use holdover_base::Instant;
use holdover_hip::host::{Event, RelayTarget, Relayed};
use holdover_hip::identity::Hit;
use holdover_wire::{Packet, Payload};

use super::encapsulation::{self, receiver_of};
use super::{CALL_SERVER_AGAIN, Core, Note};

/// The lengths of the packets of a connection that is woken: an ACK, or a full packet.
const ACK: usize = 80;
const FULL: usize = 1500;

/// A peer, the source address of its packet, and the port if in UDP.
pub(super) type Way = (Hit, IpAddr, Option<u16>);

impl Core {
    /// An authentic packet, newer than all others, arrived from this source. If a translator shows the peer at another
    /// address or port than before, the host follows it.
    pub(super) fn learn_source(&mut self, now: Instant, hit: Hit, src: IpAddr, port: Option<u16>) {
        let peer = self.peers.entry(hit).or_default();
        let is_rebound = peer.is_at_other_port(src, port);
        if self.host.is_relay(hit, src) {
            return peer.set_port(src, port);
        }
        if port.is_some() && (is_rebound || !self.host.is_expected_at(hit, src)) {
            if !self.host.follow(now, hit, src, is_rebound) {
                return;
            }
            peer.counters.followed += 1;
        }
        peer.set_port(src, port);
    }

    /// Takes the host's output and events. Answers to a packet take the path of the packet, before anything caused by
    /// an event.
    pub(super) fn collect(&mut self, now: Instant, came: Option<Way>) {
        loop {
            while let Some(packet) = self.host.poll_transmit() {
                self.counters.hip_out += 1;
                let receiver = receiver_of(&packet).unwrap_or(Hit::UNSPECIFIED);
                let way = came.filter(|(peer, src, _)| (*peer, *src) == (receiver, packet.dst));
                self.carry(now, receiver, packet, way.map(|(_, _, port)| port));
            }
            while let Some(Relayed { packet, to }) = self.host.poll_relayed() {
                self.counters.relayed_hip += u64::from(!matches!(packet.payload, Payload::Esp(_)));
                match to {
                    RelayTarget::Peer(peer) => self.carry(now, peer, packet, None),
                    RelayTarget::Port(port) => {
                        self.push_packet(now, encapsulation::close(packet, port));
                    }
                }
            }
            let Some(event) = self.host.poll_event() else { return };
            let came = came.filter(|(peer, ..)| peer == peer_of(&event));
            self.handle_event(now, event, came);
        }
    }

    /// Sends a packet to a peer, in UDP if its path requires it; `way` is the path of its last packet.
    pub(super) fn carry(&mut self, now: Instant, peer: Hit, packet: Packet, way: Option<Option<u16>>) {
        let packet = match self.way(now, peer, packet.dst, way) {
            Some(port) => encapsulation::close(packet, port),
            None => packet,
        };
        self.push_packet(now, packet);
    }

    /// The port to which a packet to an address of a peer goes in UDP, if its path requires that.
    pub(super) fn way(&mut self, now: Instant, peer: Hit, dst: IpAddr, way: Option<Option<u16>>) -> Option<u16> {
        let called = self.calls.port(dst);
        let state = self.peers.get_mut(&peer);
        let way = way.unwrap_or_else(|| state.as_ref().map_or(called, |state| state.port(dst)));
        if let (Some(_), Some(state)) = (way, state) {
            state.keep_alive_at = Some(now + self.config.keep_alive);
        }
        way
    }

    /// `came` is the path of the packet that caused the event.
    fn handle_event(&mut self, now: Instant, event: Event, came: Option<Way>) {
        let mut after = None;
        let hit = *peer_of(&event);
        match &event {
            Event::Established { .. } => self.handle_established(now, hit, came),
            Event::Readdressed { address, .. } => {
                let moved = self.peers.get_mut(&hit).and_then(|peer| peer.note_readdressed(now, *address));
                after = moved.map(|(after, _)| after);
                match moved {
                    Some((_, true)) => self.wake_after_move(now, hit),
                    _ => self.drain_wake(now, hit),
                }
            }
            Event::GaveUp { .. } => {
                if let Some(peer) = self.peers.get_mut(&hit) {
                    peer.contact.note_gave_up(now);
                }
            }
            Event::Failed { .. } | Event::Closed { .. } => {
                self.handle_end(now, hit, matches!(event, Event::Failed { .. }))
            }
            Event::PeerMoved { address, .. } => self.handle_peer_moved(now, hit, *address, came),
            Event::PeerReaddressed { address, .. } => self.handle_peer_readdressed(now, hit, *address, came),
            Event::PathSilent { instead, is_presumed, .. } => {
                let Some(peer) = self.peers.get_mut(&hit) else { return };
                if !is_presumed {
                    peer.note_silence(instead.is_some());
                }
                if instead.is_some() {
                    // Packets sent on the silent path are lost.
                    peer.note_path_change(now);
                    self.wake_after_move(now, hit);
                }
            }
            Event::PathAnswers { after: silent_for, .. } => {
                let Some(peer) = self.peers.get_mut(&hit) else { return };
                peer.note_answers();
                after = *silent_for;
                if after.is_some() {
                    peer.note_path_change(now);
                    self.wake_after_move(now, hit);
                }
            }
            Event::Rekeyed { .. } => {
                if let Some(peer) = self.peers.get_mut(&hit) {
                    peer.counters.rekeyed += 1;
                }
            }
            Event::PeerCandidate { address, port, .. } => {
                self.peers.entry(hit).or_default().set_port(*address, Some(*port));
            }
            Event::Nominated { between: (_, address), port, .. } => {
                self.peers.entry(hit).or_default().set_port(*address, Some(*port));
            }
            Event::Answered { call, is_new, .. } => {
                self.calls.note_answered(*call, hit, *is_new);
                if let (true, Some((_, src, port))) = (*is_new, came) {
                    self.peers.entry(hit).or_default().set_port(src, port);
                }
            }
            Event::Joined { invitation, data, .. } => self.offers.note_joined(*invitation, hit, data),
            Event::Registered { .. } => {
                // Announcements that the server did not forward before are repeated at once, not at their timers.
                let moving = self.peers.iter().filter(|(_, peer)| peer.contact.is_moving());
                for peer in moving.map(|(&peer, _)| peer).collect::<Vec<Hit>>() {
                    let _ = self.host.announce(now, peer);
                }
            }
            Event::RegistrationFailed { .. } | Event::ChecksFailed { .. } | Event::Notified { .. } => {}
        }
        self.notes.push_back(Note { event, after });
    }

    /// An association is established, by the first exchange or a later one.
    fn handle_established(&mut self, now: Instant, hit: Hit, came: Option<Way>) {
        let locators = self.host.locators_towards(hit, &self.locators);
        let peer = self.peers.entry(hit).or_default();
        if let Some((_, src, port)) = came {
            peer.set_port(src, port);
        }
        let may_have_lost = peer.establish(now, self.config.wake, &locators);
        self.host.exchange_address(hit).into_iter().for_each(|own| peer.contact.note_exchanged_at(own));
        peer.note_answers();
        let waiting = peer.contact.take_waiting();
        if self.locators.len() > 1 && !self.host.is_checking(hit) {
            // The exchange has announced one to the peer.
            let _ = self.host.announce(now, hit);
        }
        for packet in waiting {
            self.seal(now, hit, packet);
        }
        if may_have_lost {
            self.wake_after_move(now, hit);
        }
    }

    /// An exchange has failed, or an association was closed.
    fn handle_end(&mut self, now: Instant, hit: Hit, has_failed: bool) {
        self.deliver_all(now, hit);
        let waiting = self.peers.get_mut(&hit).map(|peer| peer.contact.take_waiting()).unwrap_or_default();
        if has_failed {
            waiting.last().into_iter().for_each(|packet| self.refuse(packet));
        } else if !waiting.is_empty() && !self.is_ending {
            let _ = self.host.connect(now, hit);
            let peer = self.peers.entry(hit).or_default();
            waiting.into_iter().for_each(|packet| _ = peer.contact.wait(packet));
        }
        match self.peers.get_mut(&hit) {
            Some(peer) if !peer.is_configured() => self.forget_peer(hit),
            Some(peer) if peer.is_server() => peer.call_at = Some(now + CALL_SERVER_AGAIN),
            _ => {}
        }
    }

    /// The peer has announced an address, which is yet to be verified.
    fn handle_peer_moved(&mut self, now: Instant, hit: Hit, address: IpAddr, came: Option<Way>) {
        if let Some((_, src, port)) = came.filter(|(_, src, _)| *src == address) {
            self.learn_source(now, hit, src, port);
        }
        let host = &self.host;
        let is_there = |at| host.has_locator(hit, at);
        let peer = self.peers.get_mut(&hit);
        if peer.as_ref().is_some_and(|it| it.contact.has_peer_kept_former(now, address, is_there)) {
            self.drain_wake(now, hit);
        } else if let Some(peer) = peer {
            let longest = if peer.last_data.is_empty() { ACK } else { FULL };
            // Packets beyond the credit of the new address would be lost.
            if self.host.has_path(now, hit, longest) {
                peer.note_path_change(now);
                self.wake_after_move(now, hit);
            } else {
                peer.wakes_when_verified = true;
            }
        }
    }

    /// The peer's address is verified.
    fn handle_peer_readdressed(&mut self, now: Instant, hit: Hit, address: IpAddr, came: Option<Way>) {
        let proven = came.filter(|(_, src, _)| *src == address);
        if let (Some((_, src, port)), Some(peer)) = (proven, self.peers.get_mut(&hit)) {
            peer.set_port(src, port);
        }
        if let Some(peer) = self.peers.get_mut(&hit)
            && core::mem::take(&mut peer.wakes_when_verified)
        {
            peer.note_path_change(now);
            self.wake_after_move(now, hit);
        }
    }
}

const fn peer_of(event: &Event) -> &Hit {
    match event {
        Event::Established { peer, .. }
        | Event::Failed { peer, .. }
        | Event::Closed { peer }
        | Event::Readdressed { peer, .. }
        | Event::PeerMoved { peer, .. }
        | Event::PeerReaddressed { peer, .. }
        | Event::PathSilent { peer, .. }
        | Event::PathAnswers { peer, .. }
        | Event::Rekeyed { peer }
        | Event::Registered { peer, .. }
        | Event::RegistrationFailed { peer, .. }
        | Event::PeerCandidate { peer, .. }
        | Event::Nominated { peer, .. }
        | Event::Answered { peer, .. }
        | Event::ChecksFailed { peer }
        | Event::GaveUp { peer }
        | Event::Joined { peer, .. }
        | Event::Notified { peer, .. } => peer,
    }
}
