//! Serves links and cells: deliveries and reports.

use holdover_base::Instant;
use holdover_filter::Presence;
use holdover_link::cell::{CellEvent, Hop, Node};
use holdover_link::{Link, PointToPointEvent};

use super::World;
use crate::config::LinkBetween;
use crate::external::ShellCommand;
use crate::frame::Frame;
use crate::ids::{LinkId, NodeId};
use crate::layer2::{AddressLoss, Families, LinkKind};
use crate::observer::{Dropped, Medium, Observer, Place, Transit, WorldEvent};
use crate::segment::GateChange;

impl World {
    #[inline(always)]
    pub(super) fn step_hop<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let now = self.now;
        let has_segment = self.network.has_segment(index / 2);
        if has_segment {
            self.network.ask_again(now, index, observer);
        }
        self.network.hops[index].link.handle_timeout(now);
        loop {
            let hop = &mut self.network.hops[index];
            let Some(mut delivery) = hop.link.poll_deliver(now) else { break };
            let (to, medium, attached) = (hop.to, Medium::Link(hop.id), hop.attached);
            if attached {
                delivery.frame.link = Some(hop.id);
            }
            if has_segment
                && let Some(segment) = self.network.segments[index / 2].as_ref()
                && segment.keeps_out(&delivery.frame)
            {
                self.network.keep_out(now, index, &delivery.frame, observer);
                continue;
            }
            if delivery.frame.raw {
                // A damaged frame fails its frame check sequence.
                if attached && !delivery.corrupted {
                    self.shell_commands.push_back(ShellCommand::Deliver { node: to, at: now, frame: delivery.frame });
                } else if !delivery.corrupted {
                    self.network.hear_neighbour(now, index, &delivery.frame, observer);
                }
                continue;
            }
            observer.packet(now, Place { node: to, medium, transit: Transit::In }, &delivery.frame);
            if delivery.corrupted {
                observer.dropped(now, Dropped::Corrupted(medium), &delivery.frame);
            } else {
                self.arrive(to, delivery.frame, observer);
            }
        }
        self.pass_link_events(index, observer);
        if has_segment && index.is_multiple_of(2) {
            self.pass_gate(index, observer);
        }
        self.network.reschedule_hop(index);
    }

    /// Handles a link's events: drops, and changes of its state.
    #[inline]
    fn pass_link_events<O: Observer>(&mut self, index: usize, observer: &mut O) {
        while let Some(event) = self.network.hops[index].link.poll_event() {
            self.pass_link_event(index, event, observer);
        }
    }

    #[inline(never)]
    fn pass_link_event<O: Observer>(&mut self, index: usize, event: PointToPointEvent<Box<Frame>>, observer: &mut O) {
        let id = self.network.hops[index].id;
        // Both directions go down together; the first one represents both.
        let speaks = index.is_multiple_of(2);
        match event {
            PointToPointEvent::Dropped { frame, .. } if frame.raw => self.network.pool.take_back(frame),
            PointToPointEvent::Dropped { at, cause, frame } => {
                observer.dropped(at, Dropped::Lost(Medium::Link(id), cause), &frame);
            }
            PointToPointEvent::AttemptFailed { frame, .. } => self.attempt_failed(index, frame, observer),
            PointToPointEvent::Down { at } if speaks => self.link_changed(at, id, false, observer),
            PointToPointEvent::Up { at } if speaks => self.link_changed(at, id, true, observer),
            PointToPointEvent::Forwards { at } if speaks => self.link_forwards(at, id, observer),
            PointToPointEvent::Down { .. } | PointToPointEvent::Up { .. } | PointToPointEvent::Forwards { .. } => {}
        }
    }

    fn link_changed<O: Observer>(&mut self, at: Instant, id: LinkId, up: bool, observer: &mut O) {
        let link = id.0 as usize;
        let LinkBetween { layer2, .. } = &self.config.links[link];
        let carries_at_once =
            self.config.links[link].carries_after().is_zero() && layer2.addresses == AddressLoss::Kept;
        let carries = up && carries_at_once;
        self.network.set_link_up(at, id, up);
        self.network.set_carries(id, Families::Both, carries);
        if !up && self.network.has_segment(link) {
            self.forget_neighbours(link, observer);
        }
        if self.network.hops[link * 2].attached {
            self.shell_commands.push_back(ShellCommand::Link { link: id, up });
        }
        observer.event(at, &if up { WorldEvent::LinkUp(id) } else { WorldEvent::LinkDown(id) });
        if carries && self.config.links[link].layer2.kind != LinkKind::Wire {
            observer.event(at, &WorldEvent::LinkCarries(id));
        }
        self.review_paths(at, |way| way.hops.iter().any(|&hop| hop / 2 == link));
        let ends = (self.network.hops[link * 2].from, self.network.hops[link * 2].to);
        for (node, other) in [ends, (ends.1, ends.0)] {
            self.review_access(at, node, observer);
            let layer2 = &self.config.links[link].layer2;
            let is_seen = layer2.kind == LinkKind::Wire || layer2.outage.is_seen_by_router();
            if !up && is_seen && !self.network.is_joined(node, other) {
                self.tell_gateway(node, other, Presence::Away, observer);
            } else if carries {
                self.tell_gateway(node, other, Presence::Present, observer);
            }
        }
    }

    /// Routers notice changes of links.
    pub(super) fn step_routing<O: Observer>(&mut self, observer: &mut O) {
        let now = self.now;
        while let Some((id, up)) = self.network.notice_link(now) {
            observer.event(now, &if up { WorldEvent::LinkUsedAgain(id) } else { WorldEvent::LinkAvoided(id) });
            let link = id.0 as usize;
            self.review_paths(now, |way| way.hops.iter().any(|&hop| hop / 2 == link));
        }
    }

    /// A link that was up has begun to forward.
    fn link_forwards<O: Observer>(&mut self, at: Instant, id: LinkId, observer: &mut O) {
        let layer2 = self.config.links[id.0 as usize].layer2;
        // If addresses are to be restored as well, the gate reports it.
        if layer2.addresses == AddressLoss::Kept {
            self.link_carries(at, id, layer2.families, observer);
        }
    }

    fn link_carries<O: Observer>(&mut self, at: Instant, id: LinkId, families: Families, observer: &mut O) {
        let link = id.0 as usize;
        self.network.set_carries(id, families, true);
        observer.event(at, &WorldEvent::LinkCarries(id));
        self.review_paths(at, |way| way.hops.iter().any(|&hop| hop / 2 == link));
        let ends = (self.network.hops[link * 2].from, self.network.hops[link * 2].to);
        for (node, other) in [ends, (ends.1, ends.0)] {
            self.tell_gateway(node, other, Presence::Present, observer);
        }
    }

    /// Handles events of a link's second layer: blocked families, and addresses restored late.
    fn pass_gate<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let link = index / 2;
        let Some(segment) = &mut self.network.segments[link] else { return };
        for GateChange { at, open } in segment.pass_gate(self.now) {
            let (id, layer2) = (LinkId(link as u32), self.config.links[link].layer2);
            if layer2.addresses != AddressLoss::Kept && self.network.hops[index].attached {
                self.shell_commands.push_back(ShellCommand::Addresses { link: id, present: open });
            }
            if open {
                self.link_carries(at, id, layer2.families, observer);
                continue;
            }
            self.network.set_carries(id, layer2.families, false);
            if layer2.families != Families::Both {
                observer.event(at, &WorldEvent::FamilyLost(id, layer2.families));
            }
            self.review_paths(at, |way| way.hops.iter().any(|&hop| hop / 2 == link));
        }
    }

    /// The ends of a link that see its outage forget their neighbours.
    fn forget_neighbours<O: Observer>(&mut self, link: usize, observer: &mut O) {
        let outage = self.config.links[link].layer2.outage;
        for hop in [link * 2, link * 2 + 1] {
            let is_host = self.host_index(self.network.hops[hop].from).is_some();
            if if is_host { outage.is_seen_by_host() } else { outage.is_seen_by_router() } {
                self.network.forget_neighbours(self.now, hop, observer);
                self.network.reschedule_hop(hop);
            }
        }
    }

    /// The link in use by a host may have changed.
    fn review_access<O: Observer>(&mut self, at: Instant, node: NodeId, observer: &mut O) {
        let Some(host) = self.host_index(node) else { return };
        let link = self.network.first_link_up(node);
        let entry = &mut self.hosts[host];
        let before = core::mem::replace(&mut entry.link, link);
        if before == link {
            return;
        }
        let last = if before.is_some() { core::mem::replace(&mut entry.last_link, before) } else { entry.last_link };
        if self.network.accesses(node) > 1 {
            observer.event(at, &WorldEvent::AccessLink(node, link));
        }
        let moved = before.or(last) != link;
        if entry.identity.is_some() {
            return self.reattach(host, moved, observer);
        }
        let what = match link {
            None => holdover_mobility::LinkEvent::Down,
            Some(link) => holdover_mobility::LinkEvent::Up { symmetric: self.is_between_hosts(link), moved },
        };
        self.tell(host, what, observer);
    }

    /// Whether the host at the other end of a link is notified at the same time.
    fn is_between_hosts(&self, link: LinkId) -> bool {
        let hop = &self.network.hops[link.0 as usize * 2];
        self.host_index(hop.from).is_some() && self.host_index(hop.to).is_some()
    }

    pub(super) fn step_air<O: Observer>(&mut self, index: usize, observer: &mut O) {
        self.network.airs[index].cell.handle_timeout(self.now);
        self.pass_air(index, observer);
    }

    /// Handles a cell's deliveries and events.
    pub(super) fn pass_air<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let now = self.now;
        loop {
            let air = &mut self.network.airs[index];
            if let Some(reception) = air.cell.poll_deliver(now) {
                let node = match reception.to {
                    Node::Base => air.base,
                    Node::Station(station) => NodeId(station.0),
                };
                observer.packet(now, air.place(node, Transit::In), &reception.frame);
                if reception.frame.packet.dst.is_multicast() {
                    self.hear_beacon(node, index, observer);
                } else {
                    self.arrive(node, reception.frame, observer);
                }
            } else if let Some(event) = air.cell.poll_event() {
                self.handle_cell_event(index, event, observer);
            } else {
                break;
            }
        }
        self.network.reschedule_air(now, index);
    }

    fn handle_cell_event<O: Observer>(&mut self, index: usize, event: CellEvent<Box<Frame>>, observer: &mut O) {
        let id = self.network.airs[index].id;
        match event {
            CellEvent::InRange { at, station } => {
                observer.event(at, &WorldEvent::InRange(NodeId(station.0), id));
                self.coverage_changed(NodeId(station.0), index, true, observer);
            }
            CellEvent::OutOfRange { at, station } => {
                observer.event(at, &WorldEvent::OutOfRange(NodeId(station.0), id));
                self.coverage_changed(NodeId(station.0), index, false, observer);
            }
            CellEvent::Dropped { at, cause, hop } => {
                let (Hop::Down { frame, .. } | Hop::Up { frame, .. } | Hop::Broadcast { frame }) = hop;
                observer.dropped(at, Dropped::Lost(Medium::Cell(id), cause), &frame);
            }
            // The holder retransmits the packet: the base station along its routes, a mobile host in its present cell.
            CellEvent::HandedBack { hop, .. } => {
                let (node, frame) = match hop {
                    Hop::Up { from, frame } => (NodeId(from.0), frame),
                    Hop::Down { frame, .. } | Hop::Broadcast { frame } => (self.network.airs[index].base, frame),
                };
                self.network.forward(self.now, node, frame, observer);
            }
        }
    }

    pub(super) fn step_beacon<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let now = self.now;
        let air = &mut self.network.airs[index];
        let base = air.base;
        let Some(beacons) = &mut air.beacons else { return };
        let frame = beacons.send(now, &mut air.agent);
        let next_at = beacons.next_at;
        observer.packet(now, air.place(base, Transit::Out), &frame);
        air.cell.handle_packet(now, Hop::Broadcast { frame });
        self.network.schedule.set(self.network.sources.beacons + index, Some(next_at));
        self.network.reschedule_air(now, index);
    }
}
