//! Errors of parsing and emitting HIP packets.

/// Why an IP packet is no valid HIP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The IP packet carries another protocol.
    #[error("not a HIP packet")]
    NotHip,
    /// The packet ends within its header, before the length in its header, or within a parameter.
    #[error("truncated: {have} bytes, {needed} needed")]
    Truncated {
        /// Bytes needed.
        needed: usize,
        /// Bytes present.
        have: usize,
    },
    /// The header's length field is smaller than the header.
    #[error("length field of {len} bytes is smaller than the header")]
    HeaderLength {
        /// The length in bytes.
        len: usize,
    },
    /// Another version than 2.
    #[error("HIP version {version}, expected 2")]
    Version {
        /// The version.
        version: u8,
    },
    /// The packet type is not known.
    #[error("unknown packet type {kind}")]
    PacketType {
        /// The type.
        kind: u8,
    },
    /// The checksum is wrong.
    #[error("wrong checksum")]
    Checksum,
    /// Parameters are not in the order of their types (RFC 7401 section 5.2.1).
    #[error("parameter {kind} after parameter {after}")]
    Order {
        /// The type of the second one.
        kind: u16,
        /// The type of the first one.
        after: u16,
    },
    /// A parameter that may occur once occurs twice.
    #[error("parameter {kind} occurs twice")]
    Repeated {
        /// Its type.
        kind: u16,
    },
    /// A parameter has an invalid length or field.
    #[error("malformed parameter {kind} of {len} bytes")]
    Parameter {
        /// Its type.
        kind: u16,
        /// Bytes of its contents.
        len: usize,
    },
    /// An unknown critical parameter (RFC 7401 section 5.2.1).
    #[error("unknown critical parameter {kind}")]
    Critical {
        /// Its type.
        kind: u16,
    },
}

/// Why a packet cannot be emitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuildError {
    /// The parameter's type is below the one before it, or it is the same and may not be repeated.
    #[error("parameter {kind} cannot follow parameter {after}")]
    Order {
        /// The parameter's type.
        kind: u16,
        /// The type before it.
        after: u16,
    },
    /// The packet would be longer than [`crate::codec::MAX_LEN`].
    #[error("HIP packet of {len} bytes exceeds the limit of 2048")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// A field of a parameter exceeds its bits.
    #[error("parameter {kind} has a field out of range")]
    Field {
        /// The parameter's type.
        kind: u16,
    },
}
