//! The runs of a grid, written down as each ends, so that an interruption costs what was under way and no more.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A file of JSON lines: what its runs have in common, and the runs.
#[derive(Debug)]
pub(super) struct Journal<R> {
    file: Option<Mutex<File>>,
    /// The runs of each place that were in the file.
    known: BTreeMap<String, Vec<R>>,
}

/// The first line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    grid: String,
    holdover: String,
    kernel: String,
}

/// A run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<R> {
    place: String,
    run: R,
}

/// A journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    #[error("{} cannot be opened", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{}, line {line}, is no line of a grid's journal", .path.display())]
    Line { path: PathBuf, line: usize, source: serde_json::Error },
    #[error(
        "{} has runs of \"{}\" by Holdover {} on Linux {}; these are of \"{}\" by Holdover {} on Linux {}: give another file",
        .path.display(), .theirs[0], .theirs[1], .theirs[2], .ours[0], .ours[1], .ours[2]
    )]
    Other { path: PathBuf, theirs: Box<[String; 3]>, ours: Box<[String; 3]> },
}

impl<R: Serialize + DeserializeOwned> Journal<R> {
    /// One that keeps nothing.
    pub(super) fn none() -> Self {
        Self { file: None, known: BTreeMap::new() }
    }

    /// The journal of `grid` at `path`, which is made if it is not there. A last line that was cut off by an interruption is dropped.
    ///
    /// # Errors
    /// The file cannot be opened or read, is no journal, or that of another grid, kernel or version.
    pub(super) fn open(path: &Path, grid: &str) -> Result<Self, JournalError> {
        let failed = |source| JournalError::Open { path: path.to_owned(), source };
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        let ours = Head {
            grid: grid.to_owned(),
            holdover: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        };
        let bad = |line| move |source| JournalError::Line { path: path.to_owned(), line, source };
        let mut lines = text[..whole].lines().enumerate();
        match lines.next() {
            Some((_, line)) => {
                let theirs: Head = serde_json::from_str(line).map_err(bad(1))?;
                if theirs != ours {
                    let words = |head: Head| Box::new([head.grid, head.holdover, head.kernel]);
                    return Err(JournalError::Other {
                        path: path.to_owned(),
                        theirs: words(theirs),
                        ours: words(ours),
                    });
                }
            }
            None => write_line(&mut file, &ours).map_err(failed)?,
        }
        let mut known: BTreeMap<String, Vec<R>> = BTreeMap::new();
        for (index, line) in lines {
            let Line { place, run } = serde_json::from_str(line).map_err(bad(index + 1))?;
            known.entry(place).or_default().push(run);
        }
        Ok(Self { file: Some(Mutex::new(file)), known })
    }

    /// The next run of a place that was in the file.
    pub(super) fn take(&mut self, place: &str) -> Option<R> {
        self.known.get_mut(place)?.pop()
    }

    /// Writes a run down.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, place: &str, run: &R) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut file = file.lock().expect("no worker panics while it writes");
        write_line(&mut file, &Line { place: place.to_owned(), run })
    }
}

/// In one piece, so that what is there after an interruption are lines, the last one perhaps cut off.
fn write_line(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("holdover-journal-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn a_grid_goes_on_from_what_was_written_also_if_the_last_line_was_cut_off() {
        let path = scratch("cut");
        let journal = Journal::<u32>::open(&path, "agent").unwrap();
        journal.write("cubic", &7).unwrap();
        journal.write("cubic", &8).unwrap();
        journal.write("reno", &9).unwrap();
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 3]).unwrap();
        let mut journal = Journal::<u32>::open(&path, "agent").unwrap();
        assert_eq!((journal.take("cubic"), journal.take("cubic"), journal.take("cubic")), (Some(8), Some(7), None));
        assert_eq!(journal.take("reno"), None);
        journal.write("reno", &10).unwrap();
        let mut journal = Journal::<u32>::open(&path, "agent").unwrap();
        assert_eq!(journal.take("reno"), Some(10));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_journal_of_another_grid_and_what_is_none_are_refused() {
        let path = scratch("other");
        drop(Journal::<u32>::open(&path, "agent").unwrap());
        let error = Journal::<u32>::open(&path, "agent-links").unwrap_err().to_string();
        assert!(error.contains("has runs of \"agent\"") && error.ends_with("give another file"), "{error}");
        std::fs::write(&path, "kind,cut_s\n").unwrap();
        let error = Journal::<u32>::open(&path, "agent").unwrap_err().to_string();
        assert!(error.ends_with("line 1, is no line of a grid's journal"), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}
