//! What a run tells to whoever listens.

use holdover_base::{Duration, Instant};
use holdover_link::DropCause;
use holdover_tcp::{Connection, RecoveryState, State};

use crate::config::NodeId;
use crate::flow::FlowId;
use crate::frame::Frame;

/// A link of a world: its place in [`crate::WorldConfig::links`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u32);

/// Whether a node sends or receives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// The packet leaves the node.
    Out,
    /// The packet arrives at the node.
    In,
}

/// An interface of a node, and a direction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The node.
    pub node: NodeId,
    /// The link that the interface belongs to.
    pub link: LinkId,
    /// Out or in.
    pub direction: Direction,
}

/// Something that happened, other than a packet.
#[derive(Clone, PartialEq, Debug)]
pub enum WorldEvent {
    /// A link went down.
    LinkDown(LinkId),
    /// A link is back.
    LinkUp(LinkId),
    /// A flow began.
    FlowStarted(FlowId),
    /// Its connection is established.
    FlowConnected(FlowId),
    /// Its first new data after a reconnection has arrived, this long after the link was back.
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

/// Listens to a run. Every method does nothing unless it is written; what is not listened to costs nothing.
pub trait Observer {
    /// A packet passes an interface.
    fn packet(&mut self, _at: Instant, _place: Place, _frame: &Frame) {}
    /// A packet was dropped on a link, or damaged so that its receiver dropped it (`None`).
    fn dropped(&mut self, _at: Instant, _link: LinkId, _cause: Option<DropCause>, _frame: &Frame) {}
    /// Something else happened.
    fn event(&mut self, _at: Instant, _event: &WorldEvent) {}
    /// The state of a flow's sender.
    fn sample(&mut self, _at: Instant, _flow: FlowId, _sample: &Sample) {}
}

/// Listens to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NoObserver;

impl Observer for NoObserver {}
