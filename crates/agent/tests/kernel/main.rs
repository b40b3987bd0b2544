//! Tests of the agent with the kernel, in separate network namespaces.
//!
//! They need the privileges to create network namespaces and to load eBPF programs, as root has. Without them each test
//! prints why it did not run; with `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "these tests are about sockets and threads")]

mod address_gone;
mod agents;
mod dry_run;
mod engine;
mod families;
mod gateway;
mod iproute;
mod link_watch;
mod logind;
mod other_process;
mod silent_keys;
mod stacked;
mod user_timeouts;
mod wire;
mod wireguard;

use std::process::ExitCode;

use holdover_testbed::{Namespace, Privilege};
use libtest_mimic::{Arguments, Completion, Trial};

/// A test: its name, and its function in a fresh namespace.
type Test = (&'static str, fn(&Namespace));

fn main() -> ExitCode {
    if let Some(code) = other_process::role() {
        return code;
    }
    let arguments = Arguments::from_args();
    // Before the first thread: this may have to enter a user namespace.
    let missing = Privilege::acquire().map_err(|error| error.to_string()).and_then(|_| user_timeouts::can_load());
    libtest_mimic::run(&arguments, trials(missing.err().as_deref())).exit_code()
}

fn trials(missing: Option<&str>) -> Vec<Trial> {
    let is_required = std::env::var_os("HOLDOVER_REQUIRE_NAMESPACES").is_some_and(|value| value == "1");
    let groups: [(&str, &[Test]); 11] = [
        ("address_gone", address_gone::TESTS),
        ("agents", agents::TESTS),
        ("dry_run", dry_run::TESTS),
        ("families", families::TESTS),
        ("gateway", gateway::TESTS),
        ("link_watch", link_watch::TESTS),
        ("logind", logind::TESTS),
        ("silent_keys", silent_keys::TESTS),
        ("stacked", stacked::TESTS),
        ("user_timeouts", user_timeouts::TESTS),
        ("engine", engine::TESTS),
    ];
    let tests = groups.into_iter().flat_map(|(group, tests)| tests.iter().map(move |test| (group, *test)));
    tests
        .map(|(group, (name, test))| {
            let missing = missing.map(str::to_owned);
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
