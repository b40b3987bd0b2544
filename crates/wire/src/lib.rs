//! Packets: sequence numbers, packet values, parsing, emitting, and captures.
//!
//! The state machines of Holdover handle only the values of this crate; bytes exist at the edges (a TUN device, a
//! capture). Payload is [`bytes::Bytes`], so that a packet can be cloned, queued and captured without copying its data.
//!
//! [`Packet::parse`] and [`Packet::emit`] convert between bytes and values, [`Packet::parse_to_forward`] also keeps the
//! bytes that a value does not hold, for nodes that forward the packet, and [`pcapng::Writer`] writes captures.
//! [`TcpInfo`] is the Linux kernel's report about one of its own connections.

#![forbid(unsafe_code)]

mod accurate_ecn;
mod addresses;
mod checksum;
mod compression;
mod emit;
mod encrypted;
mod error;
mod experimental;
mod fast_open;
mod fragments;
pub mod fuzz;
mod headers;
mod icmp;
mod mac_address;
mod option_kind;
mod options;
mod packet;
mod parse;
pub mod pcap;
pub mod pcapng;
mod quote;
mod received;
mod segment;
mod seq;
mod tcp_info;

pub use accurate_ecn::{AccurateEcn, AccurateEcnError, AccurateEcnOrder, EcnCounter};
pub use addresses::ip_addresses;
pub use checksum::{internet_checksum, transport_checksum};
pub use compression::Compression;
pub use encrypted::{Encrypted, EncryptionKey, Inner};
pub use error::{CaptureError, EmitError, Layer, ParseError};
pub use experimental::{Experimental, ExperimentalId};
pub use fast_open::FastOpen;
pub use headers::TcpHeaders;
pub use mac_address::MacAddress;
pub use option_kind::OptionKind;
pub use packet::{Fragment, IcmpEcho, IcmpError, Packet, Payload, Quoted, QuotedTcp, Udp, Unreachable};
pub use parse::Checksums;
pub use received::Received;
pub use segment::{Flags, Rare, RareOptions, SackBlocks, Segment, TcpOptions, Timestamps, UserTimeout};
pub use seq::{Seq, SeqRange};
pub use tcp_info::{CaState, TcpInfo, TcpState};
