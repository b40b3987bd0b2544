//! File access of this crate.

// Only this module reads files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::path::{Path, PathBuf};

use crate::builtin::Builtin;
use crate::error::{Diagnostic, ErrorKind, Location, ScenarioError};
use crate::scenario::Scenario;
use crate::traces::Files;

/// A directory.
impl Files for PathBuf {
    fn read(&self, name: &str) -> Result<String, String> {
        std::fs::read_to_string(self.join(name)).map_err(|error| error.to_string())
    }

    fn display_name(&self, name: &str) -> String {
        self.join(name).display().to_string()
    }
}

impl Scenario {
    /// Reads a scenario file and the traces that it names, which are relative to it.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or the scenario is invalid: see [`Scenario::parse`].
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let message = format!("the scenario cannot be read: {error}");
            Diagnostic::new(ErrorKind::Unreadable, message, Location::of_file(&name))
        })?;
        Self::parse(&name, &text, path.parent().map_or_else(PathBuf::new, Path::to_path_buf))
    }

    /// Reads a scenario file or, if there is no such file, the built-in scenario of that name.
    ///
    /// # Errors
    ///
    /// As [`Scenario::read`], or if there is neither.
    pub fn open(file_or_name: &str) -> Result<Self, ScenarioError> {
        let path = Path::new(file_or_name);
        match Builtin::find(file_or_name) {
            // A directory may have the name of the scenario whose results it contains.
            Some(builtin) if !path.exists() || path.is_dir() => builtin.scenario(),
            _ if path.exists() => Self::read(path),
            _ => {
                let names: Vec<&str> = Builtin::ALL.iter().map(|builtin| builtin.name).collect();
                let known = crate::problem::list_words(&names);
                let message =
                    format!("there is no such file, and no built-in scenario of that name; there are {known}");
                let mut diagnostic = Diagnostic::new(ErrorKind::Unreadable, message, Location::of_file(file_or_name));
                diagnostic.did_you_mean = crate::suggest::closest(file_or_name, &names).map(str::to_owned);
                Err(diagnostic.into())
            }
        }
    }
}
