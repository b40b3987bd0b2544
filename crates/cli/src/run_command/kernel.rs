//! Runs variants on real kernels, several at a time, each as often as it is asked for.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use clap::{Args, ValueEnum};
use holdover_base::Duration;
use holdover_lab::run::{WHOLE, bytes_to_come, in_parallel, part_done};
use holdover_report::{
    HostCounters, KernelSummary, Record, Recorder, RecorderOptions, Repetition, Summary, VariantSummary,
};
use holdover_sim::{NodeId, WorldConfig};
use holdover_testbed::world::{RealError, RealOptions, RealOutcome, RealWorld};
use holdover_testbed::{Congestion, Privilege, PrivilegeError};

use super::RunError;
use super::simulate::Bar;
use crate::command_support::{lateness_metrics, with_causes};

/// Arguments about kernels.
#[derive(Args, Debug)]
#[command(next_help_heading = "Real kernels")]
pub(crate) struct KernelArgs {
    /// Run on this machine's kernel, each host in a network namespace of its own, instead of in the simulator.
    #[arg(long, conflicts_with = "both")]
    real: bool,
    /// Run in the simulator and on this machine's kernel, and set both side by side.
    #[arg(long)]
    both: bool,
    /// Run each variant so often on the kernel; tables have the medians.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Leave a host to the simulator: a kernel then talks to Holdover's own TCP (repeatable).
    #[arg(long, value_name = "HOST")]
    simulated: Vec<String>,
    /// Congestion control of the kernel, in place of the stacks' own.
    #[arg(long, value_name = "NAME")]
    congestion: Option<CongestionName>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum CongestionName {
    Cubic,
    Reno,
    Bbr,
}

/// Why kernels cannot be used, or why a run on them failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    /// Arguments about kernels without one that asks for them.
    #[error("{0} is about runs on kernels: it needs --real or --both")]
    NotAsked(&'static str),
    /// A host of that name is not in the scenario.
    #[error("--simulated {0}: the scenario has no host of that name")]
    NoSuchHost(String),
    /// No variant can be run.
    #[error("no variant can be run on a kernel\n{0}")]
    NoVariant(String),
    /// The process may not do what it takes.
    #[error("kernels cannot be used: {0}")]
    Privilege(#[from] PrivilegeError),
    /// A run failed.
    #[error("variant {variant} on the kernel: {}", with_causes(error.as_ref()))]
    Run {
        /// The variant.
        variant: String,
        /// Why.
        error: Box<RealError>,
    },
}

impl KernelError {
    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            Self::NotAsked(_) | Self::NoSuchHost(_) | Self::NoVariant(_) => ExitCode::from(2),
            Self::Privilege(_) | Self::Run { .. } => ExitCode::FAILURE,
        }
    }
}

/// Which variants are run on kernels, and how.
pub(super) struct Kernels {
    /// Whether they are run in the simulator too.
    pub(super) with_simulator: bool,
    /// The numbers of the variants.
    pub(super) variants: Vec<usize>,
    repeat: u32,
    congestion: Option<Congestion>,
    simulated: Vec<String>,
}

impl KernelArgs {
    /// Checks what can be checked before anything is written, and gets the right to make namespaces. To be called before the
    /// first thread is started.
    pub(super) fn prepare(&self, names: &[&str], worlds: &[WorldConfig]) -> Result<Kernels, KernelError> {
        let congestion = self.congestion.map(|name| match name {
            CongestionName::Cubic => Congestion::Cubic,
            CongestionName::Reno => Congestion::Reno,
            CongestionName::Bbr => Congestion::Bbr,
        });
        let mut kernels = Kernels {
            with_simulator: !self.real,
            variants: Vec::new(),
            repeat: self.repeat,
            congestion,
            simulated: self.simulated.clone(),
        };
        if !self.real && !self.both {
            let given = [
                ("--repeat", self.repeat > 1),
                ("--simulated", !self.simulated.is_empty()),
                ("--congestion", self.congestion.is_some()),
            ];
            return match given.into_iter().find(|(_, given)| *given) {
                Some((name, _)) => Err(KernelError::NotAsked(name)),
                None => Ok(kernels),
            };
        }
        if let Some(name) = self.simulated.iter().find(|name| worlds.iter().all(|world| node_of(world, name).is_none()))
        {
            return Err(KernelError::NoSuchHost(name.clone()));
        }
        let mut refused = Vec::new();
        for (index, (name, world)) in names.iter().zip(worlds).enumerate() {
            match RealWorld::check(world, &kernels.options(world)) {
                Ok(()) => kernels.variants.push(index),
                Err(error) => refused.push(format!("variant {name} is not run on the kernel: {}", with_causes(&error))),
            }
        }
        if kernels.variants.is_empty() {
            return Err(KernelError::NoVariant(refused.join("\n")));
        }
        for reason in refused {
            eprintln!("{reason}");
        }
        Privilege::acquire()?;
        Ok(kernels)
    }
}

impl Kernels {
    /// What the variants are called that are run on kernels.
    pub(super) fn names(&self, names: &[&str]) -> Vec<String> {
        self.variants.iter().map(|&variant| format!("{} (kernel)", names[variant])).collect()
    }

    fn options(&self, world: &WorldConfig) -> RealOptions {
        let simulated: BTreeSet<NodeId> = self.simulated.iter().filter_map(|name| node_of(world, name)).collect();
        RealOptions { simulated, congestion: self.congestion, ..RealOptions::default() }
    }
}

fn node_of(world: &WorldConfig, name: &str) -> Option<NodeId> {
    (0..).zip(&world.nodes).find(|(_, node)| node.name == name).map(|(id, _)| NodeId(id))
}

/// What is run, and where it is recorded.
pub(super) struct Plan<'a> {
    pub(super) kernels: &'a Kernels,
    /// Of all variants of the scenario.
    pub(super) names: &'a [&'a str],
    pub(super) worlds: &'a [WorldConfig],
    /// Of the variants that are run on kernels, relative to `results`.
    pub(super) directories: &'a [String],
    pub(super) results: &'a Path,
    pub(super) options: RecorderOptions,
    pub(super) jobs: usize,
}

/// Runs everything. Of each variant: what is told of it, and the record of the repetition that stands for it.
pub(super) fn all(
    plan: &Plan<'_>,
    show_progress: bool,
    stop: &AtomicBool,
) -> Result<(Vec<VariantSummary>, Vec<Record>), RunError> {
    let repeat = plan.kernels.repeat as usize;
    let count = plan.kernels.variants.len() * repeat;
    let parts: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(0)).collect();
    let failed = AtomicBool::new(false);
    let given_up = || failed.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed);
    let mut bar = Bar::new(show_progress, count);
    // One repetition of every variant after the other, so that all meet the same weather.
    let variants = plan.kernels.variants.len();
    let runs = in_parallel(
        count,
        plan.jobs,
        |index| {
            let run = one(plan, index % variants, index / variants, &parts[index], &given_up);
            if run.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            run
        },
        || bar.show(&parts),
    );
    bar.finish();
    let mut whole = Vec::with_capacity(count);
    for run in runs {
        // Without one, a run was given up because another one failed: that one's error follows or came before.
        whole.extend(run?);
    }
    if stop.load(Ordering::Relaxed) || whole.len() < count {
        return Err(RunError::Interrupted);
    }
    let mut of_variants: Vec<Vec<(Record, RealOutcome)>> = (0..variants).map(|_| Vec::new()).collect();
    for (index, run) in whole.into_iter().enumerate() {
        of_variants[index % variants].push(run);
    }
    Ok(of_variants.into_iter().enumerate().map(|(index, runs)| summarize(plan, index, runs)).unzip())
}

/// Runs one repetition of one variant; `None` if all are given up in the meantime.
fn one(
    plan: &Plan<'_>,
    index: usize,
    repetition: usize,
    part: &AtomicU32,
    given_up: &impl Fn() -> bool,
) -> Result<Option<(Record, RealOutcome)>, RunError> {
    if given_up() {
        return Ok(None);
    }
    let variant = plan.kernels.variants[index];
    let config = &plan.worlds[variant];
    let failed = |error| KernelError::Run { variant: plan.names[variant].to_owned(), error: Box::new(error) };
    let directory = plan.results.join(directory_of(&plan.directories[index], repetition));
    let mut recorder = Recorder::create(&directory, config, &plan.options)?;
    let mut world = RealWorld::new(config.clone(), &plan.kernels.options(config)).map_err(failed)?;
    let whole = bytes_to_come(config);
    let outcome = world.run(&mut recorder, |world| {
        part.store(part_done(config, world.now(), whole, world.bytes_read()), Ordering::Relaxed);
        !given_up()
    });
    let outcome = outcome.map_err(failed)?;
    let Some(ending) = outcome.ending else { return Ok(None) };
    part.store(WHOLE, Ordering::Relaxed);
    Ok(Some((recorder.finish(world.world(), ending)?, outcome)))
}

/// The first repetition has the directory of the variant, the others have one each in it.
fn directory_of(variant: &str, repetition: usize) -> String {
    if repetition == 0 { variant.to_owned() } else { format!("{variant}/repetition-{}", repetition + 1) }
}

/// What is told of a variant, and the record of the repetition that stands for it: the median by the time that its flows took.
fn summarize(plan: &Plan<'_>, index: usize, mut runs: Vec<(Record, RealOutcome)>) -> (VariantSummary, Record) {
    let variant = plan.names[plan.kernels.variants[index]];
    let directory = &plan.directories[index];
    let repetitions = runs.iter().enumerate().map(|(number, (record, outcome))| Repetition {
        directory: directory_of(directory, number),
        ending: record.ending.to_owned(),
        lateness: lateness_metrics(&outcome.lateness),
        flows: record.flows.clone(),
    });
    let repetitions: Vec<Repetition> = repetitions.collect();
    let took = |run: usize| runs[run].0.flows.iter().map(|flow| flow.duration_s).sum::<f64>();
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by(|&one, &other| took(one).total_cmp(&took(other)));
    let typical = order[(order.len() - 1) / 2];
    let (record, outcome) = runs.swap_remove(typical);
    let mut summary = VariantSummary::new(&format!("{variant} (kernel)"), &directory_of(directory, typical), &record);
    let of_tcp = |name: &str| name.starts_with("Tcp");
    let hosts = outcome.counters.iter().map(|(host, counters)| HostCounters {
        host: host.clone(),
        counters: counters
            .iter()
            .filter(|(name, value)| of_tcp(name) && *value != 0)
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    });
    summary.kernel = Some(KernelSummary {
        release: holdover_testbed::kernel_release(),
        simulated: variant.to_owned(),
        lateness: lateness_metrics(&outcome.lateness),
        hosts: hosts.collect(),
        repetitions,
    });
    (summary, record)
}

/// Remarks that a reader of the figures needs.
pub(super) fn warnings(summary: &Summary) -> Vec<String> {
    const TOLERABLE: Duration = Duration::from_millis(1);
    let late = |variant: &&VariantSummary| {
        variant.kernel.as_ref().is_some_and(|kernel| kernel.lateness.p99_s > TOLERABLE.as_secs_f64())
    };
    let late: Vec<&VariantSummary> = summary.variants.iter().filter(late).collect();
    let worst = late.iter().filter_map(|variant| Some(variant.kernel.as_ref()?.lateness.p99_s)).max_by(f64::total_cmp);
    let Some(worst) = worst else { return Vec::new() };
    vec![format!(
        "The machine was busy: 1 of 100 packets reached its kernel more than {:.1} ms late (more than {TOLERABLE} is a lot). \
         Run fewer variants at a time with --jobs.",
        worst * 1e3
    )]
}
