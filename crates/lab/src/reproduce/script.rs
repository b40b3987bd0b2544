//! The language of checks on results: [Rhai](https://rhai.rs), with the following additions.
//!
//! | | |
//! | --- | --- |
//! | `r` | the cells of the claim's own experiment |
//! | `results("name")` | those of another scenario of the paper |
//! | `cell.variant`, `cell.LABEL` | its variant, and its place on an axis: a number in base units, or a word |
//! | `cell.METRIC` | the median of a metric over the completed runs; `()` without one |
//! | `cell.mean.METRIC`, `cell.all.METRIC` | the mean, and every value |
//! | `cell.runs`, `cell.completed`, `cell.aborted` | numbers of runs |
//! | `of(cells, "variant")` | those of one variant |
//! | `of_any(cells, "variant")` | whether there is one |
//! | `at(cells, "variant", "LABEL", value)` | the cell at a position |
//! | `col(cells, "METRIC")` | the existing medians |
//! | `pairs(cells, "a", "b", "METRIC")` | for each point that both have: `a`, `b`, `ratio` (a / b), `gain` ((b - a) / b in percent), and the labels. A run that was not completed counts as infinitely slow if the metric is a time or a rate; a point at which both are infinitely slow is omitted |
//! | `survivors(cells)` | the same cells; `pairs` then omits incomplete runs |
//! | `min`, `max`, `mean`, `median`, `sum` | of a list of numbers |
//! | `within(x, least, most)` | a number, or every number of a list, is in the range |
//! | `within(x, least, most, share)` | the same with bounds moved outwards by a share of each; the verdict without it is reported too |
//! | `at_least(x, least)`, `at_most(x, most)` | the same, one-sided |
//! | `near(x, expected, share)` | within a share of the expected value |
//! | `less(a, b)` | a number is below another, or each of a list below the one at its place |
//! | `alike(a, b)`, `above(a, b)` | the means of two lists of values do not differ significantly, or the first is significantly larger (Welch's test at 5 %) |
//! | `falling(list, slack)`, `rising(list, slack)` | no step goes the other way by more than a share of the range |
//! | `fails("why")` | it does not hold |
//! | `every(\[..\])` | all of these hold |
//!
//! A check ends with one of the last eleven functions, or with a plain truth value. Its finding mentions runs omitted or counted as
//! infinitely slow. NaN values and divisions by zero are errors.

mod checks;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use holdover_report::median;
use rhai::{AST, Array, Dynamic, Engine, EvalAltResult, Map, Scope};

use super::known::{self, is_of};
use super::results::{Cell, Results};
use super::tally::{Tally, Treatment, worst};

/// Errors of a script.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScriptError {
    /// The script has a syntax error.
    #[error("cannot parse the script: {0}")]
    Syntax(String),
    /// The script failed.
    #[error("the script failed: {0}")]
    Failed(String),
    /// The script returns a value of the wrong type.
    #[error("the script gives {found}, expected {expected}")]
    Kind {
        /// The type returned.
        found: String,
        /// The expected type.
        expected: &'static str,
    },
}

/// The result of a check.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// Whether the check holds.
    pub holds: bool,
    /// Whether it holds without the tolerance of its ranges; `None` if they have none.
    pub strict: Option<bool>,
    /// The finding, and the deviation if the check does not hold.
    pub found: String,
}

/// Evaluates scripts on the results of one paper.
pub struct Scripts {
    engine: Engine,
    results: Rc<BTreeMap<String, Array>>,
    tally: Rc<RefCell<Tally>>,
}

/// The operation limit, beyond the needs of any check, to stop endless scripts.
const MOST_OPERATIONS: u64 = 50_000_000;

type Fallible<T> = Result<T, Box<EvalAltResult>>;

impl Scripts {
    /// Scripts about these results, by scenario name.
    pub fn new(results: &BTreeMap<String, Results>) -> Self {
        let mut number = 0;
        let arrays = results.iter().map(|(name, results)| {
            let numbered = |cell| {
                number += 1;
                Dynamic::from_map(map_of(cell, number))
            };
            (name.clone(), results.cells.iter().map(numbered).collect::<Array>())
        });
        let results: Rc<BTreeMap<String, Array>> = Rc::new(arrays.collect());
        let mut engine = Engine::new();
        engine.set_max_operations(MOST_OPERATIONS);
        engine.set_max_expr_depths(128, 128);
        let known = Rc::clone(&results);
        engine.register_fn("results", move |name: &str| -> Fallible<Array> {
            known.get(name).cloned().ok_or_else(|| {
                let names = known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                format!("there are no results of \"{name}\"; there are: {names}").into()
            })
        });
        let tally = Rc::new(RefCell::new(Tally::default()));
        register_division(&mut engine);
        register_selection(&mut engine, &tally);
        register_statistics(&mut engine);
        checks::register(&mut engine);
        Self { engine, results, tally }
    }

    /// Runs a check on the results of `scenario`.
    pub fn check(&self, script: &str, scenario: Option<&str>) -> Result<Finding, ScriptError> {
        let value = self.run(script, scenario)?;
        let treated = self.tally.borrow().to_string();
        if let Ok(holds) = value.as_bool() {
            let found = format!("{}{treated}", if holds { "yes" } else { "no" });
            return Ok(Finding { holds, strict: None, found });
        }
        let kind = || ScriptError::Kind { found: value.to_string(), expected: "a check or a truth value" };
        let map = value.read_lock::<Map>().ok_or_else(kind)?;
        let holds = map.get("holds").and_then(|holds| holds.as_bool().ok()).ok_or_else(kind)?;
        let found = map.get("found").map(ToString::to_string).unwrap_or_default();
        let strict = map.get(checks::STRICT).and_then(|strict| strict.as_bool().ok());
        Ok(Finding { holds, strict, found: format!("{found}{treated}") })
    }

    /// The number or text returned by a script about the results of `scenario`.
    pub fn text(&self, script: &str, scenario: Option<&str>) -> Result<String, ScriptError> {
        let value = self.run(script, scenario)?;
        Ok(match number(&value) {
            Ok(number) => short(number),
            Err(_) if value.is_unit() => "none".to_owned(),
            Err(_) => value.to_string(),
        })
    }

    /// Checks the syntax of a script.
    #[cfg(test)]
    pub fn compiles(&self, script: &str) -> Result<(), ScriptError> {
        compile(&self.engine, script).map(drop)
    }

    fn run(&self, script: &str, scenario: Option<&str>) -> Result<Dynamic, ScriptError> {
        let script = compile(&self.engine, script)?;
        self.tally.borrow_mut().clear();
        let mut scope = Scope::new();
        let own = scenario.and_then(|name| self.results.get(name)).cloned().unwrap_or_default();
        scope.push_constant("r", own);
        self.engine.eval_ast_with_scope(&mut scope, &script).map_err(|error| {
            let mut words = error.to_string();
            if words.contains(NO_VALUE) {
                words.push_str(&format!("; the metrics are: {}", known::all_metrics(&self.results)));
            }
            ScriptError::Failed(words)
        })
    }
}

fn compile(engine: &Engine, script: &str) -> Result<AST, ScriptError> {
    engine.compile(script).map_err(|error| ScriptError::Syntax(error.to_string()))
}

fn map_of(cell: &Cell, number: i64) -> Map {
    let mut map = Map::new();
    let mut means = Map::new();
    let mut all = Map::new();
    for (label, word) in &cell.words {
        let place = cell.at.get(label).map_or_else(|| Dynamic::from(word.clone()), |at| Dynamic::from(*at));
        map.insert(label.as_str().into(), place);
    }
    for (name, values) in &cell.values {
        map.insert(name.as_str().into(), cell.median(name).map_or(Dynamic::UNIT, Dynamic::from));
        means.insert(name.as_str().into(), cell.mean(name).map_or(Dynamic::UNIT, Dynamic::from));
        all.insert(name.as_str().into(), array(values.iter().copied()).into());
    }
    map.insert("mean".into(), shared(means));
    map.insert("all".into(), shared(all));
    map.insert("variant".into(), cell.variant.clone().into());
    map.insert(NUMBER.into(), number.into());
    let labels: Map = cell.words.iter().map(|(label, word)| (label.as_str().into(), word.clone().into())).collect();
    map.insert("labels".into(), shared(labels));
    for (name, count) in [("runs", cell.runs), ("completed", cell.completed), ("aborted", cell.runs - cell.completed)] {
        map.insert(name.into(), (count as i64).into());
    }
    map
}

/// A map shared between copies of its cell: selections copy cells, and a claim may select for each of thousands.
fn shared(map: Map) -> Dynamic {
    Dynamic::from_map(map).into_shared()
}

/// The key of a cell's number among all cells.
const NUMBER: &str = "#";

/// The key that restricts the results to completed runs.
const SURVIVORS: &str = "#survivors";

/// Makes a division with an undefined result an error.
fn register_division(engine: &mut Engine) {
    fn divide(a: f64, b: f64) -> Fallible<f64> {
        if b == 0.0 { Err("division by zero".into()) } else { Ok(a / b) }
    }
    engine.set_fast_operators(false);
    engine.register_fn("/", divide);
    engine.register_fn("/", |a: i64, b: f64| divide(a as f64, b));
    engine.register_fn("/", |a: f64, b: i64| divide(a, b as f64));
}

fn register_selection(engine: &mut Engine, tally: &Rc<RefCell<Tally>>) {
    engine.register_fn("of", |cells: Array, variant: &str| -> Fallible<Array> {
        let chosen: Array = cells.iter().filter(|cell| is_of(cell, variant)).cloned().collect();
        if chosen.is_empty() {
            let why = known::no_variant(&cells, variant);
            return Err(why.unwrap_or_else(|| format!("there is no cell of \"{variant}\"")).into());
        }
        Ok(chosen)
    });
    engine.register_fn("of_any", |cells: Array, variant: &str| cells.iter().any(|cell| is_of(cell, variant)));
    engine.register_fn("at", |cells: Array, variant: &str, label: &str, place: Dynamic| -> Fallible<Dynamic> {
        let place = number(&place)?;
        let is_there = |cell: &Dynamic| {
            field(cell, label).is_some_and(|at| (at - place).abs() <= place.abs() * 1e-3) && is_of(cell, variant)
        };
        let found = cells.iter().find(|cell| is_there(cell)).cloned();
        found.ok_or_else(|| known::no_place(&cells, variant, label, place).into())
    });
    engine.register_fn("survivors", |mut cells: Array| {
        for cell in &mut cells {
            if let Some(mut map) = cell.write_lock::<Map>() {
                map.insert(SURVIVORS.into(), true.into());
            }
        }
        cells
    });
    let treated = Rc::clone(tally);
    engine.register_fn("col", move |cells: Array, metric: &str| -> Fallible<Array> {
        let mut column = Array::new();
        for cell in &cells {
            let map = cell.read_lock::<Map>().ok_or("col takes cells")?;
            let value = map.get(metric).ok_or_else(|| {
                known::no_metric(&cells, metric).unwrap_or_else(|| format!("some cells have no \"{metric}\""))
            })?;
            note(&mut treated.borrow_mut(), &map, Treatment::LeftOut);
            if !value.is_unit() {
                column.push(value.clone());
            }
        }
        Ok(column)
    });
    let treated = Rc::clone(tally);
    engine.register_fn("pairs", move |cells: Array, a: &str, b: &str, metric: &str| {
        pairs(&cells, (a, b), metric, &mut treated.borrow_mut())
    });
}

fn note(tally: &mut Tally, cell: &Map, treatment: Treatment) {
    let count = |name: &str| cell.get(name).and_then(|count| count.as_int().ok()).unwrap_or_default();
    tally.note(count(NUMBER), (count("runs"), count("aborted")), treatment);
}

/// The median of a metric over the runs of a cell. Incomplete runs count as the worst value, if the metric has one and the script does not
/// request survivors.
fn with_aborted(cell: &Dynamic, metric: &str, tally: &mut Tally) -> Option<f64> {
    let map = cell.read_lock::<Map>()?;
    let worst = worst(metric).filter(|_| !map.contains_key(SURVIVORS));
    note(tally, &map, if worst.is_some() { Treatment::Worst } else { Treatment::LeftOut });
    let all = map.get("all")?.read_lock::<Map>()?;
    let mut values = numbers(all.get(metric)?).ok()?;
    let aborted = map.get("aborted").and_then(|aborted| aborted.as_int().ok()).unwrap_or_default();
    values.extend(worst.into_iter().flat_map(|worst| (0..aborted).map(move |_| worst)));
    median(&values)
}

/// The points at which both variants have a value.
fn pairs(cells: &Array, (a, b): (&str, &str), metric: &str, tally: &mut Tally) -> Fallible<Array> {
    let mut all = Array::new();
    for cell in cells.iter().filter(|cell| is_of(cell, a)) {
        let place = labels(cell);
        let other = cells.iter().find(|other| is_of(other, b) && labels(other) == place);
        let values = other.map(|other| (with_aborted(cell, metric, tally), with_aborted(other, metric, tally)));
        let (Some((Some(x), Some(y))), Some(map)) = (values, cell.read_lock::<Map>()) else { continue };
        // Both have the worst possible value: there is nothing to compare.
        if worst(metric) == Some(x) && x == y {
            continue;
        }
        // The ratio to a count of zero is undefined.
        let ratio = if y == 0.0 && worst(metric) != Some(0.0) { f64::NAN } else { x / y };
        let at = |label: &String| Some((label.as_str().into(), map.get(label.as_str())?.clone()));
        let mut pair: Map = place.keys().filter_map(at).collect();
        pair.insert("a".into(), x.into());
        pair.insert("b".into(), y.into());
        pair.insert("ratio".into(), ratio.into());
        pair.insert("gain".into(), ((1.0 - ratio) * 100.0).into());
        all.push(pair.into());
    }
    if all.is_empty() {
        let why = known::no_variant(cells, a).or_else(|| known::no_variant(cells, b));
        let why = why.or_else(|| known::no_metric(cells, metric));
        return Err(why.unwrap_or_else(|| format!("no point has \"{metric}\" of both \"{a}\" and \"{b}\"")).into());
    }
    Ok(all)
}

/// The position of a cell on each axis, as written.
fn labels(cell: &Dynamic) -> BTreeMap<String, String> {
    let Some(map) = cell.read_lock::<Map>() else { return BTreeMap::new() };
    let Some(labels) = map.get("labels").and_then(|labels| labels.read_lock::<Map>()) else { return BTreeMap::new() };
    labels.iter().map(|(label, word)| (label.to_string(), word.to_string())).collect()
}

fn register_statistics(engine: &mut Engine) {
    let mut statistic = |name: &str, of: fn(&[f64]) -> Option<f64>| {
        let what = name.to_owned();
        engine.register_fn(name, move |list: Array| -> Fallible<f64> {
            of(&numbers(&Dynamic::from_array(list))?).ok_or_else(|| format!("{what} of an empty list").into())
        });
    };
    statistic("min", |list| list.iter().copied().reduce(f64::min));
    statistic("max", |list| list.iter().copied().reduce(f64::max));
    statistic("sum", |list| Some(list.iter().sum()));
    statistic("mean", |list| (!list.is_empty()).then(|| list.iter().sum::<f64>() / list.len() as f64));
    statistic("median", median);
}

fn field(cell: &Dynamic, name: &str) -> Option<f64> {
    let map = cell.read_lock::<Map>()?;
    number(map.get(name)?).ok()
}

/// The end of the message about a metric that does not exist, or that no run has.
const NO_VALUE: &str = "a number was expected, not ()";

fn number(value: &Dynamic) -> Fallible<f64> {
    let whole = || value.as_int().map(|whole| whole as f64);
    match value.as_float().or_else(|_| whole()) {
        Ok(number) if number.is_nan() => Err("a value is not a number".into()),
        Ok(number) => Ok(number),
        Err(kind) => Err(format!("a number was expected, not {kind}").into()),
    }
}

/// A number, or a list of numbers.
fn numbers(value: &Dynamic) -> Fallible<Vec<f64>> {
    match value.read_lock::<Array>() {
        Some(list) => list.iter().map(number).collect(),
        None => Ok(vec![number(value)?]),
    }
}

fn array(values: impl Iterator<Item = f64>) -> Array {
    values.map(Dynamic::from).collect()
}

/// A number with up to four digits.
pub fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = (3 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(variant: &str, cut_s: f64, durations_s: &[f64], runs: usize) -> Cell {
        Cell {
            variant: variant.into(),
            at: BTreeMap::from([("cut".to_owned(), cut_s)]),
            words: BTreeMap::from([("cut".to_owned(), format!("{cut_s} s"))]),
            runs,
            completed: durations_s.len(),
            values: BTreeMap::from([("duration".to_owned(), durations_s.to_vec())]),
        }
    }

    fn scripts() -> Scripts {
        let cells = vec![
            cell("plain", 1.0, &[20.0, 22.0, 30.0], 3),
            cell("plain", 2.0, &[40.0], 1),
            cell("plain", 3.0, &[], 2),
            cell("wake", 1.0, &[11.0], 1),
            cell("wake", 2.0, &[12.0], 1),
            cell("wake", 3.0, &[13.0], 1),
        ];
        Scripts::new(&BTreeMap::from([("grid".to_owned(), Results { cells })]))
    }

    #[track_caller]
    fn check(script: &str) -> Finding {
        scripts().check(script, Some("grid")).unwrap()
    }

    #[test]
    fn a_difference_is_tested_with_its_spread() {
        assert!(check("alike([10.0, 12.0, 11.0], [11.0, 12.5, 10.5])").holds);
        assert!(!check("alike([10.0, 10.1, 9.9], [12.0, 12.1, 11.9])").holds);
        assert!(check("above([12.0, 12.1, 11.9], [10.0, 10.1, 9.9])").holds);
        assert!(!check("above([10.0, 10.1, 9.9], [12.0, 12.1, 11.9])").holds);
        assert!(!check("above([10.0, 12.0, 11.0], [10.5, 11.0, 10.0])").holds, "larger by chance");
        let error = scripts().check("alike([10.0], [11.0, 12.0])", Some("grid")).unwrap_err();
        assert!(error.to_string().contains("two values"), "{error}");
    }

    #[test]
    fn a_check_says_what_it_found_and_by_how_much_it_fails() {
        let good = check(r#"within(col(of(r, "wake"), "duration"), 11, 13.0)"#);
        assert_eq!(good, Finding { holds: true, strict: None, found: "11 to 13, expected 11 to 13".into() });
        let bad = check(r#"at_most(at(r, "plain", "cut", 2).duration, 32)"#);
        assert_eq!(
            bad,
            Finding { holds: false, strict: None, found: "40, expected at most 32: off by 8 (25 %)".into() }
        );
        assert!(check(r#"near(at(r, "plain", "cut", 1).mean.duration, 24, 0.01)"#).holds);
        assert!(!check(r#"near(at(r, "plain", "cut", 1).duration, 24, 0.01)"#).holds, "it is the median");
    }

    // Claim: A check that widens a printed range reports whether it holds in the range as printed, also among other checks.
    #[test]
    fn a_widened_range_has_a_strict_verdict_beside() {
        let in_it = check("within([11.0, 13.0], 11, 13, 0.05)");
        assert_eq!((in_it.holds, in_it.strict), (true, Some(true)), "{in_it:?}");
        assert_eq!(in_it.found, "11 to 13, expected 11 to 13 ± 5 %");
        let near = check("within([10.5, 13.0], 11, 13, 0.05)");
        assert_eq!((near.holds, near.strict), (true, Some(false)), "{near:?}");
        assert_eq!(near.found, "10.5 to 13, expected 11 to 13 ± 5 %; not in 11 to 13 itself");
        let far = check("within([10.4, 13.0], 11, 13, 0.05)");
        assert_eq!((far.holds, far.strict), (false, Some(false)), "{far:?}");
        assert!(check("within(-11.5, -11, -10, 0.05)").holds, "negative bounds move outwards as well");
        let among = check("every([at_most(1, 2), within(10.5, 11, 13, 0.05), within(11, 11, 13, 0.05)])");
        assert_eq!((among.holds, among.strict), (true, Some(false)));
        let other_fails = check("every([at_most(3, 2), within(11, 11, 13, 0.05)])");
        assert_eq!((other_fails.holds, other_fails.strict), (false, Some(false)));
        assert_eq!(check("every([at_most(1, 2)])").strict, None);
    }

    #[test]
    fn runs_that_were_not_completed_count_but_have_no_values() {
        assert!(check(r#"at(r, "plain", "cut", 3).aborted == 2 && at(r, "plain", "cut", 3).duration == ()"#).holds);
        assert!(check(r#"results("grid").filter(|c| c.aborted > 0).len() == 1"#).holds);
    }

    #[test]
    fn variants_are_compared_at_the_points_that_both_have() {
        let gains = r#"pairs(survivors(r), "wake", "plain", "duration")"#;
        assert!(check(&format!("{gains}.len() == 2")).holds, "nothing of plain was completed at the third");
        let near = check(&format!("near({gains}.map(|p| p.gain), 60.0, 0.17)"));
        assert!(near.holds && near.found.ends_with("; 2 of 9 runs were not completed and are left out"), "{near:?}");
        assert!(check(&format!("less({gains}.map(|p| p.a), {gains}.map(|p| p.b))")).holds);
    }

    /// Aborted runs neither make a claim hold nor make the pair vanish.
    #[test]
    fn incomplete_transfers_count_as_infinitely_slow_in_pairs() {
        let all = check(r#"at_least(pairs(r, "wake", "plain", "duration").map(|p| p.gain), 40)"#);
        assert!(all.holds, "{all:?}");
        assert_eq!(
            all.found,
            "50 to 100, expected at least 40; 2 of 9 runs were not completed and count as infinitely slow"
        );
        let back = check(r#"at_most(pairs(r, "plain", "wake", "duration").map(|p| p.ratio), 5)"#);
        assert!(!back.holds && back.found.contains("off by inf"), "{back:?}");
        let cell = |variant: &str, completed: usize, runs| Cell {
            values: BTreeMap::from([
                ("goodput_of_x".to_owned(), vec![8.0; completed]),
                ("timeouts".to_owned(), vec![0.0; completed]),
            ]),
            completed,
            ..cell(variant, 1.0, &[], runs)
        };
        let cells = vec![cell("good", 3, 3), cell("bad", 1, 3), cell("none", 0, 3), cell("nothing", 0, 2)];
        let scripts = Scripts::new(&BTreeMap::from([("grid".to_owned(), Results { cells })]));
        let of = |script: &str| scripts.check(script, Some("grid"));
        let ratio = |a: &str, b: &str| format!(r#"pairs(r, "{a}", "{b}", "goodput_of_x")[0].ratio"#);
        assert!(of(&format!("{} == 0.0", ratio("bad", "good"))).unwrap().holds, "the median of 8, 0, 0");
        assert!(of(&format!("at_least({}, 1e9)", ratio("good", "none"))).unwrap().holds);
        assert!(of(&ratio("none", "nothing")).unwrap_err().to_string().contains("no point"));
        let count = of(r#"at_most(pairs(r, "good", "bad", "timeouts")[0].ratio, 1)"#).unwrap_err();
        assert!(count.to_string().contains("not a number"), "{count}");
    }

    #[test]
    fn a_column_reports_omitted_runs() {
        let found = check(r#"at_most(col(r, "duration"), 100)"#).found;
        assert_eq!(found, "11 to 40, expected at most 100; 2 of 9 runs were not completed and are left out");
        assert_eq!(check(r#"at_most(col(of(r, "wake"), "duration"), 100)"#).found, "11 to 13, expected at most 100");
    }

    #[test]
    fn values_other_than_numbers_break_a_check() {
        for script in [
            "at_most(0.0 / 0.0, 1)",
            "at_least(1 / 0.0, 1)",
            "at_least(1.0 / 0, 1)",
            "within([1.0, (-1.0).sqrt()], 0, 2)",
        ] {
            let error = scripts().check(script, Some("grid")).unwrap_err().to_string();
            assert!(error.contains("division by zero") || error.contains("not a number"), "{script}: {error}");
        }
        assert!(check("near(7 / 2.0, 3.5, 0.0)").holds && check("7.0 / 2 == 3.5").holds && check("7 / 2 == 3").holds);
    }

    #[test]
    fn trends_and_several_checks_at_once() {
        assert!(check(r#"rising(col(of(r, "wake"), "duration"), 0.0)"#).holds);
        assert!(!check(r#"falling(col(of(r, "wake"), "duration"), 0.5)"#).holds);
        let both = check("every([at_least(1, 0), at_most(2, 1)])");
        assert!(!both.holds && both.found.starts_with("1, expected at least 0; 2, expected at most 1"), "{both:?}");
    }

    #[test]
    fn a_script_that_does_not_work_is_an_error() {
        for (script, part) in [
            ("within(", "cannot parse"),
            (r#"of(r, "no")"#, "no variant"),
            (r#"results("no")"#, "no results"),
            ("within([], 1, 2)", "nothing to check"),
            ("1 + 1", "expected a check"),
            ("loop {}", "operations"),
            (r#"min(col(r, "speed"))"#, "speed"),
        ] {
            let error = scripts().check(script, Some("grid")).unwrap_err().to_string();
            assert!(error.contains(part), "{script}: {error}");
        }
    }
}
