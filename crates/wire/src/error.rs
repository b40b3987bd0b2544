//! What can be wrong with bytes, with values and with a capture.

use core::fmt;
use core::net::IpAddr;

/// A header, as errors name it.
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

/// Why bytes are not a packet. A receiver drops such a packet and counts it by variant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// The bytes end before the header does, or before the length that it announces.
    #[error("the {layer} part is truncated: {needed} bytes needed, {have} there")]
    Truncated {
        /// Which header says so.
        layer: Layer,
        /// Bytes that would be needed from the beginning of that header.
        needed: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// The first four bits are neither 4 nor 6.
    #[error("IP version {version} is neither 4 nor 6")]
    Version {
        /// What they are.
        version: u8,
    },
    /// The header announces a length of itself below its minimum (IHL, or TCP's data offset).
    #[error("the {layer} header cannot have {len} bytes")]
    HeaderLength {
        /// Which header.
        layer: Layer,
        /// The length in bytes.
        len: usize,
    },
    /// The length of header and payload is smaller than the header (IPv4's total length, UDP's length).
    #[error("the {layer} length of {len} bytes has no room for the header")]
    TotalLength {
        /// Which header.
        layer: Layer,
        /// The length in bytes.
        len: usize,
    },
    /// The checksum does not match.
    #[error("the {0} checksum is wrong")]
    Checksum(Layer),
    /// A UDP datagram over IPv6 has no checksum (RFC 8200 section 8.1).
    #[error("UDP over IPv6 without a checksum")]
    UdpChecksumMissing,
    /// The quoted packet is of another protocol than TCP.
    #[error("the quoted packet is of protocol {protocol}, not TCP")]
    QuoteNotTcp {
        /// Its protocol number.
        protocol: u8,
    },
    /// The quoted packet is a fragment other than the first: it has no TCP header.
    #[error("the quoted packet is a fragment that does not begin with a TCP header")]
    QuoteIsFragment,
}

/// Why a value cannot be written as a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EmitError {
    /// Source and destination are of different families.
    #[error("{src} and {dst} are of different families")]
    MixedFamilies {
        /// The source.
        src: IpAddr,
        /// The destination.
        dst: IpAddr,
    },
    /// The packet is longer than the length field of its IP header can say.
    #[error("a packet of {len} bytes is over the limit of {max}")]
    TooLong {
        /// Bytes of the whole packet.
        len: usize,
        /// The most that fit.
        max: usize,
    },
    /// The TCP options take more than [`crate::Segment::MAX_OPTIONS_LEN`] bytes.
    #[error("TCP options of {len} bytes do not fit into 40")]
    OptionsTooLong {
        /// Bytes that they would take.
        len: usize,
    },
    /// The offset of a fragment is no multiple of 8 bytes.
    #[error("a fragment cannot begin at byte {offset}: no multiple of 8")]
    FragmentOffset {
        /// The offset in bytes.
        offset: u16,
    },
    /// The offset is 0 and no more fragments follow: this is no fragment.
    #[error("a fragment that is the whole packet is no fragment")]
    FragmentIsWhole,
    /// IPv4 has 16 bits for the identification of a fragment.
    #[error("the fragment identification {id} does not fit into IPv4's 16 bits")]
    FragmentId {
        /// The identification.
        id: u32,
    },
    /// ICMP (of IPv4) has 16 bits for the MTU.
    #[error("an MTU of {mtu} bytes does not fit into ICMP's 16 bits")]
    IcmpMtu {
        /// The MTU in bytes.
        mtu: u32,
    },
    /// ICMP (of IPv4) has 8 bits for the pointer of a parameter problem.
    #[error("a pointer to byte {pointer} does not fit into ICMP's 8 bits")]
    IcmpPointer {
        /// The pointer in bytes.
        pointer: u32,
    },
}

/// Why a capture could not be written. After [`CaptureError::Io`] the output may end in half a block; after the others it
/// is as if the call had not been made.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The output failed.
    #[error("cannot write the capture")]
    Io(#[from] std::io::Error),
    /// The packet has no bytes.
    #[error("cannot capture the packet")]
    Emit(#[from] EmitError),
    /// The interface is not one of this writer's.
    #[error("the capture has no interface {index}")]
    NoSuchInterface {
        /// Its index.
        index: u32,
    },
    /// A name, description or comment is longer than an option's length field can say.
    #[error("a text of {len} bytes does not fit into an option of 65535")]
    TextTooLong {
        /// Bytes of the text in UTF-8.
        len: usize,
    },
    /// The packet has more bytes than the length fields can say, or more bytes captured than it had.
    #[error("{captured} bytes captured of {original} cannot be recorded")]
    PacketLength {
        /// Bytes captured.
        captured: usize,
        /// Bytes that the packet had.
        original: usize,
    },
    /// The time does not fit into the 32 bits of seconds of the classic format (the year 2106).
    #[error("{secs} s after 1970 do not fit into the capture's 32 bits")]
    TimeOutOfRange {
        /// Seconds since 1970.
        secs: u64,
    },
}
