//! Sources of path MTUs: ICMP errors of routers that could not forward a packet (RFC 1191, RFC 8201), and the kernel's MTU of a route on
//! which it has refused one (`EMSGSIZE`).

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use bytes::Bytes;
use holdover_host::icmp_socket::{Icmp, IcmpSocket};
use holdover_wire::{IcmpError, Packet, Payload, Quoted, Unreachable};
use socket2::SockRef;

use super::links::Pin;

/// Errors read in one turn.
const BATCH: usize = 64;
/// "Destination unreachable" of ICMP, "packet too big" of ICMPv6.
const UNREACHABLE: u8 = 3;
const TOO_BIG: u8 = 2;

/// Raw sockets that receive these errors; `None` if the kernel refuses one.
#[derive(Debug)]
pub(super) struct IcmpSockets([Option<IcmpSocket>; 2]);

impl IcmpSockets {
    /// Without the privilege there are none: path MTUs are those of this host's interfaces then.
    pub(super) fn open() -> Self {
        Self(Icmp::BOTH.map(|icmp| {
            let opened = IcmpSocket::open(icmp, Some([UNREACHABLE, TOO_BIG][icmp.index()]));
            opened.inspect_err(|error| tracing::warn!(%error, "no ICMP: narrow paths are not detected")).ok()
        }))
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().flatten().map(|socket| socket.as_fd())
    }

    /// The quoted packets, and the MTU of the link that was too narrow for them.
    pub(super) fn receive(&self) -> Vec<(Quoted, u32)> {
        let mut errors = Vec::new();
        for (socket, read) in self.0.iter().zip([read_v4 as fn(Bytes) -> Option<IcmpError>, read_v6]) {
            for _ in 0..BATCH {
                let Some(Ok((bytes, _))) = socket.as_ref().map(IcmpSocket::receive) else { break };
                errors.extend(read(bytes).and_then(|error| match error.kind {
                    Unreachable::PacketTooBig { mtu } => Some((error.quoted().ok()?, mtu)),
                    _ => None,
                }));
            }
        }
        errors
    }
}

/// With its IP header.
fn read_v4(bytes: Bytes) -> Option<IcmpError> {
    match Packet::parse(bytes).ok()?.payload {
        Payload::IcmpError(error) => Some(error),
        _ => None,
    }
}

/// Without; the kernel has verified the checksum. Type, code, checksum, MTU, quote (RFC 4443 section 3.2).
fn read_v6(bytes: Bytes) -> Option<IcmpError> {
    let &[TOO_BIG, 0, _, _, a, b, c, d] = bytes.first_chunk()? else { return None };
    let kind = Unreachable::PacketTooBig { mtu: u32::from_be_bytes([a, b, c, d]) };
    Some(IcmpError { kind, quote: bytes.slice(8..) })
}

/// The longest packet that the kernel sends to an address, from this source and by this interface, if it is pinned to one: the MTU of the path
/// as it knows it, at most that of the interface.
///
/// # Errors
/// There is no route, or the source is no address of this host.
pub(super) fn path_mtu(address: IpAddr, source: IpAddr, pin: Option<&Pin>) -> io::Result<u32> {
    let socket = UdpSocket::bind((source, 0))?;
    if let Some(pin) = pin {
        SockRef::from(&socket).bind_device(Some(pin.name.as_bytes()))?;
    }
    // It sends nothing: the port does not matter.
    socket.connect(SocketAddr::new(address, 9))?;
    let (level, option) =
        if address.is_ipv4() { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    let (mut mtu, mut len): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes, which is the integer's length.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut mtu).cast(), &raw mut len) };
    if result == 0 { u32::try_from(mtu).map_err(io::Error::other) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_the_mtu_of_a_path() {
        let localhost = IpAddr::from(std::net::Ipv4Addr::LOCALHOST);
        assert!(path_mtu(localhost, localhost, None).unwrap() >= 1280);
    }

    #[test]
    fn errors_are_read_as_the_kernel_hands_them_out() {
        let (own, peer): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "198.51.100.2".parse().unwrap());
        let esp = Packet::new(own, peer, Payload::Esp(vec![1; 100].into()));
        let error = IcmpError::quoting_packet(Unreachable::PacketTooBig { mtu: 1400 }, &esp).unwrap();
        let bytes = Packet::new("203.0.113.1".parse().unwrap(), own, error).emit().unwrap();
        let read = read_v4(bytes).unwrap();
        assert_eq!(read.kind, Unreachable::PacketTooBig { mtu: 1400 });
        assert_eq!(read.quoted().unwrap().dst, peer);
        let (own, peer): (IpAddr, IpAddr) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let esp = Packet::new(own, peer, Payload::Esp(vec![1; 100].into()));
        let error = IcmpError::quoting_packet(Unreachable::PacketTooBig { mtu: 1300 }, &esp).unwrap();
        let bytes = Packet::new("2001:db8::9".parse().unwrap(), own, error).emit().unwrap();
        let read = read_v6(bytes.slice(40..)).unwrap();
        assert_eq!(read.kind, Unreachable::PacketTooBig { mtu: 1300 });
        assert_eq!(read.quoted().unwrap().dst, peer);
        for len in 0..8 {
            assert_eq!(read_v6(bytes.slice(40..40 + len)), None);
        }
    }
}
