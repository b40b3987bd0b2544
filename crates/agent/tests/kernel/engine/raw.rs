//! Packets without a socket.

use std::net::SocketAddr;

use holdover_wire::{Flags, Packet, Segment, Seq};

/// A segment with an ACK and `len` bytes of data.
pub(crate) fn segment(from: SocketAddr, to: SocketAddr, seq: u32, ack: u32, len: usize) -> Packet {
    let segment = Segment {
        src_port: from.port(),
        dst_port: to.port(),
        seq: Seq::new(seq),
        ack: Seq::new(ack),
        flags: Flags::ACK,
        window: 5_000,
        payload: vec![0; len].into(),
        ..Segment::default()
    };
    Packet::new(from.ip(), to.ip(), segment)
}
