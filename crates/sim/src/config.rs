//! The description of a world.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeSet;
use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
use holdover_hip::ShimConfig;
use holdover_link::{Length, LinkConfig};
use holdover_mobility::Mechanisms;
use holdover_tcp::Config;

use crate::layer2::Layer2;
use crate::mobility::{Attachment, MobileHost, RadioCell};
use crate::observer::LinkId;

/// A node of a world: its place in [`WorldConfig::nodes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

/// A whole world.
#[derive(Clone, PartialEq, Debug)]
pub struct WorldConfig {
    /// What everything random is drawn from.
    pub seed: u64,
    /// Hosts and routers.
    pub nodes: Vec<NodeConfig>,
    /// Links between them.
    pub links: Vec<LinkBetween>,
    /// How routers choose between several ways.
    pub routing: Routing,
    /// Radio cells.
    pub cells: Vec<RadioCell>,
    /// Which hosts move between cells, and how.
    pub mobiles: Vec<MobileHost>,
    /// What hosts do for their connections when their links come and go.
    pub mechanisms: Vec<HostMechanisms>,
    /// What routers do for the connections of mobile hosts.
    pub gateways: Vec<GatewayMechanisms>,
    /// Routers that take time for what they forward. The others take none.
    pub cpus: Vec<RouterCpu>,
    /// Hosts that have one address for each link, or an identity.
    pub addressing: Vec<HostAddressing>,
    /// What the applications do.
    pub flows: Vec<FlowConfig>,
    /// When the run ends at the latest.
    pub time_limit: Instant,
    /// How often the state of each connection is sampled; `None` for never.
    pub sample_every: Option<Duration>,
}

impl Default for WorldConfig {
    /// An empty world without a time limit.
    fn default() -> Self {
        Self {
            seed: 0,
            nodes: Vec::new(),
            links: Vec::new(),
            routing: Routing::default(),
            cells: Vec::new(),
            mobiles: Vec::new(),
            mechanisms: Vec::new(),
            gateways: Vec::new(),
            cpus: Vec::new(),
            addressing: Vec::new(),
            flows: Vec::new(),
            time_limit: Instant::FAR_FUTURE,
            sample_every: None,
        }
    }
}

impl WorldConfig {
    /// Whether anything that happens in the world is drawn at random, so that another seed may give another run: what links do, radio cells and
    /// movement in them, traffic in bursts, and BBR, which begins its cycles at random.
    pub fn is_random(&self) -> bool {
        let bbr = |config: &Config| config.congestion.algorithm.is_model_based();
        !self.cells.is_empty()
            || !self.mobiles.is_empty()
            || self.links.iter().any(|link| link.forward.is_random() || link.backward.is_random())
            || self
                .flows
                .iter()
                .any(|flow| matches!(flow.traffic, Traffic::OnOff(_)) || bbr(&flow.sender) || bbr(&flow.receiver))
    }

    /// The gateways that mobile hosts register with, each once.
    pub(crate) fn home_agents(&self) -> BTreeSet<NodeId> {
        let gateway = |mobile: &MobileHost| match &mobile.attachment {
            Attachment::Registration(registration) => Some(registration.gateway),
            Attachment::HandoffTime(_) => None,
        };
        self.mobiles.iter().filter_map(gateway).collect()
    }
}

/// A host or a router.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeConfig {
    /// The name in reports and captures.
    pub name: String,
    /// What it does.
    pub role: Role,
}

/// What a node does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It has an address, a TCP endpoint and applications, and forwards nothing. With several links, it uses the first one
    /// that is up and leads to the packet's destination; packets to it take the first one that is up and that they can
    /// reach. If none is up, the first one. Nodes know at once which links are up.
    Host,
    /// It forwards packets.
    Router,
}

/// How routers choose between several ways to a destination.
///
/// Each router takes the first of these that there is: the route with the lowest metric to the destination, the default route with the
/// lowest metric (unless a link joins it with the destination), the way with the fewest hops (of equals, over the link that is described
/// first). With [`Self::detection`], links that
/// are known to be down are left out, and a router without a route answers by "destination unreachable". Without, all links
/// count as up at all times.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Routing {
    /// When routers heed that a link has gone down or come back; `None` for never. All routers learn of every link at the same
    /// time, as by a link-state protocol whose flooding takes no time.
    pub detection: Option<LinkDetection>,
    /// Routes set by hand.
    pub routes: Vec<Route>,
}

/// How long it takes until routers heed a change of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkDetection {
    /// From when it goes down to when no router uses it any more. A shorter outage is not noticed.
    pub down_after: Duration,
    /// From its return to when routers use it again.
    pub up_after: Duration,
}

impl Default for LinkDetection {
    /// 150 ms each: three packets of Bidirectional Forwarding Detection (RFC 5880) at an interval of 50 ms.
    fn default() -> Self {
        Self { down_after: Duration::from_millis(150), up_after: Duration::from_millis(150) }
    }
}

/// A route of a router, as `ip route add TO dev LINK metric METRIC`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The router.
    pub router: NodeId,
    /// The destination, a host or a router that does not move; `None` for the default route.
    pub to: Option<NodeId>,
    /// The link to send by, which ends at the router.
    pub link: LinkId,
    /// Of several routes to the same destination, the one with the lowest metric is used; of equals, the first.
    pub metric: u32,
}

/// What a host does for its connections when its links come and go.
#[derive(Clone, PartialEq, Debug)]
pub struct HostMechanisms {
    /// The host.
    pub node: NodeId,
    /// What it does.
    pub mechanisms: Mechanisms,
    /// How long before an outage of the link that it uses it is warned of it; `None` if it is not. For hosts with links: how a
    /// mobile host foresees that it leaves its cell is [`MobileHost::prediction`].
    pub foresight: Option<Duration>,
}

/// What a router does for the connections of mobile hosts. It sees each packet to and from them that it forwards in the clear.
///
/// It learns where they are as a node of its kind can: a base station, which of them its cell covers, which are about to leave it
/// (if [`MobileHost::prediction`] foresees that) and which have attached elsewhere; a mobility agent, each registration; a router with
/// a link to one of them, whether that link is up (unless outages of that link are none that a router sees).
#[derive(Clone, PartialEq, Debug)]
pub struct GatewayMechanisms {
    /// The router.
    pub node: NodeId,
    /// What it does.
    pub mechanisms: holdover_gateway::Mechanisms,
    /// For which hosts.
    pub mobiles: Vec<NodeId>,
    /// Whether its link layer tells it where they are. Registrations it hears of in any case.
    pub hears_links: bool,
}

/// The processor of a router: one server that takes packets in the order in which they come, and a bounded line before it.
///
/// An *operation* is a packet that the router's mechanisms handle, on top of forwarding. A packet that they make without one that they
/// kept for it (a copy, an ACK of their own) leaves at once and takes the processor's time afterwards, like one that is forwarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouterCpu {
    /// The router.
    pub node: NodeId,
    /// What each packet takes.
    pub per_packet: Duration,
    /// What each byte of it takes besides, headers of IP included.
    pub per_byte: Duration,
    /// What each operation takes besides.
    pub per_operation: Duration,
    /// What each byte of a packet takes besides in an operation.
    pub per_operation_byte: Duration,
    /// What each byte of payload takes that the router's mechanisms compress, after the packet has left.
    pub per_compressed_byte: Duration,
    /// How many packets wait or are served at most; others are dropped.
    pub backlog_packets: u32,
}

impl RouterCpu {
    /// A processor that takes no time, before which up to 1000 packets wait (Linux `net.core.netdev_max_backlog`).
    pub const fn of(node: NodeId) -> Self {
        let none = Duration::ZERO;
        Self {
            node,
            per_packet: none,
            per_byte: none,
            per_operation: none,
            per_operation_byte: none,
            per_compressed_byte: none,
            backlog_packets: 1000,
        }
    }
}

/// The addresses of a host.
#[derive(Clone, PartialEq, Debug)]
pub struct HostAddressing {
    /// The host.
    pub node: NodeId,
    /// What it has addresses for.
    pub addresses: Addresses,
    /// Its identity, if it has one. Connections between two hosts with identities are bound to those, which have the form of
    /// [`NodeId::address`]; other connections to the address that each host has when they begin.
    pub identity: Option<HostIdentity>,
}

/// What a host has addresses for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Addresses {
    /// One ([`NodeId::address`]) for all its links: packets find it wherever it is.
    #[default]
    One,
    /// One ([`NodeId::locator`]) for each link: packets from it leave by that link alone, packets to it arrive by it.
    PerLink,
}

/// Host identity ([`holdover_hip`]). All hosts that have one and share a flow have an association from the start.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HostIdentity {
    /// From a new attachment to the first UPDATE.
    pub delay: Option<Length>,
    /// Bytes that each packet of data gets on the wire, for what protects it.
    pub overhead: ByteCount,
    /// How UPDATEs are retransmitted.
    pub shim: ShimConfig,
}

impl Default for HostIdentity {
    /// No delay, and ESP in BEET mode (RFC 7402) with AES-CBC and HMAC-SHA-1-96: header 8, vector 16, trailer 2, check value 12,
    /// and 6 of padding, which is what a full-sized segment of 1480 bytes needs.
    fn default() -> Self {
        Self { delay: None, overhead: ByteCount(44), shim: ShimConfig::default() }
    }
}

/// A link between two nodes, each direction described on its own.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkBetween {
    /// The name in reports and captures.
    pub name: String,
    /// The one end.
    pub a: NodeId,
    /// The other end.
    pub b: NodeId,
    /// From `a` to `b`. Its outages, and how late it forwards after them, are those of both directions.
    pub forward: LinkConfig,
    /// From `b` to `a`; its outages are not used.
    pub backward: LinkConfig,
    /// What it is made of below IP.
    pub layer2: Layer2,
}

/// One application with its traffic.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowConfig {
    /// The name in reports.
    pub name: String,
    /// Who sends (the client of a request and response exchange).
    pub from: NodeId,
    /// Who receives (the server).
    pub to: NodeId,
    /// When it begins.
    pub start: Instant,
    /// The TCP of `from`.
    pub sender: Arc<Config>,
    /// The TCP of `to`.
    pub receiver: Arc<Config>,
    /// What it does.
    pub traffic: Traffic,
    /// Use IPv6 addresses.
    pub ipv6: bool,
}

/// What an application does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Traffic {
    /// Data in one direction, as fast as TCP takes it.
    Bulk(Bulk),
    /// Requests and answers in turn over one connection.
    RequestResponse(RequestResponse),
    /// UDP datagrams in bursts of Pareto-distributed length.
    OnOff(OnOff),
}

/// Bulk data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bulk {
    /// How much.
    pub amount: Amount,
    /// Who opens the connection: the sender (an upload by a client) or the receiver (a download).
    pub opener: Opener,
}

/// How much data a bulk transfer sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// So many bytes.
    Bytes(ByteCount),
    /// As much as goes in this time.
    For(Duration),
}

/// Who opens a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opener {
    /// The sender of the data.
    Sender,
    /// The receiver of the data.
    Receiver,
}

/// Requests and answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestResponse {
    /// Size of a request.
    pub request: ByteCount,
    /// Size of an answer.
    pub response: ByteCount,
    /// Time from an answer to the next request.
    pub think: Duration,
    /// How many exchanges; `None` until the run ends.
    pub count: Option<u64>,
}

/// Bursts of UDP datagrams: on and off times are Pareto-distributed (ns-2's `Application/Traffic/Pareto`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OnOff {
    /// Bytes of payload in a datagram.
    pub datagram: ByteCount,
    /// The rate during a burst.
    pub rate: BitRate,
    /// The mean length of a burst.
    pub mean_on: Duration,
    /// The mean pause.
    pub mean_off: Duration,
    /// The shape of both distributions, above 1.
    pub shape: f64,
}

impl LinkBetween {
    /// A wire that is the same in both directions.
    pub fn wire(name: impl Into<String>, a: NodeId, b: NodeId, config: LinkConfig) -> Self {
        Self { name: name.into(), a, b, forward: config.clone(), backward: config, layer2: Layer2::default() }
    }
}

impl NodeId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    /// The node's address: 10.0.0.0/8, or fd00::/64, with the node's number in it.
    pub fn address(self, ipv6: bool) -> IpAddr {
        if ipv6 {
            let [_, b, c, d] = (self.0 + 1).to_be_bytes();
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, u16::from(b), u16::from_be_bytes([c, d])))
        } else {
            IpAddr::V4(self.ipv4())
        }
    }

    /// [`Self::address`] of IPv4.
    pub(crate) fn ipv4(self) -> Ipv4Addr {
        let [_, b, c, d] = (self.0 + 1).to_be_bytes();
        Ipv4Addr::new(10, b, c, d)
    }

    /// The node's address at one of its links, which are counted in the order of their description: 172.16.0.0/12, or
    /// fd00::/48, with the link's and the node's number in it. There are so many for the first [`Self::MAX_PER_LINK`] nodes
    /// and [`Self::MAX_ACCESSES`] links of each.
    pub fn locator(self, access: u32, ipv6: bool) -> IpAddr {
        let number = self.0 + 1;
        if ipv6 {
            let (high, low) = ((number >> 16) as u16, number as u16);
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, access as u16 + 1, 0, 0, high, low))
        } else {
            let [_, _, c, d] = number.to_be_bytes();
            IpAddr::V4(Ipv4Addr::new(172, 16 | (access as u8 & 15), c, d))
        }
    }

    /// How many nodes can have addresses for each link: they have numbers below this.
    pub const MAX_PER_LINK: u32 = 0xffff;

    /// How many links such a node can have.
    pub const MAX_ACCESSES: usize = 16;

    /// The node that has `address`, if it is one of [`Self::address`] or [`Self::locator`].
    pub fn of(address: IpAddr) -> Option<Self> {
        Self::and_access_of(address).map(|(node, _)| node)
    }

    /// The node that has `address`, and at which of its links if that is one of [`Self::locator`].
    pub fn and_access_of(address: IpAddr) -> Option<(Self, Option<u32>)> {
        let (number, access) = match address {
            IpAddr::V4(ip) => match ip.octets() {
                [10, b, c, d] => (u32::from_be_bytes([0, b, c, d]), None),
                [172, b @ 16..32, c, d] => (u32::from_be_bytes([0, 0, c, d]), Some(u32::from(b) - 16)),
                _ => return None,
            },
            IpAddr::V6(ip) => match ip.segments() {
                [0xfd00, _, _, access, .., high, low] => {
                    (u32::from(high) << 16 | u32::from(low), u32::from(access).checked_sub(1))
                }
                _ => return None,
            },
        };
        number.checked_sub(1).map(|index| (Self(index), access))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_by_its_address() {
        for n in [0, 1, 254, 255, 256, 70_000] {
            for ipv6 in [false, true] {
                assert_eq!(NodeId::of(NodeId(n).address(ipv6)), Some(NodeId(n)));
            }
        }
        for (n, access) in [(0, 0), (0, 15), (65_534, 3)] {
            for ipv6 in [false, true] {
                let locator = NodeId(n).locator(access, ipv6);
                assert_eq!(NodeId::and_access_of(locator), Some((NodeId(n), Some(access))));
                assert_ne!(locator, NodeId(n).address(ipv6));
            }
        }
        assert_eq!(NodeId::of("10.0.0.0".parse().unwrap()), None);
        assert_eq!(NodeId::of("172.32.0.1".parse().unwrap()), None);
        assert_eq!(NodeId::of("192.0.2.1".parse().unwrap()), None);
    }
}
