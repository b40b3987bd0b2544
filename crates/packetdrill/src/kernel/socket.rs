//! One socket.

use std::collections::VecDeque;

use holdover_tcp::{Connection, ConnectionError, ConnectionId, State};

use super::socket_options::SocketOptions;

#[derive(Clone, Debug)]
pub(super) struct Socket {
    pub(super) role: Role,
    pub(super) nonblocking: bool,
    pub(super) options: SocketOptions,
    pub(super) read_shut: bool,
    pub(super) write_shut: bool,
    /// The connection's error was reported already; the next call finds the connection closed.
    pub(super) error_told: bool,
    /// A connection attempt was made; the next `connect` returns its result.
    pub(super) connecting: bool,
    /// `connect` has returned, and the SYN waits for data (`TCP_FASTOPEN_CONNECT`).
    pub(super) put_off: bool,
    /// The peer had closed its side before the connection ended.
    pub(super) peer_closed: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Role {
    Fresh { port: Option<u16> },
    Listener { port: u16, queue: VecDeque<ConnectionId> },
    Connection(ConnectionId),
}

impl Socket {
    pub(super) fn new(nonblocking: bool) -> Self {
        Self {
            role: Role::Fresh { port: None },
            nonblocking,
            options: SocketOptions::default(),
            read_shut: false,
            write_shut: false,
            error_told: false,
            connecting: false,
            put_off: false,
            peer_closed: false,
        }
    }

    /// The socket returned by `accept`: it inherits the listener's options, but not its file flags.
    pub(super) fn accepted(id: ConnectionId, options: SocketOptions, nonblocking: bool) -> Self {
        Self { role: Role::Connection(id), options, ..Self::new(nonblocking) }
    }

    pub(super) fn connection(&self) -> Option<ConnectionId> {
        match self.role {
            Role::Connection(id) => Some(id),
            _ => None,
        }
    }

    /// The error of an ended connection (`sk_err`), reported once.
    pub(super) fn pending_error(&self, connection: &Connection) -> Option<&'static str> {
        if self.error_told || !connection.is_closed() {
            return None;
        }
        Some(match connection.error()? {
            // Linux `tcp_reset`: a reset after the peer's FIN is `EPIPE`.
            ConnectionError::Reset if self.peer_closed => "EPIPE",
            ConnectionError::Reset => "ECONNRESET",
            ConnectionError::Refused | ConnectionError::Unreachable => "ECONNREFUSED",
            ConnectionError::TimedOut | ConnectionError::UserTimeout | ConnectionError::ProbesUnanswered => "ETIMEDOUT",
            ConnectionError::Aborted => return None,
        })
    }
}

/// Whether the peer will send nothing more.
pub(super) fn is_at_end(connection: &Connection) -> bool {
    matches!(connection.state(), State::CloseWait | State::Closing | State::LastAck | State::TimeWait | State::Closed)
}
