//! Listeners and their pending handshakes.

use std::sync::Arc;

use super::Endpoint;
use crate::config::Config;

/// Why an endpoint does not listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListenError {
    /// There is a listener already.
    #[error("port {port} is in use")]
    InUse {
        /// The port.
        port: u16,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Listener {
    pub(super) config: Arc<Config>,
    pub(super) backlog: usize,
    pub(super) half_open: usize,
    /// Connections that are the application's although their handshake has not ended.
    pub(super) early: usize,
}

/// State of a connection at its listener during the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Handshake {
    /// Completed, or without a listener.
    Done,
    /// Counts in the backlog; the application does not know of it.
    HalfOpen,
    /// The application has it (RFC 7413).
    Early,
}

impl Endpoint {
    /// Listens at `port` on all addresses, with at most `backlog` pending handshakes.
    pub fn listen(&mut self, port: u16, config: Arc<Config>, backlog: usize) -> Result<(), ListenError> {
        if self.listeners.contains_key(&port) {
            return Err(ListenError::InUse { port });
        }
        // Handshakes of a previous listener may still be pending.
        let [half_open, early] = self.under_way(port);
        self.listeners.insert(port, Listener { config, backlog, half_open, early });
        Ok(())
    }

    /// Pending handshakes at `port`: in the backlog, and already with the application.
    pub(super) fn under_way(&self, port: u16) -> [usize; 2] {
        [Handshake::HalfOpen, Handshake::Early]
            .map(|handshake| self.entries.iter().filter(|entry| entry.counts_at(handshake) == Some(port)).count())
    }

    /// Stops listening at `port`. Accepted connections stay.
    pub fn unlisten(&mut self, port: u16) {
        self.listeners.remove(&port);
    }

    /// The end of a handshake frees its place in the backlog.
    pub(super) fn leave_listener(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        let handshake = core::mem::replace(&mut entry.handshake, Handshake::Done);
        let Some(connection) = entry.connection.as_deref().filter(|_| handshake != Handshake::Done) else { return };
        let Some(listener) = self.listeners.get_mut(&connection.local().port()) else { return };
        match handshake {
            Handshake::Done => {}
            Handshake::HalfOpen => listener.half_open = listener.half_open.saturating_sub(1),
            Handshake::Early => listener.early = listener.early.saturating_sub(1),
        }
    }
}
