//! The results directory of a sweep.
//!
//! ```text
//! summary.json     means, intervals and tests of every point
//! points.csv       the same, one row for each variant at each point
//! tests.csv        comparisons with the baseline, one row for each
//! runs.csv         one row for each flow of each run; each of the three tables also as Parquet: runs.parquet is a directory, and its parts
//!                  exist while the sweep runs
//! scenario.toml    the scenario as swept, including changes by the command line
//! manifest.json    version, seed, command line, when and how long: the only file that differs when a sweep is repeated
//! journal.jsonl    one line for each run in the order in which they ended, so that an interrupted sweep can be continued
//! ```

use std::io;
use std::path::{Path, PathBuf};

use holdover_report::{Manifest, PartFile, RecordError, ResultsDir, ResultsError};
use serde_json::value::RawValue;

use super::columns::AxisColumns;
use super::findings::{Findings, FindingsError, PointFindings};
use super::journal::Header;
use super::plan::Plan;
use super::summary::{Lazily, PointSummary, Summary};
use super::table::{TableError, Value};
use super::table_writer::TableWriter;
use super::tables;
use crate::run::write_scenario;

/// The table rows and summary of a point.
struct PointRows<'a> {
    found: PointFindings<'a>,
    points: Vec<Vec<Value>>,
    tests: Vec<Vec<Value>>,
    summary: Box<RawValue>,
}

impl<'a> PointRows<'a> {
    fn new(plan: &Plan, axes: &AxisColumns, found: PointFindings<'a>) -> serde_json::Result<Self> {
        let start = axes.cells(&found.point);
        Ok(Self {
            points: tables::rows_of_point(plan, &start, &found).collect(),
            tests: tables::rows_of_tests(&start, &found).collect(),
            summary: PointSummary::new(plan, &found).to_json()?,
            found,
        })
    }
}

/// Errors of a results directory.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The directory could not be used.
    #[error("{0}")]
    Results(#[from] ResultsError),
    /// A file in it could not be written.
    #[error("{0}")]
    Write(#[from] RecordError),
    /// The directory has other content.
    #[error("{} is not empty, and not the directory of a sweep; choose another one", path.display())]
    NotASweep {
        /// The directory.
        path: PathBuf,
    },
    /// There is no sweep to resume.
    #[error("there is nothing to resume in {}", path.display())]
    NothingToResume {
        /// The directory searched.
        path: PathBuf,
    },
    /// The sweep's copy of its scenario, or of a file that the scenario names, was changed.
    #[error(
        "{} differs from what the sweep wrote; move it away to continue the sweep, or choose another directory",
        path.display()
    )]
    Changed {
        /// The copy.
        path: PathBuf,
    },
    /// The directory could not be read, or a file in it could not be created.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// A table could not be written.
    #[error("{0}")]
    Table(#[from] TableError),
    /// The statistics could not be computed.
    #[error("{0}")]
    Findings(#[from] FindingsError),
}

/// The directory of a sweep, new or resumed.
#[derive(Clone, Debug)]
pub struct SweepDir(ResultsDir);

impl SweepDir {
    /// Takes `path`, which must be absent, empty or hold a part of a sweep. With `resume` it must hold one.
    pub fn at(path: &Path, resume: bool) -> Result<Self, DirectoryError> {
        let begun = journal_in(path).exists();
        if resume && !begun {
            return Err(DirectoryError::NothingToResume { path: path.to_owned() });
        }
        let failed = |error| DirectoryError::Io { path: path.to_owned(), error };
        let filled = path.is_dir() && std::fs::read_dir(path).map_err(failed)?.next().is_some();
        if filled && !begun {
            return Err(DirectoryError::NotASweep { path: path.to_owned() });
        }
        Ok(Self(ResultsDir::open(path)?))
    }

    /// Creates a directory below `parent` for a sweep of the scenario called `name`, started at `stamp`.
    pub fn create_new(parent: &Path, name: &str, stamp: &str) -> Result<Self, DirectoryError> {
        Ok(Self(ResultsDir::create_new(parent, &format!("{name}-sweep"), stamp, [])?))
    }

    /// The latest directory below `parent` with a sweep of the same header.
    pub fn latest(parent: &Path, header: &Header) -> Result<Self, DirectoryError> {
        let nothing = || DirectoryError::NothingToResume { path: parent.to_owned() };
        let failed = |error| DirectoryError::Io { path: parent.to_owned(), error };
        let modified = |path: &Path| std::fs::metadata(journal_in(path)).and_then(|found| found.modified()).ok();
        let entries = match std::fs::read_dir(parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(nothing()),
            entries => entries.map_err(failed)?,
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let same = paths.filter(|path| Header::read(&journal_in(path)).as_ref() == Some(header));
        let latest = same.max_by_key(|path| (modified(path), path.clone())).ok_or_else(nothing)?;
        Ok(Self(ResultsDir::open(&latest)?))
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of its journal.
    pub fn journal(&self) -> PathBuf {
        journal_in(self.path())
    }

    /// The path of its summary, which exists once the results are written.
    pub fn summary(&self) -> PathBuf {
        self.path().join("summary.json")
    }

    /// Writes the scenario and the files that it names.
    ///
    /// # Errors
    ///
    /// If a file of that name is there with another content, if a copy would replace a result, or if a file cannot be written. Nothing is
    /// written then.
    pub fn write_scenario(&self, plan: &Plan) -> Result<(), DirectoryError> {
        let copies = || plan.scenario.files();
        if let Some((name, _)) = copies().find(|(name, _)| is_result(name)) {
            return Err(ResultsError::NameOfAResult { name: name.to_owned() }.into());
        }
        let scenario = plan.scenario.to_toml();
        let inside = copies().filter(|(name, _)| ResultsDir::is_inside(name));
        for (name, content) in inside.chain([(SCENARIO, scenario.as_str())]) {
            let path = self.path().join(name);
            let is_same = match std::fs::symlink_metadata(&path) {
                Ok(found) => found.is_file() && std::fs::read(&path).is_ok_and(|there| there == content.as_bytes()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => true,
                Err(error) => return Err(DirectoryError::Io { path, error }),
            };
            if !is_same {
                return Err(DirectoryError::Changed { path });
            }
        }
        Ok(write_scenario(&self.0, &plan.scenario)?)
    }

    /// Writes the results: the tables of points and tests, and the summary. `see` is called with each point as it is written.
    ///
    /// # Errors
    ///
    /// If runs cannot be read, files cannot be written, or it was stopped.
    pub fn write_results(
        &self,
        plan: &Plan,
        findings: &Findings<'_>,
        mut see: impl FnMut(&PointFindings<'_>),
    ) -> Result<(), DirectoryError> {
        let axes = AxisColumns::new(&plan.sweep);
        let writer = |name: &str, columns| TableWriter::create(self.path(), name, columns);
        let mut points = writer("points", tables::points_columns(plan, &axes))?;
        let mut tests = tables::tests_columns(plan, &axes).map(|columns| writer("tests", columns)).transpose()?;
        let mut write = |point: PointRows<'_>| {
            point.points.into_iter().try_for_each(|row| points.push(row))?;
            if let Some(tests) = &mut tests {
                point.tests.into_iter().try_for_each(|row| tests.push(row))?;
            }
            see(&point.found);
            Ok::<_, TableError>(point.summary)
        };
        let path = self.summary();
        let failed = |error| DirectoryError::Io { path: path.clone(), error };
        let make =
            |found: Result<_, FindingsError>| PointRows::new(plan, &axes, found?).map_err(|error| failed(error.into()));
        let mut out = PartFile::create(&path).map_err(failed)?;
        findings.in_order(make, |made| {
            let mut stopped = None;
            let summaries = made.map_while(|point| {
                let written = point.and_then(|point| Ok(write(point)?));
                written.map_err(|error| stopped = Some(error)).ok()
            });
            let written = Summary::new(plan, findings, Lazily::new(summaries)).write_json(&mut out);
            stopped.map_or_else(|| written.map_err(failed), Err)
        })?;
        points.finish()?;
        if let Some(tests) = tests {
            tests.finish()?;
        }
        out.commit().map_err(failed)
    }

    /// Writes the manifest. It is written last and marks the results as complete.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<(), DirectoryError> {
        Ok(self.0.write_manifest(manifest)?)
    }
}

/// The name of the scenario as swept.
const SCENARIO: &str = "scenario.toml";

/// Whether a sweep writes results of this name.
pub(super) fn is_result(name: &str) -> bool {
    const RESULTS: [&str; 10] = [
        "summary.json",
        "points.csv",
        "points.parquet",
        "tests.csv",
        "tests.parquet",
        "runs.csv",
        "runs.parquet",
        SCENARIO,
        "manifest.json",
        "journal.jsonl",
    ];
    // Also incomplete ones, and those in a directory.
    let first = Path::new(name).components().next().and_then(|part| part.as_os_str().to_str()).unwrap_or_default();
    RESULTS.contains(&first.strip_suffix(".part").unwrap_or(first))
}

fn journal_in(directory: &Path) -> PathBuf {
    directory.join("journal.jsonl")
}
