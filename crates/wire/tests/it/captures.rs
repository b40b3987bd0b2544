//! Captures, read back by other implementations: the `pcap-parser` crate, and tshark where it is installed.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::Command;

use crate::support::{V4, V6, full_segment};
use bytes::Bytes;
use holdover_base::{BitRate, Duration, Instant};
use holdover_wire::pcapng::{CaptureDirection, Interface, Record, Writer};
use holdover_wire::{
    CaptureError, EmitError, Experimental, ExperimentalId, Flags, IcmpEcho, IcmpError, Packet, Payload, RareOptions,
    SackBlocks, Segment, Seq, SeqRange, TcpOptions, Udp, Unreachable, UserTimeout, pcap,
};
use pcap_parser::{Block, OptionCode, PcapNGOption, parse_block_le, parse_pcap, parse_pcap_header};

/// 2026-01-01 00:00 UTC.
const NEW_YEAR: Duration = Duration::from_secs(1_767_225_600);

fn blocks(mut bytes: &[u8]) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    while !bytes.is_empty() {
        let (rest, block) = parse_block_le(bytes).expect("a whole block");
        blocks.push(block);
        bytes = rest;
    }
    blocks
}

/// The value of the only option with this code, without padding.
fn option<'a>(options: &'a [PcapNGOption<'_>], code: u16) -> Option<&'a [u8]> {
    let mut found = options.iter().filter(|option| option.code == OptionCode(code));
    let option = found.next()?;
    assert!(found.next().is_none(), "one option of code {code}");
    Some(&option.value[..usize::from(option.len)])
}

// Claim: Other programs read a pcapng capture with interface names, nanoseconds and comments: pcap-parser, and tshark where it is
// installed.
// Tests: `tshark_finds_nothing_wrong`
#[test]
fn another_reader_reads_the_same_packets() {
    let mut capture = Writer::new(Vec::new(), "holdover test").unwrap().with_start(NEW_YEAR);
    let radio = Interface {
        description: "cell 1",
        speed: Some(BitRate::from_mbps(2)),
        snap_len: Some(60),
        ..Interface::new("wlan0")
    };
    let (radio, wire) = (capture.add_interface(&radio).unwrap(), capture.add_interface(&Interface::new("")).unwrap());
    let packet = Packet::new(V4.0, V4.1, full_segment());
    let bytes = packet.emit().unwrap();
    assert_eq!(bytes.len(), 56);
    let long = Packet::new(V6.0, V6.1, full_segment());
    let record = Record {
        direction: Some(CaptureDirection::Outbound),
        comment: "dropped: queue full",
        ..Record::new(Instant::from_nanos(1_234_567_891), radio)
    };
    capture.write(&record, &long).unwrap();
    capture.write(&Record::new(Instant::ZERO, wire), &packet).unwrap();
    capture
        .write_bytes(
            &Record { direction: Some(CaptureDirection::Inbound), ..Record::new(Instant::ZERO, wire) },
            b"???",
            900,
        )
        .unwrap();
    capture.flush().unwrap();
    let file = capture.into_inner();

    let blocks = blocks(&file);
    let [
        Block::SectionHeader(section),
        Block::InterfaceDescription(first),
        Block::InterfaceDescription(second),
        Block::EnhancedPacket(snapped),
        Block::EnhancedPacket(whole),
        Block::EnhancedPacket(odd),
    ] = &blocks[..]
    else {
        panic!("a header, two interfaces and three packets: {blocks:?}")
    };
    assert_eq!((section.major_version, section.minor_version, section.section_len), (1, 0, -1));
    assert_eq!(option(&section.options, 4), Some(&b"holdover test"[..]));

    assert_eq!((first.linktype.0, first.snaplen), (101, 60));
    assert_eq!(option(&first.options, 2), Some(&b"wlan0"[..]));
    assert_eq!(option(&first.options, 3), Some(&b"cell 1"[..]));
    assert_eq!(option(&first.options, 8), Some(&2_000_000_u64.to_le_bytes()[..]));
    assert_eq!(option(&first.options, 9), Some(&[9][..]));
    assert_eq!((second.linktype.0, second.snaplen), (101, 0));
    assert_eq!([2, 3, 8].map(|code| option(&second.options, code)), [None; 3]);
    assert_eq!(option(&second.options, 9), Some(&[9][..]));

    let nanos = u64::from(snapped.ts_high) << 32 | u64::from(snapped.ts_low);
    assert_eq!(nanos, NEW_YEAR.as_nanos() + 1_234_567_891);
    assert_eq!((snapped.if_id, snapped.caplen, snapped.origlen), (0, 60, 76));
    assert_eq!(snapped.data[..60], long.emit().unwrap()[..60]);
    assert_eq!(option(&snapped.options, 1), Some(&b"dropped: queue full"[..]));
    assert_eq!(option(&snapped.options, 2), Some(&2_u32.to_le_bytes()[..]));

    assert_eq!((whole.if_id, whole.caplen, whole.origlen), (1, 56, 56));
    assert_eq!((whole.data, whole.options.len()), (&bytes[..], 0));
    assert_eq!((odd.caplen, odd.origlen, &odd.data[..3]), (3, 900, &b"???"[..]));
    assert_eq!((option(&odd.options, 1), option(&odd.options, 2)), (None, Some(&1_u32.to_le_bytes()[..])));
}

#[test]
fn the_same_calls_give_the_same_bytes() {
    let write = || {
        let mut file = Vec::new();
        for_show(&mut file);
        file
    };
    assert_eq!(write(), write());
}

#[test]
fn a_classic_capture_is_read_back() {
    let packet = Packet::new(V4.0, V4.1, full_segment());
    let mut capture = pcap::Writer::new(Vec::new(), 40).unwrap().with_start(NEW_YEAR);
    capture.write(Instant::from_nanos(5_000_000_007), &packet).unwrap();
    let far = Instant::from_secs(u64::from(u32::MAX));
    assert!(matches!(capture.write(far, &packet), Err(CaptureError::TimeOutOfRange { secs: 6_062_192_895 })));
    let file = capture.into_inner();

    let (_, header) = parse_pcap_header(&file).unwrap();
    assert!(header.is_nanosecond_precision());
    assert_eq!((header.version_major, header.version_minor, header.snaplen, header.network.0), (2, 4, 40, 101));
    let (_, read) = parse_pcap(&file).unwrap();
    let [record] = &read.blocks[..] else { panic!("one record") };
    assert_eq!((record.ts_sec, record.ts_usec), (1_767_225_605, 7));
    assert_eq!((record.caplen, record.origlen, record.data), (40, 56, &packet.emit().unwrap()[..40]));
}

/// An output with room for `left` bytes.
struct Full {
    left: usize,
}

impl io::Write for Full {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match buf.len().min(self.left) {
            0 => Err(io::ErrorKind::StorageFull.into()),
            n => {
                self.left -= n;
                Ok(n)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn a_refused_record_leaves_the_capture_unchanged() {
    let packet = Packet::new(V4.0, V4.1, full_segment());
    let mut other = Writer::new(Vec::new(), "other").unwrap();
    other.add_interface(&Interface::new("a")).unwrap();
    let stranger = other.add_interface(&Interface::new("b")).unwrap();

    let mut capture = Writer::new(Vec::new(), "test").unwrap();
    let record = Record::new(Instant::ZERO, capture.add_interface(&Interface::new("a")).unwrap());
    let text = "x".repeat(65_536);
    assert!(matches!(
        capture.write(&Record::new(Instant::ZERO, stranger), &packet),
        Err(CaptureError::NoSuchInterface { index: 1 })
    ));
    let comment = Record { comment: &text, ..record };
    assert!(matches!(capture.write(&comment, &packet), Err(CaptureError::TextTooLong { len: 65_536 })));
    assert!(matches!(capture.add_interface(&Interface::new(&text)), Err(CaptureError::TextTooLong { .. })));
    let mixed = Packet::new(V4.0, V6.1, Udp::default());
    assert!(matches!(capture.write(&record, &mixed), Err(CaptureError::Emit(EmitError::MixedFamilies { .. }))));
    assert!(matches!(
        capture.write_bytes(&record, b"more", 3),
        Err(CaptureError::PacketLength { captured: 4, original: 3 })
    ));
    assert!(matches!(Writer::new(Vec::new(), &text), Err(CaptureError::TextTooLong { .. })));
    capture.write(&record, &packet).unwrap();
    assert!(matches!(
        blocks(&capture.into_inner())[..],
        [Block::SectionHeader(_), Block::InterfaceDescription(_), Block::EnhancedPacket(_)]
    ));
}

#[test]
fn a_failing_output_is_a_typed_error() {
    for left in [0, 10, 50] {
        let result = Writer::new(Full { left }, "test").and_then(|mut capture| {
            capture.add_interface(&Interface::new("a"))?;
            Ok(capture)
        });
        assert!(matches!(result, Err(CaptureError::Io(error)) if error.kind() == io::ErrorKind::StorageFull));
    }
    let mut capture = Writer::new(Full { left: 1000 }, "test").unwrap();
    assert!(matches!(capture.flush(), Err(CaptureError::Io(_))));
    assert!(matches!(pcap::Writer::new(Full { left: 23 }, 96), Err(CaptureError::Io(_))));
}

/// Writes a capture with every kind of payload that has a checksum, most TCP options, and both families. Returns the
/// number of packets.
fn for_show(out: impl io::Write) -> usize {
    let mut capture = Writer::new(out, "holdover test").unwrap().with_start(NEW_YEAR);
    let radio =
        Interface { description: "radio of the train", speed: Some(BitRate::from_mbps(10)), ..Interface::new("wlan0") };
    let radio = capture.add_interface(&radio).unwrap();
    let wired = capture.add_interface(&Interface::new("eth0")).unwrap();
    let mut packets = 0;
    for (src, dst) in [V4, V6] {
        for payload in payloads(src.is_ipv6()) {
            let outbound = packets % 2 == 0;
            let record = Record {
                direction: Some(if outbound { CaptureDirection::Outbound } else { CaptureDirection::Inbound }),
                comment: if packets % 3 == 0 { "held by the outage" } else { "" },
                ..Record::new(Instant::from_nanos(25_000_001 * packets as u64), if outbound { radio } else { wired })
            };
            capture.write(&record, &Packet::new(src, dst, payload)).unwrap();
            packets += 1;
        }
    }
    packets
}

fn payloads(v6: bool) -> Vec<Payload> {
    let rare = RareOptions {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        user_timeout: UserTimeout::from_duration(Duration::from_secs(600)),
        ..RareOptions::default()
    };
    let syn = Segment {
        seq: Seq::new(999),
        ack: Seq::new(0),
        flags: Flags::SYN,
        options: TcpOptions { rare: rare.into(), ..full_segment().options },
        payload: Bytes::new(),
        ..full_segment()
    };
    let data = Segment { seq: Seq::new(1000), ..full_segment() };
    let sack: SackBlocks = (0..3).map(|i| SeqRange::new(Seq::new(2000 + 100 * i), Seq::new(2050 + 100 * i))).collect();
    let ack = Segment {
        src_port: 80,
        dst_port: 40_000,
        options: TcpOptions { sack, ..data.options.clone() },
        payload: Bytes::new(),
        ..data.clone()
    };
    let id = ExperimentalId::Short(0xf989);
    let experimental = Some([Experimental { second_kind: true, id, data: Bytes::from_static(b"xyz") }].into());
    let odd = Segment {
        seq: Seq::new(1004),
        options: RareOptions { experimental, ..RareOptions::default() }.into(),
        payload: Bytes::from_static(b"odd"),
        ..data.clone()
    };
    let (src, dst) = if v6 { V6 } else { V4 };
    let quoted = Packet::new(dst, src, data.clone());
    let error = IcmpError::quoting_packet(Unreachable::PacketTooBig { mtu: 1280 }, &quoted).unwrap();
    vec![
        syn.into(),
        data.into(),
        ack.into(),
        odd.into(),
        Udp { src_port: 1000, dst_port: 2000, payload: Bytes::from_static(b"datagram") }.into(),
        IcmpEcho { reply: false, id: 1, seq: 2, payload: Bytes::from_static(b"ping") }.into(),
        error.into(),
        Payload::Esp(Bytes::from_static(&[1, 2, 3, 4, 0, 0, 0, 9, 0xde, 0xad, 0xbe, 0xef])),
    ]
}

#[test]
fn tshark_finds_nothing_wrong() {
    let path = Temporary(std::env::temp_dir().join(format!("holdover-wire-{}.pcapng", std::process::id())));
    let mut file = Vec::new();
    let packets = for_show(&mut file);
    std::fs::write(&path.0, file).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&path.0).args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
    for protocol in ["ip", "tcp", "udp"] {
        tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    for field in [
        "frame.interface_name",
        "frame.comment",
        "frame.time_epoch",
        "_ws.malformed",
        "ip.checksum.status",
        "tcp.checksum.status",
        "udp.checksum.status",
        "icmp.checksum.status",
        "icmpv6.checksum.status",
        "_ws.expert.severity",
    ] {
        tshark.args(["-e", field]);
    }
    let Ok(output) = tshark.output() else {
        // Not by `eprintln!`, which the test runner captures when a test passes.
        writeln!(io::stderr(), "tshark_finds_nothing_wrong: skipped, tshark is not installed").unwrap();
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().count(), packets);
    for (n, line) in text.lines().enumerate() {
        let fields: Vec<&str> = line.split('|').collect();
        assert_eq!(fields[0], if n % 2 == 0 { "wlan0" } else { "eth0" }, "{line}");
        assert_eq!(fields[1], if n % 3 == 0 { "held by the outage" } else { "" }, "{line}");
        assert_eq!(fields[3], "", "not malformed: {line}");
        // 1 is "good", empty is "absent".
        let checksums = &fields[4..9];
        assert!(checksums.iter().all(|&status| matches!(status, "" | "1")), "{line}");
        // All but ESP have at least one: IPv6's own header has none.
        assert_eq!(checksums.contains(&"1"), n != packets - 1, "{line}");
        // PI_WARN is 0x600000, PI_ERROR 0x800000.
        assert!(fields[9].parse().unwrap_or(0_u32) < 0x60_0000, "{line}");
    }
    assert!(text.lines().nth(1).unwrap().contains("1767225600.025000001"), "{text}");
}

/// A file that is removed at the end of its test.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // A leftover does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}
