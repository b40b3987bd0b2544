//! Packets to bytes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{BufMut, Bytes, BytesMut};
use etherparse::{
    IpDscp, IpEcn, IpFragOffset, IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header, TcpHeader, UdpHeader, icmpv4,
    icmpv6,
};

use crate::checksum::{Cover, checksum};
use crate::icmp::IcmpHead;
use crate::parse::{ESP, FLAGS_AT, ICMP, ICMPV6, IPV6_FRAGMENT, RESERVED_FLAG, TCP, UDP};
use crate::{EmitError, Flags, Fragment, Packet, Payload, Segment, Udp};

/// IPv4's total length counts its header.
const MAX_LEN_V4: usize = u16::MAX as usize;
/// IPv6's payload length does not; jumbograms (RFC 2675) are not written.
const MAX_LEN_V6: usize = u16::MAX as usize + Ipv6Header::LEN;

impl Packet {
    /// The packet as bytes, checksums included.
    ///
    /// An IPv4 packet that is no fragment is atomic (RFC 6864 section 4.1): "don't fragment" is set and its identification
    /// is 0. The flow label of IPv6 is 0, and [`Packet::reserved_flag`] has no place there. [`Payload::Other`] is written as it
    /// is, whatever its protocol.
    pub fn emit(&self) -> Result<Bytes, EmitError> {
        let mut buf = BytesMut::with_capacity(self.wire_len());
        self.emit_into(&mut buf)?;
        Ok(buf.freeze())
    }

    /// Appends the packet to `buf`, which a caller clears and uses again. On an error `buf` is as before.
    pub fn emit_into(&self, buf: &mut BytesMut) -> Result<(), EmitError> {
        self.emit_prefix_into(buf, usize::MAX).map(drop)
    }

    /// Appends the first `max_len` bytes of the packet to `buf`, and returns how many bytes the whole has: what a capture
    /// with a snap length and the quote of an ICMP error need. The checksums are those of the whole.
    pub fn emit_prefix_into(&self, buf: &mut BytesMut, max_len: usize) -> Result<usize, EmitError> {
        let upper = Upper::new(self)?;
        let start = buf.len();
        let len = match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.put_ipv4(buf, src, dst, &upper)?,
            (IpAddr::V6(src), IpAddr::V6(dst)) => self.put_ipv6(buf, src, dst, &upper)?,
            (src, dst) => return Err(EmitError::MixedFamilies { src, dst }),
        };
        buf.put_slice(upper.head());
        let room = max_len.saturating_sub(buf.len() - start);
        buf.put_slice(&upper.payload[..upper.payload.len().min(room)]);
        buf.truncate(start.saturating_add(max_len));
        Ok(len)
    }

    fn put_ipv4(
        &self,
        buf: &mut BytesMut,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        upper: &Upper<'_>,
    ) -> Result<usize, EmitError> {
        let len = Ipv4Header::MIN_LEN + upper.len();
        let total_len = u16::try_from(len).map_err(|_| EmitError::TooLong { len, max: MAX_LEN_V4 })?;
        let mut header = Ipv4Header {
            dscp: IpDscp::try_new(self.traffic_class >> 2).unwrap_or_default(),
            ecn: IpEcn::try_new(self.traffic_class & 3).unwrap_or_default(),
            total_len,
            dont_fragment: true,
            time_to_live: self.ttl,
            protocol: IpNumber(upper.protocol),
            source: src.octets(),
            destination: dst.octets(),
            ..Ipv4Header::default()
        };
        if let Payload::Fragment(fragment) = &self.payload {
            header.identification =
                u16::try_from(fragment.id).map_err(|_| EmitError::FragmentId { id: fragment.id })?;
            header.dont_fragment = false;
            header.more_fragments = fragment.more;
            header.fragment_offset = fragment_offset(fragment)?;
        }
        let mut bytes = header.to_bytes();
        bytes[FLAGS_AT] |= if self.reserved_flag { RESERVED_FLAG } else { 0 };
        let sum = checksum(Cover::Plain, &bytes, &[]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        buf.put_slice(&bytes);
        Ok(len)
    }

    fn put_ipv6(
        &self,
        buf: &mut BytesMut,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        upper: &Upper<'_>,
    ) -> Result<usize, EmitError> {
        let len = Ipv6Header::LEN + upper.len();
        let payload_length = u16::try_from(upper.len()).map_err(|_| EmitError::TooLong { len, max: MAX_LEN_V6 })?;
        let header = Ipv6Header {
            traffic_class: self.traffic_class,
            payload_length,
            next_header: IpNumber(upper.protocol),
            hop_limit: self.ttl,
            source: src.octets(),
            destination: dst.octets(),
            ..Ipv6Header::default()
        };
        buf.put_slice(&header.to_bytes());
        Ok(len)
    }
}

/// Everything after the IP header: at most a TCP header with its options, and the payload.
struct Upper<'a> {
    protocol: u8,
    head: [u8; TcpHeader::MAX_LEN],
    head_len: usize,
    payload: &'a Bytes,
}

impl<'a> Upper<'a> {
    fn new(packet: &'a Packet) -> Result<Self, EmitError> {
        let (src, dst) = (packet.src, packet.dst);
        let pseudo = |protocol| Cover::Pseudo { src, dst, protocol };
        Ok(match &packet.payload {
            Payload::Tcp(segment) => Self::new_tcp(segment)?.with_checksum(pseudo(TCP), 16),
            Payload::Udp(udp) => {
                let mut upper = Self::new_udp(udp).with_checksum(pseudo(UDP), 6);
                // Zero says that there is no checksum; its other form in ones' complement says zero (RFC 768).
                if upper.head[6..8] == [0, 0] {
                    upper.head[6..8].fill(0xff);
                }
                upper
            }
            Payload::IcmpError(error) => match dst {
                IpAddr::V4(_) => {
                    Self::new_icmp(ICMP, IcmpHead::error_v4(error.kind)?, &error.quote).with_checksum(Cover::Plain, 2)
                }
                IpAddr::V6(_) => Self::new_icmp(ICMPV6, IcmpHead::error_v6(error.kind), &error.quote)
                    .with_checksum(pseudo(ICMPV6), 2),
            },
            Payload::IcmpEcho(echo) => {
                let ([a, b], [c, d]) = (echo.id.to_be_bytes(), echo.seq.to_be_bytes());
                let head = |kind| IcmpHead { kind, code: 0, rest: [a, b, c, d] };
                match (dst, echo.reply) {
                    (IpAddr::V4(_), reply) => {
                        let kind = if reply { icmpv4::TYPE_ECHO_REPLY } else { icmpv4::TYPE_ECHO_REQUEST };
                        Self::new_icmp(ICMP, head(kind), &echo.payload).with_checksum(Cover::Plain, 2)
                    }
                    (IpAddr::V6(_), reply) => {
                        let kind = if reply { icmpv6::TYPE_ECHO_REPLY } else { icmpv6::TYPE_ECHO_REQUEST };
                        Self::new_icmp(ICMPV6, head(kind), &echo.payload).with_checksum(pseudo(ICMPV6), 2)
                    }
                }
            }
            Payload::Esp(payload) => Self::opaque(ESP, payload),
            Payload::Fragment(fragment) => Self::new_fragment(fragment, dst)?,
            Payload::Other { protocol, payload } => Self::opaque(*protocol, payload),
        })
    }

    fn len(&self) -> usize {
        self.head_len + self.payload.len()
    }

    fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    fn opaque(protocol: u8, payload: &'a Bytes) -> Self {
        Self { protocol, head: [0; TcpHeader::MAX_LEN], head_len: 0, payload }
    }

    fn with_head(protocol: u8, head: &[u8], payload: &'a Bytes) -> Self {
        let mut upper = Self::opaque(protocol, payload);
        upper.head[..head.len()].copy_from_slice(head);
        upper.head_len = head.len();
        upper
    }

    /// Fills in the checksum at byte `at` of the head.
    fn with_checksum(mut self, cover: Cover, at: usize) -> Self {
        let sum = checksum(cover, self.head(), self.payload);
        self.head[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        self
    }

    fn new_tcp(segment: &'a Segment) -> Result<Self, EmitError> {
        let len = segment.options.wire_len();
        if len > Segment::MAX_OPTIONS_LEN {
            return Err(EmitError::OptionsTooLong { len });
        }
        let has = |flag| segment.flags.contains(flag);
        let mut header = TcpHeader {
            source_port: segment.src_port,
            destination_port: segment.dst_port,
            sequence_number: segment.seq.value(),
            acknowledgment_number: segment.ack.value(),
            ns: has(Flags::AE),
            fin: has(Flags::FIN),
            syn: has(Flags::SYN),
            rst: has(Flags::RST),
            psh: has(Flags::PSH),
            ack: has(Flags::ACK),
            urg: has(Flags::URG),
            ece: has(Flags::ECE),
            cwr: has(Flags::CWR),
            window_size: segment.window,
            urgent_pointer: segment.urgent,
            ..TcpHeader::default()
        };
        if len > 0 {
            let mut options = [0; Segment::MAX_OPTIONS_LEN];
            let len = segment.options.write(&mut options);
            header.set_options_raw(&options[..len]).map_err(|_| EmitError::OptionsTooLong { len })?;
        }
        Ok(Self::with_head(TCP, &header.to_bytes(), &segment.payload))
    }

    fn new_udp(udp: &'a Udp) -> Self {
        let header = UdpHeader {
            source_port: udp.src_port,
            destination_port: udp.dst_port,
            // A datagram too long for this field is too long for IP, which refuses it.
            length: (UdpHeader::LEN + udp.payload.len()) as u16,
            checksum: 0,
        };
        Self::with_head(UDP, &header.to_bytes(), &udp.payload)
    }

    fn new_icmp(protocol: u8, head: IcmpHead, payload: &'a Bytes) -> Self {
        let IcmpHead { kind, code, rest: [a, b, c, d] } = head;
        Self::with_head(protocol, &[kind, code, 0, 0, a, b, c, d], payload)
    }

    fn new_fragment(fragment: &'a Fragment, dst: IpAddr) -> Result<Self, EmitError> {
        let offset = fragment_offset(fragment)?;
        if fragment.offset == 0 && !fragment.more {
            return Err(EmitError::FragmentIsWhole);
        }
        if dst.is_ipv4() {
            return Ok(Self::opaque(fragment.protocol, &fragment.payload));
        }
        let header = Ipv6FragmentHeader {
            next_header: IpNumber(fragment.protocol),
            fragment_offset: offset,
            more_fragments: fragment.more,
            identification: fragment.id,
        };
        Ok(Self::with_head(IPV6_FRAGMENT, &header.to_bytes(), &fragment.payload))
    }
}

fn fragment_offset(fragment: &Fragment) -> Result<IpFragOffset, EmitError> {
    let offset = fragment.offset;
    if !offset.is_multiple_of(8) {
        return Err(EmitError::FragmentOffset { offset });
    }
    IpFragOffset::try_new(offset / 8).map_err(|_| EmitError::FragmentOffset { offset })
}
