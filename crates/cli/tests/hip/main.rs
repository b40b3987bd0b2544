//! `holdover hip` with real daemons and unmodified kernels: two hosts in network namespaces, and between them a router whose links
//! take time.
//!
//! They need the right to make network namespaces. Without it each test says why it did not run; with
//! `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "these tests are about sockets and threads")]

mod daemon;
mod disconnections;
mod dns;
mod internet;
mod invite;
mod kernel_esp;
mod moves;
mod multipath;
mod narrow;
mod network;
mod outage;
mod plain;
mod proxy;
mod servers;
mod talk;
mod top;
mod transfer;
mod uplinks;
mod wireshark;
mod with_agent;
mod words;

use std::process::ExitCode;

use holdover_testbed::harness::{Completion, Harness, Trial};

type Test = (&'static str, fn());

/// Tests at a time, unless the command line says otherwise. They wait for timers most of the time.
const TESTS_AT_A_TIME: usize = 12;

fn main() -> ExitCode {
    let harness = Harness::start(TESTS_AT_A_TIME);
    let done = |test: fn()| {
        move || {
            test();
            Ok(Completion::Completed)
        }
    };
    // Those with the longest tests first.
    let kernels = [
        moves::TESTS,
        outage::TESTS,
        disconnections::TESTS,
        uplinks::TESTS,
        with_agent::TESTS,
        invite::TESTS,
        talk::TESTS,
        top::TESTS,
        narrow::TESTS,
        wireshark::TESTS,
        multipath::TESTS,
        servers::TESTS,
        proxy::TESTS,
        kernel_esp::TESTS,
    ]
    .concat();
    let kernels = kernels.into_iter().map(|(name, test)| harness.trial(name, done(test)));
    let words = words::TESTS.iter().chain(dns::TESTS).map(|&(name, test)| Trial::ignorable_test(name, done(test)));
    harness.run(kernels.chain(words).collect())
}
