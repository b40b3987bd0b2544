//! `holdover reproduce`: the experiments of papers run anew, beside what was published, and their claims judged.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};

use clap::Args;
use holdover_report::{Manifest, ResultsDir, ResultsError};
use holdover_scenario::Style;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::command_support::{INTERRUPTED, print_error, stop_on_signals, utc};
use crate::reproduce::catalogue::{Catalogue, CatalogueError, Experiment};
use crate::reproduce::figures;
use crate::reproduce::judge::{self, Counts, Judged};
use crate::reproduce::page::Reproduced;
use crate::reproduce::results::Results;
use crate::reproduce::script::Scripts;
use crate::sweep::engine::{self, Outcome, SweepError};
use crate::sweep::{DirectoryError, JournalError, Plan, PlanError, SweepDir};

/// Arguments of `holdover reproduce`.
#[derive(Args, Debug)]
pub(crate) struct ReproduceArgs {
    /// A paper, or one of its experiments: hip-uto-rt, freeze-tcp/table-2; all papers if not said.
    what: Option<String>,
    /// Show the papers, their experiments and claims, and run nothing.
    #[arg(long)]
    list: bool,
    /// A directory of papers, each with a paper.toml and its scenarios, instead of those that come with Holdover.
    #[arg(long, value_name = "DIR")]
    experiments: Option<PathBuf>,
    /// How many runs are made at a time; as many as there are cores if not said. The results do not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// The directory for the results; a new one below results/ if not said. What was run in it already is not run again.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the page of each paper, with its pictures, into this directory too.
    #[arg(long, value_name = "DIR")]
    pages: Option<PathBuf>,
    /// Print JSON instead of a text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("{0}")]
    Catalogue(CatalogueError),
    #[error("{0}")]
    Plan(#[from] PlanError),
    #[error("{0}")]
    Directory(#[from] DirectoryError),
    #[error("{0}")]
    Results(#[from] ResultsError),
    #[error("{0}")]
    Record(#[from] holdover_report::RecordError),
    #[error("{0}")]
    Journal(#[from] JournalError),
    #[error("{0}")]
    Sweep(#[from] SweepError),
    #[error("cannot listen to signals: {0}")]
    Signals(std::io::Error),
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: std::io::Error },
    #[error("cannot make JSON of the results: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{} is not empty, and not the directory of a reproduction; choose another one", .0.display())]
    OtherResults(PathBuf),
    #[error("--pages writes the pages of whole papers, and {0} is one experiment")]
    PartOfAPage(String),
    #[error("interrupted; what is finished is kept in {}; the same command with --out {} goes on with it", .0.display(), .0.display())]
    Interrupted(PathBuf),
}

impl From<CatalogueError> for CommandError {
    fn from(error: CatalogueError) -> Self {
        Self::Catalogue(error)
    }
}

/// Where directories of results are made.
const RESULTS: &str = "results";

/// Runs the experiments and prints the verdicts. The exit status says whether everything ran, whatever the claims say.
pub(crate) fn run(args: &ReproduceArgs) -> ExitCode {
    match reproduce(args) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(CommandError::Catalogue(CatalogueError::Scenario(error))) => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            eprint!("{}", error.report(if colour { Style::Colour } else { Style::Plain }));
            ExitCode::from(2)
        }
        Err(error @ CommandError::Interrupted(_)) => {
            eprintln!("{error}");
            ExitCode::from(INTERRUPTED)
        }
        Err(
            error @ (CommandError::Catalogue(_)
            | CommandError::Plan(_)
            | CommandError::PartOfAPage(_)
            | CommandError::OtherResults(_)),
        ) => {
            print_error(&error);
            ExitCode::from(2)
        }
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

/// A paper, the experiments of it that were asked for, and the scenarios that these need.
struct Work {
    catalogue: Catalogue,
    /// Their places among the catalogue's experiments.
    experiments: Vec<usize>,
    plans: BTreeMap<String, Plan>,
}

impl Work {
    fn experiments(&self) -> Vec<&Experiment> {
        self.experiments.iter().map(|&index| &self.catalogue.experiments[index]).collect()
    }

    fn ids(&self) -> Vec<&str> {
        self.experiments().into_iter().map(|experiment| experiment.id.as_str()).collect()
    }
}

fn reproduce(args: &ReproduceArgs) -> Result<String, CommandError> {
    let catalogues = Catalogue::all(args.experiments.as_deref())?;
    let chosen = choose(catalogues, args.what.as_deref())?;
    if let (Some(what), Some(_)) = (args.what.as_ref().filter(|what| what.contains('/')), &args.pages) {
        return Err(CommandError::PartOfAPage(what.clone()));
    }
    if args.list {
        return list(&chosen, args.json);
    }
    let mut works = Vec::new();
    for (catalogue, experiments) in chosen {
        works.push(plan(catalogue, experiments)?);
    }
    let began = (SystemTime::now(), Instant::now());
    let directory = match &args.out {
        Some(path) => begun_here(path)?,
        None => ResultsDir::create_new(Path::new(RESULTS), "reproduce", &utc(began.0).1)?,
    };
    write(&directory.path().join(MARK), format!("{}\n", env!("CARGO_PKG_VERSION")).as_bytes())?;
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let stop = stop_on_signals().map_err(CommandError::Signals)?;
    let mut told = Vec::new();
    for work in &works {
        told.push(one_paper(work, &directory, args, jobs, &stop)?);
    }
    directory.write_manifest(&Manifest {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: None,
        command_line: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        started_at: utc(began.0).0,
        took_s: began.1.elapsed().as_secs_f64(),
    })?;
    tell(&told, &directory, began.1.elapsed().as_secs_f64(), args.json)
}

/// The file by which a directory of reproductions is known.
const MARK: &str = "reproduced-by";

/// A directory that is new, empty, or of an earlier reproduction.
fn begun_here(path: &Path) -> Result<ResultsDir, CommandError> {
    let failed = |error| CommandError::Write { path: path.to_owned(), error };
    let filled = path.is_dir() && std::fs::read_dir(path).map_err(failed)?.next().is_some();
    if filled && !path.join(MARK).exists() {
        return Err(CommandError::OtherResults(path.to_owned()));
    }
    Ok(ResultsDir::open(path)?)
}

/// What is said about a paper.
#[derive(Serialize)]
struct Told {
    paper: String,
    counts: Counts,
    claims: Vec<Judged>,
    /// What came of each scenario.
    results: BTreeMap<String, Results>,
    took_s: f64,
    #[serde(skip)]
    text: String,
}

fn tell(told: &[Told], directory: &ResultsDir, took_s: f64, json: bool) -> Result<String, CommandError> {
    if json {
        let all = serde_json::json!({ "papers": told, "directory": directory.path(), "took_s": took_s });
        return Ok(format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let mut text: String =
        told.iter().map(|told| format!("{}  It took {:.0} s.\n\n", told.text, told.took_s)).collect();
    text.push_str("What was published, why claims fail, and pictures are on these pages:\n");
    for told in told {
        text.push_str(&format!("  {}\n", directory.path().join(format!("{}.md", told.paper)).display()));
    }
    Ok(text)
}

/// The papers that `what` names, and the places of their experiments.
fn choose(catalogues: Vec<Catalogue>, what: Option<&str>) -> Result<Vec<(Catalogue, Vec<usize>)>, CatalogueError> {
    let Some(what) = what else {
        let all = |catalogue: Catalogue| {
            let experiments = (0..catalogue.experiments.len()).collect();
            (catalogue, experiments)
        };
        return Ok(catalogues.into_iter().map(all).collect());
    };
    let (paper, experiment) = what.split_once('/').map_or((what, None), |(paper, rest)| (paper, Some(rest)));
    let known: Vec<String> = catalogues.iter().map(|catalogue| catalogue.name.clone()).collect();
    let unknown = |what, name: &str, known| CatalogueError::Unknown { what, name: name.to_owned(), known };
    let catalogue = catalogues
        .into_iter()
        .find(|catalogue| catalogue.name == paper)
        .ok_or_else(|| unknown("paper", paper, known))?;
    let indices: Vec<usize> = (0..catalogue.experiments.len())
        .filter(|&index| experiment.is_none_or(|id| catalogue.experiments[index].id == id))
        .collect();
    if let (true, Some(id)) = (indices.is_empty(), experiment) {
        let known = catalogue.experiments.iter().map(|experiment| experiment.id.clone()).collect();
        return Err(unknown("experiment", id, known));
    }
    Ok(vec![(catalogue, indices)])
}

/// Finds out which scenarios are needed, and checks them all before anything runs.
fn plan(catalogue: Catalogue, experiments: Vec<usize>) -> Result<Work, CommandError> {
    let mut work = Work { catalogue, experiments, plans: BTreeMap::new() };
    let ids: Vec<String> = work.ids().into_iter().map(str::to_owned).collect();
    let mut names: BTreeSet<String> =
        work.experiments().iter().filter_map(|experiment| experiment.scenario.clone()).collect();
    let checks = work.catalogue.claims.iter().filter(|claim| ids.contains(&claim.experiment));
    let checks = checks.filter_map(|claim| claim.check.as_deref());
    let experiments = work.experiments();
    let scripts = experiments.iter().flat_map(|experiment| experiment.scripts());
    let known: Vec<&str> = work.catalogue.names_of_results().collect();
    names.extend(checks.chain(scripts).flat_map(|script| named_results(script, &known)));
    let names: BTreeSet<String> = names.iter().flat_map(|name| work.catalogue.scenarios_of(name)).collect();
    for name in names {
        let scenario = work.catalogue.scenario(&name)?;
        let flows: Vec<String> = match scenario.variants().first() {
            Some(variant) => {
                let world = variant.world(scenario.seed()).map_err(CatalogueError::Scenario)?;
                world.flows.into_iter().map(|flow| flow.name).collect()
            }
            None => Vec::new(),
        };
        let mut plan = Plan::new(scenario)?;
        if flows.len() > 1 && flows.len() <= 8 {
            plan.measure_each(&flows.iter().map(String::as_str).collect::<Vec<_>>());
        }
        work.plans.insert(name, plan);
    }
    Ok(work)
}

/// The names in `results("name")`, and those of the `known` that stand in quotes.
fn named_results(script: &str, known: &[&str]) -> Vec<String> {
    let asked = script.split("results(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let quoted = known.iter().copied().filter(|name| script.contains(&format!("\"{name}\"")));
    asked.chain(quoted).map(str::to_owned).collect()
}

fn one_paper(
    work: &Work,
    directory: &ResultsDir,
    args: &ReproduceArgs,
    jobs: usize,
    stop: &AtomicBool,
) -> Result<Told, CommandError> {
    let began = Instant::now();
    let mut results = BTreeMap::new();
    let paper_dir = directory.path().join(&work.catalogue.name);
    for (name, plan) in &work.plans {
        let swept = sweep(plan, &paper_dir.join(name), &format!("{}/{name}", work.catalogue.name), jobs, stop)?;
        let Some(swept) = swept else { return Err(CommandError::Interrupted(directory.path().to_owned())) };
        results.insert(name.clone(), swept);
    }
    for union in &work.catalogue.unions {
        let parts = union.of.iter().filter_map(|part| Some((results.get(&part.scenario)?, &part.at)));
        let united = Results::union(parts);
        if !united.cells.is_empty() {
            results.insert(union.name.clone(), united);
        }
    }
    let scripts = Scripts::new(&results);
    let claims = judge::claims(&work.catalogue, &work.ids(), &scripts);
    let drawn = draw(work, &results);
    let figures: Vec<(String, String, String)> = drawn
        .iter()
        .map(|drawn| (drawn.experiment.clone(), format!("{}.svg", drawn.name), drawn.title.clone()))
        .collect();
    let reproduced = Reproduced {
        catalogue: &work.catalogue,
        experiments: work.experiments(),
        results: &results,
        claims: &claims,
        figures: &figures,
        scripts: &scripts,
        command: command(args, &work.catalogue.name),
    };
    let mut pages = vec![directory.path().to_owned()];
    pages.extend(args.pages.clone());
    for place in pages {
        let page = reproduced.markdown(&work.catalogue.name);
        write(&place.join(format!("{}.md", work.catalogue.name)), page.as_bytes())?;
        for drawn in &drawn {
            let picture = |ending: &str| place.join(&work.catalogue.name).join(format!("{}.{ending}", drawn.name));
            write(&picture("svg"), drawn.svg.as_bytes())?;
            // The pages show the SVG; a repository has no need of both.
            if let (Ok(png), true) = (&drawn.png, place == directory.path()) {
                write(&picture("png"), png)?;
            }
        }
    }
    let text = reproduced.terminal();
    let counts = Counts::of(&claims);
    let paper = work.catalogue.name.clone();
    Ok(Told { paper, counts, claims, text, took_s: began.elapsed().as_secs_f64(), results })
}

/// The command that repeats the reproduction of a paper.
fn command(args: &ReproduceArgs, paper: &str) -> String {
    let what = args.what.as_deref().unwrap_or(paper);
    match &args.experiments {
        Some(papers) => format!("holdover reproduce {what} --experiments {}", papers.display()),
        None => format!("holdover reproduce {what}"),
    }
}

fn draw(work: &Work, results: &BTreeMap<String, Results>) -> Vec<figures::Drawn> {
    let of = |experiment: &&Experiment| {
        let results = experiment.scenario.as_ref().and_then(|scenario| results.get(scenario));
        results.map(|results| figures::of(experiment, results)).unwrap_or_default()
    };
    work.experiments().iter().flat_map(of).collect()
}

/// Runs what is left of a scenario; `None` if it was interrupted.
fn sweep(
    plan: &Plan,
    path: &Path,
    name: &str,
    jobs: usize,
    stop: &AtomicBool,
) -> Result<Option<Results>, CommandError> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|error| CommandError::Write { path: parent.to_owned(), error })?;
    }
    let directory = SweepDir::at(path, false)?;
    let (journal, schedule) = engine::open_journal(plan, &directory.journal())?;
    directory.write_scenario(plan)?;
    let progress = schedule.progress();
    let template = "{prefix}  {bar:30} {pos} of about {len} runs, {elapsed_precise}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(progress.expected).with_style(style).with_position(progress.done);
    bar.set_prefix(name.to_owned());
    bar.reset_eta();
    let watch = |progress: crate::sweep::Progress| {
        bar.set_length(progress.expected);
        bar.set_position(progress.done);
    };
    let outcome = engine::run(plan, journal, schedule, jobs, stop, &watch);
    bar.finish_and_clear();
    match outcome? {
        Outcome::Complete(runs) => {
            directory.write_results(plan, &runs)?;
            Ok(Some(Results::new(plan, &runs)))
        }
        Outcome::Interrupted(_) => Ok(None),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    let failed = |error| CommandError::Write { path: path.to_owned(), error };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    std::fs::write(path, bytes).map_err(failed)
}

fn list(chosen: &[(Catalogue, Vec<usize>)], json: bool) -> Result<String, CommandError> {
    if json {
        let all: Vec<_> = chosen
            .iter()
            .map(|(catalogue, experiments)| {
                let experiments: Vec<_> = experiments
                    .iter()
                    .map(|&index| &catalogue.experiments[index])
                    .map(|e| serde_json::json!({ "id": e.id, "title": e.title, "source": e.source, "scenario": e.scenario }))
                    .collect();
                let claims: Vec<_> = catalogue
                    .claims
                    .iter()
                    .map(|c| serde_json::json!({ "id": c.id, "experiment": c.experiment, "text": c.text }))
                    .collect();
                serde_json::json!({ "paper": catalogue.name, "title": catalogue.paper.title, "experiments": experiments, "claims": claims })
            })
            .collect();
        return Ok(format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let mut text = String::new();
    for (catalogue, experiments) in chosen {
        text.push_str(&format!("{}: {}\n", catalogue.name, catalogue.paper.title));
        for &index in experiments {
            let experiment = &catalogue.experiments[index];
            let claims = catalogue.claims.iter().filter(|claim| claim.experiment == experiment.id).count();
            let run = if experiment.scenario.is_some() { "" } else { ", not run" };
            text.push_str(&format!(
                "  {}/{}: {} ({claims} claims{run})\n",
                catalogue.name, experiment.id, experiment.title
            ));
        }
    }
    Ok(text)
}
