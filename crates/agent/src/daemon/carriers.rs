//! Requests for the state of interfaces that have lost their carrier a moment ago.

use holdover_base::Instant;

use super::Daemon;
use crate::path_engine::Attach;

impl<A: Attach> Daemon<A> {
    /// Requests the state of the interfaces whose check is due.
    pub(super) fn check_carriers(&mut self, now: Instant) {
        if self.interfaces.carrier_check_at().is_none_or(|at| at > now) {
            return;
        }
        for index in self.interfaces.take_carrier_checks(now) {
            if let Err(error) = self.monitor.ask_link(now, index, &mut self.interfaces) {
                tracing::debug!(%error, index, "cannot query the state of an interface");
            }
        }
        self.report_changes(now);
    }
}
