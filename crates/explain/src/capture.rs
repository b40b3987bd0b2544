//! Reading pcapng and pcap files, Holdover's own and others'.

use bytes::{Bytes, BytesMut};
use holdover_base::Instant;
use holdover_wire::{Checksums, Packet};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

/// A packet of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// When it was captured, counted from the capture's own zero: 1970 in most, the start of the run in a simulator's.
    pub at: Instant,
    /// The packet. Data that the capture left out is zeros.
    pub packet: Packet,
}

/// A capture in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Its IP packets, in the order of the file.
    pub packets: Vec<Captured>,
    /// Packets that are not IP, or are malformed.
    pub skipped: u64,
    /// The file ends in the middle of a packet.
    pub cut_short: bool,
}

/// Why a capture could not be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CaptureReadError {
    /// Neither pcapng nor pcap.
    #[error("this is neither a pcapng nor a pcap file")]
    NotACapture,
    /// It is one, but damaged.
    #[error("the capture is damaged {position} bytes into the file: {reason}")]
    Damaged {
        /// Where, in bytes.
        position: usize,
        /// What the parser said.
        reason: String,
    },
    /// Packets of an interface that carries neither IP nor Ethernet.
    #[error("link type {0} is not supported; captures of IP, Ethernet and Linux cooked interfaces are")]
    LinkType(i32),
}

/// An interface of a capture: its link type and its clock.
#[derive(Clone, Copy)]
struct Source {
    link: Linktype,
    ticks_per_second: u64,
    offset_seconds: i64,
}

/// Reads a whole capture.
pub fn read_capture(data: &[u8]) -> Result<Contents, CaptureReadError> {
    let mut reader = create_reader(65_536, data).map_err(|_| CaptureReadError::NotACapture)?;
    let mut contents = Contents::default();
    let mut sources: Vec<Source> = Vec::new();
    let mut grown = false;
    loop {
        match reader.next() {
            Ok((consumed, block)) => {
                grown = false;
                take_block(&block, &mut sources, &mut contents)?;
                reader.consume(consumed);
            }
            Err(PcapError::Eof) => return Ok(contents),
            Err(PcapError::UnexpectedEof) if !sources.is_empty() => {
                contents.cut_short = true;
                return Ok(contents);
            }
            Err(PcapError::Incomplete(needed)) => {
                if grown && reader.reader_exhausted() {
                    contents.cut_short = true;
                    return Ok(contents);
                }
                grown = true;
                let _ = reader.grow(needed.max(65_536) + 262_144);
                if reader.refill().is_err() {
                    contents.cut_short = true;
                    return Ok(contents);
                }
            }
            Err(error) => {
                let reason = format!("{:?}", without_input(error));
                return Err(CaptureReadError::Damaged { position: reader.position(), reason });
            }
        }
    }
}

/// The parser's errors hold what they could not parse; a message needs only the kind.
fn without_input(error: PcapError<&[u8]>) -> PcapError<()> {
    match error {
        PcapError::Eof => PcapError::Eof,
        PcapError::BufferTooSmall => PcapError::BufferTooSmall,
        PcapError::UnexpectedEof => PcapError::UnexpectedEof,
        PcapError::ReadError => PcapError::ReadError,
        PcapError::Incomplete(needed) => PcapError::Incomplete(needed),
        PcapError::HeaderNotRecognized => PcapError::HeaderNotRecognized,
        PcapError::NomError(_, kind) | PcapError::OwnedNomError(_, kind) => PcapError::NomError((), kind),
    }
}

fn take_block(
    block: &PcapBlockOwned<'_>,
    sources: &mut Vec<Source>,
    contents: &mut Contents,
) -> Result<(), CaptureReadError> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let ticks_per_second = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            sources.push(Source { link: header.network, ticks_per_second, offset_seconds: 0 });
        }
        PcapBlockOwned::Legacy(packet) => {
            if let Some(source) = sources.first() {
                let nanos = u64::from(packet.ts_sec) * 1_000_000_000
                    + u64::from(packet.ts_usec) * (1_000_000_000 / source.ticks_per_second);
                take_packet(source, Instant::from_nanos(nanos), packet.data, packet.origlen, contents)?;
            }
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => sources.clear(),
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => sources.push(Source {
            link: interface.linktype,
            ticks_per_second: interface.ts_resolution().unwrap_or(1_000_000),
            offset_seconds: interface.if_tsoffset,
        }),
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let Some(source) = sources.get(packet.if_id as usize).copied() else {
                contents.skipped += 1;
                return Ok(());
            };
            let ticks = u128::from(packet.ts_high) << 32 | u128::from(packet.ts_low);
            let nanos = ticks * 1_000_000_000 / u128::from(source.ticks_per_second.max(1));
            let nanos = i128::try_from(nanos).unwrap_or(i128::MAX) + i128::from(source.offset_seconds) * 1_000_000_000;
            let at = Instant::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX));
            let captured = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
            take_packet(&source, at, captured, packet.origlen, contents)?;
        }
        PcapBlockOwned::NG(_) => {}
    }
    Ok(())
}

fn take_packet(
    source: &Source,
    at: Instant,
    captured: &[u8],
    original_len: u32,
    contents: &mut Contents,
) -> Result<(), CaptureReadError> {
    let Some(header_len) = link_header_len(source.link, captured)? else {
        contents.skipped += 1;
        return Ok(());
    };
    let Some(ip) = captured.get(header_len..) else {
        contents.skipped += 1;
        return Ok(());
    };
    // What a snap length cut off was data: as zeros it keeps its length, and nobody here looks at its bytes.
    let original_len = (original_len as usize).saturating_sub(header_len).clamp(ip.len(), 262_144);
    let mut bytes = BytesMut::with_capacity(original_len);
    bytes.extend_from_slice(ip);
    bytes.resize(original_len, 0);
    match Packet::parse_with(Bytes::from(bytes), Checksums::Ignore) {
        Ok(packet) => contents.packets.push(Captured { at, packet }),
        Err(_) => contents.skipped += 1,
    }
    Ok(())
}

/// Bytes before the IP header; `None` if there is no IP behind them.
fn link_header_len(link: Linktype, data: &[u8]) -> Result<Option<usize>, CaptureReadError> {
    const ETHERTYPES_IP: [u16; 2] = [0x0800, 0x86dd];
    const ETHERTYPES_VLAN: [u16; 2] = [0x8100, 0x88a8];
    let ethertype = |at: usize| data.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    match link.0 {
        // LINKTYPE_RAW, LINKTYPE_IPV4, LINKTYPE_IPV6, and what BSDs write for raw IP.
        101 | 228 | 229 | 12 | 14 => Ok(Some(0)),
        // LINKTYPE_ETHERNET.
        1 => {
            let mut at = 12;
            while ethertype(at).is_some_and(|kind| ETHERTYPES_VLAN.contains(&kind)) {
                at += 4;
            }
            Ok(ethertype(at).filter(|kind| ETHERTYPES_IP.contains(kind)).map(|_| at + 2))
        }
        // LINKTYPE_LINUX_SLL and LINKTYPE_LINUX_SLL2.
        113 => Ok(ethertype(14).filter(|kind| ETHERTYPES_IP.contains(kind)).map(|_| 16)),
        276 => Ok(ethertype(0).filter(|kind| ETHERTYPES_IP.contains(kind)).map(|_| 20)),
        other => Err(CaptureReadError::LinkType(other)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use holdover_wire::pcapng::{Interface, Record, Writer};
    use holdover_wire::{Flags, Segment};
    use proptest::prelude::*;

    use super::*;

    fn packet(len: usize) -> Packet {
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let payload = Bytes::from(vec![7; len]);
        Packet::new(
            ip(1),
            ip(2),
            Segment { src_port: 1, dst_port: 2, flags: Flags::ACK, payload, ..Segment::default() },
        )
    }

    fn capture(snap_len: Option<u32>, packets: &[(u64, usize)]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), "test").unwrap();
        let interface = writer.add_interface(&Interface { snap_len, ..Interface::new("a") }).unwrap();
        for &(millis, len) in packets {
            let record = Record::new(Instant::from_millis(millis), interface);
            writer.write(&record, &packet(len)).unwrap();
        }
        writer.into_inner()
    }

    #[test]
    fn our_own_captures_are_read_back_cut_short_or_not() {
        for snap_len in [None, Some(96)] {
            let contents = read_capture(&capture(snap_len, &[(5, 1000), (7, 0)])).unwrap();
            assert_eq!((contents.packets.len(), contents.skipped, contents.cut_short), (2, 0, false));
            assert_eq!(contents.packets[0].at, Instant::from_millis(5));
            assert_eq!(contents.packets[0].packet.tcp().unwrap().payload.len(), 1000);
        }
    }

    #[test]
    fn what_is_no_capture_is_refused_and_a_torn_one_is_read_as_far_as_it_goes() {
        assert_eq!(read_capture(b"hello, this is not a capture"), Err(CaptureReadError::NotACapture));
        assert_eq!(read_capture(b""), Err(CaptureReadError::NotACapture));
        let whole = capture(None, &[(1, 500), (2, 500)]);
        let torn = read_capture(&whole[..whole.len() - 100]).unwrap();
        assert_eq!((torn.packets.len(), torn.cut_short), (1, true));
    }

    #[test]
    fn ethernet_and_vlan_headers_are_passed_over() {
        let mut frame = vec![0; 12];
        frame.extend([0x81, 0x00, 0, 5, 0x08, 0x00]);
        assert_eq!(link_header_len(Linktype(1), &frame), Ok(Some(18)));
        frame[16..18].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(link_header_len(Linktype(1), &frame), Ok(None));
        assert_eq!(link_header_len(Linktype(147), &frame), Err(CaptureReadError::LinkType(147)));
    }

    proptest! {
        #[test]
        fn damaged_captures_never_panic(at in 0_usize..400, value: u8, cut in 0_usize..600) {
            let mut data = capture(None, &[(1, 100), (2, 100)]);
            let len = data.len();
            data[at % len] = value;
            data.truncate(cut.min(len));
            let _ = read_capture(&data);
        }
    }
}
