//! A packet on its way, with its length at hand.

use holdover_tcp::Reason;
use holdover_wire::Packet;

/// A packet on its way. Its length is computed once, not at every hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The packet.
    pub packet: Packet,
    /// Why it was sent, if it is TCP.
    pub reason: Option<Reason>,
    len: u32,
}

impl Frame {
    /// A packet about to be sent.
    pub fn new(packet: Packet, reason: Option<Reason>) -> Self {
        let len = u32::try_from(packet.wire_len()).unwrap_or(u32::MAX);
        Self { packet, reason, len }
    }
}

impl holdover_link::Frame for Frame {
    fn wire_len(&self) -> u32 {
        self.len
    }
}
