//! The MTU of the route to the peer, as existing connections know it.
//!
//! A socket keeps its route after a change of the routing table until it has sent a packet (Linux `sk_dst_check`). TCP computes the size of
//! its segments before that: the first burst after the change leaves by the old route's MTU.

use std::collections::BTreeSet;

use holdover_tcp::ConnectionId;

use super::Kernel;

/// Connections whose route differs from the routing table's.
#[derive(Debug)]
pub(super) struct Routes {
    mtu: u32,
    /// They have sent nothing since the change.
    old: BTreeSet<ConnectionId>,
    /// They have the new route, and have not computed the size of their segments since.
    new: BTreeSet<ConnectionId>,
}

impl Routes {
    pub(super) fn new(mtu: u32) -> Self {
        Self { mtu, old: BTreeSet::new(), new: BTreeSet::new() }
    }

    /// The connection has sent a packet.
    pub(super) fn note_sent(&mut self, id: ConnectionId) {
        if self.old.remove(&id) {
            self.new.insert(id);
        }
    }
}

impl Kernel {
    /// The routing table may have changed.
    pub(super) fn note_route(&mut self) {
        let mtu = self.settings.mtu();
        if self.routes.mtu != mtu {
            self.routes.mtu = mtu;
            self.routes.old = self.endpoint.connections().map(|(id, _)| id).collect();
        }
    }

    /// Connections with a new route are about to compute the size of their segments.
    pub(super) fn follow_routes(&mut self) {
        for id in core::mem::take(&mut self.routes.new) {
            if let Some(connection) = self.endpoint.connection_mut(id) {
                connection.set_path_mtu(self.routes.mtu);
            }
        }
    }
}
