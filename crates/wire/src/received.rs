//! The bytes of a forwarded packet, kept beside its value.
//!
//! A [`Packet`] holds the fields that endpoints and mechanisms read and change. A node that forwards must pass on the
//! rest as well: IPv4's identification, flags and options, IPv6's flow label and extension headers, TCP's reserved
//! bits, unknown options and the order of options, UDP's missing checksum, extensions of ICMP errors (RFC 4884).
//! [`Packet::parse_to_forward`] keeps a reference to the received bytes. [`Packet::emit`] returns these bytes, without
//! copying them, if the value is unchanged. Otherwise it starts from them and edits the differences; the TCP checksum
//! is then updated by the difference of the headers (RFC 1624), and the payload is not read.
//!
//! A translator of addresses calls [`Packet::readdress`]: within an IP version the received IP header stays, and between IP
//! versions the TCP header.

use core::net::IpAddr;

use bytes::{BufMut, Bytes, BytesMut};

use crate::checksum::{Cover, checksum, updated};
use crate::options::{END, NO_OPERATION, OptionList, RawOption};
use crate::parse::{Checksums, FLAGS_AT, IpHeader, RESERVED_FLAG, TCP};
use crate::{EmitError, Packet, ParseError, Payload, Segment, TcpOptions};

/// The bytes of a received packet.
///
/// They are used only while the packet is recognizably the same: with its original addresses or those of
/// [`Packet::readdress`], and, for TCP, ports, and for other protocols, payload. Otherwise the packet is emitted from its
/// value alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The packet from its IP header on, without link padding.
    bytes: Bytes,
    /// Bytes of the IP header with its options or extension headers.
    ip_len: usize,
    /// IPv4's identification: a device that segments a packet gives each segment its own.
    identification: u16,
    /// Whether the checksums were verified on parsing.
    is_verified: bool,
    /// The packet's current source and destination.
    ends: (IpAddr, IpAddr),
}

/// Offsets of the fields of an IPv4 header, in bytes (RFC 791 section 3.1).
mod v4 {
    use core::ops::Range;

    pub(super) const TRAFFIC_CLASS: usize = 1;
    pub(super) const TOTAL_LENGTH: Range<usize> = 2..4;
    pub(super) const IDENTIFICATION: Range<usize> = 4..6;
    pub(super) const FRAGMENT: Range<usize> = 6..8;
    pub(super) const TTL: usize = 8;
    pub(super) const CHECKSUM: Range<usize> = 10..12;
    pub(super) const ADDRESSES: Range<usize> = 12..20;
}

/// Offsets of the fields of an IPv6 header, in bytes (RFC 8200 section 3).
mod v6 {
    use core::ops::Range;

    pub(super) const FLOW_LABEL_LOW: Range<usize> = 2..4;
    pub(super) const PAYLOAD_LENGTH: Range<usize> = 4..6;
    pub(super) const HOP_LIMIT: usize = 7;
    pub(super) const ADDRESSES: Range<usize> = 8..40;
    pub(super) const LEN: usize = 40;
}

impl Packet {
    /// Parses one IP packet as [`Packet::parse_with`] does, and keeps the bytes for forwarding: while the value is
    /// unchanged, [`Packet::emit`] returns the same bytes, without link padding. With [`Checksums::Ignore`] it computes
    /// the checksums, which an offloading device may not have filled in.
    pub fn parse_to_forward(bytes: Bytes, checksums: Checksums) -> Result<Self, ParseError> {
        let mut packet = Self::parse_with(bytes.clone(), checksums)?;
        packet.received = Some(Box::new(Received::new(bytes, checksums == Checksums::Verify)?));
        Ok(packet)
    }

    /// IPv4's identification of a forwarded packet; `None` for IPv6 and for packets generated here.
    pub fn identification(&self) -> Option<u16> {
        self.received.as_ref().filter(|came| self.dst.is_ipv4() && came.is_v4()).map(|received| received.identification)
    }

    /// Sets the identification of a forwarded packet, as segmentation does for each segment. Has no effect if
    /// [`Packet::identification`] is `None`.
    pub fn set_identification(&mut self, identification: u16) {
        if let Some(received) = &mut self.received {
            received.identification = identification;
        }
    }

    /// Replaces the addresses, by those of either IP version, as a translator does. The rest stays as it came: in the same IP version
    /// everything, in the other one the bytes behind the IP header (RFC 7915 drops IPv4's options and IPv6's extension headers). Checksums
    /// are updated. The checksums of fragments and of [`Payload::Other`] stay.
    #[must_use]
    pub fn readdress(mut self, src: IpAddr, dst: IpAddr) -> Self {
        let is_tcp = matches!(self.payload, Payload::Tcp(_));
        self.received = match self.received.take() {
            Some(mut came)
                if came.is_of(&self) && src.is_ipv4() == dst.is_ipv4() && (is_tcp || came.is_v4() == dst.is_ipv4()) =>
            {
                came.ends = (src, dst);
                Some(came)
            }
            _ => None,
        };
        (self.src, self.dst) = (src, dst);
        self
    }

    /// Whether two received TCP segments have the same options and the same IP header except lengths, identification,
    /// hop limit, traffic class and checksum: then they may be merged if their values allow it.
    pub fn has_header_of(&self, other: &Self) -> bool {
        match (self.as_received(), other.as_received()) {
            (None, None) => true,
            (Some(one), Some(two)) => one.is_like(two),
            _ => false,
        }
    }

    /// The received bytes, if they may still be used.
    pub(crate) fn as_received(&self) -> Option<&Received> {
        self.received.as_deref().filter(|received| received.is_of(self))
    }
}

impl Received {
    fn new(mut bytes: Bytes, is_verified: bool) -> Result<Self, ParseError> {
        let ip = IpHeader::parse(&bytes, Checksums::Ignore)?;
        bytes.truncate(ip.payload_end);
        let identification = if ip.dst.is_ipv4() { read_u16(&bytes, v4::IDENTIFICATION.start) } else { 0 };
        Ok(Self { bytes, ip_len: ip.payload_start, identification, is_verified, ends: (ip.src, ip.dst) })
    }

    fn is_v4(&self) -> bool {
        self.bytes[0] >> 4 == 4
    }

    /// Whether the packet is still of the IP version in which it came, so that its IP header may be used.
    pub(crate) fn keeps_ip(&self) -> bool {
        self.is_v4() == self.ends.1.is_ipv4()
    }

    /// Bytes of the received IP header with its options or extension headers; `None` in the other IP version.
    pub(crate) fn ip_len(&self) -> Option<usize> {
        self.keeps_ip().then_some(self.ip_len)
    }

    /// The addresses of the received IP header.
    fn came_between(&self) -> &[u8] {
        &self.bytes[if self.is_v4() { v4::ADDRESSES } else { v6::ADDRESSES }]
    }

    fn is_readdressed(&self) -> bool {
        let (addresses, len) = octets(self.ends);
        self.came_between() != &addresses[..len]
    }

    /// Everything behind the IP header, if `payload`, which is not TCP, may be sent unchanged: its checksum is known to
    /// be right, or absent. Otherwise the payload is emitted from its value.
    pub(crate) fn upper(&self, payload: &Payload) -> Option<Bytes> {
        let upper = &self.bytes[self.ip_len..];
        let is_complete = match payload {
            Payload::Udp(_) if upper.get(6..8) == Some(&[0, 0]) => true,
            Payload::Esp(_) | Payload::Encrypted(_) | Payload::Fragment(_) | Payload::Other { .. } => true,
            // ICMP's checksum does not cover IPv4's addresses.
            Payload::IcmpError(_) | Payload::IcmpEcho(_) if self.is_v4() => self.is_verified,
            _ => self.is_verified && !self.is_readdressed(),
        };
        (is_complete && self.keeps_ip()).then(|| self.bytes.slice(self.ip_len..))
    }

    /// Whether a value matches these bytes, except for fields that may be edited.
    fn is_of(&self, packet: &Packet) -> bool {
        if self.ends != (packet.src, packet.dst) {
            return false;
        }
        let Ok(ip) = IpHeader::parse(&self.bytes, Checksums::Ignore) else { return false };
        match &packet.payload {
            Payload::Tcp(segment) => {
                let header = self.tcp_header();
                let ports = (segment.src_port, segment.dst_port);
                ip.protocol == TCP
                    && ip.fragment.is_none()
                    && header.len() >= Segment::HEADER_LEN
                    && (read_u16(header, 0), read_u16(header, 2)) == ports
            }
            payload => {
                Packet::parse_with(self.bytes.clone(), Checksums::Ignore).is_ok_and(|came| came.payload == *payload)
            }
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        let (one, two) = (&self.bytes, &other.bytes);
        if self.ip_len() != other.ip_len() || one[0] != two[0] {
            return false;
        }
        let same = |range: core::ops::Range<usize>| one[range.clone()] == two[range];
        let same_ip = if !self.keeps_ip() {
            true
        } else if one[0] >> 4 == 4 {
            same(v4::FRAGMENT) && same(v4::ADDRESSES.start..self.ip_len)
        } else {
            one[1] & 0xf == two[1] & 0xf && same(v6::FLOW_LABEL_LOW) && same(v6::ADDRESSES.start..self.ip_len)
        };
        let (one, two) = (self.tcp_header(), other.tcp_header());
        let reserved = |header: &[u8]| header.get(12).map(|byte| byte & !1);
        same_ip && reserved(one) == reserved(two) && one.get(Segment::HEADER_LEN..) == two.get(Segment::HEADER_LEN..)
    }

    /// The TCP header with its options; empty if it is not whole.
    pub(crate) fn tcp_header(&self) -> &[u8] {
        let upper = &self.bytes[self.ip_len..];
        let len = upper.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
        upper.get(..len).unwrap_or_default()
    }

    /// Bytes of the TCP header if it carries these options.
    pub(crate) fn tcp_header_len(&self, options: &TcpOptions) -> usize {
        let mut out = [0; MAX_EDITED_LEN];
        Segment::HEADER_LEN + self.edit_options(options, &mut out)
    }

    /// Appends the received IP header ([`Self::keeps_ip`]) with the changes in `packet`, which has `upper_len` bytes behind it.
    /// Returns the bytes of the whole.
    pub(crate) fn put_ip(&self, packet: &Packet, upper_len: usize, buf: &mut BytesMut) -> Result<usize, EmitError> {
        let len = self.ip_len + upper_len;
        let start = buf.len();
        let is_v4 = packet.dst.is_ipv4();
        let (counted, max) =
            if is_v4 { (len, usize::from(u16::MAX)) } else { (len - v6::LEN, usize::from(u16::MAX) + v6::LEN) };
        let length = u16::try_from(counted).map_err(|_| EmitError::TooLong { len, max })?;
        buf.put_slice(&self.bytes[..self.ip_len]);
        let header = &mut buf[start..];
        if is_v4 {
            header[v4::TRAFFIC_CLASS] = packet.traffic_class;
            header[v4::TTL] = packet.ttl;
            header[FLAGS_AT] = header[FLAGS_AT] & !RESERVED_FLAG | if packet.reserved_flag { RESERVED_FLAG } else { 0 };
            header[v4::TOTAL_LENGTH].copy_from_slice(&length.to_be_bytes());
            header[v4::IDENTIFICATION].copy_from_slice(&self.identification.to_be_bytes());
            let (addresses, addresses_len) = octets(self.ends);
            header[v4::ADDRESSES].copy_from_slice(&addresses[..addresses_len]);
            if !self.is_verified || header[..] != self.bytes[..self.ip_len] {
                header[v4::CHECKSUM].fill(0);
                let sum = checksum(Cover::Plain, header, &[]);
                header[v4::CHECKSUM].copy_from_slice(&sum.to_be_bytes());
            }
        } else {
            header[0] = 0x60 | packet.traffic_class >> 4;
            header[1] = packet.traffic_class << 4 | header[1] & 0xf;
            header[v6::HOP_LIMIT] = packet.ttl;
            header[v6::ADDRESSES].copy_from_slice(&octets(self.ends).0);
            header[v6::PAYLOAD_LENGTH].copy_from_slice(&length.to_be_bytes());
        }
        Ok(len)
    }

    /// The received bytes, if `packet` is unchanged and their checksums are known to be right.
    pub(crate) fn unchanged(&self, packet: &Packet) -> Option<Bytes> {
        let is_same = !self.is_readdressed()
            && self.has_ip_header_of(packet)
            && match &packet.payload {
                Payload::Tcp(segment) => {
                    self.is_verified && self.has_payload(&segment.payload) && self.has_tcp_header_of(segment)
                }
                payload => (self.is_verified || packet.dst.is_ipv6()) && self.upper(payload).is_some(),
            };
        is_same.then(|| self.bytes.clone())
    }

    /// Whether the editable fields of the IP header are unchanged.
    fn has_ip_header_of(&self, packet: &Packet) -> bool {
        let header = &self.bytes[..self.ip_len];
        if packet.dst.is_ipv4() {
            header[v4::TRAFFIC_CLASS] == packet.traffic_class
                && header[v4::TTL] == packet.ttl
                && (header[FLAGS_AT] & RESERVED_FLAG != 0) == packet.reserved_flag
                && read_u16(header, v4::IDENTIFICATION.start) == self.identification
        } else {
            (header[0] << 4 | header[1] >> 4) == packet.traffic_class && header[v6::HOP_LIMIT] == packet.ttl
        }
    }

    fn has_tcp_header_of(&self, segment: &Segment) -> bool {
        let header = self.tcp_header();
        let control = u16::from_be_bytes([header[12] & 1, header[13]]);
        let options = self.bytes.slice_ref(&header[Segment::HEADER_LEN..]);
        (read_u32(header, 4), read_u32(header, 8)) == (segment.seq.value(), segment.ack.value())
            && (control, read_u16(header, 14), read_u16(header, 18))
                == (segment.flags.bits(), segment.window, segment.urgent)
            && TcpOptions::parse(&options, 0, options.len()) == segment.options
    }

    /// Whether a segment's payload is the received one. Usually it is a slice of these bytes, and needs no comparison.
    fn has_payload(&self, payload: &[u8]) -> bool {
        let came = &self.bytes[self.ip_len + self.tcp_header().len()..];
        came.len() == payload.len() && (core::ptr::eq(came, payload) || came == payload)
    }

    /// The checksum of a TCP header, whose checksum field is zero, before `payload`: the received one, updated by the
    /// difference of the headers and addresses. `None` if the payload differs, or the received checksum was not verified.
    pub(crate) fn tcp_checksum(&self, header: &[u8], payload: &[u8]) -> Option<u16> {
        if !(self.is_verified && self.has_payload(payload)) {
            return None;
        }
        let came = self.tcp_header();
        let sum = read_u16(came, 16);
        // Ones' complement has two zeros, and the received checksum may be the other one.
        let is_same = came.len() == header.len() && came[..16] == header[..16] && came[18..] == header[18..];
        let (addresses, len) = octets(self.ends);
        let (from, to) = (self.came_between(), &addresses[..len]);
        if is_same && from == to {
            return Some(sum);
        }
        // The pseudo header includes the segment's length. `put_ip` refuses segments of 2^16 bytes or more.
        let [was, is] = [came, header].map(|header| (header.len() + payload.len()) as u16);
        Some(updated(sum, &[&came[..16], &came[18..], &was.to_be_bytes(), from], &[header, &is.to_be_bytes(), to]))
    }

    /// Writes TCP options: the received bytes if the value is the same, else with the differences. Returns their
    /// length, which is too long for a header if it is above [`Segment::MAX_OPTIONS_LEN`].
    pub(crate) fn edit_options(&self, options: &TcpOptions, out: &mut [u8; MAX_EDITED_LEN]) -> usize {
        let came = self.bytes.slice_ref(&self.tcp_header()[Segment::HEADER_LEN..]);
        if TcpOptions::parse(&came, 0, came.len()) == *options {
            out[..came.len()].copy_from_slice(&came);
            return came.len();
        }
        edit_options(&came, options, out)
    }
}

/// Room for the received options and for those that a value adds.
pub(crate) const MAX_EDITED_LEN: usize = 2 * Segment::MAX_OPTIONS_LEN + 4;

/// Writes the received options with the values of `options`, each in its place; removed options become padding, and new
/// ones follow. Options of unknown kinds stay. Returns the length, a multiple of 4.
fn edit_options(came: &Bytes, options: &TcpOptions, out: &mut [u8; MAX_EDITED_LEN]) -> usize {
    let mut rest = options.clone();
    let mut at = 0;
    for option in OptionList::new(came) {
        let raw = option.bytes();
        let place = &mut out[at..at + raw.len()];
        place.copy_from_slice(raw);
        if matches!(option, RawOption::Option(_)) && TcpOptions::knows(raw) && !rest.take_into(place) {
            place.fill(NO_OPERATION);
        }
        at += raw.len();
    }
    if !rest.is_empty() {
        at = trimmed(&out[..at]);
        let mut added = [0; Segment::MAX_OPTIONS_LEN];
        // Its words are aligned to 4 bytes.
        out[at..at.next_multiple_of(4)].fill(NO_OPERATION);
        at = at.next_multiple_of(4);
        if rest.wire_len() > added.len() {
            return MAX_EDITED_LEN;
        }
        let len = rest.write(&mut added);
        out[at..at + len].copy_from_slice(&added[..len]);
        at += len;
    }
    out[at..at.next_multiple_of(4)].fill(END);
    at.next_multiple_of(4)
}

/// The length of options up to the end of the last whole one.
fn trimmed(options: &[u8]) -> usize {
    let used = OptionList::new(options).fold((0, 0), |(at, used), option| {
        let end = at + option.bytes().len();
        (end, if matches!(option, RawOption::Option(_)) { end } else { used })
    });
    used.1
}

/// Two addresses of one IP version as in its header, with their number of bytes.
fn octets(ends: (IpAddr, IpAddr)) -> ([u8; 32], usize) {
    let mut bytes = [0; 32];
    match ends {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            bytes[..4].copy_from_slice(&src.octets());
            bytes[4..8].copy_from_slice(&dst.octets());
            (bytes, 8)
        }
        (src, dst) => {
            let v6 = |address| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            bytes[..16].copy_from_slice(&v6(src).octets());
            bytes[16..].copy_from_slice(&v6(dst).octets());
            (bytes, 32)
        }
    }
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from(read_u16(bytes, at)) << 16 | u32::from(read_u16(bytes, at + 2))
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
