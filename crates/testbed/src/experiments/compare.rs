//! Kernel and profile side by side.

use holdover_base::Duration;

use super::experiment::{Case, Experiment, Measure, Tolerance, Value};
use super::subject::{Subject, TrialError};
use crate::{Lateness, Namespace, Repeated};

/// The result of comparing one measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Nothing to compare: there is no profile, or the value is only shown.
    Shown,
    /// Within the tolerance.
    Within,
    /// Beyond the tolerance, for this known reason.
    Known(&'static str),
    /// Beyond the tolerance.
    Differs,
}

/// The result of a case.
#[derive(Clone, PartialEq, Debug)]
pub struct CaseResult {
    /// The kernel's values in the last run, which counts.
    pub kernel: Vec<Value>,
    /// The machine's longest delay during that run.
    pub lateness: Duration,
    /// The machine's longest delay during each earlier run on the kernel, which it excuses; see [`Lateness::repeat`].
    pub excuses: Vec<Duration>,
    /// The profile's values.
    pub ours: Option<Vec<Value>>,
    /// One for each measure.
    pub verdicts: Vec<Verdict>,
}

/// Within this time, in milliseconds, no timer of TCP expires: one round trip of the scripts, with a margin.
const AT_ONCE: f64 = 60.0;

/// Runs a case on the kernel, in a separate namespace, and on the profile. A run on the kernel that fails, or that differs for no
/// [known](super::Known) reason, is repeated only if the machine was late meanwhile ([`Lateness::repeat`]): late ACKs end CUBIC's slow start
/// (HyStart, from a delay of 4 ms on), and a late peer decides races of timers.
pub fn try_case(experiment: &Experiment, case: &Case) -> Result<CaseResult, TrialError> {
    let ours = case.profile().map(|profile| case.run(Subject::Ours(profile))).transpose()?;
    let run = || {
        let kernel = on_kernel(case)?;
        let verdicts = verdicts(experiment, case, &kernel, ours.as_deref());
        Ok::<_, TrialError>((kernel, verdicts))
    };
    let agrees = |run: &Result<(Vec<Value>, Vec<Verdict>), TrialError>| {
        run.as_ref().is_ok_and(|(_, verdicts)| !verdicts.contains(&Verdict::Differs))
    };
    let Repeated { value, lateness, excuses } = Lateness::repeat(run, agrees);
    let (kernel, verdicts) = value?;
    Ok(CaseResult { kernel, lateness, excuses, ours, verdicts })
}

fn on_kernel(case: &Case) -> Result<Vec<Value>, TrialError> {
    Namespace::run("conformance", |namespace| case.run(Subject::Kernel(namespace, case.sender)))?
}

fn verdicts(experiment: &Experiment, case: &Case, kernel: &[Value], ours: Option<&[Value]>) -> Vec<Verdict> {
    let name = case.to_string();
    let verdict = |(index, measure): (usize, &Measure)| {
        let (Some(kernel), Some(ours)) = (kernel.get(index), ours.and_then(|ours| ours.get(index))) else {
            return Verdict::Shown;
        };
        let is_meant = |measured: &str| measured.is_empty() || measured == measure.name;
        let known = experiment.known.iter().find(|known| name.contains(known.case) && is_meant(known.measure));
        match measure.tolerance {
            Tolerance::Shown => Verdict::Shown,
            tolerance if tolerance.holds(kernel, ours, case.timers_ran) => Verdict::Within,
            _ => known.map_or(Verdict::Differs, |known| Verdict::Known(known.why)),
        }
    };
    experiment.measures.iter().enumerate().map(verdict).collect()
}

impl Tolerance {
    /// Whether the kernel's value and the profile's are close enough. Timers have already run for `ran` at the start of
    /// the times of [`Self::Timer`].
    pub fn holds(self, kernel: &Value, ours: &Value, ran: Duration) -> bool {
        let ran = ran.as_nanos() as f64 / 1e6;
        let close = |kernel: f64, ours: f64| match self {
            Self::Exact => (kernel - ours).abs() < 1e-9,
            Self::Share { percent, least } => (kernel - ours).abs() <= (kernel.max(ours) * percent / 100.0).max(least),
            // An immediate event waits for no timer, independent of earlier timers.
            Self::Timer if ours < AT_ONCE => (kernel - ours).abs() <= 30.0,
            Self::Timer => ours - 8.0 <= kernel && kernel <= ours + (ours + ran) / 8.0 + 30.0,
            Self::Shown => true,
        };
        match (kernel, ours) {
            (Value::Millis(kernel), Value::Millis(ours)) => close(*kernel, *ours),
            (Value::Count(kernel), Value::Count(ours)) => close(*kernel as f64, *ours as f64),
            (Value::Schedule(kernel), Value::Schedule(ours)) => {
                // The last events may be beyond the end of the run on either side.
                kernel.len().abs_diff(ours.len()) <= 1
                    && kernel.is_empty() == ours.is_empty()
                    && kernel.iter().zip(ours).all(|(kernel, ours)| close(*kernel, *ours))
            }
            _ => self == Self::Shown || kernel == ours,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_wheel_is_forgiven_and_an_early_timer_is_not() {
        let holds = |kernel, ours| Tolerance::Timer.holds(&Value::Millis(kernel), &Value::Millis(ours), Duration::ZERO);
        assert!(holds(1_024.0, 1_000.0) && holds(992.0, 1_000.0) && holds(34_306.0, 32_000.0));
        assert!(!holds(900.0, 1_000.0) && !holds(1_200.0, 1_000.0));
        let after_7_s =
            |kernel, ours| Tolerance::Timer.holds(&Value::Millis(kernel), &Value::Millis(ours), Duration::from_secs(7));
        assert!(after_7_s(1_300.0, 900.0) && !after_7_s(2_500.0, 900.0) && !after_7_s(100.0, 0.0));
        let holds = |kernel: &[f64], ours: &[f64]| {
            Tolerance::Timer.holds(&Value::Schedule(kernel.to_vec()), &Value::Schedule(ours.to_vec()), Duration::ZERO)
        };
        assert!(holds(&[256.0, 512.0], &[250.0, 500.0, 1_000.0]));
        assert!(!holds(&[256.0, 256.0], &[250.0, 500.0]));
        assert!(!holds(&[], &[250.0, 500.0]));
    }

    #[test]
    fn events_on_one_side_only_differ() {
        let share = Tolerance::Share { percent: 20.0, least: 2.0 };
        let holds = |kernel, ours| share.holds(&kernel, &ours, Duration::ZERO);
        assert!(!holds(Value::Nothing, Value::Count(1)) && holds(Value::Nothing, Value::Nothing));
        assert!(holds(Value::Count(10), Value::Count(8)) && !holds(Value::Count(20), Value::Count(10)));
        assert!(!Tolerance::Exact.holds(&Value::Flag(true), &Value::Flag(false), Duration::ZERO));
    }
}
