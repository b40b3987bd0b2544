//! Open inputs of a small paper: declared, sampled, fitted.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::catalogue::{Catalogue, CatalogueError};
use super::fit::fit;
use super::judge::{self, Verdict};
use super::open::Open;
use super::page::Reproduced;
use super::sample::Sampling;
use super::script::Scripts;
use super::setting::Setting;
use super::survey::{Over, Survey};
use super::work::{Running, Work, WorkError};
use crate::sweep::Progress;

/// 100 kB over a link whose rate, queue and losses are open.
const SCENARIO: &str = r#"
seed = 3
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
[[flow]]
name = "data"
from = "a"
to = "b"
bulk = "100 kB"
[[sweep.axis]]
path = "link.radio.delay"
label = "delay"
values = ["10 ms", "20 ms"]
[sweep.replicate]
min = 2
"#;

const PAPER: &str = r#"
[paper]
title = "Mine"
[sampling]
samples = 12
runs = 1
[[open]]
name = "rate"
paths = ["link.radio.rate"]
range = { from = "1 Mbit/s", to = "10 Mbit/s", scale = "logarithmic" }
evidence = "not said"
source = "section 1"
[[open]]
name = "stack"
alternatives = ["linux-6-reno", "linux-6-cubic"]
paths = ["stack"]
scenarios = ["fig"]
evidence = "not said"
source = "section 1"
[[cause]]
name = "slow"
title = "The link is slow"
text = "It is."
[[experiment]]
id = "fig"
source = "Figure 1"
title = "A transfer"
scenario = "fig"
number = [{ what = "at 10 ms, s", published = "0.46", ours = 'at(r, "base", "delay", 0.01).duration' }]
[[claim]]
id = "fast"
experiment = "fig"
text = "It takes less than 0.5 s."
check = 'at_most(col(r, "duration"), 0.5)'
cause = "slow"
explanation = "That takes 2 Mbit/s."
[[claim]]
id = "instant"
experiment = "fig"
text = "It takes no time."
check = 'at_most(col(r, "duration"), 0.001)'
in_part = "the handshake"
[[claim]]
id = "arrives"
experiment = "fig"
text = "It arrives."
check = 'at_most(r.map(|c| c.aborted), 0)'
explanation = "Losses are none."
explains = "holds"
"#;

/// A temporary directory of papers, removed on drop.
struct Papers(PathBuf);

impl Papers {
    fn new(name: &str, paper: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("holdover-open-test-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("mine")).expect("a writable directory for temporary files");
        let papers = Self(dir);
        papers.write("mine/paper.toml", paper);
        papers.write("mine/fig.toml", SCENARIO);
        papers
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("a disk with room");
    }

    fn catalogue(&self) -> Result<Catalogue, CatalogueError> {
        Catalogue::all(Some(&self.0)).map(|mut all| all.remove(0))
    }

    fn work(&self) -> Result<Work, WorkError> {
        Work::new(self.catalogue()?, vec![0])
    }

    fn out(&self) -> PathBuf {
        self.0.join("out")
    }
}

impl Drop for Papers {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Surveys until `most` more runs were made. Returns the survey and the number of runs made.
fn survey(work: &Work, out: &Path, most: usize) -> (Option<Survey>, usize) {
    let stop = AtomicBool::new(false);
    let made = Mutex::new(0);
    let watch = |_: &str, progress: Option<Progress>| {
        let mut made = made.lock().expect("no watcher panics");
        // Progress is reported once at the start of each sweep, and then for each run.
        *made += usize::from(progress.is_some_and(|progress| progress.done > 0));
        stop.fetch_or(*made >= most, Ordering::Relaxed);
    };
    let running = Running { jobs: 1, stop: &stop, watch: &watch };
    let survey = Survey::make(work, out.to_owned(), work.catalogue.sampling, &running, "again".to_owned());
    let made = *made.lock().expect("no watcher panics");
    (survey.expect("settings that make worlds"), made)
}

fn refused(paper: &str) -> String {
    let papers = Papers::new("refused", paper);
    papers.work().err().expect("a bad paper").to_string()
}

#[test]
fn a_figure_for_each_value_of_no_axis_is_an_error() {
    let figure = r#"figure = [{ kind = "lines", title = "Time", x = "delay", each = "rate", metric = "duration" }]"#;
    let papers = Papers::new("figure", &PAPER.replacen("[[claim]]", &format!("{figure}\n[[claim]]"), 1));
    let error = papers.work().err().expect("an error").to_string();
    assert_eq!(
        error,
        "mine/paper.toml: a figure of experiment \"fig\" is drawn for each \"rate\", which is no axis of its scenario; \
         there are: delay"
    );
    papers.write(
        "mine/paper.toml",
        &PAPER.replacen("[[claim]]", &format!("{}\n[[claim]]", figure.replace("\"rate\"", "\"delay\"")), 1),
    );
    assert!(papers.work().is_ok());
}

// Claim: A bad open input (unknown path, empty range, a swept field ...) gives one error with file and line.
#[test]
fn a_bad_input_is_one_error_with_its_place() {
    let place = |needle: &str| {
        let line = PAPER.lines().position(|line| line.contains(needle)).expect("it is there") + 1;
        format!("mine/paper.toml:{line}:")
    };
    for (from, to, needle, part) in [
        ("link.radio.rate", "link.cable.rate", "link.radio.rate", "cable"),
        ("link.radio.rate", "link.radio.rte", "link.radio.rate", "did you mean \"rate\""),
        ("link.radio.rate", "link.radio.delay", "link.radio.rate", "axis of the sweep"),
        ("to = \"10 Mbit/s\"", "to = \"1 Mbit/s\"", "range", "more than \"from\""),
        ("to = \"10 Mbit/s\"", "to = \"10 ms\"", "range", "unit"),
        ("from = \"1 Mbit/s\"", "from = \"0 Mbit/s\"", "range", "logarithmic"),
        ("\"linux-6-cubic\"]", "\"solaris\"]", "alternatives", "solaris"),
        (", \"linux-6-cubic\"]", "]", "alternatives", "at least two"),
        (", \"linux-6-cubic\"]", ", \"linux-6-reno\"]", "alternatives", "twice"),
        ("scenarios = [\"fig\"]", "scenarios = [\"gif\"]", "scenarios", "gif"),
        ("name = \"stack\"", "name = \"rate\"", "name = \"stack\"", "two open inputs"),
    ] {
        let error = refused(&PAPER.replace(from, to));
        assert!(error.contains(part) && error.contains(&place(needle)), "{to}: {error}");
    }
    for (from, to, part) in [
        ("evidence = \"not said\"\nsource", "source", "missing field `evidence`"),
        ("cause = \"slow\"", "cause = \"lazy\"", "no [[cause]]"),
        ("range = {", "rnage = {", "unknown field `rnage`"),
    ] {
        let error = refused(&PAPER.replacen(from, to, 1));
        assert!(error.contains(part), "{to}: {error}");
    }
}

// Claim: A survey reports for each claim whether it holds at all settings, some or none, and which input decides; after an
// interruption, it continues to the same result.
// Tests: `reproduce::open_tests::an_interrupted_survey_resumes_to_the_same_result`
#[test]
fn a_survey_says_where_each_claim_holds_and_which_input_decides() {
    let papers = Papers::new("survey", PAPER);
    let work = papers.work().unwrap_or_else(|error| panic!("{error}"));
    let (Some(survey), made) = survey(&work, &papers.out(), usize::MAX) else { panic!("nobody stops it") };
    assert_eq!(made, 12 * 2, "each setting is another rate");
    let of = |claim: &str| survey.of(claim, &work.catalogue.inputs).expect("a claim with a check");
    assert_eq!((of("arrives").verdict, of("arrives").decided_by), (Over::All, None));
    assert_eq!((of("instant").verdict, of("instant").holds), (Over::None, 0));
    let fast = of("fast");
    assert_eq!((fast.verdict, fast.of), (Over::Some, 12));
    let split = fast.decided_by.as_ref().unwrap_or_else(|| panic!("{}", fast.in_words()));
    assert_eq!((split.input.as_str(), split.inside.0, split.outside.0), ("rate", 0, split.outside.1));
    assert!(split.border.is_some() && split.explains > 0.999, "{split:?}");
    assert!(fast.in_words().contains("`rate` decides (up to "), "{}", fast.in_words());

    // The file restores the survey, until an input's declaration changes.
    papers.write("mine/open.toml", &survey.to_toml());
    let read = papers.catalogue().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(read.survey.as_ref(), Some(&survey));
    papers.write("mine/paper.toml", &PAPER.replace("10 Mbit/s", "20 Mbit/s"));
    assert_eq!(papers.catalogue().unwrap_or_else(|error| panic!("{error}")).survey, None);
}

#[test]
fn an_interrupted_survey_resumes_to_the_same_result() {
    let papers = Papers::new("resumed", PAPER);
    let work = papers.work().unwrap_or_else(|error| panic!("{error}"));
    /// The number of runs in the journals of a directory.
    fn kept(directory: &Path) -> usize {
        let sweeps = fs::read_dir(directory).expect("it was begun").map(|entry| entry.expect("a sweep").path());
        let lines = |path: PathBuf| fs::read_to_string(path.join("journal.jsonl")).expect("a journal").lines().count();
        sweeps.map(|path| lines(path) - 1).sum()
    }
    let (whole, all) = survey(&work, &papers.0.join("whole"), usize::MAX);
    let (none, first) = survey(&work, &papers.out(), 7);
    assert!(none.is_none() && first == 7 && kept(&papers.out()) == 7);
    let (rest, _) = survey(&work, &papers.out(), usize::MAX);
    assert_eq!(rest, whole);
    assert_eq!(kept(&papers.out()), all, "nothing is run twice");
}

// Claim: The fitted setting meets the printed number, and the search finds it again.
#[test]
fn the_fitted_setting_meets_the_printed_number() {
    let papers = Papers::new("fitted", PAPER);
    let work = papers.work().unwrap_or_else(|error| panic!("{error}"));
    let (stop, watch) = (AtomicBool::new(false), |_: &str, _: Option<Progress>| ());
    let running = Running { jobs: 2, stop: &stop, watch: &watch };
    let find = |sampling: Sampling| fit(&work, papers.out(), sampling, &running, "again".to_owned());
    let sampling = Sampling { samples: 6, runs: 1, seed: 1 };
    let fitted = find(sampling).expect("settings that make worlds").expect("nobody stops it");
    assert!(fitted.search.loss < 0.1 && fitted.search.loss < fitted.search.loss_as_written, "{:?}", fitted.search);
    assert_eq!((fitted.search.numbers, fitted.search.within_a_tenth), (1, 1));
    assert_eq!(find(sampling).expect("the same again").as_ref(), Some(&fitted));

    // Verdicts are then judged at that setting, and the fitted file is checked as strictly as the declaration.
    papers.write("mine/fitted.toml", &fitted.to_toml());
    let catalogue = papers.catalogue().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(catalogue.fitted.as_ref(), Some(&fitted));
    let work = papers.work().unwrap_or_else(|error| panic!("{error}"));
    let results = work.run(&papers.0.join("run"), &running).expect("a run").expect("nobody stops it");
    let duration = results["fig"].cells[0].median("duration").expect("it was completed");
    assert!((duration / 0.46).ln().abs() < 0.1, "{duration}");
    for (from, to, part) in [("rate = ", "speed = ", "no open input"), ("Mbit/s", "kbit/s", "is not among")] {
        papers.write("mine/fitted.toml", &fitted.to_toml().replace(from, to));
        let error = papers.catalogue().expect_err("a bad setting").to_string();
        assert!(error.contains(part) && error.contains("mine/fitted.toml:"), "{error}");
    }
}

/// An explanation is shown only with its verdict.
// Claim: An explanation and a cause are no longer shown when the verdict changes.
#[test]
fn an_explanation_and_a_cause_vanish_when_the_verdict_flips() {
    let judged = |rate: &str| {
        let papers = Papers::new(&format!("explained-{}", rate.len()), PAPER);
        papers.write("mine/fig.toml", &SCENARIO.replace("5 Mbit/s", rate));
        let work = papers.work().unwrap_or_else(|error| panic!("{error}"));
        let (stop, watch) = (AtomicBool::new(false), |_: &str, _: Option<Progress>| ());
        let running = Running { jobs: 2, stop: &stop, watch: &watch };
        let results = work.run(&papers.out(), &running).expect("a run").expect("nobody stops it");
        judge::claims(&work.catalogue, &work.ids(), &Scripts::new(&results))
    };
    let slow = judged("1 Mbit/s");
    assert_eq!((slow[0].verdict, slow[0].cause.as_deref()), (Verdict::Fails, Some("slow")));
    assert!(slow[0].explanation.is_some() && slow[2].explanation.is_some());
    assert_eq!(slow[1].verdict_in_words(), "fails in part");
    let fast = judged("100 Mbit/s");
    assert_eq!(
        (fast[0].verdict, fast[0].cause.as_deref(), fast[0].explanation.as_deref()),
        (Verdict::Holds, None, None)
    );
}

#[test]
fn every_input_of_every_paper_is_accepted_in_its_scenarios() {
    let mut inputs = 0;
    for catalogue in Catalogue::all(None).unwrap_or_else(|error| panic!("{error}")) {
        let known = catalogue.all_scenarios();
        for input in &catalogue.inputs {
            let scenario = |name: &str| match catalogue.scenario(name) {
                Err(CatalogueError::Scenario(error)) => Err(error),
                scenario => Ok(scenario.unwrap_or_else(|error| panic!("{error}"))),
            };
            input.check(&known, scenario).unwrap_or_else(|error| panic!("{}: {error}", catalogue.name));
            inputs += 1;
        }
    }
    assert!(inputs >= 10, "{inputs}");
}

#[test]
fn a_value_and_its_place_belong_together() {
    let papers = Papers::new("places", PAPER);
    let catalogue = papers.catalogue().unwrap_or_else(|error| panic!("{error}"));
    let inputs: &[Open] = &catalogue.inputs;
    for place in [0.0, 0.2, 0.5, 0.99, 1.0] {
        let setting = Setting::at(inputs, &[place, place]);
        for input in inputs {
            let value = &setting.0[&input.name];
            let back = input.place_of(value).expect("a value of its own");
            assert_eq!(input.at(back), *value, "{} at {place}", input.name);
        }
        assert_eq!(setting.overrides(inputs, "fig").len(), 2);
        assert_eq!(setting.overrides(inputs, "other").len(), 1, "the stack is that of one scenario");
    }
}

/// With alternatives alone, as many settings as there are combinations are all of them.
// Claim: A survey of alternatives has every combination once.
#[test]
fn a_survey_of_alternatives_has_every_combination_once() {
    let range = PAPER.lines().find(|line| line.starts_with("range")).expect("an input with a range");
    let paper = PAPER.replace(range, "alternatives = [\"1 Mbit/s\", \"3 Mbit/s\", \"10 Mbit/s\"]");
    let papers = Papers::new("combinations", &paper);
    let work = papers.work().unwrap_or_else(|error| panic!("{error}"));
    let (Some(survey), _) = survey(&work, &papers.out(), usize::MAX) else { panic!("nobody stops it") };
    assert_eq!((survey.samples, survey.settings.len()), (6, 6), "12 are asked for");
    let different =
        survey.settings.iter().filter(|one| survey.settings.iter().filter(|other| other == one).count() == 1);
    assert_eq!(different.count(), 6);
    assert!(survey.is_complete(&work.catalogue.inputs));
    let part = Survey { settings: survey.settings[1..].to_vec(), ..survey };
    assert!(!part.is_complete(&work.catalogue.inputs));
}

const SLOW: &str = r#"
[[claim]]
id = "slow"
experiment = "fig"
text = "It takes 0.5 s and more."
check = 'at_least(col(r, "duration"), 0.5)'
"#;

/// Two claims exclude each other, and one holds nowhere: the page shows that three of four cannot be met.
// Claim: A page with too few claims shows what no setting satisfies: claims that hold nowhere, the most that hold together, pairs
// that never do, the largest set without such a pair, which equals that of a search over all subsets, and the most that would hold if
// each experiment had a setting of its own.
// Tests: `reproduce::together::tests::claims_that_never_hold_and_never_hold_together_are_found`,
// `reproduce::together::tests::experiments_are_counted_apart`,
// `reproduce::together::tests::the_setting_of_the_page_counts`, `reproduce::together::tests::chance_is_that_of_random_settings`,
// `reproduce::together::tests::the_largest_compatible_set_is_the_largest`
#[test]
fn the_page_shows_what_no_setting_satisfies() {
    let papers = Papers::new("unsatisfied", &format!("{PAPER}{SLOW}"));
    let work = papers.work().unwrap_or_else(|error| panic!("{error}"));
    let (Some(survey), _) = survey(&work, &papers.0.join("trials"), usize::MAX) else { panic!("nobody stops it") };
    papers.write("mine/open.toml", &survey.to_toml());
    let work = papers.work().unwrap_or_else(|error| panic!("{error}"));
    let (stop, watch) = (AtomicBool::new(false), |_: &str, _: Option<Progress>| ());
    let running = Running { jobs: 2, stop: &stop, watch: &watch };
    let results = work.run(&papers.out(), &running).expect("a run").expect("nobody stops it");
    let scripts = Scripts::new(&results);
    let claims = judge::claims(&work.catalogue, &work.ids(), &scripts);
    let page = |claims: &[judge::Judged]| {
        let reproduced = Reproduced {
            catalogue: &work.catalogue,
            experiments: work.experiments(),
            results: &results,
            claims,
            figures: &[],
            survey: None,
            scripts: &scripts,
            command: "again".to_owned(),
        };
        (reproduced.markdown("mine"), reproduced.html(None))
    };
    let (markdown, html) = page(&claims);
    for part in [
        "## What no setting of the sample satisfies",
        "at one setting: 3 of 4 here. At the setting of this page 2 hold (50 %).",
        "a sample of 12 settings was run (`again`), and that of this page. At most 2 claims hold at one of the sample (50 %). 3 claims hold at some",
        "1 claim holds at none, 1 pair of the others at none together, and with the best setting for each experiment by itself 2 would hold (50 %).",
        "The setting with 2: ",
        "3 claims hold at some setting, but pairs of them at no common one",
        "the largest set without such a pair has 2.",
        "filled more than 22.09 % of the ranges",
        "### Claims that hold at no setting tried: 1\n\n`instant`",
        "### Pairs of claims that hold each, and never together: 1",
        "| `fast` (at ",
    ] {
        assert!(markdown.contains(part), "{part}\n{markdown}");
    }
    assert!(html.contains("What no setting of the sample satisfies"), "{html}");

    // With two experiments it also counts each by itself.
    assert!(!markdown.contains("a setting of its own"), "one experiment\n{markdown}");
    let mut two = claims.clone();
    two.iter_mut().filter(|claim| claim.id == "fast").for_each(|claim| claim.experiment = "table".to_owned());
    let (markdown, _) = page(&two);
    for part in [
        "With the setting that is best for each of the 2 experiments by itself, of those tried and that of this page, 3 of 4 claims would \
         hold.",
        "| `fig` | 3 | 1 | 2 | 1 |",
        "| `table` | 1 | 0 | 1 | 1 |",
    ] {
        assert!(markdown.contains(part), "{part}\n{markdown}");
    }

    // The section goes when enough claims hold.
    let mut met = claims;
    met.iter_mut().for_each(|claim| claim.verdict = Verdict::Holds);
    assert!(!page(&met).0.contains("What no setting"));
}
