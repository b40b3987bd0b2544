//! Links and cells have their turn: what they deliver, and what they report.

use holdover_base::Instant;
use holdover_link::cell::{CellEvent, Hop, Node};
use holdover_link::{Link, LinkEvent};

use super::World;
use crate::config::NodeId;
use crate::frame::Frame;
use crate::observer::{Direction, Dropped, LinkId, Medium, Observer, Place, WorldEvent};

impl World {
    pub(super) fn step_hop<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let now = self.now;
        self.network.hops[index].link.handle_timeout(now);
        while let Some(delivery) = self.network.hops[index].link.poll_deliver(now) {
            let hop = &self.network.hops[index];
            let (to, medium) = (hop.to, Medium::Link(hop.id));
            observer.packet(now, Place { node: to, medium, direction: Direction::In }, &delivery.frame);
            if delivery.corrupted {
                observer.dropped(now, Dropped::Corrupted(medium), &delivery.frame);
            } else {
                self.arrive(to, delivery.frame, observer);
            }
        }
        self.pass_link_events(index, observer);
        self.network.reschedule_hop(index);
    }

    /// What a link reports: losses, and that it went down or came back.
    fn pass_link_events<O: Observer>(&mut self, index: usize, observer: &mut O) {
        while let Some(event) = self.network.hops[index].link.poll_event() {
            let id = self.network.hops[index].id;
            // Both directions go down together; the first one speaks for both.
            let speaks = index.is_multiple_of(2);
            match event {
                LinkEvent::Dropped { at, cause, frame } => {
                    observer.dropped(at, Dropped::Lost(Medium::Link(id), cause), &frame);
                }
                LinkEvent::Down { at } if speaks => self.link_changed(at, id, false, observer),
                LinkEvent::Up { at } if speaks => self.link_changed(at, id, true, observer),
                LinkEvent::Down { .. } | LinkEvent::Up { .. } => {}
            }
        }
    }

    fn link_changed<O: Observer>(&mut self, at: Instant, id: LinkId, up: bool, observer: &mut O) {
        self.network.set_link_up(id, up);
        observer.event(at, &if up { WorldEvent::LinkUp(id) } else { WorldEvent::LinkDown(id) });
        let link = id.0 as usize;
        self.review_paths(at, |way| way.hops.iter().any(|&hop| hop / 2 == link));
        let ends = (self.network.hops[link * 2].from, self.network.hops[link * 2].to);
        for node in [ends.0, ends.1] {
            self.review_access(at, node, observer);
        }
    }

    /// Which link a host uses may have changed.
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

    /// Whether the host at the other end of a link learns of it at the same time.
    fn is_between_hosts(&self, link: LinkId) -> bool {
        let hop = &self.network.hops[link.0 as usize * 2];
        self.host_index(hop.from).is_some() && self.host_index(hop.to).is_some()
    }

    pub(super) fn step_air<O: Observer>(&mut self, index: usize, observer: &mut O) {
        self.network.airs[index].cell.handle_timeout(self.now);
        self.pass_air(index, observer);
    }

    /// What a cell delivers and reports.
    pub(super) fn pass_air<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let now = self.now;
        loop {
            let air = &mut self.network.airs[index];
            if let Some(reception) = air.cell.poll_deliver(now) {
                let node = match reception.to {
                    Node::Base => air.base,
                    Node::Station(station) => NodeId(station.0),
                };
                observer.packet(now, air.place(node, Direction::In), &reception.frame);
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
            // Whoever has it sends it again: the base station along its routes, a mobile host in the cell where it is now.
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
        let frame = beacons.send(now, base);
        let next_at = beacons.next_at;
        observer.packet(now, air.place(base, Direction::Out), &frame);
        air.cell.handle_packet(now, Hop::Broadcast { frame });
        self.network.schedule.set(self.network.sources.beacons + index, Some(next_at));
        self.network.reschedule_air(now, index);
    }
}
