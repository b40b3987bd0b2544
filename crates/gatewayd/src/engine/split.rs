//! Mode `split`.

use holdover_base::Instant;

use super::Engine;
use crate::path::PathError;
use crate::split::SplitStatus;

impl Engine {
    /// Tells the programs whether the thread that splits takes SYNs.
    pub(super) fn renew_split(&mut self, now: Instant) -> Result<(), PathError> {
        let Some(splitter) = &mut self.splitter else { return Ok(()) };
        let is_splitting = splitter.is_splitting(now);
        self.path.renew_split(now, is_splitting)
    }

    /// Lets new connections pass. Returns how many are split now.
    pub(crate) fn stop_splitting(&mut self, now: Instant) -> u64 {
        let Some(splitter) = &mut self.splitter else { return 0 };
        splitter.stop();
        if let Err(error) = self.renew_split(now) {
            tracing::warn!(%error, "cannot tell the programs that connections are not split any more");
        }
        self.split_connections()
    }

    /// Connections that are split now.
    pub(crate) fn split_connections(&self) -> u64 {
        self.splitter.as_ref().map_or(0, |splitter| splitter.open())
    }

    /// The counters; `None` if no connections are split.
    pub(crate) fn split_status(&self, now: Instant) -> Option<SplitStatus> {
        let counters = self.counters();
        let splitter = self.splitter.as_ref()?;
        Some(splitter.status(now, counters.syns_expired, counters.fragments))
    }
}
