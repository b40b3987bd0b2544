//! The page and the JSON of `holdover conformance`.

use std::fmt::Write as _;
use std::time::Duration;

use holdover_testbed::experiments::{Evidence, Experiment, Measure, STATEMENTS, Statement, Tolerance, Value, Verdict};
use serde::Serialize;

use super::Outcome;
use crate::About;
use crate::origin::Origin;

/// Everything that is reported.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    origin: Origin,
    seconds: u64,
    cases: usize,
    within: usize,
    known: usize,
    differ: usize,
    failed: usize,
    statements: Vec<Line>,
    experiments: Vec<Section>,
}

/// The verdict on a statement by the kernel's values.
#[derive(Debug, Serialize)]
struct Line {
    says: &'static str,
    /// Absent if the experiments that bear on it were not run.
    confirmed: Option<bool>,
    shown: String,
}

/// One experiment.
#[derive(Debug, Serialize)]
struct Section {
    name: &'static str,
    question: &'static str,
    set_up: &'static str,
    measures: Vec<Column>,
    cases: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Column {
    name: &'static str,
    tolerance: String,
}

/// One case.
#[derive(Debug, Serialize)]
struct Row {
    label: String,
    sender: &'static str,
    /// The profile that was tried beside the kernel.
    profile: Option<&'static str>,
    kernel: Vec<Cell>,
    ours: Vec<Cell>,
    /// Runs on the kernel; the last one counts.
    tries: usize,
    /// The machine's longest delay in milliseconds during each earlier run, for which it was repeated.
    excuses_ms: Vec<f64>,
    verdict: &'static str,
    /// The measures that differ, with the reason if it is known.
    differences: Vec<Difference>,
    /// Why there is no result.
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Difference {
    measure: &'static str,
    why: Option<&'static str>,
}

/// A value, as a number, as words, or as several numbers.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Cell {
    Number(f64),
    Numbers(Vec<f64>),
    Flag(bool),
    Words(String),
    Nothing(()),
}

impl Report {
    pub(super) fn new(experiments: &[Experiment], outcomes: Vec<Vec<Outcome>>, took: Duration, about: About) -> Self {
        let statements = judge(experiments, &outcomes);
        let sections: Vec<Section> =
            experiments.iter().zip(outcomes).map(|(experiment, outcomes)| Section::new(experiment, outcomes)).collect();
        let count = |verdict: &str| sections.iter().flat_map(|s| &s.cases).filter(|row| row.verdict == verdict).count();
        Self {
            origin: Origin::new(about),
            seconds: took.as_secs(),
            cases: sections.iter().map(|section| section.cases.len()).sum(),
            within: count(WITHIN),
            known: count(KNOWN),
            differ: count(DIFFERS),
            failed: count(FAILED),
            statements,
            experiments: sections,
        }
    }

    /// Whether all was run and nothing differs that is not known to.
    pub fn is_sound(&self) -> bool {
        self.differ == 0 && self.failed == 0
    }

    /// One line on the result.
    pub fn summary(&self) -> String {
        let Self { cases, within, known, differ, failed, seconds, .. } = self;
        format!(
            "{cases} cases in {seconds} s: {within} within the tolerances, {known} with known differences, {differ} that \
             differ, {failed} without a result; the others are the kernel's alone"
        )
    }

    /// The page, as `docs/conformance/linux-6.18.md`.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("writing to a string does not fail");
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "# How Linux {} behaves around outages\n", self.origin.kernel)?;
        writeln!(out, "{}.\n", self.origin)?;
        writeln!(out, "{INTRODUCTION}\n\n{}.\n", self.summary())?;
        self.write_statements(out)?;
        for section in &self.experiments {
            section.write(out)?;
        }
        Ok(())
    }

    fn write_statements(&self, out: &mut String) -> std::fmt::Result {
        if self.statements.iter().all(|line| line.confirmed.is_none()) {
            return Ok(());
        }
        writeln!(out, "## What mechanisms rest on\n")?;
        writeln!(
            out,
            "Statements about how Linux behaves, which mechanisms such as [wake](../mechanisms/wake.md) use, judged by this \
             kernel's values below. They were first seen in whole transfers over emulated links.\n"
        )?;
        writeln!(out, "| statement | here | seen |\n| --- | --- | --- |")?;
        for line in self.statements.iter().filter(|line| line.confirmed.is_some()) {
            let verdict = match line.confirmed {
                Some(true) => "confirmed",
                _ => "**not confirmed**",
            };
            writeln!(out, "| {} | {verdict} | {} |", line.says, line.shown)?;
        }
        writeln!(out)
    }
}

/// Checks the statements against the kernel's outcomes.
fn judge(experiments: &[Experiment], outcomes: &[Vec<Outcome>]) -> Vec<Line> {
    let mut evidence = Evidence::default();
    for (experiment, outcomes) in experiments.iter().zip(outcomes) {
        for (case, outcome) in experiment.cases.iter().zip(outcomes) {
            if let Ok(result) = outcome {
                evidence.add(experiment, case, result);
            }
        }
    }
    let line = |statement: &Statement| {
        let judgement = statement.judge(&evidence);
        Line {
            says: statement.says,
            confirmed: judgement.as_ref().map(|judgement| judgement.confirmed),
            shown: judgement.map(|judgement| judgement.shown).unwrap_or_default(),
        }
    };
    STATEMENTS.iter().map(line).collect()
}

const INTRODUCTION: &str = "\
Each experiment is one connection of a sender to a scripted peer that decides about every packet; nothing crosses a real link. The
kernel's sender runs in a network namespace over a TUN device, in wall-clock time; the profiles that copy it, `linux-6-cubic`,
`linux-6-reno` and `linux-6-bbr`, meet the same scripts in virtual time. The kernel's timers are late by up to an eighth (its timer wheel), and later
when the machine is busy, which CUBIC's HyStart takes for a growing delay: where a value is beyond its tolerance, the case was repeated if
the machine woke a thread 3 ms late or more meanwhile, up to five times at once, and again when the others were through. The last run is
shown, with the number of its runs.
What stays different is explained below the tables and listed in [limits.md](../limits.md).";

const WITHIN: &str = "within";
const KNOWN: &str = "known difference";
const DIFFERS: &str = "differs";
const FAILED: &str = "no result";
const KERNEL_ALONE: &str = "kernel alone";

impl Section {
    fn new(experiment: &Experiment, outcomes: Vec<Outcome>) -> Self {
        let rows = experiment.cases.iter().zip(outcomes).map(|(case, outcome)| {
            let mut row = Row {
                label: case.label.clone(),
                sender: case.sender.name(),
                profile: case.profile().map(|profile| profile.name()),
                kernel: Vec::new(),
                ours: Vec::new(),
                tries: 0,
                excuses_ms: Vec::new(),
                verdict: FAILED,
                differences: Vec::new(),
                error: None,
            };
            match outcome {
                Ok(result) => {
                    row.kernel = result.kernel.into_iter().map(Cell::from).collect();
                    row.ours = result.ours.into_iter().flatten().map(Cell::from).collect();
                    row.tries = result.excuses.len() + 1;
                    row.excuses_ms = result.excuses.into_iter().map(|delay| delay.as_nanos() as f64 / 1e6).collect();
                    row.differences = differences(experiment, &result.verdicts);
                    row.verdict = match &row.differences[..] {
                        _ if row.profile.is_none() => KERNEL_ALONE,
                        [] => WITHIN,
                        all if all.iter().all(|difference| difference.why.is_some()) => KNOWN,
                        _ => DIFFERS,
                    };
                }
                Err(error) => row.error = Some(error),
            }
            row
        });
        Self {
            name: experiment.name,
            question: experiment.question,
            set_up: experiment.set_up,
            measures: experiment
                .measures
                .iter()
                .map(|measure| Column { name: measure.name, tolerance: tolerance(measure.tolerance) })
                .collect(),
            cases: rows.collect(),
        }
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "## `{}`\n\n{}\n\n{}\n", self.name, self.question, self.set_up)?;
        let tolerances: Vec<_> =
            self.measures.iter().map(|column| format!("{} {}", column.name, column.tolerance)).collect();
        writeln!(out, "Tolerances: {}.\n", tolerances.join("; "))?;
        write!(out, "| case | sender |")?;
        self.measures.iter().try_for_each(|column| write!(out, " {} |", column.name))?;
        writeln!(out, " verdict |")?;
        writeln!(out, "| --- | --- |{} --- |", " ---: |".repeat(self.measures.len()))?;
        for row in &self.cases {
            self.write_row(out, row)?;
        }
        let mut whys: Vec<_> = Vec::new();
        for difference in self.cases.iter().flat_map(|row| &row.differences) {
            whys.extend(difference.why.filter(|why| !whys.contains(why)));
        }
        if !whys.is_empty() {
            writeln!(out, "\nKnown differences:\n")?;
        }
        whys.iter().try_for_each(|why| writeln!(out, "- {why}"))?;
        writeln!(out)
    }

    fn write_row(&self, out: &mut String, row: &Row) -> std::fmt::Result {
        if let Some(error) = &row.error {
            let empty = " |".repeat(self.measures.len());
            return writeln!(out, "| {} | {} |{empty} {FAILED}: {error} |", row.label, row.sender);
        }
        let mut line = |sender: &str, label: &str, cells: &[Cell], verdict: &str| {
            write!(out, "| {label} | {sender} |")?;
            cells.iter().try_for_each(|cell| write!(out, " {} |", cell.text()))?;
            writeln!(out, " {verdict} |")
        };
        let tries = match row.excuses_ms.iter().copied().reduce(f64::max) {
            Some(worst) => format!(", run {} times, as the machine was late by up to {worst:.0} ms", row.tries),
            None => String::new(),
        };
        line(&format!("kernel, {}{tries}", row.sender), &row.label, &row.kernel, "")?;
        let names: Vec<_> = row.differences.iter().map(|difference| difference.measure).collect();
        let verdict =
            if names.is_empty() { row.verdict.to_owned() } else { format!("{}: {}", row.verdict, names.join(", ")) };
        match row.profile {
            Some(profile) => line(profile, "", &row.ours, &verdict),
            None => Ok(()),
        }
    }
}

fn differences(experiment: &Experiment, verdicts: &[Verdict]) -> Vec<Difference> {
    let of = |(measure, verdict): (&Measure, &Verdict)| match verdict {
        Verdict::Shown | Verdict::Within => None,
        Verdict::Known(why) => Some(Difference { measure: measure.name, why: Some(why) }),
        Verdict::Differs => Some(Difference { measure: measure.name, why: None }),
    };
    experiment.measures.iter().zip(verdicts).filter_map(of).collect()
}

fn tolerance(tolerance: Tolerance) -> String {
    match tolerance {
        Tolerance::Exact => "equal".to_owned(),
        Tolerance::Share { percent: 0.0, least } => format!("within {least}"),
        Tolerance::Share { percent, least } => format!("within {percent} % or {least}"),
        Tolerance::Timer => "at most an eighth and 30 ms later in the kernel, 8 ms earlier".to_owned(),
        Tolerance::Shown => "not compared".to_owned(),
    }
}

impl From<Value> for Cell {
    fn from(value: Value) -> Self {
        let to_micros = |millis: f64| (millis * 1_000.0).round() / 1_000.0;
        match value {
            Value::Nothing => Self::Nothing(()),
            Value::Millis(millis) => Self::Number(to_micros(millis)),
            Value::Schedule(waits) => Self::Numbers(waits.into_iter().map(to_micros).collect()),
            Value::Count(count) => Self::Number(count as f64),
            Value::Flag(is_so) => Self::Flag(is_so),
            Value::Words(words) => Self::Words(words),
        }
    }
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => format!("{number:.0}"),
            Self::Numbers(numbers) => {
                let numbers: Vec<_> = numbers.iter().map(|number| format!("{number:.0}")).collect();
                numbers.join(", ")
            }
            Self::Flag(is_so) => (if *is_so { "yes" } else { "no" }).to_owned(),
            Self::Words(words) => words.clone(),
            Self::Nothing(()) => "none".to_owned(),
        }
    }
}

/// The experiments and the names of their cases.
pub fn list(experiments: &[Experiment]) -> String {
    let mut text = String::new();
    for experiment in experiments {
        let _ = writeln!(text, "{}: {}", experiment.name, experiment.question);
        for case in &experiment.cases {
            let _ = writeln!(text, "    {case}");
        }
    }
    text
}
