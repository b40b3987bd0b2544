//! The MTU of the route to the peer, as connections know it.
//!
//! A new connection has the MTU of the routing table, or the one that an ICMP error about another connection has reported (Linux
//! `fib_nh_exception`). A socket keeps its route after a change of the routing table until it has sent a packet (Linux `sk_dst_check`). TCP
//! computes the size of its segments before that: the first burst after the change leaves by the old route's MTU.

use std::collections::BTreeSet;

use holdover_base::{Duration, Instant};
use holdover_tcp::ConnectionId;
use holdover_wire::{IcmpError, Unreachable};

use super::Kernel;

/// Linux `net.ipv4.route.mtu_expires`.
const EXPIRY: Duration = Duration::from_secs(600);

/// Connections whose route differs from the routing table's.
#[derive(Debug)]
pub(super) struct Routes {
    mtu: u32,
    /// They have sent nothing since the change.
    old: BTreeSet<ConnectionId>,
    /// They have the new route, and have not computed the size of their segments since.
    new: BTreeSet<ConnectionId>,
    /// The MTU that an ICMP error has reported, and until when it counts.
    reported: Option<(u32, Instant)>,
}

impl Routes {
    pub(super) fn new(mtu: u32) -> Self {
        Self { mtu, old: BTreeSet::new(), new: BTreeSet::new(), reported: None }
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

    /// A connection has taken an ICMP error about a segment of its own.
    pub(super) fn note_reported_mtu(&mut self, id: ConnectionId, error: &IcmpError) {
        let Unreachable::PacketTooBig { mtu } = error.kind else { return };
        let Some(connection) = self.endpoint.connection(id) else { return };
        // Only an MTU that the connection has accepted is cached.
        let is_believed = connection.snd_mss() < mtu && mtu < self.routes.mtu;
        if is_believed {
            self.routes.reported = Some((mtu, self.now + EXPIRY));
        }
    }

    /// A connection is established.
    pub(super) fn take_reported_mtu(&mut self, id: ConnectionId) {
        if let Some((mtu, _)) = self.routes.reported.filter(|&(_, until)| self.now < until)
            && let Some(connection) = self.endpoint.connection_mut(id)
        {
            connection.set_path_mtu(mtu);
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
