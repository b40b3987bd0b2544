//! `holdover doctor`: what this kernel and this user allow, and what to do about it.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use holdover_agent::features::{self, Feature};
use holdover_testbed::doctor::{self, Check, Need};
use serde::Serialize;

use crate::command_support::{print, print_json};

/// Arguments of `holdover doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Diagnosis {
    /// Whether the demo and runs with this machine's kernel can work.
    real_runs: bool,
    /// Whether the agent can work.
    agent: bool,
    checks: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    needed_for: &'static str,
    fine: bool,
    found: String,
    /// What is lost without it, where that is not all.
    without: Option<&'static str>,
    fix: Option<String>,
}

/// Looks, and prints one line for each thing. Fails if runs with this machine's kernel cannot work.
pub(crate) fn run(args: &DoctorArgs) -> ExitCode {
    // As the user came: afterwards the process may be root of a namespace of its own.
    let features = features::examine();
    let diagnosis = Diagnosis::new(doctor::examine(), features);
    let printed = if args.json { print_json(&diagnosis) } else { print(&diagnosis.text()) };
    if diagnosis.real_runs { printed } else { ExitCode::FAILURE }
}

impl Diagnosis {
    fn new(checks: Vec<Check>, features: Vec<Feature>) -> Self {
        let mut real_runs = checks.iter().filter(|check| check.need == Need::RealRuns);
        Self {
            real_runs: real_runs.all(|check| check.is_fine),
            agent: features::can_work(&features),
            checks: checks.into_iter().map(Line::from).chain(features.into_iter().map(Line::from)).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.checks {
            let mark = if line.fine { "ok" } else { "--" };
            let fix = line.fix.as_ref().map(|fix| format!("; fix: {fix}")).unwrap_or_default();
            let without = line.without.filter(|_| !line.fine).map(|lost| format!("; without it {lost}"));
            let _ = writeln!(text, "{mark}  {:<19} {}{}{fix}", line.name, line.found, without.unwrap_or_default());
        }
        let can = |can: bool| if can { "can work" } else { "cannot work" };
        let _ = writeln!(text, "\nThe demo and runs with this machine's kernel {}.", can(self.real_runs));
        let _ = writeln!(text, "The agent {}.", can(self.agent));
        text
    }
}

impl From<Check> for Line {
    fn from(check: Check) -> Self {
        Self {
            name: check.name,
            needed_for: match check.need {
                Need::RealRuns => "runs with this machine's kernel",
                Need::SomeRuns => "some of these runs",
            },
            fine: check.is_fine,
            found: check.found,
            without: None,
            fix: Some(check.fix).filter(|fix| !fix.is_empty()),
        }
    }
}

impl From<Feature> for Line {
    fn from(feature: Feature) -> Self {
        Self {
            name: feature.name,
            needed_for: if feature.needed { "the agent" } else { "part of what the agent does" },
            fine: feature.fine,
            found: feature.found,
            without: Some(feature.without),
            fix: Some(feature.fix).filter(|fix| !fix.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(need: Need, is_fine: bool) -> Check {
        let fix = if is_fine { "" } else { "modprobe it" };
        Check { name: "thing", need, is_fine, found: "as it is".to_owned(), fix: fix.to_owned() }
    }

    fn feature(needed: bool) -> Feature {
        let (found, fix) = ("not there".to_owned(), "make it".to_owned());
        Feature { name: "another", fine: false, needed, found, without: "all is lost", fix }
    }

    #[test]
    fn only_what_real_runs_need_decides() {
        let diagnosis =
            Diagnosis::new(vec![check(Need::RealRuns, true), check(Need::SomeRuns, false)], vec![feature(true)]);
        assert!(diagnosis.real_runs && !diagnosis.agent);
        let text = diagnosis.text();
        assert!(text.contains("ok  thing") && text.contains("as it is; fix: modprobe it\n"), "{text}");
        assert!(text.contains("not there; without it all is lost; fix: make it\n"), "{text}");
        assert!(!Diagnosis::new(vec![check(Need::RealRuns, false)], Vec::new()).real_runs);
        assert!(Diagnosis::new(Vec::new(), vec![feature(false)]).agent);
    }
}
