//! Runs the fuzz targets: on the committed corpus, and on random programs.
//!
//! `cargo test -p holdover-tcp --test it corpus -- --ignored` writes the generated programs into the corpus. The findings of a
//! fuzzer are stored beside them under names of their own.

use std::fs;
use std::path::PathBuf;

use holdover_base::Rng;
use holdover_tcp::fuzz;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::properties::cases;

/// A target and the directory of its corpus.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 3] = [
    ("operations", fuzz::operations),
    ("hostile_segments", fuzz::hostile_segments),
    ("hostile_packets", fuzz::hostile_packets),
];

/// Generated programs for each target.
const PROGRAMS: u64 = 40;

fn corpus(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

// Claim: The committed corpus of the three fuzz targets of `crates/tcp/fuzz` is replayed.
#[test]
fn the_corpus_holds() {
    for (name, target) in TARGETS {
        let mut files: Vec<PathBuf> = fs::read_dir(corpus(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(files.len() >= PROGRAMS as usize, "{name} has a corpus");
        for file in files {
            // The output is shown only on failure: the last file is the cause.
            println!("{}", file.display());
            target(&fs::read(file).unwrap());
        }
    }
}

#[test]
#[ignore = "writes the corpus"]
fn write_the_corpus() {
    for (name, _) in TARGETS {
        fs::create_dir_all(corpus(name)).unwrap();
        for seed in 0..PROGRAMS {
            fs::write(corpus(name).join(format!("random-{seed:02}")), program(name, seed)).unwrap();
        }
    }
}

/// A random program, from short to long.
fn program(target: &str, seed: u64) -> Vec<u8> {
    let mut rng = Rng::split(seed, target);
    let len = 16 << (seed % 8);
    (0..len).map(|_| rng.next_u32() as u8).collect()
}

proptest! {
    #![proptest_config(cases(1_000))]

    // Claim: Fuzz target `operations` (`crates/tcp/fuzz`): calls of two connections' applications and owners, and the behaviour
    // of the path, compared with a model of the streams; on an undisturbed network no byte is retransmitted more than twice on
    // average.
    #[test]
    fn random_operations_agree_with_the_model(program in vec(any::<u8>(), 0..600)) {
        fuzz::operations(&program);
    }

    // Claim: Fuzz target `hostile_segments` (`crates/tcp/fuzz`): segments of a peer that follows no rule.
    #[test]
    fn a_hostile_peer_does_no_harm(program in vec(any::<u8>(), 0..1200)) {
        fuzz::hostile_segments(&program);
    }

    // Claim: Fuzz target `hostile_packets` (`crates/tcp/fuzz`): packets for an endpoint: segments of unknown connections, ICMP
    // errors, connections that open and close.
    #[test]
    fn hostile_packets_do_no_harm(program in vec(any::<u8>(), 0..1200)) {
        fuzz::hostile_packets(&program);
    }
}
