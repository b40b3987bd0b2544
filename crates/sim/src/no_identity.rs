//! A build without host identity: no host has one.

use holdover_base::Instant;

/// It has no values.
#[derive(Debug)]
pub(crate) enum Identity {}

impl Identity {
    pub(crate) fn fork(&self) -> Option<Self> {
        match *self {}
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match *self {}
    }
}
