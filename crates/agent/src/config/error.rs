//! What is wrong with a file, and where.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A configuration or schedule cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in it is not understood.
    #[error("{}:{line}:{column}: {message}", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is wrong, and what would be accepted.
        message: String,
    },
}

impl ConfigError {
    pub(super) fn invalid(file: &Path, text: &str, error: &toml::de::Error) -> Self {
        let Range { start, .. } = error.span().unwrap_or(0..0);
        let message = error.message().trim().replace('\n', "; ");
        Self::at(file, text, start, message)
    }

    /// Something is wrong with what begins at the byte `offset` of the text.
    pub(crate) fn at(file: &Path, text: &str, offset: usize, message: String) -> Self {
        let (line, column) = place(text, offset);
        Self::Invalid { file: file.to_owned(), line, column, message }
    }
}

/// Line and column, from 1 and the latter in characters, of a byte of a text.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}
