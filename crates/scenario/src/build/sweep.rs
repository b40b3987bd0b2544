//! The sweep of a scenario.

use std::collections::BTreeSet;

use crate::error::ErrorKind;
use crate::file::{self, Range, Scale, ScenarioFile};
use crate::interval::Amount;
use crate::problem::{Problem, Under};
use crate::quantity::Percent;
use crate::statistics::Method;
use crate::sweep::{Axis, Compare, Measure, Metric, Replicate, Subject, Sweep};

/// The maximum number of points.
const MAX_POINTS: usize = 1_000_000;

/// The sweep of a scenario. A problem lies below the root of the file.
pub(crate) fn of_scenario(file: &ScenarioFile) -> Result<Option<Sweep>, Problem> {
    let Some(sweep) = &file.sweep else { return Ok(None) };
    of_table(sweep, file).under("sweep").map(Some)
}

fn of_table(sweep: &file::Sweep, file: &ScenarioFile) -> Result<Sweep, Problem> {
    let mut axes: Vec<Axis> = Vec::with_capacity(sweep.axes.len());
    let mut points = 1_usize;
    for (index, table) in sweep.axes.iter().enumerate() {
        let axis = axis(table, &axes).under_index(index).under("axis")?;
        points = points.saturating_mul(axis.values.len());
        axes.push(axis);
    }
    if points > MAX_POINTS {
        let message = format!("the axes make {points} points; at most {MAX_POINTS} are accepted");
        return Err(Problem::new(ErrorKind::BadValue, message)).under("axis");
    }
    let replicate = replicate(sweep.replicate.as_ref(), file).under("replicate")?;
    let compare = compare(sweep.compare.as_ref(), &replicate.measure, file).under("compare")?;
    Ok(Sweep { axes, replicate, compare })
}

fn axis(table: &file::Axis, before: &[Axis]) -> Result<Axis, Problem> {
    let label = table.label.clone().unwrap_or_else(|| table.path.clone());
    if before.iter().any(|axis| axis.label == label) {
        let message = format!("two axes are called \"{label}\"");
        let key = if table.label.is_some() { "label" } else { "path" };
        return Err(Problem::new(ErrorKind::Duplicate, message)).under(key);
    }
    let values = match (&table.values, &table.range) {
        (Some(values), None) if values.is_empty() => {
            return Err(Problem::unexpected(ErrorKind::BadValue, "an empty list", "at least one value"))
                .under("values");
        }
        (Some(values), None) => {
            let mut seen = BTreeSet::new();
            if let Some(index) = values.iter().position(|value| !seen.insert(value.to_string())) {
                let message = format!("the value {} is there twice: its cells would be tested twice", values[index]);
                return Err(Problem::new(ErrorKind::Duplicate, message).under_index(index)).under("values");
            }
            values.clone()
        }
        (None, Some(range)) => spread(range).under("range")?,
        (Some(_), Some(_)) => {
            return Err(Problem::conflict("it has both \"values\" and \"range\"; choose one")).under("range");
        }
        (None, None) => {
            return Err(Problem::new(ErrorKind::MissingField, "the field \"values\" or \"range\" is missing"));
        }
    };
    Ok(Axis { path: table.path.clone(), label, values })
}

/// The default measure: goodput of all flows.
const DEFAULT_MEASURE: Measure = Measure { metric: Metric::Goodput, flow: None };

fn measure(table: &file::Measure, file: &ScenarioFile) -> Result<Measure, Problem> {
    if table.flow.is_some() && table.metric.0.subject() != Subject::Flows {
        let message = format!("\"{}\" is no metric of a flow; leave \"flow\" out", table.metric.0.name());
        return Err(Problem::conflict(message)).under("flow");
    }
    if let Some(flow) = &table.flow
        && !file.flows.iter().any(|other| other.name == *flow)
    {
        let known = file.flows.iter().map(|flow| flow.name.as_str());
        return Err(Problem::unknown_name("flow", flow, known)).under("flow");
    }
    Ok(Measure { metric: table.metric.0, flow: table.flow.clone() })
}

fn replicate(table: Option<&file::Replicate>, file: &ScenarioFile) -> Result<Replicate, Problem> {
    const CONFIDENCE: f64 = 0.95;
    let Some(table) = table else {
        return Ok(Replicate {
            measure: DEFAULT_MEASURE,
            relative_error: None,
            confidence: CONFIDENCE,
            min: 1,
            max: 1,
        });
    };
    let relative_error = table.relative_error.map(Percent::share);
    if relative_error == Some(0.0) {
        let problem = Problem::unexpected(ErrorKind::BadValue, "\"0 %\"", "a percentage above 0");
        return Err(problem.under("relative_error"));
    }
    // A deviation requires two runs.
    let least = if relative_error.is_some() { 2 } else { 1 };
    let min = table.min.unwrap_or(if relative_error.is_some() { 5 } else { 1 });
    if min < least {
        let found = format!("the number {min}");
        return Err(Problem::unexpected(ErrorKind::BadValue, found, format!("at least {least}"))).under("min");
    }
    let max = table.max.unwrap_or(if relative_error.is_some() { min.max(100) } else { min });
    if max < min {
        let accepted = format!("at least \"min\", which is {min}");
        return Err(Problem::unexpected(ErrorKind::BadValue, format!("the number {max}"), accepted)).under("max");
    }
    let measure = match &table.of {
        Some(of) => measure(of, file).under("of")?,
        None => DEFAULT_MEASURE,
    };
    Ok(Replicate { measure, relative_error, confidence: CONFIDENCE, min, max })
}

fn compare(table: Option<&file::Compare>, averaged: &Measure, file: &ScenarioFile) -> Result<Option<Compare>, Problem> {
    let names = || file.variants.iter().map(|variant| variant.name.as_str());
    let known = |name: &str| {
        if names().any(|other| other == name) { Ok(()) } else { Err(Problem::unknown_name("variant", name, names())) }
    };
    let baseline = match table.and_then(|table| table.baseline.as_ref()) {
        Some(name) => {
            known(name).under("baseline")?;
            name.clone()
        }
        None => match names().next() {
            Some(name) => name.to_owned(),
            None if table.is_some() => {
                return Err(Problem::conflict("there is nothing to compare: no [[variant]]"));
            }
            None => return Ok(None),
        },
    };
    let with: Vec<String> = match table.and_then(|table| table.with.as_ref()) {
        Some(with) => {
            for (index, name) in with.iter().enumerate() {
                known(name).under_index(index).under("with")?;
            }
            with.iter().filter(|name| **name != baseline).cloned().collect()
        }
        None => names().filter(|name| *name != baseline).map(str::to_owned).collect(),
    };
    let measure = match table.and_then(|table| table.of.as_ref()) {
        Some(of) => measure(of, file).under("of")?,
        None => averaged.clone(),
    };
    let method = table.and_then(|table| table.test).map_or_else(Method::default, |test| test.0);
    Ok((!with.is_empty()).then_some(Compare { baseline, with, measure, method }))
}

/// The maximum number of values of a range.
const MAX_VALUES: f64 = 10_000.0;

/// The values of a range.
fn spread(range: &Range) -> Result<Vec<toml::Value>, Problem> {
    let from = Amount::read(&range.from).under("from")?;
    let to = Amount::read(&range.to).and_then(|to| to.in_unit_of(&from)).under("to")?;
    if to.number <= from.number {
        let problem = Problem::unexpected(ErrorKind::BadValue, range.to.to_string(), "more than \"from\"");
        return Err(problem.under("to"));
    }
    let logarithmic = range.scale.is_some_and(|scale| scale.0 == Scale::Logarithmic);
    if logarithmic && from.number <= 0.0 {
        let problem =
            Problem::unexpected(ErrorKind::BadValue, range.from.to_string(), "more than 0 on a logarithmic scale");
        return Err(problem.under("from"));
    }
    let mut values: Vec<toml::Value> =
        numbers(range, &from, &to, logarithmic)?.into_iter().map(|number| from.write(number)).collect();
    values.dedup();
    Ok(values)
}

/// The numbers of a range between these ends, by its step or its number of points.
fn numbers(range: &Range, from: &Amount, to: &Amount, logarithmic: bool) -> Result<Vec<f64>, Problem> {
    let too_many = |key| {
        let message = format!("the range has more than {MAX_VALUES} values");
        Err(Problem::new(ErrorKind::BadValue, message)).under(key)
    };
    match (&range.step, range.points) {
        (Some(_), None) if logarithmic => {
            Err(Problem::conflict("a logarithmic scale needs \"points\", not \"step\"")).under("step")
        }
        (Some(step), None) => {
            let step_number = Amount::read(step).and_then(|step| step.in_unit_of(from)).under("step")?.number;
            if step_number <= 0.0 {
                return Err(Problem::unexpected(ErrorKind::BadValue, step.to_string(), "more than 0")).under("step");
            }
            // Includes the last value despite rounding errors.
            let steps = ((to.number - from.number) / step_number + 1e-9).floor();
            if steps >= MAX_VALUES {
                return too_many("step");
            }
            Ok((0..=steps as u32).map(|n| from.number + f64::from(n) * step_number).collect())
        }
        (None, Some(points)) if points < 2 => {
            let found = format!("the number {points}");
            Err(Problem::unexpected(ErrorKind::BadValue, found, "at least 2")).under("points")
        }
        (None, Some(points)) if f64::from(points) > MAX_VALUES => too_many("points"),
        (None, Some(points)) => {
            let share = |n: u32| f64::from(n) / f64::from(points - 1);
            let ratio = to.number / from.number;
            let at = |n| {
                if logarithmic {
                    from.number * ratio.powf(share(n))
                } else {
                    from.number + share(n) * (to.number - from.number)
                }
            };
            Ok((0..points).map(at).collect())
        }
        (Some(_), Some(_)) => Err(Problem::conflict("it has both \"step\" and \"points\"; choose one")).under("points"),
        (None, None) => Err(Problem::new(ErrorKind::MissingField, "the field \"step\" or \"points\" is missing")),
    }
}

#[cfg(test)]
mod tests {
    use crate::sweep::Label;

    use super::*;

    fn range(text: &str) -> Result<Vec<String>, String> {
        let range: Range = toml::from_str(text).map_err(|error| error.to_string())?;
        let values = spread(&range).map_err(|problem| problem.to_string())?;
        Ok(values.iter().map(|value| Label::new("", value).value).collect())
    }

    #[test]
    fn a_range_goes_from_one_end_to_the_other() {
        assert_eq!(range("from = \"0.1 s\"\nto = \"0.5 s\"\nstep = \"0.2 s\"").unwrap(), ["0.1 s", "0.3 s", "0.5 s"]);
        assert_eq!(range("from = \"10 ms\"\nto = \"20 ms\"\npoints = 3").unwrap(), ["10 ms", "15 ms", "20 ms"]);
        assert_eq!(range("from = 1\nto = 6\nstep = 2").unwrap(), ["1", "3", "5"]);
        assert_eq!(range("from = 1.5\nto = 2\npoints = 2").unwrap(), ["1.5", "2"]);
        let logarithmic = "from = \"1 packets\"\nto = \"100 packets\"\npoints = 3\nscale = \"logarithmic\"";
        assert_eq!(range(logarithmic).unwrap(), ["1 packets", "10 packets", "100 packets"]);
        let few = "from = 1\nto = 3\npoints = 9";
        assert_eq!(range(few).unwrap(), ["1", "2", "3"], "whole numbers appear once");
    }

    #[test]
    fn a_range_that_makes_no_sense_is_refused() {
        for (text, part) in [
            ("from = \"1 s\"\nto = \"20 ms\"\npoints = 3", "the unit \"ms\""),
            ("from = 3\nto = 1\npoints = 3", "more than \"from\""),
            ("from = 0\nto = 1\npoints = 3\nscale = \"logarithmic\"", "logarithmic"),
            ("from = 1\nto = 2\nstep = 1\nscale = \"logarithmic\"", "points"),
            ("from = 0\nto = 1", "missing"),
            ("from = 0\nto = 1\nstep = 0", "more than 0"),
            ("from = 0\nto = 1000000\nstep = 1", "10000"),
            ("from = 0\nto = 1\nstep = 1\npoints = 2", "choose one"),
            ("from = \"a\"\nto = 1\nstep = 1", "a number"),
        ] {
            let error = range(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
