//! Connections of this host's containers: TCP sockets in other network namespaces.
//!
//! The agent's programs see a container's packets on this host's interfaces, where they are forwarded ones, often with
//! translated addresses. The socket, and so the user timeout, the process and the cgroup, are in the container's network
//! namespace. [`Containers`] finds these namespaces by the processes in `/proc`, enters each (`setns(2)`) on a thread of
//! its own, and asks there (`sock_diag(7)`); connection tracking knows the addresses before translation.
//!
//! Nothing is kept open between two queries: a descriptor of a namespace would keep a stopped container's interfaces.
//!
//! Needs `CAP_SYS_ADMIN` (`setns`) and `CAP_SYS_PTRACE`.

use std::collections::BTreeMap;
use std::fs;

use holdover_host::log::with_causes;
use holdover_host::{Namespace, NamespaceError, NamespaceId};
use holdover_mobility::Connection;

use crate::sockets::{Conntrack, SocketDiag, SocketDiagError, TcpSocket};

/// The most namespaces that are entered.
pub const MOST_NAMESPACES: usize = 256;

/// The most forwarded connections that are looked up in connection tracking at a time.
const MOST_TRACKED: usize = 4096;

/// The network namespaces of other processes of this host, if they are served.
#[derive(Debug, Default)]
pub struct Containers {
    is_enabled: bool,
    problem: Option<String>,
    found: u64,
}

/// A socket, and its network namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedSocket {
    /// The socket.
    pub socket: TcpSocket,
    /// The container's network namespace; `None` for one in the agent's own.
    pub namespace: Option<NamespaceId>,
}

impl Containers {
    /// Serves the containers, or none.
    pub const fn new(is_enabled: bool) -> Self {
        Self { is_enabled, problem: None, found: 0 }
    }

    /// Whether containers are served.
    pub const fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Why some containers were not reached the last time.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// The number of namespaces found the last time.
    pub const fn found(&self) -> u64 {
        self.found
    }

    /// All connections of the calling thread's network namespace, and of the containers.
    ///
    /// # Errors
    ///
    /// Those of the calling thread's namespace cannot be listed. Containers that cannot be entered are left out,
    /// for the reason in [`Self::problem`].
    pub fn connections(&mut self) -> Result<Vec<PlacedSocket>, SocketDiagError> {
        let own = SocketDiag::open()?.connections()?;
        let mut all: Vec<_> = own.into_iter().map(|socket| PlacedSocket { socket, namespace: None }).collect();
        self.in_each(|id| {
            let sockets = SocketDiag::open()?.connections()?;
            all.extend(sockets.into_iter().map(|socket| PlacedSocket { socket, namespace: Some(id) }));
            Ok::<_, SocketDiagError>(())
        });
        Ok(all)
    }

    /// The sockets of connections that pass this host's interfaces, by the addresses that they have there: its own, and
    /// those of the containers, whose addresses may be translated. A forwarded connection is the container's whose socket
    /// has the addresses that connection tracking knows, or its own if it is not tracked.
    ///
    /// # Errors
    ///
    /// As [`Self::connections`].
    pub fn sockets_of(
        &mut self,
        in_path: impl IntoIterator<Item = Connection>,
    ) -> Result<BTreeMap<Connection, PlacedSocket>, SocketDiagError> {
        let (own, others): (Vec<_>, Vec<_>) =
            self.connections()?.into_iter().partition(|placed| placed.namespace.is_none());
        let own: BTreeMap<_, _> = own.into_iter().map(|placed| (placed.socket.connection, placed)).collect();
        let (mut found, mut forwarded) = (BTreeMap::new(), Vec::new());
        for connection in in_path {
            match own.get(&connection) {
                Some(placed) => _ = found.insert(connection, placed.clone()),
                None => forwarded.push(connection),
            }
        }
        let others = unambiguous(others);
        if others.is_empty() || forwarded.is_empty() {
            return Ok(found);
        }
        let before = before_translation(&forwarded).unwrap_or_else(|error| {
            self.problem = Some(format!("cannot find translated connections: {}", with_causes(&error)));
            BTreeMap::new()
        });
        found.extend(forwarded.into_iter().take(MOST_TRACKED).filter_map(|connection| {
            // The socket of a translated connection has other addresses: one with these is another connection's.
            let inside = before.get(&connection).unwrap_or(&connection);
            Some((connection, others.get(inside)?.clone()))
        }));
        Ok(found)
    }

    /// Calls `body` in each container's network namespace, on a thread that ends with the call.
    pub(crate) fn in_each<E: std::error::Error + Send>(
        &mut self,
        mut body: impl FnMut(NamespaceId) -> Result<(), E> + Send,
    ) {
        if !self.is_enabled {
            return;
        }
        self.problem = None;
        let namespaces = match namespaces() {
            Ok(namespaces) => namespaces,
            Err(error) => {
                self.problem = Some(with_causes(&error));
                return;
            }
        };
        self.found = namespaces.len() as u64;
        if namespaces.len() > MOST_NAMESPACES {
            self.problem = Some(format!("{} network namespaces, of which {MOST_NAMESPACES} are served", self.found));
        }
        for (&id, &pid) in namespaces.iter().take(MOST_NAMESPACES) {
            // The process may have ended since, and its pid may have been reused.
            let Some(namespace) = Namespace::of_process(pid).ok().filter(|namespace| namespace.id() == id) else {
                continue;
            };
            let problem = match namespace.enter(|| body(id)) {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => with_causes(&error),
                Err(error) => with_causes(&error),
            };
            self.problem = Some(format!("{id} of process {pid}: {problem}"));
        }
    }
}

/// The network namespaces of other processes, each with one of them: the oldest one, if numbers have not wrapped.
fn namespaces() -> Result<BTreeMap<NamespaceId, u32>, NamespaceError> {
    let own = Namespace::current()?.id();
    let mut found = BTreeMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids {
        // Processes that have ended or may not be inspected have no namespace here.
        if let Ok(id) = NamespaceId::of_process(pid)
            && id != own
        {
            found.entry(id).or_insert(pid);
        }
    }
    Ok(found)
}

/// Sockets by their addresses, without addresses found in several namespaces: it is unknown which of these has the forwarded connection,
/// and any user may create a namespace with these addresses.
fn unambiguous(sockets: Vec<PlacedSocket>) -> BTreeMap<Connection, PlacedSocket> {
    let mut by_address = BTreeMap::new();
    for placed in sockets {
        by_address
            .entry(placed.socket.connection)
            .and_modify(|found: &mut Option<PlacedSocket>| *found = None)
            .or_insert(Some(placed));
    }
    by_address.into_iter().filter_map(|(connection, placed)| Some((connection, placed?))).collect()
}

/// For each tracked connection, its addresses in the container.
fn before_translation(connections: &[Connection]) -> Result<BTreeMap<Connection, Connection>, SocketDiagError> {
    let mut conntrack = Conntrack::open()?;
    let mut all = BTreeMap::new();
    for &connection in connections.iter().take(MOST_TRACKED) {
        all.extend(conntrack.before_translation(connection)?.map(|inside| (connection, inside)));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    // Claim: Addresses of sockets found in several namespaces belong to no container.
    #[test]
    fn an_address_in_several_namespaces_belongs_to_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let connection = Connection { local: near.local_addr().unwrap(), remote: near.peer_addr().unwrap() };
        let socket = SocketDiag::open().unwrap().find(connection).unwrap().unwrap();
        let placed = PlacedSocket { socket, namespace: NamespaceId::current().ok() };
        let once = unambiguous(vec![placed.clone()]);
        assert_eq!(once.get(&connection), Some(&placed));
        for times in [2, 3] {
            assert_eq!(unambiguous(vec![placed.clone(); times]).len(), 0, "{times} times");
        }
    }
}
