//! Hosts that take time to receive packets.

use super::World;
use crate::config::WorldConfig;
use crate::frame::Frame;
use crate::ids::NodeId;
use crate::latency::Latency;
use crate::observer::Observer;

pub(super) fn all(config: &WorldConfig) -> Vec<Latency> {
    let latency = |latency: &crate::config::HostLatency| {
        Latency::new(*latency, &config.nodes[latency.node.index()].name, config.seed)
    };
    config.latencies.iter().map(latency).collect()
}

impl World {
    /// Handles a packet that arrived at a host, in a world where some hosts have a latency. That of a kernel is its own.
    pub(super) fn receive_later<O: Observer>(
        &mut self,
        node: NodeId,
        host: usize,
        frame: Box<Frame>,
        observer: &mut O,
    ) {
        let latency = self.latencies.iter().position(|latency| latency.node() == node);
        match latency.filter(|_| !self.hosts[host].external) {
            Some(index) => {
                self.latencies[index].take(self.now, frame);
                self.reschedule_latency(index);
            }
            None => self.receive(node, host, frame, observer),
        }
    }

    /// Handles a packet whose latency has passed.
    pub(super) fn step_latency<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let node = self.latencies[index].node();
        let host = self.host_index(node);
        if let (Some(host), Some(frame)) = (host, self.latencies[index].next(self.now)) {
            self.receive(node, host, frame, observer);
        }
        self.reschedule_latency(index);
    }

    fn reschedule_latency(&mut self, index: usize) {
        let deadline = self.latencies[index].deadline();
        self.network.schedule.set(self.network.sources.latencies + index, deadline);
    }
}
