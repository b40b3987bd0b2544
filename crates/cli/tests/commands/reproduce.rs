//! `holdover reproduce`, with a user's own paper.

use std::fs;

use crate::Test;
use crate::support::{Place, SCENARIO};

pub(crate) const TESTS: &[Test] = &[
    ("a_custom_paper_is_run_judged_and_reported", a_custom_paper_is_run_judged_and_reported),
    ("invalid_papers_and_directories_are_refused", invalid_papers_and_directories_are_refused),
    ("open_parameters_of_a_paper_are_sampled_and_fitted", open_parameters_of_a_paper_are_sampled_and_fitted),
];

const SWEEP: &str = r#"
[sweep]
axis = [{ path = "link.radio.delay", label = "delay", values = ["15 ms", "30 ms"] }]
replicate = { min = 2, max = 2 }
"#;

const PAPER: &str = r#"
[paper]
title = "Mine"

[[experiment]]
id = "fig-1"
source = "Figure 1"
title = "Two stacks"
scenario = "fig-1"
number = [{ what = "at 15 ms, s", published = "5", ours = 'at(r, "bsd", "delay", 0.015).mean.duration' }]
figure = [
    { kind = "lines", title = "Duration", x = "delay", metric = "duration" },
    { kind = "bars", title = "Duration", x = "delay", metric = "goodput" },
]

[[experiment]]
id = "table-1"
source = "Table 1"
title = "Opinions"
not_run = "opinions"

[[claim]]
id = "all-arrive"
experiment = "fig-1"
text = "Everything arrives."
check = 'at_most(r.map(|c| c.aborted), 0)'

[[claim]]
id = "instant"
experiment = "fig-1"
text = "It takes no time."
check = 'at_most(col(r, "duration"), 0.1)'
explanation = "400 kB at 4 Mbit/s."

[[claim]]
id = "nice"
experiment = "table-1"
text = "It is nice."
not_checkable = "an opinion"
"#;

fn papers(name: &str) -> Place {
    let place = Place::new(name);
    fs::create_dir_all(place.path("papers/mine")).unwrap();
    place.write("papers/mine/fig-1.toml", &format!("{SCENARIO}{SWEEP}"));
    place.write("papers/mine/paper.toml", PAPER);
    place
}

fn a_custom_paper_is_run_judged_and_reported() {
    let place = papers("own-paper");
    let told = place.run("reproduce --experiments papers --out out --pages pages --json").well().json();
    let paper = &told["papers"][0];
    assert_eq!(
        (&paper["counts"]["holds"], &paper["counts"]["fails"], &paper["counts"]["not_checkable"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(paper["results"]["fig-1"]["cells"].as_array().map(Vec::len), Some(4));
    let page = fs::read_to_string(place.path("pages/mine.md")).unwrap();
    for part in
        ["3 claims: 1 hold, 1 fail, 1 cannot", "400 kB at 4 Mbit/s.", "Not run: opinions", "| at 15 ms, s | 5 |"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    let pictures: Vec<&str> = page.split("](mine/").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert_eq!(pictures.len(), 2);
    assert!(pictures.iter().all(|name| place.path("pages/mine").join(name).is_file()), "{pictures:?}");
    assert!(page.contains("`holdover reproduce mine --experiments papers`"), "{page}");
    let manifest = fs::read_to_string(place.path("out/manifest.json")).unwrap();
    assert!(manifest.contains("\"seed\": null"), "each scenario has its own: {manifest}");
    // Runs recorded in the directory are not repeated, and have the same results.
    let again = place.run("reproduce --experiments papers --out out --json").well().json();
    assert_eq!(again["papers"][0]["results"], paper["results"]);
    let narrow = place.run_on_terminal("reproduce --experiments papers --out out").well().out;
    assert!(narrow.contains("instant") && narrow.contains("out/mine.html"), "{narrow}");
    assert!(narrow.lines().all(|line| line.chars().count() <= 50), "{narrow}");
    let text = place.run("reproduce mine/table-1 --experiments papers --out other").well().out;
    assert!(text.contains("1 claim: 0 hold") && text.contains("other/mine.html"), "{text}");
}

fn invalid_papers_and_directories_are_refused() {
    let place = papers("no-paper");
    assert!(place.run("reproduce --experiments papers/mine").refused().contains("no paper in papers/mine"));
    assert!(place.run("reproduce other --experiments papers").refused().contains("there are: mine"));
    assert!(place.run("reproduce mine/fig-2 --experiments papers").refused().contains("fig-1, table-1"));
    assert!(
        place
            .run("reproduce --experiments papers --out papers")
            .refused()
            .contains("not the directory of a reproduction")
    );
    assert!(place.run("reproduce mine/fig-1 --experiments papers --pages pages").refused().contains("one experiment"));
    let refused = place.run("reproduce m-tcp --real --amount 50MB").refused();
    assert!(refused.contains("--amount, --only and --journal are for --real of hip-uto-rt"), "{refused}");
    for (arguments, why) in [("--amount 50MB", "--real"), ("--real --amount 9MB", "not between 10 MB and 600 MB")] {
        let ended = place.run(&format!("reproduce hip-uto-rt {arguments}"));
        assert!(ended.code == Some(2) && ended.err.contains(why), "{ended:?}");
    }
    place.write("papers/mine/paper.toml", &PAPER.replace("experiment = \"table-1\"", "experiment = \"table-2\""));
    assert!(place.run("reproduce --experiments papers").refused().contains("table-2"));
    // An error in a scenario has its place, and is JSON for programs.
    place.write("papers/mine/paper.toml", PAPER);
    place.write("papers/mine/fig-1.toml", &format!("{SCENARIO}{SWEEP}").replace("[[flow]]", "[[flaw]]"));
    let error = place.run("reproduce --experiments papers").refused();
    assert!(error.contains("fig-1.toml:") && error.contains("flaw"), "{error}");
    let ended = place.run("reproduce --experiments papers --json");
    assert_eq!((ended.code, ended.err.as_str()), (Some(2), ""), "{ended:?}");
    assert!(ended.json()["error"].as_str().unwrap().contains("flaw"), "{ended:?}");
    assert_eq!(place.entries(), ["papers"]);
}

const OPEN: &str = r#"
[[open]]
name = "rate"
paths = ["link.radio.rate"]
range = { from = "1 Mbit/s", to = "16 Mbit/s", scale = "logarithmic" }
evidence = "not said"
source = "section 1"

[[claim]]
id = "quick"
experiment = "fig-1"
text = "CUBIC takes less than 3.2 s."
check = 'at_most(col(of(r, "cubic"), "duration"), 3.2)'
"#;

// Claim: A paper's open inputs are sampled and fitted from the command line; the verdicts are judged at the fitted setting, which
// the HTML page reports without external files.
fn open_parameters_of_a_paper_are_sampled_and_fitted() {
    let place = papers("open-paper");
    let open = "reproduce mine --open --experiments papers";
    assert!(place.run(open).refused().contains("no [[open]]"));
    place.write("papers/mine/paper.toml", &format!("{PAPER}{}", OPEN.replace("link.radio.rate", "link.cable.rate")));
    let error = place.run(open).refused();
    assert!(error.contains("mine/paper.toml") && error.contains("cable"), "{error}");
    place.write("papers/mine/paper.toml", &format!("{PAPER}{OPEN}"));
    assert!(place.run("reproduce mine/fig-1 --open --experiments papers").refused().contains("whole papers"));
    assert!(place.run("reproduce --open --experiments papers").refused().contains("WHAT"));
    assert!(place.run(&format!("{open} --resume")).refused().contains("no reproduction to resume"));

    let small = "--samples 8 --runs 1 --experiments papers --out out";
    let told = place.run(&format!("reproduce mine --open {small} --keep --json")).well().json();
    let verdict = |id: &str| {
        let claims = told["claims"].as_array().unwrap();
        claims.iter().find(|claim| claim["id"] == id).unwrap()["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!([verdict("all-arrive"), verdict("instant"), verdict("quick")], ["all", "none", "some"]);
    assert!(place.path("out/mine/open.toml").is_file() && place.path("papers/mine/open.toml").is_file());
    let again = place.run(&format!("reproduce mine --open {small}")).well().out;
    assert!(again.contains("holds at all 8 settings"), "{again}");

    let fitted = place.run(&format!("reproduce mine --fit {small} --keep --json")).well().json();
    assert!(fitted["setting"]["rate"].is_string() && fitted["search"]["numbers"] == 1, "{fitted}");
    // The verdicts are judged there, and the page states that.
    let text = place.run("reproduce mine --experiments papers --out out").well().out;
    assert!(text.contains("hold at all settings"), "{text}");
    let page = fs::read_to_string(place.path("out/mine.html")).unwrap();
    for part in ["All verdicts are judged at one setting", "rate", "<svg", "mine/fig-1/runs.csv"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("http://") || page.matches("http://").count() == page.matches("http://www.w3.org").count());
}
