//! `holdover hip` with real daemons and unmodified kernels: two hosts in network namespaces, and between them a router whose links
//! take time.
//!
//! They need the right to make network namespaces. Without it each test says why it did not run; with
//! `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "these tests are about sockets and threads")]

mod daemon;
mod internet;
mod moves;
mod network;
mod servers;
mod talk;
mod transfer;
mod words;

use std::process::ExitCode;

use holdover_testbed::Privilege;
use libtest_mimic::{Arguments, Completion, Trial};

type Test = (&'static str, fn());

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // Before the first thread: this may have to enter a user namespace.
    let missing = Privilege::acquire().err().map(|error| error.to_string());
    let is_required = std::env::var_os("HOLDOVER_REQUIRE_NAMESPACES").is_some_and(|value| value == "1");
    let tests: Vec<Test> = [talk::TESTS, moves::TESTS, servers::TESTS].concat();
    let words = words::TESTS.iter().map(|&(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    let trials = tests.into_iter().map(|(name, test)| {
        let missing = missing.clone();
        Trial::ignorable_test(name, move || match missing {
            Some(reason) if is_required => Err(reason.into()),
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => {
                test();
                Ok(Completion::Completed)
            }
        })
    });
    libtest_mimic::run(&arguments, trials.chain(words).collect()).exit_code()
}
