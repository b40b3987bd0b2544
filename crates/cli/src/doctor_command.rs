//! `holdover doctor`: what this kernel and this user allow, and what to do about it.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use holdover_agent::engine::Engine;
use holdover_testbed::doctor::{self, Check, Need};
use serde::Serialize;

use crate::command_support::{print, print_json, with_causes};

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
    fix: Option<String>,
}

/// Looks, and prints one line for each thing. Fails if runs with this machine's kernel cannot work.
pub(crate) fn run(args: &DoctorArgs) -> ExitCode {
    let mut checks = doctor::examine();
    checks.push(programs());
    let diagnosis = Diagnosis::new(checks);
    let printed = if args.json { print_json(&diagnosis) } else { print(&diagnosis.text()) };
    if diagnosis.real_runs { printed } else { ExitCode::FAILURE }
}

/// Whether the kernel takes the agent's own programs from this user: the verifier sees all of them.
fn programs() -> Check {
    let (is_fine, found, fix) = match Engine::probe() {
        Ok(()) => (true, "the kernel loads the agent's programs".to_owned(), String::new()),
        Err(error) => (false, with_causes(&error), "run the agent as root, on Linux 6.6 or later".to_owned()),
    };
    Check { name: "the agent's eBPF", need: Need::Agent, is_fine, found, fix }
}

impl Diagnosis {
    fn new(checks: Vec<Check>) -> Self {
        let all_fine = |need| checks.iter().filter(|check| check.need == need).all(|check| check.is_fine);
        Self {
            real_runs: all_fine(Need::RealRuns),
            agent: all_fine(Need::Agent),
            checks: checks.into_iter().map(Line::from).collect(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.checks {
            let mark = if line.fine { "ok" } else { "--" };
            let fix = line.fix.as_ref().map(|fix| format!("; fix: {fix}")).unwrap_or_default();
            let _ = writeln!(text, "{mark}  {:<19} {}{fix}", line.name, line.found);
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
                Need::Agent => "the agent",
            },
            fine: check.is_fine,
            found: check.found,
            fix: Some(check.fix).filter(|fix| !fix.is_empty()),
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

    #[test]
    fn only_what_real_runs_need_decides() {
        let diagnosis = Diagnosis::new(vec![check(Need::RealRuns, true), check(Need::Agent, false)]);
        assert!(diagnosis.real_runs && !diagnosis.agent);
        let text = diagnosis.text();
        assert!(text.contains("ok  thing") && text.contains("as it is; fix: modprobe it\n"), "{text}");
        assert!(!Diagnosis::new(vec![check(Need::RealRuns, false)]).real_runs);
    }
}
