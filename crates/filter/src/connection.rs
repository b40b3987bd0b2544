//! Connections, and the segments of packets.

use core::fmt;
use core::net::SocketAddr;

use holdover_wire::{Packet, Payload, Segment};

use crate::Direction;

/// A connection, named by addresses and ports as seen from the node of the filter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Connection {
    /// The end on the near side of the link: this host's own; in the network, the fixed host's.
    pub local: SocketAddr,
    /// The end beyond the link: the peer's; in the network, the mobile host's.
    pub remote: SocketAddr,
}

impl Connection {
    /// The connection of a packet; `None` if the packet carries no TCP segment in the clear, or one that mechanisms must not
    /// modify: with a signature ([`TcpOptions::is_signed`]), or of Multipath TCP ([`TcpOptions::is_multipath`]).
    ///
    /// [`TcpOptions::is_signed`]: holdover_wire::TcpOptions::is_signed
    /// [`TcpOptions::is_multipath`]: holdover_wire::TcpOptions::is_multipath
    pub fn of(direction: Direction, packet: &Packet) -> Option<Self> {
        let segment = packet.tcp()?;
        if segment.options.is_signed || segment.options.is_multipath {
            return None;
        }
        let src = SocketAddr::new(packet.src, segment.src_port);
        let dst = SocketAddr::new(packet.dst, segment.dst_port);
        Some(match direction {
            Direction::Outgoing => Self { local: src, remote: dst },
            Direction::Incoming => Self { local: dst, remote: src },
        })
    }

    /// The connection between a fixed and a mobile host, as a node in the network names it.
    pub const fn between(fixed: SocketAddr, mobile: SocketAddr) -> Self {
        Self { local: fixed, remote: mobile }
    }

    /// The fixed host's end, as seen from a node in the network: the near side of the link.
    pub const fn fixed(&self) -> SocketAddr {
        self.local
    }

    /// The mobile host's end, as seen from a node in the network: beyond the link.
    pub const fn mobile(&self) -> SocketAddr {
        self.remote
    }

    /// The connection from the view of the sender of packets in `direction`: its own end first.
    pub const fn of_sender_going(self, direction: Direction) -> Self {
        match direction {
            Direction::Outgoing => self,
            Direction::Incoming => Self { local: self.remote, remote: self.local },
        }
    }
}

/// Prints `10.0.0.1:1024 > 10.0.0.2:80`, local before remote.
impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.local, self.remote)
    }
}

/// The TCP segment of a packet, mutable.
pub fn tcp_mut(packet: &mut Packet) -> Option<&mut Segment> {
    match &mut packet.payload {
        Payload::Tcp(segment) => Some(segment),
        _ => None,
    }
}
