//! **Own addresses that are not there yet.** A link may be up with one address while another one is still missing, or
//! tentative (duplicate address detection, RFC 4862 section 5.4: a second and more, for each address by itself). A host
//! receives nothing at such an address, so whatever a peer sends there is lost, and waking it would only make its timer
//! back off. Connections on lost addresses are woken when their address is back, and never if that is in another network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdover_base::Instant;
use holdover_flow::FlowTable;

use super::WakeControl;
use crate::Connection;

/// The host's own addresses that are not there, and those that came back after the link.
#[derive(Clone, Default, Debug)]
pub(super) struct OwnAddresses {
    absent: BTreeSet<IpAddr>,
    /// When each came back, since the last link-up.
    returned_at: BTreeMap<IpAddr, Instant>,
}

impl OwnAddresses {
    /// The link is up: addresses that come back from now on come back later than it.
    pub(super) fn handle_up(&mut self) {
        self.returned_at.clear();
    }
}

impl WakeControl {
    /// Sets the lost addresses. Returns those that are back since the last call while the link is up:
    /// [`Self::wake_returned`] wakes the connections on them.
    pub fn set_absent(&mut self, now: Instant, absent: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let before = std::mem::replace(&mut self.own_addresses.absent, absent.clone());
        if self.waking.is_none() {
            // The link's return wakes them.
            return BTreeSet::new();
        }
        let returned: BTreeSet<IpAddr> = before.difference(absent).copied().collect();
        self.own_addresses.returned_at.extend(returned.iter().map(|&address| (address, now)));
        returned
    }

    /// Wakes the connections on addresses that are back.
    pub fn wake_returned(&mut self, now: Instant, returned: &BTreeSet<IpAddr>, path: &mut impl FlowTable) {
        let is_back = |connection: &Connection| returned.contains(&connection.local.ip());
        let back = self.connections.iter().filter(|(connection, _)| is_back(connection));
        self.wake_late(now, back.map(|(&connection, _)| connection).collect(), path);
    }

    /// Wakes connections that can be woken only now, later than the link's return. Does nothing while the link is down.
    pub(super) fn wake_late(&mut self, now: Instant, back: Vec<Connection>, path: &mut impl FlowTable) {
        let Some(waking) = &self.waking else { return };
        let times = (waking.cut_at(), now);
        let known = waking.path();
        let is_tried =
            |connection: &Connection| self.connections.get(connection).is_some_and(|state| state.attempt.is_some());
        let (tried, idle): (Vec<Connection>, Vec<Connection>) = back.into_iter().partition(is_tried);
        for connection in tried {
            // The answers to earlier attempts were lost, or concern other data.
            if let Some(attempt) = self.connections.get_mut(&connection).and_then(|state| state.attempt.as_mut()) {
                attempt.begin_again(now);
            }
            self.forget_in_flight(connection);
            self.schedule(connection);
        }
        let queue = self.prepare(now, idle, times, known, path);
        if let Some(waking) = &mut self.waking {
            waking.append(queue);
        }
        self.wake_more(now, path);
        path.set_link(self.link_state());
    }

    /// Whether the host has lost the connection's own address.
    pub(super) fn is_absent(&self, connection: Connection) -> bool {
        self.own_addresses.absent.contains(&connection.local.ip())
    }

    /// Since when the peer of a connection can reach this host again: the link's return, or that of the connection's own address; or since when
    /// it is woken, if that is later.
    pub(super) fn reachable_at(&self, connection: Connection) -> Option<Instant> {
        let returned_at = self.own_addresses.returned_at.get(&connection.local.ip()).copied();
        let woken_at = self.connections.get(&connection).and_then(|state| state.reachable_at);
        self.link.up_at.max(returned_at).max(woken_at)
    }
}
