//! The commands as users have them: each test runs the program, and checks its output, files and exit status.

// Tests look at files and processes.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod agent;
mod demo;
mod doctor;
mod explain;
mod gateway;
mod gateway_and_agent;
mod kernel;
mod packetdrill;
mod reproduce;
mod run;
mod scenario;
mod support;
mod sweep;

use std::process::ExitCode;

use holdover_testbed::harness::{Completion, Harness};

type Test = (&'static str, fn());

/// Tests at a time on few cores, unless the command line says otherwise. Those with kernels wait for timers most of the time.
const TESTS_AT_A_TIME: usize = 6;

fn main() -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // The programs have the privileges of the user.
    let harness = Harness::without_privileges(cores.max(TESTS_AT_A_TIME));
    // Those with the longest tests first.
    let groups = [
        ("gateway_and_agent", gateway_and_agent::TESTS),
        ("doctor", doctor::TESTS),
        ("demo", demo::TESTS),
        ("kernel", kernel::TESTS),
        ("agent", agent::TESTS),
        ("explain", explain::TESTS),
        ("gateway", gateway::TESTS),
        ("packetdrill", packetdrill::TESTS),
        ("reproduce", reproduce::TESTS),
        ("run", run::TESTS),
        ("scenario", scenario::TESTS),
        ("sweep", sweep::TESTS),
    ];
    let trial = |group: &str, &(name, test): &(&str, fn())| {
        harness.trial(format!("{group}::{name}"), move || {
            test();
            Ok(Completion::Completed)
        })
    };
    harness.run(groups.iter().flat_map(|(group, tests)| tests.iter().map(|test| trial(group, test))).collect())
}
