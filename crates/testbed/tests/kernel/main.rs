//! Tests of the test bed itself, with the running kernel.
//!
//! They need the privilege to create network namespaces, as root or (where the system permits it) in a user namespace. Without it each test
//! prints why it did not run; with `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "these tests are about sockets and threads")]

mod echo;
mod ethernet;
mod multipath;
mod namespaces;
mod remains;
mod sysctls;
mod tcp;
mod tun;
mod worlds;

use std::process::ExitCode;

use holdover_testbed::{Namespace, NamespaceThread, Privilege};
use libtest_mimic::{Arguments, Completion, Trial};

/// Set in the copy of this program that [`namespaces::in_a_user_namespace`] starts.
const NESTED: &str = "HOLDOVER_TESTBED_NESTED";

/// A test: its name, and its function in a fresh namespace.
type Test = (&'static str, fn(&Namespace));

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // This comes before the first thread, because it may have to enter a user namespace.
    let privilege = Privilege::acquire();
    let before = remains::Surroundings::look();
    let reason = privilege.err().map(|error| error.to_string());
    let conclusion = libtest_mimic::run(&arguments, trials(reason.as_deref()));
    if let Err(remains) = before.compare_soon() {
        eprintln!("the tests left something behind: {remains}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn trials(missing: Option<&str>) -> Vec<Trial> {
    let is_required = std::env::var_os("HOLDOVER_REQUIRE_NAMESPACES").is_some_and(|value| value == "1");
    let groups: [(&str, &[Test]); 8] = [
        ("ethernet", ethernet::TESTS),
        ("multipath", multipath::TESTS),
        ("namespaces", namespaces::TESTS),
        ("remains", remains::TESTS),
        ("sysctls", sysctls::TESTS),
        ("tcp", tcp::TESTS),
        ("tun", tun::TESTS),
        ("worlds", worlds::TESTS),
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

/// Another namespace in addition to the test's own, with a thread that holds it until `body` returns.
fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce(&Namespace) -> T + Send + 'static) -> NamespaceThread<T> {
    Namespace::spawn(name, body).expect("the privileges were checked")
}
