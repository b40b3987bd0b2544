//! Notifies a sender that a packet exceeds the interface's MTU (RFC 1191, RFC 8201): one that was buffered while the
//! MTU changed.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use holdover_wire::{IcmpError, Packet, Unreachable};
use socket2::{Domain, Protocol, Socket, Type};

/// Sends ICMP errors as the router itself would, by its routes and with its own address.
#[derive(Debug)]
pub(crate) struct TooBig {
    /// `None` without the privilege: then senders have to detect it themselves.
    sockets: [Option<Socket>; 2],
}

/// Bytes of an IP header without options.
const HEADERS: [usize; 2] = [20, 40];

impl TooBig {
    /// In the calling thread's network namespace.
    pub(crate) fn open() -> Self {
        let open = |domain, protocol| {
            let socket = Socket::new(domain, Type::RAW, Some(protocol)).and_then(|socket| {
                socket.set_nonblocking(true)?;
                Ok(socket)
            });
            socket
                .inspect_err(|error| tracing::warn!(%error, "cannot send ICMP errors about packets that are too long"))
                .ok()
        };
        Self { sockets: [open(Domain::IPV4, Protocol::ICMPV4), open(Domain::IPV6, Protocol::ICMPV6)] }
    }

    /// Sends the sender of a packet the MTU; ignores failures.
    pub(crate) fn tell(&self, mtu: u32, packet: &[u8]) {
        let Some((family, source, destination)) = ends(packet) else { return };
        let Some(socket) = &self.sockets[family] else { return };
        // As much as a router quotes; the kernel fills in the header and, with IPv6, the checksum.
        let quoted = Bytes::copy_from_slice(packet);
        let message = IcmpError::quoting(Unreachable::PacketTooBig { mtu }, &quoted)
            .ok()
            .and_then(|icmp| Packet::new(destination, source, icmp).emit().ok());
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
