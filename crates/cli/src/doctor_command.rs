//! `holdover doctor`: what this kernel and this user allow, and what to do about it.

use std::process::ExitCode;

use clap::Args;
use holdover_host::feature::{Feature, can_work};
use holdover_testbed::doctor::{self, Check, Need};
use serde::Serialize;

use crate::command_support::{print, print_json};
use crate::text_table::{Layout, laid_out, paragraph};

/// Arguments of `holdover doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Fail unless this machine meets the requirements of this use.
    #[arg(long = "for", value_name = "USE", value_enum)]
    needed: Vec<Use>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// A use of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Use {
    /// `holdover demo`, on this machine's kernel or in the simulator.
    #[cfg(feature = "demo")]
    Demo,
    /// Commands on this machine's kernel in namespaces: `run --real`, `shell`, `conformance`,
    /// `kernel-matrix`.
    #[cfg(feature = "full")]
    Kernel,
    /// `holdover agent` on this machine's own interfaces.
    Agent,
    /// `holdover gateway` on this machine's own interfaces.
    #[cfg(feature = "gateway")]
    Gateway,
    /// `holdover hip` on this machine.
    #[cfg(feature = "hip")]
    Hip,
}

/// The command that a use is named after, or is tried with.
pub(crate) fn command_of_use(r#use: &str) -> &str {
    if r#use == "kernel" { "run" } else { r#use }
}

/// Whether something can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Works,
    /// In a fallback mode.
    Fallback,
    Cannot,
}

#[derive(Debug, Serialize)]
struct Answer {
    r#use: Use,
    verdict: Verdict,
    /// The same in a sentence.
    text: String,
}

impl Answer {
    fn new(r#use: Use, (verdict, text): (Verdict, String)) -> Self {
        Self { r#use, verdict, text }
    }
}

/// Usable commands, and the checks made.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    /// For each use, whether it can work.
    uses: Vec<Answer>,
    /// Whether runs with this machine's kernel can work.
    real_runs: bool,
    /// Whether the agent can work.
    agent: bool,
    /// Whether the gateway can work, if this program has it.
    #[cfg(feature = "gateway")]
    gateway: bool,
    /// Whether host identities can work, if this program has them.
    #[cfg(feature = "hip")]
    hip: bool,
    checks: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    name: &'static str,
    needed_for: &'static str,
    fine: bool,
    found: String,
    /// The functions that need it; `None` if everything does.
    without: Option<&'static str>,
    fix: Option<String>,
}

/// Checks, and prints one line for each check and for each use. Fails if the requested use cannot work.
pub(crate) fn run(args: &DoctorArgs) -> ExitCode {
    let diagnosis = diagnose();
    let printed = if args.json { print_json(&diagnosis) } else { print(&diagnosis.text()) };
    if args.needed.iter().all(|needed| diagnosis.can(*needed)) { printed } else { ExitCode::FAILURE }
}

/// Runs the checks. Afterwards the process may be root of a namespace of its own.
pub(crate) fn diagnose() -> Diagnosis {
    // The daemons of this program.
    let daemons = [
        Daemon::agent(holdover_agent::features::examine()),
        #[cfg(feature = "gateway")]
        Daemon::gateway(holdover_gatewayd::features::examine(&gateway_config())),
        #[cfg(feature = "hip")]
        Daemon::hip(holdover_hipd::features::examine(holdover_hipd::files::DEFAULT_DIRECTORY.as_ref())),
    ];
    Diagnosis::new(doctor::examine(), &daemons)
}

/// A daemon, and the features that it uses.
struct Daemon {
    r#use: Use,
    /// At the beginning of a sentence.
    name: &'static str,
    /// The use of a feature: all of it, or a part.
    needed_for: [&'static str; 2],
    features: Vec<Feature>,
}

impl Daemon {
    fn agent(features: Vec<Feature>) -> Self {
        let needed_for = ["the agent", "part of what the agent does"];
        Self { r#use: Use::Agent, name: "The agent", needed_for, features }
    }

    #[cfg(feature = "gateway")]
    fn gateway(features: Vec<Feature>) -> Self {
        let needed_for = ["the gateway", "part of what the gateway does"];
        Self { r#use: Use::Gateway, name: "The gateway", needed_for, features }
    }

    #[cfg(feature = "hip")]
    fn hip(features: Vec<Feature>) -> Self {
        let needed_for = ["host identity", "part of what host identity does"];
        Self { r#use: Use::Hip, name: "Host identity", needed_for, features }
    }

    fn can_work(&self) -> bool {
        can_work(&self.features)
    }

    /// Whether it can work.
    fn answer(&self) -> Answer {
        let lacks = |feature: &&Feature| !feature.fine;
        let missing: Vec<&str> = self.features.iter().filter(lacks).map(|feature| feature.name).collect();
        let name = self.name;
        let answer = match (self.can_work(), missing.is_empty()) {
            (true, true) => (Verdict::Works, format!("{name} works.")),
            (true, false) => {
                (Verdict::Works, format!("{name} works, with less than it could: see {}.", list(&missing)))
            }
            (false, _) => (Verdict::Cannot, format!("{name} cannot work: see {}.", list(&missing))),
        };
        Answer::new(self.r#use, answer)
    }

    /// A line for each feature.
    fn lines(&self) -> impl Iterator<Item = Line> {
        let [all, part] = self.needed_for;
        self.features.iter().cloned().map(move |feature| Line {
            name: feature.name,
            needed_for: if feature.needed { all } else { part },
            fine: feature.fine,
            found: feature.found,
            without: Some(feature.without),
            fix: Some(feature.fix).filter(|fix| !fix.is_empty()),
        })
    }
}

/// Whether a daemon of this program can work.
fn can_be_used(daemons: &[Daemon], r#use: Use) -> bool {
    daemons.iter().any(|daemon| daemon.r#use == r#use && daemon.can_work())
}

/// An answer for each use.
fn answers(without_kernel: &[&str], without_some: &[&str], daemons: &[Daemon]) -> Vec<Answer> {
    let daemons = daemons.iter().map(Daemon::answer);
    of_experiments(without_kernel, without_some).into_iter().chain(daemons).collect()
}

/// The answers for commands of this program that make worlds of their own.
#[cfg_attr(not(feature = "full"), allow(unused_variables))]
fn of_experiments(without_kernel: &[&str], without_some: &[&str]) -> Vec<Answer> {
    Vec::from([
        #[cfg(feature = "demo")]
        Answer::new(Use::Demo, of_demo(without_kernel)),
        #[cfg(feature = "full")]
        Answer::new(Use::Kernel, of_kernel(without_kernel, without_some)),
    ])
}

/// Whether the demo can work.
#[cfg(feature = "demo")]
fn of_demo(without_kernel: &[&str]) -> (Verdict, String) {
    let (verdict, text) = match without_kernel.is_empty() {
        true => (Verdict::Works, "The demo works, on this machine's kernel."),
        false => (Verdict::Fallback, "The demo works, in the simulator in place of this machine's kernel."),
    };
    (verdict, text.to_owned())
}

/// Whether runs on this machine's kernel can work.
#[cfg(feature = "full")]
fn of_kernel(without_kernel: &[&str], without_some: &[&str]) -> (Verdict, String) {
    let cause = list(without_kernel);
    match (without_kernel.is_empty(), without_some.is_empty()) {
        (true, true) => (Verdict::Works, "Runs with this machine's kernel work.".to_owned()),
        (true, false) => (
            Verdict::Works,
            format!("Runs with this machine's kernel work, but for what needs {}.", list(without_some)),
        ),
        (false, _) => {
            let text = "Runs with this machine's kernel cannot work";
            (Verdict::Cannot, format!("{text}: see {cause}. Without --real, runs stay in the simulator."))
        }
    }
}

impl Diagnosis {
    fn new(checks: Vec<Check>, daemons: &[Daemon]) -> Self {
        let missing = |need: Need| {
            let missing = checks.iter().filter(|check| check.need == need && !check.is_fine);
            missing.map(|check| check.name).collect::<Vec<_>>()
        };
        let (without_kernel, without_some) = (missing(Need::RealRuns), missing(Need::SomeRuns));
        let real_runs = without_kernel.is_empty();
        Self {
            uses: answers(&without_kernel, &without_some, daemons),
            real_runs,
            agent: can_be_used(daemons, Use::Agent),
            #[cfg(feature = "gateway")]
            gateway: can_be_used(daemons, Use::Gateway),
            #[cfg(feature = "hip")]
            hip: can_be_used(daemons, Use::Hip),
            checks: checks.into_iter().map(Line::from).chain(daemons.iter().flat_map(Daemon::lines)).collect(),
        }
    }

    fn can(&self, needed: Use) -> bool {
        self.uses.iter().any(|answer| answer.r#use == needed && answer.verdict != Verdict::Cannot)
    }

    fn text(&self) -> String {
        let row = |line: &Line| {
            let mark = if line.fine { "ok" } else { "--" };
            let fix = line.fix.as_ref().map(|fix| format!("; fix: {fix}")).unwrap_or_default();
            let without = line.without.filter(|_| !line.fine).map(|lost| format!("; without it {lost}"));
            let found = format!("{}{}{fix}", line.found, without.unwrap_or_default());
            [mark.to_owned(), line.name.to_owned(), found]
        };
        let layout = Layout { has_sentences: true, headless: true, ..Layout::default() };
        let checks = laid_out(["", "check", "found"], layout, self.checks.iter().map(row));
        let uses: String = self.uses.iter().map(|answer| paragraph(&answer.text)).collect();
        format!("{checks}\n{uses}")
    }
}

/// `a, b and c`.
fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
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

/// The gateway's configuration, or the default if it cannot be read.
#[cfg(feature = "gateway")]
fn gateway_config() -> holdover_gatewayd::config::Config {
    holdover_gatewayd::config::Config::read_default().unwrap_or_default()
}

#[cfg(all(test, feature = "full"))]
mod tests {
    use super::*;

    fn check(need: Need, is_fine: bool) -> Check {
        let fix = if is_fine { "" } else { "modprobe it" };
        Check { name: "thing", need, is_fine, found: "as it is".to_owned(), fix: fix.to_owned() }
    }

    fn feature(name: &'static str, needed: bool) -> Vec<Feature> {
        vec![Feature::tried(name, needed, "all is lost", "make it", Err("not there".to_owned()))]
    }

    #[test]
    fn each_use_is_answered_by_what_it_needs() {
        let diagnosis = Diagnosis::new(
            vec![check(Need::RealRuns, true), check(Need::SomeRuns, false)],
            &[
                Daemon::agent(feature("another", true)),
                Daemon::gateway(Vec::new()),
                Daemon::hip(feature("fourth", false)),
            ],
        );
        assert!(diagnosis.real_runs && !diagnosis.agent && diagnosis.gateway && diagnosis.hip);
        assert!(diagnosis.can(Use::Demo) && diagnosis.can(Use::Kernel) && !diagnosis.can(Use::Agent));
        let text = diagnosis.text();
        assert!(text.contains("ok  thing") && text.contains("as it is; fix: modprobe it\n"), "{text}");
        assert!(text.contains("not there; without it all is lost; fix: make it\n"), "{text}");
        assert!(text.contains("Host identity works, with less than it could: see fourth."), "{text}");
        assert!(
            text.contains("but for what needs thing.") && text.contains("agent cannot work: see another."),
            "{text}"
        );

        let daemons = [
            Daemon::agent(feature("another", false)),
            Daemon::gateway(feature("third", true)),
            Daemon::hip(feature("fourth", true)),
        ];
        let diagnosis = Diagnosis::new(vec![check(Need::RealRuns, false)], &daemons);
        assert!(!diagnosis.hip && !diagnosis.can(Use::Hip));
        assert!(!diagnosis.real_runs && diagnosis.agent && !diagnosis.gateway && !diagnosis.can(Use::Gateway));
        assert!(diagnosis.can(Use::Demo) && !diagnosis.can(Use::Kernel) && diagnosis.can(Use::Agent));
        let text = diagnosis.text();
        assert!(
            text.contains("The gateway cannot work: see third.")
                && text.contains("not there; without it all is lost; fix: make it")
                && text.contains("The demo works, in the simulator")
                && text.contains("kernel cannot work: see thing."),
            "{text}"
        );
        assert_eq!(diagnosis.uses[0].verdict, Verdict::Fallback);
    }
}
