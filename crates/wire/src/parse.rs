//! Parsing packets.

use core::net::IpAddr;

use bytes::{Buf, Bytes};
use etherparse::err::{ipv4, ipv6, tcp};
use etherparse::{
    Ipv4HeaderSlice, Ipv6FragmentHeaderSlice, Ipv6HeaderSlice, Ipv6RawExtHeaderSlice, TcpHeaderSlice, UdpHeaderSlice,
    icmpv4, icmpv6, ip_number,
};

use crate::checksum::{Cover, checksum};
use crate::icmp::IcmpHead;
use crate::{
    Flags, Fragment, IcmpEcho, IcmpError, Layer, Packet, ParseError, Payload, Segment, Seq, TcpOptions, Udp,
    Unreachable,
};

pub(crate) const ICMP: u8 = ip_number::ICMP.0;
pub(crate) const TCP: u8 = ip_number::TCP.0;
pub(crate) const UDP: u8 = ip_number::UDP.0;
pub(crate) const ESP: u8 = ip_number::ENCAP_SEC.0;
pub(crate) const ICMPV6: u8 = ip_number::IPV6_ICMP.0;
pub(crate) const IPV6_FRAGMENT: u8 = ip_number::IPV6_FRAG.0;
/// The offset of the flags in an IPv4 header, and the first flag there.
pub(crate) const FLAGS_AT: usize = 6;
pub(crate) const RESERVED_FLAG: u8 = 0x80;
const HOP_BY_HOP: u8 = ip_number::IPV6_HOP_BY_HOP.0;
const ROUTING: u8 = ip_number::IPV6_ROUTE.0;
const DESTINATION_OPTIONS: u8 = ip_number::IPV6_DEST_OPTIONS.0;

/// How to handle checksums when parsing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksums {
    /// A wrong checksum is an error: for everything received from a network.
    #[default]
    Verify,
    /// Checksums are not verified: for packets whose checksum an offloading device has yet to fill in, as in captures
    /// of outgoing traffic and on TUN devices with offload.
    Ignore,
}

impl Packet {
    /// Parses one IP packet; its payload is a slice of `bytes`, not a copy.
    ///
    /// Bytes beyond the length in the IP header are link padding and cut off. IPv4 options and IPv6 extension headers
    /// are skipped (the latter in any position; a routing header with segments left makes the packet
    /// [`Payload::Other`], because it is not yet at its destination). Only the IP header of a fragment is parsed; an
    /// IPv6 packet with a fragment header that is whole (an atomic fragment) is not a fragment (RFC 6946). The value
    /// does not hold, and so loses, IPv4's identification and "don't fragment" of whole packets, IP options and
    /// extension headers, the IPv6 flow label, TCP's reserved bits, the position of TCP options in the header, and the
    /// extensions of ICMP errors (RFC 4884). [`Packet::parse_to_forward`] keeps them.
    pub fn parse(bytes: Bytes) -> Result<Self, ParseError> {
        Self::parse_with(bytes, Checksums::Verify)
    }

    /// Parses one IP packet as [`Packet::parse`] does, with a choice about checksums.
    pub fn parse_with(mut bytes: Bytes, checksums: Checksums) -> Result<Self, ParseError> {
        let ip = IpHeader::parse(&bytes, checksums)?;
        bytes.truncate(ip.payload_end);
        bytes.advance(ip.payload_start);
        let (src, dst) = (ip.src, ip.dst);
        let (src_dst, protocol) = ((src, dst), ip.protocol);
        let payload = match ip.fragment {
            Some(FragmentHeader { id, offset, more }) => {
                Payload::Fragment(Fragment { id, offset, more, protocol, payload: bytes })
            }
            None => match (protocol, dst) {
                (TCP, _) => Payload::Tcp(parse_tcp(bytes, src_dst, checksums)?),
                (UDP, _) => Payload::Udp(parse_udp(bytes, src_dst, checksums)?),
                (ESP, _) => Payload::Esp(bytes),
                (ICMP, IpAddr::V4(_)) => parse_icmp(bytes, checksums)?,
                (ICMPV6, IpAddr::V6(_)) => parse_icmpv6(bytes, src_dst, checksums)?,
                _ => Payload::Other { protocol, payload: bytes },
            },
        };
        let IpHeader { ttl, traffic_class, reserved_flag, .. } = ip;
        Ok(Self { src, dst, ttl, traffic_class, reserved_flag, payload, received: None })
    }
}

/// The relevant fields of an IP header and its extension headers, and the offset of the payload.
pub(crate) struct IpHeader {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) ttl: u8,
    pub(crate) traffic_class: u8,
    pub(crate) reserved_flag: bool,
    pub(crate) protocol: u8,
    pub(crate) fragment: Option<FragmentHeader>,
    pub(crate) payload_start: usize,
    pub(crate) payload_end: usize,
    /// The length of the packet by its header; of a quoted one, fewer bytes may be there.
    pub(crate) total_len: usize,
}

/// The position of a fragment.
#[derive(Clone, Copy)]
pub(crate) struct FragmentHeader {
    pub(crate) id: u32,
    /// In bytes.
    pub(crate) offset: u16,
    pub(crate) more: bool,
}

impl FragmentHeader {
    /// Whether it belongs to a fragment.
    pub(crate) fn is_part(self) -> bool {
        !self.is_whole()
    }

    fn is_whole(self) -> bool {
        self.offset == 0 && !self.more
    }
}

impl IpHeader {
    pub(crate) fn parse(bytes: &[u8], checksums: Checksums) -> Result<Self, ParseError> {
        match version(bytes)? {
            4 => Self::parse_v4(bytes, checksums == Checksums::Verify, true),
            _ => Self::parse_v6(bytes, true),
        }
    }

    /// Parses the header of a packet that an ICMP error quotes: it may be cut off, and its checksum is not verified.
    pub(crate) fn parse_quoted(bytes: &[u8]) -> Result<Self, ParseError> {
        match version(bytes)? {
            4 => Self::parse_v4(bytes, false, false),
            _ => Self::parse_v6(bytes, false),
        }
    }

    fn parse_v4(bytes: &[u8], verify: bool, complete: bool) -> Result<Self, ParseError> {
        let header = Ipv4HeaderSlice::from_slice(bytes).map_err(ipv4_error)?;
        let header_len = header.slice().len();
        if verify && checksum(Cover::Plain, header.slice(), &[]) != 0 {
            return Err(ParseError::Checksum(Layer::Ipv4));
        }
        let total_len = usize::from(header.total_len());
        if total_len < header_len {
            return Err(ParseError::TotalLength { layer: Layer::Ipv4, len: total_len });
        }
        if complete && total_len > bytes.len() {
            return Err(ParseError::Truncated { layer: Layer::Ipv4, needed: total_len, have: bytes.len() });
        }
        let fragment = FragmentHeader {
            id: u32::from(header.identification()),
            offset: header.fragments_offset().value() << 3,
            more: header.more_fragments(),
        };
        Ok(Self {
            src: header.source_addr().into(),
            dst: header.destination_addr().into(),
            ttl: header.ttl(),
            traffic_class: header.dcp().value() << 2 | header.ecn().value(),
            reserved_flag: header.slice()[FLAGS_AT] & RESERVED_FLAG != 0,
            protocol: header.protocol().0,
            fragment: (!fragment.is_whole()).then_some(fragment),
            payload_start: header_len,
            payload_end: total_len.min(bytes.len()),
            total_len,
        })
    }

    fn parse_v6(bytes: &[u8], complete: bool) -> Result<Self, ParseError> {
        let header = Ipv6HeaderSlice::from_slice(bytes).map_err(ipv6_error)?;
        let header_len = header.slice().len();
        let total_len = header_len + usize::from(header.payload_length());
        if complete && total_len > bytes.len() {
            return Err(ParseError::Truncated { layer: Layer::Ipv6, needed: total_len, have: bytes.len() });
        }
        let mut ip = Self {
            src: header.source_addr().into(),
            dst: header.destination_addr().into(),
            ttl: header.hop_limit(),
            traffic_class: header.traffic_class(),
            reserved_flag: false,
            protocol: header.next_header().0,
            fragment: None,
            payload_start: header_len,
            payload_end: total_len.min(bytes.len()),
            total_len,
        };
        ip.skip_extension_headers(bytes)?;
        Ok(ip)
    }

    /// Advances to the upper-layer header. Each round consumes at least 8 bytes.
    fn skip_extension_headers(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        loop {
            let rest = &bytes[self.payload_start..self.payload_end];
            match self.protocol {
                HOP_BY_HOP | DESTINATION_OPTIONS | ROUTING => {
                    let header = Ipv6RawExtHeaderSlice::from_slice(rest).map_err(extension_error)?;
                    // Segments Left (RFC 8200 section 4.4). The pseudo header uses the last destination, which is not
                    // yet the one in the IPv6 header.
                    if self.protocol == ROUTING && header.slice()[3] != 0 {
                        return Ok(());
                    }
                    self.protocol = header.next_header().0;
                    self.payload_start += header.slice().len();
                }
                IPV6_FRAGMENT => {
                    let header = Ipv6FragmentHeaderSlice::from_slice(rest).map_err(extension_error)?;
                    self.protocol = header.next_header().0;
                    self.payload_start += header.slice().len();
                    let fragment = FragmentHeader {
                        id: header.identification(),
                        offset: header.fragment_offset().value() << 3,
                        more: header.more_fragments(),
                    };
                    if !fragment.is_whole() {
                        self.fragment = Some(fragment);
                        return Ok(());
                    }
                }
                _ => return Ok(()),
            }
        }
    }
}

fn version(bytes: &[u8]) -> Result<u8, ParseError> {
    match bytes.first().map(|first| first >> 4) {
        Some(version @ (4 | 6)) => Ok(version),
        Some(version) => Err(ParseError::Version { version }),
        None => Err(ParseError::Truncated { layer: Layer::Ipv4, needed: 20, have: 0 }),
    }
}

fn pseudo((src, dst): (IpAddr, IpAddr), protocol: u8) -> Cover {
    Cover::Pseudo { src, dst, protocol }
}

fn verify(checksums: Checksums, layer: Layer, cover: Cover, bytes: &[u8]) -> Result<(), ParseError> {
    match checksums {
        Checksums::Verify if checksum(cover, &[], bytes) != 0 => Err(ParseError::Checksum(layer)),
        _ => Ok(()),
    }
}

fn parse_tcp(mut bytes: Bytes, src_dst: (IpAddr, IpAddr), checksums: Checksums) -> Result<Segment, ParseError> {
    let header = TcpHeaderSlice::from_slice(&bytes).map_err(tcp_error)?;
    verify(checksums, Layer::Tcp, pseudo(src_dst, TCP), &bytes)?;
    let header_len = header.slice().len();
    let mut segment = Segment {
        src_port: header.source_port(),
        dst_port: header.destination_port(),
        seq: Seq::new(header.sequence_number()),
        ack: Seq::new(header.acknowledgment_number()),
        flags: Flags::from_bits_truncate(u16::from_be_bytes([bytes[12] & 1, bytes[13]])),
        window: header.window_size(),
        urgent: header.urgent_pointer(),
        options: TcpOptions::parse(&bytes, Segment::HEADER_LEN, header_len),
        payload: Bytes::new(),
    };
    bytes.advance(header_len);
    segment.payload = bytes;
    Ok(segment)
}

fn parse_udp(mut bytes: Bytes, src_dst: (IpAddr, IpAddr), checksums: Checksums) -> Result<Udp, ParseError> {
    let header = UdpHeaderSlice::from_slice(&bytes).map_err(|error| truncated(Layer::Udp, &error))?;
    let (src_port, dst_port) = (header.source_port(), header.destination_port());
    let (len, sent_checksum) = (usize::from(header.length()), header.checksum());
    let header_len = header.slice().len();
    if len < header_len {
        return Err(ParseError::TotalLength { layer: Layer::Udp, len });
    }
    if len > bytes.len() {
        return Err(ParseError::Truncated { layer: Layer::Udp, needed: len, have: bytes.len() });
    }
    bytes.truncate(len);
    match (sent_checksum, src_dst.1) {
        // The sender computed none (RFC 768).
        (0, IpAddr::V4(_)) => {}
        (0, IpAddr::V6(_)) if checksums == Checksums::Verify => return Err(ParseError::UdpChecksumMissing),
        _ => verify(checksums, Layer::Udp, pseudo(src_dst, UDP), &bytes)?,
    }
    bytes.advance(header_len);
    Ok(Udp { src_port, dst_port, payload: bytes })
}

fn parse_icmp(bytes: Bytes, checksums: Checksums) -> Result<Payload, ParseError> {
    let head = icmp_head(&bytes, Layer::Icmp)?;
    verify(checksums, Layer::Icmp, Cover::Plain, &bytes)?;
    Ok(match (head.kind, head.code) {
        (icmpv4::TYPE_ECHO_REQUEST, 0) => icmp_echo(false, head, bytes),
        (icmpv4::TYPE_ECHO_REPLY, 0) => icmp_echo(true, head, bytes),
        _ => match head.unreachable_v4() {
            Some(kind) => icmp_error(kind, head.quote_len_v4(), bytes),
            None => Payload::Other { protocol: ICMP, payload: bytes },
        },
    })
}

fn parse_icmpv6(bytes: Bytes, src_dst: (IpAddr, IpAddr), checksums: Checksums) -> Result<Payload, ParseError> {
    let head = icmp_head(&bytes, Layer::Icmpv6)?;
    verify(checksums, Layer::Icmpv6, pseudo(src_dst, ICMPV6), &bytes)?;
    Ok(match (head.kind, head.code) {
        (icmpv6::TYPE_ECHO_REQUEST, 0) => icmp_echo(false, head, bytes),
        (icmpv6::TYPE_ECHO_REPLY, 0) => icmp_echo(true, head, bytes),
        _ => match head.unreachable_v6() {
            Some(kind) => icmp_error(kind, head.quote_len_v6(), bytes),
            None => Payload::Other { protocol: ICMPV6, payload: bytes },
        },
    })
}

const ICMP_HEADER_LEN: usize = 8;

fn icmp_head(bytes: &[u8], layer: Layer) -> Result<IcmpHead, ParseError> {
    match *bytes {
        [kind, code, _, _, a, b, c, d, ..] => Ok(IcmpHead { kind, code, rest: [a, b, c, d] }),
        _ => Err(ParseError::Truncated { layer, needed: ICMP_HEADER_LEN, have: bytes.len() }),
    }
}

fn icmp_echo(reply: bool, head: IcmpHead, mut payload: Bytes) -> Payload {
    payload.advance(ICMP_HEADER_LEN);
    let [a, b, c, d] = head.rest;
    let (id, seq) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    Payload::IcmpEcho(IcmpEcho { reply, id, seq, payload })
}

fn icmp_error(kind: Unreachable, quote_len: Option<usize>, mut quote: Bytes) -> Payload {
    quote.advance(ICMP_HEADER_LEN);
    quote.truncate(quote_len.unwrap_or(usize::MAX));
    Payload::IcmpError(IcmpError { kind, quote })
}

fn truncated(layer: Layer, error: &etherparse::err::LenError) -> ParseError {
    ParseError::Truncated { layer, needed: error.required_len, have: error.len }
}

fn extension_error(error: etherparse::err::LenError) -> ParseError {
    truncated(Layer::Ipv6Extension, &error)
}

fn ipv4_error(error: ipv4::HeaderSliceError) -> ParseError {
    match error {
        ipv4::HeaderSliceError::Len(error) => truncated(Layer::Ipv4, &error),
        ipv4::HeaderSliceError::Content(ipv4::HeaderError::UnexpectedVersion { version_number: version }) => {
            ParseError::Version { version }
        }
        ipv4::HeaderSliceError::Content(ipv4::HeaderError::HeaderLengthSmallerThanHeader { ihl }) => {
            ParseError::HeaderLength { layer: Layer::Ipv4, len: 4 * usize::from(ihl) }
        }
    }
}

fn ipv6_error(error: ipv6::HeaderSliceError) -> ParseError {
    match error {
        ipv6::HeaderSliceError::Len(error) => truncated(Layer::Ipv6, &error),
        ipv6::HeaderSliceError::Content(ipv6::HeaderError::UnexpectedVersion { version_number: version }) => {
            ParseError::Version { version }
        }
    }
}

fn tcp_error(error: tcp::HeaderSliceError) -> ParseError {
    match error {
        tcp::HeaderSliceError::Len(error) => truncated(Layer::Tcp, &error),
        tcp::HeaderSliceError::Content(tcp::HeaderError::DataOffsetTooSmall { data_offset }) => {
            ParseError::HeaderLength { layer: Layer::Tcp, len: 4 * usize::from(data_offset) }
        }
    }
}
