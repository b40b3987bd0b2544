use std::io::Write as _;
use std::net::IpAddr;

use bytes::Bytes;
use holdover_wire::pcapng::{Interface, Record, Writer};
use holdover_wire::{Flags, Packet, Segment};
use proptest::prelude::*;

use super::*;

fn packet(len: usize) -> Packet {
    let ip = |last| IpAddr::from([10, 0, 0, last]);
    let payload = Bytes::from(vec![7; len]);
    Packet::new(ip(1), ip(2), Segment { src_port: 1, dst_port: 2, flags: Flags::ACK, payload, ..Segment::default() })
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

/// The time and payload length of each packet, and the result at the end of the capture.
fn read(file: &[u8]) -> (Vec<(u64, u32)>, Result<(), CaptureReadError>) {
    let mut capture = match Capture::new(file) {
        Ok(capture) => capture,
        Err(error) => return (Vec::new(), Err(error)),
    };
    let mut packets = Vec::new();
    loop {
        match capture.next_packet() {
            Ok(Some(packet)) => {
                let headers = TcpHeaders::parse(packet.ip, packet.original_len).unwrap().unwrap();
                packets.push((packet.at.as_millis(), headers.payload_len));
            }
            Ok(None) => return (packets, Ok(())),
            Err(error) => return (packets, Err(error)),
        }
    }
}

fn zstd(data: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn our_own_captures_are_read_back_snapped_or_not_compressed_or_not() {
    for snap_len in [None, Some(96)] {
        let file = capture(snap_len, &[(5, 1000), (7, 0)]);
        for file in [file.clone(), gzip(&file), zstd(&file)] {
            assert_eq!(read(&file), (vec![(5, 1000), (7, 0)], Ok(())));
        }
    }
}

#[test]
fn compressed_files_may_have_several_parts() {
    let file = capture(None, &[(5, 1000), (7, 0), (9, 3)]);
    let (head, tail) = file.split_at(700);
    for file in [[gzip(head), gzip(tail)].concat(), [zstd(head), zstd(tail)].concat()] {
        assert_eq!(read(&file), (vec![(5, 1000), (7, 0), (9, 3)], Ok(())));
    }
}

#[test]
fn files_that_are_no_captures_are_refused() {
    assert_eq!(read(b"hello, this is not a capture").1, Err(CaptureReadError::NotACapture));
    assert_eq!(read(b"").1, Err(CaptureReadError::NotACapture));
    assert_eq!(read(&gzip(b"hello, this is not a capture")).1, Err(CaptureReadError::NotACapture));
    assert!(matches!(read(&[0x1f, 0x8b, 9, 9, 9, 9]).1, Err(CaptureReadError::Io { .. })));
}

#[test]
fn packets_before_the_damage_are_kept_and_its_position_is_reported() {
    let whole = capture(None, &[(1, 500), (2, 500), (3, 500)]);
    let one = capture(None, &[(1, 500)]).len();
    let two = capture(None, &[(1, 500), (2, 500)]).len();
    let (packets, end) = read(&whole[..two + 100]);
    assert_eq!((packets.len(), end), (2, Err(CaptureReadError::CutShort { position: two as u64, compressed: false })));

    let mut damaged = whole.clone();
    damaged[one + 4..one + 8].fill(0xff);
    let (packets, end) = read(&damaged);
    assert_eq!(packets.len(), 1);
    assert!(
        matches!(end, Err(CaptureReadError::CutShort { position, .. } | CaptureReadError::Damaged { position, .. })
        if position == one as u64),
        "{end:?}"
    );

    let torn = gzip(&whole);
    let (packets, end) = read(&torn[..torn.len() - 12]);
    assert!(packets.len() <= 3);
    assert!(matches!(end, Err(CaptureReadError::Damaged { compressed: true, .. })), "{end:?}");
}

#[test]
fn a_block_that_claims_to_be_huge_does_not_fill_the_memory() {
    let mut file = capture(None, &[(1, 500)]);
    let at = file.len();
    file.extend_from_slice(&capture(None, &[(2, 500)])[file.len() - 548..]);
    file[at + 4..at + 8].copy_from_slice(&0x7fff_fff0_u32.to_le_bytes());
    file.resize(at + Capture::LARGEST_BLOCK + 100_000, 0);
    let (packets, end) = read(&file);
    assert_eq!(packets.len(), 1);
    assert!(matches!(end, Err(CaptureReadError::Damaged { position, .. }) if position == at as u64), "{end:?}");
}

#[test]
fn captures_of_the_classic_format_and_of_many_packets_are_read() {
    let mut writer = holdover_wire::pcap::Writer::new(Vec::new(), 96).unwrap();
    for millis in 0..5_000 {
        writer.write(Instant::from_millis(millis), &packet(1000)).unwrap();
    }
    let file = writer.into_inner();
    let (packets, end) = read(&file);
    assert_eq!((packets.len(), packets[4_999], end), (5_000, (4_999, 1000), Ok(())));
    assert_eq!(read(&zstd(&file)).0.len(), 5_000);
}

proptest! {
    #[test]
    fn damaged_captures_never_panic(at in 0_usize..400, value: u8, cut in 0_usize..600, packed in 0..3) {
        let mut data = capture(None, &[(1, 100), (2, 100)]);
        data = match packed { 0 => data, 1 => gzip(&data), _ => zstd(&data) };
        let len = data.len();
        data[at % len] = value;
        data.truncate(cut.min(len));
        let mut capture = match Capture::new(data.as_slice()) { Ok(capture) => capture, Err(_) => return Ok(()) };
        while let Ok(Some(packet)) = capture.next_packet() {
            let _ = TcpHeaders::parse(packet.ip, packet.original_len);
        }
    }
}
