//! Published documents match the code.

use std::path::{Path, PathBuf};

use serde_json::Value;

// The example is a separate program; this test compares its trace with the committed one.
#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/lte_trace.rs"]
mod lte_trace;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    let path = repository().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `HOLDOVER_WRITE_DOCS=1 cargo test -p holdover-scenario --test it documents` updates it.
#[test]
fn the_committed_schema_is_the_present_one() {
    // Compares values: the order of keys depends on serde_json's features.
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let schema = holdover_scenario::schema();
    if std::env::var_os("HOLDOVER_WRITE_DOCS").is_some() {
        std::fs::write(repository().join("docs/schema/scenario.schema.json"), format!("{}\n", schema.trim_end()))
            .unwrap();
    }
    assert_eq!(value(&text("docs/schema/scenario.schema.json")), value(&schema));
}

/// The fields of every table in the schema.
fn fields(schema: &Value, into: &mut std::collections::BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Object(properties)) = object.get("properties") {
                into.extend(properties.keys().cloned());
            }
            object.values().for_each(|value| fields(value, into));
        }
        Value::Array(list) => list.iter().for_each(|value| fields(value, into)),
        _ => {}
    }
}

/// The accepted words of every field in the schema.
fn words(schema: &Value, into: &mut std::collections::BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Array(list)) = object.get("enum") {
                into.extend(list.iter().filter_map(|word| word.as_str().map(str::to_owned)));
            }
            object.values().for_each(|value| words(value, into));
        }
        Value::Array(list) => list.iter().for_each(|value| words(value, into)),
        _ => {}
    }
}

#[test]
fn the_guide_has_every_field_and_every_word() {
    let guide = text("docs/guide/scenario-files.md");
    let schema: Value = serde_json::from_str(&holdover_scenario::schema()).unwrap();
    let mut names = std::collections::BTreeSet::new();
    fields(&schema, &mut names);
    assert!(names.len() > 100, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !guide.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "fields that the guide does not name: {missing:?}");
    let mut accepted = std::collections::BTreeSet::new();
    words(&schema, &mut accepted);
    let missing: Vec<_> = accepted.iter().filter(|word| !guide.contains(&format!("\"{word}\""))).collect();
    assert!(missing.is_empty(), "words that the guide does not name: {missing:?}");
}

/// Every example in the guide that is a complete scenario can be run, and every other one is valid TOML.
#[test]
fn the_examples_in_the_guide_are_right() {
    let guide = text("docs/guide/scenario-files.md");
    let mut whole = 0;
    for block in guide.split("```toml\n").skip(1) {
        let block = block.split("```").next().unwrap_or_default();
        if block.contains("[[host]]") && block.contains("[[flow]]") {
            whole += 1;
            let scenario = holdover_scenario::Scenario::parse("guide", block, repository().join("scenarios"));
            assert!(scenario.is_ok(), "{}", scenario.unwrap_err().report(Default::default()));
        } else {
            assert!(toml::from_str::<toml::Table>(block).is_ok(), "{block}");
        }
    }
    assert!(whole > 0, "the guide has a whole scenario");
}

#[test]
fn the_lte_trace_is_what_its_generator_makes() {
    assert!(text("scenarios/traces/lte-drive.trace") == lte_trace::trace(), "run the example lte_trace again");
}

/// A variant can set a path if and only if the schema has a pattern for it. (The tests of the Python module check the schemas of values
/// with a validator.)
// Claim: The schema accepts every scenario that comes with Holdover, and refuses wrong values and paths in a variant's `set`.
#[test]
fn the_schema_has_a_pattern_for_each_path_that_a_variant_sets() {
    let schema: Value = serde_json::from_str(&holdover_scenario::schema()).unwrap();
    let set = &schema["$defs"]["Variant"]["properties"]["set"];
    let patterns = set["patternProperties"].as_object().unwrap();
    assert_eq!(set["additionalProperties"], false);
    let element = r#"(?:[^."]+|"[^"]+")"#;
    for path in
        ["link.E.delay", "link.E.forward.rate", "stack.rto.min", "flow.E.from_stack.congestion.algorithm", "time_limit"]
    {
        let pattern = format!("^{}$", path.replace('.', r"\.").replace('E', element));
        let value = patterns.get(&pattern).unwrap_or_else(|| panic!("{pattern}"));
        for place in value["anyOf"].as_array().unwrap_or(&vec![value.clone()]) {
            let target = place["$ref"].as_str().unwrap().strip_prefix('#').unwrap();
            assert!(schema.pointer(target).is_some(), "{target}");
        }
    }
    for fixed in ["seed", "sweep", "variant", "output", "title", "description"] {
        assert!(!patterns.keys().any(|pattern| pattern[1..].starts_with(fixed)), "{fixed}");
    }
}
