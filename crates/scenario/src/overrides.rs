//! Changes of single fields, from the command line, variants or sweeps.

use crate::error::{ErrorKind, ScenarioError};
use crate::problem::Problem;
use crate::tree::{Mark, Source};

/// A field and its new value.
#[derive(Clone, PartialEq, Debug)]
pub struct Override {
    /// The path of the field: `link.radio.delay`, `flow.*.stack.rto.min`.
    pub path: String,
    /// The value.
    pub value: toml::Value,
}

impl Override {
    /// Sets the field at `path` to `value`.
    pub fn new(path: impl Into<String>, value: impl Into<toml::Value>) -> Self {
        Self { path: path.into(), value: value.into() }
    }

    /// Parses `path=value`. A value that is not valid TOML is taken as a text, so that `link.radio.delay=50 ms` needs
    /// no quotes.
    ///
    /// # Errors
    ///
    /// If there is no `=`.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let Some((path, value)) = text.split_once('=') else {
            let problem = Problem::unexpected(ErrorKind::Syntax, format!("\"{text}\""), "path=value");
            let location = crate::Location::of("--set", text, 0..text.len());
            return Err(problem.into_parts().into_error(String::new(), location));
        };
        let (path, value) = (path.trim(), value.trim());
        let parsed = toml::from_str::<toml::Table>(&format!("value = {value}")).ok();
        let parsed = parsed.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
        Ok(Self::new(path, parsed.unwrap_or_else(|| toml::Value::String(value.to_owned()))))
    }

    /// The override as a separate source, with the positions of its path and value.
    pub(crate) fn source(&self, index: usize) -> (Source, Mark, Mark) {
        let text = format!("{} = {}", self.path, self.value);
        let path = Mark::new(index, 0..self.path.len());
        let value = Mark::new(index, self.path.len() + 3..text.len());
        (Source { name: "--set".to_owned(), text }, path, value)
    }
}

/// `path = value`, as in a scenario file.
impl core::fmt::Display for Override {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} = {}", self.path, self.value)
    }
}
