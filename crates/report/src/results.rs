//! The results directory of a run.
//!
//! ```text
//! report.html          everything on one page
//! summary.json         every metric
//! flows.csv            the metrics of flows, one row for each flow and variant
//! differences.csv      simulator and kernel side by side, if a scenario was run in both
//! scenario.toml        the scenario as run, including changes by the command line
//! manifest.json        version, seed, command line, when and how long, and a digest of each file of the run: the only file that
//!                      differs when a run is repeated
//! progress.svg, .png   the variants in one plot
//! variants/NAME/       of each variant: events.jsonl, samples.csv, time-sequence.csv, captures/, plots/
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use holdover_sim::WorldConfig;
use serde::Serialize;

use crate::error::RecordError;
use crate::ownership::{self, Foreign, MANIFEST, NotOfARun, is_inside, is_reserved};
use crate::part_file::Written;
use crate::plots::Plot;
use crate::quantity::{FileNames, plain_name};
use crate::recorder::{Recorder, RecorderOptions};
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
    /// A file with the name of a run's file is not in the manifest of a run, or was changed since.
    #[error(
        "{} {reason}, and --force replaces only what completed runs have written; move it away, or choose another directory",
        path.display()
    )]
    NotOfARun {
        /// The file.
        path: PathBuf,
        /// Why it is not known to be a run's.
        reason: NotOfARun,
    },
    /// The copy of a file that the scenario names would replace a result.
    #[error("the scenario names the file {name}, whose copy would replace a result of that name; rename it")]
    NameOfAResult {
        /// Its name in the scenario.
        name: String,
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
#[derive(Clone, Debug)]
pub struct ResultsDir {
    path: PathBuf,
    /// The files that the run has written.
    written: Written,
}

impl ResultsDir {
    /// Takes `path`, which must be absent or empty. With `force`, the files of an earlier run are removed first; other files stay. If a
    /// file of the new run already exists and is not an earlier run's, nothing is removed, and the directory is refused. `copies` are the
    /// names of the files that the scenario names; those outside the directory are ignored.
    pub fn create<'a>(
        path: &Path,
        force: bool,
        copies: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ResultsError> {
        let failed = |error| ResultsError::Io { path: path.to_owned(), error };
        let copies = check_copies(copies)?;
        if path.exists() && !path.is_dir() {
            return Err(ResultsError::NotADirectory { path: path.to_owned() });
        }
        fs::create_dir_all(path).map_err(failed)?;
        if force {
            if let Some(Foreign { path, reason }) = ownership::foreign(path, &copies).map_err(failed)? {
                return Err(ResultsError::NotOfARun { path, reason });
            }
            ownership::remove_listed(path).map_err(failed)?;
        } else if fs::read_dir(path).map_err(failed)?.next().is_some() {
            return Err(ResultsError::NotEmpty { path: path.to_owned() });
        }
        Ok(Self::of(path.to_owned()))
    }

    /// Takes `path` with its content; creates it if needed.
    pub fn open(path: &Path) -> Result<Self, ResultsError> {
        if path.exists() && !path.is_dir() {
            return Err(ResultsError::NotADirectory { path: path.to_owned() });
        }
        fs::create_dir_all(path).map_err(|error| ResultsError::Io { path: path.to_owned(), error })?;
        Ok(Self::of(path.to_owned()))
    }

    fn of(path: PathBuf) -> Self {
        Self { path, written: Written::default() }
    }

    /// Creates a new directory below `parent` for a run of `name` at `stamp`, with a number appended if that one
    /// exists. `copies` are the names of the files that the scenario names.
    pub fn create_new<'a>(
        parent: &Path,
        name: &str,
        stamp: &str,
        copies: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ResultsError> {
        check_copies(copies)?;
        fs::create_dir_all(parent).map_err(|error| ResultsError::Io { path: parent.to_owned(), error })?;
        let stem = format!("{}-{stamp}", plain_name(name));
        let mut path = parent.join(&stem);
        let mut number = 2;
        loop {
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self::of(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    path = parent.join(format!("{stem}-{number}"));
                    number += 1;
                }
                Err(error) => return Err(ResultsError::Io { path, error }),
            }
        }
    }

    /// Removes the files that the run has written so far, and the directory if it is empty then. For directories that were created for
    /// the run.
    pub fn discard(&self) -> Result<(), ResultsError> {
        let failed = |error| ResultsError::Io { path: self.path.clone(), error };
        ownership::remove_written(&self.path, self.written.below(&self.path).keys()).map_err(failed)?;
        let is_empty = fs::read_dir(&self.path).map_err(failed)?.next().is_none();
        if is_empty { fs::remove_dir(&self.path).map_err(failed) } else { Ok(()) }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files of the run below a directory of the run, relative to the results directory, in order.
    pub fn files_below(&self, directory: &str) -> Vec<String> {
        self.written.below(&self.path.join(directory)).into_keys().map(|name| format!("{directory}/{name}")).collect()
    }

    /// The directories of variants with these names, relative to the run's: in the same order, all distinct.
    pub fn variant_directories<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut taken = FileNames::default();
        names.into_iter().map(|name| format!("variants/{}", taken.unique(name))).collect()
    }

    /// Whether a file that a scenario names is copied: its relative name can be kept within the directory.
    pub fn is_inside(name: &str) -> bool {
        is_inside(name)
    }

    /// Writes the run's copy of a file that its scenario names. A file outside the directory cannot keep its relative name: it is not
    /// copied.
    pub fn write_copy(&self, name: &str, content: &[u8]) -> Result<(), RecordError> {
        if !is_inside(name) {
            return Ok(());
        }
        self.write(name, content)
    }

    /// Writes a file atomically, creating parent directories.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), RecordError> {
        let path = self.path.join(name);
        let parent = path.parent().unwrap_or(&self.path);
        fs::create_dir_all(parent).map_err(|error| RecordError::io(parent, error))?;
        self.written.write(&path, content).map_err(|error| RecordError::io(&path, error))
    }

    /// Writes a plot as `NAME.svg` and `NAME.png` into a directory of the run; the empty name is the results directory itself.
    pub fn write_plot(&self, directory: &str, plot: &Plot) -> Result<(), RecordError> {
        plot.write(&self.path.join(directory), &self.written)
    }

    /// Begins to record the run of the world described by `config` into a directory of the run.
    pub fn recorder(
        &self,
        directory: &str,
        config: &WorldConfig,
        options: &RecorderOptions,
    ) -> Result<Recorder, RecordError> {
        Recorder::noting(&self.path.join(directory), config, options, &self.written)
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

    /// Writes `manifest.json`, with a digest of each file that was written by the methods of this directory. It is written last and marks the
    /// results as complete.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<(), RecordError> {
        #[derive(Serialize)]
        struct WithFiles<'a> {
            #[serde(flatten)]
            manifest: &'a Manifest,
            files: BTreeMap<String, String>,
        }
        let files = self.written.below(&self.path);
        let mut json = serde_json::to_string_pretty(&WithFiles { manifest, files }).unwrap_or_default();
        json.push('\n');
        self.write(MANIFEST, json.as_bytes())
    }
}

/// The names of copies inside the directory. None may be that of a result.
fn check_copies<'a>(copies: impl IntoIterator<Item = &'a str>) -> Result<BTreeSet<String>, ResultsError> {
    let copies: BTreeSet<String> = copies.into_iter().filter(|name| is_inside(name)).map(str::to_owned).collect();
    match copies.iter().find(|name| is_reserved(name)) {
        Some(name) => Err(ResultsError::NameOfAResult { name: name.clone() }),
        None => Ok(copies),
    }
}
