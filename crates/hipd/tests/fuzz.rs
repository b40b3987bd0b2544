//! Replays the committed corpus of the fuzz target `dns`, and checks it against its sources.
//!
//! `cargo test -p holdover-hipd --test fuzz -- --ignored write_the_corpus` writes the files of [`SEEDS`]. Findings of a fuzzer are added
//! under other names.

// Reads the files of the corpus.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::message_builder::StaticCompressor;
use domain::base::{Message, MessageBuilder, Name, UnknownRecordData};
use domain::rdata::Cname;
use holdover_base::Rng;
use holdover_hip::PredictableRng;
use holdover_hip::identity::{Algorithm, KeyPair};
use holdover_hipd::dns::{DomainName, HipRecord, domain_name};
use holdover_hipd::fuzz::{ID, NAME, look_up_by};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

const SERVER: &str = "rvs.example.org";

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/dns")
}

// Claim: Fuzz target `dns` (`crates/hipd/fuzz`): the answers of a resolver about a host, its addresses and its servers, or any bytes: the host
// that is found has the identity of its record and only addresses that a host may have, or there is an error with a text; records are
// written as they were read. Damage to the corpus (2,000 cases) does no harm either.
// Tests: `damage_to_the_corpus_does_no_harm`, `the_hosts_of_the_corpus_are_found`
#[test]
fn the_corpus_holds() {
    let mut files: Vec<PathBuf> = fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= SEEDS.len());
    for file in files {
        // Output is shown only on failure: the last file is the cause.
        println!("{}", file.display());
        look_up_by(&fs::read(file).unwrap());
    }
}

#[test]
fn every_seed_is_in_the_corpus() {
    for (name, bytes) in SEEDS.iter() {
        assert_eq!(fs::read(corpus().join(name)).unwrap_or_default(), *bytes, "{name}: see how to write the corpus");
    }
}

#[test]
fn the_hosts_of_the_corpus_are_found() {
    for (name, bytes) in SEEDS.iter() {
        // The others have no answers about addresses, or no record.
        let has_answers = name.starts_with("host") && !name.starts_with("host-p");
        assert_eq!(look_up_by(bytes), has_answers, "{name}");
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn damage_to_the_corpus_does_no_harm(
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
        look_up_by(&bytes);
    }
}

fn name(text: &str) -> DomainName {
    domain_name(text).unwrap()
}

/// Data of a record in an answer.
enum Data {
    Of(Rtype, Vec<u8>),
    Alias(&'static str),
}

fn v4(text: &str) -> Data {
    Data::Of(Rtype::A, text.parse::<std::net::Ipv4Addr>().unwrap().octets().to_vec())
}

fn v6(text: &str) -> Data {
    Data::Of(Rtype::AAAA, text.parse::<std::net::Ipv6Addr>().unwrap().octets().to_vec())
}

fn record(algorithm: Algorithm, servers: &[&str]) -> HipRecord {
    let keys = KeyPair::generate(algorithm, &mut PredictableRng::new(Rng::new(5)));
    HipRecord::new(keys.identity(), servers.iter().map(|it| name(it)).collect())
}

fn hip(record: &HipRecord) -> Data {
    Data::Of(Rtype::HIP, record.emit().unwrap())
}

/// An answer with its length.
fn answer(question: (&str, Rtype), code: Rcode, records: &[(&str, Data)]) -> Vec<u8> {
    let mut query = MessageBuilder::new_vec();
    query.header_mut().set_id(ID);
    let mut query = query.question();
    query.push((name(question.0), question.1)).unwrap();
    let query = query.finish();
    let query = Message::from_octets(&query[..]).unwrap();
    let builder = MessageBuilder::from_target(StaticCompressor::new(Vec::new())).unwrap();
    let mut answer = builder.start_answer(&query, code).unwrap();
    for (owner, data) in records {
        match data {
            Data::Of(rtype, data) => {
                let data = UnknownRecordData::from_octets(*rtype, &data[..]).unwrap();
                answer.push((name(owner), Class::IN, 60, data)).unwrap();
            }
            Data::Alias(target) => {
                answer.push((name(owner), Class::IN, 60, Cname::<Name<Vec<u8>>>::new(name(target)))).unwrap()
            }
        }
    }
    with_len(&answer.finish().into_target(), 0)
}

fn with_len(message: &[u8], flags: u16) -> Vec<u8> {
    [&(message.len() as u16 | flags).to_be_bytes()[..], message].concat()
}

/// The answers of whole lookups, then single records, then malformed messages.
static SEEDS: LazyLock<BTreeMap<String, Vec<u8>>> = LazyLock::new(|| {
    let record_of = |algorithm| record(algorithm, &[SERVER]);
    let about = |data: Vec<Data>| {
        answer((NAME, Rtype::HIP), Rcode::NOERROR, &data.into_iter().map(|it| (NAME, it)).collect::<Vec<_>>())
    };
    let found = |host: [Data; 2], server: [Data; 2]| {
        let [host_v6, host_v4] = host;
        let [server_v6, server_v4] = server;
        [
            about(vec![hip(&record_of(Algorithm::Ed25519))]),
            answer((NAME, Rtype::AAAA), Rcode::NOERROR, &[(NAME, host_v6)]),
            answer((NAME, Rtype::A), Rcode::NOERROR, &[(NAME, host_v4)]),
            answer((SERVER, Rtype::AAAA), Rcode::NOERROR, &[(SERVER, server_v6)]),
            answer((SERVER, Rtype::A), Rcode::NOERROR, &[(SERVER, server_v4)]),
        ]
        .concat()
    };
    let mut seeds = BTreeMap::new();
    let mut add = |name: &str, bytes: Vec<u8>| seeds.insert(name.to_owned(), bytes);
    add("host", found([v6("2001:db8::7"), v4("192.0.2.7")], [v6("2001:db8::9"), v4("203.0.113.9")]));
    add("host-loopback", found([v6("::1"), v4("127.0.0.1")], [v6("::1"), v4("127.0.0.2")]));
    add("host-link-local", found([v6("fe80::1"), v4("169.254.1.1")], [v6("fe80::2"), v4("169.254.1.2")]));
    add("host-groups", found([v6("ff02::1"), v4("224.0.0.1")], [v6("::"), v4("255.255.255.255")]));
    add("host-its-own-server", found([v6("2001:db8::7"), v4("192.0.2.7")], [v6("2001:db8::7"), v4("192.0.2.7")]));
    for (text, algorithm) in [("p256", Algorithm::EcdsaP256), ("p384", Algorithm::EcdsaP384)] {
        add(&format!("host-{text}"), about(vec![hip(&record_of(algorithm))]));
        add(&format!("record-{text}"), record_of(algorithm).emit().unwrap());
    }
    let ours = record_of(Algorithm::Ed25519);
    add("record", ours.emit().unwrap());
    add("text", ours.to_string().into_bytes());
    let wrong = HipRecord { hit: vec![0x20; 16], ..ours.clone() };
    add("wrong-hit", about(vec![hip(&ours), hip(&wrong)]));
    let short = HipRecord { hit: vec![0x20; 4], ..ours.clone() };
    add("short-hit", about(vec![hip(&short)]));
    add("garbage-record", about(vec![Data::Of(Rtype::HIP, vec![16, 2, 0, 200, 1, 2, 3])]));
    add("no-record", answer((NAME, Rtype::HIP), Rcode::NOERROR, &[]));
    add("no-name", answer((NAME, Rtype::HIP), Rcode::NXDOMAIN, &[]));
    add("refused", answer((NAME, Rtype::HIP), Rcode::REFUSED, &[]));
    let circle = [(NAME, Data::Alias(SERVER)), (SERVER, Data::Alias(NAME))];
    add("circle", answer((NAME, Rtype::HIP), Rcode::NOERROR, &circle));
    let alias = [(NAME, Data::Alias("a.example.org")), ("a.example.org", hip(&ours))];
    add("alias", answer((NAME, Rtype::HIP), Rcode::NOERROR, &alias));
    let mut truncated = answer((NAME, Rtype::HIP), Rcode::NOERROR, &[]);
    truncated[4] |= 0x02;
    add("truncated", truncated);
    // A name that points to itself, as the owner of a record.
    let pointer = [&[0, 7, 0x80, 0, 0, 1, 0, 1, 0, 0, 0, 0][..], &[0xc0, 0x22, 0, 55, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    add("pointer-to-itself", with_len(&pointer, 0x8000));
    add("counts", with_len(&[0, 7, 0x80, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 0x8000));
    add("nothing", Vec::new());
    add("ones", vec![0xff; 64]);
    seeds
});
