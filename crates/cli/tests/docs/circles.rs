//! The modules of a crate depend on each other in one direction.
//!
//! Compared are siblings: the files and directories of one directory, each with everything below it. A use is a path that begins with
//! `crate`, `super` or `self`, in an import or elsewhere; a name that another module imports or re-exports is a use of the module that has
//! it. Tests may use any module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{files_below, names_in, read};

/// The circles that still stand: the crate, the parent of the modules (empty for the crate's root), and the modules, each with the reason.
/// Delete a line when its circle is gone: the test fails otherwise, too.
const KNOWN: &[(&str, &str, &[&str])] = &[
    // A HIT is a hash (`crypto`) over a Host Identity as it is encoded (`codec`); packets, puzzles and keys contain HITs.
    ("hip", "", &["codec", "crypto", "identity"]),
    // A cell with a channel of its own contends by the function that starts the exchanges of all cells of a channel.
    ("link", "cell", &["channel", "medium"]),
    // Classic (RFC 3168) and accurate feedback (RFC 9768) are negotiated in one handshake: each module reads the other's result.
    ("tcp", "connection", &["accurate_ecn", "ecn"]),
    // A packet may contain packets: an ICMP error quotes one, an encrypted payload is one, and a received packet is kept with its parsed
    // value.
    ("wire", "", &["encrypted", "icmp", "packet", "parse", "received"]),
];

/// The names from the crate's root to a module.
type Module = Vec<String>;

/// A module, and the names below it that are yet to be found.
type Target = (Module, Vec<String>);

/// The siblings that each sibling uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

// Claim: The modules of each crate, and the files of each directory, depend on each other in one direction; the exceptions are listed.
#[test]
fn modules_depend_on_each_other_in_one_direction() {
    let (mut circles, mut uses) = (BTreeSet::new(), 0);
    for name in names_in("crates") {
        let modules = Modules::of_crate(&name);
        for (parent, graph) in modules.graphs() {
            uses += graph.values().map(BTreeSet::len).sum::<usize>();
            circles.extend(groups(&graph).into_iter().map(|group| (name.clone(), parent.join("::"), group)));
        }
    }
    assert!(uses > 1000, "{uses} uses were found: the sources were not read as intended");
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let known: BTreeSet<_> =
        KNOWN.iter().map(|(name, parent, group)| ((*name).to_owned(), (*parent).to_owned(), owned(group))).collect();
    let new: Vec<_> = circles.difference(&known).collect();
    assert!(new.is_empty(), "modules use each other: {new:#?}");
    let gone: Vec<_> = known.difference(&circles).collect();
    assert!(gone.is_empty(), "these are circles no longer, delete them from KNOWN: {gone:#?}");
}

/// The modules of a crate, without tests.
#[derive(Default)]
struct Modules {
    all: BTreeSet<Module>,
    /// The paths in each module that begin with `crate`, `super` or `self`.
    uses: BTreeMap<Module, Vec<Vec<String>>>,
    /// The targets of each module's imports, by the last part of the name.
    imports: BTreeMap<Module, BTreeMap<String, Target>>,
}

impl Modules {
    fn of_crate(name: &str) -> Self {
        let directory = format!("crates/{name}/src");
        let sources = files_below(&directory, "rs");
        Self::of(sources.iter().map(|file| (module(file.strip_prefix(&directory).unwrap()), read(file))).collect())
    }

    fn of(sources: Vec<(Module, String)>) -> Self {
        let split: Vec<_> = sources.iter().map(|(module, text)| (module, without_tests(tokens(text)))).collect();
        let tests = split.iter().flat_map(|(module, (_, tests))| tests.iter().map(move |test| below(module, test)));
        let tests: Vec<Module> = tests.collect();
        let is_test = |module: &Module| tests.iter().any(|test| module.starts_with(test));
        let mut modules = Self::default();
        for (module, _) in split.iter().filter(|(module, _)| !is_test(module)) {
            modules.all.extend((0..=module.len()).map(|len| module[..len].to_vec()));
        }
        for (module, (code, _)) in split.iter().filter(|(module, _)| !is_test(module)) {
            let imports = imports(code).into_iter().filter_map(|path| {
                let name = path.last()?.clone();
                Some((name, modules.resolve(module, &path)?))
            });
            let imports: Vec<_> = imports.collect();
            modules.imports.entry((*module).clone()).or_default().extend(imports);
            modules.uses.entry((*module).clone()).or_default().extend(uses(code));
        }
        modules
    }

    /// The module in which a path begins, and the rest of the path; `None` if it begins in another crate.
    fn resolve(&self, from: &[String], path: &[String]) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some((Module::new(), rest.to_vec())),
            "self" => Some((from.to_vec(), rest.to_vec())),
            "super" => {
                let up = path.iter().take_while(|name| *name == "super").count();
                Some((from[..from.len().checked_sub(up)?].to_vec(), path[up..].to_vec()))
            }
            _ => self.all.contains(&below(from, first)).then(|| (from.to_vec(), path.to_vec())),
        }
    }

    /// The module that has a name, behind re-exports.
    fn owner(&self, (mut module, mut rest): Target) -> Module {
        // A name is rarely imported more than twice in a row; the bound ends imports of each other.
        for _ in 0..8 {
            while let Some(child) = rest.first().map(|name| below(&module, name)).filter(|it| self.all.contains(it)) {
                module = child;
                rest.remove(0);
            }
            let imported = rest.first().and_then(|name| self.imports.get(&module)?.get(name));
            let Some(target) = imported else { break };
            (module, rest) = target.clone();
        }
        module
    }

    /// The uses between the children of each module.
    fn graphs(&self) -> BTreeMap<Module, Graph> {
        let mut graphs: BTreeMap<Module, Graph> = BTreeMap::new();
        for (user, paths) in &self.uses {
            for used in paths.iter().filter_map(|path| self.resolve(user, path)).map(|target| self.owner(target)) {
                let shared = user.iter().zip(&used).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (user.get(shared), used.get(shared)) {
                    let graph = graphs.entry(user[..shared].to_vec()).or_default();
                    graph.entry(from.clone()).or_default().insert(to.clone());
                }
            }
        }
        graphs
    }
}

/// The module of a file below `src`.
fn module(file: &Path) -> Module {
    let mut names: Module = file.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if names.last().is_some_and(|name| ["lib", "main", "mod"].contains(&name.as_str())) {
        names.pop();
    }
    names
}

fn below(module: &[String], name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// The names that `from` reaches.
fn reached<'a>(graph: &'a Graph, from: &'a str) -> BTreeSet<&'a str> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![from]);
    while let Some(name) = waiting.pop() {
        for next in graph.get(name).into_iter().flatten() {
            if found.insert(next.as_str()) {
                waiting.push(next);
            }
        }
    }
    found
}

/// The groups of names that reach each other.
fn groups(graph: &Graph) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|name| (name.as_str(), reached(graph, name))).collect();
    let group = |name: &String| -> Vec<String> {
        let reaches_back = |other: &str| reached.get(other).is_some_and(|back| back.contains(name.as_str()));
        reached[name.as_str()].iter().filter(|other| reaches_back(other)).map(|other| (*other).to_owned()).collect()
    };
    let groups: BTreeSet<Vec<String>> = graph.keys().map(group).filter(|group| group.len() > 1).collect();
    groups.into_iter().collect()
}

/// The code before the first module of tests in the file itself, and the names of modules of tests in other files.
fn without_tests(tokens: Vec<&str>) -> (Vec<&str>, Vec<&str>) {
    const MARK: [&str; 8] = ["#", "[", "cfg", "(", "test", ")", "]", "mod"];
    let mut names = Vec::new();
    for at in 0..tokens.len() {
        if tokens[at..].starts_with(&MARK)
            && let [name, next, ..] = tokens[at + MARK.len()..]
        {
            if next == "{" {
                return (tokens[..at].to_vec(), names);
            }
            names.push(name);
        }
    }
    (tokens, names)
}

/// The paths in `use` items.
fn imports(tokens: &[&str]) -> Vec<Vec<String>> {
    let starts = (0..tokens.len()).filter(|&at| tokens[at] == "use").map(|at| at + 1);
    paths_at(tokens, starts)
}

/// The paths that begin with `crate`, `super` or `self`, in `use` items and elsewhere.
fn uses(tokens: &[&str]) -> Vec<Vec<String>> {
    let is_first = |at: usize| at == 0 || tokens[at - 1] != "::";
    let is_ours = |at: usize| ["crate", "super", "self"].contains(&tokens[at]) && tokens.get(at + 1) == Some(&"::");
    paths_at(tokens, (0..tokens.len()).filter(|&at| is_first(at) && is_ours(at)))
}

/// The paths that begin at these tokens, as seen from the file's module: a `super` in a module inside the file may mean the file.
fn paths_at(tokens: &[&str], starts: impl Iterator<Item = usize>) -> Vec<Vec<String>> {
    let depths = depths(tokens);
    let mut found = Vec::new();
    for at in starts {
        let before = found.len();
        paths(tokens, at, &[], &mut found);
        let depth = depths.get(at).copied().unwrap_or(0);
        for path in &mut found[before..] {
            let up = path.iter().take(depth).take_while(|name| *name == "super").count();
            path.drain(..up);
            if up > 0 && path.first().is_some_and(|name| name != "super") {
                path.insert(0, "self".to_owned());
            }
        }
    }
    found
}

/// In how many modules inside the file each token is.
fn depths(tokens: &[&str]) -> Vec<usize> {
    let (mut braces, mut modules) = (0, Vec::new());
    let depth = |(at, token): (usize, &&str)| {
        match *token {
            "{" => {
                braces += 1;
                if at >= 2 && tokens[at - 2] == "mod" {
                    modules.push(braces);
                }
            }
            "}" => {
                if modules.last() == Some(&braces) {
                    modules.pop();
                }
                braces -= 1;
            }
            _ => {}
        }
        modules.len()
    };
    tokens.iter().enumerate().map(depth).collect()
}

/// Adds the paths of a tree as `a::{b, c::d}` that begins at a token. Returns the number of the token after it.
fn paths(tokens: &[&str], mut at: usize, parent: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = parent.to_vec();
    while let Some(token) = tokens.get(at) {
        if *token == "{" {
            at += 1;
            while tokens.get(at).is_some_and(|token| *token != "}") {
                at = if tokens[at] == "," { at + 1 } else { paths(tokens, at, &path, found).max(at + 1) };
            }
            return at + 1;
        }
        if *token == "*" {
            at += 1;
        }
        if !token.starts_with(is_of_word) {
            break;
        }
        path.push((*token).to_owned());
        at += 1;
        if tokens.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    found.push(path);
    if tokens.get(at) == Some(&"as") { at + 2 } else { at }
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The words of a source, `::`, and its other marks one by one, without comments, strings and characters.
fn tokens(text: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|letter: char| !is_of_word(letter)).unwrap_or(rest.len());
        let (length, is_token) = match first {
            '"' => (string_length(rest), false),
            '\'' => (character_length(rest), false),
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), false),
            ':' if rest.starts_with("::") => (2, true),
            _ if ["r", "br"].contains(&&rest[..word]) => match raw_string_length(&rest[word..]) {
                Some(length) => (word + length, false),
                None => (word, true),
            },
            _ if word > 0 => (word, true),
            _ => (first.len_utf8(), !first.is_whitespace()),
        };
        let (token, behind) = rest.split_at(length);
        if is_token {
            found.push(token);
        }
        rest = behind;
    }
    found
}

/// The length of the string that begins with the text's first quotation mark.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            '"' if !is_escaped => return at + 1,
            _ => is_escaped = letter == '\\' && !is_escaped,
        }
    }
    text.len()
}

/// The length of `"..."` or `#"..."#`, the part of a raw string after its `r`, if the text begins with one.
fn raw_string_length(text: &str) -> Option<usize> {
    let hashes = text.find(|letter: char| letter != '#')?;
    let inside = text[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", &text[..hashes]);
    Some(inside.find(&end).map_or(text.len(), |at| hashes + 1 + at + end.len()))
}

/// The length of a character between quotation marks, or of the mark of a lifetime.
fn character_length(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    match (letters.next(), letters.next()) {
        // The character after the backslash may be a quotation mark.
        (Some((_, '\\')), Some((at, escaped))) => {
            let behind = at + escaped.len_utf8();
            text[behind..].find('\'').map_or(text.len(), |end| behind + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[test]
fn uses_are_found_in_paths_of_all_kinds() {
    let text = "use crate::{a::{B, c::*}, d as e};\n// use crate::comment;\nuse super::super::f;\nuse std::fmt;\n\
                mod inside {\n    use super::h;\n    use super::super::i;\n}\n\
                fn of<'a>(x: &'a str) { self::g(\"crate::string\", '\"', '\\'', r#\"\"crate::raw\"#, x::crate_::y) }\n\
                #[cfg(test)]\nmod other;\n#[cfg(test)]\nmod tests {\n    use crate::z;\n}\n";
    let (code, tests) = without_tests(tokens(text));
    let joined = |paths: Vec<Vec<String>>| paths.iter().map(|path| path.join("::")).collect::<Vec<_>>();
    let expected = ["crate::a::B", "crate::a::c", "crate::d", "super::super::f", "self::h", "super::i", "self::g"];
    assert_eq!(joined(uses(&code)), expected);
    assert_eq!(joined(imports(&code))[4..], ["std::fmt", "self::h", "super::i"]);
    assert_eq!(tests, ["other"]);
}

#[test]
fn circles_are_found_through_imports_and_below_directories() {
    let source = |path: &str, text: &str| (module(Path::new(path)), text.to_owned());
    let modules = Modules::of(vec![
        source("lib.rs", "mod a; mod b; mod c; mod d; mod e; #[cfg(test)] mod t; pub use b::deep::Deep; pub use c::C;"),
        source("a.rs", "use crate::Deep; use crate::C; #[cfg(test)] mod tests;"),
        source("b/mod.rs", "mod deep; mod other; use crate::d;"),
        source("b/deep.rs", "use super::other::Other;"),
        source("b/other.rs", "pub struct Other; fn of(it: crate::a::A) {}"),
        source("c.rs", "pub struct C;"),
        source("d.rs", "use crate::c::C;"),
        source("t.rs", "use crate::a::A;"),
        source("a/tests.rs", "use crate::e::E;"),
        source("e.rs", "use crate::a::A;"),
    ]);
    let graphs = modules.graphs();
    assert_eq!(groups(&graphs[&Module::new()]), [["a", "b"]]);
    assert_eq!(groups(&graphs[&vec!["b".to_owned()]]), Vec::<Vec<String>>::new());
}
