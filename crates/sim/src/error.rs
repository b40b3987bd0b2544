//! Errors in the description of a world.

use holdover_base::{Duration, Instant};
use holdover_link::ConfigError;
use holdover_mobility::CombinationError;

/// Why a world cannot be built.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum WorldError {
    /// A reference to a node that does not exist.
    #[error("{what} names node {node}, and there are {nodes}")]
    NoSuchNode {
        /// The referring item.
        what: String,
        /// The node.
        node: u32,
        /// The number of nodes.
        nodes: usize,
    },
    /// A link with a second layer is not between a host and its router.
    #[error("link {link} has a second layer, which is between a host and a router")]
    Layer2Ends {
        /// The link.
        link: String,
    },
    /// An application on a router.
    #[error("flow {flow} begins or ends at {node}, which is a router")]
    NotAHost {
        /// The flow.
        flow: String,
        /// The node.
        node: String,
    },
    /// Mechanisms of hosts on a router.
    #[error("mechanisms of {node}, which is a router")]
    MechanismsOfRouter {
        /// The node.
        node: String,
    },
    /// Mechanisms of routers on a host.
    #[error("gateway mechanisms of {node}, which is a host")]
    GatewayOfHost {
        /// The node.
        node: String,
    },
    /// A router's mechanisms are described twice.
    #[error("the mechanisms of {node} are described twice")]
    GatewayTwice {
        /// The router.
        node: String,
    },
    /// A processor that takes time on a host.
    #[error("{node} is a host; the processors of routers take time")]
    CpuOfHost {
        /// The host.
        node: String,
    },
    /// A router's processor is described twice.
    #[error("the processor of {node} is described twice")]
    CpuTwice {
        /// The router.
        node: String,
    },
    /// A router drops every packet.
    #[error("the backlog of {node} is 0 packets, so that it drops every packet")]
    NoBacklog {
        /// The router.
        node: String,
    },
    /// A router with a latency, which is that of hosts.
    #[error("{node} is a router; hosts have a latency, and routers a processor")]
    LatencyOfRouter {
        /// The router.
        node: String,
    },
    /// A host's latency is described twice.
    #[error("the latency of {node} is described twice")]
    LatencyTwice {
        /// The host.
        node: String,
    },
    /// A host's latency is invalid.
    #[error("{node}: {error}")]
    Latency {
        /// The host.
        node: String,
        /// The reason.
        error: ConfigError,
    },
    /// A router is to serve a node that is not a host.
    #[error("{node} is to look after {mobile}, which is a router")]
    MobileIsRouter {
        /// The router.
        node: String,
        /// The node that the router is to serve.
        mobile: String,
    },
    /// A router's mechanisms are invalid.
    #[error("the mechanisms of {node}: {error}")]
    Gateway {
        /// The router.
        node: String,
        /// The reason.
        error: holdover_gateway::ConfigError,
    },
    /// No flow's packets to or from a mobile host pass a router with mechanisms for them.
    #[error("the mechanisms of {node} can never act: no flow of a host that it looks after comes through it")]
    GatewayOffPath {
        /// The router.
        node: String,
    },
    /// Mechanisms that cannot be combined.
    #[error("the mechanisms of {node}: {error}")]
    Mechanisms {
        /// The host.
        node: String,
        /// The mechanisms, and the reason.
        error: CombinationError,
    },
    /// An identity, or addresses for each link, on a router.
    #[error("addresses or identity of {node}, which is a router")]
    AddressingOfRouter {
        /// The node.
        node: String,
    },
    /// Addresses for each link of a host without links, with too many links, or with too high a node number.
    #[error(
        "{node} is to have an address for each link, expected 1 to {max_links} links and one of the first {max_nodes} nodes"
    )]
    NoLocators {
        /// The host.
        node: String,
        /// The most links.
        max_links: usize,
        /// The most nodes.
        max_nodes: u32,
    },
    /// A host's addresses are described twice.
    #[error("the addresses of {node} are described twice")]
    AddressingTwice {
        /// The host.
        node: String,
    },
    /// HIP packets would be retransmitted without a timeout.
    #[error("{node} is to retransmit its HIP packets after 0 s, expected more than 0 s")]
    UpdateAfter {
        /// The host.
        node: String,
    },
    /// The delay of readdressing is invalid.
    #[error("{node}: {error}")]
    IdentityDelay {
        /// The host.
        node: String,
        /// The reason.
        error: ConfigError,
    },
    /// A flow from a host to itself.
    #[error("flow {flow} goes from {node} to itself")]
    SameHost {
        /// The flow.
        flow: String,
        /// The node.
        node: String,
    },
    /// No path leads from one end of a flow to the other.
    #[error("flow {flow}: no path leads from {from} to {to}")]
    Unreachable {
        /// The flow.
        flow: String,
        /// One end.
        from: String,
        /// The other end.
        to: String,
    },
    /// A link is invalid.
    #[error("link {link}: {error}")]
    Link {
        /// The link.
        link: String,
        /// The reason.
        error: ConfigError,
    },
    /// The MTU of a link is too small or too large.
    #[error("link {link} has an MTU of {bytes} bytes, expected {least} to {most}")]
    Mtu {
        /// The link.
        link: String,
        /// The MTU.
        bytes: u32,
        /// The least that is accepted.
        least: u32,
        /// The most that is accepted.
        most: u32,
    },
    /// A link with an MTU in a world with identities.
    #[error("link {link} has an MTU and {node} an identity, whose TCP does not know the length that ESP adds")]
    MtuAndIdentity {
        /// The link.
        link: String,
        /// The host.
        node: String,
    },
    /// A Pareto distribution with this shape has no mean.
    #[error("flow {flow}: a Pareto shape of {shape} has no mean, expected a number above 1")]
    Shape {
        /// The flow.
        flow: String,
        /// The shape.
        shape: f64,
    },
    /// An amount or a rate is zero.
    #[error("flow {flow}: {field} is 0")]
    Zero {
        /// The flow.
        flow: String,
        /// The field.
        field: &'static str,
    },
    /// A duplicate name.
    #[error("two {kind} are called {name}")]
    SameName {
        /// Nodes, links, cells or flows.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A link from a node to itself.
    #[error("link {link} leads from {node} to itself")]
    SelfLink {
        /// The link.
        link: String,
        /// The node.
        node: String,
    },
    /// More flows than ports: every flow has its own port.
    #[error("{flows} flows, expected at most {most}")]
    TooManyFlows {
        /// The number of flows.
        flows: usize,
        /// The most flows.
        most: usize,
    },
    /// A flow would begin after the end of the run.
    #[error("flow {flow} starts at {start} s, expected a time before the end of the run at {time_limit} s")]
    StartsTooLate {
        /// The flow.
        flow: String,
        /// Its start.
        start: Instant,
        /// The run's end.
        time_limit: Instant,
    },
    /// The interval of samples is zero.
    #[error("samples are to be taken every 0 s, expected more than 0 s")]
    SampleInterval,
    /// A movement refers to a cell that does not exist.
    #[error("{node} is to visit cell {cell}, and there are {cells}")]
    NoSuchCell {
        /// The mobile host.
        node: String,
        /// The cell.
        cell: u32,
        /// The number of cells.
        cells: usize,
    },
    /// A base station or gateway that is not a router.
    #[error("{what} of {of} is {node}, which is a host, expected a router")]
    NotARouter {
        /// Its function.
        what: &'static str,
        /// Its cell or mobile host.
        of: String,
        /// The node.
        node: String,
    },
    /// A cell is invalid.
    #[error("cell {cell}: {error}")]
    Cell {
        /// The cell.
        cell: String,
        /// The reason.
        error: ConfigError,
    },
    /// A route refers to a link that does not exist.
    #[error("{router} has a route by link {link}, and there are {links}")]
    NoSuchLink {
        /// The router.
        router: String,
        /// The link.
        link: u32,
        /// The number of links.
        links: usize,
    },
    /// A route over a link of another node.
    #[error("{router} has a route by link {link}, which does not end at it")]
    RouteBySomeLink {
        /// The router.
        router: String,
        /// The link.
        link: String,
    },
    /// A route to a mobile host: those are reached through their gateway or base station.
    #[error("{router} has a route to {mobile}, which moves; routes lead to hosts with links and to routers")]
    RouteToMobile {
        /// The router.
        router: String,
        /// The mobile host.
        mobile: String,
    },
    /// A route through a host.
    #[error("{router} has a route to {to} through {host}, a host, which forwards nothing")]
    RouteThroughHost {
        /// The router.
        router: String,
        /// The destination.
        to: String,
        /// The host at the other end of the link.
        host: String,
    },
    /// Cells on one channel have different medium access.
    #[error("cells {first} and {second} share channel {channel}, expected the same medium of both")]
    ChannelMedium {
        /// The first cell.
        first: String,
        /// The second cell.
        second: String,
        /// The channel.
        channel: u32,
    },
    /// Two cells have the same base station.
    #[error("cells {first} and {second} have the same base station {base}")]
    SameBase {
        /// The first cell.
        first: String,
        /// The second cell.
        second: String,
        /// Their base station.
        base: String,
    },
    /// A router that moves.
    #[error("{node} is a router, and only hosts move")]
    MovingRouter {
        /// The router.
        node: String,
    },
    /// Two movements of one host.
    #[error("{node} is described as mobile twice")]
    MobileTwice {
        /// The host.
        node: String,
    },
    /// A mobile host with a link.
    #[error("{node} is mobile and cannot be at the end of link {link}")]
    MobileWithLink {
        /// The host.
        node: String,
        /// The link.
        link: String,
    },
    /// A movement without destinations.
    #[error("{node} has nowhere to go: expected at least one {expected}")]
    NowhereToGo {
        /// The host.
        node: String,
        /// The missing item: a cell, a visit or a stop.
        expected: &'static str,
    },
    /// A length of time in a movement is invalid.
    #[error("{node}: {error}")]
    Movement {
        /// The host.
        node: String,
        /// The reason.
        error: ConfigError,
    },
    /// Visits are out of order.
    #[error("{node}: visit {index} at {at} s must come after the one before it")]
    VisitOrder {
        /// The host.
        node: String,
        /// Its index in the list, from 0.
        index: usize,
        /// Its time.
        at: Instant,
    },
    /// A path between different positions without speed, or with positions that are not numbers.
    #[error("{node} cannot go its way at {speed_m_per_s} m/s, expected a speed above 0 and finite positions")]
    Speed {
        /// The host.
        node: String,
        /// The speed.
        speed_m_per_s: f64,
    },
    /// No cell ever covers a mobile host.
    #[error("{node} never comes within the range of a cell")]
    NeverCovered {
        /// The host.
        node: String,
    },
    /// A cell without beacons: a host that registers would never detect it.
    #[error("{node} registers with base stations, and that of cell {cell} sends no beacons")]
    NoBeacons {
        /// The host.
        node: String,
        /// The cell.
        cell: String,
    },
    /// A base station and a gateway cannot reach each other.
    #[error("{node} registers with {gateway}, and no path leads from there to {base} and back")]
    GatewayUnreachable {
        /// The host.
        node: String,
        /// The gateway.
        gateway: String,
        /// The base station.
        base: String,
    },
    /// A request would be retransmitted without a timeout.
    #[error("{node} is to repeat its registration request after 0 s, expected more than 0 s")]
    RetransmitAfter {
        /// The host.
        node: String,
    },
    /// A registration with a lifetime of zero.
    #[error("{node} is to register for 0 s, expected more than 0 s")]
    NoLifetime {
        /// The host.
        node: String,
    },
    /// A threshold that is not a percentage above 0.
    #[error("{node}: a prediction threshold of {percent} %, expected a number above 0")]
    Threshold {
        /// The host.
        node: String,
        /// The threshold.
        percent: f64,
    },
    /// A signal threshold for a host without positions.
    #[error("{node} is to predict by signal strength, which needs a path to move along")]
    NoGeometry {
        /// The host.
        node: String,
    },
    /// A repeated path that takes no time.
    #[error("{node} goes its way again and again in {round}, expected at least 1 us")]
    RestlessPath {
        /// The host.
        node: String,
        /// The duration of one round.
        round: Duration,
    },
    /// The run would never end.
    #[error("no flow has an end and there is no time limit, so that the run would never end")]
    NoEnd,
}
