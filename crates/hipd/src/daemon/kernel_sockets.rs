//! Looks up the socket for a packet with `sock_diag(7)`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use holdover_host::inet_diag::{self, InetDiag, InetDiagRequest, LISTEN, family_of};

use crate::core::{End, IpVersion, KernelSockets};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A socket for queries in the network namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct SocketDiag {
    diag: InetDiag,
    /// The index of the incoming interface: sockets may be bound to it.
    interface: u32,
    /// Protocols whose sockets the kernel does not report, as without `tcp_diag` or `udp_diag`. Each further query
    /// would make the kernel look for the module again.
    silent: Vec<u8>,
}

/// The kind of socket found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// It is connected to the peer.
    Connected,
    /// It listens, or receives datagrams from every address.
    Unconnected,
}

impl SocketDiag {
    /// # Errors
    /// The kernel does not accept queries at all.
    pub(crate) fn open(interface: u32) -> io::Result<Self> {
        let mut diag = Self { diag: InetDiag::open()?, interface, silent: Vec::new() };
        diag.silent = [TCP, UDP].into_iter().filter(|&protocol| !diag.knows(protocol)).collect();
        Ok(diag)
    }

    /// Protocols whose sockets the kernel does not report.
    pub(crate) fn silent(&self) -> &[u8] {
        &self.silent
    }

    /// Whether the kernel reports a socket opened for this test.
    fn knows(&mut self, protocol: u8) -> bool {
        // While the loopback interface is down, no socket can be bound to 127.0.0.1.
        let any = (Ipv4Addr::UNSPECIFIED, 0);
        let (Ok(tcp), Ok(udp)) = (TcpListener::bind(any), UdpSocket::bind(any)) else { return false };
        let address = if protocol == UDP { udp.local_addr() } else { tcp.local_addr() };
        let own = address.map(|address| (Ipv4Addr::LOCALHOST, address.port()).into());
        own.is_ok_and(|own| self.find(protocol, own, (Ipv4Addr::LOCALHOST, 1).into()).is_some())
    }

    /// The socket for packets from `peer` to `own`.
    fn find(&mut self, protocol: u8, own: SocketAddr, peer: SocketAddr) -> Option<Found> {
        let ends = if protocol == UDP { (peer, own) } else { (own, peer) };
        let request =
            InetDiagRequest { ends, interface: self.interface, ..InetDiagRequest::new(family_of(own.ip()), protocol) };
        let answer = self.diag.query(&request).ok()??;
        let socket = inet_diag::Found::parse(&answer)?;
        let is_connected = socket.state != LISTEN && socket.ends.1.port() != 0;
        Some(if is_connected { Found::Connected } else { Found::Unconnected })
    }
}

impl KernelSockets for SocketDiag {
    /// A connection of either version precedes listeners.
    fn version_of(&mut self, protocol: u8, own: End, peer: End) -> Option<IpVersion> {
        if self.silent.contains(&protocol) {
            return None;
        }
        let v6 = |end: End| SocketAddr::new(end.hit.into(), end.port);
        let v4 = |end: End| SocketAddr::new(end.lsi.into(), end.port);
        let in_v6 = self.find(protocol, v6(own), v6(peer));
        if in_v6 == Some(Found::Connected) {
            return Some(IpVersion::V6);
        }
        let in_v4 = self.find(protocol, v4(own), v4(peer));
        match (in_v6, in_v4) {
            (_, Some(Found::Connected)) => Some(IpVersion::V4),
            (Some(_), _) => Some(IpVersion::V6),
            (None, Some(_)) => Some(IpVersion::V4),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpStream};

    use super::*;

    fn end(port: u16) -> End {
        End { hit: Ipv6Addr::LOCALHOST, lsi: Ipv4Addr::LOCALHOST, port }
    }

    #[test]
    fn listeners_of_both_versions_are_found() {
        let mut diag = SocketDiag::open(0).unwrap();
        let v4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = v4.local_addr().unwrap().port();
        assert_eq!(diag.version_of(6, end(port), end(1)), Some(IpVersion::V4));
        // An IPv6 listener beside it does not receive its connections.
        let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let own = connection.local_addr().unwrap().port();
        if let Ok(_v6) = TcpListener::bind((Ipv6Addr::LOCALHOST, port)) {
            assert_eq!(diag.version_of(6, end(port), end(own)), Some(IpVersion::V4));
            assert_eq!(diag.version_of(6, end(port), end(1)), Some(IpVersion::V6));
        }
        drop((connection, v4));
        assert_eq!(diag.version_of(6, end(1), end(port)), None);
        assert!(diag.silent().is_empty());
        let Ok(both) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) else {
            return eprintln!("not run for IPv6: this machine has none");
        };
        assert_eq!(diag.version_of(6, end(both.local_addr().unwrap().port()), end(1)), Some(IpVersion::V6));
    }

    #[test]
    fn udp_sockets_are_found() {
        let mut diag = SocketDiag::open(0).unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(diag.version_of(UDP, end(port), end(1)), Some(IpVersion::V4));
        // To the peer's port it does not listen.
        assert_eq!(diag.version_of(UDP, end(1), end(port)), None);
    }
}
