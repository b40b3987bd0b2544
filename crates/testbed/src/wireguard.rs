//! WireGuard interfaces in the network namespace of the calling thread, configured over generic netlink
//! (`linux/wireguard.h`) as `ip` and `wg` would.

use std::io;
use std::net::{IpAddr, SocketAddr};

use holdover_host::Requests;
use holdover_host::generic_netlink::{Generic, attribute, value};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};

/// `WG_CMD_GET_DEVICE`, `WG_CMD_SET_DEVICE`, and attributes of devices and peers.
const GET: u8 = 0;
const SET: u8 = 1;
const NAME: u16 = 2;
const PRIVATE_KEY: u16 = 3;
const PUBLIC_KEY: u16 = 4;
const LISTEN_PORT: u16 = 6;
const PEERS: u16 = 8;
const PEER_PUBLIC_KEY: u16 = 1;
const PEER_ENDPOINT: u16 = 4;
const PEER_KEEP_ALIVE: u16 = 5;
const PEER_ALLOWED: u16 = 9;
const ALLOWED_FAMILY: u16 = 1;
const ALLOWED_ADDRESS: u16 = 2;
const ALLOWED_BITS: u16 = 3;
const NESTED: u16 = 0x8000;

/// `AF_INET` and `AF_INET6`.
const IPV4: u16 = 2;
const IPV6: u16 = 10;

/// Creates an interface. The kernel loads its module if it has one.
///
/// # Errors
/// The kernel has no WireGuard, or refuses.
pub fn add(interface: &str) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(interface.to_owned()));
    message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Wireguard)]));
    let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    Requests::open()?.request(RouteNetlinkMessage::NewLink(message), flags).map(drop)
}

/// Sets an interface's private key and port; returns the public key.
///
/// # Errors
/// There is no such interface, or the kernel refuses.
pub fn set_up(interface: &str, key: [u8; 32], port: u16) -> io::Result<[u8; 32]> {
    let mut wireguard = open()?;
    let settings = [name(interface), attribute(PRIVATE_KEY, &key), attribute(LISTEN_PORT, &port.to_ne_bytes())];
    wireguard.ask(SET, NLM_F_ACK, &settings.concat())?;
    let device = wireguard.ask(GET, NLM_F_DUMP, &name(interface))?;
    let public = device.iter().find_map(|message| value(message, PUBLIC_KEY)?.try_into().ok());
    public.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Adds a peer with its allowed addresses; without an endpoint it has to speak first.
///
/// # Errors
/// There is no such interface, or the kernel refuses.
pub fn add_peer(
    interface: &str,
    key: [u8; 32],
    endpoint: Option<SocketAddr>,
    (network, bits): (IpAddr, u8),
) -> io::Result<()> {
    let address = match network {
        IpAddr::V4(address) => (IPV4, address.octets().to_vec()),
        IpAddr::V6(address) => (IPV6, address.octets().to_vec()),
    };
    let network = [
        attribute(ALLOWED_FAMILY, &address.0.to_ne_bytes()),
        attribute(ALLOWED_ADDRESS, &address.1),
        attribute(ALLOWED_BITS, &[bits]),
    ];
    let allowed = attribute(PEER_ALLOWED | NESTED, &attribute(NESTED, &network.concat()));
    let endpoint = endpoint.map(|endpoint| attribute(PEER_ENDPOINT, &socket_address(endpoint)));
    let peer = [attribute(PEER_PUBLIC_KEY, &key), endpoint.unwrap_or_default(), allowed].concat();
    let peers = attribute(PEERS | NESTED, &attribute(NESTED, &peer));
    open()?.ask(SET, NLM_F_ACK, &[name(interface), peers].concat()).map(drop)
}

/// Sets the interval of keep-alives to a peer, in seconds (`WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL`).
///
/// # Errors
/// There is no such interface, or the kernel refuses.
pub fn set_keep_alive(interface: &str, key: [u8; 32], interval_s: u16) -> io::Result<()> {
    let peer = [attribute(PEER_PUBLIC_KEY, &key), attribute(PEER_KEEP_ALIVE, &interval_s.to_ne_bytes())].concat();
    let peers = attribute(PEERS | NESTED, &attribute(NESTED, &peer));
    open()?.ask(SET, NLM_F_ACK, &[name(interface), peers].concat()).map(drop)
}

fn open() -> io::Result<Generic> {
    Generic::open(b"wireguard\0")
}

fn name(interface: &str) -> Vec<u8> {
    attribute(NAME, format!("{interface}\0").as_bytes())
}

/// `struct sockaddr_in` or `struct sockaddr_in6`.
fn socket_address(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => [&IPV4.to_ne_bytes()[..], &port, &ip.octets(), &[0; 8]].concat(),
        IpAddr::V6(ip) => [&IPV6.to_ne_bytes()[..], &port, &[0; 4], &ip.octets(), &[0; 4]].concat(),
    }
}
