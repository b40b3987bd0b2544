//! Release: buffered packets are sent to a mobile host that has returned, in order and paced, or are dropped.

use std::net::IpAddr;

use holdover_base::Instant;
use holdover_filter::Direction;
use holdover_gateway::divert::{Loss, Standing};

use super::attachments::{Attachments, Clearance, ELSEWHERE};
use super::presence::is_asked;
use super::{BATCH, BUSY, DOWN, Engine, MOST_TRIES, NO_CARRIER, UNCONFIRMED, UNRESOLVED};
use crate::packet_files::Stored;
use crate::path::Seen;
use crate::sender::{Sent, set_reserved_flag};
use crate::waker::is_redundant;

/// If the packets of this many mobile hosts are refused in one turn, the interface itself is full.
const HOSTS_WITHOUT_ROOM: u32 = 8;

impl Engine {
    /// Sends due packets.
    pub(super) fn release(&mut self, now: Instant) {
        let mut without_room = 0;
        for _ in 0..BATCH {
            let Some((mobile, &stored)) = self.diverter.due(now) else { return };
            let seen = self.path.seen(mobile);
            match self.clearance(mobile, seen) {
                Clearance::HandOn if self.drops_waiting() => {
                    self.drop_waiting(now, mobile);
                    continue;
                }
                Clearance::HandOn if self.hand_on(mobile, stored) => {
                    self.remove(mobile, stored);
                    self.diverter.handle_sent(now, mobile);
                    continue;
                }
                Clearance::HandOn => {
                    self.diverter.handle_busy(now + BUSY, mobile);
                    continue;
                }
                Clearance::Elsewhere => {
                    self.diverter.handle_busy(now + ELSEWHERE, mobile);
                    continue;
                }
                Clearance::Send => {}
            }
            // The kernel silently drops packets without a carrier.
            if !self.interface.has_carrier {
                self.diverter.handle_busy(now + NO_CARRIER, mobile);
                continue;
            }
            let mac = seen.and_then(|seen| seen.mac);
            if mac.is_none() && self.interface.has_ethernet() {
                self.resolve(mobile, None);
                self.diverter.handle_busy(now + UNRESOLVED, mobile);
                continue;
            }
            // An orderly stop releases for a later time.
            if !self.is_confirmed(self.advanced_at, mobile, seen) {
                self.diverter.handle_busy(now + UNCONFIRMED, mobile);
                continue;
            }
            let sent = match self.packet_files.read(mobile, stored, &mut self.packet) {
                Ok(_) if self.waker.is_some() && is_redundant(&self.path, &self.packet) => {
                    self.unsendable.redundant += 1;
                    Sent::Done
                }
                Ok(offload) => {
                    if self.config.flags_released(mobile) {
                        set_reserved_flag(&mut self.packet);
                    }
                    self.sender.release(&self.interface, mac.unwrap_or_default(), offload, &self.packet)
                }
                Err(error) => {
                    tracing::warn!(%error, %mobile, "cannot read a stored packet");
                    Sent::Refused
                }
            };
            match sent {
                Sent::Done => {}
                Sent::Busy => {
                    // A queueing discipline may be full for this host alone.
                    self.diverter.handle_busy(now + BUSY, mobile);
                    without_room += 1;
                    if without_room < HOSTS_WITHOUT_ROOM {
                        continue;
                    }
                    self.diverter.handle_blocked(now + BUSY);
                    return;
                }
                Sent::Down => {
                    self.diverter.handle_busy(now + DOWN, mobile);
                    continue;
                }
                Sent::TooBig => {
                    self.unsendable.too_big += 1;
                    self.icmp_errors.send_mtu(self.interface.mtu, &self.packet);
                }
                Sent::Refused => self.unsendable.refused += 1,
            }
            self.remove(mobile, stored);
            self.diverter.handle_sent(now, mobile);
        }
    }

    /// The fate of a due packet of a mobile host.
    fn clearance(&self, mobile: IpAddr, seen: Option<Seen>) -> Clearance {
        let addressed_at = seen.and_then(|seen| seen.addressed_at);
        let ownership = self.cluster.as_ref().map(|cluster| &cluster.ownership);
        Attachments::clearance(mobile, ownership, self.handoff.as_ref(), addressed_at)
    }

    /// Whether a mobile host, or the router in front of it, was heard recently. If not, it is probed, and [`Engine::look`] finds
    /// out whether it is silent.
    fn is_confirmed(&mut self, now: Instant, mobile: IpAddr, seen: Option<Seen>) -> bool {
        let Some(seen) = seen.filter(|_| self.handoff.is_some()) else { return true };
        if !is_asked(&self.config, &self.interface, self.echo.as_ref(), (mobile, seen)) {
            return true;
        }
        let standing = self.diverter.status(mobile).map(|status| status.standing);
        if standing == Some(Standing::Moved) {
            // The kernel's routes lead to it.
            return true;
        }
        if Attachments::is_confirmed(now, seen.heard_at) {
            self.unconfirmed.remove(&mobile);
            return true;
        }
        // A host behind a router need not answer: its router does.
        if self.is_router_there(mobile) {
            self.unconfirmed.remove(&mobile);
            return true;
        }
        // The answer to an earlier probe may be too old by now.
        let is_answered = |since: &Instant| seen.heard_at.is_some_and(|at| at >= *since);
        if self.unconfirmed.get(&mobile).is_none_or(is_answered) {
            self.unconfirmed.insert(mobile, now);
            self.look_at = now;
            self.probe(mobile, seen);
        }
        false
    }

    /// Sends packets made for connections.
    pub(super) fn inject(&mut self, now: Instant) {
        let Some(waker) = &mut self.waker else { return };
        loop {
            let waiting = self.refused.take().or_else(|| waker.poll_transmit().map(|(mobile, made)| (mobile, made, 0)));
            let Some((mobile, made, tries)) = waiting else { return };
            let mac = self.path.seen(mobile).and_then(|seen| seen.mac);
            // A packet for a fixed host does not reach the link: its source address matters to the router's firewall at most.
            let mac = mac.or((made.direction == Direction::Incoming).then_some(self.interface.mac));
            if mac.is_none() && self.interface.has_ethernet() {
                waker.note_unsent();
                continue;
            }
            match self.sender.inject(&self.interface, mac.unwrap_or_default(), &made) {
                Sent::Done => {}
                Sent::Busy if tries < MOST_TRIES => {
                    self.refused = Some((mobile, made, tries + 1));
                    self.advanced_at = now;
                    return;
                }
                Sent::Busy | Sent::Down | Sent::TooBig | Sent::Refused => waker.note_unsent(),
            }
        }
    }

    pub(super) fn discard(&mut self) {
        while let Some((mobile, stored, loss)) = self.diverter.poll_discarded() {
            if loss == Loss::Aged {
                tracing::debug!(%mobile, "dropped a packet that waited too long");
            }
            self.remove(mobile, stored);
        }
    }

    pub(super) fn remove(&mut self, mobile: IpAddr, stored: Stored) {
        if let Err(error) = self.packet_files.remove(mobile, stored) {
            tracing::warn!(%error, %mobile, "cannot remove a stored packet");
        }
    }
}
