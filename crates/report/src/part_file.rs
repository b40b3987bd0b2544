//! A file that gets its name only when complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::written::{Digest, Written};

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
    pub(crate) fn recorded(path: &Path, written: Written) -> io::Result<Self> {
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
