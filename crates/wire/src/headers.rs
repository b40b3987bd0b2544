//! TCP headers from captures that may hold nothing more.

use core::net::IpAddr;

use bytes::Bytes;

use crate::parse::{FragmentHeader, IpHeader, TCP};
use crate::{Flags, Layer, ParseError, Segment, Seq, TcpOptions};

/// The headers of a TCP segment, and the length of its data. The data itself is opaque and may be missing.
///
/// Checksums are not verified: they cover data that may be missing, and captures of outgoing packets precede checksum
/// offload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpHeaders {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// The identification of an IPv4 header; `None` for IPv6.
    pub id: Option<u16>,
    /// The segment without its payload, and without options that the capture cut off.
    pub segment: Segment,
    /// Bytes of data that the segment had on the wire.
    pub payload_len: u32,
}

impl TcpHeaders {
    /// Bytes of a packet that [`TcpHeaders::parse`] usually needs: an IPv6 and a TCP header with all options, and room
    /// for extension headers.
    pub const ENOUGH: usize = 256;

    /// Parses the headers of an IP packet of `original_len` bytes; `captured` is its beginning.
    ///
    /// `None` for fragments and for protocols other than TCP. A length field of zero stands for `original_len`: the
    /// packet is larger than the field can express (RFC 2675, and Linux's segmentation offload).
    ///
    /// # Errors
    ///
    /// A header is malformed, or ends before the fixed 20 bytes of the TCP header do.
    pub fn parse(captured: &[u8], original_len: usize) -> Result<Option<Self>, ParseError> {
        let mut patched = Vec::new();
        let captured = match without_length(captured) {
            true => {
                patched.extend_from_slice(captured);
                set_length(&mut patched, original_len);
                patched.as_slice()
            }
            false => captured,
        };
        let ip = IpHeader::parse_quoted(captured)?;
        if ip.protocol != TCP || ip.fragment.is_some_and(FragmentHeader::is_part) {
            return Ok(None);
        }
        let packet_len = if patched.is_empty() { announced_len(captured) } else { original_len };
        let bytes = &captured[ip.payload_start..ip.payload_end];
        if bytes.len() < Segment::HEADER_LEN {
            let (needed, have) = (Segment::HEADER_LEN, bytes.len());
            return Err(ParseError::Truncated { layer: Layer::Tcp, needed, have });
        }
        let header_len = 4 * usize::from(bytes[12] >> 4);
        let header_end = ip.payload_start + header_len;
        if header_len < Segment::HEADER_LEN || header_end > packet_len {
            return Err(ParseError::HeaderLength { layer: Layer::Tcp, len: header_len });
        }
        let id = ip.src.is_ipv4().then(|| be16(captured, 4));
        Ok(Some(Self {
            src: ip.src,
            dst: ip.dst,
            id,
            segment: segment(&bytes[..header_len.min(bytes.len())]),
            payload_len: u32::try_from(packet_len - header_end).unwrap_or(u32::MAX),
        }))
    }
}

/// The segment whose header is `header`, at least its fixed part.
fn segment(header: &[u8]) -> Segment {
    let be32 = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let options = match header.len() {
        Segment::HEADER_LEN => TcpOptions::default(),
        len => TcpOptions::parse(&Bytes::copy_from_slice(header), Segment::HEADER_LEN, len),
    };
    Segment {
        src_port: be16(header, 0),
        dst_port: be16(header, 2),
        seq: Seq::new(be32(4)),
        ack: Seq::new(be32(8)),
        flags: Flags::from_bits_truncate(u16::from_be_bytes([header[12] & 1, header[13]])),
        window: be16(header, 14),
        urgent: be16(header, 18),
        options,
        payload: Bytes::new(),
    }
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The position of an IP header's length field, and the bytes that it does not count.
fn length_field(packet: &[u8]) -> Option<(usize, usize)> {
    match packet.first()? >> 4 {
        4 if packet.len() >= 20 => Some((2, 0)),
        6 if packet.len() >= 40 => Some((4, 40)),
        _ => None,
    }
}

fn without_length(packet: &[u8]) -> bool {
    length_field(packet).is_some_and(|(at, _)| be16(packet, at) == 0)
}

fn set_length(packet: &mut [u8], packet_len: usize) {
    if let Some((at, uncounted)) = length_field(packet) {
        let len = u16::try_from(packet_len.saturating_sub(uncounted)).unwrap_or(u16::MAX);
        packet[at..at + 2].copy_from_slice(&len.to_be_bytes());
    }
}

fn announced_len(packet: &[u8]) -> usize {
    length_field(packet).map_or(packet.len(), |(at, uncounted)| usize::from(be16(packet, at)) + uncounted)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;
    use crate::{Packet, RareOptions, Timestamps};

    fn packet(v6: bool, len: usize) -> (Packet, Vec<u8>) {
        let ip =
            |last: u16| if v6 { IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]) } else { [10, 0, 0, last as u8].into() };
        let options = TcpOptions {
            timestamps: Some(Timestamps { val: 5, ecr: 6 }),
            ..RareOptions { window_scale: Some(7), ..RareOptions::default() }.into()
        };
        let segment = Segment {
            src_port: 1000,
            dst_port: 80,
            seq: Seq::new(7),
            ack: Seq::new(9),
            flags: Flags::ACK | Flags::PSH,
            window: 512,
            options,
            payload: Bytes::from(vec![3; len]),
            ..Segment::default()
        };
        let packet = Packet::new(ip(1), ip(2), segment);
        let mut bytes = BytesMut::new();
        packet.emit_prefix_into(&mut bytes, usize::MAX).unwrap();
        (packet, bytes.to_vec())
    }

    // Claim: A snapped segment gives the same headers as the whole one.
    #[test]
    fn a_truncated_capture_gives_the_same_headers() {
        for v6 in [false, true] {
            let (packet, bytes) = packet(v6, 1000);
            let whole = packet.tcp().unwrap();
            let header = bytes.len() - 1000;
            for kept in [header, header + 1, bytes.len()] {
                let heads = TcpHeaders::parse(&bytes[..kept], bytes.len()).unwrap().unwrap();
                assert_eq!((heads.src, heads.dst, heads.payload_len), (packet.src, packet.dst, 1000));
                assert_eq!(heads.segment, Segment { payload: Bytes::new(), ..whole.clone() });
            }
            // Without its options, and then without its ports.
            let bare = TcpHeaders::parse(&bytes[..header - 16], bytes.len()).unwrap().unwrap();
            assert_eq!(
                (bare.payload_len, bare.segment.seq, bare.segment.options),
                (1000, whole.seq, TcpOptions::default())
            );
            assert!(TcpHeaders::parse(&bytes[..header - 28], bytes.len()).is_err());
        }
    }

    #[test]
    fn a_length_of_zero_is_the_length_on_the_wire() {
        for v6 in [false, true] {
            let (_, mut bytes) = packet(v6, 100);
            let at = if v6 { 4 } else { 2 };
            bytes[at..at + 2].fill(0);
            let heads = TcpHeaders::parse(&bytes, bytes.len() + 150_000).unwrap().unwrap();
            assert_eq!(heads.payload_len, 150_100);
        }
    }

    #[test]
    fn padding_of_the_link_is_no_data_and_other_protocols_are_nothing() {
        let (_, mut bytes) = packet(false, 0);
        bytes.extend([0; 6]);
        assert_eq!(TcpHeaders::parse(&bytes, bytes.len()).unwrap().unwrap().payload_len, 0);
        bytes[9] = 17;
        assert_eq!(TcpHeaders::parse(&bytes, bytes.len()), Ok(None));
        bytes[9] = 6;
        bytes[6] = 0x20;
        assert_eq!(TcpHeaders::parse(&bytes, bytes.len()), Ok(None), "the first of several fragments");
    }

    proptest! {
        #[test]
        fn any_bytes_are_headers_or_an_error(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
            v6: bool,
            original_len in 0_usize..70_000,
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x45 };
            }
            let _ = TcpHeaders::parse(&bytes, original_len);
        }
    }
}
