//! Messages between the mechanisms of nodes.

use core::net::IpAddr;

use bytes::Bytes;

/// The UDP port of control messages: one of the two that are set aside for experiments (RFC 4727 section 6).
pub const CONTROL_PORT: u16 = 1021;

/// A message between a mechanism of this node and one of another. It travels as a UDP datagram at [`CONTROL_PORT`], so it may get lost,
/// arrive twice, late or out of order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlMessage {
    /// The other node: the receiver of a message that goes out, the sender of one that has come.
    pub peer: IpAddr,
    /// What it says, in the format of the mechanism that it is for.
    pub payload: Bytes,
}
