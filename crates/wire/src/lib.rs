//! Packets: sequence numbers, packets as values, bytes to values and back, and captures.
//!
//! The state machines of Holdover see only the values of this crate; bytes exist at the edges (a TUN device, a capture).
//! Payload is [`bytes::Bytes`], so that a packet can be cloned, queued and captured without copying its data.

#![forbid(unsafe_code)]

mod packet;
mod segment;
mod seq;

pub use packet::{Fragment, IcmpEcho, IcmpError, Packet, Payload, QuotedTcp, Udp, Unreachable};
pub use segment::{
    Experimental, ExperimentalId, Flags, OptionKind, SackBlocks, Segment, Timestamps, TcpOptions, UserTimeout,
};
pub use seq::{Seq, SeqRange};
