//! Error messages about unknown variants, labels, values and metrics, with the known names.

use std::collections::{BTreeMap, BTreeSet};

use rhai::{Array, Dynamic, Map};

/// `there is no WHAT "name"; there are: a, b`.
fn missing(what: &str, name: &str, known: &BTreeSet<String>) -> String {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("there is no {what} \"{name}\"; there are: {known}")
}

/// The values of a text field, over all cells.
fn texts(cells: &Array, key: &str) -> BTreeSet<String> {
    let text = |cell: &Dynamic| Some(cell.read_lock::<Map>()?.get(key)?.to_string());
    cells.iter().filter_map(text).collect()
}

/// The keys of a map in each cell: `labels` for the axes, `all` for the metrics.
fn keys(cells: &Array, map: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for cell in cells {
        let Some(cell) = cell.read_lock::<Map>() else { continue };
        if let Some(map) = cell.get(map).and_then(|map| map.read_lock::<Map>()) {
            all.extend(map.keys().map(ToString::to_string));
        }
    }
    all
}

/// The error for a variant that does not exist; `None` if it exists.
pub(super) fn no_variant(cells: &Array, name: &str) -> Option<String> {
    let known = texts(cells, "variant");
    (!known.contains(name)).then(|| missing("variant", name, &known))
}

/// The error for a metric that does not exist; `None` if it exists.
pub(super) fn no_metric(cells: &Array, name: &str) -> Option<String> {
    let known = metrics(cells);
    (!known.contains(name)).then(|| missing("metric", name, &known))
}

/// The metrics of cells.
pub(super) fn metrics(cells: &Array) -> BTreeSet<String> {
    keys(cells, "all")
}

/// The reason why no cell of a variant lies at a place: the variant, the label or the value does not exist.
pub(super) fn no_place(cells: &Array, variant: &str, label: &str, place: f64) -> String {
    let labels = keys(cells, "labels");
    no_variant(cells, variant)
        .or_else(|| (!labels.contains(label)).then(|| missing("label", label, &labels)))
        .unwrap_or_else(|| {
            let of_variant = cells.iter().filter(|cell| is_of(cell, variant));
            let of_variant: Array = of_variant.cloned().collect();
            let values = texts(&of_variant, label).into_iter().collect::<Vec<_>>().join(", ");
            format!("\"{variant}\" has no cell with {label} = {place}; there are: {values}")
        })
}

/// Whether a cell is one of a variant.
pub(super) fn is_of(cell: &Dynamic, variant: &str) -> bool {
    let map = cell.read_lock::<Map>();
    let name = map.as_ref().and_then(|map| map.get("variant")).and_then(|name| name.clone().into_string().ok());
    name.is_some_and(|name| name == variant)
}

/// The metrics of all results, each once.
pub(super) fn all_metrics(results: &BTreeMap<String, Array>) -> String {
    let all: BTreeSet<String> = results.values().flat_map(metrics).collect();
    all.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::results::{Cell, Results};
    use super::super::script::Scripts;

    /// The error of a script about a single cell: variant `plain` at a delay of 5.
    fn says(script: &str) -> String {
        let cell = Cell {
            variant: "plain".to_owned(),
            at: BTreeMap::from([("delay".to_owned(), 5.0)]),
            words: BTreeMap::from([("delay".to_owned(), "5 s".to_owned())]),
            values: BTreeMap::from([("duration".to_owned(), vec![1.0, 2.0])]),
            runs: 2,
            completed: 2,
        };
        let scripts = Scripts::new(&BTreeMap::from([("grid".to_owned(), Results { cells: vec![cell] })]));
        scripts.check(script, Some("grid")).unwrap_err().to_string()
    }

    #[test]
    fn unknown_names_are_reported_with_the_known_ones() {
        for (script, expected) in [
            (r#"at_least(col(of(r, "wake"), "duration"), 0)"#, "there is no variant \"wake\"; there are: plain"),
            (r#"at_least(col(r, "speed"), 0)"#, "there is no metric \"speed\"; there are: duration"),
            (r#"at_least(at(r, "plain", "delta", 5).duration, 0)"#, "there is no label \"delta\"; there are: delay"),
            (r#"at_least(at(r, "wake", "delay", 5).duration, 0)"#, "there is no variant \"wake\"; there are: plain"),
            (
                r#"at_least(at(r, "plain", "delay", 6).duration, 0)"#,
                "\"plain\" has no cell with delay = 6; there are: 5",
            ),
            (r#"at_least(pairs(r, "plain", "wake", "duration"), 0)"#, "there is no variant \"wake\"; there are: plain"),
            (
                r#"at_least(pairs(r, "plain", "plain", "speed"), 0)"#,
                "there is no metric \"speed\"; there are: duration",
            ),
            (r#"at_least(r[0].mean.speed, 0)"#, "the metrics are: duration"),
            (r#"at_least(results("table")[0].duration, 0)"#, "there are no results of \"table\"; there are: grid"),
        ] {
            let said = says(script);
            assert!(said.contains(expected), "{script}: {said}");
        }
    }
}
