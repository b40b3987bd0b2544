//! The outcome of a call, and the progress of one that blocks.

use holdover_base::Instant;

/// The outcome of an attempt to make a call.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Attempt {
    Done(Returned),
    /// The call blocks.
    Blocks,
    /// The call needs an unsupported feature.
    Unsupported(String),
}

/// The result of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Returned {
    pub(crate) value: i64,
    pub(crate) errno: Option<&'static str>,
    /// The data written into its arguments, if it differs from the script.
    pub(crate) mismatch: Option<String>,
}

impl Returned {
    pub(super) fn value(value: i64) -> Self {
        Self { value, errno: None, mismatch: None }
    }
}

impl Attempt {
    pub(super) fn done(value: i64) -> Self {
        Self::Done(Returned::value(value))
    }

    pub(super) fn failed(errno: &'static str) -> Self {
        Self::Done(Returned { value: -1, errno: Some(errno), mismatch: None })
    }

    pub(super) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported(what.into())
    }

    pub(super) fn malformed() -> Self {
        Self::unsupported("a call with these arguments")
    }
}

/// The progress of a blocking call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    pub(super) bytes: usize,
    pub(super) started: bool,
    /// The call's own timeout.
    pub(crate) until: Option<Instant>,
}
