//! Outcomes as text: a line for each script with what differs below it, and sums for each directory.

use std::collections::BTreeMap;
use std::fmt::Write;

use holdover_packetdrill::Verdict;

use super::{FileError, Outcome};
use crate::text_table::{Layout, laid_out};

/// The number of scripts of a directory by verdict.
#[derive(Clone, Copy, Default)]
struct Sums {
    passed: usize,
    differs: usize,
    not_run: usize,
    bad: usize,
}

pub(super) fn text(outcomes: &[Outcome], notes: bool) -> String {
    let mut text = String::new();
    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    let has_several_versions = outcomes.windows(2).any(|pair| pair[0].file == pair[1].file);
    for outcome in outcomes {
        line(&mut text, outcome, has_several_versions, notes);
        sums.entry(&outcome.directory).or_default().count(outcome);
    }
    text.push('\n');
    let mut total = Sums::default();
    sums.values().for_each(|&sums| total.add(sums));
    let in_all = (sums.len() > 1).then_some(("in all", total));
    let rows = sums.into_iter().chain(in_all).map(|(directory, sums)| sums.row(directory));
    let layout = Layout { right: &[1, 2, 3, 4], ..Layout::default() };
    text.push_str(&laid_out(["directory", "passed", "differs", "not run", "bad"], layout, rows));
    text
}

fn line(text: &mut String, outcome: &Outcome, has_several_versions: bool, notes: bool) {
    let file = &outcome.file;
    let Some(report) = &outcome.report else {
        let _ = match &outcome.error {
            Some(FileError::Script(error)) => writeln!(text, "bad      {file}:{error}"),
            Some(FileError::Read(error)) => writeln!(text, "bad      {file}: {error}"),
            None => Ok(()),
        };
        return;
    };
    let version = if has_several_versions { format!(" [{}]", report.ip_version) } else { String::new() };
    let reason = report.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    let _ = writeln!(text, "{:8} {file}{version}{reason}", report.verdict);
    for difference in &report.differences {
        let _ = writeln!(text, "         {file}:{} at {:.6} s", difference.line, difference.time_s);
        let _ = writeln!(text, "           expected {}", difference.expected);
        let _ = writeln!(text, "           got      {}", difference.actual);
    }
    for note in report.notes.iter().filter(|_| notes) {
        let _ = writeln!(text, "         {note}");
    }
}

impl Sums {
    fn count(&mut self, outcome: &Outcome) {
        match outcome.verdict() {
            Some(Verdict::Passed) => self.passed += 1,
            Some(Verdict::Differs) => self.differs += 1,
            Some(Verdict::NotRun) => self.not_run += 1,
            None => self.bad += 1,
        }
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.differs += other.differs;
        self.not_run += other.not_run;
        self.bad += other.bad;
    }

    fn row(self, directory: &str) -> [String; 5] {
        let Self { passed, differs, not_run, bad } = self;
        let [passed, differs, not_run, bad] = [passed, differs, not_run, bad].map(|count| count.to_string());
        [directory.to_owned(), passed, differs, not_run, bad]
    }
}
