//! The JSON schema of scenario files, for editors and other programs.

use std::collections::{BTreeMap, BTreeSet};

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::file::ScenarioFile;
use crate::scenario::SAME_FOR_ALL_RUNS;

/// The JSON schema (draft 2020-12) of a scenario file, with a final newline.
///
/// A variant's `set` has a pattern for each path that can be set, with the schema of its field.
pub fn schema() -> String {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<ScenarioFile>();
    let mut schema = schema.to_value();
    let patterns = settable_paths(&schema);
    if let Some(Value::Object(set)) = schema.pointer_mut("/$defs/Variant/properties/set") {
        set.insert("patternProperties".to_owned(), Value::Object(patterns));
        set.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    // Serialization cannot fail: a schema consists of texts, numbers and lists.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// A step to an element of a list: its name, in quotes if it contains a dot, its number, or `*`.
const ELEMENT: &str = r#"(?:[^."]+|"[^"]+")"#;

/// The patterns of all paths that a variant can set, with the schemas of their values.
fn settable_paths(root: &Value) -> Map<String, Value> {
    let mut paths = Paths { root, found: BTreeMap::new() };
    let Some(Value::Object(sections)) = root.get("properties") else { return Map::new() };
    for (section, schema) in sections.iter().filter(|(section, _)| !SAME_FOR_ALL_RUNS.contains(&section.as_str())) {
        paths.add(section, &format!("#/properties/{section}"), schema, 0);
    }
    let values = |places: BTreeSet<String>| match places.into_iter().map(|place| json!({ "$ref": place })) {
        mut one if one.len() == 1 => one.next().unwrap_or_default(),
        several => json!({ "anyOf": several.collect::<Vec<_>>() }),
    };
    paths.found.into_iter().map(|(path, places)| (format!("^{path}$"), values(places))).collect()
}

/// Paths as patterns, with their positions in the schema.
struct Paths<'a> {
    root: &'a Value,
    found: BTreeMap<String, BTreeSet<String>>,
}

impl Paths<'_> {
    /// The maximum depth, above that of any scenario, to end a recursion of tables.
    const DEEPEST: u32 = 12;

    fn add(&mut self, path: &str, place: &str, schema: &Value, depth: u32) {
        self.found.entry(path.to_owned()).or_default().insert(place.to_owned());
        self.go_into(path, place, schema, depth);
    }

    fn go_into(&mut self, path: &str, place: &str, schema: &Value, depth: u32) {
        if depth > Self::DEEPEST {
            return;
        }
        if let Some(Value::String(target)) = schema.get("$ref") {
            let root = self.root;
            if let Some(schema) = target.strip_prefix('#').and_then(|target| root.pointer(target)) {
                self.go_into(path, target, schema, depth + 1);
            }
        }
        for (index, choice) in schema.get("anyOf").and_then(Value::as_array).into_iter().flatten().enumerate() {
            self.go_into(path, &format!("{place}/anyOf/{index}"), choice, depth + 1);
        }
        for (field, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.add(&format!(r"{path}\.{field}"), &format!("{place}/properties/{field}"), schema, depth + 1);
        }
        if let Some(items) = schema.get("items") {
            self.add(&format!(r"{path}\.{ELEMENT}"), &format!("{place}/items"), items, depth + 1);
        }
    }
}
