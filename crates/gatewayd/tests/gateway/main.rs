//! Tests of the gateway between real kernels, in separate network namespaces: a fixed host, the gateway with its daemon as a separate
//! process, a link that can be cut, and a mobile host. The hosts run nothing but their kernels.
//!
//! They need the privileges to create network namespaces and to load eBPF programs, as root has; those of a cluster need etcd. Without them
//! each test prints why it did not run; with `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "these tests are about sockets and threads")]

mod absences;
mod cluster;
mod crashes;
mod handoff;
mod limits;
mod modes;
mod presence;
mod process;
mod watch;

use std::process::ExitCode;

use holdover_gatewayd::config::Config;
use holdover_gatewayd::demo::find_etcd;
use holdover_gatewayd::features;
use holdover_testbed::{Namespace, Privilege};
use libtest_mimic::{Arguments, Completion, Trial};

/// A test: its name, and its function in a fresh namespace.
type Test = (&'static str, fn(&Namespace));

fn main() -> ExitCode {
    if let Some(code) = process::role() {
        return code;
    }
    let arguments = Arguments::from_args();
    // Before the first thread: this may have to enter a user namespace.
    let missing = Privilege::acquire().map_err(|error| error.to_string()).and_then(|_| can_work());
    libtest_mimic::run(&arguments, trials(missing.err().as_deref())).exit_code()
}

fn can_work() -> Result<(), String> {
    let missing = features::examine(&Config::default()).into_iter().find(|feature| feature.needed && !feature.fine);
    missing.map_or(Ok(()), |feature| Err(format!("{}: {}", feature.name, feature.found)))
}

fn trials(missing: Option<&str>) -> Vec<Trial> {
    let is_required = std::env::var_os("HOLDOVER_REQUIRE_NAMESPACES").is_some_and(|value| value == "1");
    let no_etcd = find_etcd().err();
    let groups: [(&str, &[Test]); 7] = [
        ("cluster", cluster::TESTS),
        ("handoff", handoff::TESTS),
        ("absences", absences::TESTS),
        ("crashes", crashes::TESTS),
        ("limits", limits::TESTS),
        ("presence", presence::TESTS),
        ("modes", modes::TESTS),
    ];
    let tests = groups.into_iter().flat_map(|(group, tests)| tests.iter().map(move |test| (group, *test)));
    tests
        .map(|(group, (name, test))| {
            let no_etcd = no_etcd.as_deref().filter(|_| group == "cluster");
            let missing = missing.or(no_etcd).map(str::to_owned);
            Trial::ignorable_test(format!("{group}::{name}"), move || match missing {
                Some(reason) if is_required => Err(reason.into()),
                Some(reason) => Ok(Completion::ignored_with(reason)),
                None => {
                    // A panic inside continues here and fails the test.
                    Namespace::run("test", test)?;
                    Ok(Completion::Completed)
                }
            })
        })
        .collect()
}
