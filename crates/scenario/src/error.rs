//! Errors of a scenario, with their position.

use core::fmt;
use core::ops::Deref;

use serde::Serialize;

/// Why a scenario cannot be run: one [`Diagnostic`].
///
/// [`fmt::Display`] gives one line, `file:line:column: field: message`; [`ScenarioError::report`] the place in its file as
/// well; serialised it is the machine form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize)]
#[error("{0}")]
#[serde(transparent)]
pub struct ScenarioError(Box<Diagnostic>);

/// One problem, with its place and what would be accepted there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Diagnostic {
    /// What sort of problem it is.
    pub kind: ErrorKind,
    /// What is wrong, as a sentence without the place.
    pub message: String,
    /// The field, as a path that `--set` takes: `link.radio.delay`. Empty where no single field is to blame.
    pub field: String,
    /// What was found there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// What would be accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<String>,
    /// The accepted word that looks most like the one found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub did_you_mean: Option<String>,
    /// Which variant or point of a sweep it shows in, if not in the scenario as it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Where it is.
    #[serde(flatten)]
    pub location: Location,
    /// For a problem in a trace: where the scenario names the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_at: Option<Location>,
}

/// The sorts of problems.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file cannot be read.
    Unreadable,
    /// The text is not TOML.
    Syntax,
    /// A field that does not exist.
    UnknownField,
    /// A field that must be there and is not.
    MissingField,
    /// A number where a text is expected, and the like.
    WrongType,
    /// A value that is not among those accepted: a bad unit, a negative rate, an unknown word.
    BadValue,
    /// The name of a host, flow, variant or profile that does not exist.
    UnknownName,
    /// A name that is given twice.
    Duplicate,
    /// Two fields that exclude each other.
    Conflict,
    /// A host or the end of a flow that nothing leads to.
    Unreachable,
    /// A trace that is not what it should be.
    BadTrace,
    /// The path of an override or of a sweep that names nothing.
    NoSuchPath,
}

/// A place in a text.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Location {
    /// The file, or `--set` and the like.
    pub file: String,
    /// The line, from 1; 0 where there is none.
    pub line: usize,
    /// The column in characters, from 1; 0 where there is none.
    pub column: usize,
    /// How many characters on that line are meant.
    #[serde(skip)]
    pub width: usize,
    /// The line itself.
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
    /// Says which variant or point of a sweep the problem shows in.
    pub(crate) fn within(mut self, context: impl FnOnce() -> String) -> Self {
        self.0.context.get_or_insert_with(context);
        self
    }
}

impl Diagnostic {
    /// A problem of which nothing more is known than what is wrong and where.
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
    /// The place of `span` (in bytes) in `text`.
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

    /// A whole line of `text`, from 1.
    pub(crate) fn of_line(file: &str, text: &str, line: usize) -> Self {
        let content = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        let width = content.chars().count().max(1);
        Self { file: file.to_owned(), line, column: 1, width, text: content.to_owned() }
    }

    /// A file as a whole.
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
