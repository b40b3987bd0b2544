//! The runs of a grid, recorded as each ends, so that an interruption loses only the runs in progress.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Mutex;

use holdover_lab::journal::{self, JournalError, Line};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A journal, or none.
#[derive(Debug)]
pub(super) struct Journal<R> {
    file: Option<Mutex<journal::Journal>>,
    /// The runs of each place that were in the file.
    known: BTreeMap<String, Vec<R>>,
}

/// The settings that all runs of a journal share.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    grid: String,
    kernel: String,
    /// A hash of the program.
    program: String,
}

impl journal::Header for Head {
    fn agrees_with(&self, was: &Self) -> Result<(), String> {
        let differs = |what, was: &str, is: &str| Err(format!("its {what} is \"{was}\", this is \"{is}\""));
        if was.grid != self.grid {
            return differs("grid", &was.grid, &self.grid);
        }
        if was.kernel != self.kernel {
            return differs("kernel", &was.kernel, &self.kernel);
        }
        if was.program != self.program {
            return Err("another build of Holdover made them".to_owned());
        }
        Ok(())
    }
}

/// A run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record<R> {
    place: String,
    run: R,
}

impl<R: Serialize + DeserializeOwned> Journal<R> {
    /// One that keeps nothing.
    pub(super) fn none() -> Self {
        Self { file: None, known: BTreeMap::new() }
    }

    /// The journal of `grid` at `path`, which is made if it is not there.
    ///
    /// # Errors
    /// See [`journal::Journal::open`]; or this program cannot be read.
    pub(super) fn open(path: &Path, grid: &str) -> Result<Self, JournalError> {
        let failed = |error| JournalError::Io { path: path.to_owned(), error };
        let head = Head {
            grid: grid.to_owned(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            program: hash_of_program().map_err(failed)?,
        };
        let mut known: BTreeMap<String, Vec<R>> = BTreeMap::new();
        let file = journal::Journal::open(path, &head, |record: Record<R>, _| {
            known.entry(record.place).or_default().push(record.run);
            Ok(())
        })?;
        Ok(Self { file: Some(Mutex::new(file)), known })
    }

    /// A run of a place that was in the file, each once.
    pub(super) fn take(&mut self, place: &str) -> Option<R> {
        self.known.get_mut(place)?.pop()
    }

    /// Writes a run down.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, place: &str, run: &R) -> Result<(), JournalError> {
        let Some(file) = &self.file else { return Ok(()) };
        let record = Record { place: place.to_owned(), run };
        let line = Line::new(&record).expect("a run is written as JSON");
        file.lock().expect("no worker panics while it writes").append(&line).map(drop)
    }
}

fn hash_of_program() -> io::Result<String> {
    let mut program = std::fs::File::open("/proc/self/exe")?;
    let mut hasher = DefaultHasher::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match program.read(&mut piece)? {
            0 => return Ok(format!("{:016x}", hasher.finish())),
            len => hasher.write(&piece[..len]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("holdover-journal-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    // Claim: A grid continues from its journal, also if the last line was truncated; a journal of another grid and a file that is
    // no journal are refused and stay unchanged. Runs share the limit of open files.
    // Tests: `journal::tests::the_journal_of_another_grid_and_what_is_none_are_refused`,
    // `grid::tests::runs_share_the_files_that_may_be_open`
    #[test]
    fn a_grid_resumes_from_its_journal_even_if_the_last_line_is_truncated() {
        let path = scratch("cut");
        let journal = Journal::<u32>::open(&path, "agent").unwrap();
        journal.write("cubic", &7).unwrap();
        journal.write("cubic", &8).unwrap();
        journal.write("reno", &9).unwrap();
        drop(journal);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 3]).unwrap();
        let mut journal = Journal::<u32>::open(&path, "agent").unwrap();
        assert!(Journal::<u32>::open(&path, "agent").unwrap_err().to_string().contains("another process is writing"));
        assert_eq!((journal.take("cubic"), journal.take("cubic"), journal.take("cubic")), (Some(8), Some(7), None));
        assert_eq!(journal.take("reno"), None);
        journal.write("reno", &10).unwrap();
        drop(journal);
        let mut journal = Journal::<u32>::open(&path, "agent").unwrap();
        assert_eq!(journal.take("reno"), Some(10));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_journal_of_another_grid_and_what_is_none_are_refused() {
        let path = scratch("other");
        drop(Journal::<u32>::open(&path, "agent").unwrap());
        let error = Journal::<u32>::open(&path, "agent-links").unwrap_err().to_string();
        assert!(error.ends_with("its grid is \"agent\", this is \"agent-links\"; choose another place"), "{error}");
        for text in ["kind,cut_s\n", "{\"a note\": 1}", "{"] {
            std::fs::write(&path, text).unwrap();
            let opened = Journal::<u32>::open(&path, "agent");
            assert_eq!(opened.is_ok(), text == "{", "a head that was cut off is begun again");
            assert_eq!(
                std::fs::read_to_string(&path).unwrap() == text,
                text != "{",
                "what is no journal stays as it is"
            );
        }
        std::fs::remove_file(path).unwrap();
    }
}
