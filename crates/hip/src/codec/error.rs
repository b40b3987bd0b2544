//! Why bytes are not a HIP packet, and why a packet cannot be written.

/// Why an IP packet is not a HIP packet to go on with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The IP packet carries another protocol.
    #[error("not a HIP packet")]
    NotHip,
    /// The packet ends within its header, before the length in its header, or within a parameter.
    #[error("truncated: {needed} bytes needed, {have} there")]
    Truncated {
        /// Bytes needed.
        needed: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// The header's length has no room for the header.
    #[error("a length of {len} bytes has no room for the header")]
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
    /// The bits that tell HIP from SHIM6 (RFC 7401 section 5.1) are not 0 and 1.
    #[error("the fixed bits of the header are not those of HIP")]
    FixedBits,
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
    /// A parameter has a length or a field that it cannot have.
    #[error("malformed parameter {kind} of {len} bytes")]
    Parameter {
        /// Its type.
        kind: u16,
        /// Bytes of its contents.
        len: usize,
    },
    /// A parameter is not known and is critical (RFC 7401 section 5.2.1).
    #[error("unknown critical parameter {kind}")]
    Critical {
        /// Its type.
        kind: u16,
    },
}

/// Why a packet cannot be written.
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
    #[error("a HIP packet of {len} bytes is over the limit of 2048")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// A field of a parameter has a value that its bits cannot say.
    #[error("parameter {kind} has a field that is out of range")]
    Field {
        /// The parameter's type.
        kind: u16,
    },
}
