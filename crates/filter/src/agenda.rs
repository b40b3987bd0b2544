//! Which connection a mechanism has to look at next, and when.

use std::collections::BTreeSet;

use holdover_base::Instant;

use crate::Connection;

/// The deadlines of a mechanism's connections. Each connection keeps its own beside, so that it can be moved.
#[derive(Clone, Debug, Default)]
pub struct Agenda(BTreeSet<(Instant, Connection)>);

impl Agenda {
    /// The deadline of `connection` is `due` from now on; `kept` is where the connection keeps it.
    pub fn set(&mut self, connection: Connection, kept: &mut Option<Instant>, due: Option<Instant>) {
        if *kept == due {
            return;
        }
        if let Some(old) = kept.take() {
            self.0.remove(&(old, connection));
        }
        if let Some(new) = due {
            self.0.insert((new, connection));
        }
        *kept = due;
    }

    /// The first deadline.
    pub fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes the first connection whose deadline is at or before `now`.
    pub fn take_due(&mut self, now: Instant) -> Option<Connection> {
        self.0.first().filter(|(at, _)| *at <= now)?;
        self.0.pop_first().map(|(_, connection)| connection)
    }
}
