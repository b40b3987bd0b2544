//! An error before its position in the text is known.

use core::fmt;

use serde::de;

use crate::error::{Diagnostic, ErrorKind, Location, ScenarioError};
use crate::suggest::closest;

/// A problem with its path from the root of the file, innermost step first.
#[derive(Debug)]
pub(crate) struct Problem(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    found: Option<String>,
    accepted: Option<String>,
    did_you_mean: Option<String>,
    /// Innermost first.
    steps: Vec<Step>,
    /// The problem concerns the key of the innermost step, not its value.
    at_key: bool,
    elsewhere: Option<Location>,
}

/// A step from a table or list to one of its values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// The parts of a problem.
pub(crate) struct Parts {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) found: Option<String>,
    pub(crate) accepted: Option<String>,
    pub(crate) did_you_mean: Option<String>,
    /// Outermost first.
    pub(crate) steps: Vec<Step>,
    pub(crate) at_key: bool,
    pub(crate) elsewhere: Option<Location>,
}

impl Problem {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            found: None,
            accepted: None,
            did_you_mean: None,
            steps: Vec::new(),
            at_key: false,
            elsewhere: None,
        }))
    }

    /// A value other than the accepted ones.
    pub(crate) fn unexpected(kind: ErrorKind, found: impl Into<String>, accepted: impl Into<String>) -> Self {
        let (found, accepted) = (found.into(), accepted.into());
        let mut problem = Self::new(kind, format!("found {found}, expected {accepted}"));
        problem.0.found = Some(found);
        problem.0.accepted = Some(accepted);
        problem
    }

    /// A name that does not exist.
    pub(crate) fn unknown_name<'a>(what: &str, found: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let mut problem = if known.is_empty() {
            Self::new(ErrorKind::UnknownName, format!("there is no {what} \"{found}\""))
        } else {
            let list = list_words(&known);
            let mut problem =
                Self::new(ErrorKind::UnknownName, format!("no {what} is called \"{found}\"; there are {list}"));
            problem.0.accepted = Some(list);
            problem
        };
        problem.0.found = Some(format!("\"{found}\""));
        problem.0.did_you_mean = closest(found, &known).map(str::to_owned);
        problem
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// The problem is in another file; the steps lead to the name of that file.
    pub(crate) fn elsewhere(mut self, location: Location) -> Self {
        self.0.elsewhere = Some(location);
        self
    }

    /// The problem concerns the key, not the value.
    pub(crate) fn at_key(mut self) -> Self {
        self.0.at_key = true;
        self
    }

    pub(crate) fn under(mut self, key: &str) -> Self {
        self.0.steps.push(Step::Key(key.to_owned()));
        self
    }

    pub(crate) fn under_index(mut self, index: usize) -> Self {
        self.0.steps.push(Step::Index(index));
        self
    }

    /// The problem lies at `steps`, outermost first, below the path added later.
    pub(crate) fn at_steps(mut self, steps: &[Step]) -> Self {
        self.0.steps.extend(steps.iter().rev().cloned());
        self
    }

    pub(crate) fn into_parts(self) -> Parts {
        let Inner { kind, message, found, accepted, did_you_mean, mut steps, at_key, elsewhere } = *self.0;
        steps.reverse();
        Parts { kind, message, found, accepted, did_you_mean, steps, at_key, elsewhere }
    }
}

impl Parts {
    /// The error, with its position.
    pub(crate) fn into_error(self, field: String, here: Location) -> ScenarioError {
        let Self { kind, message, found, accepted, did_you_mean, elsewhere, .. } = self;
        let (location, named_at) = match elsewhere {
            Some(there) => (there, Some(here)),
            None => (here, None),
        };
        Diagnostic { kind, message, field, found, accepted, did_you_mean, context: None, location, named_at }.into()
    }
}

/// Adds a step to the path of a problem.
pub(crate) trait Under {
    fn under(self, key: &str) -> Self;
    fn under_index(self, index: usize) -> Self;
}

impl<T> Under for Result<T, Problem> {
    fn under(self, key: &str) -> Self {
        self.map_err(|problem| problem.under(key))
    }

    fn under_index(self, index: usize) -> Self {
        self.map_err(|problem| problem.under_index(index))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl core::error::Error for Problem {}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(ErrorKind::BadValue, message.to_string())
    }

    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::unexpected(ErrorKind::WrongType, describe(found), plain(&expected.to_string()))
    }

    fn invalid_value(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::unexpected(ErrorKind::BadValue, describe(found), plain(&expected.to_string()))
    }

    fn invalid_length(len: usize, expected: &dyn de::Expected) -> Self {
        Self::unexpected(ErrorKind::BadValue, format!("{len} elements"), plain(&expected.to_string()))
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        let mut problem =
            Self::unexpected(ErrorKind::BadValue, format!("\"{found}\""), format!("one of {}", list_words(expected)));
        problem.0.did_you_mean = closest(found, expected).map(str::to_owned);
        problem
    }

    fn unknown_field(found: &str, expected: &'static [&'static str]) -> Self {
        let mut problem = Self::new(ErrorKind::UnknownField, format!("there is no field \"{found}\" here"));
        problem.0.found = Some(format!("\"{found}\""));
        problem.0.accepted = Some(list_words(expected));
        problem.0.did_you_mean = closest(found, expected).map(str::to_owned);
        problem
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(ErrorKind::MissingField, format!("the field \"{field}\" is missing"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(ErrorKind::Duplicate, format!("the field \"{field}\" is given twice"))
    }
}

/// `"a", "b", "c"`.
pub(crate) fn list_words(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

fn describe(found: de::Unexpected<'_>) -> String {
    match found {
        de::Unexpected::Bool(value) => value.to_string(),
        de::Unexpected::Unsigned(value) => format!("the number {value}"),
        de::Unexpected::Signed(value) => format!("the number {value}"),
        de::Unexpected::Float(value) => format!("the number {value}"),
        de::Unexpected::Str(value) => format!("\"{value}\""),
        de::Unexpected::Seq => "a list".to_owned(),
        de::Unexpected::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

/// The expectation of serde's own implementations, in words.
fn plain(expected: &str) -> String {
    match expected {
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" => "a whole number from 0 to 4294967295".to_owned(),
        "u64" => "a whole number of at least 0".to_owned(),
        "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" => "a text in quotes".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a table".to_owned(),
        other if other.starts_with("struct ") => "a table".to_owned(),
        other => other.to_owned(),
    }
}
