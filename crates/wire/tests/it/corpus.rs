//! Replays the committed corpus of the fuzz targets, and checks that it holds every seed.
//!
//! `cargo test -p holdover-wire --test it -- --ignored write_the_corpus` writes the files of [`seeds`]. Findings of a fuzzer are
//! added under names of their own.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::support::{V4, V6, full_segment, unhex};
use bytes::Bytes;
use holdover_wire::{
    Experimental, ExperimentalId, Flags, Fragment, IcmpEcho, IcmpError, Packet, Payload, RareOptions, SackBlocks,
    Segment, Seq, SeqRange, TcpOptions, Udp, Unreachable, UserTimeout, fuzz,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/parse")
}

// Claim: Fuzz target `parse` (`crates/wire/fuzz`): a packet, which is refused with a reason, or encoded unchanged.
#[test]
fn the_corpus_holds() {
    let mut files: Vec<PathBuf> = fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= seeds().len());
    for file in files {
        // Shown on failure only: the last one is the culprit.
        println!("{}", file.display());
        fuzz::parse_any(&fs::read(file).unwrap());
    }
}

#[test]
fn every_seed_is_in_the_corpus() {
    for (name, bytes) in seeds() {
        assert_eq!(
            fs::read(corpus().join(name)).unwrap_or_default(),
            bytes,
            "{name}: see how to write the corpus above"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn damage_to_the_corpus_never_panics(
        seed in any::<Index>(),
        damage in vec((any::<Index>(), any::<u8>()), 1..5),
        cut in option::of(any::<Index>()),
    ) {
        let mut bytes = seeds().into_values().nth(seed.index(seeds().len())).unwrap();
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        for (at, byte) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        fuzz::parse_any(&bytes);
    }
}

#[test]
#[ignore = "writes the corpus"]
fn write_the_corpus() {
    fs::create_dir_all(corpus()).unwrap();
    for (name, bytes) in seeds() {
        fs::write(corpus().join(name), bytes).unwrap();
    }
}

/// One packet of each kind, then malformed ones.
fn seeds() -> BTreeMap<&'static str, Vec<u8>> {
    let mut seeds = valid();
    seeds.extend(nasty_tcp());
    seeds.extend(nasty_ip());
    seeds.extend(nasty_rest());
    seeds
}

fn v4(payload: impl Into<Payload>) -> Vec<u8> {
    Packet::new(V4.0, V4.1, payload).emit().unwrap().to_vec()
}

fn v6(payload: impl Into<Payload>) -> Vec<u8> {
    Packet::new(V6.0, V6.1, payload).emit().unwrap().to_vec()
}

fn raw(protocol: u8, hex: &str) -> Payload {
    Payload::Other { protocol, payload: unhex(hex).into() }
}

fn with_options(options: TcpOptions) -> Segment {
    Segment { options, ..full_segment() }
}

/// A segment with the option bytes in `hex`, and a wrong checksum.
fn option_bytes(hex: &str) -> Payload {
    let options = unhex(hex);
    assert!(options.len().is_multiple_of(4));
    let mut tcp = unhex("9c40 0050 00000001 00000002 0010 0200 0000 0000");
    tcp[12] = ((20 + options.len()) as u8 / 4) << 4;
    tcp.extend(options);
    Payload::Other { protocol: 6, payload: tcp.into() }
}

fn error(kind: Unreachable, quote: Vec<u8>) -> IcmpError {
    IcmpError { kind, quote: quote.into() }
}

fn fragment(offset: u16, more: bool) -> Payload {
    Payload::Fragment(Fragment { id: 7, offset, more, protocol: 6, payload: Bytes::from_static(&[0; 16]) })
}

fn valid() -> BTreeMap<&'static str, Vec<u8>> {
    let sack: SackBlocks = (0..4).map(|i| SeqRange::new(Seq::new(100 * i), Seq::new(100 * i + 9))).collect();
    let experimental = |id| {
        let option = Experimental { second_kind: false, id, data: Bytes::from_static(b"data") };
        TcpOptions::from(RareOptions { experimental: Some([option].into()), ..RareOptions::default() })
    };
    let udp = || Udp { src_port: 1, dst_port: 2, payload: Bytes::from_static(b"odd") };
    let echo = |reply| IcmpEcho { reply, id: 1, seq: 2, payload: Bytes::from_static(b"ping") };
    let rare = RareOptions {
        mss: Some(1460),
        window_scale: Some(15),
        sack_permitted: true,
        user_timeout: Some(UserTimeout::from_wire(0x8001)),
        ..RareOptions::default()
    };
    let syn = TcpOptions { rare: rare.into(), ..full_segment().options };
    BTreeMap::from([
        ("tcp-v4", v4(full_segment())),
        ("tcp-v6", v6(full_segment())),
        ("tcp-syn", v4(Segment { flags: Flags::SYN, ..with_options(syn) })),
        ("tcp-all-flags", v6(Segment { flags: Flags::all(), urgent: 1, ..full_segment() })),
        ("tcp-four-sack-blocks", v4(with_options(TcpOptions { sack, ..TcpOptions::default() }))),
        ("tcp-experimental-short", v4(with_options(experimental(ExperimentalId::Short(9))))),
        ("tcp-experimental-long", v4(with_options(experimental(ExperimentalId::Long(9))))),
        ("udp-v4", v4(udp())),
        ("udp-v6", v6(udp())),
        ("echo-v4", v4(echo(false))),
        ("echo-v6", v6(echo(true))),
        ("esp", v4(Payload::Esp(Bytes::from_static(b"secret")))),
        ("fragment-v4", v4(fragment(8, true))),
        ("fragment-v6", v6(fragment(0, true))),
        ("hip", v4(raw(139, "3b04 0121 0000 0000"))),
        ("unreachable-v4", v4(error(Unreachable::Port, v4(full_segment())))),
        ("unreachable-v6", v6(error(Unreachable::Port, v6(full_segment())))),
        ("bad-state-v4", v4(error(Unreachable::BadState, v4(full_segment())))),
        ("bad-state-v6", v6(error(Unreachable::BadState, v6(full_segment())))),
        ("too-big-v4", v4(error(Unreachable::PacketTooBig { mtu: 0 }, v4(full_segment())))),
        ("too-big-v6", v6(error(Unreachable::PacketTooBig { mtu: u32::MAX }, v6(full_segment())))),
    ])
}

fn nasty_tcp() -> BTreeMap<&'static str, Vec<u8>> {
    BTreeMap::from([
        ("tcp-option-length-0", v4(option_bytes("02040218 08000000"))),
        ("tcp-option-length-1", v4(option_bytes("02040218 03010101"))),
        ("tcp-option-beyond-header", v4(option_bytes("0402080a 00000000"))),
        ("tcp-option-kind-only", v4(option_bytes("01010108"))),
        ("tcp-option-length-255", v6(option_bytes("fdff0000"))),
        ("tcp-options-twice", v4(option_bytes("02040001 02040002 03030103 03020000"))),
        ("tcp-sack-odd", v4(option_bytes("05090000 00000000 00010101"))),
        ("tcp-sack-empty", v4(option_bytes("05020502"))),
        ("tcp-experimental-without-id", v4(option_bytes("fd02fe03 00fd0400 01000000"))),
        ("tcp-many-unknown", v4(option_bytes(&"6302".repeat(20)))),
        ("tcp-many-experimental", v4(option_bytes(&"fd040001".repeat(10)))),
        ("tcp-after-end", v4(option_bytes("00020405 b4000000"))),
        ("tcp-data-offset-4", v4(raw(6, "0001 0002 00000000 00000000 4000 0000 0000 0000"))),
        ("tcp-data-offset-15", v4(raw(6, "0001 0002 00000000 00000000 f000 0000 0000 0000"))),
        ("tcp-reserved-bits", v4(raw(6, "0001 0002 00000000 00000000 5fff 0000 0000 0000"))),
        ("tcp-empty", v6(raw(6, ""))),
    ])
}

fn nasty_ip() -> BTreeMap<&'static str, Vec<u8>> {
    let mut cut = v4(full_segment());
    cut.truncate(40);
    let mut padded = v6(full_segment());
    padded.extend_from_slice(&[0xff; 7]);
    let mut ihl_4 = v4(full_segment());
    ihl_4[0] = 0x44;
    let mut ihl_15 = v4(Payload::Esp(Bytes::from_static(&[0; 48])));
    ihl_15[0] = 0x4f;
    ihl_15[10..12].fill(0);
    let mut total_0 = v4(full_segment());
    total_0[2..4].fill(0);
    let jumbo = v6(raw(0, "3b00 c204 00010000"));
    BTreeMap::from([
        ("empty", vec![]),
        ("one-byte-v4", vec![0x45]),
        ("one-byte-v6", vec![0x60]),
        ("version-5", vec![0x55; 40]),
        ("all-ones", vec![0xff; 64]),
        ("ipv4-cut", cut),
        ("ipv6-padded", padded),
        ("ipv4-ihl-4", ihl_4),
        ("ipv4-ihl-15", ihl_15),
        ("ipv4-total-length-0", total_0),
        ("ipv6-jumbogram", jumbo),
        ("ipv6-hop-by-hop-twice", v6(raw(0, "0000 0104 00000000 3b00 0104 00000000"))),
        ("ipv6-extension-too-long", v6(raw(60, "06ff 0104 00000000"))),
        ("ipv6-routing-on-its-way", v6(raw(43, "0600 0001 00000000 00"))),
        ("ipv6-routing-to-itself", v6(raw(43, &"2b00 0000 00000000".repeat(8)))),
        ("ipv6-fragment-of-fragment", v6(raw(44, "2c00 0001 00000001 2c00 0008 00000001"))),
        ("ipv6-whole-fragments", v6(raw(44, &"2c00 0006 00000001".repeat(4)))),
        ("ipv6-no-next-header", v6(raw(59, "00"))),
        ("icmp-in-ipv6", v6(raw(1, "0800 0000 0000 0000"))),
        ("icmpv6-in-ipv4", v4(raw(58, "8000 0000 0000 0000"))),
    ])
}

fn nasty_rest() -> BTreeMap<&'static str, Vec<u8>> {
    let nested = (0..4).fold(v4(full_segment()), |inner, _| v4(error(Unreachable::Host, inner)));
    BTreeMap::from([
        ("udp-length-7", v4(raw(17, "0001 0002 0007 0000 00"))),
        ("udp-length-beyond", v4(raw(17, "0001 0002 ffff 0000 00"))),
        ("udp-length-short-of-packet", v4(raw(17, "0001 0002 0008 0000 0000"))),
        ("udp-no-checksum-v6", v6(raw(17, "0001 0002 0008 0000"))),
        ("icmp-seven-bytes", v4(raw(1, "0301 fcfe 0000 00"))),
        ("icmp-redirect", v4(raw(1, "0500 faff 0000 0000"))),
        ("icmp-echo-with-code", v4(raw(1, "0801 f7fe 0000 0000"))),
        ("icmp-extensions", v4(raw(1, "0b00 0000 0001 0000 45000014 2000 0000"))),
        ("icmp-extensions-beyond", v4(raw(1, "0b00 0000 00ff 0000 45000014"))),
        ("icmp-quotes-nothing", v4(error(Unreachable::Host, vec![]))),
        ("icmp-quotes-itself", nested),
        ("icmp-quotes-fragment", v4(error(Unreachable::TimeExceeded { code: 1 }, v4(fragment(8, false))))),
        ("icmp-quotes-seven-bytes", v4(error(Unreachable::Host, v4(full_segment())[..27].to_vec()))),
        ("icmp-quotes-ihl-15", v4(error(Unreachable::Host, [&[0x4f][..], &[0; 40]].concat()))),
        ("icmpv6-quotes-ipv4", v6(error(Unreachable::Network, v4(full_segment())))),
        ("icmpv6-unrecognized-header", v6(error(Unreachable::Protocol, v6(raw(253, "00"))))),
        ("icmpv6-router-solicitation", v6(raw(58, "8500 7d37 0000 0000"))),
        ("icmpv6-quotes-half-an-extension", v6(error(Unreachable::Host, v6(raw(60, "0601"))))),
    ])
}
