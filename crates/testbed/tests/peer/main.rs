//! The kernel as a peer: of the project's TCP ([`ours`]), and of scripts that control every packet ([`linux`]), whose results are in
//! `docs/notes/linux-6.18.md` and are asserted for the profiles `linux-6-*` as well.
//!
//! They need the privilege to create network namespaces, as root or (where the system permits it) in a user namespace. Without it each test
//! prints why it did not run; with `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure. With `HOLDOVER_SHOW=1` the
//! experiments print their results; those that take minutes run with `--include-ignored`.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "these tests are about sockets and threads")]

mod linux;
mod ours;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

use holdover_testbed::experiments::Subject;
use holdover_testbed::harness::{Completion, Harness, Test, Trial};
use holdover_testbed::{Congestion, Lateness, Namespace, Repeated};

/// Tests at a time, unless the command line says otherwise. They wait for timers most of the time.
const TESTS_AT_A_TIME: usize = 8;

fn main() -> ExitCode {
    let harness = Harness::start(TESTS_AT_A_TIME);
    // An experiment that fails is repeated only if the machine was late meanwhile, which spoils a measurement of milliseconds.
    let on_the_kernel = |name: String, experiment: fn(Subject<'_>)| {
        harness.trial(name.clone(), move || {
            let run = || {
                let in_namespace =
                    || Namespace::run("peer", |namespace| experiment(Subject::Kernel(namespace, Congestion::Cubic)));
                catch_unwind(AssertUnwindSafe(in_namespace))
            };
            let Repeated { value, excuses, .. } = Lateness::repeat(run, |outcome| matches!(outcome, Ok(Ok(()))));
            for delay in excuses {
                eprintln!("{name}: repeated, as the machine was late by {delay}");
            }
            // A panic inside continues here and fails the test.
            match value {
                Ok(outcome) => outcome?,
                Err(panic) => resume_unwind(panic),
            }
            Ok(Completion::Completed)
        })
    };
    let ours = ours::TESTS.iter().flat_map(|group| harness.group("ours", group));
    let short = linux::EXPERIMENTS.iter().flat_map(|group| group.iter()).map(|experiment| (experiment, false));
    let long = linux::LONG_EXPERIMENTS.iter().map(|experiment| (experiment, true));
    let experiments = short.chain(long).flat_map(|(&(name, experiment), is_long)| {
        let on_the_kernel = on_the_kernel(format!("linux::{name}/kernel"), experiment);
        let on_profile = |profile| {
            Trial::test(format!("linux::{name}/{profile}"), move || {
                experiment(Subject::Ours(profile));
                Ok(())
            })
        };
        std::iter::once(on_the_kernel.with_ignored_flag(is_long)).chain(linux::PROFILES.map(on_profile))
    });
    harness.run(ours.chain(experiments).collect())
}
