//! Open inputs of a paper: the fields that they set in its scenarios, and the values supported by evidence.
//!
//! ```toml
//! [[open]]
//! name = "window"
//! paths = ["stack.receive_buffer"]
//! scenarios = ["table-2"]                      # all of the paper's if left out
//! range = { from = "64 kB", to = "256 kB", scale = "logarithmic" }
//! evidence = "not stated; Linux 2.1 offered 32 kB, other stacks of 1999 up to 64 kB"
//! source = "section IV"
//! ```
//!
//! Instead of a range an input may have `alternatives`: a list of values for its paths, or of tables
//! `{ name = "...", set = { "path" = value } }` where an alternative changes several fields at once.

use holdover_scenario::{Diagnostic, ErrorKind, Interval, Location, Override, Scenario, ScenarioError};
use serde::Deserialize;
use toml::{Spanned, Value};

/// An open input: a value not stated by the paper.
#[derive(Clone, Debug)]
pub struct Open {
    /// Its name.
    pub name: String,
    /// The fields set; for alternatives with fields of their own, additional fields.
    pub paths: Vec<Place>,
    /// The scenarios that it applies to; empty for all.
    scenarios: Vec<Place>,
    /// The possible values.
    pub domain: Domain,
    /// The evidence for these values.
    pub evidence: String,
    /// The open passage in the paper, or the source of the evidence.
    pub source: String,
    place: Location,
}

/// A text in the paper's file, with its position.
#[derive(Clone, Debug)]
pub struct Place {
    /// The text.
    pub text: String,
    at: Location,
}

/// The possible values of an input.
#[derive(Clone, Debug)]
pub enum Domain {
    /// A continuous range.
    Range {
        /// The range.
        interval: Interval,
        /// Its position in the paper's file.
        at: Location,
    },
    /// A list of alternatives.
    Alternatives(Vec<Alternative>),
}

/// An alternative.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// Its name in settings: the value itself if it has no other name.
    pub name: Value,
    /// The fields set.
    pub set: Vec<(String, Value)>,
    at: Location,
}

#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Form {
    name: Spanned<String>,
    #[serde(default)]
    paths: Vec<Spanned<String>>,
    #[serde(default)]
    scenarios: Vec<Spanned<String>>,
    range: Option<Spanned<RangeForm>>,
    alternatives: Option<Spanned<Vec<Spanned<Value>>>>,
    evidence: String,
    source: String,
}

#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct RangeForm {
    from: Spanned<Value>,
    to: Spanned<Value>,
    scale: Option<ScaleForm>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
enum ScaleForm {
    Linear,
    Logarithmic,
}

#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct AlternativeForm {
    name: String,
    set: toml::Table,
}

/// The text of a form, with its name in messages.
#[derive(Clone, Copy)]
pub(super) struct File<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl File<'_> {
    pub(super) fn place<T>(&self, spanned: &Spanned<T>) -> Location {
        Location::of(self.name, self.text, spanned.span())
    }
}

pub(super) fn error(kind: ErrorKind, field: &str, message: impl Into<String>, location: Location) -> ScenarioError {
    ScenarioError::from(Diagnostic { field: field.to_owned(), ..Diagnostic::new(kind, message, location) })
}

/// The inputs of a paper's file.
pub(super) fn read(forms: Vec<Form>, file: File<'_>) -> Result<Vec<Open>, ScenarioError> {
    let mut all: Vec<Open> = Vec::with_capacity(forms.len());
    for form in forms {
        let open = Open::read(form, file)?;
        if all.iter().any(|other| other.name == open.name) {
            let message = format!("two open inputs are called \"{}\"", open.name);
            return Err(error(ErrorKind::Duplicate, "open.name", message, open.place));
        }
        all.push(open);
    }
    Ok(all)
}

impl Open {
    fn read(form: Form, file: File<'_>) -> Result<Self, ScenarioError> {
        let place = file.place(&form.name);
        let name = form.name.get_ref().clone();
        let field = |key: &str| format!("open.{name}.{key}");
        let domain = match (&form.range, &form.alternatives) {
            (Some(range), None) => of_range(range, file, &field("range"))?,
            (None, Some(list)) => of_alternatives(list, &form.paths, file, &field("alternatives"))?,
            (Some(range), Some(_)) => {
                let message = "it has both \"range\" and \"alternatives\"; choose one";
                return Err(error(ErrorKind::Conflict, &field("range"), message, file.place(range)));
            }
            (None, None) => {
                let message = "the field \"range\" or \"alternatives\" is missing";
                return Err(error(ErrorKind::MissingField, &format!("open.{name}"), message, place));
            }
        };
        let named = |list: Vec<Spanned<String>>| {
            list.into_iter().map(|text| Place { at: file.place(&text), text: text.into_inner() }).collect::<Vec<_>>()
        };
        let open = Self {
            paths: named(form.paths),
            scenarios: named(form.scenarios),
            domain,
            evidence: form.evidence,
            source: form.source,
            name,
            place,
        };
        let sets_nothing = |domain: &Domain| match domain {
            Domain::Range { .. } => open.paths.is_empty(),
            Domain::Alternatives(list) => list.iter().all(|alternative| alternative.set.is_empty()),
        };
        if sets_nothing(&open.domain) {
            let message = "it sets no field: \"paths\" is missing";
            return Err(error(ErrorKind::MissingField, &format!("open.{}.paths", open.name), message, open.place));
        }
        Ok(open)
    }

    /// Whether it sets a field in a scenario.
    pub fn applies_to(&self, scenario: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|name| name.text == scenario)
    }

    /// The value at a position from 0 to 1.
    pub fn at(&self, place: f64) -> Value {
        match &self.domain {
            Domain::Range { interval, .. } => interval.at(place),
            Domain::Alternatives(list) => {
                let index = (place.clamp(0.0, 1.0) * list.len() as f64) as usize;
                list[index.min(list.len() - 1)].name.clone()
            }
        }
    }

    /// The position of a value; `None` if the value is not possible. An alternative is in the middle of its share.
    pub fn place_of(&self, value: &Value) -> Option<f64> {
        match &self.domain {
            Domain::Range { interval, .. } => interval.place_of(value),
            Domain::Alternatives(list) => {
                let index = list.iter().position(|alternative| alternative.name == *value)?;
                Some((index as f64 + 0.5) / list.len() as f64)
            }
        }
    }

    /// The changes made by a value in the scenarios that the input applies to.
    pub fn overrides(&self, value: &Value) -> Vec<Override> {
        match &self.domain {
            Domain::Range { .. } => self.paths.iter().map(|path| Override::new(&path.text, value.clone())).collect(),
            Domain::Alternatives(list) => {
                let chosen = list.iter().find(|alternative| alternative.name == *value);
                let set = chosen.into_iter().flat_map(|alternative| &alternative.set);
                set.map(|(path, value)| Override::new(path, value.clone())).collect()
            }
        }
    }

    /// `64 kB to 256 kB, logarithmic`, or the alternatives.
    pub fn in_words(&self) -> String {
        match &self.domain {
            Domain::Range { interval, .. } => {
                let scale = if interval.is_logarithmic() { ", logarithmic" } else { "" };
                format!("{} to {}{scale}", words(&interval.at(0.0)), words(&interval.at(1.0)))
            }
            Domain::Alternatives(list) => {
                list.iter().map(|alternative| words(&alternative.name)).collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// Tries every alternative, or both ends, in the scenarios that the input applies to. `scenario` returns one by its name.
    ///
    /// # Errors
    ///
    /// A scenario that does not exist, a path that does not exist or is swept, or an invalid value, with its position in the paper's file.
    pub fn check(
        &self,
        known: &[String],
        mut scenario: impl FnMut(&str) -> Result<Scenario, ScenarioError>,
    ) -> Result<(), ScenarioError> {
        for name in &self.scenarios {
            if !known.contains(&name.text) {
                let message = format!("there is no scenario \"{}\" among those that the paper runs", name.text);
                let field = format!("open.{}.scenarios", self.name);
                return Err(error(ErrorKind::UnknownName, &field, message, name.at.clone()));
            }
        }
        for name in known.iter().filter(|name| self.applies_to(name)) {
            self.check_in(name, &scenario(name)?)?;
        }
        Ok(())
    }

    fn check_in(&self, name: &str, scenario: &Scenario) -> Result<(), ScenarioError> {
        let values: Vec<(Value, &Location)> = match &self.domain {
            Domain::Range { at, interval } => vec![(interval.at(0.0), at), (interval.at(1.0), at)],
            Domain::Alternatives(list) => list.iter().map(|one| (one.name.clone(), &one.at)).collect(),
        };
        let axes = scenario.sweep().map(|sweep| sweep.axes()).unwrap_or_default();
        for (value, at) in values {
            let overrides = self.overrides(&value);
            for change in &overrides {
                let path = self.paths.iter().find(|path| path.text == change.path);
                let location = path.map_or(at, |path| &path.at);
                if axes.iter().any(|axis| axis.path == change.path) {
                    let message = format!("it is an axis of the sweep of scenario \"{name}\"");
                    return Err(error(ErrorKind::Conflict, &change.path, message, location.clone()));
                }
            }
            if let Err(found) = scenario.with(&overrides) {
                return Err(self.in_paper(&found, name, &value, at));
            }
        }
        Ok(())
    }

    /// Maps the error of a scenario at a value to the paper's file.
    fn in_paper(&self, found: &ScenarioError, scenario: &str, value: &Value, at: &Location) -> ScenarioError {
        let is_path = matches!(found.kind, ErrorKind::NoSuchPath | ErrorKind::UnknownField);
        let named =
            self.paths.iter().find(|path| path.text == found.field || found.location.text.starts_with(&path.text));
        let location = named.filter(|_| is_path).map_or(at, |path| &path.at);
        ScenarioError::from(Diagnostic {
            location: location.clone(),
            context: Some(format!("scenario \"{scenario}\" with open input \"{}\" at {}", self.name, words(value))),
            ..(**found).clone()
        })
    }
}

fn of_range(range: &Spanned<RangeForm>, file: File<'_>, field: &str) -> Result<Domain, ScenarioError> {
    let form = range.get_ref();
    let logarithmic = form.scale == Some(ScaleForm::Logarithmic);
    let interval = Interval::new(form.from.get_ref(), form.to.get_ref(), logarithmic).map_err(|wrong| {
        let end = if wrong.key == "from" { &form.from } else { &form.to };
        error(ErrorKind::BadValue, &format!("{field}.{}", wrong.key), wrong.message, file.place(end))
    })?;
    Ok(Domain::Range { interval, at: file.place(range) })
}

fn of_alternatives(
    list: &Spanned<Vec<Spanned<Value>>>,
    paths: &[Spanned<String>],
    file: File<'_>,
    field: &str,
) -> Result<Domain, ScenarioError> {
    let mut all: Vec<Alternative> = Vec::new();
    for value in list.get_ref() {
        let at = file.place(value);
        let alternative = match value.get_ref() {
            Value::Table(table) if table.contains_key("set") => {
                let form: AlternativeForm = table.clone().try_into().map_err(|wrong: toml::de::Error| {
                    error(ErrorKind::WrongType, field, wrong.message().to_owned(), at.clone())
                })?;
                Alternative { name: form.name.into(), set: form.set.into_iter().collect(), at }
            }
            value => {
                let set = paths.iter().map(|path| (path.get_ref().clone(), value.clone())).collect();
                Alternative { name: value.clone(), set, at }
            }
        };
        if all.iter().any(|other| other.name == alternative.name) {
            let message = format!("{} stands there twice", alternative.name);
            return Err(error(ErrorKind::Duplicate, field, message, alternative.at));
        }
        all.push(alternative);
    }
    if all.len() < 2 {
        let message = format!("{} alternatives; at least two leave something open", all.len());
        return Err(error(ErrorKind::BadValue, field, message, file.place(list)));
    }
    Ok(Domain::Alternatives(all))
}

/// A value in words: texts without quotes.
pub fn words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
