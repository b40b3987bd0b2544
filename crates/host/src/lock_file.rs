//! A file by whose lock (`flock(2)`) one process of several has something. The kernel gives the lock back with the last descriptor of the process,
//! however that ends.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// From one try to the next.
const PAUSE: Duration = Duration::from_millis(5);

/// A lock that is held. When it is dropped, the file is removed, and directories that were made for it, if nothing else is in them.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    /// Holds the lock until it is closed.
    _file: File,
    _directories: MadeDirectories,
}

/// The lock cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("another process has {}", path.display())]
    Held {
        /// The file.
        path: PathBuf,
        /// The process, as it calls itself; `None` if it is not known.
        pid: Option<u32>,
    },
    /// The system refuses.
    #[error("{}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl LockFile {
    /// Locks the file, which is made if it is not there, as are its directories, with this mode. A process that holds the lock is waited for
    /// `until` then.
    ///
    /// # Errors
    /// Another process has it, or the system refuses.
    pub fn take(path: &Path, directory_mode: u32, until: Instant) -> Result<Self, LockError> {
        let refused = |source| LockError::Refused { path: path.to_owned(), source };
        let mut directories = MadeDirectories::default();
        loop {
            if let Some(directory) = path.parent() {
                directories.make(directory, directory_mode).map_err(refused)?;
            }
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).mode(0o600);
            options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
            let mut file = match options.open(path) {
                Ok(file) => file,
                // The process that had made the directory has removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound && Instant::now() < until => continue,
                Err(error) => return Err(refused(error)),
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Its holder may have removed it meanwhile: then the lock is on nothing.
                Ok(()) if is_at(&file, path).map_err(refused)? => {
                    note_holder(&mut file).map_err(refused)?;
                    return Ok(Self { path: path.to_owned(), _file: file, _directories: directories });
                }
                Ok(()) | Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < until => sleep(PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    return Err(LockError::Held { path: path.to_owned(), pid: holder(&mut file) });
                }
                Err(errno) => return Err(refused(errno.into())),
            }
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // While it is still locked: what is at this path is this process's.
        let _ = fs::remove_file(&self.path);
    }
}

/// Directories that were not there, the innermost first. Those that are empty go with this value.
#[derive(Debug, Default)]
struct MadeDirectories(Vec<PathBuf>);

impl MadeDirectories {
    fn make(&mut self, directory: &Path, mode: u32) -> io::Result<()> {
        let missing = directory.ancestors().take_while(|place| !place.as_os_str().is_empty() && !place.exists());
        let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        DirBuilder::new().recursive(true).mode(mode).create(directory)?;
        if !missing.is_empty() {
            self.0 = missing;
        }
        Ok(())
    }
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        // One that is not empty is somebody else's, too.
        for directory in &self.0 {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Writes this process's number into the file, for those that find it locked.
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
