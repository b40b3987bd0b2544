//! An IP packet as a value.

use core::fmt;
use core::net::IpAddr;

use bytes::Bytes;

use crate::parse::TCP;
use crate::{Encrypted, Received, Segment, Seq};

/// One IPv4 or IPv6 packet. `src` and `dst` are of the same family.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// The traffic class byte: DSCP and ECN.
    pub traffic_class: u8,
    /// The reserved bit of IPv4's flags (RFC 791 section 3.1: bit 0, "must be zero"). Senders leave it clear; the
    /// gateway of Freeze-TCP's thesis and its mobile hosts exchange it. IPv6 has no such bit.
    pub reserved_flag: bool,
    /// The payload.
    pub payload: Payload,
    /// The bytes of a packet that is to be forwarded unchanged ([`Packet::parse_to_forward`]).
    pub received: Option<Box<Received>>,
}

impl Packet {
    /// The hop limit that Holdover's own packets start with; also Linux's.
    pub const DEFAULT_TTL: u8 = 64;

    /// A packet with the default hop limit and traffic class, and the reserved flag clear.
    pub fn new(src: IpAddr, dst: IpAddr, payload: impl Into<Payload>) -> Self {
        Self {
            src,
            dst,
            ttl: Self::DEFAULT_TTL,
            traffic_class: 0,
            reserved_flag: false,
            payload: payload.into(),
            received: None,
        }
    }

    /// Bytes of the IP header: 20 or 40, or with the options and extension headers of a received packet.
    pub fn ip_header_len(&self) -> usize {
        self.as_received().and_then(Received::ip_len).unwrap_or_else(|| self.own_ip_header_len())
    }

    #[inline]
    fn own_ip_header_len(&self) -> usize {
        match self.dst {
            IpAddr::V4(_) => 20,
            IpAddr::V6(_) => 40,
        }
    }

    /// Bytes of the whole packet on the wire.
    #[inline]
    pub fn wire_len(&self) -> usize {
        match (&self.received, &self.payload) {
            (None, Payload::Tcp(segment)) => self.own_ip_header_len() + segment.wire_len(),
            _ => self.any_wire_len(),
        }
    }

    fn any_wire_len(&self) -> usize {
        let received = self.as_received();
        let ip_len = received.and_then(Received::ip_len).unwrap_or_else(|| self.own_ip_header_len());
        ip_len
            + match (received, &self.payload) {
                (Some(came), Payload::Tcp(segment)) => came.tcp_header_len(&segment.options) + segment.payload.len(),
                (Some(came), payload) => {
                    came.upper(payload).map_or_else(|| payload.wire_len(self.dst), |upper| upper.len())
                }
                (None, payload) => payload.wire_len(self.dst),
            }
    }

    /// The TCP segment, if the packet carries one in the clear.
    pub fn tcp(&self) -> Option<&Segment> {
        match &self.payload {
            Payload::Tcp(segment) => Some(segment),
            _ => None,
        }
    }

    /// Whether it is a TCP segment in the clear, or a fragment of one.
    pub fn carries_tcp(&self) -> bool {
        match &self.payload {
            Payload::Tcp(_) => true,
            Payload::Fragment(fragment) => fragment.protocol == TCP,
            _ => false,
        }
    }
}

/// Prints addresses and payload: `10.0.0.1 > 10.0.0.2 TCP 1000 > 80: S 1:2 win 512 <mss 1460>`.
impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} {}", self.src, self.dst, self.payload)
    }
}

/// The payload of an IP packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// A TCP segment.
    Tcp(Segment),
    /// A UDP datagram.
    Udp(Udp),
    /// An ICMP or ICMPv6 error that quotes a packet.
    IcmpError(IcmpError),
    /// An ICMP or ICMPv6 echo request or reply.
    IcmpEcho(IcmpEcho),
    /// An Encapsulating Security Payload (RFC 4303), opaque.
    Esp(Bytes),
    /// Encrypted payload of a simulation: opaque as well.
    Encrypted(Encrypted),
    /// A fragment: opaque, as it may lack the transport header.
    Fragment(Fragment),
    /// Any other protocol.
    Other {
        /// The IP protocol number of `payload`.
        protocol: u8,
        /// The bytes after the IP header.
        payload: Bytes,
    },
}

impl Payload {
    /// Bytes behind the IP header of a packet that is emitted from its value.
    #[inline]
    pub(crate) fn wire_len(&self, dst: IpAddr) -> usize {
        match self {
            Self::Tcp(segment) => segment.wire_len(),
            Self::Udp(udp) => 8 + udp.payload.len(),
            Self::IcmpError(error) => 8 + error.quote.len(),
            Self::IcmpEcho(echo) => 8 + echo.payload.len(),
            Self::Esp(bytes) => bytes.len(),
            Self::Encrypted(encrypted) => encrypted.wire_len(),
            // An IPv6 fragment has an extension header of its own.
            Self::Fragment(fragment) => fragment.payload.len() + if dst.is_ipv6() { 8 } else { 0 },
            Self::Other { payload, .. } => payload.len(),
        }
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(segment) => write!(f, "TCP {segment}"),
            Self::Udp(udp) => write!(f, "UDP {} > {}: {} bytes", udp.src_port, udp.dst_port, udp.payload.len()),
            Self::IcmpError(error) => match error.quoted_tcp() {
                Ok(tcp) => write!(
                    f,
                    "ICMP {:?} about {} > {} TCP {} > {}: {}",
                    error.kind, tcp.src, tcp.dst, tcp.src_port, tcp.dst_port, tcp.seq
                ),
                Err(_) => write!(f, "ICMP {:?} about {} bytes", error.kind, error.quote.len()),
            },
            Self::IcmpEcho(echo) => {
                let name = if echo.reply { "reply" } else { "request" };
                write!(f, "ICMP echo {name} id {} seq {}: {} bytes", echo.id, echo.seq, echo.payload.len())
            }
            Self::Esp(bytes) => write!(f, "ESP {} bytes", bytes.len()),
            Self::Encrypted(encrypted) => write!(f, "ESP {} bytes", encrypted.wire_len()),
            Self::Fragment(part) => {
                let more = if part.more { "+" } else { "" };
                write!(
                    f,
                    "fragment {} {}@{}{more} of protocol {}",
                    part.id,
                    part.payload.len(),
                    part.offset,
                    part.protocol
                )
            }
            Self::Other { protocol, payload } => write!(f, "protocol {protocol} {} bytes", payload.len()),
        }
    }
}

impl From<Segment> for Payload {
    fn from(segment: Segment) -> Self {
        Self::Tcp(segment)
    }
}

impl From<Udp> for Payload {
    fn from(udp: Udp) -> Self {
        Self::Udp(udp)
    }
}

impl From<IcmpEcho> for Payload {
    fn from(echo: IcmpEcho) -> Self {
        Self::IcmpEcho(echo)
    }
}

impl From<IcmpError> for Payload {
    fn from(error: IcmpError) -> Self {
        Self::IcmpError(error)
    }
}

/// A UDP datagram.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Udp {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Data.
    pub payload: Bytes,
}

/// An echo request or reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IcmpEcho {
    /// Whether this is the reply.
    pub reply: bool,
    /// Identifier.
    pub id: u16,
    /// Sequence number.
    pub seq: u16,
    /// Data.
    pub payload: Bytes,
}

/// One fragment of a larger packet. With offset 0 and without the more-fragments flag it is a whole IPv4 packet that routers may fragment,
/// which [`Packet::parse`] does not distinguish from one that they may not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// The identification of the larger packet.
    pub id: u32,
    /// Its offset in bytes; a multiple of 8.
    pub offset: u16,
    /// The more-fragments flag.
    pub more: bool,
    /// The protocol of the larger packet.
    pub protocol: u8,
    /// Its bytes.
    pub payload: Bytes,
}

/// An ICMP (RFC 792) or ICMPv6 (RFC 4443) error message, by the family of the packet's addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// The error.
    pub kind: Unreachable,
    /// The beginning of the packet that caused it, from its IP header on.
    pub quote: Bytes,
}

/// The kind of an ICMP error. The names are RFC 1122's and RFC 4443's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// No route (type 3 code 0; ICMPv6 type 1 code 0).
    Network,
    /// The host does not answer (type 3 code 1; ICMPv6 type 1 code 3, address unreachable).
    Host,
    /// The host has no such protocol (type 3 code 2; ICMPv6 type 4 code 1, unrecognized next header).
    Protocol,
    /// No socket listens at the port (type 3 code 3; ICMPv6 type 1 code 4).
    Port,
    /// The packet does not fit and must not be fragmented (type 3 code 4; ICMPv6 type 2).
    PacketTooBig {
        /// The MTU of the next hop in bytes; 0 from an old router that does not report it.
        mtu: u32,
    },
    /// The hop limit or the time for reassembly ran out (type 11; ICMPv6 type 3).
    TimeExceeded {
        /// The code.
        code: u8,
    },
    /// Forbidden by an administrator (type 3 code 13; ICMPv6 type 1 code 1).
    AdministrativelyProhibited,
    /// Any other code of destination unreachable (type 3; ICMPv6 type 1), as on the wire.
    Other {
        /// The code.
        code: u8,
    },
    /// Explicit bad state notification: a base station has failed to transmit the quoted packet over its wireless link
    /// (Bakshi and others 1997). Its authors derive it from source quench, which RFC 6633 has retired, and name no
    /// type; here it has those for experiments (RFC 4727 section 2.2: type 253 code 0; RFC 4443 section 2.1: ICMPv6
    /// type 100 code 0).
    BadState,
    /// A parameter problem (type 12; ICMPv6 type 4).
    ParameterProblem {
        /// The code.
        code: u8,
        /// The offset in the quoted packet, in bytes.
        pointer: u32,
    },
}

/// The packet that an ICMP error quotes, possibly cut off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quoted {
    /// Its source address.
    pub src: IpAddr,
    /// Its destination address.
    pub dst: IpAddr,
    /// The IP protocol number of its payload.
    pub protocol: u8,
    /// The beginning of its payload.
    pub payload: Bytes,
}

impl Quoted {
    /// Source and destination port; `None` if the quote ends before them. Only of protocols that begin with ports, as TCP and UDP.
    pub fn ports(&self) -> Option<[u16; 2]> {
        let &[a, b, c, d] = self.payload.first_chunk::<4>()?;
        Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
    }
}

/// The TCP connection and sequence number that an ICMP error quotes (RFC 5461; RFC 6069 needs the sequence number).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotedTcp {
    /// Source address of the quoted packet: ours, if it is for us.
    pub src: IpAddr,
    /// Destination address of the quoted packet.
    pub dst: IpAddr,
    /// Source port of the quoted segment.
    pub src_port: u16,
    /// Destination port of the quoted segment.
    pub dst_port: u16,
    /// Sequence number of the quoted segment.
    pub seq: Seq,
    /// The length of the quoted packet by its IP header, in bytes.
    pub packet_len: u32,
}
