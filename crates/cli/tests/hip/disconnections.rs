//! The grid of disconnections, with short ones.

use std::path::PathBuf;

use holdover_base::ByteCount;
use holdover_conformance::Grid as _;
use holdover_conformance::moves::disconnections::{Cell, Cuts, DisconnectionsGrid, Run, Transfers, Variant};
use holdover_lab::reproduce::catalogue::Catalogue;

use crate::Test;

pub(crate) const TESTS: &[Test] = &[(
    "a_transfer_is_cut_periodically_and_alternates_between_networks",
    a_transfer_is_cut_periodically_and_alternates_between_networks,
)];

/// It takes 3.2 s of connected time at least, and more than twice as much with the slow start after each return.
const AMOUNT: ByteCount = ByteCount(4_000_000);

fn run(variant: Variant) -> Run {
    let papers = Catalogue::all(None).unwrap();
    let grid = DisconnectionsGrid {
        holdover: PathBuf::from(env!("CARGO_BIN_EXE_holdover")),
        directory: |name| std::env::temp_dir().join(format!("holdover-test-{}-{name}", std::process::id())),
        amount: AMOUNT,
        paper: papers.into_iter().find(|paper| paper.name == "hip-uto-rt").unwrap(),
        simulated: Transfers::new(),
        simulated_in_full: Transfers::new(),
    };
    let machine = grid.examine().unwrap();
    grid.run(Cell { cuts: Cuts::periodic(2, 1), amount: AMOUNT, variant }, &machine).unwrap()
}

// Claim: `reproduce hip-uto-rt --real` cuts a transfer again and again: the mobile host alternates between its two networks, each of which
// the server verifies, and with the trigger data continues on each of them. Results: docs/reproduction/hip-uto-rt-real.md.
// Tests: `moves::disconnections::run::tests::net_times_are_without_the_disconnections_before_the_end`,
// `moves::disconnections::cell::tests::a_transfer_is_cut_once_or_again_and_again`
fn a_transfer_is_cut_periodically_and_alternates_between_networks() {
    let run = run(Variant::Trigger);
    eprintln!("{run:?}");
    let net_s = run.transferred.net_time.seconds().expect("the transfer ends");
    assert!(net_s >= 3.2, "4 MB at 10 Mbit/s: {run:?}");
    assert_eq!(run.received, AMOUNT.0);
    // At the second network, and at the first one again. On a busy machine the next cut may come before an exchange.
    assert!(run.exchanges_s.iter().flatten().count() >= 2, "{run:?}");
    assert!(run.transferred.idle_s.len() >= 2, "{run:?}");
}
