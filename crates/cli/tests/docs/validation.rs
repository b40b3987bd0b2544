//! `docs/validation.md` is generated from the claims beside the tests, and is up to date.
//!
//! A claim is a comment: `// Claim: ...` (`# Claim: ...` in Python and in scripts), which may be continued and may end with a list of further
//! tests, `// Tests: ...`. It belongs to the function after it, or, if a blank line follows, to the whole file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{ROOT, files_below, functions, read};

const PAGE: &str = "docs/validation.md";

const HEAD: &str = "\
# Validation

What the tests assert: the beginning of each claim, and its test. The rest of a claim, and its further tests, are in the comment `Claim:`
beside the test. `HOLDOVER_WRITE_DOCS=1 cargo test -p holdover --test docs validation` writes this page from these comments; a test fails if
it is out of date.

- [Running the tests](validation/running.md): namespaces, more cases, other seeds, fuzzing
- [Packet scripts](validation/packet-scripts.md): what each script of single segments asserts of the TCP endpoint
- [Deviations from the RFCs](validation/rfc-deviations.md)
- [Theory, other programs, and speed](validation/theory.md): tolerances and measured values
";

/// The sections of the page, and the paths whose claims they have: the longest path that fits decides.
const AREAS: [(&str, &[&str]); 15] = [
    ("TCP", &["crates/tcp"]),
    ("packetdrill", &["crates/packetdrill"]),
    ("Packets and captures", &["crates/wire"]),
    ("Links and the simulator", &["crates/base", "crates/link", "crates/sim"]),
    ("Mechanisms of hosts", &["crates/filter", "crates/flow", "crates/mobility"]),
    ("Mechanisms of routers", &["crates/gateway", "crates/srp"]),
    ("Host identity", &["crates/hip"]),
    ("The daemon of host identity", &["crates/hipd", "crates/cli/tests/hip", "crates/cli/src/hip_command"]),
    ("The agent", &["crates/agent", "crates/cli/src/agent_command", "crates/cli/src/conformance", ".ci/wifi"]),
    ("The gateway", &["crates/gatewayd", "crates/cli/src/gateway_command", ".ci/wifi-gateway"]),
    ("What the daemons share", &["crates/host"]),
    ("Against the real kernel", &["crates/testbed"]),
    (
        "Scenarios, results and commands",
        &["crates/cli", "crates/explain", "crates/lab", "crates/report", "crates/scenario"],
    ),
    ("Python", &["python"]),
    ("Packages and operation", &["bench", "dist", ".ci"]),
];

/// Of sentences of more bytes the page has the first part only.
const LONG: usize = 160;

/// What a test asserts.
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
            .fold(String::new(), |all, page| format!("{all} [Results]({page})."));
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
    files.remove(Path::new("crates/cli/tests/docs/validation.rs"));
    files.iter().flat_map(|file| claims(file, &read(file))).collect()
}

/// The section of a file.
fn area(file: &Path) -> Option<&'static str> {
    let fits = |&(title, path): &(&'static str, &str)| file.starts_with(path).then_some((path.len(), title));
    let paths = AREAS.iter().flat_map(|(title, paths)| paths.iter().map(move |path| (*title, *path)));
    paths.filter_map(|entry| fits(&entry)).max().map(|(_, title)| title)
}

fn page(claims: &[Claim]) -> String {
    let mut sections: BTreeMap<&str, Vec<&Claim>> = BTreeMap::new();
    for claim in claims {
        let area = area(&claim.file).unwrap_or_else(|| panic!("no section has {}", claim.file.display()));
        sections.entry(area).or_default().push(claim);
    }
    let mut page = HEAD.to_owned();
    for (title, _) in AREAS {
        write!(page, "\n## {title}\n\n").unwrap();
        let section = sections.get(title).unwrap_or_else(|| panic!("{title} has no claims"));
        section.iter().for_each(|claim| writeln!(page, "{}", claim.line()).unwrap());
    }
    page
}

#[test]
fn the_validation_page_is_up_to_date() {
    let claims = all_claims();
    assert!(claims.len() > 350, "the claims were not read as intended");
    let page = page(&claims);
    if std::env::var_os("HOLDOVER_WRITE_DOCS").is_some() {
        fs::write(Path::new(ROOT).join(PAGE), &page).unwrap();
    }
    let committed = read(PAGE);
    let differs = page.lines().zip(committed.lines()).find(|(now, then)| now != then);
    assert!(
        committed == page,
        "{PAGE} is out of date: HOLDOVER_WRITE_DOCS=1 cargo test -p holdover --test docs validation\n{differs:?}"
    );
}

#[test]
fn claims_name_tests_that_exist() {
    let functions = functions();
    let is_anywhere = |function: &str| functions.values().any(|all| all.contains(function));
    let exists = |name: &str| match name.rsplit_once("::") {
        _ if name.contains(['/', '.']) => Path::new(ROOT).join(name).exists(),
        // Tests of a module are often in a module `tests` of their own.
        Some((modules, function)) => modules.rsplit("::").take(2).any(|module| match functions.get(module) {
            _ if module == "tests" => is_anywhere(function),
            all => all.is_some_and(|all| all.contains(function)),
        }),
        None => is_anywhere(name),
    };
    let claims = all_claims();
    let named = claims.iter().flat_map(|claim| claim.tests.iter().map(|name| (claim.name(), name)));
    let missing: Vec<_> = named.filter(|(_, name)| !exists(name)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    let beside: Vec<_> = claims.iter().filter_map(|claim| Some((claim.name(), claim.function.as_deref()?))).collect();
    let missing: Vec<_> = beside.iter().filter(|(_, function)| !is_anywhere(function)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
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
