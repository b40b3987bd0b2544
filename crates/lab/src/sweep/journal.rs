//! The journal of a sweep: one line for each run, written as it ends, so that an interrupted sweep can be continued.
//!
//! The first line says what is swept; a journal is continued only by a sweep of the same. A process that is killed, or a
//! machine that fails, can leave the last line unfinished: it is removed, and its run is made again.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdover_report::FlowMetrics;
use serde::{Deserialize, Serialize};

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It could not be read or written.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// The journal.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process writes it.
    #[error("{}: another sweep is writing to this directory", path.display())]
    InUse {
        /// The journal.
        path: PathBuf,
    },
    /// It belongs to a sweep of something else.
    #[error("{} is of another sweep: {difference}; choose another directory", path.display())]
    Other {
        /// The journal.
        path: PathBuf,
        /// What is different.
        difference: Difference,
    },
    /// A run that was kept cannot be read again.
    #[error("{}: at byte {at} there is no longer the line of a finished run ({reason}); something else writes to the file", path.display())]
    Changed {
        /// The journal.
        path: PathBuf,
        /// Where its line began.
        at: u64,
        /// Why.
        reason: String,
    },
    /// A line that is not the last one makes no sense.
    #[error("{}:{line}: this is not the line of a finished run ({reason}); the file is damaged", path.display())]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why.
        reason: String,
    },
}

/// How two sweeps differ.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Difference {
    /// Another version of Holdover made the earlier runs.
    #[error("its runs were made by version {was}, this is {is}")]
    Version {
        /// The journal's.
        was: String,
        /// This one.
        is: String,
    },
    /// The seeds differ.
    #[error("its seed is {was}, the scenario's is {is}")]
    Seed {
        /// The journal's.
        was: u64,
        /// The scenario's.
        is: u64,
    },
    /// The scenarios differ.
    #[error("its scenario has `{was}` where there is `{is}` now")]
    Scenario {
        /// The first line that differs, in the journal's scenario.
        was: String,
        /// The line that stands there now.
        is: String,
    },
    /// A file that the scenario names has changed.
    #[error("the file {name} that the scenario names has changed")]
    File {
        /// Its name in the scenario.
        name: String,
    },
}

/// What is swept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Header {
    /// The version of Holdover.
    pub version: String,
    /// The scenario's seed.
    pub seed: u64,
    /// The scenario, with everything that was set on the command line.
    pub scenario: String,
    /// The fingerprints of the files that it names.
    pub files: BTreeMap<String, String>,
}

/// A finished run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The number of the point, from 0.
    pub point: usize,
    /// The name of the variant.
    pub variant: String,
    /// The number of the replication, from 0.
    pub run: u32,
    /// The seed.
    pub seed: u64,
    /// How the run ended: `all-done`, `time-limit` or `idle`.
    pub ending: String,
    /// When, in simulated time.
    pub ended_at_s: f64,
    /// Every metric of every flow.
    pub flows: Vec<FlowMetrics>,
}

/// Where the line of a run begins in the journal, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place(pub(super) u64);

/// The line of a run.
#[derive(Debug)]
pub(super) struct Line(Vec<u8>);

impl Line {
    /// The line of `content`, with its end.
    pub(super) fn new(content: &impl Serialize) -> serde_json::Result<Self> {
        let mut line = serde_json::to_vec(content)?;
        line.push(b'\n');
        Ok(Self(line))
    }
}

/// A journal that is written to; nobody else writes to it meanwhile.
#[derive(Debug)]
pub(super) struct Journal {
    lines: Lines,
    /// Bytes up to the end of the last whole line.
    len: u64,
}

/// The lines of a journal, to be read while it is written.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    path: PathBuf,
    file: Arc<File>,
}

impl Journal {
    /// Opens the journal at `path`, or begins it. `take` gets each run in it, in the order in which they ended, with its place, and
    /// says what is wrong with it, if anything is.
    pub(super) fn open(
        path: &Path,
        header: &Header,
        mut take: impl FnMut(&Row, Place) -> Result<(), String>,
    ) -> Result<Self, JournalError> {
        let failed = |error| JournalError::Io { path: path.to_owned(), error };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => JournalError::InUse { path: path.to_owned() },
            TryLockError::Error(error) => failed(error),
        })?;
        let damaged = |line: usize, reason: String| JournalError::Damaged { path: path.to_owned(), line, reason };
        let mut reader = BufReader::new(&file);
        let mut whole = 0_u64;
        let mut line = Vec::new();
        let mut bad = None;
        for number in 1.. {
            line.clear();
            let length = reader.read_until(b'\n', &mut line).map_err(failed)?;
            if length == 0 {
                break;
            }
            if let Some((number, reason)) = bad {
                return Err(damaged(number, reason));
            }
            if line.last() != Some(&b'\n') {
                break;
            }
            let read = if number == 1 {
                let was: Header = serde_json::from_slice(&line).map_err(|error| damaged(1, error.to_string()))?;
                header.agrees_with(&was).map_err(|difference| JournalError::Other { path: path.to_owned(), difference })
            } else {
                let row = serde_json::from_slice(&line).map_err(|error| error.to_string());
                let row = row.and_then(|row| take(&row, Place(whole)));
                // What a failing machine leaves behind can have a newline in it, but nothing after it.
                bad = row.err().map(|reason| (number, reason));
                Ok(())
            };
            read?;
            if bad.is_none() {
                whole += length as u64;
            }
        }
        drop(reader);
        file.set_len(whole).map_err(failed)?;
        let mut journal = Self { lines: Lines { path: path.to_owned(), file: Arc::new(file) }, len: whole };
        if whole == 0 {
            let header = Line::new(header).map_err(|error| failed(error.into()))?;
            journal.append(&header)?;
        }
        Ok(journal)
    }

    /// Adds a run. When this returns, the run survives the end of the process.
    pub(super) fn append(&mut self, line: &Line) -> Result<Place, JournalError> {
        let place = Place(self.len);
        // No buffer of our own: the line is the kernel's when this returns. Where a full disk has left a part of a line, the next
        // one is written over it.
        let Lines { path, file } = &self.lines;
        file.write_all_at(&line.0, self.len).map_err(|error| JournalError::Io { path: path.clone(), error })?;
        self.len += line.0.len() as u64;
        Ok(place)
    }

    /// The lines, for those who read them.
    pub(super) const fn lines(&self) -> &Lines {
        &self.lines
    }
}

impl Lines {
    /// The run whose line begins at `place`, if that is the one that `check` says nothing against.
    pub(super) fn read(
        &self,
        place: Place,
        check: impl FnOnce(&Row) -> Result<(), String>,
    ) -> Result<Row, JournalError> {
        let changed = |reason: String| JournalError::Changed { path: self.path.clone(), at: place.0, reason };
        let mut line = vec![0; 2048];
        let mut filled = 0;
        loop {
            let rest = &mut line[filled..];
            let read = match self.file.read_at(rest, place.0 + filled as u64) {
                Ok(0) => return Err(changed("it ends there".to_owned())),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(JournalError::Io { path: self.path.clone(), error }),
            };
            let end = rest[..read].iter().position(|&byte| byte == b'\n').map(|end| filled + end);
            filled += read;
            if let Some(end) = end {
                let row = serde_json::from_slice(&line[..end]).map_err(|error| changed(error.to_string()))?;
                return check(&row).map_err(changed).map(|()| row);
            }
            if filled == line.len() {
                line.resize(2 * filled, 0);
            }
        }
    }
}

impl Header {
    /// The header of the journal at `path`, if there is one.
    pub fn read(path: &Path) -> Option<Self> {
        let mut line = Vec::new();
        BufReader::new(File::open(path).ok()?).read_until(b'\n', &mut line).ok()?;
        serde_json::from_slice(&line).ok()
    }

    fn agrees_with(&self, was: &Self) -> Result<(), Difference> {
        if was.version != self.version {
            return Err(Difference::Version { was: was.version.clone(), is: self.version.clone() });
        }
        if was.seed != self.seed {
            return Err(Difference::Seed { was: was.seed, is: self.seed });
        }
        if was.scenario != self.scenario {
            let (was, is) = first_difference(&was.scenario, &self.scenario);
            return Err(Difference::Scenario { was, is });
        }
        let changed = |(name, print): &(&String, &String)| was.files.get(*name) != Some(*print);
        match self.files.iter().find(changed) {
            Some((name, _)) => Err(Difference::File { name: name.clone() }),
            None => Ok(()),
        }
    }
}

/// The first line that differs, of each.
fn first_difference(was: &str, is: &str) -> (String, String) {
    let same = was.lines().zip(is.lines()).take_while(|(was, is)| was == is).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("the end of the file").to_owned();
    (line(was), line(is))
}
