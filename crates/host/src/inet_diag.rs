//! The sockets of a network namespace by `sock_diag(7)`: `linux/sock_diag.h` and `linux/inet_diag.h`. Callers parse the
//! parts of answers that they need.
//!
//! Without a connection of the requested addresses, the kernel answers with a listening socket, and `SOCK_DESTROY` ends that
//! one. [`InetDiag::find`] and [`InetDiag::end`] never take a listening socket for a connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use netlink_packet_core::NLM_F_DUMP;

use crate::netlink_socket::{NETLINK_SOCK_DIAG, NetlinkSocket, NetlinkSocketError, Request};

/// A request for sockets, and the type of its answers.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Ends a socket.
const SOCK_DESTROY: u16 = 21;
/// `AF_INET`.
pub const AF_INET: u8 = 2;
/// `AF_INET6`.
pub const AF_INET6: u8 = 10;
/// `INET_DIAG_NOCOOKIE`: any socket.
pub const ANY_COOKIE: [u8; 8] = [0xff; 8];

/// States of TCP (`net/tcp_states.h`).
pub const FIN_WAIT_2: u8 = 5;
/// See [`FIN_WAIT_2`].
pub const TIME_WAIT: u8 = 6;
/// See [`FIN_WAIT_2`].
pub const LISTEN: u8 = 10;

/// The content of a request: `struct inet_diag_req_v2`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InetDiagRequest {
    /// [`AF_INET`] or [`AF_INET6`].
    pub family: u8,
    /// The IP protocol number.
    pub protocol: u8,
    /// Extensions of the answer, as bits (`INET_DIAG_INFO - 1` and others).
    pub extensions: u8,
    /// Bit mask of states (`net/tcp_states.h`), for a dump.
    pub states: u32,
    /// Source and destination as the kernel looks them up: for TCP the socket's own address first, for UDP the peer's.
    pub ends: (SocketAddr, SocketAddr),
    /// The incoming interface; 0 for any, which does not find sockets bound to an interface.
    pub interface: u32,
    /// Distinguishes successive sockets with the same addresses.
    pub cookie: [u8; 8],
}

/// A socket in an answer (`struct inet_diag_msg`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its state ([`LISTEN`] and others).
    pub state: u8,
    /// Its own address, and its peer's. IPv4 addresses of an IPv6 socket are shown as IPv4.
    pub ends: (SocketAddr, SocketAddr),
    /// Identifies the socket.
    pub cookie: [u8; 8],
}

/// Queries and ends the sockets of one network namespace.
#[derive(Debug)]
pub struct InetDiag(NetlinkSocket);

impl InetDiag {
    /// Opens it in the calling thread's network namespace; it may be used from any thread.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn open() -> io::Result<Self> {
        NetlinkSocket::open(NETLINK_SOCK_DIAG).map(Self)
    }

    /// Calls `each` with the answer about every socket of a family and protocol, in these states.
    ///
    /// # Errors
    /// See [`NetlinkSocketError`].
    pub fn dump(&mut self, request: &InetDiagRequest, each: &mut dyn FnMut(&[u8])) -> Result<(), NetlinkSocketError> {
        // A kernel without sockets of that kind, or without the module that reports them, has none to report.
        none_if_gone(self.request(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, request, each)).map(drop)
    }

    /// The answer about the socket that receives packets between these addresses: a connection, or else a listening
    /// socket; `None` without one.
    ///
    /// # Errors
    /// See [`NetlinkSocketError`].
    pub fn query(&mut self, request: &InetDiagRequest) -> Result<Option<Vec<u8>>, NetlinkSocketError> {
        let mut found = None;
        let result = self.request(SOCK_DIAG_BY_FAMILY, 0, request, &mut |answer| found = Some(answer.to_vec()));
        none_if_gone(result).map(|_| found)
    }

    /// The TCP connection with exactly these addresses and ports, listening sockets aside; `None` without one.
    ///
    /// # Errors
    /// See [`NetlinkSocketError`].
    pub fn find(&mut self, request: &InetDiagRequest) -> Result<Option<Found>, NetlinkSocketError> {
        let Some(answer) = self.query(request)? else { return Ok(None) };
        let found = Found::parse(&answer).ok_or(NetlinkSocketError::Invalid)?;
        Ok(Some(found).filter(|found| found.state != LISTEN && found.ends == request.ends))
    }

    /// Ends the TCP connection with exactly these addresses and ports, and the cookie of the request, if `may` agrees: its
    /// program gets `ECONNABORTED`, and its peer a reset if reachable. Returns whether it existed.
    ///
    /// # Errors
    /// See [`NetlinkSocketError`]: also if the kernel cannot end sockets (`CONFIG_INET_DIAG_DESTROY`), or not for this process.
    pub fn end(&mut self, request: &InetDiagRequest, may: impl Fn(&Found) -> bool) -> Result<bool, NetlinkSocketError> {
        let Some(found) = self.find(request)?.filter(may) else { return Ok(false) };
        let request = InetDiagRequest { cookie: found.cookie, ..request.clone() };
        // It may have ended meanwhile.
        none_if_gone(self.request(SOCK_DESTROY, 0, &request, &mut |_| {})).map(|ended| ended.is_some())
    }

    /// Whether the kernel ends sockets for this process. Tries it with a cookie that no socket has.
    ///
    /// # Errors
    /// See [`NetlinkSocketError`].
    pub fn probe_end(&mut self) -> Result<(), NetlinkSocketError> {
        let request = InetDiagRequest { cookie: [0; 8], ..InetDiagRequest::new(AF_INET, libc::IPPROTO_TCP as u8) };
        none_if_gone(self.request(SOCK_DESTROY, 0, &request, &mut |_| {})).map(drop)
    }

    fn request(
        &mut self,
        kind: u16,
        flags: u16,
        request: &InetDiagRequest,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<(), NetlinkSocketError> {
        self.0.request(&Request { kind, flags, payload: request.to_bytes() }, &mut |header, answer| {
            if header.message_type == SOCK_DIAG_BY_FAMILY {
                each(answer);
            }
        })
    }
}

/// The kernel has no such socket (any more).
fn none_if_gone(result: Result<(), NetlinkSocketError>) -> Result<Option<()>, NetlinkSocketError> {
    match result {
        Err(error) if matches!(error.refusal(), Some(libc::ENOENT | libc::ESTALE)) => Ok(None),
        result => result.map(Some),
    }
}

impl InetDiagRequest {
    /// A request for the sockets of a family, with all addresses, states and interfaces.
    pub const fn new(family: u8, protocol: u8) -> Self {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Self { family, protocol, extensions: 0, states: u32::MAX, ends: (any, any), interface: 0, cookie: ANY_COOKIE }
    }

    /// A request for the socket of a TCP connection, by its own address and its peer's.
    pub const fn of_tcp(own: SocketAddr, peer: SocketAddr) -> Self {
        Self { ends: (own, peer), ..Self::new(family_of(own.ip()), libc::IPPROTO_TCP as u8) }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(56);
        bytes.extend([self.family, self.protocol, self.extensions, 0]);
        bytes.extend(self.states.to_ne_bytes());
        bytes.extend(self.ends.0.port().to_be_bytes());
        bytes.extend(self.ends.1.port().to_be_bytes());
        bytes.extend(address_bytes(self.ends.0.ip()));
        bytes.extend(address_bytes(self.ends.1.ip()));
        bytes.extend(self.interface.to_ne_bytes());
        bytes.extend(self.cookie);
        bytes
    }
}

impl Found {
    /// Parses an answer; `None` if it is too short, or of another family.
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let family = *answer.first()?;
        let end = |address_at: usize, port_at: usize| -> Option<SocketAddr> {
            let port = u16::from_be_bytes(*answer.get(port_at..)?.first_chunk()?);
            Some(SocketAddr::new(address_of(family, answer.get(address_at..)?.first_chunk()?)?, port))
        };
        let ends = (end(8, 4)?, end(24, 6)?);
        Some(Self { state: *answer.get(1)?, ends, cookie: *answer.get(44..)?.first_chunk()? })
    }
}

/// The family of an address.
pub const fn family_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}

/// An address in an answer; an IPv4-mapped one as IPv4. `None` for another family.
fn address_of(family: u8, bytes: &[u8; 16]) -> Option<IpAddr> {
    match family {
        AF_INET => bytes.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)),
        AF_INET6 => Some(IpAddr::from(*bytes).to_canonical()),
        _ => None,
    }
}

fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_request_has_the_kernels_layout() {
        let request = InetDiagRequest {
            extensions: 0b1010,
            cookie: [1, 2, 3, 4, 5, 6, 7, 8],
            ..InetDiagRequest::of_tcp("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:80".parse().unwrap())
        };
        let bytes = request.to_bytes();
        assert_eq!((bytes.len(), &bytes[..4]), (56, &[AF_INET, 6, 0b1010, 0][..]));
        assert_eq!((&bytes[8..16], &bytes[28..32]), (&[3, 232, 0, 80, 10, 0, 0, 1][..], &[10, 0, 0, 2][..]));
        assert_eq!(bytes[48..], [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_listening_socket_is_not_taken_for_a_connection() {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let [local, remote] = [port, 9].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let mut diag = InetDiag::open().unwrap();
        let nobodys = InetDiagRequest::of_tcp(local, remote);
        let answer = diag.query(&nobodys).unwrap().unwrap();
        assert_eq!(Found::parse(&answer).unwrap().state, LISTEN, "the kernel answers with it");
        assert_eq!(diag.find(&nobodys).unwrap(), None);
        assert!(!diag.end(&nobodys, |_| true).unwrap());
        let near = TcpStream::connect(local).unwrap();
        let request = InetDiagRequest::of_tcp(near.local_addr().unwrap(), local);
        let found = diag.find(&request).unwrap().unwrap();
        assert_eq!(found.ends, request.ends);
        assert!(!diag.end(&request, |found| found.state == TIME_WAIT).unwrap(), "it is open");
        let other = InetDiagRequest { cookie: found.cookie.map(|byte| !byte), ..request };
        assert_eq!(diag.find(&other).unwrap(), None, "another one's cookie");
    }

    #[test]
    fn short_answers_are_refused() {
        let mut message = [0; 72];
        message[0] = AF_INET;
        for len in 0..=message.len() {
            assert_eq!(Found::parse(&message[..len]).is_some(), len >= 52, "{len}");
        }
        message[0] = 1;
        assert_eq!(Found::parse(&message), None);
    }
}
