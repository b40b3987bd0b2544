//! One side of the node: its TCP, and which connection each of its own belongs to.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use holdover_filter::Connection;
use holdover_tcp::{ConnectionId, Endpoint, EndpointConfig};
use holdover_wire::Packet;

#[derive(Debug)]
pub(super) struct Half {
    pub(super) endpoint: Endpoint,
    /// The connection of each of the endpoint's, by its index.
    owners: Vec<Option<(ConnectionId, Connection)>>,
    /// And the other way round.
    ids: BTreeMap<Connection, ConnectionId>,
}

impl Half {
    pub(super) fn new(secret: [u8; 16]) -> Self {
        let endpoint = Endpoint::new(EndpointConfig { addresses: Vec::new(), secret });
        Self { endpoint, owners: Vec::new(), ids: BTreeMap::new() }
    }

    /// `id` is the half of `connection` on this side.
    pub(super) fn enter(&mut self, id: ConnectionId, connection: Connection) {
        if self.owners.len() <= id.index() {
            self.owners.resize(id.index() + 1, None);
        }
        self.owners[id.index()] = Some((id, connection));
        self.ids.insert(connection, id);
    }

    /// The connection that has just begun with `syn` is the half of `connection`.
    pub(super) fn adopt(&mut self, connection: Connection, syn: &Packet) {
        let Some(segment) = syn.tcp() else { return };
        let (local, remote) = (SocketAddr::new(syn.dst, segment.dst_port), SocketAddr::new(syn.src, segment.src_port));
        if let Some(id) = self.endpoint.connection_between(local, remote) {
            self.enter(id, connection);
        }
    }

    pub(super) fn id_of(&self, connection: Connection) -> Option<ConnectionId> {
        self.ids.get(&connection).copied()
    }

    pub(super) fn owner(&self, id: ConnectionId) -> Option<Connection> {
        self.owners.get(id.index()).copied().flatten().filter(|(of, _)| *of == id).map(|(_, connection)| connection)
    }

    /// The half is over.
    pub(super) fn leave(&mut self, id: ConnectionId) {
        if let Some(connection) = self.owner(id) {
            self.owners[id.index()] = None;
            self.ids.remove(&connection);
        }
        self.endpoint.release(id);
    }
}
