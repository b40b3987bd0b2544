//! Runs variants on real kernels concurrently, with repetitions.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use holdover_base::Duration;
use holdover_host::log::with_causes;
use holdover_report::{
    HostCounters, KernelSummary, LatenessMetrics, Record, RecorderOptions, Repetition, ResultsDir, Summary,
    VariantSummary,
};
use holdover_sim::{NodeId, WorldConfig};
use holdover_testbed::world::{Lateness, RealOptions, RealOutcome, RealWorld};
use holdover_testbed::{Congestion, Privilege};

use super::error::{KernelError, RunError};
use super::parallel::in_parallel;
use super::simulate::{WHOLE, bytes_to_come, part_done};

/// Options of runs on kernels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelOptions {
    /// The number of runs per variant; tables show medians.
    pub repeat: u32,
    /// The kernel's congestion control, which replaces that of the stacks.
    pub congestion: Option<Congestion>,
    /// Hosts that stay simulated: their peers' kernels then talk to Holdover's own TCP.
    pub simulated: Vec<String>,
}

/// The variants that run on kernels, and the options.
#[derive(Debug)]
pub struct Kernels {
    options: KernelOptions,
    /// The indices of the variants.
    variants: Vec<usize>,
    refused: Vec<String>,
}

impl Kernels {
    /// Determines which variants can run, before anything is written, and acquires the privilege to create namespaces. Call it before the
    /// process starts its first thread.
    ///
    /// # Errors
    ///
    /// If there is no such variant, a simulated host is not in the scenario, or the privilege cannot be acquired.
    pub fn prepare(options: KernelOptions, names: &[&str], worlds: &[WorldConfig]) -> Result<Self, KernelError> {
        let is_somewhere = |name: &str| worlds.iter().any(|world| node_of(world, name).is_some());
        if let Some(name) = options.simulated.iter().find(|name| !is_somewhere(name)) {
            return Err(KernelError::NoSuchHost(name.clone()));
        }
        let mut kernels = Self { options, variants: Vec::new(), refused: Vec::new() };
        for (index, (name, world)) in names.iter().zip(worlds).enumerate() {
            match RealWorld::check(world, &kernels.options(world)) {
                Ok(()) => kernels.variants.push(index),
                Err(error) => {
                    let reason = format!("variant {name} is not run on the kernel: {}", with_causes(&error));
                    kernels.refused.push(reason);
                }
            }
        }
        if kernels.variants.is_empty() {
            return Err(KernelError::NoVariant(kernels.refused.join("\n")));
        }
        Privilege::acquire()?;
        Ok(kernels)
    }

    /// The reasons why other variants do not run on kernels.
    pub fn refused(&self) -> &[String] {
        &self.refused
    }

    /// The number of runs on kernels, with repetitions.
    pub(super) fn runs(&self) -> usize {
        self.variants.len() * self.options.repeat.max(1) as usize
    }

    /// The indices of the variants that run on kernels.
    pub(super) fn variants(&self) -> &[usize] {
        &self.variants
    }

    /// The names of the variants that run on kernels.
    pub(super) fn names(&self, names: &[&str]) -> Vec<String> {
        self.variants.iter().map(|&variant| format!("{} (kernel)", names[variant])).collect()
    }

    fn options(&self, world: &WorldConfig) -> RealOptions {
        let simulated: BTreeSet<NodeId> =
            self.options.simulated.iter().filter_map(|name| node_of(world, name)).collect();
        RealOptions { simulated, congestion: self.options.congestion, ..RealOptions::default() }
    }
}

fn node_of(world: &WorldConfig, name: &str) -> Option<NodeId> {
    (0..).zip(&world.nodes).find(|(_, node)| node.name == name).map(|(id, _)| NodeId(id))
}

/// The runs, and their directories.
pub(super) struct Plan<'a> {
    pub(super) kernels: &'a Kernels,
    /// The names of all variants of the scenario.
    pub(super) names: &'a [&'a str],
    pub(super) worlds: &'a [WorldConfig],
    /// The directories of the variants that run on kernels, relative to `results`.
    pub(super) directories: &'a [String],
    pub(super) results: &'a ResultsDir,
    pub(super) options: RecorderOptions,
    pub(super) jobs: usize,
}

/// Runs all variants. Returns the summary of each, and the record of its representative repetition.
pub(super) fn all(
    plan: &Plan<'_>,
    stop: &AtomicBool,
    parts: &[AtomicU32],
    watch: impl FnMut(),
) -> Result<(Vec<VariantSummary>, Vec<Record>), RunError> {
    let count = plan.kernels.runs();
    let failed = AtomicBool::new(false);
    let given_up = || failed.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed);
    // Interleaves repetitions of the variants, so that all meet the same machine load.
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
        watch,
    );
    let mut whole = Vec::with_capacity(count);
    for run in runs {
        // A run without a record was abandoned because another run failed, whose error is reported before or after.
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

/// Runs one repetition of a variant; `None` if all runs are abandoned meanwhile.
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
    let directory = directory_of(&plan.directories[index], repetition);
    let mut recorder = plan.results.recorder(&directory, config, &plan.options)?;
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

/// The first repetition uses the directory of the variant, the others one subdirectory each.
fn directory_of(variant: &str, repetition: usize) -> String {
    if repetition == 0 { variant.to_owned() } else { format!("{variant}/repetition-{}", repetition + 1) }
}

/// The summary of a variant, and the record of its representative repetition: the median by the duration of its flows.
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

fn lateness_metrics(lateness: &Lateness) -> LatenessMetrics {
    LatenessMetrics::new(lateness.packets(), |share| lateness.quantile(share), lateness.max())
}

/// Remarks needed to interpret the figures.
pub fn warnings(summary: &Summary) -> Vec<String> {
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
