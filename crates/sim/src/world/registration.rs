//! Registration of mobile hosts: executes the actions of the Mobile IP machines.

use core::net::{IpAddr, Ipv4Addr};

use holdover_filter::Presence;
use holdover_mobility::mobile_ip::{HomeAgent, HomeEvent, Message, MobileEvent, Towards, View};

use super::World;
use crate::cell_beacons::station;
use crate::config::WorldConfig;
use crate::frame::Frame;
use crate::ids::NodeId;
use crate::mobility::{Attachment, Selection};
use crate::observer::{Observer, WorldEvent};

/// The home agents of a world, with the mobile hosts that they serve.
pub(super) fn home_agents(config: &WorldConfig) -> Vec<(NodeId, HomeAgent)> {
    let mut agents: Vec<_> = config.home_agents().into_iter().map(|node| (node, HomeAgent::new(node.ipv4()))).collect();
    for mobile in &config.mobiles {
        let Attachment::Registration(registration) = &mobile.attachment else { continue };
        if let Some((_, agent)) = agents.iter_mut().find(|(node, _)| *node == registration.gateway) {
            agent.serve(mobile.node.ipv4(), registration.lifetime(), registration.tell_old_base);
        }
    }
    agents
}

fn node_of(address: Ipv4Addr) -> Option<NodeId> {
    NodeId::of(IpAddr::V4(address))
}

impl World {
    /// Registers a mobile host with the cell that covers it when the run begins.
    pub(super) fn register_at_first(&mut self, index: usize, cell: usize) {
        let (now, base) = (self.now, self.network.airs[cell].base.ipv4());
        let mobile = &mut self.mobiles[index];
        let home = mobile.node().ipv4();
        if let (Some(registrar), Attachment::Registration(registration)) =
            (&mut mobile.registrar, &mobile.config.attachment)
        {
            registrar.register_at(now, base);
            if let Some((_, agent)) = self.home_agents.iter_mut().find(|(node, _)| *node == registration.gateway) {
                agent.bind(now, home, base);
            }
        }
    }

    /// A mobile host has received a beacon.
    pub(super) fn hear_beacon<O: Observer>(&mut self, node: NodeId, cell: usize, observer: &mut O) {
        let now = self.now;
        let Some(index) = self.network.mobile(node) else { return };
        observer.event(now, &WorldEvent::BeaconHeard(node, self.network.airs[cell].id));
        let view = self.view(index, cell);
        let agent = self.network.airs[cell].base.ipv4();
        if let Some(registrar) = &mut self.mobiles[index].registrar {
            registrar.handle_advertisement(now, agent, view);
            self.serve_registrar(index, observer);
        }
        self.choose_without_registration(index);
        self.reschedule_mobile(index);
    }

    /// Compares a cell with those that a mobile host is registered with and has sent a request to.
    fn view(&self, index: usize, cell: usize) -> View {
        let mobile = &self.mobiles[index];
        let current = self.network.roaming[index].uplink;
        let asked = mobile.registrar.as_ref().and_then(|registrar| self.cell_of_agent(registrar.asked()?));
        let is_better = |than: Option<usize>| {
            mobile.config.selection == Selection::Strongest
                && than.is_some_and(|than| self.distance_m(index, cell) < self.distance_m(index, than))
        };
        View {
            reaches_current: current.is_some_and(|current| mobile.covered[current]),
            better_than_current: is_better(current),
            better_than_asked: is_better(asked),
        }
    }

    fn cell_of_agent(&self, agent: Ipv4Addr) -> Option<usize> {
        self.network.cell_of(node_of(agent)?)
    }

    /// Handles the output of a mobile host's state machine.
    pub(super) fn serve_registrar<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let now = self.now;
        let node = self.mobiles[index].node();
        while let Some(event) = self.mobiles[index].registrar.as_mut().and_then(|registrar| registrar.poll_event()) {
            let (MobileEvent::Requested { agent, .. }
            | MobileEvent::Registered { agent }
            | MobileEvent::Denied { agent, .. }
            | MobileEvent::Expired { agent }) = event;
            let Some(cell) = self.cell_of_agent(agent) else { continue };
            let id = self.network.airs[cell].id;
            match event {
                MobileEvent::Requested { attempts, .. } => {
                    observer.event(now, &WorldEvent::RegistrationRequested(node, id, attempts));
                }
                MobileEvent::Registered { .. } => self.registered(index, cell, observer),
                MobileEvent::Expired { .. } => {
                    self.network.roaming[index].uplink = None;
                    observer.event(now, &WorldEvent::RegistrationExpired(node, id));
                    self.review_connectivity(index, observer);
                }
                // Every mobile host is served by its home agent.
                MobileEvent::Denied { .. } => {}
            }
        }
        while let Some((message, agent)) =
            self.mobiles[index].registrar.as_mut().and_then(|registrar| registrar.poll_transmit())
        {
            let Some(base) = node_of(agent) else { continue };
            let Some(cell) = self.network.cell_of(base) else { continue };
            let frame = Box::new(Frame::new(message.packet(node.ipv4(), agent), None));
            self.network.send_up(now, cell, node, frame, observer);
        }
    }

    /// A mobile host sends in another cell from now on, or continues in the same.
    fn registered<O: Observer>(&mut self, index: usize, cell: usize, observer: &mut O) {
        let node = self.mobiles[index].node();
        let old = self.network.roaming[index].uplink.replace(cell).filter(|&old| old != cell);
        observer.event(self.now, &WorldEvent::Registered(node, self.network.airs[cell].id));
        if let Some(old) = old {
            self.network.airs[old].cell.recall_from_station(self.now, station(node));
            self.network.reschedule_air(self.now, old);
        }
        self.review_connectivity(index, observer);
    }

    /// Handles a message for a mobile host.
    pub(super) fn hear_message<O: Observer>(&mut self, node: NodeId, message: Message, observer: &mut O) {
        let Some(index) = self.network.mobile(node) else { return };
        let Some(registrar) = &mut self.mobiles[index].registrar else { return };
        registrar.handle_message(self.now, message);
        self.serve_registrar(index, observer);
        self.reschedule_mobile(index);
    }

    /// Handles a message for a base station or a gateway.
    pub(super) fn relay_message<O: Observer>(&mut self, node: NodeId, message: Message, observer: &mut O) {
        let own = node.ipv4();
        if let Message::Request { home_agent, care_of, .. } = message
            && home_agent == own
            && let Some(index) = self.home_agents.iter().position(|(agent, _)| *agent == node)
        {
            self.home_agents[index].1.handle_message(self.now, care_of, message);
            return self.serve_home_agent(index, observer);
        }
        let Some(cell) = self.network.cell_of(node) else { return };
        self.network.airs[cell].agent.handle_message(message);
        while let Some((message, towards)) = self.network.airs[cell].agent.poll_transmit() {
            match towards {
                Towards::Node(to) => self.send_message(node, to, message, observer),
                Towards::Visitor(home) => {
                    let Some(mobile) = node_of(home) else { continue };
                    let frame = Box::new(Frame::new(message.packet(own, home), None));
                    self.network.send_down(self.now, cell, mobile, frame, observer);
                }
            }
        }
        while let Some(home) = self.network.airs[cell].agent.poll_left() {
            let Some(mobile) = node_of(home) else { continue };
            let bound = self.network.mobile(mobile).and_then(|index| self.network.roaming[index].binding);
            if bound != Some(cell) {
                self.network.airs[cell].cell.recall_from_base(self.now, station(mobile));
                self.network.reschedule_air(self.now, cell);
            }
        }
    }

    /// Handles the output of a home agent.
    fn serve_home_agent<O: Observer>(&mut self, agent: usize, observer: &mut O) {
        let node = self.home_agents[agent].0;
        let mut heard = None;
        while let Some(event) = self.home_agents[agent].1.poll_event() {
            match event {
                HomeEvent::Bound { home, care_of, .. } => {
                    let (Some(mobile), Some(cell)) = (node_of(home), self.cell_of_agent(care_of)) else { continue };
                    let Some(index) = self.network.mobile(mobile) else { continue };
                    let before = self.network.roaming[index].binding.replace(cell);
                    if before != Some(cell) {
                        observer.event(self.now, &WorldEvent::BindingChanged(mobile, self.network.airs[cell].id));
                    }
                    let presence = if before == Some(cell) { Presence::Present } else { Presence::Rebound };
                    heard = Some((index, mobile, presence));
                }
                HomeEvent::Expired { home } | HomeEvent::Deregistered { home } => {
                    let Some(mobile) = node_of(home) else { continue };
                    let Some(index) = self.network.mobile(mobile) else { continue };
                    self.network.roaming[index].binding = None;
                    observer.event(self.now, &WorldEvent::BindingExpired(mobile));
                    self.review_connectivity(index, observer);
                }
            }
        }
        while let Some((message, to)) = self.home_agents[agent].1.poll_transmit() {
            if let (Message::Reply { .. }, Some((index, ..))) = (message, heard) {
                self.review_connectivity(index, observer);
            }
            self.send_message(node, to, message, observer);
        }
        // After the reply, so that the reply precedes the packets that a gateway has buffered for the host.
        if let Some((_, mobile, presence)) = heard {
            self.tell_of_registration(node, mobile, presence, observer);
        }
        self.reschedule_home_agent(agent);
    }

    /// Expires bindings.
    pub(super) fn step_home_agent<O: Observer>(&mut self, agent: usize, observer: &mut O) {
        self.home_agents[agent].1.handle_timeout(self.now);
        self.serve_home_agent(agent, observer);
    }

    pub(super) fn reschedule_home_agent(&mut self, agent: usize) {
        let deadline = self.home_agents[agent].1.poll_timeout();
        self.network.schedule.set(self.network.sources.home_agents + agent, deadline);
    }

    /// Sends a message from a base station or gateway to another, or to itself if it is both.
    fn send_message<O: Observer>(&mut self, from: NodeId, to: Ipv4Addr, message: Message, observer: &mut O) {
        if from.ipv4() == to {
            return self.relay_message(from, message, observer);
        }
        let frame = Box::new(Frame::new(message.packet(from.ipv4(), to), None));
        self.network.forward(self.now, from, frame, observer);
    }
}
