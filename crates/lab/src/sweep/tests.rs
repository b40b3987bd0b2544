//! The sweep engine on small worlds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use holdover_scenario::{NoFiles, Override, Scenario, Subject};

use super::driver::{Driver, Worker};
use super::engine::{self, Outcome};
use super::*;

/// A short transfer over a lossy link.
const SCENARIO: &str = r#"
    seed = 7
    time_limit = "60 s"
    [[host]]
    name = "a"
    [[host]]
    name = "b"
    [[link]]
    name = "radio"
    between = ["a", "b"]
    rate = "5 Mbit/s"
    delay = "10 ms"
    queue_limit = "50 packets"
    loss = "1 %"
    [[flow]]
    name = "data"
    from = "a"
    to = "b"
    bulk = "100 kB"
"#;

const VARIANTS: &str = r#"
    [[variant]]
    name = "sack"
    set = { stack = "linux-6-reno" }
    [[variant]]
    name = "tahoe"
    set = { stack = "tahoe-bsd" }
"#;

const AXES: &str = r#"
    [[sweep.axis]]
    path = "link.radio.delay"
    label = "delay"
    values = ["5 ms", "30 ms"]
    [[sweep.axis]]
    path = "link.radio.loss"
    values = ["0.5 %", "3 %"]
"#;

const FOUR_RUNS: &str = "[sweep.replicate]\nmin = 4\n";

fn scenario(parts: &[&str]) -> Scenario {
    Scenario::parse("test.toml", &parts.concat(), NoFiles).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn plan(parts: &[&str]) -> Plan {
    Plan::new(scenario(parts), 2).unwrap_or_else(|error| panic!("{error}"))
}

/// A path for a new directory, below cargo's for tests or the system's.
pub(super) fn new_dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("holdover-sweep-test-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

/// Sweeps into `dir` on `jobs` threads, interrupted after `most` more runs. Returns the number of runs made.
pub(super) fn sweep(plan: &Plan, dir: &Path, jobs: usize, most: usize) -> (usize, bool) {
    let dir = SweepDir::at(dir, false).expect("a new directory, or that of a sweep");
    let ledger = Ledger::open(plan, &dir).expect("a journal of the same sweep");
    let stop = AtomicBool::new(false);
    let made = Mutex::new(0);
    let watch = |_| {
        let mut made = made.lock().expect("no watcher panics");
        *made += 1;
        stop.fetch_or(*made >= most, Ordering::Relaxed);
    };
    let outcome = engine::run(plan, ledger, jobs, &stop, &watch).expect("a sweep that ends");
    let complete = match outcome {
        Outcome::Complete(runs) => {
            write_results(plan, &runs, &dir, jobs);
            true
        }
        Outcome::Interrupted(_) => false,
    };
    let made = *made.lock().expect("no watcher panics");
    (made, complete)
}

fn write_results(plan: &Plan, runs: &FinishedRuns, dir: &SweepDir, jobs: usize) {
    let stop = AtomicBool::new(false);
    let findings = Findings::new(plan, runs, jobs, &stop).expect("a journal that nobody else has changed");
    stop.store(true, Ordering::Relaxed);
    let stopped = dir.write_results(plan, &findings, |_| ());
    assert!(matches!(stopped, Err(DirectoryError::Findings(FindingsError::Stopped))), "{stopped:?}");
    stop.store(false, Ordering::Relaxed);
    let mut points = Vec::new();
    dir.write_results(plan, &findings, |found| points.push(found.point.index)).expect("a disk with room");
    assert!(points.into_iter().eq(0..plan.points()));
}

/// Two workers whose rows arrive in another order, some twice, and a driver that is reopened in the middle.
// Claim: Workers that answer in any order, and twice, also to a restarted driver, give the same files as a sweep on threads.
// Claim: Sweeps measure the transmissions of links and what routers have stored, over all of them and for one.
#[test]
fn links_and_routers_are_measured() {
    let text = r#"
        time_limit = "60 s"
        [[host]]
        name = "mobile"
        [[host]]
        name = "server"
        [[router]]
        name = "tower"
        [[link]]
        name = "radio"
        between = ["tower", "mobile"]
        rate = "5 Mbit/s"
        outages = { list = [{ at = "0.5 s", for = "1 s" }] }
        [[link]]
        name = "wire"
        between = ["tower", "server"]
        delay = "10 ms"
        [[flow]]
        name = "data"
        from = "server"
        to = "mobile"
        bulk = "1 MB"
        [[variant]]
        name = "plain"
        [[variant]]
        name = "supervisor"
        set = { "router.tower.mechanisms" = { supervisor = {}, mobiles = ["mobile"] } }
        [sweep.replicate]
        min = 1
    "#;
    let mut plan = plan(&[text]);
    plan.measure_each(Subject::Links, &["radio", "wire"]);
    let names: Vec<String> = plan.quantity_names().collect();
    let rows: Vec<_> = (0..2)
        .map(|cell| {
            single::make(&plan, schedule::Unit { cell, run: 0 }, &mut None, || false).expect("a world").expect("a run")
        })
        .collect();
    let value = |row: usize, name: &str| {
        let place = names.iter().position(|other| other == name).unwrap_or_else(|| panic!("{name}"));
        plan.reduce(row, &rows[row]).values[place]
    };
    for row in 0..2 {
        let [radio, wire] = ["link_bytes_of_radio", "link_bytes_of_wire"].map(|name| value(row, name).expect("a link"));
        assert!(radio > 1e6 && wire > 1e6, "the whole transfer: {radio}, {wire}");
        assert_eq!(value(row, "link_bytes"), Some(radio + wire));
        assert!(value(row, "link_packets_of_radio").is_some_and(|packets| packets > 1e6 / 1460.0));
    }
    assert_eq!((value(0, "router_bytes"), value(0, "router_connections")), (None, None), "no mechanisms");
    assert_eq!(value(1, "router_connections"), Some(1.0));
    assert!(value(1, "router_bytes").is_some_and(|bytes| bytes > 10_000.0 && bytes <= 256_000.0));
}

#[test]
fn a_metric_of_links_has_no_flow() {
    let text = [SCENARIO, "[sweep.replicate]\nmin = 2\nof = { metric = \"link_bytes\", flow = \"data\" }\n"].concat();
    let error = Scenario::parse("test.toml", &text, NoFiles).expect_err("no flow has it").to_string();
    assert!(error.contains("\"link_bytes\" is no metric of a flow; leave \"flow\" out"), "{error}");
}

#[test]
fn a_sweep_by_workers_has_the_files_of_one_by_threads() {
    let bound = "[sweep.replicate]\nrelative_error = \"15 %\"\nmin = 3\nmax = 12\n";
    let parts = [SCENARIO, VARIANTS, AXES, bound];
    let [threads, workers] = ["by-threads", "by-workers"].map(new_dir);
    let (all, _) = sweep(&plan(&parts), &threads, 2, usize::MAX);
    let dir = SweepDir::at(&workers, false).expect("a new directory");
    let mut crew = [0, 1].map(|_| Worker::new(scenario(&parts)).expect("it has a sweep"));
    let mut made = 0;
    let open = || Driver::open(plan(&parts), &dir).expect("a journal of the same sweep");
    let mut driver = open();
    while !driver.is_complete() {
        let units = driver.next(7);
        assert!(!units.is_empty(), "what is under way has all come back");
        let rows: Vec<String> =
            units.iter().enumerate().map(|(at, unit)| crew[at % 2].make(*unit).expect("a run")).collect();
        made += rows.len();
        for row in rows.iter().rev().chain(&rows) {
            driver.take(row).expect("a row of this sweep");
        }
        if (20..27).contains(&made) {
            drop(driver);
            driver = open();
        }
    }
    assert!(driver.take("{}").is_err());
    let other = crew[0].make(Unit { cell: 0, run: 0 }).expect("a run").replace("\"seed\":7", "\"seed\":8");
    assert!(driver.take(&other).expect_err("another seed").to_string().contains("the seed of run 0 is not 8"));
    assert!(crew[0].make(Unit { cell: 99, run: 0 }).is_err());
    let runs = driver.into_runs(&AtomicBool::new(false)).expect("a disk with room");
    let (plan, runs) = runs.expect("a sweep that is complete");
    write_results(&plan, &runs, &dir, 1);
    assert_eq!(results(&threads), results(&workers));
    assert!(made <= all + 8, "{made} runs for {all}");
    for dir in [threads, workers] {
        fs::remove_dir_all(dir).expect("it was made above");
    }
}

/// The files of a finished sweep that must not differ between repetitions.
fn results(dir: &Path) -> BTreeMap<String, String> {
    let names = ["runs.csv", "points.csv", "tests.csv", "summary.json"];
    let texts = names.iter().map(|name| ((*name).to_owned(), fs::read_to_string(dir.join(name)).unwrap_or_default()));
    let parts = parts_of(dir).into_iter().map(|name| (fs::read(dir.join("runs.parquet").join(&name)), name));
    texts.chain(parts.map(|(part, name)| (name, format!("{:?}", part.expect("a part of the data set"))))).collect()
}

/// The files of the runs data set.
fn parts_of(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir.join("runs.parquet")) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("a readable directory").file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// The cells of a column of a CSV file without quotes.
fn column(csv: &str, name: &str) -> Vec<String> {
    let mut lines = csv.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let header = lines.next().expect("a header");
    let at = header.iter().position(|column| column == name).unwrap_or_else(|| panic!("{name} in {header:?}"));
    lines.map(|line| line[at].clone()).collect()
}

#[test]
fn two_axes_and_two_variants_make_the_same_rows_on_one_thread_and_on_four() {
    let plan = plan(&[SCENARIO, VARIANTS, AXES, FOUR_RUNS]);
    let [one, four] = ["one-job", "four-jobs"].map(new_dir);
    assert_eq!(sweep(&plan, &one, 1, usize::MAX), (4 * 2 * 4, true));
    assert!(sweep(&plan, &four, 4, usize::MAX).1);
    let files = results(&one);
    assert_eq!(files, results(&four));
    assert_eq!(parts_of(&one).len(), 4, "32 rows, 10 in each part but the last");

    let runs = &files["runs.csv"];
    assert_eq!(runs.lines().count(), 1 + 32);
    let seeds = column(runs, "seed");
    assert_eq!(seeds[0], "7");
    assert!(seeds.chunks(4).all(|of_cell| of_cell == &seeds[..4]), "every cell meets the same randomness: {seeds:?}");
    assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2] && seeds[2] != seeds[3]);
    let goodputs = column(runs, "goodput_bps");
    assert!(goodputs[0] != goodputs[1], "another seed loses other packets");
    let points = &files["points.csv"];
    assert_eq!(column(points, "delay")[..3], ["5 ms", "5 ms", "5 ms"]);
    assert_eq!(column(points, "delay_s")[3..5], ["0.005", "0.03"]);
    assert_eq!(column(points, "link.radio.loss_share")[..4], ["0.005", "0.005", "0.03", "0.03"]);
    assert_eq!(column(points, "variant")[..3], ["sack", "tahoe", "sack"]);
    assert_eq!(column(points, "goodput_n"), ["4"; 8]);
    // The mean of a cell is the mean of its rows.
    let of_first: f64 = goodputs[..4].iter().map(|text| text.parse::<f64>().unwrap()).sum::<f64>() / 4.0;
    let mean: f64 = column(points, "goodput_mean_bps")[0].parse().unwrap();
    assert!((mean / of_first - 1.0).abs() < 1e-12);
    let tests = &files["tests.csv"];
    assert_eq!(
        (column(tests, "baseline"), column(tests, "variant")),
        (vec!["sack".into(); 4], vec!["tahoe".into(); 4])
    );
    assert_eq!(column(tests, "point"), ["0", "1", "2", "3"]);
    for dir in [one, four] {
        fs::remove_dir_all(dir).expect("it was made above");
    }
}

// Claim: If nothing random varies, there is no test, and tables show this; otherwise variants are compared by runs of the same
// seed, p-values are corrected over all tests (Holm), medians and tails have bootstrap intervals that the seed determines, and
// "inconclusive" is a verdict.
#[test]
fn only_varying_quantities_are_tested_paired_by_seed_and_corrected() {
    let tests_of = |parts: &[&str], name: &str| {
        let dir = new_dir(name);
        assert!(sweep(&plan(parts), &dir, 2, usize::MAX).1);
        let files = results(&dir);
        fs::remove_dir_all(dir).expect("it was made above");
        (files["tests.csv"].clone(), files["points.csv"].clone(), files["summary.json"].clone())
    };
    let numbers = |csv: &str, name: &str| -> Vec<f64> {
        column(csv, name).iter().map(|cell| cell.parse().unwrap_or_else(|_| panic!("{name}: {cell}"))).collect()
    };
    let calm = SCENARIO.replace("loss = \"1 %\"", "");
    let (tests, _, summary) = tests_of(&[&calm, VARIANTS, FOUR_RUNS], "calm");
    assert_eq!(column(&tests, "verdict"), ["nothing random varies"]);
    assert_eq!(
        (column(&tests, "p"), column(&tests, "t"), column(&tests, "goodput_difference_low_bps")),
        (vec![String::new()], vec![String::new()], vec![String::new()])
    );
    assert!(!column(&tests, "goodput_difference_bps")[0].is_empty());
    assert!(summary.contains("\"nothing random varies\"") && !summary.contains("\"p\""), "{summary}");

    let runs = "[sweep.replicate]\nmin = 12\n";
    let (tests, points, _) = tests_of(&[SCENARIO, VARIANTS, AXES, runs], "paired");
    assert_eq!(
        (column(&tests, "test"), column(&tests, "pairs")),
        (vec!["paired".to_owned(); 4], vec!["12".to_owned(); 4])
    );
    let (p, corrected) = (numbers(&tests, "p"), numbers(&tests, "p_holm"));
    let expected = holdover_scenario::statistics::holm(&p.iter().copied().map(Some).collect::<Vec<_>>());
    assert_eq!(corrected.iter().copied().map(Some).collect::<Vec<_>>(), expected);
    for (at, verdict) in column(&tests, "verdict").iter().enumerate() {
        let difference = numbers(&tests, "goodput_difference_bps")[at];
        let expected = if corrected[at] >= 0.05 {
            "inconclusive"
        } else if difference > 0.0 {
            "higher"
        } else {
            "lower"
        };
        assert_eq!(verdict, expected);
    }
    for (low, high) in [("median_low", "median"), ("median", "median_high"), ("median", "p95")] {
        let [low, high] = [low, high].map(|name| numbers(&points, &format!("goodput_{name}_bps")));
        assert!(low.iter().zip(&high).all(|(low, high)| low <= high), "{points}");
    }
    assert_eq!(column(&points, "goodput_p95_low_bps"), vec![""; 8], "12 runs are too few for the tail");
    let (tests, ..) = tests_of(&[SCENARIO, VARIANTS, AXES, runs, "[sweep.compare]\ntest = \"welch\"\n"], "welch");
    assert_eq!(column(&tests, "test"), ["welch"; 4]);
    assert_ne!(numbers(&tests, "p"), p);
}

// Claim: The parts of the data set of runs exist while a sweep runs, and are unchanged when it is complete.
#[test]
fn a_resumed_sweep_writes_the_files_of_an_uninterrupted_one() {
    let bound = "[sweep.replicate]\nrelative_error = \"15 %\"\nmin = 3\nmax = 12\n";
    let plan = plan(&[SCENARIO, VARIANTS, AXES, bound]);
    let [whole, parts] = ["whole", "in-parts"].map(new_dir);
    let (all, _) = sweep(&plan, &whole, 1, usize::MAX);

    assert_eq!(sweep(&plan, &parts, 2, 5), (5, false));
    assert!(!parts.join("runs.csv").exists(), "there are no results before the end");
    assert!(parts_of(&parts).is_empty(), "no part of the data set is full");
    let journal = parts.join("journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    assert_eq!(text.lines().count(), 1 + 5);
    // The process is killed while it writes: the last line is truncated.
    fs::write(&journal, &text[..text.len() - 100]).unwrap();
    let (made, complete) = sweep(&plan, &parts, 2, 4);
    assert_eq!((made, complete), (4, false));
    // The machine crashes: the last line ends in garbage.
    let mut text = fs::read_to_string(&journal).unwrap();
    assert_eq!(text.lines().count(), 1 + 4 + 4, "the torn line is gone");
    text.push_str("\0\0\0\n");
    fs::write(&journal, text).unwrap();
    // Ten runs of complete cells, in order, make a part that is readable before the sweep is complete.
    let mut more = 0;
    while parts_of(&parts).is_empty() {
        let (made, complete) = sweep(&plan, &parts, 1, 5);
        assert_eq!((made, complete), (5, false), "after {more} more");
        more += made;
    }
    assert_eq!(parts_of(&parts)[0], "part-00000.parquet");
    let (made, complete) = sweep(&plan, &parts, 1, usize::MAX);
    assert!(complete && made <= all - 6 - more, "{made} of {all}");
    assert_eq!(results(&parts), results(&whole));

    // A repetition has nothing to do.
    assert_eq!(sweep(&plan, &parts, 2, usize::MAX), (0, true));
    assert_eq!(results(&parts), results(&whole));
    for dir in [whole, parts] {
        fs::remove_dir_all(dir).expect("it was made above");
    }
}

#[test]
fn a_journal_is_continued_only_by_a_sweep_of_the_same() {
    let first = plan(&[SCENARIO, AXES]);
    let dir = new_dir("other");
    sweep(&first, &dir, 1, 2);
    let journal = dir.join("journal.jsonl");
    let of_sweep = SweepDir::at(&dir, true).expect("the directory of a sweep");
    let open = |plan: &Plan| Ledger::open(plan, &of_sweep);
    let refused = |plan: &Plan| open(plan).expect_err("another sweep").to_string();
    let changed = |path: &str, value: toml::Value| {
        let scenario = scenario(&[SCENARIO, AXES]).with(&[Override::new(path, value)]).expect("a fine value");
        refused(&Plan::new(scenario, 1).expect("a fine scenario"))
    };
    assert!(changed("seed", 8.into()).contains("its seed is 7, the scenario's is 8"));
    let rate = changed("link.radio.rate", "6 Mbit/s".into());
    assert!(rate.contains("5 Mbit/s") && rate.contains("6 Mbit/s"), "{rate}");
    let text = fs::read_to_string(&journal).unwrap();
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    fs::write(&journal, text.replace(&version, "\"version\":\"0.0.1\"")).unwrap();
    assert!(refused(&first).contains("version 0.0.1"));
    // Garbage in the middle of the journal is not a truncated line.
    let mut lines: Vec<&str> = text.lines().collect();
    lines[1] = "{}";
    fs::write(&journal, lines.join("\n") + "\n").unwrap();
    assert!(refused(&first).contains("journal.jsonl:2:"), "{}", refused(&first));
    // The second of two concurrent sweeps is refused.
    fs::write(&journal, text).unwrap();
    let whole = open(&first).expect("it is whole again");
    assert!(refused(&first).contains("another process is writing"));
    drop(whole);
    fs::remove_dir_all(dir).expect("it was made above");
}

#[test]
fn a_point_is_run_until_its_mean_is_known_or_the_most_runs_are_made() {
    let counted = |replicate: &str, jobs: usize| {
        let plan =
            plan(&[SCENARIO, "[[sweep.axis]]\npath = \"link.radio.loss\"\nvalues = [\"0 %\", \"3 %\"]\n", replicate]);
        let dir = new_dir(&format!("stop-{jobs}"));
        assert!(sweep(&plan, &dir, jobs, usize::MAX).1);
        let points = results(&dir).remove("points.csv").unwrap_or_default();
        fs::remove_dir_all(dir).expect("it was made above");
        let runs: Vec<u32> = column(&points, "runs").iter().map(|runs| runs.parse().unwrap()).collect();
        let errors = column(&points, "relative_error").iter().map(|error| error.parse().unwrap()).collect::<Vec<f64>>();
        (runs, errors, column(&points, "precise_enough"))
    };
    let bound = "[sweep.replicate]\nrelative_error = \"2 %\"\nmin = 5\nmax = 400\n";
    let (runs, errors, precise) = counted(bound, 1);
    assert_eq!(runs[0], 5, "without losses all runs are the same");
    assert!(runs[1] > 5 && runs[1] < 400, "{runs:?}");
    assert!(errors.iter().all(|&error| error <= 0.02), "{errors:?}");
    assert_eq!(precise, ["true", "true"]);
    assert_eq!(counted(bound, 3).0, runs, "the number of jobs decides nothing");
    let (runs, errors, precise) = counted("[sweep.replicate]\nrelative_error = \"0.1 %\"\nmin = 3\nmax = 6\n", 2);
    assert_eq!(runs, [3, 6]);
    assert!(errors[1] > 0.001);
    assert_eq!(precise, ["true", "false"]);
}

/// A transfer of two segments rarely meets a loss: a few equal runs do not prove that all are equal.
#[test]
fn equal_runs_of_a_world_with_random_losses_are_not_exact() {
    let found = |loss: &str| {
        let short = SCENARIO.replace("bulk = \"100 kB\"", "bulk = \"2 kB\"").replace("1 %", loss);
        let bound = "[sweep.replicate]\nrelative_error = \"1 %\"\nmin = 3\nmax = 8\nof = { metric = \"duration\" }\n";
        let same = VARIANTS.replace("tahoe-bsd", "linux-6-reno");
        let dir = new_dir(&format!("equal-{}", loss.len()));
        assert!(sweep(&plan(&[&short, &same, bound]), &dir, 2, usize::MAX).1);
        let files = results(&dir);
        fs::remove_dir_all(dir).expect("it was made above");
        let points = &files["points.csv"];
        (column(points, "runs"), column(points, "precise_enough"), column(&files["tests.csv"], "verdict"))
    };
    let both = |text: &str| vec![text.to_owned(); 2];
    assert_eq!(found("0 %"), (both("3"), both("true"), vec!["nothing random varies".to_owned()]));
    assert_eq!(found("0.001 %"), (both("8"), both("false"), vec!["the same in every run".to_owned()]));
}

#[test]
fn invalid_sweeps_are_refused_before_anything_runs() {
    let refused = |parts: &[&str]| match Scenario::parse("test.toml", &parts.concat(), NoFiles) {
        Ok(scenario) => Plan::new(scenario, 1).expect_err("a bad sweep").to_string(),
        Err(error) => error.to_string(),
    };
    assert!(refused(&[SCENARIO]).contains("there is nothing to sweep"));
    let axis = |text: &str| refused(&[SCENARIO, "[[sweep.axis]]\n", text]);
    let wrong_value = axis("path = \"link.radio.delay\"\nvalues = [\"5 ms\", \"5 apples\"]\n");
    assert!(wrong_value.contains("5 apples"), "{wrong_value}");
    let wrong_path = axis("path = \"link.cable.delay\"\nvalues = [\"5 ms\"]\n");
    assert!(wrong_path.contains("cable"), "{wrong_path}");
    let twice = axis("path = \"link.radio.delay\"\nvalues = [\"5 ms\", \"6 ms\", \"5 ms\"]\n");
    assert!(twice.contains("there twice"), "{twice}");
    let label = axis("path = \"link.radio.delay\"\nlabel = \"seed\"\nvalues = [\"5 ms\"]\n");
    assert!(label.contains("\"seed\" is the name of a column"), "{label}");
}

#[test]
fn flows_add_up_or_are_averaged_and_one_can_be_picked() {
    let more = "[[flow]]\nname = \"more\"\nfrom = \"b\"\nto = \"a\"\nbulk = \"40 kB\"\ncount = 2\n";
    let of_more = "[sweep.replicate]\nmin = 2\nof = { metric = \"duration\", flow = \"more\" }\n";
    let plan = plan(&[SCENARIO, more, of_more]);
    let dir = new_dir("flows");
    assert!(sweep(&plan, &dir, 1, usize::MAX).1);
    let files = results(&dir);
    let numbers = |file: &str, name: &str| -> Vec<f64> {
        column(&files[file], name).iter().map(|cell| cell.parse().unwrap()).collect()
    };
    assert_eq!(column(&files["runs.csv"], "flow"), ["data", "more-1", "more-2", "data", "more-1", "more-2"]);
    let durations = numbers("runs.csv", "duration_s");
    let mean = (durations[1] + durations[2] + durations[4] + durations[5]) / 4.0;
    assert!((numbers("points.csv", "duration_of_more_mean_s")[0] / mean - 1.0).abs() < 1e-12);
    let goodputs: f64 = numbers("runs.csv", "goodput_bps").iter().sum();
    assert!((numbers("points.csv", "goodput_mean_bps")[0] / (goodputs / 2.0) - 1.0).abs() < 1e-12);
    assert_eq!(files["tests.csv"], "", "one variant is compared with nothing");
    assert_eq!(column(&files["points.csv"], "idle_after_reconnection_n"), ["0"], "there was no outage");
    fs::remove_dir_all(dir).expect("it was made above");
}

/// The journal is read again for the tables: lines exchanged meanwhile are detected.
// Claim: A journal that another program changes during a sweep is detected when its runs are read again.
#[test]
fn a_journal_that_changes_meanwhile_is_noticed() {
    let plan = plan(&[SCENARIO, "[sweep.replicate]\nmin = 2\nmax = 2\n"]);
    let dir = new_dir("changed");
    let dir_of_sweep = SweepDir::at(&dir, false).expect("a new directory");
    let ledger = Ledger::without_table(&plan, &dir_of_sweep).expect("a new journal");
    let outcome = engine::run(&plan, ledger, 1, &AtomicBool::new(false), &|_| ()).expect("a sweep that ends");
    let Outcome::Complete(runs) = outcome else { panic!("nobody stops it") };
    assert!(runs.of(&plan, 0).is_ok());
    let path = dir_of_sweep.journal();
    let text = fs::read_to_string(&path).expect("a journal");
    fs::write(&path, text.replacen("\"run\":0", "\"run\":1", 1)).expect("a disk with room");
    let error = runs.of(&plan, 0).expect_err("the line says that it is of another run").to_string();
    assert!(error.contains("another program writes to the file"), "{error}");
    fs::remove_dir_all(dir).expect("it was made above");
}

/// A transfer cut off by the time limit is incomplete; one without an amount is complete.
// Claim: A transfer that the time limit ends does not count as completed, in tables and figures.
#[test]
fn a_sole_flow_that_is_unfinished_at_the_time_limit_is_not_completed() {
    let completed = |bulk: &str| {
        let text = SCENARIO.replace("time_limit = \"60 s\"", "time_limit = \"2 s\"").replace("bulk = \"100 kB\"", bulk);
        let plan = plan(&[&text, "[sweep.replicate]\nmin = 2\n"]);
        let dir = new_dir(&format!("unfinished-{}", bulk.len()));
        let dir_of_sweep = SweepDir::at(&dir, false).expect("a new directory");
        let ledger = Ledger::without_table(&plan, &dir_of_sweep).expect("a new journal");
        let outcome = engine::run(&plan, ledger, 1, &AtomicBool::new(false), &|_| ()).expect("a sweep that ends");
        fs::remove_dir_all(dir).expect("it was made above");
        let Outcome::Complete(runs) = outcome else { panic!("nobody stops it") };
        let results = crate::reproduce::results::Results::new(&plan, &runs).expect("a journal that is whole");
        let runs = runs.of(&plan, 0).expect("a journal that is whole");
        let runs: Vec<bool> = runs.into_iter().map(|run| run.completed).collect();
        (runs, results.cells[0].completed, results.cells[0].values["duration"].len())
    };
    assert_eq!(completed("bulk = \"100 MB\""), (vec![false; 2], 0, 0), "its time is not drawn either");
    assert_eq!(completed("bulk = \"60 s\""), (vec![true; 2], 2, 2), "sent for as long as the run takes");
}

#[test]
fn a_directory_with_something_else_in_it_is_left_alone() {
    let dir = new_dir("taken");
    assert!(matches!(SweepDir::at(&dir, true), Err(DirectoryError::NothingToResume { .. })));
    fs::create_dir_all(&dir).expect("a writable directory for temporary files");
    assert!(SweepDir::at(&dir, false).is_ok(), "an empty one is welcome");
    fs::write(dir.join("thesis.txt"), "precious").expect("a disk with room");
    assert!(matches!(SweepDir::at(&dir, false), Err(DirectoryError::NotASweep { .. })));
    fs::remove_dir_all(dir).expect("it was made above");
}

#[test]
fn a_copy_that_was_edited_is_not_replaced() {
    let plan = plan(&[SCENARIO, "[sweep.replicate]\nmin = 2\n"]);
    let dir = new_dir("edited");
    let dir_of_sweep = SweepDir::at(&dir, false).expect("a new directory");
    for _ in 0..2 {
        dir_of_sweep.write_scenario(&plan).expect("a new file, then the same");
    }
    fs::write(dir.join("scenario.toml"), "mine").expect("a disk with room");
    let refused = dir_of_sweep.write_scenario(&plan);
    assert!(matches!(refused, Err(DirectoryError::Changed { .. })), "{refused:?}");
    assert_eq!(fs::read(dir.join("scenario.toml")).expect("it is kept"), b"mine");
    fs::remove_dir_all(dir).expect("it was made above");
    for (name, expected) in [
        ("points.csv", true),
        ("runs.parquet/part-0.parquet", true),
        ("journal.jsonl.part", true),
        ("radio.csv", false),
    ] {
        assert_eq!(super::directory::is_result(name), expected, "{name}");
    }
}
