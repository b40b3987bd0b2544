//! The page and the JSON of `holdover kernel-matrix`: counts for each setting, times, and every failure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use holdover_testbed::matrix::Combination;
use serde::Serialize;

use crate::About;
use crate::origin::Origin;

/// Everything that is reported.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    origin: Origin,
    whole_product: bool,
    runs: usize,
    passed: usize,
    rows: Vec<Row>,
}

/// One transfer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    name: String,
    settings: [Setting; 10],
    /// Until both sides had closed by FIN; absent if they did not.
    seconds: Option<f64>,
    /// The errors.
    findings: Vec<String>,
}

/// One setting and its value.
#[derive(Clone, Debug, Serialize)]
struct Setting {
    name: &'static str,
    value: String,
}

const PATH: usize = 0;
const FLOW: usize = 1;
const PROFILE: usize = 9;

impl Row {
    pub(super) fn new(combination: &Combination, took: Option<Duration>, findings: Vec<String>) -> Self {
        let c = combination;
        let setting = |name, value: &dyn ToString| Setting { name, value: value.to_string() };
        let switch = |name, is_on| setting(name, &if is_on { "on" } else { "off" });
        Self {
            name: c.to_string(),
            settings: [
                setting("path", &c.path),
                setting("our side", &c.flow),
                setting("our side opens", &c.opening),
                setting("kernel's congestion control", &c.congestion.name()),
                switch("kernel's SACK", c.sack),
                switch("kernel's timestamps", c.timestamps),
                switch("kernel's window scale", c.window_scaling),
                setting("MTU", &c.mtu_bytes()),
                setting("IP", &c.family),
                setting("our profile", &c.profile),
            ],
            seconds: took.map(|took| took.as_secs_f64()),
            findings,
        }
    }

    pub(super) fn passed(&self) -> bool {
        self.findings.is_empty()
    }
}

impl Report {
    pub(super) fn new(whole_product: bool, rows: Vec<Row>, about: About) -> Self {
        Self {
            origin: Origin::new(about),
            whole_product,
            runs: rows.len(),
            passed: rows.iter().filter(|row| row.passed()).count(),
            rows,
        }
    }

    /// Whether every transfer passed.
    pub fn all_passed(&self) -> bool {
        self.passed == self.runs
    }

    /// The page, as `docs/conformance/kernel-matrix.md`.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("writing to a string does not fail");
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let selection =
            if self.whole_product { "the whole product" } else { "a selection with every pair of settings" };
        writeln!(out, "# Holdover's TCP and Linux's\n")?;
        writeln!(out, "{}.\n", self.origin)?;
        writeln!(out, "Linux {}: {} of {} transfers passed", self.origin.kernel, self.passed, self.runs)?;
        writeln!(out, "({selection}; 2 MiB in each direction that sends).\n")?;
        self.write_counts(out)?;
        writeln!(out, "\nSeconds until both sides had closed, by path and by what our side does:\n")?;
        self.write_times(out, &[PATH, FLOW])?;
        writeln!(out, "\nThe same by profile and path:\n")?;
        self.write_times(out, &[PROFILE, PATH])?;
        writeln!(out, "\nFailures:\n")?;
        for row in self.rows.iter().filter(|row| !row.passed()) {
            writeln!(out, "- `{}`: {}", row.name, row.findings.join("; "))?;
        }
        if self.all_passed() {
            writeln!(out, "none.")?;
        }
        Ok(())
    }

    fn write_counts(&self, out: &mut String) -> std::fmt::Result {
        let mut counts: BTreeMap<(usize, &str), (usize, usize)> = BTreeMap::new();
        for row in &self.rows {
            for (index, setting) in row.settings.iter().enumerate() {
                let (runs, passed) = counts.entry((index, &setting.value)).or_default();
                *runs += 1;
                *passed += usize::from(row.passed());
            }
        }
        writeln!(out, "| setting | value | runs | passed |\n| --- | --- | ---: | ---: |")?;
        for ((index, value), (runs, passed)) in counts {
            writeln!(out, "| {} | {value} | {runs} | {passed} |", self.rows[0].settings[index].name)?;
        }
        Ok(())
    }

    fn write_times(&self, out: &mut String, by: &[usize; 2]) -> std::fmt::Result {
        let mut times: BTreeMap<[&str; 2], Vec<f64>> = BTreeMap::new();
        for row in &self.rows {
            let key = by.map(|index| row.settings[index].value.as_str());
            times.entry(key).or_default().extend(row.seconds);
        }
        let [first, second] = by.map(|index| self.rows[0].settings[index].name);
        writeln!(out, "| {first} | {second} | runs | least | median | 9 of 10 within | most |")?;
        writeln!(out, "| --- | --- | ---: | ---: | ---: | ---: | ---: |")?;
        for ([first, second], mut seconds) in times {
            seconds.sort_by(f64::total_cmp);
            let Some(last) = seconds.len().checked_sub(1) else { continue };
            let at = |share: f64| seconds[(last as f64 * share).round() as usize];
            let (least, median, most) = (at(0.0), at(0.5), at(1.0));
            let runs = seconds.len();
            writeln!(out, "| {first} | {second} | {runs} | {least:.2} | {median:.2} | {:.2} | {most:.2} |", at(0.9))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdover_testbed::matrix;

    #[test]
    fn the_report_counts_and_names_failures() {
        let combinations = matrix::every_pair();
        let mut rows: Vec<_> =
            combinations.iter().map(|c| Row::new(c, Some(Duration::from_millis(250)), Vec::new())).collect();
        let name = rows[3].name.clone();
        rows[3].findings.push("something is wrong".to_owned());
        let about = About { command: "holdover kernel-matrix".to_owned(), date: "2026-01-01".to_owned() };
        let report = Report::new(false, rows, about);
        assert!(!report.all_passed());
        assert_eq!((report.runs, report.passed), (combinations.len(), combinations.len() - 1));
        let text = report.markdown();
        assert!(text.contains(&format!("- `{name}`: something is wrong")), "{text}");
        assert!(text.contains("| path | clean |"), "{text}");
        assert!(text.contains("| 0.25 | 0.25 | 0.25 | 0.25 |"), "{text}");
    }
}
