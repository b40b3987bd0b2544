//! Kernel and profile side by side.

use holdover_base::Duration;

use super::experiment::{Case, Experiment, Measure, Tolerance, Value};
use super::subject::{Subject, TrialError};
use crate::Namespace;

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
    /// The kernel's values: the medians, if there were several runs.
    pub kernel: Vec<Value>,
    /// The number of runs on the kernel.
    pub tries: usize,
    /// The profile's values.
    pub ours: Option<Vec<Value>>,
    /// One for each measure.
    pub verdicts: Vec<Verdict>,
}

/// Within this time, in milliseconds, no timer of TCP expires: one round trip of the scripts, with a margin.
const AT_ONCE: f64 = 60.0;

/// The most runs on a kernel whose values differ: a busy machine sometimes spoils a measurement of milliseconds.
const TRIES: usize = 3;

/// Runs a case on the kernel, in a separate namespace, and on the profile. If they differ, it is run twice more on the kernel, and the
/// medians count.
pub fn try_case(experiment: &Experiment, case: &Case) -> Result<CaseResult, TrialError> {
    let ours = case.profile().map(|profile| case.run(Subject::Ours(profile))).transpose()?;
    let mut tries = Vec::new();
    loop {
        tries.push(on_kernel(case)?);
        let kernel = medians(&tries);
        let verdicts = verdicts(experiment, case, &kernel, ours.as_deref());
        let agrees_at_once = tries.len() == 1 && !verdicts.contains(&Verdict::Differs);
        if agrees_at_once || tries.len() == TRIES {
            return Ok(CaseResult { kernel, tries: tries.len(), ours, verdicts });
        }
    }
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

/// The median of several runs, value by value; for values without an order, the most frequent one.
fn medians(tries: &[Vec<Value>]) -> Vec<Value> {
    let width = tries.iter().map(Vec::len).min().unwrap_or(0);
    let column = |index: usize| {
        let values: Vec<&Value> = tries.iter().map(|values| &values[index]).collect();
        median(&values)
    };
    (0..width).map(column).collect()
}

fn median(values: &[&Value]) -> Value {
    if values.iter().all(|value| value.number().is_some()) {
        let mut sorted = values.to_vec();
        sorted.sort_by(|a, b| a.number().unwrap_or(0.0).total_cmp(&b.number().unwrap_or(0.0)));
        return sorted[(sorted.len() - 1) / 2].clone();
    }
    let schedules: Vec<&Vec<f64>> =
        values.iter().filter_map(|value| if let Value::Schedule(waits) = value { Some(waits) } else { None }).collect();
    if schedules.len() == values.len() {
        let width = schedules.iter().map(|waits| waits.len()).min().unwrap_or(0);
        let middle = |index: usize| {
            let mut column: Vec<f64> = schedules.iter().map(|waits| waits[index]).collect();
            column.sort_by(f64::total_cmp);
            column[(column.len() - 1) / 2]
        };
        return Value::Schedule((0..width).map(middle).collect());
    }
    let votes = |value: &Value| values.iter().filter(|other| **other == value).count();
    values.iter().copied().max_by_key(|value| votes(value)).cloned().unwrap_or(Value::Nothing)
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

    #[test]
    fn medians_are_taken_value_by_value() {
        let tries = [
            vec![Value::Millis(9.0), Value::Flag(true), Value::Schedule(vec![1.0, 5.0])],
            vec![Value::Millis(1.0), Value::Flag(false), Value::Schedule(vec![2.0])],
            vec![Value::Millis(5.0), Value::Flag(true), Value::Schedule(vec![3.0, 7.0])],
        ];
        let expected = [Value::Millis(5.0), Value::Flag(true), Value::Schedule(vec![2.0])];
        assert_eq!(medians(&tries), expected);
        let words = |text: &str| Value::Words(text.to_owned());
        assert_eq!(median(&[&Value::Nothing, &words("a"), &words("a")]), words("a"));
    }
}
