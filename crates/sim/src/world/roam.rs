//! Mobile hosts move, attach to cells and register.

use holdover_base::Instant;
use holdover_filter::Presence;
use holdover_link::cell::Position;
use holdover_mobility::LinkEvent;

use super::World;
use crate::air::station;
use crate::config::NodeId;
use crate::frame::Frame;
use crate::mobility::messages::Message;
use crate::mobility::{Attachment, Foresight, RegisterOn, Registration, Selection};
use crate::observer::{Observer, WorldEvent};

impl World {
    /// Puts every mobile host where it is at first. It is attached to the first cell that covers it there.
    pub(super) fn place_mobiles(&mut self) {
        for index in 0..self.mobiles.len() {
            let node = self.mobiles[index].node();
            while self.mobiles[index].track.next_at() == Some(Instant::ZERO) {
                self.mobiles[index].track.advance();
            }
            for (cell, air) in self.network.airs.iter_mut().enumerate() {
                let motion = self.mobiles[index].track.motion(cell, &self.config.cells[cell]);
                // A host is described as mobile once, so that nobody has joined under its name.
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
                // Whether a disconnection is foreseen is told when the run begins.
                mobile.look_at = mobile.config.prediction.map(|_| Instant::ZERO);
                debug_assert!(self.network.airs[cell].cell.in_range(station(node), Instant::ZERO));
            }
        }
    }

    pub(super) fn reschedule_mobile(&mut self, index: usize) {
        let deadline = self.mobiles[index].deadline();
        self.network.schedule.set(self.network.sources.mobiles + index, deadline);
    }

    /// A mobile host's own time has come: it turns, is attached, repeats its request, or looks ahead.
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
        if let Some(request) = self.mobiles[index].request
            && request.again_at <= now
        {
            self.request(index, request.cell, observer);
        }
        if self.mobiles[index].look_at.is_some_and(|at| at <= now) {
            self.look_ahead(index, observer);
        }
        self.reschedule_mobile(index);
    }

    /// The next piece of its movement begins.
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

    /// A cell covers a mobile host from now on, or does no longer.
    pub(super) fn coverage_changed<O: Observer>(&mut self, node: NodeId, cell: usize, covered: bool, observer: &mut O) {
        let Some(index) = self.network.mobile(node) else { return };
        let mobile = &mut self.mobiles[index];
        mobile.covered[cell] = covered;
        if !covered && mobile.request.is_some_and(|request| request.cell == cell) {
            mobile.request = None;
            mobile.unsure = true;
        }
        self.review_connectivity(index, observer);
        self.choose_without_registration(index);
        self.reschedule_mobile(index);
    }

    /// Without registration: which cell it will be attached to, and when.
    fn choose_without_registration(&mut self, index: usize) {
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

    /// The cell that a mobile host would choose of those that cover it.
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

    /// From a mobile host to the base station of a cell, relative to the cell's range: who is nearer so is heard better above
    /// what its radio needs.
    fn distance_m(&self, index: usize, cell: usize) -> f64 {
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

    /// A mobile host hears a beacon.
    pub(super) fn hear_beacon<O: Observer>(&mut self, node: NodeId, cell: usize, observer: &mut O) {
        let Some(index) = self.network.mobile(node) else { return };
        observer.event(self.now, &WorldEvent::BeaconHeard(node, self.network.airs[cell].id));
        if self.wants_to_register(index, cell) {
            self.request(index, cell, observer);
        }
        self.choose_without_registration(index);
        self.reschedule_mobile(index);
    }

    /// Whether a mobile host answers a beacon by a registration request.
    fn wants_to_register(&self, index: usize, cell: usize) -> bool {
        let mobile = &self.mobiles[index];
        let Attachment::Registration(registration) = &mobile.config.attachment else { return false };
        let current = self.network.roaming[index].uplink;
        if let Some(request) = mobile.request {
            // One request at a time, unless something better comes.
            let better = mobile.config.selection == Selection::Strongest
                && self.distance_m(index, cell) < self.distance_m(index, request.cell);
            return request.cell != cell && better;
        }
        match current {
            Some(current) if current == cell => mobile.unsure || registration.on == RegisterOn::EveryBeacon,
            Some(current) if mobile.covered[current] => {
                mobile.config.selection == Selection::Strongest
                    && self.distance_m(index, cell) < self.distance_m(index, current)
            }
            _ => true,
        }
    }

    /// A mobile host sends a registration request, for the first time or again.
    fn request<O: Observer>(&mut self, index: usize, cell: usize, observer: &mut O) {
        let now = self.now;
        let mobile = &mut self.mobiles[index];
        let Attachment::Registration(registration) = &mobile.config.attachment else { return };
        let registration: Registration = registration.clone();
        let request = mobile.next_request(now, cell, &registration);
        let (node, base) = (mobile.node(), self.network.airs[cell].base);
        let id = self.network.airs[cell].id;
        observer.event(now, &WorldEvent::RegistrationRequested(node, id, request.attempts));
        let message = Message::Request { mobile: node, gateway: registration.gateway, base, id: request.id };
        let frame = Box::new(Frame::new(message.packet(node, base), None));
        self.network.send_up(now, cell, node, frame, observer);
    }

    /// A message for a base station or a gateway.
    pub(super) fn relay_message<O: Observer>(&mut self, node: NodeId, message: Message, observer: &mut O) {
        let now = self.now;
        match message {
            Message::Request { mobile, gateway, base, id } if node == gateway => {
                let presence = self.bind(mobile, base, observer);
                let reply = Message::Reply { mobile, gateway, id };
                self.send_message(node, base, reply, observer);
                // After the reply, which so precedes what a gateway has kept for the host.
                if let Some(presence) = presence {
                    self.tell_of_registration(node, mobile, presence, observer);
                }
            }
            Message::Request { gateway, .. } => self.send_message(node, gateway, message, observer),
            Message::Reply { mobile, .. } => {
                if let Some(cell) = self.network.cell_of(node) {
                    let frame = Box::new(Frame::new(message.packet(node, mobile), None));
                    self.network.send_down(now, cell, mobile, frame, observer);
                }
            }
            Message::Revocation { mobile, .. } => {
                let bound = self.network.mobile(mobile).and_then(|index| self.network.roaming[index].binding);
                if let Some(cell) = self.network.cell_of(node).filter(|&cell| bound != Some(cell)) {
                    self.network.airs[cell].cell.recall_from_base(now, station(mobile));
                    self.network.reschedule_air(now, cell);
                }
            }
        }
    }

    /// A base station or gateway sends a message to another, or to itself if it is both.
    fn send_message<O: Observer>(&mut self, from: NodeId, to: NodeId, message: Message, observer: &mut O) {
        if from == to {
            return self.relay_message(to, message, observer);
        }
        let frame = Box::new(Frame::new(message.packet(from, to), None));
        self.network.forward(self.now, from, frame, observer);
    }

    /// The gateway sends a mobile host's packets to a base station from now on. Returns what its mechanisms hear of that.
    fn bind<O: Observer>(&mut self, node: NodeId, base: NodeId, observer: &mut O) -> Option<Presence> {
        let (Some(index), Some(cell)) = (self.network.mobile(node), self.network.cell_of(base)) else { return None };
        let before = self.network.roaming[index].binding.replace(cell);
        if before != Some(cell) {
            observer.event(self.now, &WorldEvent::BindingChanged(node, self.network.airs[cell].id));
        }
        if let Attachment::Registration(registration) = &self.mobiles[index].config.attachment
            && let Some(old) = before.filter(|&before| before != cell && registration.tell_old_base)
        {
            let (gateway, base) = (registration.gateway, self.network.airs[old].base);
            self.send_message(gateway, base, Message::Revocation { mobile: node, gateway, base }, observer);
        }
        self.review_connectivity(index, observer);
        Some(if before == Some(cell) { Presence::Present } else { Presence::Rebound })
    }

    /// A message for a mobile host: the reply to its request, unless it has given that up.
    pub(super) fn hear_message<O: Observer>(&mut self, node: NodeId, message: Message, observer: &mut O) {
        let Message::Reply { id, .. } = message else { return };
        let Some(index) = self.network.mobile(node) else { return };
        let mobile = &mut self.mobiles[index];
        let Some(request) = mobile.request.take_if(|request| request.id == id) else { return };
        mobile.unsure = false;
        let cell = request.cell;
        let old = self.network.roaming[index].uplink.replace(cell).filter(|&old| old != cell);
        observer.event(self.now, &WorldEvent::Registered(node, self.network.airs[cell].id));
        if let Some(old) = old {
            self.network.airs[old].cell.recall_from_station(self.now, station(node));
            self.network.reschedule_air(self.now, old);
        }
        self.review_connectivity(index, observer);
        self.reschedule_mobile(index);
    }

    /// Whether packets get through to a mobile host and back may have changed.
    fn review_connectivity<O: Observer>(&mut self, index: usize, observer: &mut O) {
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

    /// A connected mobile host looks whether it is about to lose its cell.
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
