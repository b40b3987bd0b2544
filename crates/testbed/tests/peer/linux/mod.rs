//! Experiments on Linux: the behaviour that the profiles `linux-6-*` model, examined on the kernel and on the profiles.
//! The results are in `docs/notes/linux-6.18.md`.

// Claim: The profiles `linux-6-cubic` and `linux-6-reno` answer the same scripts of single packets with the same segments at the
// same times as the kernel. Results: docs/notes/linux-6.18.md.

mod receiver;
mod recovery;
mod timers;
mod unacceptable;
mod window;

use core::fmt::Display;

use holdover_base::{Duration, Instant};
use holdover_tcp::Profile;

use holdover_testbed::experiments::{self, Happening, Seen, Setup, Subject, Wire};

/// An experiment: its name, and its function on the subject.
pub(crate) type Experiment = (&'static str, fn(Subject<'_>));

/// Experiments that take seconds.
pub(crate) const EXPERIMENTS: &[&[Experiment]] = &[
    timers::EXPERIMENTS,
    window::EXPERIMENTS,
    recovery::EXPERIMENTS,
    receiver::EXPERIMENTS,
    unacceptable::EXPERIMENTS,
];
/// Experiments that take minutes in wall-clock time.
pub(crate) const LONG_EXPERIMENTS: &[Experiment] = timers::LONG_EXPERIMENTS;

/// The profiles that model the kernel.
pub(crate) const PROFILES: [Profile; 2] = [Profile::Linux6Cubic, Profile::Linux6Reno];

const MS: Duration = Duration::from_millis(1);
/// The round trip of the scripts, if they have one.
const RTT: Duration = Duration::from_millis(50);
/// Data in a full segment.
const FULL: u32 = 1448;
/// A jiffy of the measured kernel (`CONFIG_HZ=250`): its clocks may seem to run early by as much.
const JIFFY: Duration = Duration::from_millis(4);

/// Runs `script` against the subject for `span`, and returns the wire. `prepare` sets the wire up before.
fn run(
    subject: Subject<'_>,
    setup: &Setup,
    span: Duration,
    prepare: impl FnOnce(&mut Wire),
    script: impl FnMut(&mut Wire, Happening<'_>) + Send,
) -> Wire {
    experiments::run(subject, setup, span, prepare, script).unwrap().wire
}

/// Prints the results, if requested.
fn show(what: &str, subject: Subject<'_>, seen: &dyn Display) {
    if std::env::var_os("HOLDOVER_SHOW").is_some_and(|value| value == "1") {
        println!("{what}: {subject}: {seen}");
    }
}

/// Times in milliseconds, as text.
fn millis(times: &[Duration]) -> String {
    let list: Vec<_> = times.iter().map(|time| format!("{:.1}", time.as_nanos() as f64 / 1e6)).collect();
    format!("[{}] ms", list.join(", "))
}

/// The times between consecutive segments.
fn gaps<'a>(segments: impl IntoIterator<Item = &'a Seen>) -> Vec<Duration> {
    let times: Vec<Instant> = segments.into_iter().map(|seen| seen.at).collect();
    times.windows(2).map(|pair| pair[1].saturating_since(pair[0])).collect()
}

/// The data sent from the segment `first` on: the time since the first one, and the index of the segment of 1448 bytes.
fn segments_from(wire: &Wire, first: usize) -> Vec<(u64, u32)> {
    let data = wire.data();
    let (start, base) = (data[0].at, data[0].segment.seq);
    let entry = |seen: &&Seen| (seen.at.saturating_since(start).as_millis(), (seen.segment.seq - base) / FULL);
    data[first..].iter().map(entry).collect()
}

/// Asserts that times are as expected: exactly in virtual time, except for the rounding of samples. The kernel rounds
/// long timers up by as much as an eighth, and runs them late when the machine is busy; it is never early.
#[track_caller]
fn assert_about(subject: Subject<'_>, times: &[Duration], expected: &[Duration]) {
    assert!(times.len() >= expected.len(), "{} instead of {}", millis(times), millis(expected));
    for (time, expected) in times.iter().zip(expected) {
        let latest = match subject {
            Subject::Kernel(..) => *expected * 3 / 2 + MS * 100,
            Subject::Ours(_) => *expected + MS,
        };
        assert!(*time + JIFFY >= *expected && *time <= latest, "{} instead of {expected}", millis(times));
    }
}
