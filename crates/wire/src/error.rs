//! Errors of parsing, emitting and capturing.

use core::fmt;
use core::net::IpAddr;

/// A header, as named in errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// The IPv4 header (RFC 791).
    Ipv4,
    /// The IPv6 header (RFC 8200).
    Ipv6,
    /// An IPv6 extension header (RFC 8200 section 4).
    Ipv6Extension,
    /// TCP (RFC 9293).
    Tcp,
    /// UDP (RFC 768).
    Udp,
    /// ICMP (RFC 792).
    Icmp,
    /// ICMPv6 (RFC 4443).
    Icmpv6,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Ipv6Extension => "IPv6 extension",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Icmp => "ICMP",
            Self::Icmpv6 => "ICMPv6",
        })
    }
}

/// Why bytes are not a valid packet. A receiver drops such a packet and counts it by variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// The bytes end before the header, or before the length in it.
    #[error("truncated {layer}: {have} bytes, {needed} needed")]
    Truncated {
        /// The header.
        layer: Layer,
        /// Bytes needed from the beginning of that header.
        needed: usize,
        /// Bytes present.
        have: usize,
    },
    /// The first four bits are neither 4 nor 6.
    #[error("IP version {version} is neither 4 nor 6")]
    Version {
        /// Their value.
        version: u8,
    },
    /// The header's own length field (IHL, or TCP's data offset) is below the minimum.
    #[error("invalid {layer} header length: {len} bytes")]
    HeaderLength {
        /// The header.
        layer: Layer,
        /// The length in bytes.
        len: usize,
    },
    /// The total length (IPv4) or length (UDP) field is smaller than the header.
    #[error("{layer} length field of {len} bytes is smaller than the header")]
    TotalLength {
        /// The header.
        layer: Layer,
        /// The length in bytes.
        len: usize,
    },
    /// The checksum does not match.
    #[error("wrong {0} checksum")]
    Checksum(Layer),
    /// A UDP datagram over IPv6 has no checksum (RFC 8200 section 8.1).
    #[error("UDP datagram over IPv6 without a checksum")]
    UdpChecksumMissing,
    /// The quoted packet does not carry TCP.
    #[error("the quoted packet carries protocol {protocol}, not TCP")]
    QuoteNotTcp {
        /// Its protocol number.
        protocol: u8,
    },
    /// The quoted packet is a fragment other than the first: it has no TCP header.
    #[error("the quoted packet is a later fragment, without a TCP header")]
    QuoteIsFragment,
}

/// Why a value cannot be emitted as a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EmitError {
    /// Source and destination are of different address families.
    #[error("{src} and {dst} are of different address families")]
    MixedFamilies {
        /// The source.
        src: IpAddr,
        /// The destination.
        dst: IpAddr,
    },
    /// The packet exceeds the length field of its IP header.
    #[error("packet of {len} bytes exceeds the limit of {max}")]
    TooLong {
        /// Bytes of the packet.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The TCP options exceed [`crate::Segment::MAX_OPTIONS_LEN`] bytes.
    #[error("TCP options of {len} bytes exceed 40")]
    OptionsTooLong {
        /// Bytes of the options.
        len: usize,
    },
    /// The offset of a fragment is not a multiple of 8 bytes.
    #[error("fragment offset {offset} is not a multiple of 8")]
    FragmentOffset {
        /// The offset in bytes.
        offset: u16,
    },
    /// The fragment of an IPv6 packet has offset 0 and no more-fragments flag.
    #[error("fragment of an IPv6 packet has offset 0 and no more-fragments flag")]
    FragmentIsWhole,
    /// The MTU has no room for an IP header and 8 bytes.
    #[error("an MTU of {mtu} bytes has no room for fragments")]
    NoRoomForFragments {
        /// The MTU in bytes.
        mtu: usize,
    },
    /// IPv4 has 16 bits for the identification of a fragment.
    #[error("fragment identification {id} exceeds IPv4's 16 bits")]
    FragmentId {
        /// The identification.
        id: u32,
    },
    /// ICMP (of IPv4) has 16 bits for the MTU.
    #[error("MTU of {mtu} bytes exceeds ICMP's 16 bits")]
    IcmpMtu {
        /// The MTU in bytes.
        mtu: u32,
    },
    /// ICMP (of IPv4) has 8 bits for the pointer of a parameter problem.
    #[error("pointer {pointer} exceeds ICMP's 8 bits")]
    IcmpPointer {
        /// The pointer in bytes.
        pointer: u32,
    },
}

/// Why a capture could not be written. After [`CaptureError::Io`] the output may end in a partial block; the other
/// errors leave it unchanged.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The output failed.
    #[error("cannot write the capture")]
    Io(#[from] std::io::Error),
    /// The packet cannot be emitted.
    #[error("cannot capture the packet")]
    Emit(#[from] EmitError),
    /// The interface belongs to another writer.
    #[error("interface {index} is not in the capture")]
    NoSuchInterface {
        /// Its index.
        index: u32,
    },
    /// A name, description or comment exceeds an option's length field.
    #[error("text of {len} bytes exceeds the option limit of 65535")]
    TextTooLong {
        /// Bytes of the text in UTF-8.
        len: usize,
    },
    /// The lengths exceed the format's fields, or more bytes were captured than the packet had.
    #[error("cannot record {captured} captured bytes of a packet of {original}")]
    PacketLength {
        /// Bytes captured.
        captured: usize,
        /// Bytes of the packet.
        original: usize,
    },
    /// The time exceeds the 32 bits of seconds of the classic format (the year 2106).
    #[error("{secs} s since 1970 exceed the capture's 32 bits")]
    TimeOutOfRange {
        /// Seconds since 1970.
        secs: u64,
    },
}
