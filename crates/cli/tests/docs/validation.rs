//! `docs/validation.md` and the pages of its areas are generated from the claims beside the tests, and are up to date.
//!
//! A claim is a comment: `// Claim: ...` (`# Claim: ...` in Python and in scripts), which may be continued and may end with a list of further
//! tests, `// Tests: ...`. It belongs to the function after it, which is a test, or, if a blank line follows, to the whole file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{ROOT, files_below, names_in, read};

const INDEX: &str = "docs/validation.md";
/// The directory of the pages of areas, which has no other files.
const PAGES: &str = "docs/validation/claims";
/// Without claims and tests: texts in its own test look like some.
const THIS_FILE: &str = "crates/cli/tests/docs/validation.rs";

const HEAD: &str = "\
# Validation

What the tests assert: a page for each area lists the beginning of each claim, and its test. The rest of a claim, and its further tests, are
in the comment `Claim:` beside the test. `HOLDOVER_WRITE_DOCS=1 cargo test -p holdover --test docs validation` writes this page and those of
the areas from these comments; a test fails if one is out of date.

- [Running the tests](validation/running.md): namespaces, more cases, other seeds, fuzzing
- [Packet scripts](validation/packet-scripts.md): what each script of single segments asserts of the TCP endpoint
- [Deviations from the RFCs](validation/rfc-deviations.md)
- [Theory, other programs, and speed](validation/theory.md): tolerances and measured values
";

/// A part of the project whose claims have a page.
struct Area {
    title: &'static str,
    /// The name of the page in [`PAGES`], without `.md`.
    page: &'static str,
    /// The files and directories whose claims it has. A claim belongs to the area with the longest matching path.
    paths: &'static [&'static str],
}

const AREAS: &[Area] = &[
    Area { title: "TCP", page: "tcp", paths: &["crates/tcp"] },
    Area { title: "packetdrill", page: "packetdrill", paths: &["crates/packetdrill"] },
    Area { title: "Packets and captures", page: "packets", paths: &["crates/wire"] },
    Area { title: "Links and the simulator", page: "simulator", paths: &["crates/base", "crates/link", "crates/sim"] },
    Area {
        title: "Mechanisms of hosts",
        page: "host-mechanisms",
        paths: &["crates/filter", "crates/flow", "crates/mobility"],
    },
    Area { title: "Mechanisms of routers", page: "router-mechanisms", paths: &["crates/gateway", "crates/srp"] },
    Area { title: "Host identity", page: "host-identity", paths: &["crates/hip"] },
    Area {
        title: "The daemon of host identity",
        page: "host-identity-daemon",
        paths: &["crates/hipd", "crates/cli/tests/hip", "crates/cli/src/hip_command"],
    },
    Area { title: "The agent", page: "agent", paths: &["crates/agent", "crates/cli/src/agent_command", ".ci/wifi"] },
    Area {
        title: "The gateway",
        page: "gateway",
        paths: &["crates/gatewayd", "crates/cli/src/gateway_command", ".ci/wifi-gateway"],
    },
    Area { title: "Code shared by the daemons", page: "daemons", paths: &["crates/host"] },
    Area {
        title: "Against the real kernel",
        page: "kernel",
        paths: &["crates/conformance", "crates/testbed", "crates/transfers"],
    },
    Area {
        title: "Scenarios, results and commands",
        page: "commands",
        paths: &["crates/cli", "crates/explain", "crates/lab", "crates/report", "crates/scenario"],
    },
    Area { title: "Python", page: "python", paths: &["python"] },
    Area { title: "Packages and operation", page: "packages", paths: &["bench", "dist", ".ci"] },
];

impl Area {
    /// The path of its page.
    fn path(&self) -> String {
        format!("{PAGES}/{}.md", self.page)
    }

    /// Its page, with these claims.
    fn page(&self, claims: &[&Claim]) -> String {
        let paths: Vec<_> = self.paths.iter().map(|path| format!("`{path}`")).collect();
        let mut page = format!(
            "# {}\n\nWhat the tests assert of {}; see [Validation](../../validation.md). Generated: the comments `Claim:` beside \
             the tests have the whole text.\n\n",
            self.title,
            paths.join(", ")
        );
        claims.iter().for_each(|claim| writeln!(page, "{}", claim.line()).unwrap());
        page
    }
}

/// Of sentences of more bytes the page has the first part only.
const LONG: usize = 160;

/// A test's claim.
#[derive(PartialEq, Debug)]
struct Claim {
    file: PathBuf,
    /// The function after the claim; `None` if it is of the whole file.
    function: Option<String>,
    text: String,
    /// Further tests, as `module::function` or as a path.
    tests: Vec<String>,
}

impl Claim {
    /// The first sentence, or the first part of a long one.
    fn beginning(&self) -> String {
        let ends = |&(at, _): &(usize, &str)| {
            self.text[at + 2..].starts_with(|c: char| c.is_uppercase() || c == '`' || c == '(')
        };
        let end = self.text.match_indices(". ").find(ends).map_or(self.text.len(), |(at, _)| at + 1);
        match self.text[..end].split_once("; ") {
            Some((part, _)) if end > LONG => format!("{part}; ..."),
            _ => self.text[..end].to_owned(),
        }
    }

    /// `module::function`, or the path of a file.
    fn name(&self) -> String {
        match &self.function {
            Some(function) => format!("{}::{function}", module(&self.file)),
            None => self.file.display().to_string(),
        }
    }

    fn line(&self) -> String {
        let further = match self.tests.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let results: String = self
            .text
            .split_whitespace()
            .map(|word| word.trim_end_matches(['.', ',']))
            .filter_map(|word| word.strip_prefix("docs/").filter(|page| page.ends_with(".md")))
            .fold(String::new(), |all, page| format!("{all} [Results](../../{page})."));
        format!("- {}{results} `{}`{further}", self.beginning(), self.name())
    }
}

/// A file's module: its name, or that of the directory whose tests or root it is.
fn module(file: &Path) -> String {
    let is_name = |part: &str| !["mod", "main", "tests"].contains(&part);
    let parts = file.iter().rev().filter_map(|part| Path::new(part).file_stem()?.to_str());
    parts.into_iter().find(|part| is_name(part)).unwrap_or_default().to_owned()
}

/// The claims of a file, in order.
fn claims(file: &Path, text: &str) -> Vec<Claim> {
    let is_code = file.extension().is_some_and(|extension| extension == "rs" || extension == "py");
    let marker = if file.extension().is_some_and(|extension| extension == "rs") { "// " } else { "# " };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let comment = |at: usize| lines.get(at).and_then(|line| line.strip_prefix(marker));
    let (mut found, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        let Some(first) = comment(at).and_then(|line| line.strip_prefix("Claim: ")) else {
            at += 1;
            continue;
        };
        let (mut text, mut tests, mut in_tests) = (first.to_owned(), String::new(), false);
        at += 1;
        while let Some(line) = comment(at).filter(|line| !line.starts_with("Claim: ")) {
            in_tests |= line.starts_with("Tests: ");
            let part = if in_tests { &mut tests } else { &mut text };
            *part = format!("{part} {line}");
            at += 1;
        }
        let mut behind = at;
        while comment(behind).is_some() {
            behind += 1;
        }
        let is_of_function = is_code && lines.get(behind).is_some_and(|line| !line.is_empty());
        let keyword = if marker == "// " { "fn " } else { "def " };
        let function = lines[behind..]
            .iter()
            .filter(|_| is_of_function)
            .find_map(|line| line.split(keyword).nth(1)?.split(['(', '<']).next())
            .map(str::to_owned);
        let tests = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        found.push(Claim { file: file.to_owned(), function, text, tests });
    }
    found
}

/// The claims of all files that can have some, by file.
fn all_claims() -> Vec<Claim> {
    let mut files: BTreeSet<PathBuf> = files_below("crates", "rs");
    files.extend(files_below("python/tests", "py"));
    for directory in ["bench", "dist", ".ci"] {
        let entries = fs::read_dir(Path::new(ROOT).join(directory)).unwrap().map(|entry| entry.unwrap().path());
        let scripts = entries.filter(|path| path.is_file() && path.extension().is_none());
        files.extend(scripts.map(|path| Path::new(directory).join(path.file_name().unwrap())));
    }
    files.remove(Path::new(THIS_FILE));
    files.iter().flat_map(|file| claims(file, &read(file))).collect()
}

/// The number of a file's area.
fn area(file: &Path) -> Option<usize> {
    let paths =
        AREAS.iter().enumerate().flat_map(|(area, of)| of.paths.iter().map(move |path| (path.len(), area, path)));
    paths.filter(|(_, _, path)| file.starts_with(path)).max().map(|(_, area, _)| area)
}

/// The index and the page of each area, by path.
fn pages(claims: &[Claim]) -> BTreeMap<String, String> {
    let mut by_area: BTreeMap<usize, Vec<&Claim>> = BTreeMap::new();
    for claim in claims {
        let area = area(&claim.file).unwrap_or_else(|| panic!("no area has {}", claim.file.display()));
        by_area.entry(area).or_default().push(claim);
    }
    let mut index = format!("{HEAD}\n| area | claims |\n| --- | ---: |\n");
    let mut pages = BTreeMap::new();
    for (number, area) in AREAS.iter().enumerate() {
        let claims = by_area.get(&number).unwrap_or_else(|| panic!("{} has no claims", area.title));
        writeln!(index, "| [{}](validation/claims/{}.md) | {} |", area.title, area.page, claims.len()).unwrap();
        pages.insert(area.path(), area.page(claims));
    }
    writeln!(index, "| all | {} |", claims.len()).unwrap();
    pages.insert(INDEX.to_owned(), index);
    pages
}

#[test]
fn the_validation_pages_are_up_to_date() {
    const COMMAND: &str = "HOLDOVER_WRITE_DOCS=1 cargo test -p holdover --test docs validation";
    let claims = all_claims();
    assert!(claims.len() > 350, "the claims were not read as intended");
    let pages = pages(&claims);
    assert!(pages[INDEX].lines().count() <= 80, "the index is no overview any more");
    let is_of_an_area = |name: &str| pages.contains_key(&format!("{PAGES}/{name}"));
    if std::env::var_os("HOLDOVER_WRITE_DOCS").is_some() {
        fs::create_dir_all(Path::new(ROOT).join(PAGES)).unwrap();
        for name in names_in(PAGES).into_iter().filter(|name| !is_of_an_area(name)) {
            fs::remove_file(Path::new(ROOT).join(PAGES).join(name)).unwrap();
        }
        pages.iter().for_each(|(path, page)| fs::write(Path::new(ROOT).join(path), page).unwrap());
    }
    for (path, page) in &pages {
        let committed = fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_default();
        let differs = page.lines().zip(committed.lines()).find(|(now, then)| now != then);
        assert!(committed == *page, "{path} is out of date: {COMMAND}\n{differs:?}");
    }
    let stale: Vec<_> = names_in(PAGES).into_iter().filter(|name| !is_of_an_area(name)).collect();
    assert!(stale.is_empty(), "{PAGES} has pages of no area: {COMMAND}\n{stale:?}");
}

/// A file's name, or that of the directory whose root it is: unlike [`module`], also of directories `tests`.
fn stem(file: &Path) -> String {
    let file = if file.ends_with("mod.rs") { file.parent().unwrap() } else { file };
    file.file_stem().unwrap().to_str().unwrap().to_owned()
}

/// The functions named by tables of tests with the test bed's harness, each as `module::function`.
fn named_in_tables(module: &str, text: &str) -> BTreeSet<String> {
    let heads = ["Test", "Experiment"].map(|kind| format!("&[{kind}] ="));
    let tables = heads.iter().flat_map(|head| text.split(head.as_str()).skip(1));
    let tables = tables.filter_map(|behind| behind.split("];").next());
    let words = tables.flat_map(|table| table.split(|c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c)));
    let qualified = |word: &str| if word.contains("::") { word.to_owned() } else { format!("{module}::{word}") };
    words.map(qualified).collect()
}

/// The tests in a file of Rust: functions with `#[test]` that are not ignored, and those that a table names.
fn tests_in(module: &str, text: &str, in_tables: &BTreeSet<String>) -> BTreeSet<String> {
    let (mut found, mut attributes) = (BTreeSet::new(), Vec::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")) {
        if line.starts_with("#[") {
            attributes.push(line);
            continue;
        }
        if let Some(name) = line.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next()) {
            let is_ignored = attributes.iter().any(|attribute| attribute.starts_with("#[ignore"));
            let is_marked = attributes.contains(&"#[test]") && !is_ignored;
            if is_marked || in_tables.contains(&format!("{module}::{name}")) {
                found.insert(name.to_owned());
            }
        }
        attributes.clear();
    }
    found
}

/// The tests of the crates and of Python, by [`stem`].
fn all_tests() -> BTreeMap<String, BTreeSet<String>> {
    let mut files = files_below("crates", "rs");
    files.remove(Path::new(THIS_FILE));
    let sources: Vec<_> = files.iter().map(|file| (stem(file), read(file))).collect();
    let in_tables: BTreeSet<String> = sources.iter().flat_map(|(module, text)| named_in_tables(module, text)).collect();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, text) in &sources {
        all.entry(module.clone()).or_default().extend(tests_in(module, text, &in_tables));
    }
    for file in files_below("python/tests", "py") {
        let text = read(&file);
        let names = text.lines().filter_map(|line| line.split("def ").nth(1)?.split('(').next());
        let tests = names.filter(|name| name.starts_with("test_")).map(str::to_owned);
        all.entry(stem(&file)).or_default().extend(tests);
    }
    all
}

#[test]
fn claims_name_tests_that_exist() {
    let tests = all_tests();
    let is_anywhere = |test: &str| tests.values().any(|all| all.contains(test));
    let exists = |name: &str| match name.rsplit_once("::") {
        _ if name.contains(['/', '.']) => Path::new(ROOT).join(name).exists(),
        // Tests of a module are often in a module `tests` of their own.
        Some((modules, test)) => modules.rsplit("::").take(2).any(|module| match tests.get(module) {
            _ if module == "tests" => is_anywhere(test),
            all => all.is_some_and(|all| all.contains(test)),
        }),
        None => is_anywhere(name),
    };
    let claims = all_claims();
    let named = claims.iter().flat_map(|claim| claim.tests.iter().map(|name| (claim.name(), name)));
    let missing: Vec<_> = named.filter(|(_, name)| !exists(name)).collect();
    assert!(missing.is_empty(), "not tests, or ignored: {missing:#?}");
    let is_above_a_test = |claim: &&Claim| {
        let test = claim.function.as_deref();
        test.is_none_or(|test| tests.get(&stem(&claim.file)).is_some_and(|all| all.contains(test)))
    };
    let others: Vec<_> = claims.iter().filter(|claim| !is_above_a_test(claim)).map(Claim::name).collect();
    assert!(others.is_empty(), "claims above what is not a test, or ignored: {others:#?}");
}

#[test]
fn functions_that_do_not_run_are_no_tests() {
    let text = "const TESTS: &[Test] = &[\n    (\"a_name\", |_| in_the_table(1)),\n    (\"other\", other::elsewhere),\n];\n\
                #[test]\n// Why.\n#[should_panic]\nfn marked() {\n    helper();\n}\n\n\
                proptest! {\n    /// Doc.\n    #[test]\n    fn of_any(x in 0..3) {}\n}\n\
                #[ignore = \"long\"]\n#[test]\nfn ignored() {}\n\
                #[test]\nconst NOTHING: u8 = 0;\nfn helper() {}\n\
                fn in_the_table(_: u8) {}\nfn elsewhere() {}\n";
    let in_tables = named_in_tables("here", text);
    let names = |module| tests_in(module, text, &in_tables).into_iter().collect::<Vec<_>>();
    assert_eq!(names("here"), ["in_the_table", "marked", "of_any"]);
    assert_eq!(names("other"), ["elsewhere", "marked", "of_any"]);
}

#[test]
fn a_claim_is_of_the_function_or_of_the_file() {
    let text = "//! About.\n\n// Claim: Of all. More of it\n// goes on.\n\n/// Doc.\n// Claim: One.\n// Tests: `a::b`,\n// `c`\n// Claim: Two.\n#[test]\nfn both() {\n    // text\n}\n";
    let claims = claims(Path::new("crates/x/tests/it/name.rs"), text);
    let summary: Vec<_> = claims.iter().map(|claim| (claim.name(), claim.beginning(), claim.tests.len())).collect();
    let of = |name: &str, text: &str, tests| (name.to_owned(), text.to_owned(), tests);
    assert_eq!(
        summary,
        [of("crates/x/tests/it/name.rs", "Of all.", 0), of("name::both", "One.", 2), of("name::both", "Two.", 0)]
    );
    assert_eq!(claims[0].text, "Of all. More of it goes on.");
    assert_eq!(claims[1].line(), "- One. `name::both` and 2 more");
    assert_eq!(self::claims(Path::new("dist/x"), "# Claim: Of a script.\nself=1\n")[0].name(), "dist/x");
}
