//! The project's TCP with the kernel's, under a selection of settings with every pair of values; `holdover kernel-matrix --full` runs the
//! whole product.
//!
//! They need the privilege to create network namespaces, as root or (where the system permits it) in a user namespace. Without it each test
//! prints why it did not run; with `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure. With `HOLDOVER_CAPTURE_DIR` set,
//! each run writes a capture there.

use std::path::PathBuf;
use std::process::ExitCode;

use holdover_testbed::Privilege;
use holdover_testbed::matrix::{Combination, RunOptions, every_pair, run};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Runs at a time, unless the command line says otherwise. They wait for their paths most of the time.
const RUNS_AT_A_TIME: usize = 12;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(RUNS_AT_A_TIME);
    // This comes before the first thread, because it may have to enter a user namespace.
    let missing = Privilege::acquire().err().map(|error| error.to_string());
    let is_required = std::env::var_os("HOLDOVER_REQUIRE_NAMESPACES").is_some_and(|value| value == "1");
    let trial = |combination: Combination| {
        let missing = missing.clone();
        Trial::ignorable_test(format!("matrix/{combination}"), move || match missing {
            Some(reason) if is_required => Err(reason.into()),
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => transfer(&combination).map(|()| Completion::Completed),
        })
    };
    libtest_mimic::run(&arguments, every_pair().into_iter().map(trial).collect()).exit_code()
}

fn transfer(combination: &Combination) -> Result<(), Failed> {
    let capture = std::env::var_os("HOLDOVER_CAPTURE_DIR")
        .map(|directory| PathBuf::from(directory).join(format!("{combination}.pcapng")));
    let outcome = run(combination, &RunOptions { capture, ..RunOptions::new(combination) })?;
    if outcome.findings.is_empty() { Ok(()) } else { Err(outcome.findings.join("\n").into()) }
}
