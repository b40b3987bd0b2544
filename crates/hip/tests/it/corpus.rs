//! Replays the committed corpus of the fuzz target, and checks it against its sources.
//!
//! `cargo test -p holdover-hip --test it -- --ignored write_the_corpus` writes the files of [`SEEDS`]. Findings of a fuzzer are added under
//! other names.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use holdover_hip::codec::{HipPacket, PacketType, Parameter};
use holdover_hip::fuzz;
use holdover_wire::Payload;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::{address, every_parameter, hit, unhex};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/parse")
}

// Claim: Fuzz target `parse` (`crates/hip/fuzz`): a HIP packet, unchanged and with a corrected checksum, which is refused with a
// reason, or encoded unchanged.
#[test]
fn the_corpus_holds() {
    let mut files: Vec<PathBuf> = fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= SEEDS.len());
    for file in files {
        // Output is shown only on failure: the last file is the cause.
        println!("{}", file.display());
        fuzz::parse_any(&fs::read(file).unwrap());
    }
}

#[test]
fn every_seed_is_in_the_corpus() {
    for (name, bytes) in SEEDS.iter() {
        assert_eq!(fs::read(corpus().join(name)).unwrap_or_default(), *bytes, "{name}: see how to write the corpus");
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
        let mut bytes = SEEDS.values().nth(seed.index(SEEDS.len())).unwrap().clone();
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
    for (name, bytes) in SEEDS.iter() {
        fs::write(corpus().join(name), bytes).unwrap();
    }
}

fn scripts() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/hosts")
}

// Claim: Fuzz target `hosts` (`crates/hip/fuzz`): what the owners of two hosts and the network between them do: exchanges, moves,
// rekeying, invitations, ends; loss, repetition, damage, replays and made-up parameters. Programs receive only what was sent,
// each packet once; no other host gets an association; after three hours of silence no keys are left.
// Tests: `corpus::hosts_survive_any_operations`
#[test]
fn the_corpus_of_hosts_holds() {
    let mut files: Vec<PathBuf> = fs::read_dir(scripts()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8);
    for file in files {
        println!("{}", file.display());
        fuzz::run_hosts(&fs::read(file).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn hosts_survive_any_operations(operations in vec(any::<u8>(), 0..400)) {
        fuzz::run_hosts(&operations);
    }
}

/// Every packet type, every parameter, then malformed ones.
static SEEDS: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let mut seeds = BTreeMap::new();
    for kind in PacketType::ALL {
        seeds.insert(format!("empty-{}", kind.to_string().to_lowercase()), bytes(kind, vec![]));
    }
    for parameter in every_parameter() {
        seeds.insert(format!("parameter-{}", parameter.kind()), bytes(PacketType::Update, vec![parameter]));
    }
    seeds.insert("all".to_owned(), bytes(PacketType::R1, every_parameter()));
    for (name, hex) in [
        ("cut-head", "0181 00"),
        ("length-65535", "0181 ffff 00000000"),
        ("order", "01c1 0004 00000001 0181 0004 00000001"),
        ("twice", "0181 0004 00000001 0181 0004 00000001"),
        ("critical", "03e9 0000 00000000"),
        ("locator-words-255", "00c1 0008 0001ff00 00000000 00000000"),
        ("locator-half", "00c1 0004 00010500"),
        ("host-id-lengths", "02c1 0006 ffff ffff 000d 00000000 0000"),
        ("solution-odd", "0141 0005 00000000 01000000 000000"),
        ("esp-transform-short", "0fff 0001 00000000"),
        ("reg-info-1", "03a2 0001 40000000"),
        ("encrypted-empty", "0281 0004 00000000"),
        ("peer-permission-4", "1248 0004 00000000"),
    ] {
        let mut packet = bytes(PacketType::Update, vec![]);
        packet.extend(unhex(hex));
        packet.resize(packet.len().next_multiple_of(8), 0);
        packet[1] = (packet.len() / 8 - 1) as u8;
        seeds.insert(format!("nasty-{name}"), packet);
    }
    seeds.insert("nasty-nothing".to_owned(), vec![]);
    seeds.insert("nasty-ones".to_owned(), vec![0xff; 64]);
    seeds
});

fn bytes(kind: PacketType, parameters: Vec<Parameter>) -> Vec<u8> {
    let packet = HipPacket { parameters, ..HipPacket::new(kind, hit("2001:25::1"), hit("2001:25::2")) };
    let packet = packet.emit(address("192.0.2.1"), address("198.51.100.2")).unwrap();
    let Payload::Other { payload, .. } = packet.payload else { panic!("no HIP packet") };
    payload.to_vec()
}
