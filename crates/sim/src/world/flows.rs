//! Serves flows, and notifies them of the state of their path.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdover_base::Instant;

use super::World;
use crate::app;
use crate::config::Traffic;
use crate::external::ShellCommand;
use crate::flow::{End, SenderState};
use crate::ids::FlowId;
use crate::network::Way;
use crate::observer::{Dropped, Observer, WorldEvent};

impl World {
    #[inline(always)]
    pub(super) fn after_turn(&mut self, flow: FlowId, was_over: bool) {
        let index = flow.0 as usize;
        if self.flows[index].resumes() {
            let sender = self.sender_state(index);
            self.flows[index].note_resumed(sender);
        }
        let flow = &self.flows[index];
        if flow.is_over() && !was_over && flow.is_finite() {
            self.unfinished -= 1;
        }
        let deadline = flow.exchange.ask_at.or_else(|| flow.bursts.as_ref()?.send_at);
        self.network.schedule.set(self.network.sources.flows + index, deadline);
    }

    /// Handles a flow's deadline: it begins, sends a request, or sends a datagram.
    pub(super) fn step_flow<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let now = self.now;
        let id = FlowId(index as u32);
        self.choose_addresses(index);
        if let Traffic::OnOff(config) = self.flows[index].config.traffic {
            let flow = &mut self.flows[index];
            flow.begun = true;
            let from = flow.config.from;
            let packet = app::datagram(flow, now, &config);
            if let Some(packet) = packet.as_ref().filter(|_| self.is_external(from)) {
                self.shell_commands.extend(ShellCommand::datagram(id, packet));
            } else if let Some(packet) = packet {
                let frame = self.network.pool.frame(packet, None);
                match self.host_index(from) {
                    Some(host) => self.depart(host, frame, observer),
                    None => observer.dropped(now, Dropped::NoRoute(from), &frame),
                }
            } else {
                observer.event(now, &WorldEvent::FlowStarted(id));
            }
            return self.after_turn(id, false);
        }
        let flow = &self.flows[index];
        let (opener, listener) = (flow.opener(), flow.opener().other());
        let begins = !flow.begun;
        self.flows[index].begun = true;
        let flow = &self.flows[index];
        if begins {
            observer.event(now, &WorldEvent::FlowStarted(id));
            let config = match listener {
                End::From => Arc::clone(&flow.config.sender),
                End::To => Arc::clone(&flow.config.receiver),
            };
            let port = flow.port;
            if let Some(host) = self.host_index(flow.node(listener)).filter(|&host| !self.hosts[host].external) {
                // A port belongs to one flow, so it has no listener yet.
                let _ = self.hosts[host].endpoint.listen(port, config, usize::MAX);
            }
        }
        let Some(host) = self.host_index(self.flows[index].node(opener)) else { return };
        let was_over = self.flows[index].is_over();
        let mut turn = self.flow_turn(id, host);
        if begins {
            turn.open(opener, observer);
        } else {
            turn.ask();
        }
        self.after_turn(id, was_over);
        self.serve(host, observer);
    }

    /// Finds the initial path of every flow.
    pub(super) fn lay_paths(&mut self) {
        let mut ways = BTreeMap::new();
        for index in 0..self.flows.len() {
            let flow = &self.flows[index];
            let (from, to, ipv6) = (flow.config.from, flow.config.to, flow.config.ipv6);
            let mut way =
                |from, to| ways.entry((from, to)).or_insert_with(|| self.network.way(from, to).map(Arc::new)).clone();
            let (path, return_path) = (way(from, to), way(to, from));
            let whole = self.is_whole(path.as_deref(), ipv6) && self.is_whole(return_path.as_deref(), ipv6);
            let moves = |node| self.network.mobile(node).is_some() || self.network.accesses(node) > 1;
            let roams = moves(from) || moves(to) || self.network.following.is_some();
            let now = self.now;
            let flow = &mut self.flows[index];
            (flow.path, flow.return_path, flow.roams) = (path, return_path, roams);
            flow.note_path(now, whole, None);
        }
    }

    /// Reports a change to flows whose path `crosses` it, and to those whose path can change.
    pub(super) fn review_paths(&mut self, at: Instant, crosses: impl Fn(&Way) -> bool) {
        for index in 0..self.flows.len() {
            let flow = &self.flows[index];
            let ways = [&flow.path, &flow.return_path];
            if flow.is_over() || !(flow.roams || ways.into_iter().flatten().any(|way| crosses(way))) {
                continue;
            }
            if flow.roams {
                let (from, to) = (flow.config.from, flow.config.to);
                let (path, return_path) = (self.network.way(from, to), self.network.way(to, from));
                let flow = &mut self.flows[index];
                (flow.path, flow.return_path) = (path.map(Arc::new), return_path.map(Arc::new));
            }
            let flow = &self.flows[index];
            let ipv6 = flow.config.ipv6;
            let whole = self.is_whole(flow.path.as_deref(), ipv6) && self.is_whole(flow.return_path.as_deref(), ipv6);
            let sender = self.sender_state(index);
            self.flows[index].note_path(at, whole, sender);
        }
    }

    fn sender_state(&self, index: usize) -> Option<SenderState> {
        self.connection(&self.flows[index], End::From).map(SenderState::of)
    }

    fn is_whole(&self, way: Option<&Way>, ipv6: bool) -> bool {
        way.is_some_and(|way| {
            way.hops.iter().all(|&hop| self.network.carries(hop / 2, ipv6))
                && way.mobiles.iter().all(|&mobile| self.mobiles[mobile].connected)
        })
    }
}
