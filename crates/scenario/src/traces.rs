//! The traces of a scenario: read through [`Files`], parsed once.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use holdover_link::{AtEnd, ConditionTrace, DeliveryTrace, TraceError};

use crate::error::{ErrorKind, Location};
use crate::file::{Trace, TraceFormat};
use crate::problem::{Problem, Under};

/// A source of the files named by a scenario: a directory, or compiled-in files.
pub trait Files: fmt::Debug + Send + Sync {
    /// Reads the file called `name` in a scenario.
    ///
    /// # Errors
    ///
    /// The reason, in words.
    fn read(&self, name: &str) -> Result<String, String>;

    /// The file's name in messages.
    fn display_name(&self, name: &str) -> String {
        name.to_owned()
    }
}

/// A source without files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _name: &str) -> Result<String, String> {
        Err("there are no files here".to_owned())
    }
}

/// A parsed trace.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Loaded {
    Deliveries(Arc<DeliveryTrace>),
    Conditions(Arc<ConditionTrace>),
}

/// The files and traces read so far.
#[derive(Clone, Debug)]
pub(crate) struct Traces {
    files: Arc<dyn Files>,
    texts: BTreeMap<String, Arc<str>>,
    parsed: BTreeMap<(String, TraceFormat, bool), Loaded>,
}

impl Traces {
    pub(crate) fn new(files: Arc<dyn Files>) -> Self {
        Self { files, texts: BTreeMap::new(), parsed: BTreeMap::new() }
    }

    /// The names in the scenario and the texts of all files read.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(name, text)| (name.as_str(), &**text))
    }

    /// Loads the trace described by a table. A problem lies below that table.
    pub(crate) fn load(&mut self, trace: &Trace) -> Result<Loaded, Problem> {
        let at_end = trace.at_end.map_or(AtEnd::Repeat, |at_end| at_end.0);
        let key = (trace.file.clone(), trace.format(), at_end == AtEnd::Stop);
        if let Some(loaded) = self.parsed.get(&key) {
            return Ok(loaded.clone());
        }
        let text = self.text(&trace.file).under("file")?;
        let parsed = match trace.format() {
            TraceFormat::Mahimahi => DeliveryTrace::parse(&text, at_end).map(|trace| Loaded::Deliveries(trace.into())),
            TraceFormat::Csv => ConditionTrace::parse(&text, at_end).map(|trace| Loaded::Conditions(trace.into())),
        };
        let loaded = parsed.map_err(|error| self.bad_trace(&trace.file, &text, &error)).under("file")?;
        self.parsed.insert(key, loaded.clone());
        Ok(loaded)
    }

    fn text(&mut self, name: &str) -> Result<Arc<str>, Problem> {
        if let Some(text) = self.texts.get(name) {
            return Ok(Arc::clone(text));
        }
        let text = self.files.read(name).map_err(|reason| {
            let name = self.files.display_name(name);
            Problem::new(ErrorKind::Unreadable, format!("the trace {name} cannot be read: {reason}"))
        })?;
        // Spreadsheets write a byte order mark.
        let text: Arc<str> = text.strip_prefix('\u{feff}').unwrap_or(&text).into();
        self.texts.insert(name.to_owned(), Arc::clone(&text));
        Ok(text)
    }

    fn bad_trace(&self, name: &str, text: &str, error: &TraceError) -> Problem {
        let file = self.files.display_name(name);
        let location = match line_of(error) {
            Some(line) => Location::of_line(&file, text, line),
            None => Location::of_file(&file),
        };
        let message = error.to_string();
        let message = match line_of(error) {
            Some(line) => message.trim_start_matches(&format!("line {line}: ")).to_owned(),
            None => message,
        };
        Problem::new(ErrorKind::BadTrace, message).elsewhere(location)
    }
}

fn line_of(error: &TraceError) -> Option<usize> {
    match error {
        TraceError::Empty => None,
        TraceError::Truncated { line }
        | TraceError::Value { line, .. }
        | TraceError::OutOfOrder { line, .. }
        | TraceError::FieldCount { line, .. }
        | TraceError::UnknownColumn { line, .. }
        | TraceError::DuplicateColumn { line, .. }
        | TraceError::DelayTwice { line }
        | TraceError::MissingColumn { line }
        | TraceError::NoLength { line } => Some(*line),
    }
}
