//! Errors of a scenario, with their position.

use core::fmt;
use core::ops::Deref;

use serde::Serialize;

/// The error of a scenario: one [`Diagnostic`].
///
/// [`fmt::Display`] gives one line, `file:line:column: field: message`; [`ScenarioError::report`] adds the line in the file; serialization
/// gives the machine-readable form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize)]
#[error("{0}")]
#[serde(transparent)]
pub struct ScenarioError(Box<Diagnostic>);

/// A problem with its position and the accepted values.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Diagnostic {
    /// The kind of problem.
    pub kind: ErrorKind,
    /// The message, as a sentence without the position.
    pub message: String,
    /// The field, as a path for `--set`: `link.radio.delay`. Empty if no single field is at fault.
    pub field: String,
    /// The value found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// The accepted values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<String>,
    /// The accepted word closest to the one found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub did_you_mean: Option<String>,
    /// The variant or point of a sweep in which the problem occurs, if it does not occur in the scenario as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The position.
    #[serde(flatten)]
    pub location: Location,
    /// For a problem in a trace: the position of its name in the scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_at: Option<Location>,
}

/// The kinds of problems.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file cannot be read.
    Unreadable,
    /// The text is not TOML.
    Syntax,
    /// An unknown field.
    UnknownField,
    /// A missing field.
    MissingField,
    /// A wrong type, such as a number instead of a text.
    WrongType,
    /// A value that is not accepted: a bad unit, a negative rate, an unknown word.
    BadValue,
    /// The name of a host, flow, variant or profile that does not exist.
    UnknownName,
    /// A duplicate name.
    Duplicate,
    /// Two fields that exclude each other.
    Conflict,
    /// A host or the end of a flow without a path to it.
    Unreachable,
    /// An invalid trace.
    BadTrace,
    /// A path of an override or of a sweep that does not exist.
    NoSuchPath,
}

/// A position in a text.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Location {
    /// The file, or a source such as `--set`.
    pub file: String,
    /// The line, from 1; 0 if unknown.
    pub line: usize,
    /// The column in characters, from 1; 0 if unknown.
    pub column: usize,
    /// The number of characters concerned on that line.
    #[serde(skip)]
    pub width: usize,
    /// The text of the line.
    #[serde(skip)]
    pub text: String,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        Ok(())
    }
}

impl From<Diagnostic> for ScenarioError {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(Box::new(diagnostic))
    }
}

impl Deref for ScenarioError {
    type Target = Diagnostic;

    fn deref(&self) -> &Diagnostic {
        &self.0
    }
}

impl ScenarioError {
    /// Sets the variant or point of a sweep in which the problem occurs.
    pub(crate) fn within(mut self, context: impl FnOnce() -> String) -> Self {
        self.0.context.get_or_insert_with(context);
        self
    }
}

impl Diagnostic {
    /// A problem with only a message and a position.
    pub fn new(kind: ErrorKind, message: impl Into<String>, location: Location) -> Self {
        Self {
            kind,
            message: message.into(),
            field: String::new(),
            found: None,
            accepted: None,
            did_you_mean: None,
            context: None,
            location,
            named_at: None,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if let Some(context) = &self.context {
            write!(f, " (in {context})")?;
        }
        if let Some(word) = &self.did_you_mean {
            write!(f, "; did you mean \"{word}\"?")?;
        }
        Ok(())
    }
}

impl Location {
    /// The position of `span` (in bytes) in `text`.
    pub fn of(file: &str, text: &str, span: core::ops::Range<usize>) -> Self {
        let start = floor(text, span.start);
        let end = floor(text, span.end.max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        Self {
            file: file.to_owned(),
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            width: text[start..end.min(line_end)].chars().count().max(1),
            text: text[line_start..line_end].trim_end_matches('\r').to_owned(),
        }
    }

    /// A whole line of `text`, counted from 1.
    pub(crate) fn of_line(file: &str, text: &str, line: usize) -> Self {
        let content = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        let width = content.chars().count().max(1);
        Self { file: file.to_owned(), line, column: 1, width, text: content.to_owned() }
    }

    /// A whole file.
    pub(crate) fn of_file(file: &str) -> Self {
        Self { file: file.to_owned(), ..Self::default() }
    }
}

/// The last character boundary of `text` at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
