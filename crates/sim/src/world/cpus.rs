//! Routers whose processors take time: packets queue for them.

use super::World;
use crate::cpu::CpuStatistics;
use crate::frame::Frame;
use crate::ids::NodeId;
use crate::observer::{Dropped, Observer};

impl World {
    /// The counters of a router's processor; `None` if it takes no time.
    pub fn cpu_statistics(&self, node: NodeId) -> Option<CpuStatistics> {
        Some(self.cpus.iter().find(|cpu| cpu.node() == node)?.statistics())
    }

    /// Handles a packet that arrived at a router: it waits for the processor if that takes time.
    #[inline]
    pub(super) fn queue_at_router<O: Observer>(&mut self, node: NodeId, frame: Box<Frame>, observer: &mut O) {
        let Some(index) = self.cpus.iter().position(|cpu| cpu.node() == node) else {
            return self.arrive_at_router(node, frame, observer);
        };
        let is_operation = self.is_operation(node, &frame);
        let now = self.now;
        match self.cpus[index].take(now, frame, is_operation) {
            Ok(()) => self.reschedule_cpu(index),
            Err(frame) => observer.dropped(now, Dropped::Backlog(node), &frame),
        }
    }

    /// Handles the end of a packet's service.
    pub(super) fn step_cpu<O: Observer>(&mut self, index: usize, observer: &mut O) {
        let node = self.cpus[index].node();
        if let Some(frame) = self.cpus[index].finish(self.now) {
            self.arrive_at_router(node, frame, observer);
        }
        self.cpus[index].begin(self.now);
        self.reschedule_cpu(index);
    }

    /// A router's mechanisms have made packets of these lengths, in addition to those that replace arrived ones.
    pub(super) fn charge_made(&mut self, node: NodeId, made: &[u32]) {
        let Some(index) = self.cpus.iter().position(|cpu| cpu.node() == node) else { return };
        self.cpus[index].note_made(self.now, made.iter().map(|&bytes| u64::from(bytes)));
        self.reschedule_cpu(index);
    }

    /// A router's mechanisms have compressed this much payload.
    pub(super) fn charge_compression(&mut self, node: NodeId, bytes: u64) {
        let Some(index) = self.cpus.iter().position(|cpu| cpu.node() == node) else { return };
        self.cpus[index].note_compressed(self.now, bytes);
        self.reschedule_cpu(index);
    }

    fn reschedule_cpu(&mut self, index: usize) {
        self.network.schedule.set(self.network.sources.cpus + index, self.cpus[index].deadline());
    }
}
