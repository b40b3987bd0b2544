//! Files that get their names only when complete, and the record of those that a run has written.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::digest::Digest;

/// A file being written. Until [`PartFile::commit`] it is called `NAME.part`, so that the file of an interrupted run is
/// not mistaken for a complete one. It is removed if dropped without a commit.
#[derive(Debug)]
pub struct PartFile {
    path: PathBuf,
    part: PathBuf,
    out: Option<BufWriter<File>>,
    /// The record that gets the file once it is complete, and the digest of its content so far.
    record: Option<(Written, Digest)>,
}

impl PartFile {
    /// Begins the file `path` in an existing directory.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let out = BufWriter::with_capacity(1 << 16, File::create(&part)?);
        Ok(Self { path: path.to_owned(), part, out: Some(out), record: None })
    }

    /// Begins the file `path`, which is recorded in `written` once it is complete.
    fn recorded(path: &Path, written: Written) -> io::Result<Self> {
        let mut file = Self::create(path)?;
        file.record = Some((written, Digest::EMPTY));
        Ok(file)
    }

    /// Writes `content` to `path` atomically.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = Self::create(path)?;
        file.write_all(content)?;
        file.commit()
    }

    /// Gives the file its name.
    ///
    /// # Errors
    ///
    /// If the remaining content cannot be written, or the file cannot be renamed.
    pub fn commit(mut self) -> io::Result<()> {
        if let Some(mut out) = self.out.take() {
            let renamed = out.flush().and_then(|()| fs::rename(&self.part, &self.path));
            if renamed.is_err() {
                self.out = Some(out);
            }
            renamed?;
            if let Some((written, digest)) = self.record.take() {
                written.note(&self.path, &digest);
            }
        }
        Ok(())
    }
}

impl Write for PartFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.out.as_mut().map_or(Ok(0), |out| out.write(bytes))?;
        if let Some((_, digest)) = &mut self.record {
            digest.add(&bytes[..taken]);
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if self.out.take().is_some() {
            // An error cannot be reported in drop.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// The files that a run has written, with digests of their content. Clones share the record: variants run on several threads.
#[derive(Clone, Default, Debug)]
pub(crate) struct Written(Arc<Mutex<BTreeMap<PathBuf, String>>>);

impl Written {
    /// Begins the file `path`, which is recorded once it is complete.
    pub(crate) fn create(&self, path: &Path) -> io::Result<PartFile> {
        PartFile::recorded(path, self.clone())
    }

    /// Writes `content` to `path` atomically, and records it.
    pub(crate) fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut file = self.create(path)?;
        file.write_all(content)?;
        file.commit()
    }

    /// Records a complete file.
    fn note(&self, path: &Path, digest: &Digest) {
        self.files().insert(path.to_owned(), digest.to_string());
    }

    /// The recorded files below `directory`, by their names relative to it. The names of a run's files are UTF-8.
    pub(crate) fn below(&self, directory: &Path) -> BTreeMap<String, String> {
        let files = self.files();
        let inside = files.iter().filter_map(|(path, digest)| {
            let name = path.strip_prefix(directory).ok()?.to_str()?;
            Some((name.to_owned(), digest.clone()))
        });
        inside.collect()
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
