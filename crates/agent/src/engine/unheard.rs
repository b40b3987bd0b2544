//! Incoming packets that do not show that the link is up: this host cannot answer them, or its answers leave over another interface and do
//! not arrive.

use std::io;
use std::net::{IpAddr, SocketAddrV6, UdpSocket};

use holdover_base::Instant;
use holdover_flow::Flow;
use holdover_host::neighbours::{Neighbours, RoutedSocket};
use holdover_mobility::Connection;

use crate::sockets::{SocketDiag, TcpSocket};

/// Whether an arriving packet of a connection does not show that the interface's link is up for it. Its address is gone, or no route leads to the
/// peer: no connection of this host receives such packets, or no ACK leaves, and what a woken sender sends stays unanswered. Or the answers
/// leave over another interface since the link went down, and the peer shows by its timestamps that it receives none: another provider drops
/// packets with the addresses of this one (BCP 38).
///
/// A connection without a socket here is forwarded, and its addresses belong to other hosts.
pub(super) fn is_unheard(
    sockets: &mut SocketDiag,
    interface: u32,
    connection: Connection,
    down_at: Option<Instant>,
    flow: impl FnOnce() -> Option<Flow>,
) -> bool {
    let Ok(Some(socket)) = sockets.find_over(connection, interface) else { return false };
    match leaves_over(&socket, interface) {
        Ok(None) => true,
        Ok(Some(other)) if other != interface => {
            down_at.zip(flow()).is_some_and(|(down_at, flow)| !flow.may_be_answered_after(down_at))
        }
        Ok(Some(_)) => false,
        Err(_) => false,
    }
}

/// The interface over which the packets of a socket leave, by the kernel's addresses, rules and routes; `None` without its address or a route.
fn leaves_over(socket: &TcpSocket, arrives_over: u32) -> io::Result<Option<u32>> {
    let Connection { local, remote } = socket.connection;
    if is_gone(local.ip(), arrives_over) {
        return Ok(None);
    }
    let TcpSocket { bound_to, mark, uid, .. } = *socket;
    Neighbours::open()?.interface_of(&RoutedSocket { local, remote, bound_to, mark, uid })
}

/// Whether this host has lost an IPv6 address. The look-up of a route checks IPv4 addresses.
fn is_gone(address: IpAddr, interface: u32) -> bool {
    let IpAddr::V6(address) = address else { return false };
    UdpSocket::bind(SocketAddrV6::new(address, 0, 0, interface))
        .is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// The index of `lo`.
    const LOOPBACK: u32 = 1;

    // Claim: Packets for an address that this host has lost, or from a peer to which it has no route, are no sign that the link is up.
    // Tests: `families::ipv4_goes_and_comes_back_while_ipv6_flows`, `returns::a_lost_route_is_down_until_it_returns`
    #[test]
    fn only_own_connections_on_lost_addresses_are_unheard() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = Connection { local: near.local_addr().unwrap(), remote: near.peer_addr().unwrap() };
        let mut sockets = SocketDiag::open().unwrap();
        let mut is_unheard = |connection| is_unheard(&mut sockets, LOOPBACK, connection, None, || None);
        assert!(!is_unheard(own));
        let forwarded = Connection { local: "192.0.2.99:1024".parse().unwrap(), ..own };
        assert!(!is_unheard(forwarded));
        let socket = SocketDiag::open().unwrap().find(own).unwrap().unwrap();
        assert_eq!(leaves_over(&socket, LOOPBACK).unwrap(), Some(LOOPBACK));
        for lost in ["192.0.2.99:1024", "[2001:db8::99]:1024"] {
            let connection = Connection { local: lost.parse().unwrap(), ..own };
            assert_eq!(leaves_over(&TcpSocket { connection, ..socket.clone() }, LOOPBACK).unwrap(), None, "{lost}");
        }
    }
}
