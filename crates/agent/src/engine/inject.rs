//! Sends packets of the agent: out of an interface, or in through it, to the host itself.
//!
//! They use packet sockets (`packet(7)`) and so bypass the host's filters and address translation: they belong to
//! connections whose packets the agent sees between these and the link. The eBPF programs recognize them by a mark,
//! pass the outgoing ones unchanged, and redirect the others to ingress.

use std::io;

use bytes::BytesMut;
use holdover_host::carrier;
use holdover_host::packet_socket::PacketSocket;
use holdover_mobility::{Direction, Injected};

use super::{EngineError, Interface, MARK_BACK, MARK_OUT};

/// Sends on one interface.
#[derive(Debug)]
pub(super) struct Injector {
    out: PacketSocket,
    back: PacketSocket,
    index: i32,
    buffer: BytesMut,
}

impl Injector {
    /// Opens the sockets in the calling thread's network namespace.
    pub(super) fn open(interface: &Interface) -> Result<Self, EngineError> {
        let open = |mark| {
            PacketSocket::open(mark).map_err(|source| EngineError::Socket { interface: interface.name.clone(), source })
        };
        Ok(Self {
            out: open(MARK_OUT)?,
            back: open(MARK_BACK)?,
            index: interface.index as i32,
            buffer: BytesMut::new(),
        })
    }

    /// Sends a packet with `frame`, the Ethernet header of an earlier one in the same direction, if the interface has
    /// such.
    pub(super) fn send(&mut self, injected: &Injected, frame: &[u8]) -> Result<(), io::Error> {
        let packet = &injected.packet;
        self.buffer.clear();
        self.buffer.extend_from_slice(frame);
        packet.emit_into(&mut self.buffer).map_err(io::Error::other)?;
        let socket = if injected.direction == Direction::Outgoing { &self.out } else { &self.back };
        socket.send(self.index, packet.dst.is_ipv4(), &self.buffer)
    }

    /// Whether the interface has a carrier now, as its driver reports (`ETHTOOL_GLINK`); `None` if unknown.
    pub(super) fn has_carrier(&self, interface: &str) -> Option<bool> {
        carrier::has_carrier(&self.out, interface).ok()
    }
}
