//! The file of `--esp-keys`: the keys of ESP in the format of Wireshark's `esp_sa`, for the analysis of captures.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::DaemonError;

/// The file. Keys are added to those of earlier runs, so that their captures can still be read.
#[derive(Debug)]
pub(super) struct KeyFile {
    path: PathBuf,
    file: File,
}

impl KeyFile {
    /// Opens or makes it, readable by its owner alone. A symbolic link is refused.
    ///
    /// # Errors
    /// It cannot be written, or is not a file.
    pub(super) fn open(path: &Path) -> Result<Self, DaemonError> {
        let open = || {
            let mut options = OpenOptions::new();
            let file = options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)?;
            if !file.metadata()?.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
            }
            file.set_permissions(Permissions::from_mode(0o600))?;
            Ok(file)
        };
        let file = open().map_err(|source| DaemonError::KeyFile { path: path.to_owned(), source })?;
        tracing::warn!(file = %path.display(), "writing the keys of ESP: anyone who can read this file can decrypt the traffic");
        Ok(Self { path: path.to_owned(), file })
    }

    /// Adds lines. The daemon continues if that fails.
    pub(super) fn add(&mut self, lines: &str) {
        if let Err(error) = self.file.write_all(lines.as_bytes()) {
            tracing::error!(file = %self.path.display(), %error, "cannot write keys");
        }
    }
}
