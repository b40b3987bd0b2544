//! Hosts with several links, whose addresses come and go: each in a network namespace, joined by a router of this process.
//!
//! A link has a TUN device in its host's namespace and a [`PointToPoint`] in each direction. The router knows the networks of each link. A
//! link may have an address translator for a private network: it keeps ports, and admits only packets that match an outgoing one (RFC 4787,
//! endpoint-independent mapping, address- and port-dependent filtering).

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant as WallInstant;

use bytes::Bytes;
use holdover_base::Instant;
use holdover_host::clock;
use holdover_link::{ConfigError, Link as _, LinkConfig, PointToPoint};
use holdover_wire::{Checksums, Packet, Payload, ip_addresses};

use crate::{Forwarder, Namespace, NamespaceError, Netlink, NetlinkError, Route, Tun, TunConfig, TunError};

/// The MTU of the devices.
const MTU: u32 = 1500;

/// A link between a host and the router.
#[derive(Clone, Debug)]
pub struct AccessLink {
    /// The index of its host.
    pub host: usize,
    /// The name of its device.
    pub name: &'static str,
    /// The networks behind it, with the lengths of their prefixes.
    pub networks: Vec<(IpAddr, u8)>,
    /// A private network of hosts, and the address by which a translator replaces theirs.
    pub translator: Option<(Ipv4Addr, u8, Ipv4Addr)>,
    /// Both directions.
    pub config: LinkConfig,
}

/// An address on a link, with a default route there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Attachment {
    /// The name of the link's device.
    pub link: &'static str,
    /// The address.
    pub address: IpAddr,
}

/// A packet that reaches a host.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When.
    pub at: WallInstant,
    /// The index of its link.
    pub link: usize,
    /// The packet, as the host gets it.
    pub packet: Bytes,
}

/// Sees all packets that reach hosts; called on the router's thread.
pub type Observer = Box<dyn FnMut(Arrival) + Send>;

/// A network could not be made, or an address not be changed.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A namespace could not be made or entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A device could not be made.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// An address or a route was refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The router's thread could not be started.
    #[error("the router's thread")]
    Thread(#[from] io::Error),
    /// The configuration of a link is invalid.
    #[error("link {name}")]
    Link {
        /// Its name.
        name: &'static str,
        /// The cause.
        source: ConfigError,
    },
}

/// See the module's documentation. It ends when this is dropped, and its devices with it.
pub struct AccessNetwork {
    // It ends before the namespaces of its devices.
    _router: Forwarder,
    hosts: Vec<Namespace>,
}

impl AccessNetwork {
    /// Hosts of these names, without addresses, and their links. `seed` determines the losses of all links.
    ///
    /// # Errors
    /// See [`AccessError`].
    pub fn new(names: &[&str], links: &[AccessLink], seed: u64, observer: Observer) -> Result<Self, AccessError> {
        let hosts = names.iter().map(|name| Namespace::new(name)).collect::<Result<Vec<_>, _>>()?;
        let (mut tuns, mut ports) = (Vec::new(), Vec::new());
        for (index, link) in links.iter().enumerate() {
            let host = &hosts[link.host];
            let tun = host.enter(|| Tun::open(host, &TunConfig::new(link.name, MTU)))??;
            let failed = |source| AccessError::Link { name: link.name, source };
            let direction = |number| PointToPoint::new(&link.config, seed ^ ((2 * index as u64 + number) << 32));
            tuns.push(tun);
            ports.push(Port {
                up: direction(0).map_err(failed)?,
                down: direction(1).map_err(failed)?,
                networks: link.networks.clone(),
                translator: link.translator.map(Translator::new),
            });
        }
        for host in &hosts {
            host.enter(|| Netlink::open(host)?.set_up("lo"))??;
        }
        let mut router = Router { ports, start: WallInstant::now(), observer };
        let mut scratch = vec![0; 2 * MTU as usize];
        let router = Forwarder::start("router", tuns, move |tuns| Ok(router.turn(tuns, &mut scratch)))?;
        Ok(Self { _router: router, hosts })
    }

    /// A host's namespace.
    pub fn host(&self, index: usize) -> &Namespace {
        &self.hosts[index]
    }

    /// The host gets an address, and its default route of that IP version leads there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn attach(&self, host: usize, attachment: &Attachment) -> Result<(), AccessError> {
        let namespace = &self.hosts[host];
        Ok(namespace.enter(|| {
            let mut netlink = Netlink::open(namespace)?;
            netlink.add_address(attachment.link, attachment.address, attachment.prefix_len())?;
            netlink.replace_route(&attachment.default_route())
        })??)
    }

    /// The address goes, and the default route if it leads there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detach(&self, host: usize, attachment: &Attachment) -> Result<(), AccessError> {
        let namespace = &self.hosts[host];
        Ok(namespace.enter(|| {
            let mut netlink = Netlink::open(namespace)?;
            // It is missing if another address was attached since.
            let _ = netlink.remove_route(&attachment.default_route());
            netlink.remove_address(attachment.link, attachment.address, attachment.prefix_len())
        })??)
    }
}

impl Attachment {
    const fn prefix_len(&self) -> u8 {
        if self.address.is_ipv4() { 24 } else { 64 }
    }

    fn default_route(&self) -> Route {
        let any: IpAddr =
            if self.address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
        Route { destination: (any, 0), next_hop: None, link: self.link.to_owned(), source: None }
    }
}

/// The router's side of a link.
struct Port {
    up: PointToPoint<Bytes>,
    down: PointToPoint<Bytes>,
    networks: Vec<(IpAddr, u8)>,
    translator: Option<Translator>,
}

struct Router {
    ports: Vec<Port>,
    start: WallInstant,
    observer: Observer,
}

impl Router {
    /// Returns when the next packet arrives somewhere.
    fn turn(&mut self, tuns: &[Tun], scratch: &mut [u8]) -> Option<Instant> {
        let now = self.now();
        for (port, tun) in self.ports.iter_mut().zip(tuns) {
            while let Ok(Some(packet)) = tun.recv(scratch) {
                port.up.handle_packet(now, packet);
            }
        }
        let now = self.now();
        for index in 0..self.ports.len() {
            while let Some(packet) = next(&mut self.ports[index].up, now) {
                self.forward(index, packet, now);
            }
        }
        for (link, (port, tun)) in self.ports.iter_mut().zip(tuns).enumerate() {
            while let Some(packet) = next(&mut port.down, now) {
                (self.observer)(Arrival { at: WallInstant::now(), link, packet: packet.clone() });
                // A packet that the kernel refuses is lost on the link.
                let _ = tun.send(&packet);
            }
        }
        let due = self.ports.iter().flat_map(|port| [port.up.poll_timeout(), port.down.poll_timeout()]).flatten();
        due.map(|(at, _)| clock::now() + at.saturating_since(self.now())).min()
    }

    /// A packet has come over link `from`.
    fn forward(&mut self, from: usize, packet: Bytes, now: Instant) {
        let packet = match &mut self.ports[from].translator {
            Some(translator) => translator.outward(packet),
            None => Some(packet),
        };
        let Some(packet) = packet else { return };
        let Some((_, destination)) = ip_addresses(&packet) else { return };
        for port in &mut self.ports {
            if let Some(translator) = port.translator.as_ref().filter(|it| destination == IpAddr::V4(it.outside)) {
                if let Some(packet) = translator.inward(packet) {
                    port.down.handle_packet(now, packet);
                }
                return;
            }
            if port.networks.iter().any(|network| is_in(destination, *network)) {
                port.down.handle_packet(now, packet);
                return;
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed().into()
    }
}

/// The next packet that has crossed a link.
fn next(link: &mut PointToPoint<Bytes>, now: Instant) -> Option<Bytes> {
    if link.poll_timeout().is_some_and(|(at, _)| at <= now) {
        link.handle_timeout(now);
    }
    while link.poll_event().is_some() {}
    link.poll_deliver(now).map(|delivery| delivery.frame)
}

fn is_in(address: IpAddr, (network, bits): (IpAddr, u8)) -> bool {
    let agree = |a: u128, b: u128, width: u32| {
        let rest = width - u32::from(bits).min(width);
        a.checked_shr(rest).unwrap_or(0) == b.checked_shr(rest).unwrap_or(0)
    };
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => agree(u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => agree(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

/// An address translator for TCP and UDP over IPv4.
#[derive(Debug)]
struct Translator {
    private: (Ipv4Addr, u8),
    outside: Ipv4Addr,
    /// The address inside that sent last. There is one host.
    inside: Option<Ipv4Addr>,
    /// Protocol, own port, other address and port of packets that have left.
    asked: BTreeSet<(u8, u16, Ipv4Addr, u16)>,
}

/// `IPPROTO_TCP` and `IPPROTO_UDP`.
const TCP: u8 = 6;
const UDP: u8 = 17;

impl Translator {
    fn new((network, bits, outside): (Ipv4Addr, u8, Ipv4Addr)) -> Self {
        Self { private: (network, bits), outside, inside: None, asked: BTreeSet::new() }
    }

    /// A packet from inside, as it leaves; `None` if it is not translated and must not leave.
    fn outward(&mut self, packet: Bytes) -> Option<Bytes> {
        let Some((IpAddr::V4(source), IpAddr::V4(destination))) = ip_addresses(&packet) else { return Some(packet) };
        let (network, bits) = self.private;
        if !is_in(source.into(), (network.into(), bits)) {
            return Some(packet);
        }
        let packet = Packet::parse_to_forward(packet, Checksums::Verify).ok()?;
        let (protocol, [own, other]) = ports(&packet)?;
        self.inside = Some(source);
        self.asked.insert((protocol, own, destination, other));
        packet.readdress(self.outside.into(), destination.into()).emit().ok()
    }

    /// A packet for the outside address, as it enters; `None` if nothing inside has asked for it.
    fn inward(&self, packet: Bytes) -> Option<Bytes> {
        let packet = Packet::parse_to_forward(packet, Checksums::Verify).ok()?;
        let IpAddr::V4(source) = packet.src else { return None };
        let (protocol, [other, own]) = ports(&packet)?;
        let is_asked = self.asked.contains(&(protocol, own, source, other));
        let inside = self.inside.filter(|_| is_asked)?;
        packet.readdress(source.into(), inside.into()).emit().ok()
    }
}

/// The protocol and the two ports of a packet of TCP or UDP that is not a fragment.
fn ports(packet: &Packet) -> Option<(u8, [u16; 2])> {
    match &packet.payload {
        Payload::Tcp(segment) => Some((TCP, [segment.src_port, segment.dst_port])),
        Payload::Udp(datagram) => Some((UDP, [datagram.src_port, datagram.dst_port])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use holdover_wire::Udp;

    use super::*;

    fn datagram(from: &str, to: &str, ports: [u16; 2]) -> Bytes {
        let udp = Udp { src_port: ports[0], dst_port: ports[1], payload: Bytes::from_static(b"payload") };
        Packet::new(from.parse().unwrap(), to.parse().unwrap(), Payload::Udp(udp)).emit().unwrap()
    }

    #[test]
    fn a_translator_lets_in_what_was_asked_for() {
        let mut translator = Translator::new((Ipv4Addr::new(192, 168, 1, 0), 24, Ipv4Addr::new(10, 1, 0, 1)));
        assert_eq!(translator.inward(datagram("10.9.0.2", "10.1.0.1", [7, 9])), None, "nothing was asked for");
        let out = translator.outward(datagram("192.168.1.2", "10.9.0.2", [9, 7])).unwrap();
        // Parsing verifies both checksums.
        let out = Packet::parse(out).unwrap();
        assert_eq!((out.src.to_string().as_str(), out.dst.to_string().as_str()), ("10.1.0.1", "10.9.0.2"));
        let answer = Packet::parse(translator.inward(datagram("10.9.0.2", "10.1.0.1", [7, 9])).unwrap()).unwrap();
        assert_eq!(answer.dst.to_string(), "192.168.1.2");
        assert_eq!(translator.inward(datagram("10.9.0.2", "10.1.0.1", [8, 9])), None, "another port");
        assert_eq!(translator.inward(datagram("10.9.0.3", "10.1.0.1", [7, 9])), None, "another host");
        let public = datagram("10.1.0.2", "10.9.0.2", [9, 7]);
        assert_eq!(translator.outward(public.clone()), Some(public), "not of the private network");
    }

    #[test]
    fn prefixes_select_addresses() {
        let is = |address: &str, network: &str, bits| is_in(address.parse().unwrap(), (network.parse().unwrap(), bits));
        assert!(is("10.1.0.9", "10.1.0.0", 16) && !is("10.2.0.9", "10.1.0.0", 16));
        assert!(is("fd00:2::2", "fd00:2::", 64) && !is("fd00:1::2", "fd00:2::", 64));
        assert!(!is("fd00:2::2", "10.1.0.0", 0) && is("10.2.0.9", "0.0.0.0", 0));
    }
}
