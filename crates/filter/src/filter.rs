//! What a mechanism is.

use core::fmt;
use core::net::IpAddr;

use holdover_base::Instant;
use holdover_tcp::Endpoint;
use holdover_wire::Packet;

use crate::{Connection, ControlMessage, LinkEvent, Presence, WakeOutcome};

/// Which way a packet goes through a filter, as seen from the link beside which it stands (see the [crate](crate)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the link: from the host's own TCP, or in the network from a fixed host to a mobile one.
    Outgoing,
    /// From the link: to the host's own TCP, or in the network from a mobile host to a fixed one.
    Incoming,
}

impl Direction {
    /// The other way.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Outgoing => Self::Incoming,
            Self::Incoming => Self::Outgoing,
        }
    }
}

/// What becomes of a packet that a filter has seen, and maybe rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It ends here.
    Drop,
    /// The filter has kept it: it sends it later ([`SegmentFilter::poll_transmit`]), answers it, or gives it up
    /// ([`SegmentFilter::poll_dropped`]).
    Keep,
}

/// A packet that a filter has made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Injected {
    /// Where it goes.
    pub direction: Direction,
    /// The packet.
    pub packet: Packet,
}

/// An action of a mechanism, for logs and reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Action {
    /// When.
    pub at: Instant,
    /// To which connection.
    pub connection: Connection,
    /// Which mechanism, by its name in scenario files.
    pub mechanism: &'static str,
    /// What, in a word or two: `froze`, `thawed`, `released`.
    pub what: &'static str,
}

/// A mechanism in the path of packets that needs nothing from the endpoint: it works in front of an unmodified kernel too.
///
/// The order of calls: one of the `handle_*`, then [`Self::poll_transmit`], [`Self::poll_control`], [`Self::poll_action`] and
/// [`Self::poll_outcome`] until `None`, then [`Self::poll_timeout`].
pub trait SegmentFilter: fmt::Debug + Send {
    /// A packet passes, and may be rewritten. What the filter injects on this occasion comes after it.
    fn handle_packet(&mut self, now: Instant, direction: Direction, packet: &mut Packet) -> Verdict;

    /// The layers below say something about the link.
    fn handle_link(&mut self, now: Instant, event: LinkEvent);

    /// The layers below say something about the way to one peer, which has these addresses. What holds for one peer is taken
    /// to hold for all, unless a mechanism knows better.
    fn handle_peer(&mut self, now: Instant, _peer: &[IpAddr], event: LinkEvent) {
        self.handle_link(now, event);
    }

    /// In the network: where one mobile host is, which has this address. Filters of hosts hear nothing of the kind.
    fn handle_mobile(&mut self, _now: Instant, _mobile: IpAddr, _presence: Presence) {}

    /// In the network: an attempt of the link beside this node to transmit `packet` has failed. The link repeats it or gives it up by
    /// itself. Only a link that repeats its own losses (ARQ) tells.
    fn handle_failed_attempt(&mut self, _now: Instant, _packet: &Packet) {}

    /// A control message for this node has come from another one. Returns whether it is for this mechanism and can be read.
    fn handle_control(&mut self, _now: Instant, _message: &ControlMessage) -> bool {
        false
    }

    /// A deadline has passed.
    fn handle_timeout(&mut self, _now: Instant) {}

    /// The next packet that the filter has made.
    fn poll_transmit(&mut self, _now: Instant) -> Option<Injected> {
        None
    }

    /// The next control message that it sends to another node.
    fn poll_control(&mut self) -> Option<ControlMessage> {
        None
    }

    /// The next packet that it had kept and gave up.
    fn poll_dropped(&mut self) -> Option<Packet> {
        None
    }

    /// The next thing that it has done.
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
}

/// A mechanism that needs the state of the host's own TCP: it sees packets and links as a filter does, and steers connections
/// by their verbs.
pub trait EndpointMechanism: SegmentFilter {
    /// Steers the endpoint; called after every call of [`SegmentFilter::handle_link`], [`SegmentFilter::handle_peer`], [`SegmentFilter::handle_timeout`], and
    /// of [`SegmentFilter::handle_packet`] for a packet that went on to the endpoint and was taken in by it.
    fn steer(&mut self, now: Instant, endpoint: &mut Endpoint);
}
