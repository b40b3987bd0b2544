//! An experiment, its cases and measures.

use core::fmt;
use std::sync::Arc;

use holdover_base::{Duration, Instant};
use holdover_tcp::Profile;

use super::subject::{Observation, Subject, TrialError};
use crate::Congestion;

/// A question about a TCP, and how it is examined.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// The question.
    pub question: &'static str,
    /// The set-up.
    pub set_up: &'static str,
    /// The measures of every case.
    pub measures: &'static [Measure],
    /// The cases.
    pub cases: Vec<Case>,
    /// Permanent differences between the kernel and the profiles, with their reasons.
    pub known: &'static [Known],
}

/// One connection.
#[derive(Clone)]
pub struct Case {
    /// Its description without the sender; unique in its experiment for each sender.
    pub label: String,
    /// The sender.
    pub sender: Congestion,
    /// Whether it is part of every run.
    pub length: Length,
    /// Whether it runs on a kernel only.
    pub kernel_only: bool,
    /// How long the sender's timers have run at the start of the times of [`Tolerance::Timer`]: these include the kernel's delays by then.
    pub timers_ran: Duration,
    body: Arc<Body>,
}

/// Runs a case and measures.
type Body = dyn Fn(Subject<'_>) -> Result<Vec<Value>, TrialError> + Send + Sync;

/// The duration of a case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Length {
    /// Seconds: included in the tests.
    Short,
    /// Up to half a minute.
    Medium,
    /// Minutes: run on request.
    Long,
}

/// A measured quantity.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measure {
    /// Its name, with the unit.
    pub name: &'static str,
    /// The allowed difference between kernel and profile.
    pub tolerance: Tolerance,
}

/// The allowed difference between the kernel's and the profile's values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Tolerance {
    /// None.
    Exact,
    /// For counts: this percentage of the larger one, or this amount.
    Share {
        /// Percent.
        percent: f64,
        /// In the value's own unit.
        least: f64,
    },
    /// For times determined by timers: an eighth, which the kernel's timer wheel may add, and 30 ms for a busy machine.
    Timer,
    /// The value is shown and not compared.
    Shown,
}

/// A permanent difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// The cases: those whose label and sender, as `Display` prints them, contain this.
    pub case: &'static str,
    /// The measure, or "" for all of the case.
    pub measure: &'static str,
    /// The reason, in a sentence.
    pub why: &'static str,
}

/// A measured value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// It did not happen.
    Nothing,
    /// A time in milliseconds.
    Millis(f64),
    /// Times in milliseconds, in order.
    Schedule(Vec<f64>),
    /// A count.
    Count(i64),
    /// A flag.
    Flag(bool),
    /// A description in one or a few words.
    Words(String),
}

impl Case {
    /// A case of a bulk sender with `sender`. Its body returns the values in the order of the experiment's measures.
    pub fn new(
        label: impl Into<String>,
        sender: Congestion,
        length: Length,
        body: impl Fn(Subject<'_>) -> Result<Vec<Value>, TrialError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            label: label.into(),
            sender,
            length,
            kernel_only: false,
            timers_ran: Duration::ZERO,
            body: Arc::new(body),
        }
    }

    /// The same, for kernels only.
    #[must_use]
    pub fn of_kernel_only(mut self) -> Self {
        self.kernel_only = true;
        self
    }

    /// The same, with timers that have run for `ran` at the start of the measured times.
    #[must_use]
    pub fn with_timers_running(mut self, ran: Duration) -> Self {
        self.timers_ran = ran;
        self
    }

    /// The profile that models this sender, if there is one.
    pub fn profile(&self) -> Option<Profile> {
        match self.sender {
            _ if self.kernel_only => None,
            Congestion::Cubic => Some(Profile::Linux6Cubic),
            Congestion::Reno => Some(Profile::Linux6Reno),
            Congestion::Bbr => Some(Profile::Linux6Bbr),
        }
    }

    /// Runs it on one subject.
    pub fn run(&self, subject: Subject<'_>) -> Result<Vec<Value>, TrialError> {
        (self.body)(subject)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sender = self.sender.name();
        if self.label.is_empty() { f.write_str(sender) } else { write!(f, "{}, {sender}", self.label) }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("label", &self.label).field("sender", &self.sender).finish_non_exhaustive()
    }
}

impl Value {
    /// The time from `from` to `to`, if there is a `to`.
    pub(super) fn between(from: Instant, to: Option<Instant>) -> Self {
        to.map_or(Self::Nothing, |to| Self::millis(to.saturating_since(from)))
    }

    pub(super) fn millis(span: Duration) -> Self {
        Self::Millis(span.as_nanos() as f64 / 1e6)
    }

    /// The times between consecutive instants.
    pub(super) fn gaps(times: &[Instant]) -> Self {
        let gap = |pair: &[Instant]| pair[1].saturating_since(pair[0]).as_nanos() as f64 / 1e6;
        Self::Schedule(times.windows(2).map(gap).collect())
    }

    pub(super) fn count(number: Option<impl Into<i64>>) -> Self {
        number.map_or(Self::Nothing, |number| Self::Count(number.into()))
    }

    /// The number in a time or a count.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Millis(millis) => Some(*millis),
            Self::Count(count) => Some(*count as f64),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::Millis(millis) => write!(f, "{millis:.0}"),
            Self::Schedule(waits) => {
                let waits: Vec<_> = waits.iter().map(|wait| format!("{wait:.0}")).collect();
                f.write_str(&waits.join(", "))
            }
            Self::Count(count) => write!(f, "{count}"),
            Self::Flag(is_so) => f.write_str(if *is_so { "yes" } else { "no" }),
            Self::Words(words) => f.write_str(words),
        }
    }
}

impl Observation {
    /// When `wire` marked `name`; an error if it never did.
    pub(super) fn marked(&self, name: &'static str) -> Result<Instant, TrialError> {
        self.wire.mark(name).ok_or(TrialError::NotShown { what: name })
    }
}
