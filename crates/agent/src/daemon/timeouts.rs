//! What the rules of `[[flow]]` make of connections: user timeouts in the kernel, and what is left alone in the path of packets.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd};

use holdover_base::{Duration, Instant};
use holdover_mobility::Connection;

use super::link::with_causes;
use crate::config::Config;
use crate::policy::{Action, Owner, Policy, PolicyError};
use crate::sockets::{Cgroups, SocketDiag, TcpSocket, owner};
use crate::status::UserTimeoutStatus;
use crate::user_timeout::{Given, UserTimeoutError, UserTimeoutOptions, UserTimeouts, kernel_patience};

/// The rules at work.
pub(super) struct Timeouts {
    /// `None` in a dry run, if they are switched off, or if there is a problem.
    timeouts: Option<UserTimeouts>,
    problem: Option<String>,
    is_wanted: bool,
    retry_at: Option<Instant>,
    exempt: Option<Exemptions>,
}

/// What a rule wants left alone in the path of packets.
struct Exemptions {
    policy: Policy,
    cgroups: Option<Cgroups>,
    /// What was decided of connections that are in the path.
    decided: BTreeMap<Connection, bool>,
    look_at: Instant,
}

/// The rules cannot be put in force.
#[derive(Debug, thiserror::Error)]
enum RulesError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Timeouts(#[from] UserTimeoutError),
}

/// When it is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// How often new connections in the path are looked at, if any are to be left alone.
const LOOK: Duration = Duration::from_secs(1);

impl Timeouts {
    /// Puts the rules in force. In a dry run that is nothing.
    pub(super) fn start(now: Instant, config: &Config, dry_run: bool) -> Self {
        let is_wanted = config.user_timeouts.enabled && !dry_run;
        let mut this = Self { timeouts: None, problem: None, is_wanted, retry_at: None, exempt: None };
        this.put_in_force(now, config);
        this
    }

    /// Another configuration is in force.
    pub(super) fn configure(&mut self, now: Instant, before: &Config, config: &Config, dry_run: bool) {
        if before.user_timeouts == config.user_timeouts && before.flow == config.flow {
            return;
        }
        self.is_wanted = config.user_timeouts.enabled && !dry_run;
        let is_elsewhere = before.user_timeouts.cgroup != config.user_timeouts.cgroup;
        if !self.is_wanted || is_elsewhere {
            self.give_up(!self.is_wanted && before.user_timeouts.restore_on_exit);
        }
        self.put_in_force(now, config);
    }

    /// Ends it; whether connections get back what they had.
    pub(super) fn give_up(&mut self, restore: bool) {
        let Some(timeouts) = self.timeouts.take().filter(|_| restore) else { return };
        if let Err(error) = timeouts.restore() {
            tracing::error!(error = with_causes(&error), "user timeouts are left as they are");
        }
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.timeouts.as_ref().map(|timeouts| timeouts.as_fd())
    }

    pub(super) fn handle_ready(&mut self, now: Instant) {
        if let Some(timeouts) = &mut self.timeouts {
            timeouts.handle_ready(now);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, config: &Config) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.put_in_force(now, config);
        }
        if let Some(timeouts) = &mut self.timeouts
            && timeouts.poll_timeout().is_some_and(|at| at <= now)
            && let Err(error) = timeouts.handle_timeout(now)
        {
            self.fail(now, &error);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = self.timeouts.as_ref().and_then(UserTimeouts::poll_timeout);
        let exempt = self.exempt.as_ref().map(|exempt| exempt.look_at);
        timeouts.into_iter().chain(exempt).chain(self.retry_at).min()
    }

    /// Whether connections in the path are to be looked at.
    pub(super) fn is_look_due(&self, now: Instant) -> bool {
        self.exempt.as_ref().is_some_and(|exempt| exempt.look_at <= now)
    }

    /// Of the connections that are in the path: what has been decided newly.
    pub(super) fn decide(&mut self, now: Instant, connections: &[Connection]) -> Vec<(Connection, bool)> {
        self.exempt.as_mut().map(|exempt| exempt.decide(now, connections)).unwrap_or_default()
    }

    /// What the connections of these sockets have been given, in words.
    pub(super) fn given(&self, cookie: u64) -> Option<String> {
        let timeouts = self.timeouts.as_ref()?;
        let Given { rule, timeout, is_applications, .. } = timeouts.given().get(&cookie)?;
        if *is_applications {
            return Some("the application's own".to_owned());
        }
        let name = rule.map(|rule| timeouts.policy().rule_name(rule));
        let timeout = timeout.map(|timeout| timeout.to_string());
        match (timeout, name) {
            (Some(timeout), Some(name)) => Some(format!("{timeout} by {name}")),
            (None, Some(name)) => Some(format!("as it is, by {name}")),
            (timeout, None) => timeout,
        }
    }

    pub(super) fn status(&self) -> UserTimeoutStatus {
        let counters = self.timeouts.as_ref().and_then(|timeouts| timeouts.counters().ok()).unwrap_or_default();
        UserTimeoutStatus {
            in_force: self.timeouts.is_some(),
            problem: self.problem.clone(),
            set: counters.set,
            set_open: counters.set_open,
            applications_own: counters.applications_own,
            options_sent: counters.options_sent,
            options_received: counters.options_received,
        }
    }

    fn put_in_force(&mut self, now: Instant, config: &Config) {
        self.retry_at = None;
        self.exempt = None;
        if !self.is_wanted {
            return;
        }
        match self.try_in_force(now, config) {
            Ok(exempt) => {
                self.exempt = exempt;
                self.problem = None;
                tracing::info!(rules = config.flow.len(), built_in = config.user_timeouts.built_in, "rules in force");
            }
            Err(error) => self.fail(now, &error),
        }
    }

    fn try_in_force(&mut self, now: Instant, config: &Config) -> Result<Option<Exemptions>, RulesError> {
        let policy = config.policy(kernel_patience()?)?;
        let exempts = config.flow.iter().any(|rule| rule.leave_alone);
        let exempt = exempts.then(|| Exemptions {
            policy: policy.clone(),
            cgroups: Cgroups::look().ok(),
            decided: BTreeMap::new(),
            look_at: now,
        });
        match &mut self.timeouts {
            Some(timeouts) => timeouts.set_policy(now, policy)?,
            None => {
                let options =
                    UserTimeoutOptions { cgroup: config.user_timeouts.cgroup.clone(), ..UserTimeoutOptions::default() };
                self.timeouts = Some(UserTimeouts::attach(now, policy, &options)?);
            }
        }
        Ok(exempt)
    }

    /// What cannot be done now may be possible later; the path of packets does not depend on it.
    fn fail(&mut self, now: Instant, error: &dyn std::error::Error) {
        let problem = with_causes(error);
        if self.problem.as_ref() != Some(&problem) {
            tracing::error!(problem, "user timeouts; trying again");
        }
        self.problem = Some(problem);
        self.retry_at = Some(now + RETRY);
    }
}

impl Exemptions {
    fn decide(&mut self, now: Instant, connections: &[Connection]) -> Vec<(Connection, bool)> {
        self.look_at = now + LOOK;
        let before = std::mem::take(&mut self.decided);
        let mut fresh = Vec::new();
        for &connection in connections {
            match before.get(&connection) {
                Some(&alone) => _ = self.decided.insert(connection, alone),
                None => fresh.push(connection),
            }
        }
        if fresh.is_empty() {
            return Vec::new();
        }
        let is_alone =
            |decision: crate::policy::Decision| decision.action == Action::LeaveAlone && decision.rule.is_some();
        let sockets = if fresh.iter().any(|&connection| self.policy.decide_by_place(connection).is_none()) {
            SocketDiag::open().and_then(|mut diag| diag.connections()).unwrap_or_default()
        } else {
            Vec::new()
        };
        let inodes = sockets.iter().filter(|socket| fresh.contains(&socket.connection)).map(|socket| socket.inode);
        let owners = owner::processes_of(&inodes.filter(|&inode| inode != 0).collect());
        let mut decided = Vec::new();
        for connection in fresh {
            let socket = sockets.iter().find(|socket| socket.connection == connection);
            let decision = match self.policy.decide_by_place(connection) {
                Some(decision) => decision,
                None => {
                    let owner = socket.map(|socket| owner_of(socket, &mut self.cgroups, &owners)).unwrap_or_default();
                    self.policy.decide(connection, &owner)
                }
            };
            let alone = is_alone(decision);
            self.decided.insert(connection, alone);
            decided.push((connection, alone));
        }
        decided
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
        let mut exempt = Exemptions {
            policy: config.policy(Duration::from_secs(1000)).unwrap(),
            cgroups: None,
            decided: BTreeMap::new(),
            look_at: Instant::ZERO,
        };
        let [database, ssh, web] = ["198.51.100.1:5432", "198.51.100.1:22", "198.51.100.1:443"].map(connection);
        let now = Instant::from_secs(1);
        assert_eq!(exempt.decide(now, &[database, ssh]), [(database, true), (ssh, false)]);
        // Nobody has that connection here: a rule about its user is not for it.
        assert_eq!(exempt.decide(now, &[database, ssh, web]), [(web, false)]);
        assert_eq!(exempt.decide(now, &[ssh, web]), []);
        assert_eq!(exempt.look_at, now + LOOK);
        assert_eq!(exempt.decide(now, &[database]), [(database, true)], "forgotten with the connection");
    }

    #[test]
    fn a_dry_run_has_no_rules_in_force() {
        let mut timeouts = Timeouts::start(Instant::ZERO, &Config::default(), true);
        assert_eq!((timeouts.poll_timeout(), timeouts.descriptor().is_none()), (None, true));
        timeouts.handle_timeout(Instant::from_secs(1000), &Config::default());
        assert_eq!((timeouts.status().in_force, timeouts.status().problem), (false, None));
    }
}
