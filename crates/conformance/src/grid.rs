//! Common to the grids: runs of cells in parallel, medians, and the interface of a report.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use holdover_host::log::with_causes;
use holdover_host::open_files;
use holdover_lab::journal::JournalError;
use holdover_testbed::Lateness;
use holdover_transfers::NetPath;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::About;
use super::journal::Journal;
use super::origin::Origin;
use super::progress::Progress;

/// A grid of measurements on this machine's kernel.
pub trait Grid: Sync {
    /// Where its runs are made.
    type Place: GridPlace;
    /// Shared by all runs, after the check that this machine allows them.
    type Machine: Sync;
    /// The result of a run, as journals keep it.
    type Run: Send + Sync + Serialize + DeserializeOwned;
    /// Why a run could not be made.
    type Error: Error + Send;
    /// The results of all.
    type Report: GridReport;

    /// The name in journals.
    fn name(&self) -> &'static str;

    /// The places to measure, in the order of their runs.
    fn places(&self, options: &GridOptions) -> Vec<Self::Place>;

    /// Examines this machine. Called after the process has entered the namespaces that it needs.
    ///
    /// # Errors
    /// No run can be made here.
    fn examine(&self) -> Result<Self::Machine, Unable>;

    /// Why this machine cannot measure a place, if it cannot; the others are measured.
    fn obstacle(&self, _place: Self::Place, _machine: &Self::Machine) -> Option<String> {
        None
    }

    /// Makes a run.
    ///
    /// # Errors
    /// It could not be made.
    fn run(&self, place: Self::Place, machine: &Self::Machine) -> Result<Self::Run, Self::Error>;

    /// The report of these runs.
    fn report(&self, machine: Self::Machine, outcome: Outcome<Self::Place, Self::Run>, head: Head) -> Self::Report;
}

/// The selected part of a grid, and the number of runs.
#[derive(Clone, Debug)]
pub struct GridOptions {
    /// Only places whose name contains this.
    pub only: Option<String>,
    /// Also the places that take minutes, where there are any.
    pub with_long: bool,
    /// The path of the connections.
    pub path: NetPath,
    /// The number of runs at each place.
    pub repeat: u32,
    /// The number of concurrent runs; `None` is [`GridPlace::JOBS`].
    pub jobs: Option<u16>,
    /// Where finished runs are kept, to continue from after an interruption.
    pub journal: Option<PathBuf>,
}

/// This machine does not allow the runs of a grid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unable(pub(super) String);

/// A grid could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// This machine does not allow it.
    #[error(transparent)]
    Unable(#[from] Unable),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// No run succeeded.
    #[error("{}: {}", .0.place, .0.error)]
    NoRunSucceeded(Failure),
}

/// The result of a grid.
pub trait GridReport: Serialize {
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
pub trait GridPlace: Copy + Ord + Display + Send + Sync {
    /// So many runs at a time leave room on a machine with two cores: each moves 10 Mbit/s of packets.
    const JOBS: u16 = 12;
    /// The runs of a place begin one after another, because the first places take much longer than the others. Otherwise repetitions of the
    /// whole grid follow one another, so that all places meet the same load of the machine.
    const RUNS_TOGETHER: bool = false;

    /// The number of connections of a run with both ends in this process.
    fn connections(self) -> u32 {
        1
    }

    /// Whether its runs have bounds to meet. The others are for comparison.
    fn has_bounds(self) -> bool;

    /// Whether its runs wait for minutes. They take no part in the number of concurrent runs, and begin ten seconds apart.
    fn waits(self) -> bool {
        false
    }
}

/// The time between the beginnings of runs that wait, so that they do not end together.
const WAITING_APART: Duration = Duration::from_secs(10);

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
        // Also after a panic of the run, or the others would wait for ever.
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
pub struct Head {
    #[serde(flatten)]
    origin: Origin,
    pub(super) seconds: u64,
    pub(super) path: NetPath,
}

impl Head {
    /// The conditions of this process, whose runs over `path` took `took` in all.
    pub(super) fn new(about: About, took: Duration, path: NetPath) -> Self {
        Self { origin: Origin::new(about), seconds: took.as_secs(), path }
    }
}

/// Prints `Made by ... on ... with ... cores; Linux ....`
impl Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; Linux {}.", self.origin, self.origin.kernel)
    }
}

/// The longest time for a run in which the link is down for `cut`: a timer that ends just before the link's return runs twice as long again.
pub(super) fn time_limit(cut: holdover_base::Duration) -> holdover_base::Duration {
    holdover_base::Duration::from_secs(60) + cut * 4
}

/// Watches how late this machine wakes threads and changes links, for grids whose runs it may spoil.
///
/// # Errors
/// It cannot be watched.
pub(super) fn watch_lateness() -> Result<Lateness, Unable> {
    Lateness::watch_links().map_err(|why| Unable(with_causes(&why)))
}

/// A run that a busy machine has spoiled is made again, at most so often in all.
pub(super) const TRIES: u32 = 3;

/// Makes a run until it counts: until `run_once`, which gets the number of the try, returns one that `is_spoiled` does not reject. The last
/// try counts in any case. `None` if every try returned none.
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

/// The runs of each place, in the order of the page.
pub type Runs<P, R> = BTreeMap<P, Vec<R>>;

/// The results of all runs.
#[derive(Debug)]
pub struct Outcome<P, R> {
    pub(super) runs: Runs<P, R>,
    /// Runs that could not be made.
    pub(super) failures: Vec<Failure>,
}

impl<P: GridPlace, R: Serialize + DeserializeOwned> Outcome<P, R> {
    /// Keeps a run, in the journal too. Returns a warning if the journal cannot be written.
    fn keep(&mut self, place: P, run: R, journal: &Journal<R>) -> Option<String> {
        let written = journal.write(&place.to_string(), &run);
        self.runs.entry(place).or_default().push(run);
        written.err().map(|error| with_causes(&error))
    }

    /// Notes a run that could not be made; returns the warning.
    fn fail(&mut self, place: String, error: &impl Error) -> String {
        let failure = Failure { place, error: with_causes(error) };
        let warning = format!("{}: {}", failure.place, failure.error);
        self.failures.push(failure);
        warning
    }
}

/// A run that could not be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failure {
    /// The name of its place.
    pub place: String,
    /// Why, with its causes.
    pub error: String,
}

/// The places of all runs, in the order of their beginning.
fn in_order<P: GridPlace>(places: &[P], repeat: u32) -> Vec<P> {
    if P::RUNS_TOGETHER {
        return places.iter().flat_map(|&place| (0..repeat).map(move |_| place)).collect();
    }
    (0..repeat).flat_map(|_| places.iter().copied()).collect()
}

/// This many failures without a success end the grid: the cause is not one place.
const MOST_FAILURES: usize = 3;

/// Makes every run of every place, in the order of [`GridPlace::RUNS_TOGETHER`]. A run that fails is reported, and the others continue. Runs in
/// the journal are not repeated.
///
/// # Errors
/// No run succeeded: the first failure.
fn run_all<P, R, E>(
    places: &[P],
    options: &GridOptions,
    mut journal: Journal<R>,
    watch: &(dyn Fn(Progress<'_>) + Sync),
    run_one: impl Fn(P) -> Result<R, E> + Sync,
) -> Result<Outcome<P, R>, Failure>
where
    P: GridPlace,
    R: Send + Sync + Serialize + DeserializeOwned,
    E: Error + Send,
{
    let mut runs = Runs::new();
    let mut queue = in_order(places, options.repeat);
    let all = queue.len();
    queue.retain(|place| match journal.take(&place.to_string()) {
        Some(run) => {
            runs.entry(*place).or_insert_with(Vec::new).push(run);
            false
        }
        None => true,
    });
    watch(Progress::Begun { done: all - queue.len(), all });
    let (waiting, queue): (Vec<P>, Vec<P>) = queue.into_iter().partition(|place| place.waits());
    let next = AtomicUsize::new(0);
    let open_files = OpenFiles::new(open_files::raise_limit().saturating_sub(OPEN_FILES_OF_THE_GRID));
    let outcome = Mutex::new(Outcome { runs, failures: Vec::new() });
    let succeeded = AtomicUsize::new(0);
    let lock = || outcome.lock().expect("no worker panics while it holds the outcome");
    let has_failed = || lock().failures.len() >= MOST_FAILURES && succeeded.load(Ordering::Relaxed) == 0;
    let make = |place: P| {
        let name = place.to_string();
        watch(Progress::Started(&name));
        let share = open_files.share(place);
        let run = run_one(place);
        drop(share);
        watch(Progress::Ended);
        let mut outcome = lock();
        succeeded.fetch_add(usize::from(run.is_ok()), Ordering::Relaxed);
        let warning = match run {
            Ok(run) => outcome.keep(place, run, &journal),
            Err(error) => Some(outcome.fail(name, &error)),
        };
        if let Some(warning) = warning {
            watch(Progress::Warning(&warning));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.unwrap_or(P::JOBS) {
            scope.spawn(|| {
                while let Some(&place) = queue.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !has_failed()) {
                    make(place);
                }
            });
        }
        for (number, &place) in (0..).zip(&waiting) {
            let (make, has_failed) = (&make, &has_failed);
            scope.spawn(move || {
                let begins_at = std::time::Instant::now() + WAITING_APART * number;
                while std::time::Instant::now() < begins_at && !has_failed() {
                    std::thread::sleep(WAITING_APART / 20);
                }
                if !has_failed() {
                    make(place);
                }
            });
        }
    });
    watch(Progress::Over);
    let outcome = outcome.into_inner().expect("no worker panics while it holds the outcome");
    match outcome.failures.first() {
        Some(first) if succeeded.into_inner() == 0 => Err(first.clone()),
        _ => Ok(outcome),
    }
}

/// Makes the runs of a grid at these places on several threads, and reports them to `watch`.
///
/// # Errors
/// See [`GridError`].
pub fn measure<G: Grid>(
    grid: &G,
    options: &GridOptions,
    places: &[G::Place],
    about: About,
    watch: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<G::Report, GridError> {
    let machine = grid.examine()?;
    let obstacles: Vec<_> = places.iter().map(|&place| grid.obstacle(place, &machine)).collect();
    if let Some(Some(first)) = obstacles.first().filter(|_| obstacles.iter().all(Option::is_some)) {
        return Err(Unable(first.clone()).into());
    }
    let places: Vec<_> =
        places.iter().zip(&obstacles).filter(|(_, it)| it.is_none()).map(|(&place, _)| place).collect();
    let journal = match &options.journal {
        Some(file) => Journal::open(file, &title(grid.name(), options.path))?,
        None => Journal::none(),
    };
    let started = std::time::Instant::now();
    let outcome = run_all(&places, options, journal, watch, |place| grid.run(place, &machine));
    let outcome = outcome.map_err(GridError::NoRunSucceeded)?;
    Ok(grid.report(machine, outcome, Head::new(about, started.elapsed(), options.path)))
}

/// The title of a grid in its journal.
fn title(grid: &str, path: NetPath) -> String {
    format!("{grid}, {}, {}, {} packets", path.rate, path.round_trip(), path.queue)
}

/// The lower median, with missing values last. `None` if the median is missing, or there are no
/// values.
pub(super) fn lower_median(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut values: Vec<f64> = values.map(|value| value.unwrap_or(f64::INFINITY)).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len().checked_sub(1)? / 2;
    Some(values[middle]).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(repeat: u32) -> GridOptions {
        GridOptions { only: None, with_long: false, path: NetPath::DEFAULT, repeat, jobs: Some(2), journal: None }
    }

    #[test]
    fn a_run_that_fails_does_not_end_the_grid() {
        let failing = |place: u32| {
            if place == 2 { Err(std::io::Error::other("no such world")) } else { Ok(place * 10) }
        };
        let outcome = run_all(&[1, 2, 3], &options(2), Journal::none(), &|_| (), failing).unwrap();
        assert_eq!(outcome.runs, Runs::from([(1, vec![10, 10]), (3, vec![30, 30])]));
        assert_eq!(outcome.failures.len(), 2);
        assert_eq!(outcome.failures[0], Failure { place: "2".to_owned(), error: "no such world".to_owned() });
    }

    impl GridPlace for u32 {
        fn connections(self) -> u32 {
            self
        }

        fn has_bounds(self) -> bool {
            true
        }
    }

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct Long(u32);

    impl Display for Long {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", self.0)
        }
    }

    impl GridPlace for Long {
        const RUNS_TOGETHER: bool = true;

        fn has_bounds(self) -> bool {
            false
        }
    }

    #[test]
    fn repetitions_follow_one_another_unless_places_are_long() {
        assert_eq!(in_order(&[1, 2], 2), [1, 2, 1, 2]);
        assert_eq!(in_order(&[Long(1), Long(2)], 2), [Long(1), Long(1), Long(2), Long(2)]);
    }

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct Waiting(bool);

    impl Display for Waiting {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            Display::fmt(&self.0, f)
        }
    }

    impl GridPlace for Waiting {
        fn has_bounds(self) -> bool {
            true
        }

        fn waits(self) -> bool {
            self.0
        }
    }

    #[test]
    fn runs_that_wait_leave_their_place_to_others() {
        let (send, receive) = std::sync::mpsc::channel();
        let receive = Mutex::new(receive);
        let run = |Waiting(waits)| {
            if waits {
                let ended = receive.lock().unwrap().recv_timeout(Duration::from_secs(60));
                ended.map_err(|_| std::io::Error::other("the other run did not begin"))
            } else {
                send.send(1).unwrap();
                Ok(0)
            }
        };
        let options = GridOptions { jobs: Some(1), ..options(1) };
        let outcome = run_all(&[Waiting(true), Waiting(false)], &options, Journal::none(), &|_| (), run).unwrap();
        assert_eq!(outcome.runs, Runs::from([(Waiting(false), vec![0]), (Waiting(true), vec![1])]));
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
        assert_eq!(
            run_all(&places, &options(1), Journal::none(), &|_| (), failing).unwrap_err().error,
            "not permitted"
        );
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
    fn medians_do_not_hide_what_never_happened() {
        assert_eq!(lower_median([Some(3.0), Some(1.0), Some(2.0)].into_iter()), Some(2.0));
        assert_eq!(lower_median([None, Some(1.0), Some(2.0)].into_iter()), Some(2.0));
        assert_eq!(lower_median([None, None, Some(2.0)].into_iter()), None);
        assert_eq!(lower_median(std::iter::empty()), None);
    }
}
