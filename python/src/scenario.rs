//! Scenarios.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdover_scenario::{Builtin, Files, Override, Scenario};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{failed, scenario_error};
use crate::values;

/// A scenario that was read and checked.
#[pyclass(frozen, name = "Scenario", module = "holdover._holdover")]
pub(crate) struct PyScenario(pub(crate) Scenario);

/// Files that came with a scenario, by their names in it, and a directory for others.
#[derive(Debug)]
struct Carried {
    texts: BTreeMap<String, String>,
    directory: Option<PathBuf>,
}

impl Files for Carried {
    fn read(&self, name: &str) -> Result<String, String> {
        match (self.texts.get(name), &self.directory) {
            (Some(text), _) => Ok(text.clone()),
            (None, Some(directory)) => directory.read(name),
            (None, None) => Err("the scenario has no directory; give one when it is made".to_owned()),
        }
    }

    fn display_name(&self, name: &str) -> String {
        self.directory.as_ref().map_or_else(|| name.to_owned(), |directory| directory.display_name(name))
    }
}

#[pymethods]
impl PyScenario {
    #[staticmethod]
    fn open(py: Python<'_>, file_or_name: &str) -> PyResult<Self> {
        Scenario::open(file_or_name).map(Self).map_err(|error| scenario_error(py, &error))
    }

    #[staticmethod]
    fn parse(
        py: Python<'_>,
        name: &str,
        text: &str,
        files: BTreeMap<String, String>,
        directory: Option<PathBuf>,
    ) -> PyResult<Self> {
        let files = Carried { texts: files, directory };
        Scenario::parse(name, text, files).map(Self).map_err(|error| scenario_error(py, &error))
    }

    #[staticmethod]
    fn from_dict(
        py: Python<'_>,
        name: &str,
        content: &Bound<'_, PyDict>,
        directory: Option<PathBuf>,
    ) -> PyResult<Self> {
        let table = values::table(content, 0)?;
        let text = toml::to_string_pretty(&table).map_err(|error| failed(py, error))?;
        Self::parse(py, name, &text, BTreeMap::new(), directory)
    }

    fn with_changes(&self, py: Python<'_>, changes: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let changes = changes.into_iter().map(|(path, value)| Ok(Override::new(path, values::to_toml(&value)?)));
        let changes = changes.collect::<PyResult<Vec<_>>>()?;
        self.0.with(&changes).map(Self).map_err(|error| scenario_error(py, &error))
    }

    /// Changes as `--set` takes them.
    fn with_texts(&self, py: Python<'_>, changes: Vec<String>) -> PyResult<Self> {
        let changes = changes.iter().map(|text| Override::parse(text)).collect::<Result<Vec<_>, _>>();
        let changed =
            changes.and_then(|changes| if changes.is_empty() { Ok(self.0.clone()) } else { self.0.with(&changes) });
        changed.map(Self).map_err(|error| scenario_error(py, &error))
    }

    fn to_toml(&self) -> String {
        self.0.to_toml()
    }

    fn files(&self) -> BTreeMap<String, String> {
        self.0.files().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn title(&self) -> &str {
        self.0.title()
    }

    #[getter]
    fn description(&self) -> Option<&str> {
        self.0.description()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.0.seed()
    }

    #[getter]
    fn has_sweep(&self) -> bool {
        self.0.sweep().is_some()
    }

    #[getter]
    fn variants(&self) -> Vec<(String, Option<String>)> {
        let named = |variant: &holdover_scenario::Variant| {
            (variant.name().to_owned(), variant.description().map(str::to_owned))
        };
        self.0.variants().iter().map(named).collect()
    }
}

/// The names of the built-in scenarios.
#[pyfunction]
pub(crate) fn builtin_scenarios() -> Vec<&'static str> {
    Builtin::ALL.iter().map(|builtin| builtin.name).collect()
}

/// The JSON schema of scenario files.
#[pyfunction]
pub(crate) fn schema() -> String {
    holdover_scenario::schema()
}
