//! The short cases of the conformance experiments: this machine's kernel, and the profiles that model Linux 6.18, run the same scripts with
//! the same results. `holdover conformance` runs all cases.
//!
//! They need the privilege to create network namespaces, as root or (where the system permits it) in a user namespace. Without it each test
//! prints why it did not run; with `HOLDOVER_REQUIRE_NAMESPACES=1` in the environment that is a failure. On a kernel older than the one
//! that the profiles model, a difference is not a failure: the test reports it.

// Claim: Around outages the same profiles behave as Linux 6.18: backoff, retry limits, closed windows, freezes, and the effect of
// ACKs, ICMP errors and data on a sender that has backed off. Results: docs/conformance/linux-6.18.md.

use std::process::ExitCode;

use holdover_testbed::experiments::{Case, Experiment, Length, Verdict, experiments, try_case};
use holdover_testbed::harness::{Completion, Failed, Harness};

/// Cases at a time, unless the command line says otherwise. They wait for timers most of the time.
const CASES_AT_A_TIME: usize = 12;

fn main() -> ExitCode {
    let harness = Harness::start(CASES_AT_A_TIME);
    let trial = |experiment: &Experiment, case: Case| {
        let experiment = experiment.clone();
        harness.trial(format!("{}: {case}", experiment.name), move || agree(&experiment, &case))
    };
    let trials = experiments().into_iter().flat_map(|experiment| {
        let short = experiment.cases.iter().filter(|case| case.length == Length::Short && case.profile().is_some());
        short.map(|case| trial(&experiment, case.clone())).collect::<Vec<_>>()
    });
    harness.run(trials.collect())
}

fn agree(experiment: &Experiment, case: &Case) -> Result<Completion, Failed> {
    let result = try_case(experiment, case)?;
    for delay in &result.excuses {
        eprintln!("{}: {case}: repeated, as the machine was late by {delay}", experiment.name);
    }
    let ours = result.ours.as_deref().unwrap_or_default();
    let differs = |(_, verdict): &(usize, &Verdict)| **verdict == Verdict::Differs;
    let describe = |(index, _): (usize, &Verdict)| {
        format!("{}: kernel {}, profile {}", experiment.measures[index].name, result.kernel[index], ours[index])
    };
    let differences: Vec<_> = result.verdicts.iter().enumerate().filter(differs).map(describe).collect();
    if differences.is_empty() {
        return Ok(Completion::Completed);
    }
    let differences = differences.join("; ");
    match kernel_version() {
        Some(version) if version < COPIED => Ok(Completion::ignored_with(format!(
            "Linux {}.{} is older than what the profiles copy, and differs: {differences}",
            version.0, version.1
        ))),
        _ => Err(differences.into()),
    }
}

/// The kernel that the profiles model.
const COPIED: (u32, u32) = (6, 18);

fn kernel_version() -> Option<(u32, u32)> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
