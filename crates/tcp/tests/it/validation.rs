//! `docs/validation.md` names the test for each rule: those tests exist, and none of the packet scripts is missing there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/validation.md");

/// All tests of this binary, as `module::name`.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(TESTS).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let module = path.file_stem().unwrap().to_str().unwrap();
            found.extend(tests_in(&path).into_iter().map(|name| format!("{module}::{name}")));
        }
    }
    found
}

fn tests_in(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let mut is_test = false;
    let mut names = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("fn ").filter(|_| is_test) {
            names.extend(name.split('(').next().map(str::to_owned));
        }
        is_test = line == "#[test]";
    }
    names
}

/// What the page names in the form `module::name`, of modules that are here.
fn named(tests: &BTreeSet<String>) -> BTreeSet<String> {
    let modules: BTreeSet<_> = tests.iter().filter_map(|test| test.split("::").next()).collect();
    let page = fs::read_to_string(PAGE).unwrap();
    let quoted = page.split('`').skip(1).step_by(2);
    quoted
        .filter(|text| text.split_once("::").is_some_and(|(module, _)| modules.contains(module)))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_validation_page_is_true_and_whole() {
    let tests = tests();
    let named = named(&tests);
    assert!(named.len() > 300, "the page was not read as intended");
    let missing: Vec<_> = named.difference(&tests).collect();
    assert!(missing.is_empty(), "the page names tests that do not exist: {missing:#?}");
    let scripts = |test: &&String| {
        let module = test.split("::").next().unwrap_or_default();
        module.starts_with("rfc") || ["linux_profiles", "bsd", "ns2", "verbs", "counted"].contains(&module)
    };
    let untold: Vec<_> = tests.difference(&named).filter(scripts).collect();
    assert!(untold.is_empty(), "the page does not name these: {untold:#?}");
}
