//! A journal of runs: one line per finished run, so that an interrupted sweep can continue.
//!
//! The first line describes the common properties of the runs; only runs with the same properties continue a journal. A killed process or a
//! failed machine can leave the last line incomplete: that line is removed and its run repeated.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The common properties of a journal's runs: its first line.
pub trait Header: Serialize + DeserializeOwned {
    /// Checks that runs with this header may continue a journal with the header `was`.
    ///
    /// # Errors
    ///
    /// The difference.
    fn agrees_with(&self, was: &Self) -> Result<(), String>;
}

/// Errors of a journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file could not be read or written.
    #[error("cannot use {}: {error}", path.display())]
    Io {
        /// The journal.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// Another process writes the journal.
    #[error("{}: another process is writing to it", path.display())]
    InUse {
        /// The journal.
        path: PathBuf,
    },
    /// The journal belongs to other runs.
    #[error("{} holds other runs: {difference}; choose another place", path.display())]
    Other {
        /// The journal.
        path: PathBuf,
        /// The difference.
        difference: String,
    },
    /// A stored run cannot be read again.
    #[error("{}: no line of a completed run at byte {at} any more ({reason}): another program writes to the file", path.display())]
    Changed {
        /// The journal.
        path: PathBuf,
        /// The offset of its line.
        at: u64,
        /// The cause.
        reason: String,
    },
    /// A line before the last one is invalid.
    #[error("{}:{line}: not a line of a completed run ({reason}): the file is damaged", path.display())]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The cause.
        reason: String,
    },
}

/// The offset of a run's line in the journal, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(pub(crate) u64);

/// A run's line.
#[derive(Debug)]
pub struct Line(Vec<u8>);

impl Line {
    /// The line of `content`, including the newline.
    ///
    /// # Errors
    ///
    /// The content cannot be written as JSON.
    pub fn new(content: &impl Serialize) -> serde_json::Result<Self> {
        let mut line = serde_json::to_vec(content)?;
        line.push(b'\n');
        Ok(Self(line))
    }
}

/// A journal open for writing, exclusively locked.
#[derive(Debug)]
pub struct Journal {
    lines: Lines,
    /// The end of the last complete line, in bytes.
    len: u64,
}

/// The lines of a journal, readable while it is written.
#[derive(Clone, Debug)]
pub struct Lines {
    path: PathBuf,
    file: Arc<File>,
}

impl Journal {
    /// Opens the journal at `path`, or creates it. `take` is called for each stored run in the order of completion, with its place, and
    /// returns an error for an invalid one.
    ///
    /// # Errors
    ///
    /// The file is unusable, is not a journal, is locked by another process, or belongs to other runs.
    pub fn open<H: Header, R: DeserializeOwned>(
        path: &Path,
        header: &H,
        mut take: impl FnMut(R, Place) -> Result<(), String>,
    ) -> Result<Self, JournalError> {
        let failed = |error| JournalError::Io { path: path.to_owned(), error };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => JournalError::InUse { path: path.to_owned() },
            TryLockError::Error(error) => failed(error),
        })?;
        let heading = Line::new(header).map_err(|error| failed(error.into()))?;
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
                // A prefix of the header is a journal just created; any other content is a file of another kind.
                if number == 1 && !heading.0.starts_with(&line) {
                    return Err(damaged(1, "it does not begin as a journal does".to_owned()));
                }
                break;
            }
            let read = if number == 1 {
                let was: H = serde_json::from_slice(&line).map_err(|error| damaged(1, error.to_string()))?;
                header.agrees_with(&was).map_err(|difference| JournalError::Other { path: path.to_owned(), difference })
            } else {
                let row = serde_json::from_slice(&line).map_err(|error| error.to_string());
                let row = row.and_then(|row| take(row, Place(whole)));
                // After a crash of the machine the last line may contain a newline, but nothing after it.
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
            journal.append(&heading)?;
        }
        Ok(journal)
    }

    /// Appends a run. After return, the run survives the end of the process.
    ///
    /// # Errors
    ///
    /// It cannot be written. The next run overwrites a partial line.
    pub fn append(&mut self, line: &Line) -> Result<Place, JournalError> {
        let place = Place(self.len);
        // Unbuffered: the kernel has the line when this returns. If a full disk left a partial line, the next line
        // overwrites it.
        let Lines { path, file } = &self.lines;
        file.write_all_at(&line.0, self.len).map_err(|error| JournalError::Io { path: path.clone(), error })?;
        self.len += line.0.len() as u64;
        Ok(place)
    }

    /// The lines, for readers.
    pub const fn lines(&self) -> &Lines {
        &self.lines
    }
}

impl Lines {
    /// Reads the run at `place`, if `check` accepts it.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is another run.
    pub fn read<R: DeserializeOwned>(
        &self,
        place: Place,
        check: impl FnOnce(&R) -> Result<(), String>,
    ) -> Result<R, JournalError> {
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
