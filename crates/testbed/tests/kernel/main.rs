//! Tests of the test bed itself, with the running kernel.
//!
//! They need the privilege to create network namespaces, as root or (where the system permits it) in a user namespace. Without it each test
//! prints why it did not run; with `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure.

// Claim: The test bed itself: namespaces and devices without remains, impairments, deadlines, captures.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "these tests are about sockets and threads")]

mod echo;
mod ethernet;
mod icmp;
mod multipath;
mod namespaces;
mod remains;
mod sysctls;
mod tcp;
mod tun;
mod worlds;

use std::process::ExitCode;

use holdover_testbed::harness::{Harness, Test};
use holdover_testbed::{Namespace, NamespaceThread};

/// Set in the copy of this program that [`namespaces::in_a_user_namespace`] starts.
const NESTED: &str = "HOLDOVER_TESTBED_NESTED";

/// Tests at a time, unless the command line says otherwise. They wait for timers most of the time.
const TESTS_AT_A_TIME: usize = 12;

fn main() -> ExitCode {
    let harness = Harness::start(TESTS_AT_A_TIME);
    let before = remains::Surroundings::look();
    let groups = [
        ("ethernet", ethernet::TESTS),
        ("icmp", icmp::TESTS),
        ("multipath", multipath::TESTS),
        ("namespaces", namespaces::TESTS),
        ("remains", remains::TESTS),
        ("sysctls", sysctls::TESTS),
        ("tcp", tcp::TESTS),
        ("tun", tun::TESTS),
        ("worlds", worlds::TESTS),
    ];
    let exit_code = harness.run(groups.into_iter().flat_map(|(group, tests)| harness.group(group, tests)).collect());
    if let Err(remains) = before.compare_soon() {
        eprintln!("the tests left something behind: {remains}");
        return ExitCode::FAILURE;
    }
    exit_code
}

/// Another namespace in addition to the test's own, with a thread that holds it until `body` returns.
fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce(&Namespace) -> T + Send + 'static) -> NamespaceThread<T> {
    Namespace::spawn(name, body).expect("the privileges were checked")
}
