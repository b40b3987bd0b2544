//! Parses structures, constants and enumerations of a C header, and generates Rust.
//!
//! It supports the C of `c/state.h` and `c/packet.h` and refuses the rest: members of `u8` to `u64` and of structures
//! before them, with sizes that are numbers or constants; `#define NAME NUMBER`; enumerations without values.

use std::fmt::Write as _;

/// Structures whose default is not all zeros: `src/flow.rs` and `src/entry.rs` define it.
const NOT_ZERO: [&str; 4] = ["half", "flow", "side", "entry"];

/// The declarations of the headers.
#[derive(Default)]
pub(crate) struct Layout {
    constants: Vec<Constant>,
    structures: Vec<Structure>,
    enumerations: Vec<Structure>,
}

struct Constant {
    name: String,
    value: String,
    doc: String,
}

/// A structure, or an enumeration, whose members have no types.
struct Structure {
    name: String,
    doc: String,
    members: Vec<Member>,
}

struct Member {
    name: String,
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
    /// Parses headers.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut layout = Self::default();
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
        let kind = match kind {
            "u8" | "u16" | "u32" | "u64" => kind.to_owned(),
            "bpf_spin_lock" => "u32".to_owned(),
            name if self.structures.iter().any(|known| known.name == name) => camel_case(name),
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

    fn name(&mut self, code: &str, doc: String) -> Result<(), String> {
        let wrong = || format!("unsupported value: {code}");
        let name = code.strip_suffix(',').ok_or_else(wrong)?;
        let enumeration = self.enumerations.last_mut().ok_or_else(wrong)?;
        enumeration.members.push(Member { name: name.to_owned(), kind: String::new(), len: None, doc });
        Ok(())
    }

    /// The declarations in Rust.
    pub(crate) fn to_rust(&self) -> String {
        let mut out = String::new();
        let lengths: Vec<&str> =
            self.structures.iter().flat_map(|it| &it.members).filter_map(|member| member.len.as_deref()).collect();
        for Constant { name, value, doc } in &self.constants {
            let kind = if lengths.contains(&name.as_str()) { "usize" } else { "u32" };
            let _ = writeln!(out, "/// {}\npub const {name}: {kind} = {value};", sentence(doc, name));
        }
        for structure in &self.structures {
            structure.write_struct(&mut out);
        }
        for enumeration in &self.enumerations {
            enumeration.write_enum(&mut out);
        }
        let entries: usize = self.structures.iter().map(|it| it.members.len() + 1).sum();
        let _ = writeln!(out, "#[cfg(test)]\npub(crate) const LAYOUT: [u32; {entries}] = [");
        for structure in &self.structures {
            let name = camel_case(&structure.name);
            let _ = writeln!(out, "    size_of::<{name}>() as u32,");
            for member in &structure.members {
                let _ = writeln!(out, "    core::mem::offset_of!({name}, {}) as u32,", member.name);
            }
        }
        out + "];\n"
    }

    /// Sizes and offsets, as a table in C.
    pub(crate) fn to_c_table(&self) -> String {
        let mut out = String::from("const u32 flow_layout[] = {\n");
        for Structure { name, members, .. } in &self.structures {
            let _ = writeln!(out, "\tsizeof(struct {name}),");
            for member in members {
                let _ = writeln!(out, "\t__builtin_offsetof(struct {name}, {}),", member.name);
            }
        }
        out + "};\n"
    }
}

impl Structure {
    fn write_struct(&self, out: &mut String) {
        let name = camel_case(&self.name);
        let _ = writeln!(out, "/// {}", sentence(&self.doc, &self.name));
        let default = if NOT_ZERO.contains(&self.name.as_str()) { "" } else { ", Default" };
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
            let _ = writeln!(out, "    /// {}\n    {},", sentence(&member.doc, &member.name), camel_case(&member.name));
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

fn camel_case(name: &str) -> String {
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
