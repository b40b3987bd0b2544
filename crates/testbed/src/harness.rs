//! The harness of tests with real kernels, whose `main` must acquire its privileges before the first thread starts, which
//! the standard harness cannot do. A test that cannot run here says so in one line; with `HOLDOVER_REQUIRE_NAMESPACES=1` in
//! the environment, as in CI, it fails instead.
//!
//! Their bounds are on real time, and others run beside them: a test that fails is run again alone, once, for at most [`MOST_RUN_AGAIN`] tests
//! of an executable. A line says so, and why it had failed.
//!
//! ```no_run
//! use holdover_testbed::{Namespace, harness};
//!
//! fn loopback_is_there(namespace: &Namespace) {
//!     holdover_testbed::Netlink::open(namespace).unwrap().link("lo").unwrap();
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     let harness = harness::Harness::start(4);
//!     harness.run(harness.group("links", &[("loopback_is_there", loopback_is_there)]))
//! }
//! ```

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use libtest_mimic::Arguments;
pub use libtest_mimic::{Completion, Failed, Trial};

use crate::{Namespace, Privilege, sysctl};

/// A test: its name, and its function in a fresh namespace.
pub type Test = (&'static str, fn(&Namespace));

/// More failures are not run again: the load of other tests is not their cause.
pub const MOST_RUN_AGAIN: usize = 3;

/// Tests that run beside others share it.
static BESIDE_OTHERS: RwLock<()> = RwLock::new(());
/// The tests that were run again.
static RUN_AGAIN: AtomicUsize = AtomicUsize::new(0);

type Result<T, E = Failed> = std::result::Result<T, E>;

/// Runs a test, and again without others beside it if it fails.
fn beside_others_or_alone(name: &str, test: impl Fn() -> Result<Completion>) -> Result<Completion> {
    let run = || match catch_unwind(AssertUnwindSafe(&test)) {
        Ok(result) => result,
        Err(panic) => Err(message_of(&*panic).into()),
    };
    let beside = {
        let _shared = BESIDE_OTHERS.read().unwrap_or_else(PoisonError::into_inner);
        run()
    };
    let Err(failed) = beside else { return beside };
    if RUN_AGAIN.fetch_add(1, Ordering::Relaxed) >= MOST_RUN_AGAIN {
        return Err(failed);
    }
    let why = failed.message().unwrap_or("no message").to_owned();
    let _alone = BESIDE_OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    eprintln!("{name} has failed beside other tests, and is run again alone: {why}");
    let again = run();
    if again.is_ok() {
        eprintln!("{name} passed alone.");
    }
    again
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    format!("test panicked: {text}")
}

/// Whether a test that cannot run here fails.
fn is_required() -> bool {
    std::env::var_os("HOLDOVER_REQUIRE_NAMESPACES").is_some_and(|value| value == "1")
}

/// Prints why a test does not run here. The test returns after it.
///
/// # Panics
///
/// With `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment.
#[track_caller]
pub fn skip(reason: impl Display) {
    assert!(!is_required(), "cannot run here: {reason}");
    eprintln!("skipped: {reason}");
}

/// The kernel gives up a silent IPv6 neighbour behind `interface` some 5 s after its last answer; then it asks for it every 3 s while packets
/// for it wait.
///
/// # Panics
///
/// There is no such interface in the calling thread's namespace.
pub fn forget_neighbours_soon(namespace: &Namespace, interface: &str) {
    let times = [
        ("base_reachable_time_ms", "1000"),
        ("delay_first_probe_time", "1"),
        ("ucast_solicit", "1"),
        ("retrans_time_ms", "3000"),
    ];
    for (name, value) in times {
        sysctl::set(namespace, &format!("net.ipv6.neigh.{interface}.{name}"), value).expect("the interface exists");
    }
}

/// The command line, and what this machine lacks for the tests.
#[derive(Clone, Debug)]
pub struct Harness {
    arguments: Arguments,
    missing: Option<String>,
}

impl Harness {
    /// Reads the command line and acquires the privileges for namespaces. Must be called before the first thread starts,
    /// because it may enter a user namespace.
    ///
    /// The number of tests that run at a time by default: they wait for timers most of the time.
    pub fn start(at_a_time: usize) -> Self {
        let missing = Privilege::acquire().err().map(|error| error.to_string());
        Self { missing, ..Self::without_privileges(at_a_time) }
    }

    /// As [`start`](Self::start), but the tests have the privileges of the user who runs them.
    pub fn without_privileges(at_a_time: usize) -> Self {
        let mut arguments = Arguments::from_args();
        arguments.test_threads.get_or_insert(at_a_time);
        Self { arguments, missing: None }
    }

    /// Adds a requirement of the tests, which is looked for only if nothing is missing yet.
    #[must_use]
    pub fn needs<E: Display>(mut self, look: impl FnOnce() -> Result<(), E>) -> Self {
        self.missing = self.missing.or_else(|| look().err().map(|error| error.to_string()));
        self
    }

    /// A test.
    pub fn trial(&self, name: impl Into<String>, test: impl Fn() -> Result<Completion> + Send + 'static) -> Trial {
        let (name, missing) = (name.into(), self.missing.clone());
        Trial::ignorable_test(name.clone(), move || match missing {
            Some(reason) if is_required() => Err(reason.into()),
            Some(reason) => Ok(Completion::ignored_with(reason)),
            None => beside_others_or_alone(&name, test),
        })
    }

    /// Tests of a group, each in a fresh namespace.
    pub fn group(&self, group: &str, tests: &[Test]) -> Vec<Trial> {
        let trial = |&(name, test): &Test| {
            self.trial(format!("{group}::{name}"), move || {
                // A panic inside continues here and fails the test.
                Namespace::run("test", test)?;
                Ok(Completion::Completed)
            })
        };
        tests.iter().map(trial).collect()
    }

    /// Runs the tests.
    ///
    /// Those that were not made by [`trial`](Self::trial) are not run again.
    pub fn run(&self, trials: Vec<Trial>) -> ExitCode {
        libtest_mimic::run(&self.arguments, trials).exit_code()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    // Claim: A test with real kernels that fails is run again alone, once; at most three of an executable are.
    #[test]
    fn a_test_that_fails_is_run_again_alone() {
        let runs = Cell::new(0);
        let fails_first = |times: u32| {
            runs.set(0);
            beside_others_or_alone("test", || {
                runs.set(runs.get() + 1);
                assert!(runs.get() > times, "run {}", runs.get());
                Ok(Completion::Completed)
            })
        };
        assert!(fails_first(0).is_ok());
        assert_eq!(runs.get(), 1);
        assert!(fails_first(1).is_ok());
        assert_eq!(runs.get(), 2);
        assert_eq!(fails_first(2).err().unwrap().message(), Some("test panicked: run 2"));
        assert!(fails_first(1).is_ok(), "the third one that is run again");
        assert_eq!(fails_first(1).err().unwrap().message(), Some("test panicked: run 1"));
        assert_eq!(runs.get(), 1);
    }
}
