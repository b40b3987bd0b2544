//! Incoming packets for an address that this host has lost.

use std::io;
use std::net::UdpSocket;

use holdover_mobility::Connection;

use crate::sockets::SocketDiag;

/// Whether a connection belongs to this host, but its address no longer does. Packets that its peer keeps sending prove
/// nothing about the link, as no connection of this host receives them.
///
/// A connection without a socket here is forwarded, and its addresses belong to other hosts.
pub(super) fn is_unheard(sockets: &mut SocketDiag, connection: Connection) -> bool {
    is_missing(connection) && sockets.find(connection).is_ok_and(|socket| socket.is_some())
}

fn is_missing(connection: Connection) -> bool {
    let bound = UdpSocket::bind((connection.local.ip(), 0));
    bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    // Claim: Packets for an address that this host has lost are no sign that the link is up.
    // Tests: `families::ipv4_goes_and_comes_back_while_ipv6_flows`
    #[test]
    fn only_own_connections_on_lost_addresses_are_unheard() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = Connection { local: near.local_addr().unwrap(), remote: near.peer_addr().unwrap() };
        let mut sockets = SocketDiag::open().unwrap();
        assert!(!is_unheard(&mut sockets, own));
        let forwarded = Connection { local: "192.0.2.99:1024".parse().unwrap(), ..own };
        assert!(is_missing(forwarded) && !is_unheard(&mut sockets, forwarded));
    }
}
