//! Deadlines of a mechanism's connections.

use std::collections::BTreeSet;

use holdover_base::Instant;

use crate::Connection;

/// Deadlines by connection. Each connection also stores its own deadline, so that it can be moved.
#[derive(Clone, Debug, Default)]
pub struct Agenda(BTreeSet<(Instant, Connection)>);

impl Agenda {
    /// Sets the deadline of `connection` to `due`; `kept` is the copy in the connection.
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

    /// The earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Removes the first connection whose deadline is at or before `now`, and returns it.
    pub fn take_due(&mut self, now: Instant) -> Option<Connection> {
        self.0.first().filter(|(at, _)| *at <= now)?;
        self.0.pop_first().map(|(_, connection)| connection)
    }
}
