//! A record of the files that a run has written.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::part_file::PartFile;

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
        io::Write::write_all(&mut file, content)?;
        file.commit()
    }

    /// Records a complete file.
    pub(crate) fn note(&self, path: &Path, digest: &Digest) {
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

/// 64-bit FNV-1a, printed as 16 hexadecimal digits: detects changes, not forgeries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Digest(u64);

impl Digest {
    /// The digest of no content.
    pub(crate) const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    /// Adds content.
    pub(crate) fn add(&mut self, content: &[u8]) {
        let next = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        self.0 = content.iter().fold(self.0, next);
    }

    /// The digest of content of any size.
    pub(crate) fn of(mut content: impl io::Read) -> io::Result<Self> {
        let mut digest = Self::EMPTY;
        let mut block = vec![0; 1 << 16];
        loop {
            match content.read(&mut block) {
                Ok(0) => return Ok(digest),
                Ok(read) => digest.add(&block[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_fnv_1a() {
        assert_eq!(Digest::of(&b""[..]).unwrap().to_string(), "cbf29ce484222325");
        assert_eq!(Digest::of(&b"a"[..]).unwrap().to_string(), "af63dc4c8601ec8c");
    }
}
