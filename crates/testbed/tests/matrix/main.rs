//! The project's TCP with the kernel's, under a selection of settings with every pair of values; `holdover kernel-matrix --full` runs the
//! whole product.
//!
//! They need the privilege to create network namespaces, as root or (where the system permits it) in a user namespace. Without it each test
//! prints why it did not run; with `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure. With `HOLDOVER_CAPTURE_DIR` set,
//! each run writes a capture there.

// Claim: The kernel and every profile transfer 2 MiB exactly (length and 128-bit hash) and close in order: opened by either side,
// sent by either or both, kernel with CUBIC, Reno and BBR, with and without SACK, timestamps and window scale, over clean, lossy,
// reordering, duplicating, corrupting and interrupted paths, with the least MTU and 1500, over IPv4 and IPv6. In addition,
// `TCP_INFO` shows the agreed options and no data left over, and no counter of either side reports an error of the other.
// Results: docs/conformance/kernel-matrix.md.

use std::path::PathBuf;
use std::process::ExitCode;

use holdover_testbed::harness::{Completion, Failed, Harness};
use holdover_testbed::matrix::{Combination, RunOptions, every_pair, run};

/// Runs at a time, unless the command line says otherwise. They wait for their paths most of the time.
const RUNS_AT_A_TIME: usize = 12;

fn main() -> ExitCode {
    let harness = Harness::start(RUNS_AT_A_TIME);
    let trial = |combination: Combination| {
        harness.trial(format!("matrix/{combination}"), move || transfer(&combination).map(|()| Completion::Completed))
    };
    harness.run(every_pair().into_iter().map(trial).collect())
}

fn transfer(combination: &Combination) -> Result<(), Failed> {
    let capture = std::env::var_os("HOLDOVER_CAPTURE_DIR")
        .map(|directory| PathBuf::from(directory).join(format!("{combination}.pcapng")));
    let outcome = run(combination, &RunOptions { capture, ..RunOptions::new(combination) })?;
    if outcome.findings.is_empty() { Ok(()) } else { Err(outcome.findings.join("\n").into()) }
}
