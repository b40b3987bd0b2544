//! Local scope identifiers (LSIs; RFC 9063, RFC 5338): IPv4 addresses that stand for hosts, valid on this host only, for programs without
//! IPv6. On the way to a peer their packets are translated to packets between HITs, so that both ends may use different IP versions: one
//! end's program may use the peer's LSI while the other's listens on IPv6.
//!
//! An LSI consists of the low bits of the HIT only, so that adding or removing a peer changes no other peer's LSI. Peers whose HITs share
//! these bits have none.

use std::collections::BTreeMap;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use holdover_hip::identity::Hit;
use holdover_wire::{IcmpError, Packet, Payload, Unreachable};

/// IP protocol numbers.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// The difference between an IPv6 and an IPv4 header, in bytes.
const HEADER_DIFFERENCE: u32 = 20;
/// The least MTU of IPv6, in bytes.
const LEAST_MTU: u32 = 1280;
/// The most flows remembered in any case; up to twice as many if in use.
const MOST_FLOWS: usize = 16_384;

/// A prefix for the LSIs of this host's peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LsiPrefix {
    network: Ipv4Addr,
    len: u8,
}

impl Default for LsiPrefix {
    /// 198.18.0.0/15, which no network forwards (RFC 2544, RFC 6890).
    fn default() -> Self {
        Self { network: Ipv4Addr::new(198, 18, 0, 0), len: 15 }
    }
}

/// Why a prefix is not valid for LSIs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LsiPrefixError {
    /// Not a prefix.
    #[error("\"{text}\" is not an IPv4 prefix such as 198.18.0.0/15")]
    Form {
        /// The text.
        text: String,
    },
    /// Too small or too large.
    #[error("/{len}: expected a prefix of 8 to 16 bits, so that peers' addresses hardly ever collide")]
    Len {
        /// Its bits.
        len: u8,
    },
    /// It contains addresses with another meaning.
    #[error("{network}/{len} contains addresses that no host can have")]
    Reserved {
        /// Its first address.
        network: Ipv4Addr,
        /// Its bits.
        len: u8,
    },
}

impl FromStr for LsiPrefix {
    type Err = LsiPrefixError;

    fn from_str(text: &str) -> Result<Self, LsiPrefixError> {
        let form = || LsiPrefixError::Form { text: text.to_owned() };
        let (network, len) = text.split_once('/').ok_or_else(form)?;
        let (network, len): (Ipv4Addr, u8) = (network.parse().map_err(|_| form())?, len.parse().map_err(|_| form())?);
        if !(8..=16).contains(&len) {
            return Err(LsiPrefixError::Len { len });
        }
        if network.is_loopback() || network.is_multicast() || network.octets()[0] == 0 || network.octets()[0] >= 240 {
            return Err(LsiPrefixError::Reserved { network, len });
        }
        let prefix = Self { network, len };
        Ok(Self { network: Ipv4Addr::from_bits(network.to_bits() & !prefix.host_bits()), len })
    }
}

impl fmt::Display for LsiPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.len)
    }
}

impl LsiPrefix {
    /// The LSI of this host itself: the first host address of the prefix.
    pub const fn own(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() + 1)
    }

    /// The number of common bits.
    pub const fn prefix_len(self) -> u8 {
        self.len
    }

    /// Whether an address is an LSI.
    pub const fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & !self.host_bits() == self.network.to_bits()
    }

    const fn host_bits(self) -> u32 {
        u32::MAX >> self.len
    }

    /// The LSIs of these peers. Peers whose HITs end with the same bits have none.
    pub fn assign(self, hits: impl IntoIterator<Item = Hit>) -> BTreeMap<Hit, Ipv4Addr> {
        let mut claimed: BTreeMap<Ipv4Addr, Vec<Hit>> = BTreeMap::new();
        for hit in hits {
            claimed.entry(self.of(hit)).or_default().push(hit);
        }
        claimed.into_iter().filter(|(_, hits)| hits.len() == 1).map(|(lsi, hits)| (hits[0], lsi)).collect()
    }

    fn of(self, hit: Hit) -> Ipv4Addr {
        // Without the network's own address, this host's LSI and the address for broadcasts.
        let count = self.host_bits() - 2;
        let low = u128::from(hit.0) as u32 & self.host_bits();
        Ipv4Addr::from_bits(self.network.to_bits() + 2 + low % count)
    }
}

/// The IP version that a program of this host uses in a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IpVersion {
    /// By LSIs.
    V4,
    /// By HITs.
    V6,
}

/// Addresses of one end of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// In IPv6.
    pub hit: Ipv6Addr,
    /// In IPv4.
    pub lsi: Ipv4Addr,
    /// The port.
    pub port: u16,
}

/// The sockets of this host's programs.
pub trait KernelSockets: fmt::Debug + Send {
    /// The IP version of the socket that receives packets from `peer` to `own`, of TCP (`protocol` 6) or UDP (17);
    /// `None` without one, or if the query fails. IPv6 sockets are preferred.
    fn version_of(&mut self, protocol: u8, own: End, peer: End) -> Option<IpVersion>;
}

/// A flow with a peer, as seen in its packets between HITs. Ports are 0 for protocols without ports; those of an echo are its identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Flow {
    peer: Hit,
    protocol: u8,
    own_port: u16,
    peer_port: u16,
}

/// Translates between LSIs and HITs.
#[derive(Debug)]
pub(super) struct Lsis {
    prefix: LsiPrefix,
    own: Hit,
    sockets: Box<dyn KernelSockets>,
    by_hit: BTreeMap<Hit, Ipv4Addr>,
    by_lsi: BTreeMap<Ipv4Addr, Hit>,
    /// Flows with packets of this host's programs, and those that were looked up; unused ones are evicted.
    recent: BTreeMap<Flow, IpVersion>,
    older: BTreeMap<Flow, IpVersion>,
}

impl Lsis {
    pub(super) fn new(prefix: LsiPrefix, own: Hit, sockets: Box<dyn KernelSockets>) -> Self {
        Self {
            prefix,
            own,
            sockets,
            by_hit: BTreeMap::new(),
            by_lsi: BTreeMap::new(),
            recent: BTreeMap::new(),
            older: BTreeMap::new(),
        }
    }

    /// Sets the peers, in the order of their file.
    pub(super) fn set_peers(&mut self, peers: impl IntoIterator<Item = Hit>) {
        self.by_hit = self.prefix.assign(peers);
        self.by_lsi = self.by_hit.iter().map(|(&hit, &lsi)| (lsi, hit)).collect();
    }

    pub(super) fn own(&self) -> Ipv4Addr {
        self.prefix.own()
    }

    pub(super) fn of(&self, hit: Hit) -> Option<Ipv4Addr> {
        self.by_hit.get(&hit).copied()
    }

    /// A packet of a program, translated to HITs.
    ///
    /// # Errors
    /// It is IPv4 and for no peer, or cannot be translated. Contains the answer for the program, if any.
    pub(super) fn outgoing(&mut self, packet: Packet) -> Result<Packet, Option<Box<Packet>>> {
        let (version, packet) = match packet.dst {
            IpAddr::V6(_) => (IpVersion::V6, packet),
            IpAddr::V4(lsi) => (IpVersion::V4, self.to_hits(lsi, packet)?),
        };
        let peer = v6(packet.dst).map(Hit).filter(|peer| self.by_hit.contains_key(peer));
        let Some(peer) = peer.filter(|_| packet.src == IpAddr::V6(self.own.0)) else { return Ok(packet) };
        if let Some((flow, is_first)) = self.flow(peer, &packet.payload, true) {
            let version = self.version_of(flow).filter(|_| !is_first).unwrap_or(version);
            if self.recent.get(&flow) != Some(&version) {
                self.remember(flow, version);
            }
        }
        if let Payload::IcmpError(error) = &packet.payload
            && error.kind == Unreachable::Port
            && let Some((protocol, [peer_port, own_port])) = quoted_ports(error)
        {
            // No socket has this port in that version any more: the next packet looks it up again.
            let flow = Flow { peer, protocol, own_port, peer_port };
            self.recent.remove(&flow);
            self.older.remove(&flow);
        }
        Ok(packet)
    }

    fn to_hits(&self, lsi: Ipv4Addr, packet: Packet) -> Result<Packet, Option<Box<Packet>>> {
        let own = IpAddr::V4(self.own());
        if packet.src != own || !self.prefix.contains(lsi) {
            return Err(None);
        }
        let Some(&peer) = self.by_lsi.get(&lsi) else {
            // An ICMP error about an ICMP error is not sent (RFC 1122 section 3.2.2).
            let is_error = matches!(packet.payload, Payload::IcmpError(_));
            let error = IcmpError::quoting_packet(Unreachable::Host, &packet).ok().filter(|_| !is_error);
            return Err(error.map(|error| Box::new(Packet::new(own, own, error))));
        };
        let payload = match packet.payload {
            Payload::IcmpError(error) => self.error_outgoing(peer, &error).map(Payload::IcmpError),
            Payload::Tcp(mut segment) => {
                // Its kernel assumes the shorter header; an IPv6 packet too long for the TUN device does not fit into
                // ESP.
                segment.options.mss = segment.options.mss.map(|mss| mss.saturating_sub(HEADER_DIFFERENCE as u16));
                Some(segment.into())
            }
            payload => translated(payload),
        };
        let (src, dst, payload) = (self.own.0.into(), peer.0.into(), payload.ok_or(None)?);
        Ok(Packet { src, dst, payload, received: None, ..packet })
    }

    /// A packet between HITs for a program, in the program's IP version.
    pub(super) fn incoming(&mut self, packet: Packet) -> Packet {
        if let Payload::IcmpError(error) = &packet.payload {
            return self.error_incoming(error, &packet).unwrap_or(packet);
        }
        let peer = v6(packet.src).map(Hit);
        let Some((peer, lsi)) = peer.and_then(|peer| Some((peer, self.of(peer)?))) else { return packet };
        let Some((flow, is_first)) = self.flow(peer, &packet.payload, false) else { return packet };
        let known = if is_first { None } else { self.version_of(flow) };
        match known.or_else(|| self.ask(flow, lsi)) {
            Some(IpVersion::V4) => Packet { src: lsi.into(), dst: self.own().into(), received: None, ..packet },
            _ => packet,
        }
    }

    fn ask(&mut self, flow: Flow, lsi: Ipv4Addr) -> Option<IpVersion> {
        if !matches!(flow.protocol, TCP | UDP) {
            return None;
        }
        let own = End { hit: self.own.0, lsi: self.own(), port: flow.own_port };
        let peer = End { hit: flow.peer.0, lsi, port: flow.peer_port };
        let version = self.sockets.version_of(flow.protocol, own, peer)?;
        self.remember(flow, version);
        Some(version)
    }

    /// The packet quoted by an error of this host's kernel came from a peer.
    fn error_outgoing(&self, peer: Hit, error: &IcmpError) -> Option<IcmpError> {
        let quoted = error.quoted().ok().filter(|quoted| matches!(quoted.protocol, TCP | UDP))?;
        let payload = Payload::Other { protocol: quoted.protocol, payload: quoted.payload };
        let kind = match error.kind {
            Unreachable::PacketTooBig { mtu } => {
                Unreachable::PacketTooBig { mtu: mtu.saturating_add(HEADER_DIFFERENCE) }
            }
            kind => kind_in_other_version(kind)?,
        };
        IcmpError::quoting_packet(kind, &Packet::new(peer.0.into(), self.own.0.into(), payload)).ok()
    }

    /// An error about a packet of this host's programs that was in IPv4. It comes from this host itself, or from the peer that it is about.
    fn error_incoming(&self, error: &IcmpError, packet: &Packet) -> Option<Packet> {
        let (protocol, [own_port, peer_port]) = quoted_ports(error)?;
        let quoted = error.quoted().ok()?;
        let peer = Hit(v6(quoted.dst)?);
        let flow = Flow { peer, protocol, own_port, peer_port };
        let lsi = self.of(peer).filter(|_| self.version_of(flow) == Some(IpVersion::V4))?;
        let src = match v6(packet.src)? {
            src if src == self.own.0 => self.own(),
            src if src == peer.0 => lsi,
            _ => return None,
        };
        let kind = match error.kind {
            // Every IPv6 path has an MTU of at least 1280 bytes (RFC 8200 section 5).
            Unreachable::PacketTooBig { mtu } => {
                Unreachable::PacketTooBig { mtu: mtu.clamp(LEAST_MTU, u16::MAX.into()) - HEADER_DIFFERENCE }
            }
            kind => kind_in_other_version(kind)?,
        };
        let payload = Payload::Other { protocol, payload: quoted.payload };
        let error = IcmpError::quoting_packet(kind, &Packet::new(self.own().into(), lsi.into(), payload)).ok()?;
        Some(Packet {
            src: src.into(),
            dst: self.own().into(),
            payload: error.into(),
            received: None,
            ..packet.clone()
        })
    }

    /// The flow of a packet between HITs, and whether the packet is the first one of a connection.
    fn flow(&self, peer: Hit, payload: &Payload, is_outgoing: bool) -> Option<(Flow, bool)> {
        let flow = |protocol, src: u16, dst: u16| {
            let (own_port, peer_port) = if is_outgoing { (src, dst) } else { (dst, src) };
            Flow { peer, protocol, own_port, peer_port }
        };
        Some(match payload {
            Payload::Tcp(segment) => {
                let flags = segment.flags;
                let is_first = flags.contains(holdover_wire::Flags::SYN) && !flags.contains(holdover_wire::Flags::ACK);
                (flow(TCP, segment.src_port, segment.dst_port), is_first)
            }
            // Datagrams may go to a socket of either version: that of the last one sent.
            Payload::Udp(udp) => (flow(UDP, udp.src_port, udp.dst_port), is_outgoing),
            // The kernel answers requests in IPv6; a reply goes to the requester.
            Payload::IcmpEcho(echo) if echo.reply != is_outgoing => {
                (Flow { peer, protocol: ICMPV6, own_port: echo.id, peer_port: 0 }, is_outgoing)
            }
            Payload::Other { protocol, .. } => (flow(*protocol, 0, 0), is_outgoing),
            _ => return None,
        })
    }

    fn version_of(&self, flow: Flow) -> Option<IpVersion> {
        self.recent.get(&flow).or_else(|| self.older.get(&flow)).copied()
    }

    fn remember(&mut self, flow: Flow, version: IpVersion) {
        if self.recent.len() >= MOST_FLOWS && !self.recent.contains_key(&flow) {
            self.older = core::mem::take(&mut self.recent);
        }
        self.recent.insert(flow, version);
    }
}

fn v6(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

/// The protocol, TCP or UDP, and the ports, source and destination, of the packet that an error quotes.
fn quoted_ports(error: &IcmpError) -> Option<(u8, [u16; 2])> {
    let quoted = error.quoted().ok().filter(|quoted| matches!(quoted.protocol, TCP | UDP))?;
    Some((quoted.protocol, quoted.ports()?))
}

/// The equivalent of an error in the other IP version (RFC 7915 sections 4.2 and 5.2); `None` without one.
const fn kind_in_other_version(kind: Unreachable) -> Option<Unreachable> {
    match kind {
        Unreachable::Other { .. } => Some(Unreachable::Host),
        Unreachable::ParameterProblem { .. } => None,
        kind => Some(kind),
    }
}

/// A packet's payload in the other IP version; checksums are computed when it is emitted. Fragments carry parts of a transport checksum's
/// data, and other ICMP messages have no equivalent.
fn translated(payload: Payload) -> Option<Payload> {
    match payload {
        Payload::Fragment(_) | Payload::Other { protocol: ICMP | ICMPV6, .. } => None,
        payload => Some(payload),
    }
}
