//! Reports of a run to its observer.

use holdover_base::{Duration, Instant};
use holdover_link::DropCause;
use holdover_mobility::Action;
use holdover_tcp::{Connection, RecoveryState, State};

use crate::frame::Frame;
use crate::ids::{FlowId, LinkId, NodeId};
use crate::layer2::Families;
use crate::mobility::CellId;

/// Whether a packet leaves a node or arrives at it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Transit {
    /// The packet leaves the node.
    Out,
    /// The packet arrives at the node.
    In,
}

/// The medium of an interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Medium {
    /// A link.
    Link(LinkId),
    /// A radio cell.
    Cell(CellId),
}

/// An interface of a node, and whether packets leave or arrive there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The node.
    pub node: NodeId,
    /// The medium of the interface.
    pub medium: Medium,
    /// Out or in.
    pub transit: Transit,
}

/// Why, and where, a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dropped {
    /// A link or a cell did not deliver it.
    Lost(Medium, DropCause),
    /// It arrived damaged, so that its receiver dropped it.
    Corrupted(Medium),
    /// A node has no route for it: a mobile host without a registration, or no path over links that are up.
    NoRoute(NodeId),
    /// Its hop limit was exceeded at a router.
    HopLimit(NodeId),
    /// It is longer than the MTU of the link that leads on from a node.
    TooBig(NodeId),
    /// A mechanism of its host dropped it.
    Filtered(NodeId),
    /// A node could not resolve the neighbour: it did not answer, too many packets waited for the answer, or the carrier was lost.
    Unresolved(NodeId),
    /// A host with an identity has no verified address of the peer, and has sent as much to the unverified one as the peer has sent
    /// (RFC 8046 section 5.6).
    Unverified(NodeId),
    /// A host with an identity has no association for it: it arrived in ESP with an unknown SPI, the exchange with its receiver failed,
    /// or the keys may not be used any more before they are changed.
    NoAssociation(NodeId),
    /// It arrived in ESP with a sequence number that was there before, or is too old.
    Replayed(NodeId),
    /// A control message arrived at a node without a mechanism that can parse it.
    NoListener(NodeId),
    /// Too many packets waited for a router's processor, or for an association of a host with an identity.
    Backlog(NodeId),
}

impl Dropped {
    /// The name of the reason in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost(_, cause) => cause.name(),
            Self::Corrupted(_) => "corrupted",
            Self::NoRoute(_) => "no-route",
            Self::HopLimit(_) => "hop-limit",
            Self::TooBig(_) => "too-big",
            Self::Filtered(_) => "filtered",
            Self::Unresolved(_) => "unresolved",
            Self::Unverified(_) => "unverified",
            Self::NoAssociation(_) => "no-association",
            Self::Replayed(_) => "replayed",
            Self::NoListener(_) => "no-listener",
            Self::Backlog(_) => "backlog",
        }
    }

    /// The medium or node that dropped the packet.
    pub const fn by(self) -> DroppedBy {
        match self {
            Self::Lost(medium, _) | Self::Corrupted(medium) => DroppedBy::Medium(medium),
            Self::NoRoute(node)
            | Self::HopLimit(node)
            | Self::TooBig(node)
            | Self::Filtered(node)
            | Self::Unresolved(node)
            | Self::Unverified(node)
            | Self::NoAssociation(node)
            | Self::Replayed(node)
            | Self::NoListener(node)
            | Self::Backlog(node) => DroppedBy::Node(node),
        }
    }
}

/// The medium or node that dropped a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DroppedBy {
    /// A link or a cell.
    Medium(Medium),
    /// A host or a router.
    Node(NodeId),
}

/// An event other than a packet.
#[derive(Clone, PartialEq, Debug)]
pub enum WorldEvent {
    /// A link went down.
    LinkDown(LinkId),
    /// A link came up.
    LinkUp(LinkId),
    /// A link with a second layer carries packets again after its return: it is up and forwards, and its host has its addresses back. The
    /// same time as [`crate::LinkBetween::carries_at`].
    LinkCarries(LinkId),
    /// A link stops carrying packets of one family, and stays up.
    FamilyLost(LinkId, Families),
    /// Routers have noticed that a link is down, and avoid it.
    LinkAvoided(LinkId),
    /// Routers have noticed that a link is back, and use it again.
    LinkUsedAgain(LinkId),
    /// A host with several links has switched to another one; `None` if none is up.
    AccessLink(NodeId, Option<LinkId>),
    /// A mobile host entered the range of a cell.
    InRange(NodeId, CellId),
    /// A mobile host left the range of a cell.
    OutOfRange(NodeId, CellId),
    /// A mobile host received a beacon.
    BeaconHeard(NodeId, CellId),
    /// A mobile host sent a registration request in a cell. The number counts from 1 since it chose the cell.
    RegistrationRequested(NodeId, CellId, u32),
    /// The gateway sends a mobile host's packets to a cell from now on.
    BindingChanged(NodeId, CellId),
    /// A mobile host received the reply to its registration request: it sends through this cell from now on.
    Registered(NodeId, CellId),
    /// A mobile host's registration has expired: it cannot send until it has registered again.
    RegistrationExpired(NodeId, CellId),
    /// The gateway's binding of a mobile host has expired: it has no destination for the host's packets.
    BindingExpired(NodeId),
    /// Without registration: the routes to and from a mobile host pass a cell from now on.
    Attached(NodeId, CellId),
    /// A mobile host predicts the loss of its cell, this long from now if its motion continues.
    Fading(NodeId, CellId, Option<Duration>),
    /// The prediction was wrong: the signal is strong again.
    Recovered(NodeId, CellId),
    /// Packets no longer reach a mobile host, or no longer return from it.
    ConnectivityLost(NodeId),
    /// They do again: a cell covers it, packets to it are sent there, and it sends there.
    ConnectivityBack {
        /// The mobile host.
        node: NodeId,
        /// The cell.
        cell: CellId,
        /// Whether the cell is another one than before.
        moved: bool,
    },
    /// A host with links predicts the loss of the link in use, this long from now.
    LinkFading(NodeId, Duration),
    /// An association of two hosts with identities is established at the first of them.
    Associated(NodeId, NodeId),
    /// The first host got no usable answer to its base exchange from the second.
    AssociationFailed(NodeId, NodeId),
    /// The association with the second host has ended at the first one.
    AssociationClosed(NodeId, NodeId),
    /// A host with an identity has another address than its peers know.
    ReaddressingStarted(NodeId),
    /// Readdressing is complete at the first of the two hosts: the mobile host has sent its echo response, or the peer has verified the
    /// new address.
    Readdressed(NodeId, NodeId),
    /// The first host got no answer from the second, and gives up; it tries again after a while.
    ReaddressingFailed(NodeId, NodeId),
    /// An action of a host's mechanism.
    Mechanism(NodeId, Action),
    /// A flow began.
    FlowStarted(FlowId),
    /// Its connection is established.
    FlowConnected(FlowId),
    /// Its first new data after a reconnection has arrived, this long after the path was back.
    FlowResumed(FlowId, Duration),
    /// An exchange of request and response took this long.
    Exchange(FlowId, Duration),
    /// All its data has arrived.
    FlowCompleted(FlowId),
    /// Its connection failed.
    FlowFailed(FlowId, holdover_tcp::ConnectionError),
}

/// The state of a flow's sending connection, under the names of TCP_INFO.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// `tcpi_state`.
    pub state: State,
    /// `tcpi_ca_state`.
    pub ca_state: RecoveryState,
    /// `tcpi_snd_cwnd`, in segments.
    pub snd_cwnd: u32,
    /// `tcpi_snd_ssthresh`, in segments; `None` while unlimited.
    pub snd_ssthresh: Option<u32>,
    /// `tcpi_unacked`, in segments.
    pub unacked: u32,
    /// `tcpi_sacked`, in segments.
    pub sacked: u32,
    /// `tcpi_lost`, in segments.
    pub lost: u32,
    /// `tcpi_rto`.
    pub rto: Duration,
    /// `tcpi_rtt`; zero before the first sample.
    pub rtt: Duration,
    /// `tcpi_rttvar`.
    pub rttvar: Duration,
    /// `tcpi_backoff`.
    pub backoff: u32,
    /// `tcpi_retransmits`.
    pub retransmits: u32,
    /// `tcpi_snd_wnd`, in bytes.
    pub snd_wnd: u32,
    /// `tcpi_bytes_acked`.
    pub bytes_acked: u64,
    /// `tcpi_bytes_retrans`.
    pub bytes_retrans: u64,
    /// Bytes that the receiving application has read.
    pub bytes_received: u64,
}

impl Sample {
    /// The state of `connection`, whose peer's application has read `bytes_received`.
    pub fn of(connection: &Connection, bytes_received: u64) -> Self {
        let counters = connection.counters();
        Self {
            state: connection.state(),
            ca_state: connection.recovery_state(),
            snd_cwnd: connection.cwnd(),
            snd_ssthresh: connection.ssthresh(),
            unacked: connection.unacked(),
            sacked: connection.sacked(),
            lost: connection.lost(),
            rto: connection.rto(),
            rtt: connection.srtt().unwrap_or(Duration::ZERO),
            rttvar: connection.rttvar(),
            backoff: connection.backoff(),
            retransmits: connection.retransmits(),
            snd_wnd: connection.snd_wnd(),
            bytes_acked: counters.bytes_acked.0,
            bytes_retrans: counters.bytes_retransmitted.0,
            bytes_received,
        }
    }
}

/// An observer of a run. All methods do nothing by default, and cost nothing then.
pub trait Observer {
    /// A packet passes an interface.
    fn packet(&mut self, _at: Instant, _place: Place, _frame: &Frame) {}
    /// A packet was dropped.
    fn dropped(&mut self, _at: Instant, _why: Dropped, _frame: &Frame) {}
    /// Another event.
    fn event(&mut self, _at: Instant, _event: &WorldEvent) {}
    /// The state of a flow's sender.
    fn sample(&mut self, _at: Instant, _flow: FlowId, _sample: &Sample) {}
}

/// Observes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NoObserver;

impl Observer for NoObserver {}
