//! The results directory of a run.
//!
//! ```text
//! report.html          everything on one page
//! summary.json         every metric
//! flows.csv            the metrics of flows, one row for each flow and variant
//! differences.csv      simulator and kernel side by side, if a scenario was run in both
//! scenario.toml        the scenario as run, including changes by the command line
//! manifest.json        version, seed, command line, when and how long, and a digest of each file beside it: the only file that
//!                      differs when a run is repeated
//! progress.svg, .png   the variants in one plot
//! variants/NAME/       of each variant: events.jsonl, samples.csv, time-sequence.csv, captures/, plots/
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::ownership::{self, MANIFEST, remove_results};
use crate::part_file::PartFile;
use crate::quantity::{FileNames, plain_name};
use crate::recorder::RecordError;
use crate::summary::Summary;

/// Errors of a results directory.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// The directory is not empty.
    #[error("{} is not empty; choose another directory, or replace the results in it with --force", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// The path is a file.
    #[error("{} is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A file with the name of a run's file was not written by a run, or was changed since.
    #[error(
        "{} was not written by a run, or was changed since, and --force removes only what runs have written; move it away, or \
         choose another directory",
        path.display()
    )]
    NotOfARun {
        /// The file.
        path: PathBuf,
    },
    /// The directory could not be created, read or emptied.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

/// Properties of a run that do not follow from scenario and seed.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Manifest {
    /// The version of Holdover.
    pub version: String,
    /// The seed; `None` if several scenarios ran, each with its own.
    pub seed: Option<u64>,
    /// The command line.
    pub command_line: Vec<String>,
    /// The start of the run, in UTC (ISO 8601).
    pub started_at: String,
    /// The duration of the run.
    pub took_s: f64,
}

/// The results directory of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResultsDir {
    path: PathBuf,
}

impl ResultsDir {
    /// Takes `path`, which must be absent or empty. With `force`, the files of an earlier run are removed first; other files stay. If a
    /// file of the new run already exists and is not an earlier run's, nothing is removed, and the directory is refused.
    pub fn create(path: &Path, force: bool) -> Result<Self, ResultsError> {
        let failed = |error| ResultsError::Io { path: path.to_owned(), error };
        if path.exists() && !path.is_dir() {
            return Err(ResultsError::NotADirectory { path: path.to_owned() });
        }
        fs::create_dir_all(path).map_err(failed)?;
        if force {
            if let Some(path) = ownership::foreign(path).map_err(failed)? {
                return Err(ResultsError::NotOfARun { path });
            }
            remove_results(path).map_err(failed)?;
        } else if fs::read_dir(path).map_err(failed)?.next().is_some() {
            return Err(ResultsError::NotEmpty { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Takes `path` with its content; creates it if needed.
    pub fn open(path: &Path) -> Result<Self, ResultsError> {
        if path.exists() && !path.is_dir() {
            return Err(ResultsError::NotADirectory { path: path.to_owned() });
        }
        fs::create_dir_all(path).map_err(|error| ResultsError::Io { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned() })
    }

    /// Creates a new directory below `parent` for a run of `name` at `stamp`, with a number appended if that one
    /// exists.
    pub fn create_new(parent: &Path, name: &str, stamp: &str) -> Result<Self, ResultsError> {
        fs::create_dir_all(parent).map_err(|error| ResultsError::Io { path: parent.to_owned(), error })?;
        let stem = format!("{}-{stamp}", plain_name(name));
        let mut path = parent.join(&stem);
        let mut number = 2;
        loop {
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    path = parent.join(format!("{stem}-{number}"));
                    number += 1;
                }
                Err(error) => return Err(ResultsError::Io { path, error }),
            }
        }
    }

    /// Removes the run's files, and the directory if it is empty then.
    pub fn discard(&self) -> Result<(), ResultsError> {
        let failed = |error| ResultsError::Io { path: self.path.clone(), error };
        remove_results(&self.path).map_err(failed)?;
        let is_empty = fs::read_dir(&self.path).map_err(failed)?.next().is_none();
        if is_empty { fs::remove_dir(&self.path).map_err(failed) } else { Ok(()) }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directories of variants with these names, relative to the run's: in the same order, all distinct.
    pub fn variant_directories<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut taken = FileNames::default();
        names.into_iter().map(|name| format!("variants/{}", taken.unique(name))).collect()
    }

    /// Writes a file atomically, creating parent directories.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), RecordError> {
        let path = self.path.join(name);
        let parent = path.parent().unwrap_or(&self.path);
        fs::create_dir_all(parent).map_err(|error| RecordError::io(parent, error))?;
        PartFile::write(&path, content).map_err(|error| RecordError::io(&path, error))
    }

    /// Writes the results: `summary.json`, `flows.csv` and, if there are any, `differences.csv`.
    pub fn write_summary(&self, summary: &Summary) -> Result<(), RecordError> {
        self.write("flows.csv", &summary.flows_csv(&self.path.join("flows.csv"))?)?;
        if !summary.differences().is_empty() {
            let name = "differences.csv";
            self.write(name, &summary.differences_csv(&self.path.join(name))?)?;
        }
        self.write("summary.json", summary.to_json().as_bytes())
    }

    /// Writes `manifest.json`, with a digest of each file beside it. It is written last and marks the results as
    /// complete.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<(), RecordError> {
        #[derive(Serialize)]
        struct WithFiles<'a> {
            #[serde(flatten)]
            manifest: &'a Manifest,
            files: std::collections::BTreeMap<&'static str, String>,
        }
        let files = ownership::digests(&self.path).map_err(|error| RecordError::io(&self.path, error))?;
        let mut json = serde_json::to_string_pretty(&WithFiles { manifest, files }).unwrap_or_default();
        json.push('\n');
        self.write(MANIFEST, json.as_bytes())
    }
}
