//! ICMP errors as this router itself sends them: about packets that exceed the interface's MTU (RFC 1191, RFC 8201) because
//! it changed while they were buffered, and about connections that cannot be split because the far end is unreachable.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use holdover_wire::{IcmpError, Packet, Unreachable};
use socket2::{Domain, Protocol, Socket, Type};

/// Sends ICMP errors as the router itself would, by its routes and with its own address.
#[derive(Debug)]
pub(crate) struct IcmpErrors {
    /// `None` without the privilege: then senders have to detect it themselves.
    sockets: [Option<Socket>; 2],
}

/// Bytes of an IP header without options.
const HEADERS: [usize; 2] = [20, 40];

impl IcmpErrors {
    /// In the calling thread's network namespace.
    pub(crate) fn open() -> Self {
        let open = |domain, protocol| {
            let socket = Socket::new(domain, Type::RAW, Some(protocol)).and_then(|socket| {
                socket.set_nonblocking(true)?;
                Ok(socket)
            });
            socket.inspect_err(|error| tracing::warn!(%error, "cannot send ICMP errors")).ok()
        };
        Self { sockets: [open(Domain::IPV4, Protocol::ICMPV4), open(Domain::IPV6, Protocol::ICMPV6)] }
    }

    /// Sends the sender of a packet the MTU; ignores failures.
    pub(crate) fn tell_mtu(&self, mtu: u32, packet: &[u8]) {
        // As much as a router quotes.
        self.tell(Unreachable::PacketTooBig { mtu }, &Bytes::copy_from_slice(packet));
    }

    /// Sends the sender of a packet why it cannot be forwarded; ignores failures.
    pub(crate) fn tell(&self, kind: Unreachable, packet: &Bytes) {
        let Some((family, source, destination)) = ends(packet) else { return };
        let Some(socket) = &self.sockets[family] else { return };
        // The kernel fills in the header and, with IPv6, the checksum.
        let message =
            IcmpError::quoting(kind, packet).ok().and_then(|icmp| Packet::new(destination, source, icmp).emit().ok());
        let Some(message) = message.as_deref().and_then(|bytes| bytes.get(HEADERS[family]..)) else { return };
        if let Err(error) = socket.send_to(message, &SocketAddr::new(source, 0).into()) {
            tracing::debug!(%error, %source, "cannot send an ICMP error");
        }
    }
}

/// The family as an index, the source and the destination of a packet.
fn ends(packet: &[u8]) -> Option<(usize, IpAddr, IpAddr)> {
    let v4 = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    let v6 = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?));
    match packet.first()? >> 4 {
        4 => Some((0, v4(12)?, v4(16)?)),
        6 => Some((1, v6(8)?, v6(24)?)),
        _ => None,
    }
}
