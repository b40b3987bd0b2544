//! Checksum and segmentation offload of a TUN interface: the header before each packet, and the work that the kernel
//! leaves to this process.
//!
//! The kernel hands over one packet of up to 64 kB instead of many; [`segments`] cuts it, without copying, into the
//! packets that a network card would send. In the other direction, a [`Joiner`] merges segments of one connection that
//! arrive together into one packet, as a card's receive offload does, and leaves its checksum to the kernel.

use std::net::IpAddr;

use bytes::{Bytes, BytesMut};
use holdover_wire::{Checksums, EmitError, Flags, Packet, ParseError, Payload, Segment};

/// `struct virtio_net_hdr` of `linux/virtio_net.h`: the offloaded work of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Offload {
    flags: u8,
    gso_type: u8,
    /// Bytes of headers.
    hdr_len: u16,
    /// Bytes of payload in each segment; 0 for a single packet.
    gso_size: u16,
    /// Where the checksum's coverage begins.
    csum_start: u16,
    /// The offset of the checksum from there.
    csum_offset: u16,
}

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum field covers only the pseudo header so far.
const NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_F_DATA_VALID`: the kernel has verified the checksum.
const DATA_VALID: u8 = 2;
/// `VIRTIO_NET_HDR_GSO_NONE`.
const GSO_NONE: u8 = 0;
/// `VIRTIO_NET_HDR_GSO_TCPV4`.
const GSO_TCPV4: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_TCPV6`.
const GSO_TCPV6: u8 = 4;
/// The offset of TCP's checksum in its header.
const TCP_CHECKSUM: usize = 16;
/// The IP protocol number of TCP.
const TCP: u8 = 6;
/// The most bytes of a TCP header.
const MAX_TCP_HEADER_LEN: usize = Segment::HEADER_LEN + Segment::MAX_OPTIONS_LEN;
/// The least payload of a segment that is cut: with less, a packet of 64 kB would become too many, each of them mostly headers.
const LEAST_CUT: usize = 256;
/// Bytes of an IPv6 header without extension headers.
const IPV6_HEADER_LEN: usize = 40;

impl Offload {
    /// Bytes of the header before each packet.
    pub const LEN: usize = 10;

    /// Parses `struct virtio_net_hdr`; missing bytes are 0.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
        let pair = |index: usize| u16::from_ne_bytes([at(index), at(index + 1)]);
        Self {
            flags: at(0),
            gso_type: at(1),
            hdr_len: pair(2),
            gso_size: pair(4),
            csum_start: pair(6),
            csum_offset: pair(8),
        }
    }

    /// The same for a packet with this many more bytes of header in front.
    pub fn behind(self, header: u16) -> Self {
        let shift = |at: u16| if self.flags & NEEDS_CSUM == 0 && self.gso_type == GSO_NONE { at } else { at + header };
        Self { hdr_len: shift(self.hdr_len), csum_start: shift(self.csum_start), ..self }
    }

    /// The same for a packet without this many bytes of header in front.
    pub fn without(self, header: u16) -> Self {
        Self {
            hdr_len: self.hdr_len.saturating_sub(header),
            csum_start: self.csum_start.saturating_sub(header),
            ..self
        }
    }

    /// Fills in the checksum if the kernel has left it to this process.
    pub fn complete(self, packet: Bytes) -> Bytes {
        let (start, place) = (usize::from(self.csum_start), usize::from(self.csum_start + self.csum_offset));
        if self.flags & NEEDS_CSUM == 0 || packet.len() < place + 2 {
            return packet;
        }
        let mut bytes = packet.to_vec();
        let mut covered = bytes[start..].to_vec();
        if !covered.len().is_multiple_of(2) {
            covered.push(0);
        }
        let sum = !folded(sum_of(&covered));
        bytes[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        bytes.into()
    }

    /// The same except for TCP, whose checksums are computed when the packet is emitted.
    pub fn complete_unless_tcp(self, packet: Bytes) -> Bytes {
        if usize::from(self.csum_offset) == TCP_CHECKSUM { packet } else { self.complete(packet) }
    }

    /// Writes `struct virtio_net_hdr`.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        (bytes[0], bytes[1]) = (self.flags, self.gso_type);
        let pairs = [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset];
        for (place, value) in bytes[2..].chunks_exact_mut(2).zip(pairs) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }
}

/// The packets that a kernel's packet stands for, with the kernel's headers.
pub fn segments(offload: Offload, bytes: Bytes) -> Result<Segments, ParseError> {
    segments_with(offload, bytes, Checksums::Ignore)
}

/// The same for a packet that came from another host: its checksum is verified, unless the kernel has verified it or has left it to this
/// process. A packet that gets a new checksum must not be one that was damaged.
pub fn segments_from_network(offload: Offload, bytes: Bytes) -> Result<Segments, ParseError> {
    let is_valid = offload.flags & (NEEDS_CSUM | DATA_VALID) != 0;
    segments_with(offload, bytes, if is_valid { Checksums::Ignore } else { Checksums::Verify })
}

fn segments_with(offload: Offload, bytes: Bytes, checksums: Checksums) -> Result<Segments, ParseError> {
    let packet = Packet::parse_to_forward(bytes, checksums)?;
    let size = match &packet.payload {
        Payload::Tcp(segment) if offload.gso_type != GSO_NONE && segment.payload.len() > offload.gso_size.into() => {
            usize::from(offload.gso_size)
        }
        _ => 0,
    };
    Ok(Segments { rest: Some(packet), size, was_joined: size != 0, is_first: true })
}

/// The segments of one packet.
pub struct Segments {
    rest: Option<Packet>,
    /// Bytes of payload in each; 0 for a single packet.
    size: usize,
    /// Whether the kernel left the segmentation to this process.
    was_joined: bool,
    is_first: bool,
}

impl Segments {
    /// The packet to be segmented, before the first segment is taken.
    pub fn whole(&self) -> Option<&Packet> {
        self.rest.as_ref()
    }

    /// The bytes of the longest packet behind its IP header, if they are TCP segments that may be cut further, by [`Self::cut_to`]. Those with
    /// a signature, urgent data or SYN may not.
    pub fn divisible_len(&self) -> Option<usize> {
        let (headers, payload) = self.lens()?;
        Some(headers + if self.size == 0 { payload } else { payload.min(self.size) })
    }

    /// Cuts them so that none has more than `len` bytes behind its IP header. Does nothing if that leaves less than 256 bytes of payload in each.
    pub fn cut_to(mut self, len: usize) -> Self {
        if let Some((headers, payload)) = self.lens()
            && len >= headers + LEAST_CUT
        {
            self.size = (len - headers).min(if self.size == 0 { payload } else { self.size });
        }
        self
    }

    /// The bytes of TCP's header and of all payload, if it may be cut.
    fn lens(&self) -> Option<(usize, usize)> {
        let packet = self.rest.as_ref()?;
        let segment =
            packet.tcp().filter(|it| !it.options.is_signed && !it.flags.intersects(Flags::SYN | Flags::URG))?;
        let payload = segment.payload.len();
        (payload > 0).then(|| (packet.wire_len() - packet.ip_header_len() - payload, payload))
    }
}

impl Iterator for Segments {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        let size = self.size;
        let is_first = std::mem::replace(&mut self.is_first, false);
        let Some(Packet { payload: Payload::Tcp(whole), .. }) = &mut self.rest else { return self.rest.take() };
        // RFC 3168 section 6.1.2: once. In a single segment it may be a bit of Accurate ECN's counter, which each part repeats (RFC 9768
        // section 3.2.2).
        if !is_first && self.was_joined {
            whole.flags.remove(Flags::CWR);
        }
        if size == 0 || whole.payload.len() <= size {
            return self.rest.take();
        }
        let head = whole.payload.split_to(size);
        let mut packet = self.rest.clone()?;
        let Payload::Tcp(segment) = &mut packet.payload else { return None };
        segment.flags.remove(Flags::FIN | Flags::PSH);
        segment.payload = head;
        if let Some(rest) = &mut self.rest {
            if let Some(identification) = rest.identification() {
                rest.set_identification(identification.wrapping_add(1));
            }
            if let Payload::Tcp(whole) = &mut rest.payload {
                whole.seq += size as u32;
            }
        }
        Some(packet)
    }
}

/// Segments of one connection, merged into one packet for the kernel.
#[derive(Debug, Default)]
pub struct Joiner {
    first: Option<Packet>,
    /// The payloads, in order.
    payloads: Vec<Bytes>,
    len: usize,
    /// Whether the packet is complete: its last segment was short, or had PSH set.
    is_closed: bool,
    header: BytesMut,
    /// The rest of a packet that is not TCP; all of it, if the packet is unchanged.
    rest: Bytes,
}

/// A packet for the kernel.
pub struct Joined<'a> {
    /// The offloaded work.
    pub offload: Offload,
    /// Headers, and payloads.
    pub pieces: Vec<&'a [u8]>,
}

impl Joiner {
    /// The most bytes in one packet, headers included.
    const MOST: usize = 65_535;
    /// The most pieces in one `writev` (`IOV_MAX` is 1024).
    const MOST_PIECES: usize = 512;

    /// Whether no packet is pending.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Takes `packet` if it is the first one or continues the others; else returns it.
    pub fn push(&mut self, mut packet: Packet) -> Option<Packet> {
        if self.first.is_some() && !self.continues(&packet) {
            return Some(packet);
        }
        self.is_closed = true;
        if let Payload::Tcp(segment) = &mut packet.payload {
            let ends = Flags::FIN | Flags::PSH | Flags::SYN | Flags::RST | Flags::URG;
            let is_short = self.payloads.first().is_some_and(|first| segment.payload.len() < first.len());
            self.is_closed = is_short || segment.payload.is_empty() || segment.flags.intersects(ends);
            let payload = std::mem::take(&mut segment.payload);
            self.len += payload.len();
            self.payloads.push(payload);
            if let Some(Packet { payload: Payload::Tcp(first), .. }) = &mut self.first {
                first.flags |= segment.flags & (Flags::FIN | Flags::PSH);
                return None;
            }
        }
        self.first = Some(packet);
        None
    }

    fn continues(&self, packet: &Packet) -> bool {
        let Some(first) = self.first.as_ref().filter(|_| !self.is_closed) else { return false };
        let (Payload::Tcp(head), Payload::Tcp(next)) = (&first.payload, &packet.payload) else { return false };
        let size = self.payloads.first().map_or(0, Bytes::len);
        let same = |segment: &Segment| (segment.src_port, segment.dst_port, segment.ack, segment.window);
        let quiet = |flags: Flags| flags.difference(Flags::PSH | Flags::FIN);
        (first.src, first.dst, first.ttl, first.traffic_class, first.reserved_flag)
            == (packet.src, packet.dst, packet.ttl, packet.traffic_class, packet.reserved_flag)
            && same(head) == same(next)
            && quiet(head.flags) == quiet(next.flags)
            && head.options == next.options
            && first.has_header_of(packet)
            && next.seq == head.seq + self.len as u32
            && (1..=size).contains(&next.payload.len())
            && self.payloads.len() < Self::MOST_PIECES
            && first.ip_header_len() + MAX_TCP_HEADER_LEN + self.len + next.payload.len() <= Self::MOST
    }

    /// The merged packet for the kernel; `None` if there is none. [`Self::clear`] must follow.
    pub fn joined(&mut self) -> Result<Option<Joined<'_>>, EmitError> {
        let Some(first) = &self.first else { return Ok(None) };
        self.header.clear();
        self.rest = first.emit_pieces(&mut self.header)?;
        let mut offload = Offload::default();
        if let Payload::Tcp(_) = first.payload {
            // An unchanged segment without payload is one piece.
            self.header.extend_from_slice(&std::mem::take(&mut self.rest));
            let start = first.ip_header_len();
            lengthen(&mut self.header, first, self.len);
            offload.flags = NEEDS_CSUM;
            offload.csum_start = start as u16;
            offload.csum_offset = TCP_CHECKSUM as u16;
            if self.payloads.len() > 1 {
                offload.gso_type = if first.dst.is_ipv4() { GSO_TCPV4 } else { GSO_TCPV6 };
                offload.hdr_len = self.header.len() as u16;
                offload.gso_size = self.payloads[0].len() as u16;
            }
        }
        let payloads = self.payloads.iter().map(|payload| &payload[..]);
        let pieces = [&self.header[..], &self.rest[..]].into_iter().chain(payloads).filter(|piece| !piece.is_empty());
        Ok(Some(Joined { offload, pieces: pieces.collect() }))
    }

    /// Resets it for the next packet.
    pub fn clear(&mut self) {
        self.first = None;
        self.payloads.clear();
        self.rest = Bytes::new();
        (self.len, self.is_closed) = (0, false);
    }
}

/// Turns the headers of a packet without payload into those of one with `len` bytes, whose checksum covers only the
/// pseudo header.
fn lengthen(header: &mut [u8], packet: &Packet, len: usize) {
    let ip = packet.ip_header_len();
    let tcp_len = header.len() - ip + len;
    match packet.dst {
        IpAddr::V4(_) => {
            header[2..4].copy_from_slice(&((ip + tcp_len) as u16).to_be_bytes());
            header[10..12].fill(0);
            let sum = !folded(sum_of(&header[..ip]));
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        // The payload length counts extension headers.
        IpAddr::V6(_) => header[4..6].copy_from_slice(&((ip - IPV6_HEADER_LEN + tcp_len) as u16).to_be_bytes()),
    }
    let addresses = match (packet.src, packet.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => sum_of(&src.octets()) + sum_of(&dst.octets()),
        (IpAddr::V6(src), IpAddr::V6(dst)) => sum_of(&src.octets()) + sum_of(&dst.octets()),
        // `Packet::emit` refuses mixed address families.
        _ => 0,
    };
    let pseudo = folded(addresses + u32::from(TCP) + tcp_len as u32);
    header[ip + TCP_CHECKSUM..ip + TCP_CHECKSUM + 2].copy_from_slice(&pseudo.to_be_bytes());
}

/// The sum of 16-bit words (RFC 1071) of an even, small number of bytes.
fn sum_of(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
}

fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use holdover_wire::{Seq, TcpOptions, Timestamps, Udp};

    use super::*;

    #[test]
    fn wrong_checksums_of_the_network_are_refused() {
        let [src, dst] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse::<IpAddr>().unwrap());
        let udp = Udp { src_port: 1, dst_port: 2, payload: Bytes::from_static(b"data") };
        for packet in [packet(7, Flags::ACK, b"data"), Packet::new(src, dst, udp)] {
            let good = packet.emit().unwrap();
            let mut damaged = good.to_vec();
            *damaged.last_mut().unwrap() ^= 1;
            let damaged = Bytes::from(damaged);
            assert!(segments_from_network(Offload::default(), good).is_ok());
            assert!(matches!(segments_from_network(Offload::default(), damaged.clone()), Err(ParseError::Checksum(_))));
            for flags in [NEEDS_CSUM, DATA_VALID] {
                assert!(segments_from_network(Offload { flags, ..Offload::default() }, damaged.clone()).is_ok());
            }
        }
    }

    fn packet(seq: u32, flags: Flags, payload: &[u8]) -> Packet {
        let options = TcpOptions { timestamps: Some(Timestamps { val: 7, ecr: 8 }), ..TcpOptions::default() };
        let segment = Segment {
            src_port: 1000,
            dst_port: 2000,
            seq: Seq::new(seq),
            ack: Seq::new(5),
            flags,
            window: 512,
            options,
            payload: Bytes::copy_from_slice(payload),
            ..Segment::default()
        };
        Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), segment)
    }

    /// Segments the whole packet again, as the kernel would.
    fn cut_again(joiner: &mut Joiner) -> Vec<Packet> {
        let Joined { offload, pieces } = joiner.joined().unwrap().unwrap();
        assert_eq!(Offload::from_bytes(&offload.to_bytes()), offload);
        let packets = segments(offload, Bytes::from(pieces.concat())).unwrap().map(value).collect();
        joiner.clear();
        packets
    }

    fn value(packet: Packet) -> Packet {
        Packet { received: None, ..packet }
    }

    // Claim: Joined packets of the kernel are cut, and joined again, without a changed byte or checksum.
    // Tests: `offload::only_consecutive_segments_are_joined`, `offload::the_checksum_is_that_of_the_pseudo_header`
    #[test]
    fn joined_segments_are_cut_into_the_same_segments() {
        let near_the_end = u32::MAX - 1500;
        let parts = [
            packet(near_the_end, Flags::ACK, &[1; 1000]),
            packet(near_the_end.wrapping_add(1000), Flags::ACK, &[2; 1000]),
            packet(near_the_end.wrapping_add(2000), Flags::ACK | Flags::PSH | Flags::FIN, &[3; 10]),
        ];
        let mut joiner = Joiner::default();
        assert!(parts.iter().all(|part| joiner.push(part.clone()).is_none()));
        let more = packet(near_the_end.wrapping_add(2010), Flags::ACK, &[4; 10]);
        assert_eq!(joiner.push(more.clone()), Some(more));
        assert_eq!(cut_again(&mut joiner), parts);
        assert!(joiner.is_empty());
    }

    // Claim: TCP segments between programs that would exceed the path, up to 1,280 bytes, are cut into segments that fit it, as a network card
    // would, also those of IPv4 programs and of a proxy's hosts; those with SYN, urgent data or a signature are not, nor those that would keep
    // less than 256 bytes of payload.
    // Tests: `offload::packets_of_the_kernel_are_cut_to_a_shorter_length`,
    // `path_mtu::segments_of_programs_are_cut_where_they_would_leave_in_fragments`,
    // `path_mtu::segments_of_ipv4_programs_are_cut_as_those_of_others`, `proxy::segments_of_hosts_are_cut_to_fit_a_narrow_path`,
    // `narrow::full_packets_pass_a_link_of_1280_bytes_over_ipv4`
    #[test]
    fn segments_are_cut_to_a_shorter_length() {
        let header = 32;
        let of = |packet: &Packet| {
            let mut bytes = BytesMut::new();
            let rest = packet.emit_pieces(&mut bytes).unwrap();
            segments(Offload::default(), [&bytes[..], &rest].concat().into()).unwrap()
        };
        let whole = packet(7, Flags::ACK | Flags::PSH | Flags::FIN, &[1; 1000]);
        assert_eq!(of(&whole).divisible_len(), Some(header + 1000));
        let parts: Vec<Packet> = of(&whole).cut_to(header + 400).map(value).collect();
        let expected = [
            packet(7, Flags::ACK, &[1; 400]),
            packet(407, Flags::ACK, &[1; 400]),
            packet(807, Flags::ACK | Flags::PSH | Flags::FIN, &[1; 200]),
        ];
        assert_eq!(parts, expected);
        let more = of(&whole).cut_to(header + 400);
        assert_eq!(more.divisible_len(), Some(header + 400));
        assert_eq!(more.cut_to(header + LEAST_CUT).count(), 4);
        for len in [header + 1000, header + 2000, header + LEAST_CUT - 1, header, 0] {
            assert_eq!(of(&whole).cut_to(len).count(), 1, "{len}");
        }
        let mut signed = packet(7, Flags::ACK, &[1; 1000]);
        if let Payload::Tcp(segment) = &mut signed.payload {
            segment.options.is_signed = true;
        }
        for whole in [packet(7, Flags::SYN, &[1; 1000]), packet(7, Flags::URG | Flags::ACK, &[1; 1000]), signed] {
            let whole = Segments { rest: Some(whole), size: 0, was_joined: false, is_first: true };
            assert_eq!(whole.divisible_len(), None);
            assert_eq!(whole.cut_to(header + 400).count(), 1);
        }
        assert_eq!(of(&packet(7, Flags::ACK, &[])).divisible_len(), None);
    }

    /// Across the wrap of the sequence number, with CWR, as one packet of the kernel and as single segments.
    #[test]
    fn packets_of_the_kernel_are_cut_to_a_shorter_length() {
        let header = 32;
        let start = u32::MAX - 500;
        let part = |at: u32, flags, payload: &[u8]| packet(start.wrapping_add(at), flags, payload);
        let mut joiner = Joiner::default();
        let marked = Flags::ACK | Flags::CWR;
        for whole in [part(0, marked, &[1; 700]), part(700, marked | Flags::PSH, &[2; 500])] {
            assert_eq!(joiner.push(whole), None);
        }
        let Joined { offload, pieces } = joiner.joined().unwrap().unwrap();
        let bytes = Bytes::from(pieces.concat());
        let whole = || segments(offload, bytes.clone()).unwrap();
        assert_eq!(whole().divisible_len(), Some(header + 700));
        let parts: Vec<Packet> = whole().cut_to(header + 450).map(value).collect();
        let expected = [
            part(0, marked, &[1; 450]),
            part(450, Flags::ACK, &[&[1; 250][..], &[2; 200]].concat()),
            part(900, Flags::ACK | Flags::PSH, &[2; 300]),
        ];
        assert_eq!(parts, expected);
        for len in [header + 700, header + 2000, header + LEAST_CUT - 1] {
            assert_eq!(whole().cut_to(len).map(|it| it.tcp().unwrap().payload.len()).collect::<Vec<_>>(), [700, 500]);
        }
        let single = part(0, marked | Flags::ECE, &[1; 700]).emit().unwrap();
        let parts: Vec<Packet> =
            segments(Offload::default(), single).unwrap().cut_to(header + 400).map(value).collect();
        assert_eq!(parts, [(0, 400), (400, 300)].map(|(at, len)| part(at, marked | Flags::ECE, &vec![1; len])));
    }

    #[test]
    fn only_consecutive_segments_are_joined() {
        let first = packet(1, Flags::ACK, &[1; 100]);
        let mut others = vec![packet(102, Flags::ACK, &[2; 100]), packet(101, Flags::ACK, &[2; 101])];
        others.push(packet(101, Flags::ACK, &[]));
        others.push(packet(101, Flags::ACK | Flags::SYN, &[2; 100]));
        others.push(Packet { ttl: 3, ..packet(101, Flags::ACK, &[2; 100]) });
        let mut stamped = packet(101, Flags::ACK, &[2; 100]);
        if let Payload::Tcp(segment) = &mut stamped.payload {
            segment.options.timestamps = None;
        }
        others.push(stamped);
        let udp = Udp { src_port: 1000, dst_port: 2000, payload: Bytes::from_static(b"hello") };
        others.push(Packet::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), udp));
        for other in others {
            let mut joiner = Joiner::default();
            assert_eq!(joiner.push(first.clone()), None);
            assert_eq!(joiner.push(other.clone()), Some(other.clone()), "{other}");
            assert_eq!(cut_again(&mut joiner), std::slice::from_ref(&first));
            assert_eq!(joiner.push(other.clone()), None);
            assert_eq!(cut_again(&mut joiner), [other]);
        }
    }

    /// The kernel adds the data to the sum that it is given, and complements it.
    #[test]
    fn the_checksum_is_that_of_the_pseudo_header() {
        for v6 in [false, true] {
            let mut whole = packet(1, Flags::ACK, &[0xab; 300]);
            if v6 {
                whole.src = "fd00::1".parse().unwrap();
                whole.dst = "fd00::2".parse().unwrap();
            }
            let mut joiner = Joiner::default();
            joiner.push(whole.clone());
            let Joined { offload, pieces } = joiner.joined().unwrap().unwrap();
            let mut bytes = pieces.concat();
            let start = usize::from(offload.csum_start);
            let place = start + usize::from(offload.csum_offset);
            let sum = !folded(sum_of(&bytes[start..]));
            bytes[place..place + 2].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(bytes, whole.emit().unwrap());
        }
    }
}
