//! Owners of sockets, as far as a policy needs them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Owner, Policy};
use crate::sockets::{Cgroups, TcpSocket, owner};

/// Finds the owners of sockets.
#[derive(Debug)]
pub(crate) struct Owners {
    /// `None` without cgroup names: rules with cgroups match nothing.
    cgroups: Option<Cgroups>,
}

impl Owners {
    pub(crate) fn new() -> Self {
        Self { cgroups: Cgroups::look().ok() }
    }

    /// The owners of these sockets, in order. Processes are left out if the policy does not need them.
    pub(crate) fn of(&mut self, policy: &Policy, sockets: &[&TcpSocket]) -> Vec<Owner> {
        let inodes: BTreeSet<u32> = sockets.iter().map(|socket| socket.inode).filter(|&inode| inode != 0).collect();
        let processes = if policy.needs_processes() { owner::processes_of(&inodes) } else { BTreeMap::new() };
        let mut owner = |socket: &TcpSocket| {
            let cgroup = self.cgroups.as_mut().zip(socket.cgroup).and_then(|(cgroups, number)| cgroups.name(number));
            Owner {
                uid: Some(socket.uid),
                cgroup: cgroup.map(str::to_owned),
                processes: processes.get(&socket.inode).cloned().unwrap_or_default(),
            }
        };
        sockets.iter().map(|socket| owner(socket)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::Path;

    use holdover_base::Duration;

    use super::*;
    use crate::config::Config;
    use crate::sockets::SocketDiag;

    #[test]
    fn processes_are_looked_for_if_a_rule_asks_for_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = near.local_addr().unwrap();
        let all = SocketDiag::open().unwrap().connections().unwrap();
        let socket = all.iter().find(|socket| socket.connection.local == local).unwrap();
        let owner = |rule: &str| {
            let text = format!("[[flow]]\n{rule}\nleave_alone = true\n");
            let policy = Config::parse(Path::new("agent.toml"), &text).unwrap().policy(Duration::ZERO).unwrap();
            Owners::new().of(&policy, &[socket]).remove(0)
        };
        let (of_user, of_process) = (owner("user = 0"), owner("process = \"ssh\""));
        assert_eq!((of_user.uid, of_user.processes.len()), (of_process.uid, 0));
        assert!(of_process.processes.iter().any(|process| process.pid == std::process::id()));
    }
}
