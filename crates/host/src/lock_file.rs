//! An exclusive `flock(2)` lock: at most one process holds it. The kernel releases it when the last descriptor is closed, however the process
//! ends.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Between attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// A held lock. On drop, removes the file, and the directories that this process has created for it, if they are empty.
/// Those of a killed process stay.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    /// Holds the lock until closed.
    file: File,
    _directories: MadeDirectories,
}

/// The lock was not acquired.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("another process holds {}", path.display())]
    Held {
        /// The file.
        path: PathBuf,
        /// The pid in the file; `None` if there is none.
        pid: Option<u32>,
    },
    /// The system refuses.
    #[error("{}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl LockFile {
    /// Locks the file. Creates it, and its directories with this mode, if missing. Waits `until` then for a process
    /// that holds the lock.
    ///
    /// # Errors
    /// Another process holds it, or the system refuses.
    pub fn take(path: &Path, directory_mode: u32, until: Instant) -> Result<Self, LockError> {
        let mut directories = MadeDirectories::default();
        loop {
            match Self::try_take(path, directory_mode, &mut directories) {
                Ok(Some(file)) => {
                    let mut lock = Self { path: path.to_owned(), file, _directories: directories };
                    // For processes that find it locked. A full file system does not prevent holding the lock.
                    let _ = note_holder(&mut lock.file);
                    return Ok(lock);
                }
                Ok(None) => {}
                Err(error) if Instant::now() >= until => return Err(error),
                Err(LockError::Held { .. }) => {}
                // The process that has created the directories is removing them.
                Err(LockError::Refused { source, .. }) if is_passing(&source) => {}
                Err(error) => return Err(error),
            }
            sleep(PAUSE);
        }
    }

    /// Tries once. `None` if the holder has removed the file meanwhile, so that the lock has no effect.
    fn try_take(path: &Path, mode: u32, directories: &mut MadeDirectories) -> Result<Option<File>, LockError> {
        let refused = |source| LockError::Refused { path: path.to_owned(), source };
        if let Some(directory) = path.parent() {
            directories.make(directory, mode).map_err(refused)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let mut file = options.open(path).map_err(refused)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(is_at(&file, path).map_err(refused)?.then_some(file)),
            Err(Errno::INTR) => Ok(None),
            Err(Errno::WOULDBLOCK) => Err(LockError::Held { path: path.to_owned(), pid: holder(&mut file) }),
            Err(errno) => Err(refused(errno.into())),
        }
    }
}

/// Whether a directory or file vanished or appeared between two system calls.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // While still locked, and unless another process has removed it: the path may then belong to the next holder.
        if is_at(&self.file, &self.path).unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Created directories, innermost first. On drop, the empty ones are removed.
#[derive(Debug, Default)]
struct MadeDirectories(Vec<PathBuf>);

impl MadeDirectories {
    fn make(&mut self, directory: &Path, mode: u32) -> io::Result<()> {
        let missing = directory.ancestors().take_while(|place| !place.as_os_str().is_empty() && !place.exists());
        let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        self.0.extend(missing);
        DirBuilder::new().recursive(true).mode(mode).create(directory)
    }
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        // A directory that is not empty is in use by others.
        for directory in &self.0 {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Writes the own pid into the file, for processes that find it locked.
fn note_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let same = |one: &fs::Metadata, other: &fs::Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(same(&file.metadata()?, &found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("holdover-lock-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        directory
    }

    #[test]
    fn files_created_for_a_lock_are_removed_with_it() {
        let directory = scratch("made");
        let path = directory.join("inner").join("lock");
        let lock = LockFile::take(&path, 0o700, Instant::now()).unwrap();
        let refused = LockFile::take(&path, 0o700, Instant::now()).unwrap_err();
        assert!(matches!(refused, LockError::Held { pid, .. } if pid == Some(std::process::id())), "{refused}");
        drop(lock);
        assert!(!directory.exists());
    }

    /// `systemd-tmpfiles` or a service manager may remove the file.
    #[test]
    fn releasing_a_lock_whose_file_was_removed_keeps_the_next_lock() {
        let directory = scratch("removed");
        let path = directory.join("lock");
        let first = LockFile::take(&path, 0o700, Instant::now()).unwrap();
        fs::remove_file(&path).unwrap();
        let second = LockFile::take(&path, 0o700, Instant::now()).unwrap();
        drop(first);
        assert!(path.exists());
        assert!(matches!(LockFile::take(&path, 0o700, Instant::now()), Err(LockError::Held { .. })));
        drop(second);
        assert!(!path.exists());
        let _ = fs::remove_dir(directory);
    }

    #[test]
    fn a_partly_created_directory_is_removed_again() {
        let directory = scratch("part");
        let path = directory.join("x".repeat(300)).join("lock");
        assert!(matches!(LockFile::take(&path, 0o700, Instant::now()), Err(LockError::Refused { .. })));
        assert!(!directory.exists());
    }
}
