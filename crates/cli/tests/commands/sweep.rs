//! `holdover sweep`.

use std::fs;
use std::path::Path;

use crate::Test;
use crate::support::{Ended, Place, SCENARIO, differences, files_but};

pub(crate) const TESTS: &[Test] = &[
    (
        "a_resumed_sweep_has_the_results_of_an_uninterrupted_one",
        a_resumed_sweep_has_the_results_of_an_uninterrupted_one,
    ),
    ("a_full_disk_leaves_a_sweep_that_can_be_continued", a_full_disk_leaves_a_sweep_that_can_be_continued),
    ("a_sweep_tells_its_means_and_which_differ", a_sweep_tells_its_means_and_which_differ),
    (
        "a_sweep_that_cannot_be_made_is_refused_before_it_begins",
        a_sweep_that_cannot_be_made_is_refused_before_it_begins,
    ),
    ("an_unreachable_cluster_is_reported_with_a_hint", an_unreachable_cluster_is_reported_with_a_hint),
];

/// 160 runs, which no machine makes in the time that it takes to see three of them.
const SWEEP: &str = r#"
[sweep]
axis = [{ path = "link.radio.loss", label = "loss", values = ["0.5 %", "2 %"] }]
replicate = { min = 40, max = 40 }
"#;

/// The files that may differ between two equal sweeps: they have the date, and the order in which runs ended.
const OF_THE_DAY: &[&str] = &["manifest.json", "journal.jsonl"];

fn journal(dir: &Path) -> String {
    fs::read_to_string(dir.join("journal.jsonl")).unwrap_or_default()
}

// Claim: An interrupted sweep keeps completed runs, and continues to the same tables as one without an interruption, with another
// number of jobs.
fn a_resumed_sweep_has_the_results_of_an_uninterrupted_one() {
    let place = Place::with_scenario("sweep-interrupted", &format!("{SCENARIO}{SWEEP}"));
    place.run("sweep short.toml --out whole --jobs 2").well();

    let begun = "sweep short.toml --out parts --jobs 1";
    let parts = place.path("parts");
    // The first line of a journal identifies the sweep.
    let ended = place.interrupt(begun, |_| journal(&parts).lines().count() >= 4);
    assert_eq!((ended.code, ended.out.as_str()), (Some(130), ""), "{}", ended.err);
    assert!(ended.err.contains("interrupted") && ended.err.contains("--out parts"), "{}", ended.err);
    let kept = journal(&parts);
    let runs = kept.lines().count() - 1;
    assert!((3..160).contains(&runs), "{runs}");
    assert!(ended.err.contains(&format!("{runs} of about ")), "{}", ended.err);
    assert!(!parts.join("points.csv").exists() && !parts.join("manifest.json").exists());

    // The same for programs.
    let begun = "sweep short.toml --out others --jobs 1 --json";
    let ended = place.interrupt(begun, |_| journal(&place.path("others")).lines().count() >= 2);
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.json()["error"].as_str().unwrap().contains("--out others continues"), "{ended:?}");

    // Another experiment is not mixed into it.
    let error = place.run("sweep short.toml --out parts --seed 99").refused();
    assert!(error.contains("seed"), "{error}");

    place.run("sweep short.toml --out parts --jobs 2").well();
    assert!(journal(&parts).starts_with(&kept), "what was finished is not run again");
    assert_eq!(journal(&parts).lines().count() - 1, 160);
    let [whole, parts] = ["whole", "parts"].map(|name| files_but(&place.path(name), OF_THE_DAY));
    assert_eq!(differences(&whole, &parts), Vec::<String>::new());
    for name in ["runs.csv", "points.csv", "tests.csv", "summary.json", "scenario.toml"] {
        assert!(whole.contains_key(name), "{name}");
    }
    assert_eq!(whole["points.csv"].iter().filter(|&&byte| byte == b'\n').count(), 1 + 4);
    assert_eq!(whole["runs.csv"].iter().filter(|&&byte| byte == b'\n').count(), 1 + 160);
    for name in ["runs.parquet/part-00000.parquet", "points.parquet", "tests.parquet"] {
        assert!(whole[name].starts_with(b"PAR1") && whole[name].ends_with(b"PAR1"), "{name}");
    }
}

/// Several workers are at it when the disk is full, and some have shorter lines to write than the one that did not fit.
fn a_full_disk_leaves_a_sweep_that_can_be_continued() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root mounts a small disk");
        return;
    }
    let place = Place::with_scenario("sweep-full-disk", &format!("{SCENARIO}{SWEEP}"));
    place.run("sweep short.toml --out whole --jobs 2").well();
    let script = "mkdir small && mount -t tmpfs -o size=64k tmpfs small && \
                  $HOLDOVER sweep short.toml --out small/out --jobs 6; ended=$?; cp -r small/out parts; exit $ended";
    let mut command = std::process::Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script])
        .current_dir(place.path(""))
        .env("HOLDOVER", env!("CARGO_BIN_EXE_holdover"));
    let ended = Ended::new("sweep on a full disk", command.output().unwrap());
    assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
    assert!(ended.err.contains("No space left on device"), "{}", ended.err);
    let parts = place.path("parts");
    let kept = journal(&parts).lines().count() - 1;
    assert!((3..160).contains(&kept), "{kept}");

    place.run("sweep short.toml --out parts --jobs 6").well();
    assert_eq!(journal(&parts).lines().count() - 1, 160);
    let [whole, parts] = ["whole", "parts"].map(|name| files_but(&place.path(name), OF_THE_DAY));
    assert_eq!(differences(&whole, &parts), Vec::<String>::new());
}

fn a_sweep_tells_its_means_and_which_differ() {
    let place = Place::with_scenario("sweep-tells", &format!("{SCENARIO}{SWEEP}"));
    let few = "--set sweep.replicate.min=3 --set sweep.replicate.max=3";
    let text = place.run(&format!("sweep short.toml --out a {few}")).well().out;
    let words = [
        "loss",
        "variant",
        "±",
        "against cubic",
        "paired t-test by seed; p by Holm's correction over 2 tests",
        "12 runs; the results are in a",
    ];
    for word in words {
        assert!(text.contains(word), "{word} in {text}");
    }
    let narrow = place.run_on_terminal(&format!("sweep short.toml --out narrow {few}")).well();
    // Each row is a block, named by the axis.
    let block: Vec<&str> = narrow.out.lines().take(4).collect();
    assert_eq!(block[0], "loss: 0.5 %", "{}", narrow.out);
    let table = narrow.out.lines().take_while(|line| !line.starts_with('±'));
    assert!(table.clone().count() > 8 && table.clone().all(|line| line.chars().count() <= 50), "{}", narrow.out);
    assert!(block[1..].iter().all(|line| line.starts_with("  ")), "{}", narrow.out);
    assert!(block[1].starts_with("  variant ") && block[1].ends_with("  cubic"), "{}", narrow.out);
    let ended = place.run(&format!("sweep short.toml --out b {few} --json --jobs 1")).well();
    assert_eq!(ended.out.as_bytes(), fs::read(place.path("b/summary.json")).unwrap());
    assert_eq!(ended.json()["runs"], 12);
}

fn a_sweep_that_cannot_be_made_is_refused_before_it_begins() {
    let place = Place::with_scenario("sweep-refused", SCENARIO);
    place.write("axis.toml", &format!("{SCENARIO}{}", SWEEP.replace("\"2 %\"", "\"200 %\"")));
    place.write("path.toml", &format!("{SCENARIO}{}", SWEEP.replace("radio.loss", "radio.los")));
    fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/notes.txt", "mine");
    for (command, says) in [
        ("sweep short.toml --out out", "sweep"),
        ("sweep axis.toml --out out", "axis.toml:36:"),
        ("sweep path.toml --out out", "path.toml:36:"),
        ("sweep train-tunnel --out mine", "mine"),
        ("sweep train-tunnel --out out --resume", "out"),
        ("sweep train-tunnel --out out --jobs 0", "jobs"),
    ] {
        let error = place.run(command).refused();
        assert!(error.contains(says), "{command}: {error}");
        assert_eq!(place.entries(), ["axis.toml", "mine", "path.toml", "short.toml"], "{command}");
    }
}

fn an_unreachable_cluster_is_reported_with_a_hint() {
    let place = Place::with_scenario("sweep-dask", &format!("{SCENARIO}{SWEEP}"));
    let ended = place
        .command("sweep short.toml --out out --dask tcp://127.0.0.1:9")
        .env("HOLDOVER_PYTHON", "/no/python")
        .output()
        .unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{error}");
    for part in ["/no/python", "pip install", "HOLDOVER_PYTHON"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    // The interrupted sweep can be continued here.
    place.run("sweep short.toml --out out --set sweep.replicate.min=40 --jobs 2").well();
}
