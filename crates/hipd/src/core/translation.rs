//! Translation between the addresses that programs use and HITs: of this host's programs with IPv4, which know peers by their LSIs, and of
//! hosts without HIP, which have addresses of their own. Ports stay as they are, and so do fields and options that this module does
//! not know (`Packet::readdress`).

use std::collections::BTreeMap;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use holdover_hip::identity::Hit;
use holdover_wire::{IcmpError, Packet, Payload, Unreachable};

use super::lsi::LsiPrefix;

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

/// The IP version that a program uses in a flow.
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

/// The addresses by which programs know themselves; at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProgramAddresses {
    /// In IPv4.
    pub v4: Option<Ipv4Addr>,
    /// In IPv6.
    pub v6: Option<Ipv6Addr>,
}

impl ProgramAddresses {
    /// The address of that version.
    pub fn of(self, version: IpVersion) -> Option<IpAddr> {
        match version {
            IpVersion::V4 => self.v4.map(IpAddr::V4),
            IpVersion::V6 => self.v6.map(IpAddr::V6),
        }
    }
}

/// Sockets of another host, which cannot be looked up: all flows that the host has not used yet have one version.
#[derive(Debug)]
struct Remote(IpVersion);

impl KernelSockets for Remote {
    fn version_of(&mut self, _: u8, _: End, _: End) -> Option<IpVersion> {
        Some(self.0)
    }
}

/// Translates between the addresses that programs use and HITs.
#[derive(Debug)]
pub(super) struct Translation {
    /// Without one, IPv4 is not translated.
    prefix: Option<LsiPrefix>,
    own: Hit,
    addresses: ProgramAddresses,
    /// The version in which packets of no known flow are delivered.
    default: IpVersion,
    sockets: Box<dyn KernelSockets>,
    by_hit: BTreeMap<Hit, Ipv4Addr>,
    by_lsi: BTreeMap<Ipv4Addr, Hit>,
    /// Flows with packets of programs, and those that were looked up; unused ones are evicted.
    recent: BTreeMap<Flow, IpVersion>,
    older: BTreeMap<Flow, IpVersion>,
}

impl Translation {
    /// For the programs of this host: its address in IPv6 is its HIT.
    pub(super) fn of_this_host(prefix: LsiPrefix, own: Hit, sockets: Box<dyn KernelSockets>) -> Self {
        let addresses = ProgramAddresses { v4: Some(prefix.own()), v6: Some(own.0) };
        Self::new(Some(prefix), own, addresses, IpVersion::V6, sockets)
    }

    /// For another host, which has these addresses, and gets packets of no known flow in this version.
    pub(super) fn of_other_host(
        prefix: Option<LsiPrefix>,
        own: Hit,
        addresses: ProgramAddresses,
        default: IpVersion,
    ) -> Self {
        Self::new(prefix, own, addresses, default, Box::new(Remote(default)))
    }

    fn new(
        prefix: Option<LsiPrefix>,
        own: Hit,
        addresses: ProgramAddresses,
        default: IpVersion,
        sockets: Box<dyn KernelSockets>,
    ) -> Self {
        Self {
            prefix,
            own,
            addresses,
            default,
            sockets,
            by_hit: BTreeMap::new(),
            by_lsi: BTreeMap::new(),
            recent: BTreeMap::new(),
            older: BTreeMap::new(),
        }
    }

    /// Sets the peers, in the order of their file.
    pub(super) fn set_peers(&mut self, peers: impl IntoIterator<Item = Hit>) {
        self.by_hit = self.prefix.map(|prefix| prefix.assign(peers)).unwrap_or_default();
        self.by_lsi = self.by_hit.iter().map(|(&hit, &lsi)| (lsi, hit)).collect();
    }

    /// The IPv4 address of the programs.
    pub(super) const fn v4(&self) -> Option<Ipv4Addr> {
        self.addresses.v4
    }

    /// The peer with an LSI.
    pub(super) fn peer_at(&self, lsi: Ipv4Addr) -> Option<Hit> {
        self.by_lsi.get(&lsi).copied()
    }

    /// The LSI of a peer.
    pub(super) fn of(&self, hit: Hit) -> Option<Ipv4Addr> {
        self.by_hit.get(&hit).copied()
    }

    /// Whether the programs use HITs as they are in IPv6.
    fn uses_hits(&self) -> bool {
        self.addresses.v6 == Some(self.own.0)
    }

    /// A packet of a program, translated to HITs.
    ///
    /// # Errors
    /// It is not from the programs' address, for no peer, or cannot be translated. Contains the answer for the program, if any.
    pub(super) fn outgoing(&mut self, packet: Packet) -> Result<Packet, Option<Box<Packet>>> {
        let (version, packet) = match packet.dst {
            IpAddr::V6(_) if self.uses_hits() => (IpVersion::V6, packet),
            IpAddr::V6(peer) => (IpVersion::V6, self.v6_to_hits(Hit(peer), packet).ok_or(None)?),
            IpAddr::V4(lsi) => (IpVersion::V4, self.v4_to_hits(lsi, packet)?),
        };
        let is_peer = |peer: &Hit| self.by_hit.contains_key(peer) || !self.uses_hits();
        let peer = v6(packet.dst).map(Hit).filter(is_peer);
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

    fn v4_to_hits(&self, lsi: Ipv4Addr, mut packet: Packet) -> Result<Packet, Option<Box<Packet>>> {
        let own = self.addresses.v4.map(IpAddr::V4).filter(|own| packet.src == *own).ok_or(None)?;
        if !self.prefix.is_some_and(|prefix| prefix.contains(lsi)) {
            return Err(None);
        }
        let Some(&peer) = self.by_lsi.get(&lsi) else {
            // An ICMP error about an ICMP error is not sent (RFC 1122 section 3.2.2).
            let is_error = matches!(packet.payload, Payload::IcmpError(_));
            let error = IcmpError::quoting_packet(Unreachable::Host, &packet).ok().filter(|_| !is_error);
            // A kernel drops packets that come from one of its own addresses by another interface.
            return Err(error.map(|error| Box::new(Packet::new(lsi.into(), own, error))));
        };
        match &mut packet.payload {
            Payload::IcmpError(error) => {
                let error = self.error_outgoing(peer, error, IpVersion::V4).ok_or(None)?;
                packet.payload = error.into();
            }
            // Its kernel assumes the shorter header; an IPv6 packet too long for the TUN device does not fit into ESP.
            Payload::Tcp(segment) => {
                segment.options.mss = segment.options.mss.map(|mss| mss.saturating_sub(HEADER_DIFFERENCE as u16));
            }
            payload if !is_translatable(payload) => return Err(None),
            _ => {}
        }
        Ok(packet.readdress(self.own.0.into(), peer.0.into()))
    }

    /// A packet from the programs' IPv6 address, which is not the HIT.
    fn v6_to_hits(&self, peer: Hit, mut packet: Packet) -> Option<Packet> {
        self.addresses.v6.filter(|own| packet.src == IpAddr::V6(*own))?;
        match &packet.payload {
            Payload::IcmpError(error) => packet.payload = self.error_outgoing(peer, error, IpVersion::V6)?.into(),
            payload if !is_translatable(payload) => return None,
            _ => {}
        }
        let dst = packet.dst;
        Some(packet.readdress(self.own.0.into(), dst))
    }

    /// A packet between HITs for a program, in the program's IP version; `None` if it cannot be delivered.
    pub(super) fn incoming(&mut self, packet: Packet) -> Option<Packet> {
        if let Payload::IcmpError(error) = &packet.payload {
            let translated = self.error_incoming(error, &packet);
            return translated.or_else(|| self.uses_hits().then_some(packet));
        }
        let peer = Hit(v6(packet.src)?);
        let lsi = self.of(peer);
        let version = match self.flow(peer, &packet.payload, false) {
            Some((flow, is_first)) => {
                let known = if is_first { None } else { self.version_of(flow) };
                known.or_else(|| self.ask(flow, lsi)).unwrap_or(self.default)
            }
            None => self.default,
        };
        let v4 = self.addresses.v4.zip(lsi).map(|(own, lsi)| (lsi.into(), own.into()));
        let v6 = self.addresses.v6.map(|own| (packet.src, own.into()));
        let (src, dst) = if version == IpVersion::V4 { v4.or(v6)? } else { v6.or(v4)? };
        if dst == IpAddr::V6(self.own.0) {
            return Some(packet);
        }
        is_translatable(&packet.payload).then(|| packet.readdress(src, dst))
    }

    fn ask(&mut self, flow: Flow, lsi: Option<Ipv4Addr>) -> Option<IpVersion> {
        if !matches!(flow.protocol, TCP | UDP) {
            return None;
        }
        let own = End { hit: self.own.0, lsi: self.addresses.v4?, port: flow.own_port };
        let peer = End { hit: flow.peer.0, lsi: lsi?, port: flow.peer_port };
        let version = self.sockets.version_of(flow.protocol, own, peer)?;
        self.remember(flow, version);
        Some(version)
    }

    /// An error of the programs' kernel, in this version, which quotes a packet that came from a peer.
    fn error_outgoing(&self, peer: Hit, error: &IcmpError, version: IpVersion) -> Option<IcmpError> {
        let quoted = error.quoted().ok().filter(|quoted| matches!(quoted.protocol, TCP | UDP))?;
        let payload = Payload::Other { protocol: quoted.protocol, payload: quoted.payload };
        let kind = match (version, error.kind) {
            (IpVersion::V6, kind) => kind,
            (IpVersion::V4, Unreachable::PacketTooBig { mtu }) => {
                Unreachable::PacketTooBig { mtu: mtu.saturating_add(HEADER_DIFFERENCE) }
            }
            (IpVersion::V4, kind) => kind_in_other_version(kind)?,
        };
        IcmpError::quoting_packet(kind, &Packet::new(peer.0.into(), self.own.0.into(), payload)).ok()
    }

    /// An error about a packet of the programs, unless their packets are between HITs. It comes from the peer that it is
    /// about, or from this host in that peer's name.
    fn error_incoming(&self, error: &IcmpError, packet: &Packet) -> Option<Packet> {
        let (protocol, [own_port, peer_port]) = quoted_ports(error)?;
        let quoted = error.quoted().ok()?;
        let peer = Hit(v6(quoted.dst)?);
        let flow = Flow { peer, protocol, own_port, peer_port };
        let version = self.version_of(flow).unwrap_or(self.default);
        let (own, remote, kind) = match version {
            IpVersion::V6 if self.uses_hits() => return None,
            IpVersion::V6 => (self.addresses.of(version)?, IpAddr::V6(peer.0), error.kind),
            IpVersion::V4 => {
                let kind = match error.kind {
                    // Every IPv6 path has an MTU of at least 1280 bytes (RFC 8200 section 5).
                    Unreachable::PacketTooBig { mtu } => {
                        Unreachable::PacketTooBig { mtu: mtu.clamp(LEAST_MTU, u16::MAX.into()) - HEADER_DIFFERENCE }
                    }
                    kind => kind_in_other_version(kind)?,
                };
                (self.addresses.of(version)?, self.of(peer)?.into(), kind)
            }
        };
        if v6(packet.src)? != peer.0 {
            return None;
        }
        let payload = Payload::Other { protocol, payload: quoted.payload };
        let error = IcmpError::quoting_packet(kind, &Packet::new(own, remote, payload)).ok()?;
        Some(Packet { src: remote, dst: own, payload: error.into(), received: None, ..packet.clone() })
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

/// Whether a payload may follow other addresses; checksums are updated when it is emitted. Fragments carry parts of a transport checksum's
/// data, and other ICMP messages have no equivalent.
const fn is_translatable(payload: &Payload) -> bool {
    !matches!(payload, Payload::Fragment(_) | Payload::Other { protocol: ICMP | ICMPV6, .. })
}
