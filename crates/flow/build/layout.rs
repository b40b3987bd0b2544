//! Generates Rust for the structures, constants and enumerations that C headers share with user space: for the flow path
//! (`crates/flow/build.rs`), the agent's user timeouts and copies, and the gateway's mobile hosts (`build.rs` of these crates).
//!
//! It supports the C of these headers and refuses the rest: members of `u8` to `u64` and of structures before them, with sizes
//! that are numbers or constants; `#define NAME NUMBER`; enumerations without values, whose first one may be a value of an
//! imported enumeration. Members have no padding between them, which the generated code asserts, so that both compilers place
//! them alike.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs, process};

/// Headers with declarations for Rust.
pub(crate) struct Headers<'a> {
    /// Their paths.
    pub(crate) described: &'a [&'a str],
    /// Headers whose Rust declarations another crate generates. The module that includes the generated file imports these.
    pub(crate) imported: &'a [&'a str],
    /// Structures without a derived default: the crate defines one that is not all zeros, or has none.
    pub(crate) not_zero: &'a [&'a str],
}

impl Headers<'_> {
    /// Writes `layout.rs` into the build script's directory for output.
    pub(crate) fn generate(&self) -> Layout {
        self.generate_as("layout.rs")
    }

    /// Writes a file of this name there.
    pub(crate) fn generate_as(&self, name: &str) -> Layout {
        let text = |paths: &[&str]| paths.iter().map(|path| read(path)).collect::<String>();
        let imported = Layout::parse(&text(self.imported), Layout::default()).unwrap_or_else(|error| fail(&error));
        let layout = Layout::parse(&text(self.described), imported).unwrap_or_else(|error| fail(&error));
        write(name, &layout.to_rust(self.not_zero));
        println!("cargo::rerun-if-changed=build.rs");
        layout
    }
}

fn read(path: &str) -> String {
    println!("cargo::rerun-if-changed={path}");
    fs::read_to_string(path).unwrap_or_else(|error| fail(&format!("{path}: {error}")))
}

/// The build script's directory for output.
pub(crate) fn out() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").unwrap_or_else(|| fail("OUT_DIR is not set: run cargo")))
}

/// Writes a file into [`out`].
pub(crate) fn write(name: &str, text: &str) {
    let path = out().join(name);
    fs::write(&path, text).unwrap_or_else(|error| fail(&format!("{}: {error}", path.display())));
}

/// Ends the build.
pub(crate) fn fail(problem: &str) -> ! {
    println!("cargo::error={}: {problem}", env::var("CARGO_PKG_NAME").unwrap_or_default());
    process::exit(1);
}

/// The declarations of headers.
#[derive(Default)]
pub(crate) struct Layout {
    constants: Vec<Constant>,
    pub(crate) structures: Vec<Structure>,
    enumerations: Vec<Structure>,
    imported: Option<Box<Layout>>,
}

struct Constant {
    name: String,
    value: String,
    doc: String,
}

/// A structure; or an enumeration, in which members have values instead of types.
pub(crate) struct Structure {
    pub(crate) name: String,
    doc: String,
    pub(crate) members: Vec<Member>,
}

pub(crate) struct Member {
    pub(crate) name: String,
    /// Its type in Rust, or the value of an enumeration.
    kind: String,
    len: Option<String>,
    doc: String,
}

enum Place {
    Outside,
    /// In a function, or in a part that is not for Rust.
    Skipped,
    Structure,
    Enumeration,
}

impl Layout {
    fn parse(text: &str, imported: Self) -> Result<Self, String> {
        let mut layout = Self { imported: Some(Box::new(imported)), ..Self::default() };
        let (mut place, mut comment) = (Place::Outside, String::new());
        for line in text.lines() {
            let (code, doc) = line.split_once("//").unwrap_or((line, ""));
            let (code, doc) = (code.trim(), doc.trim());
            if code.is_empty() {
                comment = if doc.is_empty() { String::new() } else { format!("{comment} {doc}") };
                continue;
            }
            let doc = if doc.is_empty() { std::mem::take(&mut comment) } else { doc.to_owned() };
            comment.clear();
            match place {
                Place::Outside => place = layout.outside(code, doc),
                Place::Skipped if line.starts_with('}') => place = Place::Outside,
                Place::Skipped => {}
                _ if code == "};" => place = Place::Outside,
                Place::Structure => layout.member(code, &doc)?,
                Place::Enumeration => layout.name(code, doc)?,
            }
        }
        Ok(layout)
    }

    fn outside(&mut self, code: &str, doc: String) -> Place {
        if let Some(definition) = code.strip_prefix("#define ") {
            if let Some((name, value)) = definition.split_once(' ')
                && is_number(value)
            {
                self.constants.push(Constant { name: name.to_owned(), value: value.to_owned(), doc });
            }
            return Place::Outside;
        }
        let named = |prefix| code.strip_prefix(prefix).and_then(|rest: &str| rest.strip_suffix(" {"));
        let found = |name: &str| Structure { name: name.to_owned(), doc, members: Vec::new() };
        if let Some(name) = named("struct ") {
            self.structures.push(found(name));
            return Place::Structure;
        }
        if let Some(name) = named("enum ") {
            self.enumerations.push(found(name));
            return Place::Enumeration;
        }
        if code.ends_with(';') || code.starts_with('#') || !code.contains('(') {
            Place::Outside
        } else {
            Place::Skipped
        }
    }

    fn member(&mut self, code: &str, doc: &str) -> Result<(), String> {
        let wrong = || format!("unsupported member: {code}");
        let declaration = code.strip_suffix(';').ok_or_else(wrong)?;
        let (kind, names) = match declaration.strip_prefix("struct ") {
            Some(rest) => rest.split_once(' ').ok_or_else(wrong)?,
            None => declaration.split_once(' ').ok_or_else(wrong)?,
        };
        // The kernel's headers have `__u32` for `u32`.
        let kind = match kind.trim_start_matches("__") {
            number @ ("u8" | "u16" | "u32" | "u64") => number.to_owned(),
            "bpf_spin_lock" => "u32".to_owned(),
            name if self.has_structure(name) => camel_case(name),
            _ => return Err(wrong()),
        };
        let structure = self.structures.last_mut().ok_or_else(wrong)?;
        for name in names.split(", ") {
            let (name, len) = match name.split_once('[') {
                Some((name, len)) => (name, Some(len.strip_suffix(']').ok_or_else(wrong)?.to_owned())),
                None => (name, None),
            };
            structure.members.push(Member { name: name.to_owned(), kind: kind.clone(), len, doc: doc.to_owned() });
        }
        Ok(())
    }

    fn has_structure(&self, name: &str) -> bool {
        let is_own = self.structures.iter().any(|known| known.name == name);
        is_own || self.imported.as_ref().is_some_and(|imported| imported.has_structure(name))
    }

    fn name(&mut self, code: &str, doc: String) -> Result<(), String> {
        let wrong = || format!("unsupported value: {code}");
        let name = code.strip_suffix(',').ok_or_else(wrong)?;
        let (name, value) = match name.split_once(" = ") {
            Some((name, value)) => (name, self.imported_value(value).ok_or_else(wrong)?),
            None => (name, String::new()),
        };
        let enumeration = self.enumerations.last_mut().ok_or_else(wrong)?;
        enumeration.members.push(Member { name: name.to_owned(), kind: value, len: None, doc });
        Ok(())
    }

    /// A value of an imported enumeration, in Rust.
    fn imported_value(&self, name: &str) -> Option<String> {
        let mut enumerations = self.imported.iter().flat_map(|imported| &imported.enumerations);
        let found = enumerations.find(|it| it.members.iter().any(|member| member.name == name))?;
        Some(format!("{}::{} as u32", camel_case(&found.name), camel_case(name)))
    }

    fn to_rust(&self, not_zero: &[&str]) -> String {
        let mut out = String::new();
        let lengths: Vec<&str> =
            self.structures.iter().flat_map(|it| &it.members).filter_map(|member| member.len.as_deref()).collect();
        for Constant { name, value, doc } in &self.constants {
            let kind = if lengths.contains(&name.as_str()) { "usize" } else { "u32" };
            let _ = writeln!(out, "/// {}\npub const {name}: {kind} = {value};", sentence(doc, name));
        }
        for structure in &self.structures {
            structure.write_struct(&mut out, not_zero.contains(&structure.name.as_str()));
        }
        for enumeration in &self.enumerations {
            enumeration.write_enum(&mut out);
        }
        out
    }
}

impl Structure {
    fn write_struct(&self, out: &mut String, has_own_default: bool) {
        let name = camel_case(&self.name);
        let _ = writeln!(out, "/// {}", sentence(&self.doc, &self.name));
        let default = if has_own_default { "" } else { ", Default" };
        let derived = format!("Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug{default}");
        let _ = writeln!(out, "#[repr(C)]\n#[derive({derived})]\npub struct {name} {{");
        let mut sizes = Vec::new();
        for Member { name, kind, len, doc } in &self.members {
            if !doc.is_empty() {
                let _ = writeln!(out, "    /// {}", sentence(doc, name));
            }
            let kind = len.as_ref().map_or_else(|| kind.clone(), |len| format!("[{kind}; {len}]"));
            let _ = writeln!(out, "    pub(crate) {name}: {kind},");
            sizes.push(format!("size_of::<{kind}>()"));
        }
        let _ = writeln!(out, "}}\n// Any bytes are a value, and all of them are written: there is no padding.");
        let _ = writeln!(out, "const _: () = assert!(size_of::<{name}>() == {});", sizes.join(" + "));
    }

    fn write_enum(&self, out: &mut String) {
        let name = camel_case(&self.name);
        let _ = writeln!(out, "/// {}", sentence(&self.doc, &self.name));
        let _ = writeln!(out, "#[repr(u32)]\n#[derive(Clone, Copy, PartialEq, Eq, Debug)]\npub enum {name} {{");
        for member in &self.members {
            let value = if member.kind.is_empty() { String::new() } else { format!(" = {}", member.kind) };
            let (doc, name) = (sentence(&member.doc, &member.name), camel_case(&member.name));
            let _ = writeln!(out, "    /// {doc}\n    {name}{value},");
        }
        out.push_str("}\n");
    }
}

fn is_number(text: &str) -> bool {
    match text.strip_prefix("0x") {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

pub(crate) fn camel_case(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + &rest.to_lowercase()
    });
    words.collect()
}

/// A C comment as documentation, or the name in C without one.
fn sentence(doc: &str, name: &str) -> String {
    let doc = doc.trim().trim_end_matches([',', ';', ':', '.']);
    let (first, rest) = doc.split_at(doc.chars().next().map_or(0, char::len_utf8));
    if doc.is_empty() { format!("`{name}` of the C headers.") } else { format!("{}{rest}.", first.to_uppercase()) }
}
