//! `docs/validation/packet-scripts.md` is generated from the names and doc comments of the packet scripts, and is up to date.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/validation/packet-scripts.md");

/// Modules whose tests are not packet scripts.
const ELSEWHERE: [&str; 9] =
    ["corpus", "endpoints", "main", "properties", "rfc9768_paths", "storms", "transfer", "validation", "regressions"];

const HEAD: &str = "\
# Packet scripts

What each packet script of the TCP endpoint asserts. This page is written from the names and the doc comments of the tests, by
`HOLDOVER_WRITE_DOCS=1 cargo test -p holdover-tcp --test it validation`; a test fails if it is out of date.

The scripts drive one connection with single segments (`crates/tcp/tests/it/script`): time is moved by hand, sequence numbers are
relative, and every transmission has to be expected, so that silence is asserted as well. Most run under `Config::rfc()` with round numbers and
without options (`script::plain`), and switch on what they are about. Where a stack profile differs from an RFC on purpose, its own table says so.
A test is named `module::test` in `crates/tcp/tests/it/`.
";

/// Words whose spelling differs from that in names.
const WORDS: [(&str, &str); 29] = [
    ("ack", "ACK"),
    ("acks", "ACKs"),
    ("bsd", "BSD"),
    ("cwnd", "cwnd"),
    ("dsack", "DSACK"),
    ("ecn", "ECN"),
    ("fack", "FACK"),
    ("fin", "FIN"),
    ("freebsd", "FreeBSD"),
    ("frto", "F-RTO"),
    ("icmp", "ICMP"),
    ("iss", "ISS"),
    ("linux", "Linux"),
    ("mss", "MSS"),
    ("nagle", "Nagle"),
    ("paws", "PAWS"),
    ("psh", "PSH"),
    ("reno", "Reno"),
    ("rst", "RST"),
    ("rto", "RTO"),
    ("rtt", "RTT"),
    ("sack", "SACK"),
    ("sacks", "SACKs"),
    ("syn", "SYN"),
    ("syns", "SYNs"),
    ("tahoe", "Tahoe"),
    ("tcp", "TCP"),
    ("r1", "R1"),
    ("r2", "R2"),
];

/// A test: the section that its name begins with, what it asserts, and its name.
struct Row {
    section: String,
    asserted: String,
    name: String,
}

impl Row {
    fn new(name: &str, doc: &str) -> Self {
        let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
        let parts: Vec<&str> = name.split('_').collect();
        let is_of_rfc = parts[0].strip_prefix("rfc").is_some_and(|number| is_number(&number));
        let numbers = if is_of_rfc { parts[1..].iter().take_while(|part| is_number(part)).count() } else { 0 };
        let words: Vec<&str> = parts[if is_of_rfc { numbers + 1 } else { 0 }..]
            .iter()
            .map(|part| WORDS.iter().find(|(word, _)| word == part).map_or(*part, |(_, written)| written))
            .collect();
        let sentence = words.join(" ");
        let (first, rest) = sentence.split_at(sentence.chars().next().map_or(0, char::len_utf8));
        let separator = if doc.is_empty() { "" } else { " " };
        Self {
            section: parts[1..=numbers].join("."),
            asserted: format!("{}{rest}.{separator}{}", first.to_uppercase(), doc.replace('|', "\\|")),
            name: name.to_owned(),
        }
    }
}

/// The first paragraph of a module's documentation, and its tests.
fn read_module(text: &str) -> (String, Vec<Row>) {
    let about = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let about: Vec<&str> = about.take_while(|line| !line.is_empty()).collect();
    let (mut doc, mut is_test, mut rows) = (Vec::new(), false, Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("/// ") {
            doc.push(comment);
        } else if line == "#[test]" {
            is_test = true;
        } else if let Some(name) = line.strip_prefix("fn ").filter(|_| is_test) {
            let name = name.split('(').next().unwrap_or_default();
            rows.push(Row::new(name, &doc.join(" ")));
            (doc, is_test) = (Vec::new(), false);
        } else if !line.starts_with("#[") && !line.starts_with("// ") {
            // A comment between the documentation and the test is a claim of docs/validation.md.
            (doc, is_test) = (Vec::new(), false);
        }
    }
    (about.join(" "), rows)
}

fn page() -> String {
    let mut modules: Vec<_> = fs::read_dir(TESTS).unwrap().map(|entry| entry.unwrap().path()).collect();
    modules.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    modules.sort_by_key(|path| {
        let name = path.file_stem().unwrap().to_owned();
        (!name.to_string_lossy().starts_with("rfc"), name)
    });
    let mut page = HEAD.to_owned();
    for path in modules {
        let module = path.file_stem().unwrap().to_str().unwrap();
        let (about, rows) = read_module(&fs::read_to_string(&path).unwrap());
        if rows.is_empty() || ELSEWHERE.contains(&module) {
            continue;
        }
        // Links between items have no target on a page.
        let about = about.replace("[`", "`").replace("`]", "`");
        write!(page, "\n## `{module}`\n\n{about}\n\n").unwrap();
        let has_sections = rows.iter().any(|row| !row.section.is_empty());
        page += if has_sections {
            "| section | asserted | test |\n| --- | --- | --- |\n"
        } else {
            "| asserted | test |\n| --- | --- |\n"
        };
        for Row { section, asserted, name } in rows {
            if has_sections {
                write!(page, "| {section} ").unwrap();
            }
            writeln!(page, "| {} | `{module}::{name}` |", asserted.replace("[`", "`").replace("`]", "`")).unwrap();
        }
    }
    page
}

#[test]
fn the_page_of_packet_scripts_is_up_to_date() {
    let page = page();
    assert!(page.lines().filter(|line| line.ends_with("` |")).count() > 300, "the tests were not read as intended");
    if std::env::var_os("HOLDOVER_WRITE_DOCS").is_some() {
        fs::create_dir_all(Path::new(PAGE).parent().unwrap()).unwrap();
        fs::write(PAGE, &page).unwrap();
    }
    let committed = fs::read_to_string(PAGE).unwrap_or_default();
    let differs = page.lines().zip(committed.lines()).find(|(now, then)| now != then);
    assert!(
        committed == page,
        "{PAGE} is out of date: HOLDOVER_WRITE_DOCS=1 cargo test -p holdover-tcp --test it validation\n{differs:?}"
    );
}

#[test]
fn a_name_says_the_section_and_the_rule() {
    let row = Row::new("rfc9293_3_8_6_1_a_fin_waits_for_the_window_too", "The only thing left to send is a FIN.");
    assert_eq!(row.section, "3.8.6.1");
    assert_eq!(row.asserted, "A FIN waits for the window too. The only thing left to send is a FIN.");
    let row = Row::new("linux_rto_is_at_most_120_s", "");
    assert_eq!((&*row.section, &*row.asserted), ("", "Linux RTO is at most 120 s."));
    let (about, rows) = read_module(
        "//! First.\n//!\n//! Second.\n\n/// A doc,\n/// of two lines.\n#[test]\nfn one() {\n    // text\n}\n",
    );
    assert_eq!((&*about, rows.len(), &*rows[0].asserted), ("First.", 1, "One. A doc, of two lines."));
}
