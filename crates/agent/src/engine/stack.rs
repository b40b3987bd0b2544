//! The state of an engine for one IP version: IPv4 and IPv6 of an interface may fail independently, so each has a link,
//! next hops and a state machine of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdover_base::Instant;
use holdover_mobility::wake::{OwnSegments, WakeConfig, WakeControl};
use holdover_mobility::{Connection, LinkEvent};

use super::outbox::Outbox;
use super::own_timers::{self, Waiting};
use super::path::KernelPath;
use crate::link_watch::Family;
use crate::next_hop::NextHops;
use crate::sockets::{SocketDiag, TcpSocket};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) family: Family,
    pub(super) control: WakeControl,
    pub(super) outbox: Outbox,
    pub(super) next_hops: NextHops,
    /// The host's unacknowledged segments that were sent again, or while the link was not calm.
    pub(super) own_segments: OwnSegments,
    /// When connections would resume by the kernel's own timers, read at the last link-up.
    pub(super) own_timers: BTreeMap<Connection, Instant>,
}

impl Stack {
    pub(super) fn new(family: Family, config: WakeConfig) -> Self {
        Self {
            family,
            control: WakeControl::new(config),
            outbox: Outbox::default(),
            next_hops: NextHops::default(),
            own_segments: OwnSegments::default(),
            own_timers: BTreeMap::new(),
        }
    }

    /// Prepares for link-up or link-down, before the state machine handles it.
    pub(super) fn prepare(&mut self, now: Instant, event: LinkEvent, sockets: &mut SocketDiag, interface: u32) {
        match event {
            LinkEvent::Down => {
                self.outbox.set_down(true);
                self.next_hops.stop();
                self.own_timers.clear();
            }
            LinkEvent::Up { moved, .. } => {
                self.outbox.set_down(false);
                if moved {
                    // From addresses that are gone.
                    self.own_segments.clear();
                }
                self.own_segments.begin_return();
                self.own_timers = own_timers::read(now, sockets, interface, self.control.waiting());
            }
            LinkEvent::Fading { .. } | LinkEvent::Recovered => {}
        }
    }

    /// Passes a link change to the state machine. `is_unresolved` if connections wait for their next hop.
    pub(super) fn handle_link(&mut self, now: Instant, event: LinkEvent, is_unresolved: bool, path: &mut KernelPath) {
        let path = &mut path.of(self.family);
        match event {
            LinkEvent::Up { moved, .. } if is_unresolved => self.control.handle_unresolved_up(now, moved, path),
            _ => self.control.handle_link(now, event, path),
        }
    }

    /// Wakes the connections over an interface on these own addresses, which are back.
    pub(super) fn wake_returned(
        &mut self,
        now: Instant,
        returned: &BTreeSet<IpAddr>,
        (sockets, interface): (&mut SocketDiag, u32),
        path: &mut KernelPath,
    ) {
        let waiting = self.control.waiting().filter(|connection| returned.contains(&connection.local.ip()));
        self.own_timers.extend(own_timers::read(now, sockets, interface, waiting));
        self.control.wake_returned(now, returned, &mut path.of(self.family));
    }

    /// Resolves next hops, and releases packets that wait for them. Returns whether one has answered.
    pub(super) fn resolve(&mut self, now: Instant, path: &mut KernelPath) -> bool {
        let has_answered = self.next_hops.handle_ready(now);
        if has_answered {
            self.control.handle_next_hop(now, &mut path.of(self.family));
        }
        has_answered
    }

    /// Wakes the connections on which this host has retransmitted without an answer, or could not send, as the kernel's sockets show:
    /// without a carrier, a route or an address, or behind a next hop that does not answer, packets do not reach the interface.
    pub(super) fn wake_outstanding(&mut self, now: Instant, sockets: &[TcpSocket], path: &mut KernelPath) {
        let own = sockets.iter().filter(|socket| Family::of_connection(socket.connection) == self.family);
        let waiting = own_timers::waiting(now, own)
            .filter(|(connection, _)| path.flow(*connection).is_some_and(|flow| !flow.is_over() && !flow.is_exempt()));
        let waiting: BTreeMap<Connection, Waiting> = waiting.collect();
        let of_data = waiting.iter().map(|(&connection, waiting)| (connection, waiting.data));
        self.control.wake_outstanding(now, of_data, &mut path.of(self.family));
        for (connection, Waiting { answered_at, .. }) in waiting {
            self.own_timers.entry(connection).or_insert(answered_at);
        }
    }

    /// A packet has arrived over a link that is down, or after a silence. Silence ends for both IP versions of the
    /// interface. The link is up for the version of the packet, if it is for this host.
    pub(super) fn note_incoming(&mut self, now: Instant, heard: Option<Family>, path: &mut KernelPath) {
        if self.control.silent_since().is_some() {
            self.own_timers.clear();
        }
        if heard == Some(self.family) || self.control.silent_since().is_some() {
            self.control.note_incoming(now, &mut path.of(self.family));
        }
    }

    /// The next deadline, if there is one.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.outbox.poll_timeout(), self.next_hops.poll_timeout(), self.control.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }
}
