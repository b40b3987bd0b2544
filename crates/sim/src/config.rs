//! The description of a world.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeSet;
use std::sync::Arc;

use holdover_base::{BitRate, ByteCount, Duration, Instant};
#[cfg(feature = "identity")]
use holdover_hip::esp::EspSuite;
#[cfg(feature = "identity")]
use holdover_hip::host::HostConfig;
use holdover_link::{Length, LinkConfig};
use holdover_mobility::Mechanisms;
use holdover_tcp::Config;

use crate::ids::{LinkId, NodeId};
use crate::layer2::Layer2;
use crate::mobility::{Attachment, MobileHost, RadioCell};
use crate::mtu::LinkMtu;

/// A whole world.
#[derive(Clone, PartialEq, Debug)]
pub struct WorldConfig {
    /// The seed of all randomness.
    pub seed: u64,
    /// Hosts and routers.
    pub nodes: Vec<NodeConfig>,
    /// Links between them.
    pub links: Vec<LinkBetween>,
    /// The choice of routers between several paths.
    pub routing: Routing,
    /// Radio cells.
    pub cells: Vec<RadioCell>,
    /// Hosts that move between cells, and their movement.
    pub mobiles: Vec<MobileHost>,
    /// Mechanisms of hosts.
    pub mechanisms: Vec<HostMechanisms>,
    /// Mechanisms of routers for the connections of mobile hosts.
    pub gateways: Vec<GatewayMechanisms>,
    /// Routers that take time to forward packets. The others take none.
    pub cpus: Vec<RouterCpu>,
    /// Hosts that take time to receive packets. The others take none.
    pub latencies: Vec<HostLatency>,
    /// Hosts with one address for each link, or with an identity.
    pub addressing: Vec<HostAddressing>,
    /// Applications.
    pub flows: Vec<FlowConfig>,
    /// The latest end of the run.
    pub time_limit: Instant,
    /// The interval of samples of each connection's state; `None` for no samples.
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
            latencies: Vec::new(),
            addressing: Vec::new(),
            flows: Vec::new(),
            time_limit: Instant::FAR_FUTURE,
            sample_every: None,
        }
    }
}

impl WorldConfig {
    /// Whether the world has any randomness, so that another seed may give another run: links, radio cells and movement in them, traffic in
    /// bursts, and BBR, which begins its cycles at random.
    pub fn is_random(&self) -> bool {
        let bbr = |config: &Config| config.congestion.algorithm.is_model_based();
        !self.cells.is_empty()
            || !self.mobiles.is_empty()
            || self.links.iter().any(|link| link.forward.is_random() || link.backward.is_random())
            || self.latencies.iter().any(HostLatency::is_random)
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
    /// Its role.
    pub role: Role,
}

/// The role of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It has an address, a TCP endpoint and applications, and forwards nothing. With several links, it uses the first one that is up and
    /// leads to the packet's destination; packets to it take the first reachable one that is up. If none is up, the first one is used.
    /// Nodes know at once which links are up.
    Host,
    /// It forwards packets.
    Router,
}

/// The choice of routers between several paths to a destination.
///
/// Each router uses the first of these that exists: the route with the lowest metric to the destination, the default route with the lowest
/// metric (unless a link connects it with the destination), the path with the fewest hops (of equals, over the link that is described
/// first). With [`Self::detection`], links known to be down are excluded, and a router without a route answers with "destination
/// unreachable". Without it, all links always count as up.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Routing {
    /// When routers notice that a link has gone down or come back; `None` for never. All routers notice each change at the same time, as
    /// with a link-state protocol whose flooding takes no time.
    pub detection: Option<LinkDetection>,
    /// Configured routes.
    pub routes: Vec<Route>,
}

/// How long it takes until routers notice a change of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkDetection {
    /// From link-down until no router uses the link any more. A shorter outage is not noticed.
    pub down_after: Duration,
    /// From link-up until routers use the link again.
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
    /// The link to use. One of its ends is the router.
    pub link: LinkId,
    /// Of several routes to the same destination, the one with the lowest metric is used; of equals, the first.
    pub metric: u32,
}

/// The mechanisms of a host.
#[derive(Clone, PartialEq, Debug)]
pub struct HostMechanisms {
    /// The host.
    pub node: NodeId,
    /// The mechanisms.
    pub mechanisms: Mechanisms,
    /// The warning time before an outage of the link in use; `None` for no warnings. For hosts with links: mobile hosts predict leaving
    /// their cell by [`MobileHost::prediction`].
    pub foresight: Option<Duration>,
}

/// The mechanisms of a router for the connections of mobile hosts. It sees each unencrypted packet to and from them that it forwards.
///
/// Its reports of presence depend on the node: a base station knows which hosts its cell covers, which are about to leave it (if
/// [`MobileHost::prediction`] predicts that) and which have attached elsewhere; a mobility agent knows each registration; a router with a
/// link to one of them knows whether that link is up (unless the link's outages are invisible to a router).
#[derive(Clone, PartialEq, Debug)]
pub struct GatewayMechanisms {
    /// The router.
    pub node: NodeId,
    /// The mechanisms.
    pub mechanisms: holdover_gateway::Mechanisms,
    /// The mobile hosts that they serve.
    pub mobiles: Vec<NodeId>,
    /// Whether its link layer reports their presence. Registrations are always reported.
    pub hears_links: bool,
}

/// The processor of a router: one server with a bounded FIFO queue.
///
/// An *operation* is a packet that the router's mechanisms handle, on top of forwarding. A packet that they make in addition to those that
/// arrived (a copy, an ACK of their own) leaves at once and takes the processor's time afterwards, like a forwarded one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouterCpu {
    /// The router.
    pub node: NodeId,
    /// The time for each packet.
    pub per_packet: Duration,
    /// The additional time for each byte, IP headers included.
    pub per_byte: Duration,
    /// The additional time for each operation.
    pub per_operation: Duration,
    /// The additional time for each byte of a packet in an operation.
    pub per_operation_byte: Duration,
    /// The time for each byte of payload that the router's mechanisms compress, taken after the packet has left.
    pub per_compressed_byte: Duration,
    /// The most packets that wait or are served; further ones are dropped.
    pub backlog_packets: u32,
}

impl RouterCpu {
    /// A processor that takes no time, with a queue of 1000 packets (Linux `net.core.netdev_max_backlog`).
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

/// The latency of a host: the time from a packet's arrival until the host's TCP (or its mechanisms) handles it. Packets keep their order. A
/// host that is a kernel has its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostLatency {
    /// The host.
    pub node: NodeId,
    /// The latency of a packet, drawn for each.
    pub busy: Length,
    /// The latency of the first packet, and of one after a pause: the processor wakes up, and its caches hold other data.
    pub idle: Length,
    /// The time without a packet after which the latency is that of [`Self::idle`].
    pub idle_after: Duration,
}

impl HostLatency {
    /// Whether another seed gives other latencies.
    pub(crate) fn is_random(&self) -> bool {
        [self.busy, self.idle].iter().any(|length| !matches!(length, Length::Constant(_)))
    }
}

/// The addresses of a host.
#[derive(Clone, PartialEq, Debug)]
pub struct HostAddressing {
    /// The host.
    pub node: NodeId,
    /// The scope of its addresses.
    pub addresses: Addresses,
    /// Its identity, if it has one. Connections between two hosts with identities are bound to the identities, for which
    /// [`NodeId::address`] stands on each host, as Local Scope Identifiers do; other connections are bound to the current address of each
    /// host when they begin.
    pub identity: Option<HostIdentity>,
}

/// The scope of a host's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Addresses {
    /// One ([`NodeId::address`]) for all its links: packets reach it anywhere.
    #[default]
    One,
    /// One ([`NodeId::locator`]) for each link: packets from it leave only on that link, and packets to it arrive on
    /// it.
    PerLink,
}

/// Host identity (`holdover_hip`). Two hosts with an identity that share a flow are peers.
#[cfg(feature = "identity")]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HostIdentity {
    /// From an attachment with other addresses than the last ones until the host notices them. Until then it has the old ones, or none.
    pub delay: Option<Length>,
    /// The transform of data packets. Between hosts with different ones, that of the host that was called; before the run [`FlowConfig::from`]
    /// of their first flow calls.
    pub esp: EspSuite,
    /// When associations are established.
    pub associate: Associate,
    /// The first timeout of a HIP packet; doubled with each retransmission.
    pub retransmit_after: Duration,
    /// The retransmissions of a HIP packet.
    pub retries: u32,
}

/// Host identity. It has no values: this build is without the feature `identity`.
#[cfg(not(feature = "identity"))]
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum HostIdentity {}

/// When the association of two hosts is established. If their settings differ, with the first packet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Associate {
    /// Before the run begins. The exchange takes no time.
    #[default]
    Before,
    /// With the first packet of either host to the other, which waits for the end of the exchange, or when one of them has an address after
    /// it had none or another one: its peers could not find it there.
    FirstPacket,
}

#[cfg(feature = "identity")]
impl Default for HostIdentity {
    /// No delay, AES-GCM, and the protocol's default timers.
    fn default() -> Self {
        let HostConfig { retransmit_after, retries, .. } = HostConfig::default();
        Self { delay: None, esp: EspSuite::Aes128Gcm16, associate: Associate::default(), retransmit_after, retries }
    }
}

/// A link between two nodes, each direction described separately.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkBetween {
    /// The name in reports and captures.
    pub name: String,
    /// One end.
    pub a: NodeId,
    /// The other end.
    pub b: NodeId,
    /// From `a` to `b`. Its outages and its late forwarding apply to both directions.
    pub forward: LinkConfig,
    /// From `b` to `a`; its outages are not used.
    pub backward: LinkConfig,
    /// Its second layer.
    pub layer2: Layer2,
    /// Its MTU; `None` if it carries packets of any length.
    pub mtu: Option<LinkMtu>,
}

/// One application with its traffic.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowConfig {
    /// The name in reports.
    pub name: String,
    /// The sender (the client of a request and response exchange).
    pub from: NodeId,
    /// The receiver (the server).
    pub to: NodeId,
    /// Its start.
    pub start: Instant,
    /// The TCP of `from`.
    pub sender: Arc<Config>,
    /// The TCP of `to`.
    pub receiver: Arc<Config>,
    /// The application.
    pub traffic: Traffic,
    /// Whether it uses IPv6 addresses.
    pub ipv6: bool,
}

impl FlowConfig {
    /// Whether the flow ends by itself. A run does not wait for the others: they last as long as it does.
    pub const fn is_finite(&self) -> bool {
        match self.traffic {
            Traffic::Bulk(_) => true,
            Traffic::RequestResponse(RequestResponse { count, .. }) => count.is_some(),
            Traffic::OnOff(_) => false,
        }
    }
}

/// The traffic of an application.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Traffic {
    /// Data in one direction, as fast as TCP accepts it.
    Bulk(Bulk),
    /// Requests and answers alternate over one connection.
    RequestResponse(RequestResponse),
    /// UDP datagrams in bursts of Pareto-distributed length.
    OnOff(OnOff),
}

/// Bulk data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bulk {
    /// The amount.
    pub amount: Amount,
    /// The end that opens the connection: the sender (an upload by a client) or the receiver (a download).
    pub opener: Opener,
}

/// The amount of data of a bulk transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// This many bytes.
    Bytes(ByteCount),
    /// As much as TCP accepts in this time.
    For(Duration),
}

/// The end that opens a connection.
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
    /// The number of exchanges; `None` until the run ends.
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
    /// A wire with equal directions.
    pub fn wire(name: impl Into<String>, a: NodeId, b: NodeId, config: LinkConfig) -> Self {
        Self {
            name: name.into(),
            a,
            b,
            forward: config.clone(),
            backward: config,
            layer2: Layer2::default(),
            mtu: None,
        }
    }

    /// When both directions carry packets of all families again after link-up at `up`: the link forwards, and the host has its addresses
    /// and routes.
    pub fn carries_at(&self, up: Instant) -> Instant {
        up + self.carries_after()
    }

    /// From link-up until it carries packets.
    pub fn carries_after(&self) -> Duration {
        self.forward.forwards_after + self.layer2.addresses.after()
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

    /// The node's address at one of its links, which are numbered in the order of their description: 172.16.0.0/12, or fd00::/48, with the
    /// link's and the node's number in it. They exist for the first [`Self::MAX_PER_LINK`] nodes, and [`Self::MAX_ACCESSES`] links of each.
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

    /// The number of nodes that can have addresses for each link; their numbers are below this.
    pub const MAX_PER_LINK: u32 = 0xffff;

    /// The most links of such a node.
    pub const MAX_ACCESSES: usize = 16;

    /// The node with this address, if it is one of [`Self::address`] or [`Self::locator`].
    pub fn of(address: IpAddr) -> Option<Self> {
        Self::and_access_of(address).map(|(node, _)| node)
    }

    /// The node with this address, and the index of its link if it is one of [`Self::locator`].
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
