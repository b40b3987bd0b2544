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
use crate::received::{MAX_EDITED_LEN, Received};
use crate::{EmitError, Flags, Fragment, Packet, Payload, Segment, Udp};

/// IPv4's total length counts its header.
pub(crate) const MAX_LEN_V4: usize = u16::MAX as usize;
/// IPv6's payload length does not count its header; jumbograms (RFC 2675) are not emitted.
pub(crate) const MAX_LEN_V6: usize = u16::MAX as usize + Ipv6Header::LEN;

impl Packet {
    /// The packet as bytes, checksums included.
    ///
    /// An IPv4 packet that is not a [`Fragment`] is atomic (RFC 6864 section 4.1): "don't fragment" is set and its identification
    /// is 0. The flow label of IPv6 is 0, and [`Packet::reserved_flag`] has no place there. [`Payload::Other`] is written as
    /// it is, for any protocol. A packet of [`Packet::parse_to_forward`] is written as it came, with the changes made to its value.
    ///
    /// # Errors
    /// See [`EmitError`]: the value does not fit into the fields of a header, or its addresses are of different families.
    pub fn emit(&self) -> Result<Bytes, EmitError> {
        if let Some(bytes) = self.as_received().and_then(|came| came.unchanged(self)) {
            return Ok(bytes);
        }
        let mut buf = BytesMut::with_capacity(self.wire_len());
        self.emit_into(&mut buf)?;
        Ok(buf.freeze())
    }

    /// The packet in two pieces, for a vectored write: appends headers to `head`, and returns the bytes that follow them, which are not
    /// copied. A packet that is forwarded unchanged has no bytes in `head`. On an error `head` is as before.
    ///
    /// # Errors
    /// As for [`Self::emit`].
    pub fn emit_pieces(&self, head: &mut BytesMut) -> Result<Bytes, EmitError> {
        let received = self.as_received();
        if let Some(bytes) = received.and_then(|came| came.unchanged(self)) {
            return Ok(bytes);
        }
        let bytes = received.and_then(|came| came.upper(&self.payload));
        let upper = self.upper(received, bytes.as_ref())?;
        self.put_ip(received, &upper, head)?;
        head.put_slice(upper.head());
        Ok(upper.payload.clone())
    }

    /// Appends the packet to `buf`, which a caller clears and uses again. On an error `buf` is as before.
    ///
    /// # Errors
    /// As for [`Self::emit`].
    pub fn emit_into(&self, buf: &mut BytesMut) -> Result<(), EmitError> {
        self.emit_prefix_into(buf, usize::MAX).map(drop)
    }

    /// Appends the first `max_len` bytes of the packet to `buf`, and returns the length of the whole packet: for captures with a snap
    /// length, and quotes in ICMP errors. The checksums are those of the whole.
    ///
    /// # Errors
    /// As for [`Self::emit`].
    pub fn emit_prefix_into(&self, buf: &mut BytesMut, max_len: usize) -> Result<usize, EmitError> {
        let start = buf.len();
        let received = self.as_received();
        let bytes = received.and_then(|came| came.upper(&self.payload));
        let upper = self.upper(received, bytes.as_ref())?;
        let len = self.put_ip(received, &upper, buf)?;
        buf.put_slice(upper.head());
        let room = max_len.saturating_sub(buf.len() - start);
        buf.put_slice(&upper.payload[..upper.payload.len().min(room)]);
        buf.truncate(start.saturating_add(max_len));
        Ok(len)
    }

    /// Protocol and bytes after the IP header, made from the value.
    pub(crate) fn payload_bytes(&self) -> Result<(u8, Bytes), EmitError> {
        let upper = Upper::new(self)?;
        if upper.head_len == 0 {
            return Ok((upper.protocol, upper.payload.clone()));
        }
        Ok((upper.protocol, Bytes::from([upper.head(), upper.payload].concat())))
    }

    /// The bytes after the IP header: `bytes` if they may be sent unchanged.
    fn upper<'a>(&'a self, received: Option<&Received>, bytes: Option<&'a Bytes>) -> Result<Upper<'a>, EmitError> {
        match (received, &self.payload, bytes) {
            (Some(came), Payload::Tcp(segment), _) => {
                let cover = Cover::Pseudo { src: self.src, dst: self.dst, protocol: TCP };
                Ok(Upper::edit_tcp(came, segment)?.with_tcp_checksum(came, cover))
            }
            // The received IP header names the protocol.
            (_, _, Some(bytes)) => Ok(Upper::opaque(0, bytes)),
            _ => Upper::new(self),
        }
    }

    /// Appends the IP header, and returns the bytes of the whole packet.
    fn put_ip(&self, received: Option<&Received>, upper: &Upper<'_>, buf: &mut BytesMut) -> Result<usize, EmitError> {
        match (received.filter(|came| came.keeps_ip()), self.src, self.dst) {
            (Some(came), ..) => came.put_ip(self, upper.len(), buf),
            (None, IpAddr::V4(src), IpAddr::V4(dst)) => self.put_ipv4(buf, src, dst, upper),
            (None, IpAddr::V6(src), IpAddr::V6(dst)) => self.put_ipv6(buf, src, dst, upper),
            (None, src, dst) => Err(EmitError::MixedFamilies { src, dst }),
        }
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

/// Everything after the IP header: at most a TCP header with options, and the payload.
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
                // A field of zero means "no checksum"; a checksum of zero is sent as all ones (RFC 768).
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
            Payload::Encrypted(encrypted) => Self::with_head(ESP, encrypted.header(), encrypted.ciphertext()),
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

    /// Updates the received checksum by the changes of the header.
    fn with_tcp_checksum(mut self, came: &Received, cover: Cover) -> Self {
        match came.tcp_checksum(self.head(), self.payload) {
            Some(sum) => {
                self.head[16..18].copy_from_slice(&sum.to_be_bytes());
                self
            }
            None => self.with_checksum(cover, 16),
        }
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

    /// The received header, with the fields that differ in the value.
    fn edit_tcp(came: &Received, segment: &'a Segment) -> Result<Self, EmitError> {
        let mut options = [0; MAX_EDITED_LEN];
        let len = came.edit_options(&segment.options, &mut options);
        if len > Segment::MAX_OPTIONS_LEN {
            return Err(EmitError::OptionsTooLong { len });
        }
        let mut upper = Self::with_head(TCP, &came.tcp_header()[..Segment::HEADER_LEN], &segment.payload);
        let head = &mut upper.head;
        head[4..8].copy_from_slice(&segment.seq.value().to_be_bytes());
        head[8..12].copy_from_slice(&segment.ack.value().to_be_bytes());
        let [high, low] = segment.flags.bits().to_be_bytes();
        // Data offset, the received reserved bits, and the control bits.
        let reserved = head[12] & 0xe;
        head[12] = (((Segment::HEADER_LEN + len) / 4) as u8) << 4 | reserved | high & 1;
        head[13] = low;
        head[14..16].copy_from_slice(&segment.window.to_be_bytes());
        head[16..18].fill(0);
        head[18..20].copy_from_slice(&segment.urgent.to_be_bytes());
        head[Segment::HEADER_LEN..Segment::HEADER_LEN + len].copy_from_slice(&options[..len]);
        upper.head_len = Segment::HEADER_LEN + len;
        Ok(upper)
    }

    fn new_udp(udp: &'a Udp) -> Self {
        let header = UdpHeader {
            source_port: udp.src_port,
            destination_port: udp.dst_port,
            // IP refuses a datagram that is too long for this field.
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
        if dst.is_ipv4() {
            return Ok(Self::opaque(fragment.protocol, &fragment.payload));
        }
        // RFC 8021: senders make no atomic fragments.
        if fragment.offset == 0 && !fragment.more {
            return Err(EmitError::FragmentIsWhole);
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
