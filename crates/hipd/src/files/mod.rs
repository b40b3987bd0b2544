//! The daemon's files: `identity.toml`, the host's key, readable by root only, `peers.toml`, `proxy.toml`, `hip.toml`, its settings, and
//! `r1_counter.toml`, the only one that the daemon itself writes.

mod identity;
mod peers;
mod proxy;
mod r1_counter;
mod settings;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use holdover_host::lock_file::LockError;
use serde::de::DeserializeOwned;

pub use holdover_hip::host::AddressProblem;
pub use identity::{IdentityFileError, generate, read_identity, write_identity};
pub use peers::{
    MAX_ADDRESSES, MAX_SERVERS, Peer, PeerError, Peers, PeersFileError, Serves, Via, check_address, check_name,
};
pub use proxy::{MAX_HOSTS, ProxiedHost, Proxy, ProxyError, ProxyFileError, host_directory};
pub use r1_counter::{R1CounterFile, R1CounterFileError};
pub use settings::{SettingError, Settings, SettingsFileError};

/// The directory, unless another one is named.
pub const DEFAULT_DIRECTORY: &str = "/etc/holdover/hip";
/// The mode of directories that are created.
const DIRECTORY_MODE: u32 = 0o755;

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub source: io::Error,
}

/// Why a file of hosts is unusable. `E` is the problem of one host.
#[derive(Debug, thiserror::Error)]
pub enum FileError<E: std::error::Error + 'static> {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Its content is invalid.
    #[error("{}: {message}", path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// The problem, and its line.
        message: String,
    },
    /// It contains an invalid host or setting.
    #[error("{}: {source}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: E,
    },
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// It cannot be locked for a change.
    #[error("cannot change {}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: LockError,
    },
}

/// Reads a TOML file; `None` if there is none.
fn read_toml<T: DeserializeOwned, E: std::error::Error>(path: &Path) -> Result<Option<T>, FileError<E>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(FileError::Read { path: path.to_owned(), source }),
    };
    let read: Result<T, toml::de::Error> = toml::from_str(&text);
    read.map(Some).map_err(|error| FileError::Contents { path: path.to_owned(), message: error.to_string() })
}

/// Replaces a file atomically; the new one has `mode` from the start. Creates its directory.
fn replace(path: &Path, mode: u32, text: &str, keep: bool) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_owned(), source };
    if let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory).map_err(failed)?;
    }
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{}.new", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        // A hard link, unlike a rename, does not replace an existing file.
        if keep { fs::hard_link(&fresh, path) } else { fs::rename(&fresh, path) }
    };
    let written = write();
    if written.is_err() || keep {
        let _ = fs::remove_file(&fresh);
    }
    written.map_err(failed)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A directory that is removed after the test.
    pub(crate) struct Place(pub(crate) PathBuf);

    impl Place {
        pub(crate) fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("holdover-hip-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&directory);
            fs::create_dir_all(&directory).unwrap();
            Self(directory)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_or_kept() {
        let place = Place::new("replace");
        let path = place.0.join("sub/file");
        replace(&path, 0o600, "one", false).unwrap();
        replace(&path, 0o600, "two", false).unwrap();
        let refused = replace(&path, 0o600, "three", true).unwrap_err();
        assert_eq!(refused.source.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(place.0.join("sub")).unwrap().count(), 1, "no litter");
    }
}
