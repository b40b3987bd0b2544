//! Control messages between the mechanisms of nodes, as packets.

use holdover_filter::{CONTROL_PORT, ControlMessage};
use holdover_wire::{Packet, Payload, Udp};

use crate::ids::NodeId;

/// The message as a packet from `node`, of the family of its receiver's address.
pub(crate) fn packet(node: NodeId, message: ControlMessage) -> Packet {
    let ControlMessage { peer, payload } = message;
    let udp = Udp { src_port: CONTROL_PORT, dst_port: CONTROL_PORT, payload };
    Packet::new(node.address(peer.is_ipv6()), peer, udp)
}

/// The message in a packet, if there is one.
pub(crate) fn of(packet: &Packet) -> Option<ControlMessage> {
    let Payload::Udp(udp) = &packet.payload else { return None };
    let is_control = udp.dst_port == CONTROL_PORT;
    is_control.then(|| ControlMessage { peer: packet.src, payload: udp.payload.clone() })
}
