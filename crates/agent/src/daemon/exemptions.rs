//! What the rules of `[[flow]]` want left alone in the path of packets.

use std::collections::{BTreeMap, BTreeSet};

use holdover_base::{Duration, Instant};
use holdover_mobility::Connection;

use crate::config::Config;
use crate::policy::{Action, Decision, Owner, Policy, PolicyError};
use crate::sockets::{Cgroups, SocketDiag, TcpSocket, owner};

/// Which connections in the path are left alone. That has nothing to do with their user timeouts: only the rules are the same.
pub(super) struct Exemptions {
    /// The rules, once they have been read. They cannot be while a user whom they name is not there.
    policy: Option<Policy>,
    problem: Option<String>,
    /// Whether any rule leaves something alone.
    is_wanted: bool,
    cgroups: Option<Cgroups>,
    /// What was decided of connections that are in the path.
    decided: BTreeMap<Connection, bool>,
    /// When they are looked at next; `None` if there is nothing to find.
    look_at: Option<Instant>,
}

/// How often new connections in the path are looked at, if any are to be left alone.
const LOOK: Duration = Duration::from_secs(1);

/// When it is tried again to read the rules.
const RETRY: Duration = Duration::from_secs(60);

impl Exemptions {
    /// Those of a configuration; none in a dry run.
    pub(super) fn new(now: Instant, config: &Config, dry_run: bool) -> Self {
        let is_wanted = !dry_run && config.flow.iter().any(|rule| rule.leave_alone);
        Self {
            policy: None,
            problem: None,
            is_wanted,
            cgroups: Cgroups::look().ok(),
            decided: BTreeMap::new(),
            look_at: is_wanted.then_some(now),
        }
    }

    /// Another configuration is in force: what the one before has left alone is looked at once more.
    pub(super) fn configure(&mut self, now: Instant, config: &Config, dry_run: bool) {
        let was_wanted = self.is_wanted;
        *self = Self::new(now, config, dry_run);
        self.look_at = (was_wanted || self.is_wanted).then_some(now);
    }

    /// When connections in the path are to be looked at.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.look_at
    }

    /// Of the connections that are in the path, and whether they are left alone there: what is to be changed.
    ///
    /// Of each connection it is decided once. What the path knows of it may have been lost since: with its engine, or for want of
    /// room.
    pub(super) fn decide(
        &mut self,
        now: Instant,
        config: &Config,
        in_path: &[(Connection, bool)],
    ) -> Vec<(Connection, bool)> {
        self.look_at = self.is_wanted.then(|| now + LOOK);
        let policy = match self.policy.take().map_or_else(|| config.policy(Duration::ZERO), Ok) {
            Ok(policy) => policy,
            Err(error) => {
                self.fail(now, &error);
                return Vec::new();
            }
        };
        let before = std::mem::take(&mut self.decided);
        let mut fresh = BTreeSet::new();
        for &(connection, _) in in_path {
            match before.get(&connection) {
                Some(&alone) => _ = self.decided.insert(connection, alone),
                None => _ = fresh.insert(connection),
            }
        }
        self.decide_of(&policy, &fresh);
        self.policy = Some(policy);
        let decided = |connection: &Connection| self.decided.get(connection).copied().unwrap_or_default();
        let wanted = in_path.iter().map(|(connection, is_alone)| (*connection, decided(connection), *is_alone));
        wanted.filter(|(_, wanted, is)| wanted != is).map(|(connection, wanted, _)| (connection, wanted)).collect()
    }

    /// Decides of connections by their places, and by their owners if a rule asks for those.
    fn decide_of(&mut self, policy: &Policy, fresh: &BTreeSet<Connection>) {
        let is_alone = |decision: Decision| decision.action == Action::LeaveAlone && decision.rule.is_some();
        let mut of_owner = BTreeSet::new();
        for &connection in fresh {
            match policy.decide_by_place(connection) {
                Some(decision) => _ = self.decided.insert(connection, is_alone(decision)),
                None => _ = of_owner.insert(connection),
            }
        }
        if of_owner.is_empty() {
            return;
        }
        let sockets = SocketDiag::open().and_then(|mut diag| diag.connections()).unwrap_or_default();
        let sockets = sockets.into_iter().filter(|socket| of_owner.contains(&socket.connection));
        let sockets: BTreeMap<Connection, TcpSocket> = sockets.map(|socket| (socket.connection, socket)).collect();
        let inodes = sockets.values().map(|socket| socket.inode).filter(|&inode| inode != 0);
        let owners = owner::processes_of(&inodes.collect());
        for connection in of_owner {
            let socket = sockets.get(&connection);
            let owner = socket.map(|socket| owner_of(socket, &mut self.cgroups, &owners)).unwrap_or_default();
            let alone = is_alone(policy.decide(connection, &owner));
            self.decided.insert(connection, alone);
        }
    }

    fn fail(&mut self, now: Instant, error: &PolicyError) {
        let problem = error.to_string();
        if self.problem.as_ref() != Some(&problem) {
            tracing::error!(problem, "nothing is left alone; trying again");
        }
        self.problem = Some(problem);
        self.look_at = Some(now + RETRY);
    }
}

fn owner_of(
    socket: &TcpSocket,
    cgroups: &mut Option<Cgroups>,
    processes: &BTreeMap<u32, Vec<owner::Process>>,
) -> Owner {
    let cgroup = cgroups.as_mut().zip(socket.cgroup).and_then(|(cgroups, number)| cgroups.name(number));
    Owner {
        uid: Some(socket.uid),
        cgroup: cgroup.map(str::to_owned),
        processes: processes.get(&socket.inode).cloned().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn connection(remote: &str) -> Connection {
        Connection { local: "192.0.2.7:1024".parse().unwrap(), remote: remote.parse().unwrap() }
    }

    #[test]
    fn what_a_rule_wants_left_alone_is_decided_once() {
        let text = "[[flow]]\nport = 5432\nleave_alone = true\n[[flow]]\nport = 22\nhold = \"8 h\"\n\
                    [[flow]]\nport = 443\nuser = \"root\"\nleave_alone = true\n";
        let config = Config::parse(Path::new("agent.toml"), text).unwrap();
        let mut exempt = Exemptions::new(Instant::ZERO, &config, false);
        let [database, ssh, web] = ["198.51.100.1:5432", "198.51.100.1:22", "198.51.100.1:443"].map(connection);
        let now = Instant::from_secs(1);
        let acted = |connection| (connection, false);
        let alone = |connection| (connection, true);
        assert_eq!(exempt.decide(now, &config, &[acted(database), acted(ssh)]), [alone(database)]);
        // Nobody has that connection here: a rule about its user is not for it.
        assert_eq!(exempt.decide(now, &config, &[alone(database), acted(ssh), acted(web)]), []);
        assert_eq!(exempt.decided.len(), 3);
        assert_eq!(exempt.poll_timeout(), Some(now + LOOK));
        assert_eq!(exempt.decide(now, &config, &[acted(database)]), [alone(database)], "the path has forgotten it");
        assert_eq!(exempt.decided.len(), 1, "forgotten with the connection");
        assert_eq!(exempt.decide(now, &config, &[alone(ssh)]), [acted(ssh)], "no rule is for it any more");
        // Without rules it is looked once more, for what was left alone before.
        let config = Config::default();
        exempt.configure(now, &config, false);
        assert_eq!(exempt.poll_timeout(), Some(now));
        assert_eq!(exempt.decide(now, &config, &[alone(database)]), [acted(database)]);
        assert_eq!(exempt.poll_timeout(), None);
    }
}
