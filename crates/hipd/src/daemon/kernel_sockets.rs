//! Which of this host's sockets takes a packet, as `sock_diag(7)` says.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

use crate::core::{End, IpVersion, KernelSockets};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const HEADER_LEN: usize = 16;
/// A header and `struct inet_diag_req_v2`.
const REQUEST_LEN: u32 = 72;
const UDP: u8 = 17;
/// All states.
const STATES: u32 = u32::MAX;
/// `INET_DIAG_NOCOOKIE`.
const ANY_COOKIE: [u8; 8] = [0xff; 8];

/// A socket for questions to the kernel of the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct SocketDiag {
    socket: std::os::fd::OwnedFd,
    sequence: u32,
}

impl SocketDiag {
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Whether there is a socket that takes what comes from `peer` for `own`: a connection's or a listener's.
    fn has(&mut self, protocol: u8, own: SocketAddr, peer: SocketAddr) -> bool {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(self.sequence, protocol, own, peer);
        if send(&self.socket, &request, SendFlags::empty()).is_err() {
            return false;
        }
        // The kernel has answered when `send` returns.
        let mut buffer = [0; 4096];
        while let Ok((len, _)) = recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
            if let Some(answer) = answer(&buffer[..len], self.sequence) {
                return answer;
            }
        }
        false
    }
}

impl KernelSockets for SocketDiag {
    fn version_of(&mut self, protocol: u8, own: End, peer: End) -> Option<IpVersion> {
        let v6 = |end: End| SocketAddr::new(end.hit.into(), end.port);
        let v4 = |end: End| SocketAddr::new(end.lsi.into(), end.port);
        if self.has(protocol, v6(own), v6(peer)) {
            Some(IpVersion::V6)
        } else if self.has(protocol, v4(own), v4(peer)) {
            Some(IpVersion::V4)
        } else {
            None
        }
    }
}

/// `struct inet_diag_req_v2` for one socket.
fn request(sequence: u32, protocol: u8, own: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    // For UDP, the kernel takes the source for the packet's, which is the peer.
    let (src, dst) = if protocol == UDP { (peer, own) } else { (own, peer) };
    let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut bytes = Vec::with_capacity(REQUEST_LEN as usize);
    bytes.extend(REQUEST_LEN.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([family.as_raw() as u8, protocol, 0, 0]);
    bytes.extend(STATES.to_ne_bytes());
    bytes.extend(src.port().to_be_bytes());
    bytes.extend(dst.port().to_be_bytes());
    bytes.extend(address_bytes(src.ip()));
    bytes.extend(address_bytes(dst.ip()));
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(ANY_COOKIE);
    bytes
}

fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
    }
}

/// Whether the answer to this question is a socket; `None` if it is the answer to another one.
fn answer(bytes: &[u8], sequence: u32) -> Option<bool> {
    let header = bytes.get(..HEADER_LEN)?;
    let kind = u16::from_ne_bytes([header[4], header[5]]);
    let answered = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    (answered == sequence).then_some(kind == SOCK_DIAG_BY_FAMILY)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};

    use super::*;

    fn end(port: u16) -> End {
        End { hit: Ipv6Addr::LOCALHOST, lsi: Ipv4Addr::LOCALHOST, port }
    }

    #[test]
    fn listeners_of_both_versions_are_found() {
        let mut diag = SocketDiag::open().unwrap();
        let v4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = v4.local_addr().unwrap().port();
        assert_eq!(diag.version_of(6, end(port), end(1)), Some(IpVersion::V4));
        drop(v4);
        assert_eq!(diag.version_of(6, end(port), end(1)), None);
        let Ok(both) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)) else {
            return eprintln!("not run for IPv6: this machine has none");
        };
        assert_eq!(diag.version_of(6, end(both.local_addr().unwrap().port()), end(1)), Some(IpVersion::V6));
    }

    #[test]
    fn udp_sockets_are_found() {
        let mut diag = SocketDiag::open().unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(diag.version_of(UDP, end(port), end(1)), Some(IpVersion::V4));
        // To the peer's port it does not listen.
        assert_eq!(diag.version_of(UDP, end(1), end(port)), None);
    }
}
