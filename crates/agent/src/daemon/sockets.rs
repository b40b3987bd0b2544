//! Details of the status from the kernel's sockets.

use std::collections::{BTreeMap, BTreeSet};

use holdover_mobility::Connection;

use super::timeouts::Timeouts;
use crate::containers::{Containers, PlacedSocket};
use crate::sockets::{Cgroups, owner};
use crate::status::{ConnectionStatus, ContainersStatus, Status};

/// Adds the process and the container of each connection, its retransmission backoff, and its user timeout.
pub(super) fn describe(status: &mut Status, timeouts: &Timeouts, containers: &mut Containers) {
    let connection = |status: &ConnectionStatus| Connection { local: status.local, remote: status.remote };
    let sockets = containers.sockets_of(status.connections.iter().map(connection)).unwrap_or_default();
    let inodes: BTreeSet<u32> = sockets.values().map(|placed| placed.socket.inode).collect();
    let owners = owner::processes_of(&inodes);
    let names = names_of_containers(&sockets);
    for described in &mut status.connections {
        let of = connection(described);
        let Some(PlacedSocket { socket, .. }) = sockets.get(&of) else { continue };
        described.rto_ms = Some(socket.info.tcpi_rto.as_secs_f64() * 1e3);
        described.backoff = Some(socket.info.tcpi_backoff.into());
        described.user_timeout = timeouts.given(socket.cookie);
        described.process =
            owners.get(&socket.inode).and_then(|processes| processes.first()).map(|first| first.comm.clone());
        described.container = names.get(&of).cloned();
    }
    status.containers = containers.is_enabled().then(|| ContainersStatus {
        namespaces: containers.found(),
        problem: containers.problem().or_else(|| timeouts.containers_problem()).map(str::to_owned),
    });
}

/// The cgroup of each connection in another network namespace, or that namespace.
fn names_of_containers(sockets: &BTreeMap<Connection, PlacedSocket>) -> BTreeMap<Connection, String> {
    let mut names = BTreeMap::new();
    let inside: Vec<_> =
        sockets.iter().filter_map(|(of, placed)| Some((of, &placed.socket, placed.namespace?))).collect();
    if inside.is_empty() {
        return names;
    }
    let mut cgroups = Cgroups::look().ok();
    for (of, socket, namespace) in inside {
        let cgroup = cgroups.as_mut().zip(socket.cgroup).and_then(|(cgroups, number)| cgroups.name(number));
        // Containers without cgroup v2 are all in its root.
        let name = cgroup.filter(|name| *name != "/").map_or_else(|| namespace.to_string(), str::to_owned);
        names.insert(*of, name);
    }
    names
}
