//! **Own addresses that are not there yet.** A link may be up with one address while another one is still missing, or
//! tentative (duplicate address detection, RFC 4862 section 5.4: a second and more, for each address by itself). A host
//! receives nothing at such an address, so whatever a peer sends there is lost, and waking it would only make its timer
//! back off. Connections on lost addresses are woken when their address is back, and never if that is in another network.

use std::collections::BTreeSet;
use std::net::IpAddr;

use holdover_base::Instant;
use holdover_flow::FlowTable;

use super::WakeControl;
use crate::Connection;

impl WakeControl {
    /// Sets the lost addresses. Returns those that are back since the last call while the link is up, and that
    /// connections wait for: [`Self::wake_returned`] wakes them.
    pub fn set_absent(&mut self, absent: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let before = std::mem::replace(&mut self.absent, absent.clone());
        if self.waking.is_none() {
            // The link's return wakes them.
            return BTreeSet::new();
        }
        let own = self.waiting().map(|connection| connection.local.ip());
        own.filter(|address| before.contains(address)).collect()
    }

    /// Wakes the connections on addresses that are back.
    pub fn wake_returned(&mut self, now: Instant, returned: &BTreeSet<IpAddr>, path: &mut impl FlowTable) {
        let Some(waking) = &self.waking else { return };
        let times = (waking.cut_at(), now);
        let known = waking.path();
        let is_back = |connection: &Connection| returned.contains(&connection.local.ip());
        let idle = self.connections.iter().filter(|(_, state)| state.attempt.is_none());
        let back = idle.map(|(&connection, _)| connection).filter(is_back).collect();
        let queue = self.prepare(now, back, times, known, path);
        if let Some(waking) = &mut self.waking {
            waking.append(queue);
        }
        self.wake_more(now, path);
        path.set_link(self.link_state());
    }

    /// Whether the host has lost the connection's own address.
    pub(super) fn is_absent(&self, connection: Connection) -> bool {
        self.absent.contains(&connection.local.ip())
    }
}
