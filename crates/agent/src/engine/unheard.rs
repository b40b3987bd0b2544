//! Incoming packets that this host cannot answer: for an address that it has lost, or from a peer without a route.

use std::io;
use std::net::SocketAddr;

use holdover_mobility::Connection;
use socket2::{Domain, Socket, Type};

use crate::sockets::SocketDiag;

/// Whether a connection belongs to this host, which cannot answer on it: its address no longer does, or no route leads
/// to the peer. Packets that the peer keeps sending do not show that the link is up: no connection of this host receives
/// them, or no ACK leaves, and what a woken sender sends stays unanswered.
///
/// A connection without a socket here is forwarded, and its addresses belong to other hosts.
pub(super) fn is_unheard(sockets: &mut SocketDiag, connection: Connection) -> bool {
    if is_answerable(connection, None) {
        return false;
    }
    let Ok(Some(socket)) = sockets.find(connection) else { return false };
    // A rule may lead what is bound to the interface to a route that nothing else has. Without any route Linux takes all IPv4 destinations of such a
    // socket for neighbours.
    socket.bound_to.is_none_or(|interface| !is_answerable(connection, Some(interface)))
}

/// By the kernel's addresses, rules and routes, which a connected UDP socket looks up without a packet, also one that is bound to an interface.
/// The route may lead over another one. Rules by mark, user and VRF are those of the agent's own socket.
fn is_answerable(connection: Connection, bound_to: Option<u32>) -> bool {
    let look_up = || {
        let Connection { local, remote } = connection;
        let socket = Socket::new(Domain::for_address(local), Type::DGRAM, None)?;
        if let Some(interface) = bound_to {
            let name = rustix::net::netdevice::index_to_name(&socket, interface)?;
            socket.bind_device(Some(name.as_bytes()))?;
        }
        socket.bind(&SocketAddr::new(local.ip(), 0).into())?;
        socket.connect(&remote.into())
    };
    !look_up().is_err_and(|error: io::Error| {
        use io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable};
        matches!(error.kind(), AddrNotAvailable | HostUnreachable | NetworkUnreachable)
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    // Claim: Packets for an address that this host has lost, or from a peer to which it has no route, are no sign that the link is up.
    // Tests: `families::ipv4_goes_and_comes_back_while_ipv6_flows`, `returns::a_lost_route_is_down_until_it_returns`
    #[test]
    fn only_own_connections_on_lost_addresses_are_unheard() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = Connection { local: near.local_addr().unwrap(), remote: near.peer_addr().unwrap() };
        let mut sockets = SocketDiag::open().unwrap();
        assert!(!is_unheard(&mut sockets, own));
        let forwarded = Connection { local: "192.0.2.99:1024".parse().unwrap(), ..own };
        let loopback = rustix::net::netdevice::name_to_index(&near, "lo").unwrap();
        assert!(is_answerable(own, Some(loopback)) && !is_answerable(forwarded, Some(loopback)));
        assert!(!is_answerable(forwarded, None) && !is_unheard(&mut sockets, forwarded));
    }
}
