//! `holdover reproduce`: repeats the experiments of papers, compares them with the published results, and judges their claims.

mod real;
mod settings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Instant, SystemTime};

use clap::Args;
use holdover_lab::reproduce::catalogue::{Catalogue, CatalogueError};
use holdover_lab::reproduce::figures;
use holdover_lab::reproduce::judge::{self, Counts, Judged};
use holdover_lab::reproduce::page::Reproduced;
use holdover_lab::reproduce::results::Results;
use holdover_lab::reproduce::script::Scripts;
use holdover_lab::reproduce::together::Together;
use holdover_lab::reproduce::work::{Running, Work, WorkError};
use holdover_lab::sweep::Progress;
use holdover_report::{Manifest, ResultsDir, ResultsError};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::command_support::{
    INTERRUPTED, print, print_error, print_interruption, print_scenario_error, stop_on_signals, utc, within,
};
use crate::text_table::{Layout, laid_out, paragraph};

/// Arguments of `holdover reproduce`.
#[derive(Args, Debug)]
pub(crate) struct ReproduceArgs {
    /// A paper, or one of its experiments: hip-uto-rt, freeze-tcp/table-2; default: all papers.
    what: Option<String>,
    /// Show the papers, their experiments and claims, and run nothing.
    #[arg(long)]
    list: bool,
    /// A directory of papers, each with a paper.toml and its scenarios, instead of those that come with Holdover.
    #[arg(long, value_name = "DIR")]
    experiments: Option<PathBuf>,
    /// The number of concurrent runs; default: the number of cores, and with --real 28, which are disconnected most of the time. The
    /// results of simulations do not depend on it.
    #[arg(long, value_name = "N", value_parser = within(1_u16..=1024))]
    jobs: Option<u16>,
    /// The directory for the results; default: a new one below results/. Runs already in it are not repeated.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the page of each paper, with its pictures, into this directory too.
    #[arg(long, value_name = "DIR")]
    pages: Option<PathBuf>,
    /// Judge the claims of one paper over a sample of settings of its open parameters.
    #[arg(long, conflicts_with_all = ["list", "pages"], requires = "what")]
    open: bool,
    /// Fit a paper's open parameters to its printed numbers.
    #[arg(long, conflicts_with_all = ["list", "pages", "open"], requires = "what")]
    fit: bool,
    /// How many settings --open and --fit sample; default: from the paper's file.
    #[arg(long, value_name = "N", value_parser = within(2_u16..=4096))]
    samples: Option<u16>,
    /// How often --open and --fit run each variant at each point; default: from the paper's file. With --real the number of runs of each
    /// transfer; default: 3.
    #[arg(long, value_name = "N", value_parser = within(1_u16..=1000))]
    runs: Option<u16>,
    /// Write the results of --open and --fit beside the paper's file, as open.toml and fitted.toml.
    #[arg(long, requires = "experiments")]
    keep: bool,
    /// Continue the latest reproduction below results/.
    #[arg(long, conflicts_with = "out")]
    resume: bool,
    /// Measure real daemons between this machine's kernels instead of simulating: for m-tcp the processing time at the
    /// supervisor host (the gateway's daemon; a minute), for hip-uto-rt a sample of single disconnections and figure 13 (the daemons of
    /// `holdover hip`; half an hour). Runs no experiments. Needs network namespaces.
    #[arg(long, requires = "what", conflicts_with_all = ["list", "pages", "open", "fit", "keep", "resume", "out", "experiments"])]
    real: bool,
    #[command(flatten)]
    transfers: real::TransferArgs,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("{0}")]
    Catalogue(CatalogueError),
    #[error("{0}")]
    Work(WorkError),
    #[error("{0}")]
    Results(#[from] ResultsError),
    #[error("{0}")]
    Record(#[from] holdover_report::RecordError),
    #[error("cannot listen to signals: {0}")]
    Signals(std::io::Error),
    #[error("cannot write {}: {error}", path.display())]
    Write { path: PathBuf, error: std::io::Error },
    #[error("cannot make JSON of the results: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{} is not empty, and not the directory of a reproduction; choose another one", .0.display())]
    OtherResults(PathBuf),
    #[error("--pages, --open and --fit are for whole papers, and {0} is one experiment")]
    PartOfAPage(String),
    #[error("{0} declares nothing that it leaves open: there is no [[open]] in its paper.toml")]
    NothingOpen(String),
    #[error("{0} prints no numbers that a setting could fit")]
    NothingToFit(String),
    #[error("there is no reproduction to resume below {RESULTS}")]
    NothingToResume,
    #[error("interrupted; what is finished is kept in {}; the same command with --out {} continues with it", .0.display(), .0.display())]
    Interrupted(PathBuf),
}

impl From<WorkError> for CommandError {
    fn from(error: WorkError) -> Self {
        match error {
            WorkError::Catalogue(error) => Self::Catalogue(error),
            error => Self::Work(error),
        }
    }
}

impl From<CatalogueError> for CommandError {
    fn from(error: CatalogueError) -> Self {
        Self::Catalogue(error)
    }
}

/// Where directories of results are made.
const RESULTS: &str = "results";

/// Runs the experiments and prints the verdicts. The exit status is that of the runs, independent of the verdicts.
pub(crate) fn run(args: &ReproduceArgs) -> ExitCode {
    if args.real {
        return real::run(args);
    }
    match reproduce(args) {
        Ok(text) => print(&text),
        Err(CommandError::Catalogue(CatalogueError::Scenario(error))) => {
            print_scenario_error(&error);
            ExitCode::from(2)
        }
        Err(error @ CommandError::Interrupted(_)) => {
            print_interruption(&error);
            ExitCode::from(INTERRUPTED)
        }
        Err(
            error @ (CommandError::Catalogue(_)
            | CommandError::Work(WorkError::Plan(_))
            | CommandError::PartOfAPage(_)
            | CommandError::NothingOpen(_)
            | CommandError::NothingToFit(_)
            | CommandError::NothingToResume
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

fn reproduce(args: &ReproduceArgs) -> Result<String, CommandError> {
    let catalogues = Catalogue::all(args.experiments.as_deref())?;
    let chosen = choose(catalogues, args.what.as_deref())?;
    let wants_whole = args.pages.is_some() || args.open || args.fit;
    if let Some(what) = args.what.as_ref().filter(|what| wants_whole && what.contains('/')) {
        return Err(CommandError::PartOfAPage(what.clone()));
    }
    if args.list {
        return list(&chosen, args.json);
    }
    let mut works = Vec::new();
    for (catalogue, experiments) in chosen {
        works.push(Work::new(catalogue, experiments)?);
    }
    if args.open || args.fit {
        settings::check(&works, args.fit)?;
    }
    let began = (SystemTime::now(), Instant::now());
    let directory = match &args.out {
        Some(path) => begun_here(path)?,
        None if args.resume => latest(Path::new(RESULTS))?,
        None => ResultsDir::create_new(Path::new(RESULTS), "reproduce", &utc(began.0).1, [])?,
    };
    write(&directory.path().join(MARK), format!("{}\n", env!("CARGO_PKG_VERSION")).as_bytes())?;
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let stop = stop_on_signals().map_err(CommandError::Signals)?;
    let bars = Bars::default();
    let watch = |title: &str, progress: Option<Progress>| bars.show(title, progress);
    let running = Running { jobs, stop: &stop, watch: &watch };
    let mut papers = Vec::new();
    let mut text = String::new();
    for work in &works {
        if args.open {
            text.push_str(&settings::survey(work, directory.path(), args, &running)?);
        } else if args.fit {
            text.push_str(&settings::search(work, directory.path(), args, &running)?);
        } else {
            papers.push(one_paper(work, &directory, args, &running)?);
        }
    }
    directory.write_manifest(&Manifest {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed: None,
        command_line: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        started_at: utc(began.0).0,
        took_s: began.1.elapsed().as_secs_f64(),
    })?;
    if papers.is_empty() {
        return Ok(text);
    }
    render(&papers, &directory, began.1.elapsed().as_secs_f64(), args.json)
}

/// The latest directory of a reproduction below `parent`.
fn latest(parent: &Path) -> Result<ResultsDir, CommandError> {
    let failed = |error| CommandError::Write { path: parent.to_owned(), error };
    if !parent.is_dir() {
        return Err(CommandError::NothingToResume);
    }
    let entries = std::fs::read_dir(parent).map_err(failed)?;
    let begun = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.join(MARK).is_file());
    let modified = |path: &PathBuf| std::fs::metadata(path.join(MARK)).and_then(|found| found.modified()).ok();
    let latest = begun.max_by_key(|path| (modified(path), path.clone())).ok_or(CommandError::NothingToResume)?;
    Ok(ResultsDir::open(&latest)?)
}

/// The file that marks a directory of reproductions.
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

/// The verdicts on one paper.
#[derive(Serialize)]
struct PaperSummary {
    paper: String,
    counts: Counts,
    claims: Vec<Judged>,
    /// The claims that hold together, over a survey of the whole paper.
    #[serde(skip_serializing_if = "Option::is_none")]
    together: Option<Together>,
    /// The result of each scenario.
    results: BTreeMap<String, Results>,
    took_s: f64,
    #[serde(skip)]
    text: String,
}

fn render(papers: &[PaperSummary], directory: &ResultsDir, took_s: f64, json: bool) -> Result<String, CommandError> {
    if json {
        let all = serde_json::json!({ "papers": papers, "directory": directory.path(), "took_s": took_s });
        return Ok(format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let mut text: String =
        papers.iter().map(|paper| format!("{}It took {:.0} s.\n\n", paper.text, paper.took_s)).collect();
    text.push_str(&paragraph("What was published, why claims fail, and pictures are on these pages:"));
    for paper in papers {
        text.push_str(&format!("  {}\n", directory.path().join(format!("{}.html", paper.paper)).display()));
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

fn one_paper(
    work: &Work,
    directory: &ResultsDir,
    args: &ReproduceArgs,
    running: &Running<'_>,
) -> Result<PaperSummary, CommandError> {
    let began = Instant::now();
    let results = work.run(&directory.path().join(&work.catalogue.name), running)?;
    let Some(results) = results else { return Err(CommandError::Interrupted(directory.path().to_owned())) };
    let scripts = Scripts::new(&results);
    let claims = judge::claims(&work.catalogue, &work.ids(), &scripts);
    let drawn = work.draw(&results);
    let survey = figures::of_survey(&work.catalogue);
    let reproduced = Reproduced {
        catalogue: &work.catalogue,
        experiments: work.experiments(),
        results: &results,
        claims: &claims,
        figures: &drawn,
        survey: survey.as_ref(),
        scripts: &scripts,
        command: command(args, &work.catalogue.name),
    };
    let paper = &work.catalogue.name;
    let mut pages = vec![directory.path().to_owned()];
    pages.extend(args.pages.clone());
    for place in pages {
        // The page beside the runs links to them; a repository needs only one of both pages, and no PNGs.
        let beside_runs = place == directory.path();
        write(&place.join(format!("{paper}.md")), reproduced.markdown(paper).as_bytes())?;
        if beside_runs {
            write(&place.join(format!("{paper}.html")), reproduced.html(Some(paper)).as_bytes())?;
        }
        for drawn in drawn.iter().chain(survey.as_ref()) {
            let picture = |ending: &str| place.join(paper).join(format!("{}.{ending}", drawn.name));
            write(&picture("svg"), drawn.picture.svg.as_bytes())?;
            if let (Ok(png), true) = (&drawn.picture.png, beside_runs) {
                write(&picture("png"), png)?;
            }
        }
    }
    let text = for_terminal(&reproduced);
    let together = reproduced.together();
    let counts = Counts::of(&claims);
    let paper = paper.clone();
    Ok(PaperSummary { paper, counts, claims, together, text, took_s: began.elapsed().as_secs_f64(), results })
}

/// The verdicts on a paper's claims, for people.
fn for_terminal(reproduced: &Reproduced<'_>) -> String {
    let catalogue = reproduced.catalogue;
    let layout = Layout { has_sentences: true, ..Layout::default() };
    let verdicts = laid_out(["claim", "verdict", "found"], layout, reproduced.verdicts());
    let sums: String = reproduced.sums().map(|line| paragraph(&line)).collect();
    [paragraph(&format!("{}: {}", catalogue.name, catalogue.paper.title)), verdicts, sums].concat()
}

/// The command that repeats the reproduction of a paper.
fn command(args: &ReproduceArgs, paper: &str) -> String {
    let what = args.what.as_deref().unwrap_or(paper);
    match &args.experiments {
        Some(papers) => format!("holdover reproduce {what} --experiments {}", papers.display()),
        None => format!("holdover reproduce {what}"),
    }
}

/// The progress bar of the sweep under way.
#[derive(Default)]
struct Bars(Mutex<Option<ProgressBar>>);

impl Bars {
    fn show(&self, title: &str, progress: Option<Progress>) {
        let mut bar = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match progress {
            Some(progress) => {
                let bar = bar.get_or_insert_with(|| begun(title, progress));
                bar.set_length(progress.expected);
                bar.set_position(progress.done);
            }
            None => {
                if let Some(bar) = bar.take() {
                    bar.finish_and_clear();
                }
            }
        }
    }
}

fn begun(title: &str, progress: Progress) -> ProgressBar {
    let template = "{prefix}  {bar:30} {pos} of about {len} runs, {elapsed_precise}, {eta} left";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(progress.expected).with_style(style).with_position(progress.done);
    bar.set_prefix(title.to_owned());
    bar.reset_eta();
    bar
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
