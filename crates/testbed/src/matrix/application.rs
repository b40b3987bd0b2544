//! The application on our side: it writes one stream, reads another, and closes by FIN.

use holdover_base::Instant;
use holdover_tcp::{ConnectionId, Endpoint, Event, State};

use super::{Sink, Source};

/// The most bytes written at a time.
const CHUNK: usize = 16 * 1024;

/// An application with one connection. Call [`Self::turn`] after every possible change.
///
/// With data to send, it closes its side as soon as all data is written; without, when the peer has closed.
#[derive(Clone, Debug)]
pub struct Application {
    connection: Option<ConnectionId>,
    sends: bool,
    source: Source,
    sink: Sink,
    has_shut_down: bool,
    peer_has_closed: bool,
    done_at: Option<Instant>,
}

impl Application {
    /// An application for `connection`, or for the first one that is accepted; it expects the stream of `sink`.
    pub fn new(connection: Option<ConnectionId>, source: Source, sink: Sink) -> Self {
        Self {
            connection,
            sends: source.remaining() > 0,
            source,
            sink,
            has_shut_down: false,
            peer_has_closed: false,
            done_at: None,
        }
    }

    /// Reads, writes and closes as far as it can.
    pub fn turn(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let mut has_news = self.connection.is_some() && self.done_at.is_none();
        while let Some((id, event)) = endpoint.poll_event() {
            if event == Event::Connected && self.connection.is_none() {
                self.connection = Some(id);
            }
            if self.connection == Some(id) {
                has_news = true;
                self.peer_has_closed |= event == Event::PeerClosed;
            }
        }
        let Some(connection) = self.connection.filter(|_| has_news).and_then(|id| endpoint.connection_mut(id)) else {
            return;
        };
        while let Some(chunk) = connection.read(now) {
            self.sink.take(&chunk);
        }
        while self.source.remaining() > 0 && connection.write_room() > 0 {
            let chunk = self.source.peek(CHUNK.min(connection.write_room()));
            let written = connection.write(now, chunk.clone().into());
            if written == 0 {
                break;
            }
            self.source.advance(&chunk[..written]);
        }
        let is_time = if self.sends { self.source.remaining() == 0 } else { self.peer_has_closed };
        if is_time && !self.has_shut_down {
            self.has_shut_down = true;
            connection.shutdown_write();
        }
        let both_closed = matches!(connection.state(), State::TimeWait | State::Closed);
        if both_closed && connection.error().is_none() && self.done_at.is_none() {
            self.done_at = Some(now);
        }
    }

    /// Its connection, once there is one.
    pub fn connection(&self) -> Option<ConnectionId> {
        self.connection
    }

    /// When both sides had closed in good order: all sent data is acknowledged, and all received data is read.
    pub fn done_at(&self) -> Option<Instant> {
        self.done_at
    }

    /// The bytes transferred so far, in both directions.
    pub fn progress(&self, endpoint: &Endpoint) -> u64 {
        let connection = self.connection.and_then(|id| endpoint.connection(id));
        self.sink.digest().len + connection.map_or(0, |connection| connection.counters().bytes_acked.0)
    }

    /// The stream that it writes.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The stream that it has read.
    pub fn sink(&self) -> &Sink {
        &self.sink
    }
}
