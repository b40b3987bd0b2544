//! Exchanges with changed packets, and with hosts that lie ([`fuzz::Mutations`]).

use std::fs;
use std::path::PathBuf;

use holdover_base::Rng;
use holdover_hip::fuzz::{Mutations, Outcome};

/// Bytes that decide about a case: more than any needs.
const INPUT_LEN: usize = 160;

/// `HOLDOVER_HIP_EXCHANGES` sets the number of cases; each core takes a part of them.
// Claim: Exchanges of 20 kinds (base exchange, move, two moves at once, rekeying, end, data, registration, rendezvous, relay, invitation)
// continue after one to three packets were damaged, replayed, sent from other addresses, or made by a host that lies with its keys, so
// that MAC and signature are valid: no panic, bounded state, no association that should not be, no peer verified at an address that it
// never had, no data of or to others, associations with others go on, and after three hours of silence no keys are left. (3,000
// cases; `HOLDOVER_HIP_EXCHANGES` sets the number)
#[test]
fn exchanges_survive_changed_packets_and_liars() {
    let count = std::env::var("HOLDOVER_HIP_EXCHANGES").ok().and_then(|it| it.parse().ok()).unwrap_or(3_000_u64);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let totals = std::thread::scope(|scope| {
        let parts = (0..threads).map(|first| {
            scope.spawn(move || {
                let mutations = Mutations::new();
                let cases = (first as u64..count).step_by(threads);
                cases.map(|case| counts(run(&mutations, case))).fold([0; 4], sum)
            })
        });
        // All are started before the first one is waited for.
        let parts: Vec<_> = parts.collect();
        parts.into_iter().map(|part| part.join().unwrap()).fold([0; 4], sum)
    });
    let [changed, lies, accepted, established] = totals;
    println!(
        "{count} cases: {changed} packets changed, {lies} of them lies, {accepted} accepted; {established} established"
    );
    assert!(changed >= count, "each case changes a packet");
    assert!(lies > changed / 4, "{lies} of {changed} packets are lies");
    assert!(accepted > changed / 10, "{accepted} of {changed} packets are accepted: the others show little");
    assert!(established > count / 3, "{established} of {count} cases end with an association");
}

fn counts(outcome: Outcome) -> [u64; 4] {
    let Outcome { changed, lies, accepted, is_established } = outcome;
    [changed as u64, lies as u64, accepted as u64, is_established.into()]
}

fn sum(one: [u64; 4], other: [u64; 4]) -> [u64; 4] {
    core::array::from_fn(|index| one[index] + other[index])
}

fn run(mutations: &Mutations, case: u64) -> Outcome {
    let mut rng = Rng::split(case, "mutations");
    let bytes: Vec<u8> = (0..INPUT_LEN).map(|_| rng.next_u32() as u8).collect();
    let _printed = PrintedOnPanic(case, &bytes);
    mutations.run(&bytes)
}

/// Names the case that has failed, and prints its bytes for the corpus.
struct PrintedOnPanic<'a>(u64, &'a [u8]);

impl Drop for PrintedOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.1.iter().map(|byte| format!("{byte:02x}")).collect();
            eprintln!("case {}: {hex}", self.0);
        }
    }
}

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/mutations")
}

// Claim: Fuzz target `mutations` (`crates/hip/fuzz`): the bytes choose an exchange, which of its packets change, how, and with whose keys,
// and what a host does then; the claims are those of the test.
#[test]
fn the_corpus_of_mutations_holds() {
    let mut files: Vec<PathBuf> = fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 8);
    let mutations = Mutations::new();
    for file in files {
        println!("{}", file.display());
        mutations.run(&fs::read(file).unwrap());
    }
}
