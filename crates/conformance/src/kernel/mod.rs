//! The experiments that pin how this machine's kernel behaves around outages, and the same on the profiles that copy it.

mod page;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdover_testbed::experiments::{self, Case, CaseResult, Experiment, Length, Verdict};
use holdover_testbed::{Congestion, Lateness, Namespace};

use crate::{About, Progress};
pub use page::{Report, list};

/// Runs the experiments and comparisons on several threads, and reports them to `watch`. `jobs` cases are concurrent, or [`JOBS`].
pub fn measure(
    experiments: &[Experiment],
    jobs: Option<u16>,
    about: About,
    watch: &(dyn Fn(Progress<'_>) + Sync),
) -> Report {
    let started = std::time::Instant::now();
    let results = run_cases(experiments, jobs.unwrap_or(JOBS), watch);
    Report::new(experiments, results, started.elapsed(), about)
}

/// The experiments and cases whose name contains `only`; those that take minutes `with_long` only.
pub fn selected(only: Option<&str>, with_long: bool) -> Vec<Experiment> {
    let mut experiments = experiments::experiments();
    for experiment in &mut experiments {
        let name = experiment.name;
        experiment.cases.retain(|case| {
            let is_meant = only.is_none_or(|text| format!("{name}: {case}").contains(text));
            is_meant && (with_long || case.length < Length::Long)
        });
    }
    experiments.retain(|experiment| !experiment.cases.is_empty());
    experiments
}

/// The result of a case.
type Outcome = Result<CaseResult, String>;

/// Runs all cases concurrently, the longest first; then repeats those that differ and during whose last run the machine was late, a few at
/// a time. The results are in the order of experiments and cases.
fn run_cases(experiments: &[Experiment], jobs: u16, watch: &(dyn Fn(Progress<'_>) + Sync)) -> Vec<Vec<Outcome>> {
    let mut queue: Vec<Place> = experiments
        .iter()
        .enumerate()
        .flat_map(|(index, experiment)| (0..experiment.cases.len()).map(move |case| (index, case)))
        .collect();
    queue.sort_by_key(|&(experiment, case)| core::cmp::Reverse(experiments[experiment].cases[case].length));
    let none = |experiment: &Experiment| experiment.cases.iter().map(|_| Err("it was not run".to_owned())).collect();
    let mut results: Vec<Vec<Outcome>> = experiments.iter().map(none).collect();
    for ((experiment, case), outcome) in run_queue(jobs, experiments, &queue, watch) {
        results[experiment][case] = outcome;
    }
    let again: Vec<Place> =
        queue.into_iter().filter(|&(experiment, case)| is_inconclusive(&results[experiment][case])).collect();
    for ((experiment, case), outcome) in run_queue(jobs.min(FEW), experiments, &again, watch) {
        let Ok(mut repeated) = outcome else { continue };
        if let Ok(first) = &results[experiment][case] {
            let later = std::mem::take(&mut repeated.excuses);
            repeated.excuses = first.excuses.iter().copied().chain([first.lateness]).chain(later).collect();
        }
        results[experiment][case] = Ok(repeated);
    }
    results
}

/// The numbers of an experiment and of its case.
type Place = (usize, usize);

/// Cases wait most of the time.
pub const JOBS: u16 = 24;
/// With this many concurrent cases a machine with two cores is idle most of the time.
const FEW: u16 = 4;

/// Whether the values differ, and the machine was late while they were measured.
fn is_inconclusive(outcome: &Outcome) -> bool {
    outcome
        .as_ref()
        .is_ok_and(|result| result.verdicts.contains(&Verdict::Differs) && result.lateness >= Lateness::EXCUSE)
}

fn run_queue(
    jobs: u16,
    experiments: &[Experiment],
    queue: &[Place],
    watch: &(dyn Fn(Progress<'_>) + Sync),
) -> Vec<(Place, Outcome)> {
    watch(Progress::Begun { done: 0, all: queue.len() });
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(&(experiment, case)) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
                    watch(Progress::Started(experiments[experiment].name));
                    let outcome = try_case(&experiments[experiment], &experiments[experiment].cases[case]);
                    watch(Progress::Ended);
                    let mut results = results.lock().expect("no worker panics while it holds the results");
                    results.push(((experiment, case), outcome));
                }
            });
        }
    });
    watch(Progress::Over);
    results.into_inner().expect("no worker panics while it holds the results")
}

fn try_case(experiment: &Experiment, case: &Case) -> Outcome {
    if !is_available(case.sender) {
        return Err(format!("this kernel does not have {}", case.sender.name()));
    }
    experiments::try_case(experiment, case).map_err(|error| error.to_string())
}

/// The kernel loads modules on first use, also by a namespace's root.
fn is_available(congestion: Congestion) -> bool {
    static AVAILABLE: std::sync::OnceLock<Vec<Congestion>> = std::sync::OnceLock::new();
    let find = || Congestion::ALL.into_iter().filter(|congestion| congestion.is_usable()).collect();
    AVAILABLE.get_or_init(|| Namespace::run("conformance", |_| find()).unwrap_or_default()).contains(&congestion)
}
