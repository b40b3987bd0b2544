//! Shared by the grids of `holdover conformance`: runs of cells in parallel, medians, and the ways out of a report.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Display};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use holdover_host::open_files;
use holdover_testbed::{Privilege, kernel_release};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ConformanceArgs;
use super::journal::Journal;
use crate::command_support::{exit_on_signals, print, print_error, print_json, utc, with_causes};
use crate::transfers::NetPath;

/// The result of a grid.
pub(super) trait GridReport: Serialize {
    /// Whether every cell meets its bound.
    fn is_sound(&self) -> bool;
    /// A summary line.
    fn in_a_line(&self) -> String;
    /// The page.
    fn markdown(&self) -> String;
    /// A row for each run.
    fn csv(&self) -> String;
}

/// A place of a grid, where runs are made.
pub(super) trait GridPlace: Copy + Ord + Display + Send + Sync {
    /// So many runs at a time leave room on a machine with two cores: each moves 10 Mbit/s of packets.
    const JOBS: u16 = 12;

    /// The number of connections of a run with both ends in this process.
    fn connections(self) -> u32 {
        1
    }
}

/// The open files of a run besides its connections: namespaces, devices, programs and maps. Ten concurrent runs had
/// 1,157 files open in all.
const OPEN_FILES_OF_A_RUN: u64 = 150;
/// Both ends of a connection, and the socket that listens for it. A run with 1,000 connections had 3,022 files open.
const FILES_OF_A_CONNECTION: u64 = 3;
/// The open files of this process besides its runs.
const OPEN_FILES_OF_THE_GRID: u64 = 100;

/// The files that this process may have open, shared by the runs under way.
#[derive(Debug)]
struct OpenFiles {
    free: Mutex<u64>,
    given_back: Condvar,
    limit: u64,
}

/// The share of a run, until this is dropped.
#[derive(Debug)]
struct Share<'a> {
    of: &'a OpenFiles,
    files: u64,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        // A run that panics gives them back, too, or the others would wait for ever.
        *self.of.free.lock().unwrap_or_else(PoisonError::into_inner) += self.files;
        self.of.given_back.notify_all();
    }
}

impl OpenFiles {
    fn new(limit: u64) -> Self {
        Self { free: Mutex::new(limit), given_back: Condvar::new(), limit }
    }

    /// Waits until there is room for a run at `place`. A run that needs more than the limit runs alone.
    fn share(&self, place: impl GridPlace) -> Share<'_> {
        let files = (OPEN_FILES_OF_A_RUN + FILES_OF_A_CONNECTION * u64::from(place.connections())).min(self.limit);
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let room = self.given_back.wait_while(free, |free| *free < files);
        *room.unwrap_or_else(PoisonError::into_inner) -= files;
        Share { of: self, files }
    }
}

/// The conditions under which a report was made.
#[derive(Debug, Serialize)]
pub(super) struct Head {
    pub(super) command: String,
    pub(super) kernel: String,
    /// Of this machine, as far as this process may use them.
    pub(super) cores: usize,
    pub(super) date: String,
    pub(super) seconds: u64,
    pub(super) path: NetPath,
}

impl Head {
    /// Of this process, which has taken so long for runs over `path`.
    pub(super) fn new(took: Duration, path: NetPath) -> Self {
        Self {
            command: command(),
            kernel: kernel_release(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            date: utc(SystemTime::now()).0[..10].to_owned(),
            seconds: took.as_secs(),
            path,
        }
    }
}

/// Prints `Made by ... on ... with ... cores; Linux ....`
impl Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, kernel, cores, date, .. } = self;
        write!(f, "Made by `{command}` on {date} with {cores} cores; Linux {kernel}.")
    }
}

/// Prepares the process for runs at these places, before its first thread. With `--list` prints them instead. `Err` if nothing is to be
/// run: the code to exit with.
pub(super) fn begin(args: &ConformanceArgs, places: &[impl GridPlace]) -> Result<(), ExitCode> {
    if places.is_empty() {
        print_error(&format_args!(
            "no case of the grid has \"{}\" in its name",
            args.only.as_deref().unwrap_or_default()
        ));
        return Err(ExitCode::from(2));
    }
    if args.list {
        return Err(print(&places.iter().map(|place| format!("{place}\n")).collect::<String>()));
    }
    // This may have to enter a user namespace.
    if let Err(error) = Privilege::acquire() {
        print_error(&format_args!("conformance needs network namespaces: {error}"));
        return Err(ExitCode::FAILURE);
    }
    if let Err(error) = exit_on_signals(kept(args)) {
        print_error(&format_args!("cannot watch for Ctrl-C: {error}"));
        return Err(ExitCode::FAILURE);
    }
    Ok(())
}

/// A run that a busy machine has spoiled is made again, at most so often in all.
pub(super) const TRIES: u32 = 3;

/// Makes a run until it counts: until `run_once`, which gets the number of the try, returns one that `is_spoiled` does not reject. The last
/// try counts whatever the machine did. `None` if every try returned none.
pub(super) fn counted<R, E>(
    run_once: impl Fn(u32) -> Result<Option<R>, E>,
    is_spoiled: impl Fn(&R) -> bool,
) -> Result<Option<R>, E> {
    let mut last = None;
    for tries in 1..=TRIES {
        let Some(run) = run_once(tries)? else { continue };
        let is_spoiled = is_spoiled(&run);
        last = Some(run);
        if !is_spoiled {
            break;
        }
    }
    Ok(last)
}

/// `text` in bold if it misses a bound.
pub(super) fn marked(misses: bool, text: &str) -> String {
    if misses { format!("**{text}**") } else { text.to_owned() }
}

/// The runs of each place.
pub(super) type Runs<P, R> = BTreeMap<P, Vec<R>>;

/// The results of all runs.
#[derive(Debug)]
pub(super) struct Outcome<P, R> {
    pub(super) runs: Runs<P, R>,
    /// Runs that could not be made.
    pub(super) failures: Vec<Failure>,
}

/// A run that could not be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Failure {
    /// The name of its place.
    pub(super) place: String,
    pub(super) error: String,
}

/// This many failures without a success end the grid: the cause is not one place.
const HOPELESS: usize = 3;

/// Makes every run of every place. Repetitions of the whole grid follow one another, so that all cells meet the same load of the
/// machine. A run that fails is reported and the others go on. Runs in the journal are not repeated.
///
/// # Errors
/// No run succeeded: the first failure.
fn run_all<P, R, E>(
    places: &[P],
    args: &ConformanceArgs,
    mut journal: Journal<R>,
    run_one: impl Fn(P) -> Result<R, E> + Sync,
) -> Result<Outcome<P, R>, Failure>
where
    P: GridPlace,
    R: Send + Sync + Serialize + DeserializeOwned,
    E: Error + Send,
{
    let mut runs = Runs::new();
    let mut queue: Vec<P> = (0..args.repeat).flat_map(|_| places.iter().copied()).collect();
    let all = queue.len() as u64;
    queue.retain(|place| match journal.take(&place.to_string()) {
        Some(run) => {
            runs.entry(*place).or_insert_with(Vec::new).push(run);
            false
        }
        None => true,
    });
    let bar = ProgressBar::new(all).with_position(all - queue.len() as u64).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} transfers, {elapsed_precise} {msg}")
            .expect("a valid template"),
    );
    let (next, succeeded) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let open_files = OpenFiles::new(open_files::raise_limit().saturating_sub(OPEN_FILES_OF_THE_GRID));
    let outcome = Mutex::new(Outcome { runs, failures: Vec::new() });
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.unwrap_or(P::JOBS) {
            scope.spawn(|| {
                while let Some(&place) = queue.get(next.fetch_add(1, Ordering::Relaxed)) {
                    bar.set_message(place.to_string());
                    let share = open_files.share(place);
                    let run = run_one(place);
                    drop(share);
                    bar.inc(1);
                    let mut outcome = outcome.lock().expect("no worker panics while it holds the outcome");
                    match run {
                        Ok(run) => {
                            succeeded.fetch_add(1, Ordering::Relaxed);
                            if let Err(error) = journal.write(&place.to_string(), &run) {
                                bar.suspend(|| eprintln!("warning: {}", with_causes(&error)));
                            }
                            outcome.runs.entry(place).or_default().push(run);
                        }
                        Err(error) => {
                            let failure = Failure { place: place.to_string(), error: with_causes(&error) };
                            bar.suspend(|| eprintln!("warning: {}: {}", failure.place, failure.error));
                            outcome.failures.push(failure);
                        }
                    }
                    if succeeded.load(Ordering::Relaxed) == 0 && outcome.failures.len() >= HOPELESS {
                        next.store(queue.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let outcome = outcome.into_inner().expect("no worker panics while it holds the outcome");
    match outcome.failures.first() {
        Some(first) if succeeded.into_inner() == 0 => Err(first.clone()),
        _ => Ok(outcome),
    }
}

/// The section of a page that names the runs that could not be made; empty if there are none.
pub(super) fn failures(failures: &[Failure]) -> String {
    let rows: String = failures.iter().map(|failure| format!("- {}: {}\n", failure.place, failure.error)).collect();
    if rows.is_empty() { rows } else { format!("## Runs that could not be made\n\n{rows}\n") }
}

/// Makes the runs of a grid and prints or writes the report of them. Fails if a cell misses what
/// it has to reach, or if no run succeeded.
pub(super) fn measure<P, R, E, G>(
    args: &ConformanceArgs,
    grid: &str,
    places: &[P],
    run_one: impl Fn(P) -> Result<R, E> + Sync,
    report: impl FnOnce(Outcome<P, R>, Head) -> G,
) -> ExitCode
where
    P: GridPlace,
    R: Send + Sync + Serialize + DeserializeOwned,
    E: Error + Send,
    G: GridReport,
{
    let journal = match journal(args, grid) {
        Ok(journal) => journal,
        Err(code) => return code,
    };
    let started = std::time::Instant::now();
    match run_all(places, args, journal, run_one) {
        Ok(outcome) => conclude(args, &report(outcome, Head::new(started.elapsed(), args.path()))),
        Err(Failure { place, error }) => {
            print_error(&format_args!("{place}: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints or writes the report as the arguments say. Fails if a cell misses what it has to reach.
fn conclude(args: &ConformanceArgs, report: &impl GridReport) -> ExitCode {
    let written = write(args, report);
    if report.is_sound() { written } else { ExitCode::FAILURE }
}

fn write(args: &ConformanceArgs, report: &impl GridReport) -> ExitCode {
    if let Some(path) = &args.csv
        && let Err(error) = std::fs::write(path, report.csv())
    {
        print_error(&format_args!("{} cannot be written: {error}", path.display()));
        return ExitCode::FAILURE;
    }
    let text = match (&args.out, args.json) {
        (None, true) => return print_json(report),
        (None, false) => return print(&report.markdown()),
        (Some(_), true) => serde_json::to_string_pretty(report).map_err(std::io::Error::from),
        (Some(_), false) => Ok(report.markdown()),
    };
    let Some(path) = &args.out else { return ExitCode::SUCCESS };
    match text.and_then(|text| std::fs::write(path, text)) {
        Ok(()) => {
            eprintln!("{}", report.in_a_line());
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_error(&format_args!("{} cannot be written: {error}", path.display()));
            ExitCode::FAILURE
        }
    }
}

/// The journal that the arguments name, or one that keeps nothing.
fn journal<R: Serialize + DeserializeOwned>(args: &ConformanceArgs, grid: &str) -> Result<Journal<R>, ExitCode> {
    let Some(file) = &args.journal else { return Ok(Journal::none()) };
    let NetPath { rate, queue, .. } = args.path();
    Journal::open(file, &format!("{grid}, {rate}, {}, {queue} packets", args.rtt)).map_err(|error| {
        print_error(&format_args!("{}", with_causes(&error)));
        ExitCode::from(2)
    })
}

/// The note on an interruption: pages and tables are written only at the end.
pub(super) fn kept(args: &ConformanceArgs) -> String {
    if let Some(path) = &args.journal {
        return format!("the runs that have ended are kept in {}: the same command goes on from there", path.display());
    }
    let files = [&args.out, &args.csv].into_iter().flatten().map(|path| path.display().to_string()).collect::<Vec<_>>();
    match files.as_slice() {
        [] => "nothing was kept".to_owned(),
        files => format!("nothing was kept: {} would have been written at the end", files.join(" and ")),
    }
}

/// The command line of this process, for pages: without the journal, which changes nothing of the result.
pub(super) fn command() -> String {
    without_journal(std::env::args().skip(1))
}

fn without_journal(mut words: impl Iterator<Item = String>) -> String {
    let mut command = "holdover".to_owned();
    while let Some(word) = words.next() {
        if word == "--journal" {
            words.next();
        } else if !word.starts_with("--journal=") {
            command.push(' ');
            command.push_str(&word);
        }
    }
    command
}

/// The lower median, with missing values last. `None` if the median is missing, or there are no
/// values.
pub(super) fn median(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut values: Vec<f64> = values.map(|value| value.unwrap_or(f64::INFINITY)).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len().checked_sub(1)? / 2;
    Some(values[middle]).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(repeat: &str) -> ConformanceArgs {
        use clap::Parser;
        #[derive(Parser)]
        struct Command {
            #[command(flatten)]
            args: ConformanceArgs,
        }
        Command::parse_from(["conformance", "--agent", "--repeat", repeat, "--jobs", "2"]).args
    }

    #[test]
    fn a_run_that_fails_does_not_end_the_grid() {
        let failing = |place: u32| {
            if place == 2 { Err(std::io::Error::other("no such world")) } else { Ok(place * 10) }
        };
        let outcome = run_all(&[1, 2, 3], &args("2"), Journal::none(), failing).unwrap();
        assert_eq!(outcome.runs, Runs::from([(1, vec![10, 10]), (3, vec![30, 30])]));
        assert_eq!(outcome.failures.len(), 2);
        assert_eq!(failures(&outcome.failures[..1]), "## Runs that could not be made\n\n- 2: no such world\n\n");
        assert_eq!(failures(&[]), "");
    }

    impl GridPlace for u32 {
        fn connections(self) -> u32 {
            self
        }
    }

    #[test]
    fn runs_share_the_files_that_may_be_open() {
        let (under_way, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        // Two that have 500 connections, or one that wants more than there are.
        let files = OpenFiles::new(2 * (OPEN_FILES_OF_A_RUN + 1_000));
        std::thread::scope(|scope| {
            for (place, weight) in [(500, 1), (500, 1), (500, 1), (500, 1), (1_000_000, 2)] {
                let (files, under_way, most) = (&files, &under_way, &most);
                scope.spawn(move || {
                    let _share = files.share(place);
                    most.fetch_max(under_way.fetch_add(weight, Ordering::SeqCst) + weight, Ordering::SeqCst);
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    under_way.fetch_sub(weight, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(most.into_inner(), 2);
        assert_eq!(*files.free.lock().unwrap(), files.limit);
    }

    #[test]
    fn a_run_that_panics_gives_its_files_back() {
        let files = OpenFiles::new(1_000);
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _share = files.share(1);
            panic!("in a run");
        }));
        assert!(panics.is_err());
        assert_eq!(*files.free.lock().unwrap(), files.limit);
    }

    #[test]
    fn a_grid_of_which_nothing_can_be_run_ends_soon() {
        let asked = AtomicUsize::new(0);
        let places: Vec<u32> = (0..1000).collect();
        let failing = |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            Err::<u32, _>(std::io::Error::other("not permitted"))
        };
        assert_eq!(run_all(&places, &args("1"), Journal::none(), failing).unwrap_err().error, "not permitted");
        assert!(asked.into_inner() < 10);
    }

    #[test]
    fn a_spoiled_run_is_made_again_and_the_last_one_counts() {
        let run = |tries| Ok::<_, ()>(Some(tries).filter(|&tries| tries > 1));
        assert_eq!(counted(run, |_| false), Ok(Some(2)), "the first one was none");
        assert_eq!(counted(run, |&tries| tries < 3), Ok(Some(3)));
        assert_eq!(counted(run, |_| true), Ok(Some(TRIES)));
        assert_eq!(counted(|_| Ok::<Option<u32>, ()>(None), |_| false), Ok(None));
        assert_eq!(counted(|_| Err::<Option<u32>, _>("no world"), |_| false), Err("no world"));
    }

    #[test]
    fn pages_do_not_name_the_journal() {
        for words in
            ["conformance --journal /tmp/j --jobs 6", "conformance --journal=j --jobs 6", "conformance --jobs 6"]
        {
            let command = without_journal(words.split(' ').map(str::to_owned));
            assert_eq!(command, "holdover conformance --jobs 6");
        }
    }

    #[test]
    fn medians_do_not_hide_what_never_happened() {
        assert_eq!(median([Some(3.0), Some(1.0), Some(2.0)].into_iter()), Some(2.0));
        assert_eq!(median([None, Some(1.0), Some(2.0)].into_iter()), Some(2.0));
        assert_eq!(median([None, None, Some(2.0)].into_iter()), None);
        assert_eq!(median(std::iter::empty()), None);
    }
}
