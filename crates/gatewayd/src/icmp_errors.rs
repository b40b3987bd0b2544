//! ICMP errors as this router itself sends them: about packets that exceed the interface's MTU (RFC 1191, RFC 8201) because
//! it changed while they were buffered, and about connections that cannot be split because the far end is unreachable.

use std::net::IpAddr;

use bytes::Bytes;
use holdover_host::icmp_socket::{Icmp, IcmpSocket};
use holdover_wire::{IcmpError, Packet, Payload, Unreachable, ip_addresses};

/// Sends ICMP errors as the router itself would, by its routes and with its own address.
#[derive(Debug)]
pub(crate) struct IcmpErrors {
    /// `None` without the privilege: then senders have to detect it themselves.
    sockets: [Option<IcmpSocket>; 2],
}

/// Bytes of an IP header without options.
const HEADERS: [usize; 2] = [20, 40];

impl IcmpErrors {
    /// In the calling thread's network namespace.
    pub(crate) fn open() -> Self {
        let open = |icmp| {
            let opened = IcmpSocket::open(icmp, None);
            opened.inspect_err(|error| tracing::warn!(%error, "cannot send ICMP errors")).ok()
        };
        Self { sockets: Icmp::BOTH.map(open) }
    }

    /// Sends the sender of a packet the MTU; ignores failures.
    pub(crate) fn send_mtu(&self, mtu: u32, packet: &[u8]) {
        // As much as a router quotes.
        self.send(Unreachable::PacketTooBig { mtu }, &Bytes::copy_from_slice(packet));
    }

    /// Sends the sender of a packet why it cannot be forwarded; ignores failures.
    pub(crate) fn send(&self, kind: Unreachable, packet: &Bytes) {
        let Some((source, destination)) = ip_addresses(packet) else { return };
        let Some(socket) = &self.sockets[Icmp::of(source).index()] else { return };
        let error = IcmpError::quoting(kind, packet).ok();
        let Some(message) = error.and_then(|error| icmp_message(destination, source, error)) else { return };
        if let Err(error) = socket.send(&message, source) {
            tracing::debug!(%error, %source, "cannot send an ICMP error");
        }
    }
}

/// An ICMP message for a raw socket: the kernel fills in the IP header and, with IPv6, the checksum.
pub(crate) fn icmp_message(source: IpAddr, destination: IpAddr, message: impl Into<Payload>) -> Option<Bytes> {
    let packet = Packet::new(source, destination, message).emit().ok()?;
    let header = HEADERS[usize::from(destination.is_ipv6())];
    (packet.len() >= header).then(|| packet.slice(header..))
}
