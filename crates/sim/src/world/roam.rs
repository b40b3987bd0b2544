//! Mobile hosts move, and attach to cells.

use holdover_base::Instant;
use holdover_filter::Presence;
use holdover_link::cell::Position;
use holdover_mobility::LinkEvent;

use super::World;
use crate::cell_beacons::station;
use crate::ids::NodeId;
use crate::mobility::{Attachment, Foresight, Selection};
use crate::observer::{Observer, WorldEvent};

impl World {
    /// Places every mobile host at its initial position, attached to the first cell that covers it there.
    pub(super) fn place_mobiles(&mut self) {
        for index in 0..self.mobiles.len() {
            let node = self.mobiles[index].node();
            while self.mobiles[index].track.next_at() == Some(Instant::ZERO) {
                self.mobiles[index].track.advance();
            }
            for (cell, air) in self.network.airs.iter_mut().enumerate() {
                let motion = self.mobiles[index].track.motion(cell, &self.config.cells[cell]);
                // A host is described as mobile only once, so its name is not taken.
                let _ = air.cell.join(Instant::ZERO, station(node), motion);
                self.mobiles[index].covered[cell] = air.cell.in_range(station(node), Instant::ZERO);
            }
            let first = self.mobiles[index].covered.iter().position(|&covered| covered);
            self.network.roaming[index].uplink = first;
            self.network.roaming[index].binding = first;
            let mobile = &mut self.mobiles[index];
            mobile.connected = first.is_some();
            mobile.last_cell = first;
            if let Some(cell) = first {
                self.register_at_first(index, cell);
                let mobile = &mut self.mobiles[index];
                // Reports an imminent disconnection at the start of the run.
                mobile.look_at = mobile.config.prediction.map(|_| Instant::ZERO);
                debug_assert!(self.network.airs[cell].cell.in_range(station(node), Instant::ZERO));
            }
        }
    }

    pub(super) fn reschedule_mobile(&mut self, index: usize) {
        let deadline = self.mobiles[index].deadline();
        self.network.schedule.set(self.network.sources.mobiles + index, deadline);
    }

    /// Handles a mobile host's deadline: a new segment of its movement, an attachment, a repeated request, or a
    /// prediction.
    pub(super) fn step_mobile<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let now = self.now;
        if self.mobiles[index].track.next_at().is_some_and(|at| at <= now) {
            self.turn(index, observer);
        }
        if let Some((at, cell)) = self.mobiles[index].attaches
            && at <= now
        {
            self.mobiles[index].attaches = None;
            self.attach(index, cell, observer);
        }
        if let Some(registrar) = &mut self.mobiles[index].registrar
            && registrar.poll_timeout().is_some_and(|at| at <= now)
        {
            registrar.handle_timeout(now);
            self.serve_registrar(index, observer);
        }
        if self.mobiles[index].look_at.is_some_and(|at| at <= now) {
            self.look_ahead(index, observer);
        }
        self.reschedule_mobile(index);
    }

    /// Begins the next segment of its movement.
    fn turn<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let now = self.now;
        while self.mobiles[index].track.next_at().is_some_and(|at| at <= now) {
            self.mobiles[index].track.advance();
        }
        let node = self.mobiles[index].node();
        for (cell, air) in self.network.airs.iter_mut().enumerate() {
            let motion = self.mobiles[index].track.motion(cell, &self.config.cells[cell]);
            air.cell.set_motion(now, station(node), motion);
        }
        for cell in 0..self.network.airs.len() {
            self.pass_air(cell, observer);
        }
        self.look_ahead(index, observer);
    }

    /// A cell begins or ceases to cover a mobile host.
    pub(super) fn coverage_changed<O: Observer>(&mut self, node: NodeId, cell: usize, covered: bool, observer: &mut O) {
        let Some(index) = self.network.mobile(node) else { return };
        let mobile = &mut self.mobiles[index];
        mobile.covered[cell] = covered;
        if let Some(registrar) = mobile.registrar.as_mut().filter(|_| !covered) {
            registrar.handle_lost(self.network.airs[cell].base.ipv4());
        }
        self.review_connectivity(index, observer);
        self.choose_without_registration(index);
        self.reschedule_mobile(index);
    }

    /// Without registration: chooses the next cell, and the time of the attachment.
    pub(super) fn choose_without_registration(&mut self, index: usize) {
        let Attachment::HandoffTime(handoff_time) = self.mobiles[index].config.attachment else { return };
        let current = self.network.roaming[index].uplink;
        let wanted = self.best_cell(index, current);
        let mobile = &mut self.mobiles[index];
        mobile.attaches = match (wanted, mobile.attaches) {
            (None, _) => None,
            (wanted, _) if wanted == current => None,
            (Some(wanted), Some((at, cell))) if wanted == cell => Some((at, cell)),
            (Some(wanted), _) => Some((self.now + handoff_time, wanted)),
        };
    }

    /// The cell that a mobile host would choose among those that cover it.
    fn best_cell(&self, index: usize, current: Option<usize>) -> Option<usize> {
        let mobile = &self.mobiles[index];
        let covered = |cell: &usize| mobile.covered[*cell];
        match mobile.config.selection {
            Selection::Keep => {
                let begun = mobile.attaches.map(|(_, cell)| cell);
                let kept = current.filter(covered).or(begun.filter(covered));
                kept.or_else(|| (0..mobile.covered.len()).find(covered))
            }
            Selection::Strongest => (0..mobile.covered.len())
                .filter(covered)
                .min_by(|&a, &b| self.distance_m(index, a).total_cmp(&self.distance_m(index, b))),
        }
    }

    /// The distance from a mobile host to the base station of a cell, relative to the cell's range: the smaller, the farther the signal is
    /// above the receive threshold.
    pub(super) fn distance_m(&self, index: usize, cell: usize) -> f64 {
        let config = &self.config.cells[cell];
        let position: Position = self.mobiles[index].track.motion(cell, config).position(self.now);
        position.distance_m(config.cell.position) / config.cell.radio.range_m()
    }

    fn attach<O: Observer>(&mut self, index: usize, cell: usize, observer: &mut O) {
        let node = self.mobiles[index].node();
        let old = self.network.roaming[index].uplink.filter(|&old| old != cell);
        self.network.roaming[index].uplink = Some(cell);
        self.network.roaming[index].binding = Some(cell);
        observer.event(self.now, &WorldEvent::Attached(node, self.network.airs[cell].id));
        if let Some(old) = old {
            self.network.airs[old].cell.recall_from_base(self.now, station(node));
            self.network.airs[old].cell.recall_from_station(self.now, station(node));
            self.network.reschedule_air(self.now, old);
        }
        self.review_connectivity(index, observer);
    }

    /// Checks whether packets reach a mobile host and return.
    pub(super) fn review_connectivity<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let roaming = &self.network.roaming[index];
        let node = roaming.node;
        let cell = roaming.uplink.filter(|&cell| roaming.binding == Some(cell) && self.mobiles[index].covered[cell]);
        let mobile = &mut self.mobiles[index];
        let (was_connected, last) = (mobile.connected, mobile.last_cell);
        mobile.connected = cell.is_some();
        let what = match cell {
            None if was_connected => {
                mobile.look_at = None;
                observer.event(self.now, &WorldEvent::ConnectivityLost(node));
                if let Some(last) = last {
                    self.tell_gateway(self.network.airs[last].base, node, Presence::Away, observer);
                }
                LinkEvent::Down
            }
            Some(cell) if !was_connected || last != Some(cell) => {
                let moved = last != Some(cell);
                mobile.last_cell = Some(cell);
                mobile.fading = false;
                let id = self.network.airs[cell].id;
                observer.event(self.now, &WorldEvent::ConnectivityBack { node, cell: id, moved });
                if let Some(old) = last.filter(|_| moved) {
                    self.tell_gateway(self.network.airs[old].base, node, Presence::Moved, observer);
                }
                self.tell_gateway(self.network.airs[cell].base, node, Presence::Present, observer);
                LinkEvent::Up { symmetric: false, moved }
            }
            _ => return,
        };
        self.review_paths(self.now, |way| way.mobiles.contains(&index));
        if let Some(host) = self.host_index(node) {
            self.tell(host, what, observer);
        }
        if cell.is_some() {
            self.look_ahead(index, observer);
        }
    }

    /// A connected mobile host checks whether it is about to lose its cell.
    fn look_ahead<O: Observer>(&mut self, index: usize, observer: &mut O) {
        if !self.mobiles[index].connected {
            return;
        }
        let Some(cell) = self.network.roaming[index].uplink else { return };
        let foresight = self.mobiles[index].look_ahead(self.now, cell, &self.config.cells[cell]);
        self.reschedule_mobile(index);
        let (node, id, base) = (self.mobiles[index].node(), self.network.airs[cell].id, self.network.airs[cell].base);
        // The base station measures the same fading: both directions have the same path loss.
        let (what, presence) = match foresight {
            Foresight::Nothing => return,
            Foresight::Fading(lead) => {
                observer.event(self.now, &WorldEvent::Fading(node, id, lead));
                (LinkEvent::Fading { lead }, Presence::Fading { lead })
            }
            Foresight::Recovered => {
                observer.event(self.now, &WorldEvent::Recovered(node, id));
                (LinkEvent::Recovered, Presence::Present)
            }
        };
        self.tell_gateway(base, node, presence, observer);
        if let Some(host) = self.host_index(node) {
            self.tell(host, what, observer);
        }
    }
}
