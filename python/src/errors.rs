//! Errors of the library crates as exceptions of the Python half.

use std::fmt::Display;

use holdover_scenario::{ScenarioError, Style};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An exception of the class `name`, which takes a message and these keywords.
fn raise(py: Python<'_>, name: &str, message: &str, fields: &Bound<'_, PyDict>) -> PyErr {
    let made = || py.import("holdover.errors")?.getattr(name)?.call((message,), Some(fields));
    match made() {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// `holdover.HoldoverError`: something failed.
pub(crate) fn failed(py: Python<'_>, error: impl Display) -> PyErr {
    raise(py, "HoldoverError", &error.to_string(), &PyDict::new(py))
}

/// `holdover.ScenarioError`, with the place of the problem.
pub(crate) fn scenario_error(py: Python<'_>, error: &ScenarioError) -> PyErr {
    let fields = PyDict::new(py);
    let kind = serde_json::to_value(error.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
    let filled = || {
        fields.set_item("kind", kind.unwrap_or_default())?;
        fields.set_item("field", &error.field)?;
        fields.set_item("found", &error.found)?;
        fields.set_item("accepted", &error.accepted)?;
        fields.set_item("did_you_mean", &error.did_you_mean)?;
        fields.set_item("context", &error.context)?;
        fields.set_item("file", &error.location.file)?;
        fields.set_item("line", error.location.line)?;
        fields.set_item("column", error.location.column)?;
        fields.set_item("report", error.report(Style::Plain))
    };
    match filled() {
        Ok(()) => raise(py, "ScenarioError", &error.to_string(), &fields),
        Err(error) => error,
    }
}

/// `holdover.Interrupted`: a sweep or run was stopped.
pub(crate) fn interrupted(py: Python<'_>, message: &str) -> PyErr {
    raise(py, "Interrupted", message, &PyDict::new(py))
}
