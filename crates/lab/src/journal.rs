//! A journal of runs: one line per finished run, so that an interrupted sweep can continue.
//!
//! The first line says what the runs have in common; a journal is continued only by runs of the same. A process that is killed, or a
//! machine that fails, can leave the last line unfinished: it is removed, and its run is made again.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The common properties of a journal's runs: its first line.
pub trait Header: Serialize + DeserializeOwned {
    /// Whether runs of this may go on in a journal with the header `was`.
    ///
    /// # Errors
    ///
    /// What is different.
    fn agrees_with(&self, was: &Self) -> Result<(), String>;
}

/// Errors of a journal.
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
    #[error("{}: another process is writing to it", path.display())]
    InUse {
        /// The journal.
        path: PathBuf,
    },
    /// Its runs are of something else.
    #[error("{} holds other runs: {difference}; choose another place", path.display())]
    Other {
        /// The journal.
        path: PathBuf,
        /// What is different.
        difference: String,
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

/// Where the line of a run begins in the journal, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(pub(crate) u64);

/// The line of a run.
#[derive(Debug)]
pub struct Line(Vec<u8>);

impl Line {
    /// The line of `content`, with its end.
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

/// A journal that is written to; no other process writes to it meanwhile.
#[derive(Debug)]
pub struct Journal {
    lines: Lines,
    /// Bytes up to the end of the last whole line.
    len: u64,
}

/// The lines of a journal, to be read while it is written.
#[derive(Clone, Debug)]
pub struct Lines {
    path: PathBuf,
    file: Arc<File>,
}

impl Journal {
    /// Opens the journal at `path`, or begins it. `take` gets each run in it, in the order in which they ended, with its place, and
    /// says what is wrong with it, if anything is.
    ///
    /// # Errors
    ///
    /// The file cannot be used, is no journal, is written by another process, or holds runs of something else.
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
                // A prefix of a heading is a journal that has just begun; any other content is a file of another kind.
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
                // A crash of the machine can leave a newline in the last line, but nothing after it.
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

    /// Adds a run. When this returns, the run survives the end of the process.
    ///
    /// # Errors
    ///
    /// It cannot be written. The next run overwrites a partial line.
    pub fn append(&mut self, line: &Line) -> Result<Place, JournalError> {
        let place = Place(self.len);
        // No buffer of our own: the kernel has the line when this returns. If a full disk has left a part of a line,
        // the next line overwrites it.
        let Lines { path, file } = &self.lines;
        file.write_all_at(&line.0, self.len).map_err(|error| JournalError::Io { path: path.clone(), error })?;
        self.len += line.0.len() as u64;
        Ok(place)
    }

    /// The lines, for those who read them.
    pub const fn lines(&self) -> &Lines {
        &self.lines
    }
}

impl Lines {
    /// The run whose line begins at `place`, if `check` accepts it.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no longer that run.
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
