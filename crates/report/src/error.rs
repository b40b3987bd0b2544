//! Why a run could not be recorded.

use std::io;
use std::path::{Path, PathBuf};

/// Errors of recording; messages include the file name.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file could not be written.
    #[error("cannot write {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// A capture could not be written.
    #[error("cannot write {}: {}", path.display(), cause(error))]
    Capture {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: holdover_wire::CaptureError,
    },
    /// A plot could not be drawn.
    #[error("cannot draw {}: {reason}", path.display())]
    Plot {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
}

/// The system's message if the error is the system's.
fn cause(error: &holdover_wire::CaptureError) -> String {
    match error {
        holdover_wire::CaptureError::Io(error) => error.to_string(),
        holdover_wire::CaptureError::Emit(emit) => format!("{error}: {emit}"),
        error => error.to_string(),
    }
}

impl RecordError {
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }

    pub(crate) fn table(path: &Path, error: csv::Error) -> Self {
        Self::Io { path: path.to_owned(), error: error.into() }
    }
}
