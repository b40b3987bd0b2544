//! Control messages between mechanisms of different nodes.

use core::net::IpAddr;

use bytes::Bytes;

/// The UDP port of control messages: one of the two that are set aside for experiments (RFC 4727 section 6).
pub const CONTROL_PORT: u16 = 1021;

/// A message between mechanisms of two nodes. It travels as a UDP datagram to [`CONTROL_PORT`], so it may be lost,
/// duplicated, delayed or reordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlMessage {
    /// The other node: the receiver of an outgoing message, the sender of an incoming one.
    pub peer: IpAddr,
    /// The content, in the format of the mechanism that receives it.
    pub payload: Bytes,
}
