//! A build without host identity: packets of hosts, and to them, pass as they are.

use holdover_base::Instant;

use super::World;
use crate::frame::Frame;
use crate::identity::Identity;
use crate::ids::NodeId;
use crate::network::Network;
use crate::observer::Observer;

#[allow(clippy::unused_self, clippy::needless_pass_by_ref_mut)]
impl World {
    pub(super) fn give_identities(&mut self) {}

    /// Sends a packet of a host.
    #[inline]
    pub(super) fn depart<O: Observer>(&mut self, host: usize, frame: Box<Frame>, observer: &mut O) {
        self.network.forward(self.now, self.hosts[host].node, frame, observer);
    }

    #[inline]
    pub(super) fn open<O: Observer>(&mut self, _: usize, frame: Box<Frame>, _: &mut O) -> Option<Box<Frame>> {
        Some(frame)
    }

    pub(super) fn reattach<O: Observer>(&mut self, _: usize, _: bool, _: &mut O) {}

    pub(super) fn step_identity<O: Observer>(&mut self, _: usize, _: &mut O) {}
}

impl Network {
    /// Sends a packet of a host.
    #[inline]
    pub(super) fn depart<O: Observer>(
        &mut self,
        now: Instant,
        node: NodeId,
        _: Option<&mut Identity>,
        frame: Box<Frame>,
        observer: &mut O,
    ) {
        self.forward(now, node, frame, observer);
    }
}
