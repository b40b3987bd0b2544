//! Errors in the description of a world.

use holdover_base::{Duration, Instant};
use holdover_link::ConfigError;
use holdover_mobility::CombinationError;

/// Why a world cannot be built.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum WorldError {
    /// Something names a node that does not exist.
    #[error("{what} names node {node}, and there are {nodes}")]
    NoSuchNode {
        /// What does.
        what: String,
        /// The node.
        node: u32,
        /// How many nodes there are.
        nodes: usize,
    },
    /// A link with a second layer is between a host and its router.
    #[error("link {link} has a second layer, which is between a host and a router")]
    Layer2Ends {
        /// The link.
        link: String,
    },
    /// Only hosts have applications.
    #[error("flow {flow} begins or ends at {node}, which is a router")]
    NotAHost {
        /// The flow.
        flow: String,
        /// The node.
        node: String,
    },
    /// Only hosts have mechanisms.
    #[error("mechanisms of {node}, which is a router")]
    MechanismsOfRouter {
        /// The node.
        node: String,
    },
    /// Only routers have mechanisms of gateways.
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
    /// A host has a processor that takes time.
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
    /// A router looks after hosts alone.
    #[error("{node} is to look after {mobile}, which is a router")]
    MobileIsRouter {
        /// The router.
        node: String,
        /// The node that is none.
        mobile: String,
    },
    /// A router's mechanisms cannot be as described.
    #[error("the mechanisms of {node}: {error}")]
    Gateway {
        /// The router.
        node: String,
        /// Why.
        error: holdover_gateway::ConfigError,
    },
    /// No flow's packets to or from a mobile host come through a router that has mechanisms for them.
    #[error("the mechanisms of {node} can never act: no flow of a host that it looks after comes through it")]
    GatewayOffPath {
        /// The router.
        node: String,
    },
    /// Mechanisms that do not go together.
    #[error("the mechanisms of {node}: {error}")]
    Mechanisms {
        /// The host.
        node: String,
        /// Which, and why.
        error: CombinationError,
    },
    /// Only hosts have identities and addresses for each link.
    #[error("addresses or identity of {node}, which is a router")]
    AddressingOfRouter {
        /// The node.
        node: String,
    },
    /// Addresses for each link of a host that has none, or too many, or is too late in the list of nodes.
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
    /// UPDATEs that are sent again without waiting.
    #[error("{node} is to repeat its UPDATE after 0 s, expected more than 0 s")]
    UpdateAfter {
        /// The host.
        node: String,
    },
    /// A delay of readdressing cannot be as described.
    #[error("{node}: {error}")]
    IdentityDelay {
        /// The host.
        node: String,
        /// Why.
        error: ConfigError,
    },
    /// A flow goes from a host to itself.
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
        /// Its one end.
        from: String,
        /// Its other end.
        to: String,
    },
    /// A link cannot be as described.
    #[error("link {link}: {error}")]
    Link {
        /// The link.
        link: String,
        /// Why.
        error: ConfigError,
    },
    /// A Pareto distribution with this shape has no mean.
    #[error("flow {flow}: a Pareto shape of {shape} has no mean, expected a number above 1")]
    Shape {
        /// The flow.
        flow: String,
        /// The shape.
        shape: f64,
    },
    /// An amount or a rate that must not be zero is.
    #[error("flow {flow}: {field} is 0")]
    Zero {
        /// The flow.
        flow: String,
        /// Which.
        field: &'static str,
    },
    /// Two of a kind have the same name.
    #[error("two {kind} are called {name}")]
    SameName {
        /// Nodes, links, cells or flows.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A link leads from a node to itself.
    #[error("link {link} leads from {node} to itself")]
    SelfLink {
        /// The link.
        link: String,
        /// The node.
        node: String,
    },
    /// Every flow has a port of its own, and there are not so many.
    #[error("{flows} flows, expected at most {most}")]
    TooManyFlows {
        /// How many.
        flows: usize,
        /// The most.
        most: usize,
    },
    /// A flow would begin when the run is over.
    #[error("flow {flow} starts at {start} s, expected a time before the end of the run at {time_limit} s")]
    StartsTooLate {
        /// The flow.
        flow: String,
        /// Its start.
        start: Instant,
        /// The run's end.
        time_limit: Instant,
    },
    /// Samples without time between them.
    #[error("samples are to be taken every 0 s, expected more than 0 s")]
    SampleInterval,
    /// A cell's or a movement's name for a cell that does not exist.
    #[error("{node} is to visit cell {cell}, and there are {cells}")]
    NoSuchCell {
        /// The mobile host.
        node: String,
        /// The cell.
        cell: u32,
        /// How many cells there are.
        cells: usize,
    },
    /// Only routers are base stations or gateways.
    #[error("{what} of {of} is {node}, which is a host, expected a router")]
    NotARouter {
        /// The base station or the gateway.
        what: &'static str,
        /// Whose.
        of: String,
        /// The node.
        node: String,
    },
    /// A cell cannot be as described.
    #[error("cell {cell}: {error}")]
    Cell {
        /// The cell.
        cell: String,
        /// Why.
        error: ConfigError,
    },
    /// A route by a link that does not exist.
    #[error("{router} has a route by link {link}, and there are {links}")]
    NoSuchLink {
        /// The router.
        router: String,
        /// The link.
        link: u32,
        /// How many links there are.
        links: usize,
    },
    /// A router sends by its own links only.
    #[error("{router} has a route by link {link}, which does not end at it")]
    RouteBySomeLink {
        /// The router.
        router: String,
        /// The link.
        link: String,
    },
    /// Mobile hosts are found through their gateway or base station.
    #[error("{router} has a route to {mobile}, which moves; routes lead to hosts with links and to routers")]
    RouteToMobile {
        /// The router.
        router: String,
        /// The mobile host.
        mobile: String,
    },
    /// Hosts do not forward.
    #[error("{router} has a route to {to} through {host}, a host, which forwards nothing")]
    RouteThroughHost {
        /// The router.
        router: String,
        /// The destination.
        to: String,
        /// The host at the other end of the link.
        host: String,
    },
    /// Cells on one channel speak the same language.
    #[error("cells {first} and {second} share channel {channel}, expected the same medium of both")]
    ChannelMedium {
        /// The one.
        first: String,
        /// The other.
        second: String,
        /// The channel.
        channel: u32,
    },
    /// A base station has one cell.
    #[error("cells {first} and {second} have the same base station {base}")]
    SameBase {
        /// The one.
        first: String,
        /// The other.
        second: String,
        /// Their base station.
        base: String,
    },
    /// A router cannot move.
    #[error("{node} is a router, and only hosts move")]
    MovingRouter {
        /// The router.
        node: String,
    },
    /// A host cannot move in two ways.
    #[error("{node} is described as mobile twice")]
    MobileTwice {
        /// The host.
        node: String,
    },
    /// A mobile host has no links.
    #[error("{node} is mobile and cannot be at the end of link {link}")]
    MobileWithLink {
        /// The host.
        node: String,
        /// The link.
        link: String,
    },
    /// A movement that leads nowhere.
    #[error("{node} has nowhere to go: expected at least one {expected}")]
    NowhereToGo {
        /// The host.
        node: String,
        /// A cell, a visit or a stop.
        expected: &'static str,
    },
    /// A length of time of a movement cannot be as described.
    #[error("{node}: {error}")]
    Movement {
        /// The host.
        node: String,
        /// Why.
        error: ConfigError,
    },
    /// Visits out of order.
    #[error("{node}: visit {index} at {at} s must come after the one before it")]
    VisitOrder {
        /// The host.
        node: String,
        /// Its place in the list, from 0.
        index: usize,
        /// Its time.
        at: Instant,
    },
    /// A path from one place to another without speed, or with places that are no numbers.
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
    /// Without beacons, a mobile host that registers never hears of a cell.
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
    /// A request that is sent again without waiting.
    #[error("{node} is to repeat its registration request after 0 s, expected more than 0 s")]
    RetransmitAfter {
        /// The host.
        node: String,
    },
    /// A registration that is over at once.
    #[error("{node} is to register for 0 s, expected more than 0 s")]
    NoLifetime {
        /// The host.
        node: String,
    },
    /// A threshold that is no percentage above 0.
    #[error("{node}: a prediction threshold of {percent} %, expected a number above 0")]
    Threshold {
        /// The host.
        node: String,
        /// The threshold.
        percent: f64,
    },
    /// A host without positions has no signal strength that falls.
    #[error("{node} is to predict by signal strength, which needs a path to move along")]
    NoGeometry {
        /// The host.
        node: String,
    },
    /// A way that is repeated and takes no time.
    #[error("{node} goes its way again and again in {round}, expected at least 1 us")]
    RestlessPath {
        /// The host.
        node: String,
        /// How long the way takes.
        round: Duration,
    },
    /// Nothing ends the run.
    #[error("no flow has an end and there is no time limit, so that the run would never end")]
    NoEnd,
}
