//! Experiments on TCP's behaviour around outages: on the running kernel, and on the profiles that model it.
//!
//! An [`Experiment`] is a question, with its [`Case`]s. A case is one connection of a bulk sender to a scripted peer ([`Wire`]), which
//! acknowledges by a rule, falls silent, and returns with a stimulus. The same script runs on both [`Subject`]s, the kernel in wall-clock
//! time and a profile in virtual time, and [`try_case`] compares the measured values, with a verdict by each measure's [`Tolerance`].
//! [`STATEMENTS`] are the assumptions of the mechanisms for links that come and go, judged by the same results.

mod action;
mod compare;
mod experiment;
mod outage;
mod peer;
mod statements;
mod stimuli;
mod subject;
mod timers;
mod undo;
mod window;

pub use action::LocalAction;
pub use compare::{CaseResult, Verdict, try_case};
pub use experiment::{Case, Experiment, Known, Length, Measure, Tolerance, Value};
pub use peer::{FIRST_BYTE, Happening, Sample, Script, Seen, Wire};
pub use statements::{Evidence, Judgement, STATEMENTS, Statement};
pub use subject::{Ended, Observation, RtoMax, Setup, Subject, TrialError, run};

/// All experiments, in the order of the page.
pub fn experiments() -> Vec<Experiment> {
    [timers::experiments(), window::experiments(), stimuli::experiments(), undo::experiments()].concat()
}
