//! Resets of split connections whose state is lost.

use holdover_tcp::reset_for;
use holdover_wire::{Flags, Packet};

/// The RST that answers a packet of a split connection whose state is lost. `None` if the packet has no ACK, so that its sender would not
/// accept an RST, or is an RST.
pub(crate) fn refusal_of(packet: &Packet) -> Option<Packet> {
    let segment = packet.tcp().filter(|segment| segment.flags.contains(Flags::ACK))?;
    Some(Packet::new(packet.dst, packet.src, reset_for(segment)?))
}
