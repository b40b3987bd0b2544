//! Checks the pages under `docs/` against the code: everything that they name exists, and they name everything that they have to.

mod circles;
mod validation;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use holdover_agent::link_watch::LinkCondition;
use holdover_agent::metrics::encode_status;
use holdover_agent::outcomes::Outcomes;
use holdover_agent::path_engine::Counters;
use holdover_agent::status::{LinkRecord, LinkStatus, Status, UserTimeoutStatus};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// So many crates are not listed one by one.
const MANY: usize = 5;

/// The crates that use a dependency, and those that use it in tests, benchmarks and fuzz targets only.
#[derive(Default)]
struct Uses {
    code: BTreeSet<String>,
    tests: BTreeSet<String>,
}

impl Uses {
    /// As in the second column of `docs/dependencies.md`.
    fn column(&self) -> String {
        let list = |crates: Vec<&str>| if crates.len() < MANY { crates.join(", ") } else { "many".to_owned() };
        let code = list(self.code.iter().map(String::as_str).collect());
        let tests = list(self.tests.difference(&self.code).map(String::as_str).collect());
        let in_tests = if tests.is_empty() { String::new() } else { format!("tests: {tests}") };
        [code, in_tests].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

#[test]
fn every_dependency_has_its_reason() {
    let page = read("docs/dependencies.md");
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| ")).skip(2) {
        let mut columns = row.split('|').map(str::trim).skip(1);
        let (names, users) = (columns.next().unwrap(), columns.next().unwrap());
        assert!(!columns.next().unwrap().is_empty(), "{names}: what for?");
        for name in names.split(", ") {
            assert!(told.insert(name.to_owned(), users.to_owned()).is_none(), "{name} twice");
        }
    }
    let expected: BTreeMap<_, _> = dependencies().iter().map(|(name, uses)| (name.clone(), uses.column())).collect();
    assert_eq!(told, expected);
}

#[test]
fn the_architecture_page_names_every_crate_and_only_files_that_are_there() {
    let page = read("docs/architecture.md");
    let floors = page.split("```").nth(1).unwrap();
    let on_the_floors: BTreeSet<String> =
        floors.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    let crates = names_in("crates");
    let untold: Vec<_> = crates.difference(&on_the_floors).collect();
    assert!(untold.is_empty(), "not on the floors: {untold:?}");

    // A path is relative to the root, to `crates`, or to the sources of the crate described.
    let sources = crates.iter().flat_map(|name| ["src", "src/connection"].map(|from| format!("crates/{name}/{from}")));
    let from: Vec<PathBuf> = ["", "crates"].map(str::to_owned).into_iter().chain(sources).map(PathBuf::from).collect();
    let exists = |text: &str| from.iter().any(|from| Path::new(ROOT).join(from).join(text).exists());
    let paths: Vec<_> = quoted(&page).filter(|text| text.ends_with(".rs") || text.ends_with('/')).collect();
    assert!(paths.len() > 30, "the page was not read as intended");
    let missing: Vec<_> = paths.into_iter().filter(|text| !exists(text)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Each function, type and constant between backticks, such as the calls of a packet's walk, is a name of the code (comments apart).
#[test]
fn the_architecture_page_uses_names_of_the_code() {
    let page = read("docs/architecture.md");
    let mut defined = names_in("crates");
    for extension in ["rs", "c", "h"] {
        for path in files_below("crates", extension) {
            let text = read(&path);
            let code = text.lines().filter_map(|line| line.split("//").next());
            let words = code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
            defined.extend(words.map(str::to_owned));
        }
    }
    let is_name = |part: &&str| part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !part.is_empty();
    let names = quoted(&page).filter(|text| text.split("::").all(|part| is_name(&part)));
    let names: BTreeSet<&str> = names.flat_map(|text| text.split("::")).collect();
    assert!(names.len() > 150, "the page was not read as intended");
    let missing: Vec<_> = names.into_iter().filter(|name| !defined.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Each `Type::member` between backticks is a function, constant or variant of a type of that name.
#[test]
fn the_architecture_page_names_members_of_their_types() {
    let page = read("docs/architecture.md");
    let texts: Vec<String> = files_below("crates", "rs").iter().map(read).collect();
    let defined: BTreeSet<(&str, &str)> = texts.iter().flat_map(|text| members_in(text)).collect();
    let is_path = |owner: &str, member: &str| {
        owner.starts_with(|c: char| c.is_ascii_uppercase()) && format!("{owner}{member}").chars().all(is_of_name)
    };
    let named = quoted(&page).filter_map(|text| text.split_once("::"));
    let named: BTreeSet<(&str, &str)> = named.filter(|&(owner, member)| is_path(owner, member)).collect();
    assert!(named.len() > 80, "the page was not read as intended");
    let missing: Vec<_> = named.difference(&defined).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The functions, constants and variants of a file's types and traits. In a formatted file an item ends with a brace at the beginning of a
/// line, and its members are indented by four spaces.
fn members_in(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut owner: Option<&str> = None;
    for line in text.lines() {
        if line.starts_with('}') {
            owner = None;
        } else if let Some(member) = line.strip_prefix("    ") {
            found.extend(owner.zip(member_in(member)));
        } else if line.ends_with('{') {
            owner = owner_in(line);
        }
    }
    found
}

/// The type or trait whose members follow a line.
fn owner_in(line: &str) -> Option<&str> {
    let Some(implemented) = line.strip_prefix("impl") else {
        let mut words = line.split(|c: char| !is_of_name(c)).filter(|word| !word.is_empty());
        let kind = words.find(|word| !matches!(*word, "pub" | "crate" | "super"))?;
        return if matches!(kind, "enum" | "trait") { words.next() } else { None };
    };
    let of_type = implemented.rsplit(" for ").next()?;
    let of_type = if of_type.starts_with('<') { of_type.split_once("> ")?.1 } else { of_type };
    of_type.split(['<', ' ']).find(|part| !part.is_empty())?.rsplit("::").next()
}

/// The name of the member that a line begins, without its indentation.
fn member_in(line: &str) -> Option<&str> {
    const QUALIFIERS: [&str; 7] = ["pub", "crate", "super", "const", "async", "unsafe", "fn"];
    let begins = line.starts_with(|c: char| c.is_ascii_alphabetic());
    let mut words = line.split(|c: char| !is_of_name(c)).filter(|word| !word.is_empty());
    words.find(|word| !QUALIFIERS.contains(word)).filter(|_| begins)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Collecting a crate's documentation tests takes up to two seconds, also if there are none.
#[test]
fn documentation_tests_are_switched_on_where_there_are_some() {
    let (mut on, mut with_tests) = (BTreeSet::new(), BTreeSet::new());
    for name in names_in("crates") {
        let directory = Path::new("crates").join(&name);
        let manifest: toml::Table = read(directory.join("Cargo.toml")).parse().unwrap();
        let switch = manifest.get("lib").and_then(|lib| lib.get("doctest")).and_then(toml::Value::as_bool);
        if switch != Some(false) {
            on.insert(name.clone());
        }
        let sources = files_below(directory.join("src").to_str().unwrap(), "rs");
        if sources.iter().any(|file| has_documentation_test(&read(file))) {
            with_tests.insert(name);
        }
    }
    assert!(with_tests.len() >= 4, "the sources were not read as intended: {with_tests:?}");
    assert_eq!(on, with_tests, "`doctest = false` in `[lib]` belongs where there are none");
}

/// Whether a comment has a block that is compiled: one without a language, or with Rust's.
fn has_documentation_test(text: &str) -> bool {
    const OF_RUST: [&str; 6] = ["", "rust", "no_run", "should_panic", "compile_fail", "ignore"];
    let comments =
        text.lines().map(str::trim_start).filter_map(|line| line.strip_prefix("//")?.strip_prefix(['/', '!']));
    // Every other fence ends a block.
    let begins = comments.filter_map(|line| line.trim_start().strip_prefix("```")).step_by(2);
    begins.into_iter().any(|language| OF_RUST.contains(&language.split(',').next().unwrap().trim()))
}

#[test]
fn a_block_without_a_language_is_a_documentation_test() {
    assert!(has_documentation_test("//! About.\n//! ```\n//! let a = 1;\n//! ```\n"));
    assert!(has_documentation_test("    /// ```compile_fail,E0603\n    /// a();\n    /// ```\n"));
    assert!(!has_documentation_test("//! ```text\n//! a, b\n//! ```\n// ```\nlet fence = \"/// ```\";\n"));
}

#[test]
fn links_lead_somewhere() {
    let mut pages = files_below("docs", "md");
    pages.extend(names_in("").into_iter().filter(|name| name.ends_with(".md")).map(PathBuf::from));
    assert!(pages.len() >= 8, "{pages:?}");
    let mut broken = Vec::new();
    for page in pages {
        for link in read(&page).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap();
            let is_elsewhere = target.is_empty() || target.contains("://");
            if !is_elsewhere && !Path::new(ROOT).join(&page).parent().unwrap().join(target).exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Each experiment on Linux has its section, and each section its experiment.
#[test]
fn the_notes_on_linux_tell_every_experiment() {
    let note = read("docs/notes/linux-6.18.md");
    let sections = note.lines().filter(|line| line.starts_with("## "));
    let told: BTreeSet<String> = sections.flat_map(quoted).map(str::to_owned).collect();
    let mut done = BTreeSet::new();
    for path in files_below("crates/testbed/tests/peer/linux", "rs") {
        for table in read(&path).split("EXPERIMENTS: &[Experiment] = &[").skip(1) {
            let table = table.split("];").next().unwrap();
            done.extend(table.split("(\"").skip(1).filter_map(|entry| entry.split('"').next()).map(str::to_owned));
        }
    }
    assert!(done.len() >= 14, "{done:?}");
    assert_eq!(told, done);
}

/// Every metric, and every value of `fate` and `outcome`, that the dashboard and the alerts in `dist` name is one of the agent's.
// Claim: Dashboard and alerts use metrics, fates and outcomes that exist.
#[test]
fn dashboards_and_alerts_name_metrics_that_exist() {
    let text = encode_status(&status());
    for (file, least) in [("dist/grafana/holdover-agent.json", 12), ("dist/prometheus/holdover-agent.rules.yml", 5)] {
        let asked = read(file).replace("\\\"", "\"");
        let names: BTreeSet<&str> = asked.match_indices("holdover_").map(|(at, _)| name_at(&asked[at..])).collect();
        assert!(names.len() >= least, "{file}: {names:?}");
        for name in names {
            let exists = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
            assert!(text.lines().any(exists), "{file} asks for {name}, which is not in\n{text}");
        }
        for label in ["fate=\"", "fate!=\"", "outcome=\""] {
            for value in asked.split(label).skip(1).filter_map(|rest| rest.split('"').next()) {
                let (name, _) = label.split_once(['=', '!']).unwrap();
                assert!(text.contains(&format!("{name}=\"{value}\"")), "{file} asks for {name} {value}");
            }
        }
    }
}

/// The name of a metric at the beginning of a text.
fn name_at(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap()
}

/// An agent with one link.
fn status() -> Status {
    let record =
        LinkRecord { outcomes: Outcomes { saved_s: Some(1.0), ..Outcomes::default() }, ..LinkRecord::default() };
    let link = LinkStatus {
        interface: "wwan0".to_owned(),
        state: LinkCondition::Up,
        state_s: 1.0,
        families_down: Vec::new(),
        objections: Vec::new(),
        problem: None,
        trouble: None,
        next_cut_s: None,
        record,
        counters: Counters::default(),
    };
    Status {
        version: "1".to_owned(),
        running_s: 1.0,
        dry_run: false,
        links: vec![link],
        connections: Vec::new(),
        connections_in_all: 0,
        counters: Counters::default(),
        user_timeouts: UserTimeoutStatus::default(),
        containers: None,
    }
}

fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(ROOT).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of everything in a directory.
fn names_in(directory: impl AsRef<Path>) -> BTreeSet<String> {
    let entries = fs::read_dir(Path::new(ROOT).join(directory)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// All files below a directory that have this extension, as paths from the root.
fn files_below(directory: &str, extension: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![PathBuf::from(directory)];
    while let Some(directory) = waiting.pop() {
        for name in names_in(&directory) {
            let path = directory.join(name);
            if Path::new(ROOT).join(&path).is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.insert(path);
            }
        }
    }
    found
}

/// The texts between backticks in a line.
fn quoted(page: &str) -> impl Iterator<Item = &str> {
    page.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

fn dependencies() -> BTreeMap<String, Uses> {
    let mut all: BTreeMap<String, Uses> = BTreeMap::new();
    for name in names_in("crates") {
        for (manifest, is_fuzz) in [("Cargo.toml", false), ("fuzz/Cargo.toml", true)] {
            let path = PathBuf::from("crates").join(&name).join(manifest);
            if is_fuzz && !Path::new(ROOT).join(&path).exists() {
                continue;
            }
            let manifest: toml::Table = read(&path).parse().unwrap();
            assert!(!manifest.contains_key("target"), "{}: look at these, too", path.display());
            for (section, is_test) in
                [("dependencies", is_fuzz), ("build-dependencies", false), ("dev-dependencies", true)]
            {
                let table = manifest.get(section).and_then(toml::Value::as_table);
                let is_ours = |dependency: &str| dependency == "holdover" || dependency.starts_with("holdover-");
                for dependency in table.into_iter().flat_map(toml::Table::keys).filter(|name| !is_ours(name)) {
                    let uses = all.entry(dependency.clone()).or_default();
                    (if is_test { &mut uses.tests } else { &mut uses.code }).insert(name.clone());
                }
            }
        }
    }
    all
}
