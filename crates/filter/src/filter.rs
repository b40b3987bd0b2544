//! Traits of mechanisms.

use core::fmt;
use core::net::IpAddr;

use holdover_base::Instant;
use holdover_tcp::Endpoint;
use holdover_wire::Packet;

use crate::{Connection, ControlMessage, Direction, LinkEvent, Presence, WakeOutcome};

/// A filter's decision on a packet, which it may have rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// The packet passes.
    Pass,
    /// The packet is dropped.
    Drop,
    /// The filter keeps the packet: it sends it later ([`SegmentFilter::poll_transmit`]), answers it, or drops it
    /// ([`SegmentFilter::poll_dropped`]).
    Keep,
}

/// A packet that a filter injects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Injected {
    /// Its direction.
    pub direction: Direction,
    /// The packet.
    pub packet: Packet,
}

/// An action of a mechanism, for logs and reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Action {
    /// The time.
    pub at: Instant,
    /// The connection.
    pub connection: Connection,
    /// The mechanism, by its name in scenario files.
    pub mechanism: &'static str,
    /// The action, in a word or two: `froze`, `thawed`, `released`.
    pub what: &'static str,
}

/// The state that a mechanism stores for others at one time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stored {
    /// Bytes of packets, with headers, and of data in the buffers of connections that it terminates.
    pub bytes: u64,
    /// Connections with a state of their own.
    pub connections: u64,
}

impl Stored {
    /// The state of connections that each have this many bytes.
    pub fn of_connections(bytes: impl Iterator<Item = usize>) -> Self {
        bytes.fold(Self::default(), |all, bytes| all + Self { bytes: bytes as u64, connections: 1 })
    }

    /// The maximum of each number.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), connections: self.connections.max(other.connections) }
    }
}

impl core::ops::Add for Stored {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, connections: self.connections + other.connections }
    }
}

/// A mechanism in the packet path that needs nothing from the endpoint: it also works in front of an unmodified kernel.
///
/// The order of calls: one of the `handle_*`, then [`Self::poll_transmit`], [`Self::poll_control`], [`Self::poll_action`] and
/// [`Self::poll_outcome`] until `None`, then [`Self::poll_timeout`].
pub trait SegmentFilter: fmt::Debug + Send {
    /// Handles a packet, which the filter may rewrite. Packets that the filter injects in this call follow it.
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict;

    /// Handles an event of the link, as reported by the layers below.
    fn handle_link(&mut self, now: Instant, event: LinkEvent);

    /// Handles an event of the path to one peer, which has these addresses. By default it counts as an event of the
    /// whole link.
    fn handle_peer(&mut self, now: Instant, _peer: &[IpAddr], event: LinkEvent) {
        self.handle_link(now, event);
    }

    /// In the network: handles the presence of the mobile host with this address. Not called on hosts.
    fn handle_mobile(&mut self, _now: Instant, _mobile: IpAddr, _presence: Presence) {}

    /// In the network: the link beside this node failed to transmit `packet`, and repeats or drops it by itself. Only
    /// links with ARQ report this.
    fn handle_failed_attempt(&mut self, _now: Instant, _packet: &Packet) {}

    /// Handles a control message for this node. Returns whether it is for this mechanism and can be parsed.
    fn handle_control(&mut self, _now: Instant, _message: &ControlMessage) -> bool {
        false
    }

    /// Handles a deadline that has passed.
    fn handle_timeout(&mut self, _now: Instant) {}

    /// The next packet that the filter injects.
    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        None
    }

    /// The next control message for another node.
    fn poll_control(&mut self) -> Option<ControlMessage> {
        None
    }

    /// The next packet that the filter had kept and now drops.
    fn poll_dropped(&mut self) -> Option<Packet> {
        None
    }

    /// The next action.
    fn poll_action(&mut self) -> Option<Action> {
        None
    }

    /// The next outcome of waking a connection.
    fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        None
    }

    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The state that the mechanism stores. The call takes time in proportion to the number of connections.
    fn stored(&self) -> Stored {
        Stored::default()
    }

    /// A copy that shares no state with this one, for a simulation that continues in several ways; `None` if there can be none.
    fn fork(&self) -> Option<Box<dyn SegmentFilter>> {
        None
    }
}

/// A mechanism that needs the state of the host's own TCP: it sees packets and links as a filter does, and steers
/// connections by their verbs.
pub trait EndpointMechanism: SegmentFilter {
    /// Steers the endpoint; called after every call of [`SegmentFilter::handle_link`], [`SegmentFilter::handle_peer`],
    /// [`SegmentFilter::handle_timeout`], and of [`SegmentFilter::handle_packet`] for a packet that the endpoint
    /// accepted.
    fn steer(&mut self, now: Instant, endpoint: &mut Endpoint);

    /// As [`SegmentFilter::fork`].
    fn fork_endpoint(&self) -> Option<Box<dyn EndpointMechanism>> {
        None
    }
}
