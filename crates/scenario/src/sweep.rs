//! Sweeps: varied fields and their values, replication, and comparison.

use std::collections::BTreeSet;

use crate::error::ErrorKind;
use crate::file::{self, Range, Scale, ScenarioFile};
use crate::interval::Amount;
use crate::overrides::Override;
use crate::problem::{Problem, Under};
use crate::quantity::{Percent, magnitude};
use crate::statistics::Method;
use crate::word::{Vocabulary, Word, vocabulary};

/// The axes, the replication and the comparison.
#[derive(Clone, PartialEq, Debug)]
pub struct Sweep {
    axes: Vec<Axis>,
    replicate: Replicate,
    compare: Option<Compare>,
}

/// A field and its values.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// The path of the field.
    pub path: String,
    /// Its name in tables and plots.
    pub label: String,
    /// The values.
    pub values: Vec<toml::Value>,
}

/// A combination of the axes' values.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// Its index in the order of points; the last axis varies fastest.
    pub index: usize,
    /// Its changes to the scenario.
    pub overrides: Vec<Override>,
    /// Its position on each axis.
    pub labels: Vec<Label>,
}

/// A position on an axis.
#[derive(Clone, PartialEq, Debug)]
pub struct Label {
    /// The label of the axis.
    pub axis: String,
    /// The value as written.
    pub value: String,
    /// The value in its base unit: seconds, bit/s, bytes, metres, packets, a share from 0 to 1; `None` for a word.
    pub number: Option<f64>,
}

/// The replication of each point.
#[derive(Clone, PartialEq, Debug)]
pub struct Replicate {
    /// The quantity averaged over the runs.
    pub measure: Measure,
    /// The bound on the half-width of the mean's confidence interval, relative to the mean, until which runs are added;
    /// `None` for exactly `min` runs.
    pub relative_error: Option<f64>,
    /// The confidence, always 0.95.
    pub confidence: f64,
    /// The minimum number of runs.
    pub min: u32,
    /// The maximum number of runs.
    pub max: u32,
}

/// A quantity measured in each run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measure {
    /// The metric.
    pub metric: Metric,
    /// The flow, or the link of a metric of links; `None` for all: their sum for rates and counts, their mean for times and ratios. A flow
    /// with a count stands for all its copies.
    pub flow: Option<String>,
}

/// The variants to compare, and the test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compare {
    /// The baseline variant.
    pub baseline: String,
    /// The other variants.
    pub with: Vec<String>,
    /// The compared quantity.
    pub measure: Measure,
    /// The test.
    pub method: Method,
}

/// A metric of flows, links or routers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Metric {
    /// Bits read by the receiving application per second of the flow's duration.
    Goodput,
    /// Bits read by the receiving application per second of the net duration.
    NetGoodput,
    /// Payload bits sent by the sender, including retransmissions, per second of the flow's duration.
    Throughput,
    /// From the flow's start to its last byte, in seconds.
    Duration,
    /// The duration without the outages, in seconds.
    NetDuration,
    /// The ideal time for the same link schedule divided by the actual time.
    IdealShare,
    /// Retransmission timeouts.
    Timeouts,
    /// Retransmitted payload bytes.
    BytesRetransmitted,
    /// Segments sent as fast retransmits.
    FastRetransmits,
    /// From a reconnection of a link to the first new data, in seconds; the mean over all reconnections.
    IdleAfterReconnection,
    /// From a new attachment of a host with an identity until its peer has verified the new address, in seconds; the mean over all moves.
    ReaddressingTime,
    /// The longest time without new data at the receiver, in seconds.
    LongestPause,
    /// Segments whose data the receiver had already.
    DuplicateSegments,
    /// From a request to its response, in seconds; the mean over all exchanges.
    ExchangeTime,
    /// Flows that completed.
    Completed,
    /// Packets that links have begun to transmit, in both directions: those that were lost too, and each retransmission of a link.
    LinkPackets,
    /// The bytes of [`Self::LinkPackets`].
    LinkBytes,
    /// The most bytes that the mechanisms of a router have stored at once: packets with headers, and data in the buffers of terminated
    /// connections.
    RouterBytes,
    /// The most connections for which the mechanisms of a router have had state at once.
    RouterConnections,
}

/// What a metric describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Flows.
    Flows,
    /// Links.
    Links,
    /// Routers with mechanisms.
    Routers,
}

vocabulary!(Metric as "Metric" {
    Self::Goodput => "goodput",
    Self::NetGoodput => "net_goodput",
    Self::Throughput => "throughput",
    Self::Duration => "duration",
    Self::NetDuration => "net_duration",
    Self::IdealShare => "ideal_share",
    Self::Timeouts => "timeouts",
    Self::BytesRetransmitted => "bytes_retransmitted",
    Self::FastRetransmits => "fast_retransmits",
    Self::IdleAfterReconnection => "idle_after_reconnection",
    Self::ReaddressingTime => "readdressing_time",
    Self::LongestPause => "longest_pause",
    Self::DuplicateSegments => "duplicate_segments",
    Self::ExchangeTime => "exchange_time",
    Self::Completed => "completed",
    Self::LinkPackets => "link_packets",
    Self::LinkBytes => "link_bytes",
    Self::RouterBytes => "router_bytes",
    Self::RouterConnections => "router_connections",
});

impl Metric {
    /// All metrics.
    pub const ALL: &'static [Self] = <Self as Vocabulary>::VALUES;

    /// The name in scenario files and tables.
    pub fn name(self) -> &'static str {
        Word(self).name()
    }

    /// The unit of its values; empty for a number without one.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Goodput | Self::NetGoodput | Self::Throughput => "bit/s",
            Self::Duration
            | Self::NetDuration
            | Self::IdleAfterReconnection
            | Self::ReaddressingTime
            | Self::LongestPause
            | Self::ExchangeTime => "s",
            Self::BytesRetransmitted | Self::LinkBytes | Self::RouterBytes => "bytes",
            Self::IdealShare
            | Self::Timeouts
            | Self::FastRetransmits
            | Self::DuplicateSegments
            | Self::Completed
            | Self::LinkPackets
            | Self::RouterConnections => "",
        }
    }

    /// What it describes.
    pub const fn subject(self) -> Subject {
        match self {
            Self::LinkPackets | Self::LinkBytes => Subject::Links,
            Self::RouterBytes | Self::RouterConnections => Subject::Routers,
            _ => Subject::Flows,
        }
    }

    /// Whether the values of several flows are added; otherwise they are averaged.
    pub const fn adds_up(self) -> bool {
        !matches!(
            self,
            Self::Duration
                | Self::NetDuration
                | Self::IdealShare
                | Self::IdleAfterReconnection
                | Self::ReaddressingTime
                | Self::LongestPause
                | Self::ExchangeTime
        )
    }
}

impl Sweep {
    /// The axes.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The replication.
    pub const fn replicate(&self) -> &Replicate {
        &self.replicate
    }

    /// The comparison; `None` if there is only one variant.
    pub const fn compare(&self) -> Option<&Compare> {
        self.compare.as_ref()
    }

    /// The number of points; 1 without an axis.
    pub fn len(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// Whether there are no points; never true, since every axis has a value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All points; the last axis varies fastest.
    pub fn points(&self) -> impl Iterator<Item = Point> {
        (0..self.len()).map(|index| self.point(index))
    }

    /// The point with this index.
    pub fn point(&self, index: usize) -> Point {
        let mut rest = index;
        let mut picked = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            picked.push((axis, &axis.values[rest % axis.values.len()]));
            rest /= axis.values.len();
        }
        picked.reverse();
        let overrides = picked.iter().map(|(axis, value)| Override::new(&axis.path, (*value).clone())).collect();
        let labels = picked.iter().map(|(axis, value)| Label::new(&axis.label, value)).collect();
        Point { index, overrides, labels }
    }
}

impl Label {
    fn new(axis: &str, value: &toml::Value) -> Self {
        let (text, number) = match value {
            toml::Value::String(text) => (text.clone(), magnitude(text)),
            toml::Value::Integer(number) => (number.to_string(), Some(*number as f64)),
            toml::Value::Float(number) => (number.to_string(), Some(*number)),
            other => (other.to_string(), None),
        };
        Self { axis: axis.to_owned(), value: text, number }
    }
}

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
    let too_many = |key| {
        let message = format!("the range has more than {MAX_VALUES} values");
        Err(Problem::new(ErrorKind::BadValue, message)).under(key)
    };
    let numbers: Vec<f64> = match (&range.step, range.points) {
        (Some(_), None) if logarithmic => {
            return Err(Problem::conflict("a logarithmic scale needs \"points\", not \"step\"")).under("step");
        }
        (Some(step), None) => {
            let step_number = Amount::read(step).and_then(|step| step.in_unit_of(&from)).under("step")?.number;
            if step_number <= 0.0 {
                return Err(Problem::unexpected(ErrorKind::BadValue, step.to_string(), "more than 0")).under("step");
            }
            // Includes the last value despite rounding errors.
            let steps = ((to.number - from.number) / step_number + 1e-9).floor();
            if steps >= MAX_VALUES {
                return too_many("step");
            }
            (0..=steps as u32).map(|n| from.number + f64::from(n) * step_number).collect()
        }
        (None, Some(points)) if points < 2 => {
            let found = format!("the number {points}");
            return Err(Problem::unexpected(ErrorKind::BadValue, found, "at least 2")).under("points");
        }
        (None, Some(points)) if f64::from(points) > MAX_VALUES => return too_many("points"),
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
            (0..points).map(at).collect()
        }
        (Some(_), Some(_)) => {
            return Err(Problem::conflict("it has both \"step\" and \"points\"; choose one")).under("points");
        }
        (None, None) => {
            return Err(Problem::new(ErrorKind::MissingField, "the field \"step\" or \"points\" is missing"));
        }
    };
    let mut values: Vec<toml::Value> = numbers.into_iter().map(|number| from.write(number)).collect();
    values.dedup();
    Ok(values)
}

#[cfg(test)]
mod tests {
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
