//! One side of the node: its TCP, and the connection of each of its endpoints' sockets.

use holdover_filter::Connection;
use holdover_tcp::{ConnectionId, Endpoint};

#[derive(Debug)]
pub(super) struct Half {
    pub(super) endpoint: Endpoint,
    /// The connection of each of the endpoint's sockets, by its index.
    owners: Vec<Option<(ConnectionId, Connection)>>,
}

impl Half {
    pub(super) fn new(secret: [u8; 16]) -> Self {
        Self { endpoint: Endpoint::for_others(secret), owners: Vec::new() }
    }

    /// Adds `id` as the half of `connection` on this side.
    pub(super) fn enter(&mut self, id: ConnectionId, connection: Connection) {
        if self.owners.len() <= id.index() {
            self.owners.resize(id.index() + 1, None);
        }
        self.owners[id.index()] = Some((id, connection));
    }

    pub(super) fn owner(&self, id: ConnectionId) -> Option<Connection> {
        self.owners.get(id.index()).copied().flatten().filter(|(of, _)| *of == id).map(|(_, connection)| connection)
    }

    /// Removes a half that continues elsewhere.
    pub(super) fn withdraw(&mut self, id: ConnectionId) {
        if self.owner(id).is_some() {
            self.owners[id.index()] = None;
        }
        self.endpoint.withdraw(id);
    }

    /// Removes a half that has ended.
    pub(super) fn leave(&mut self, id: ConnectionId) {
        if self.owner(id).is_some() {
            self.owners[id.index()] = None;
        }
        self.endpoint.release(id);
    }
}
