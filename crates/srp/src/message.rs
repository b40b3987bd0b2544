//! The messages of SRP.
//!
//! ```text
//!    0       1       2       4       6       8           12          16
//!    version type    flags   src     dst     number      limit       mask (8 bytes) or data
//! ```
//!
//! All numbers are big-endian. `src` and `dst` are the TCP ports of the connection, at the sender of the message and at its receiver; its
//! addresses are those of the datagram. `number` counts packets of one direction, from 0.

use bytes::{BufMut, Bytes, BytesMut};
use holdover_filter::Connection;
use holdover_wire::{Packet, Payload, Seq, Udp};

use crate::PORT;

const VERSION: u8 = 1;
const HEADER_LEN: usize = 16;
const MASK_LEN: usize = 8;

const TYPE_DATA: u8 = 0;
const TYPE_ACK: u8 = 1;
const TYPE_PROBE: u8 = 2;
const TYPE_RESET: u8 = 3;

/// The flag of a data packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// Data only.
    None,
    /// The first packet of a direction: it requests a connection, or accepts it.
    Open,
    /// The last packet of a direction.
    End,
}

/// A message of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// A numbered packet.
    Data {
        /// Its number.
        number: Seq,
        /// Its flag.
        flag: Flag,
        /// Data of the connection.
        data: Bytes,
    },
    /// Acknowledges packets.
    Ack {
        /// All packets below this number have arrived.
        expected: Seq,
        /// There is room for packets below this number.
        limit: Seq,
        /// Bit n (from the least significant): packet `expected + 1 + n` has arrived.
        mask: u64,
    },
    /// Requests an [`Message::Ack`].
    Probe,
    /// The session does not exist, or not any more.
    Reset,
}

/// Bytes that are not a valid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// The message is truncated.
    #[error("truncated SRP message: {have} bytes, at least {needed} needed")]
    Short {
        /// Bytes present.
        have: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// An unknown version.
    #[error("SRP version {0}, expected 1")]
    Version(u8),
    /// An unknown type.
    #[error("SRP message type {0}, expected 0 to 3")]
    Type(u8),
    /// Flags that exclude each other, or are unknown.
    #[error("SRP flags {0:#06x}, expected 0, 1 or 2")]
    Flags(u16),
}

impl Message {
    /// The datagram with this message from the near end of `connection` to the far one.
    pub fn packet(&self, connection: Connection) -> Packet {
        let Connection { local, remote } = connection;
        let (kind, flags, number, limit) = match self {
            Self::Data { number, flag, .. } => {
                let flags = match flag {
                    Flag::None => 0,
                    Flag::Open => 1,
                    Flag::End => 2,
                };
                (TYPE_DATA, flags, *number, Seq::new(0))
            }
            Self::Ack { expected, limit, .. } => (TYPE_ACK, 0, *expected, *limit),
            Self::Probe => (TYPE_PROBE, 0, Seq::new(0), Seq::new(0)),
            Self::Reset => (TYPE_RESET, 0, Seq::new(0), Seq::new(0)),
        };
        let mut payload = BytesMut::with_capacity(HEADER_LEN + MASK_LEN);
        payload.put_u8(VERSION);
        payload.put_u8(kind);
        payload.put_u16(flags);
        payload.put_u16(local.port());
        payload.put_u16(remote.port());
        payload.put_u32(number.value());
        payload.put_u32(limit.value());
        match self {
            Self::Data { data, .. } => payload.put_slice(data),
            Self::Ack { mask, .. } => payload.put_u64(*mask),
            Self::Probe | Self::Reset => {}
        }
        Packet::new(local.ip(), remote.ip(), Udp { src_port: PORT, dst_port: PORT, payload: payload.freeze() })
    }

    /// Parses a message, and the TCP ports of its sender and its receiver.
    ///
    /// # Errors
    ///
    /// The bytes are not a valid message.
    pub fn parse(bytes: &Bytes) -> Result<(Self, u16, u16), MessageError> {
        let short = |needed| MessageError::Short { have: bytes.len(), needed };
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else { return Err(short(HEADER_LEN)) };
        let &[version, kind, f0, f1, s0, s1, d0, d1, n0, n1, n2, n3, l0, l1, l2, l3] = header;
        if version != VERSION {
            return Err(MessageError::Version(version));
        }
        let number = Seq::new(u32::from_be_bytes([n0, n1, n2, n3]));
        let message = match kind {
            TYPE_DATA => {
                let flag = match u16::from_be_bytes([f0, f1]) {
                    0 => Flag::None,
                    1 => Flag::Open,
                    2 => Flag::End,
                    other => return Err(MessageError::Flags(other)),
                };
                Self::Data { number, flag, data: bytes.slice(HEADER_LEN..) }
            }
            TYPE_ACK => {
                let Some(mask) = rest.first_chunk::<MASK_LEN>() else { return Err(short(HEADER_LEN + MASK_LEN)) };
                let limit = Seq::new(u32::from_be_bytes([l0, l1, l2, l3]));
                Self::Ack { expected: number, limit, mask: u64::from_be_bytes(*mask) }
            }
            TYPE_PROBE => Self::Probe,
            TYPE_RESET => Self::Reset,
            other => return Err(MessageError::Type(other)),
        };
        Ok((message, u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1])))
    }

    /// The SRP datagram of a packet, if it is one.
    pub fn datagram(packet: &Packet) -> Option<&Udp> {
        match &packet.payload {
            Payload::Udp(udp) if udp.dst_port == PORT && udp.src_port == PORT => Some(udp),
            _ => None,
        }
    }
}
