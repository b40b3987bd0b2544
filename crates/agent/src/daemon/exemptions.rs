//! What the rules of `[[flow]]` want left alone in the path of packets.

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_mobility::Connection;
use holdover_wire::TcpState;

use crate::config::Config;
use crate::pace;
use crate::policy::{Action, Decision, Owner, Owners, Policy, PolicyError};
use crate::sockets::{SocketDiag, SocketDiagError, TcpSocket};

/// Which connections in the path are left alone. That has nothing to do with their user timeouts: only the rules are the same.
pub(super) struct Exemptions {
    /// The rules, once they have been read.
    policy: Option<Policy>,
    problem: Option<String>,
    /// When users are looked up again who were not there.
    look_up_at: Option<Instant>,
    /// Whether any rule leaves something alone.
    is_wanted: bool,
    owners: Owners,
    /// What was decided of connections that are in the path.
    decided: BTreeMap<Connection, Verdict>,
    /// When they are looked at next; `None` if there is nothing to find.
    look_at: Option<Instant>,
}

/// Whether a connection is left alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// For as long as it is in the path.
    Settled(bool),
    /// For the time being: it matters whose it is, and nobody was seen to have it.
    Pending {
        alone: bool,
        /// In how many looks in a row there was nobody to be waited for.
        in_vain: u8,
    },
}

/// Who has a connection, as far as its socket tells.
enum Holder {
    /// A process has it open.
    Found,
    /// There will be somebody, or it could not be seen: nobody has accepted it yet, or the kernel did not tell.
    ToCome,
    /// It has no socket, or nobody has it open any more.
    Nobody,
}

/// A connection that is forwarded has no socket; one that is being made may not have it yet.
const MOST_IN_VAIN: u8 = 5;

/// How often new connections in the path are looked at, if any are to be left alone.
const LOOK: Duration = Duration::from_secs(1);

/// When it is tried again to read the rules.
const RETRY: Duration = Duration::from_secs(60);

impl Exemptions {
    /// Those of a configuration.
    pub(super) fn new(now: Instant, config: &Config) -> Self {
        let is_wanted = config.flow.iter().any(|rule| rule.leave_alone);
        Self {
            policy: None,
            problem: None,
            look_up_at: None,
            is_wanted,
            owners: Owners::new(),
            decided: BTreeMap::new(),
            look_at: is_wanted.then_some(now),
        }
    }

    /// Another configuration is in force: what the one before has left alone is looked at once more.
    pub(super) fn configure(&mut self, now: Instant, config: &Config) {
        let was_wanted = self.is_wanted;
        *self = Self::new(now, config);
        self.look_at = (was_wanted || self.is_wanted).then_some(now);
    }

    /// When connections in the path are to be looked at.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.look_at
    }

    /// Of the connections that are in the path, and whether they are left alone there: what is to be changed.
    ///
    /// Of each connection it is decided once; if its owner matters, once that is known. What the path knows of it may have been lost
    /// since: with its engine, or for want of room.
    pub(super) fn decide(
        &mut self,
        now: Instant,
        config: &Config,
        in_path: &[(Connection, bool)],
    ) -> Vec<(Connection, bool)> {
        self.decide_with(now, config, in_path, || SocketDiag::open()?.connections())
    }

    /// To look at all connections, and to do what came of it, has taken so long: the next look is the later for it.
    pub(super) fn handle_done(&mut self, now: Instant, took: Duration) {
        self.look_at = self.look_at.map(|at| at.max(now + pace::rest(took, Duration::ZERO)));
    }

    fn decide_with(
        &mut self,
        now: Instant,
        config: &Config,
        in_path: &[(Connection, bool)],
        list: impl FnOnce() -> Result<Vec<TcpSocket>, SocketDiagError>,
    ) -> Vec<(Connection, bool)> {
        self.look_at = self.is_wanted.then(|| now + LOOK);
        let policy = match self.read_policy(now, config) {
            Ok(policy) => policy,
            Err(error) => {
                self.fail(now, &error);
                return Vec::new();
            }
        };
        let before = std::mem::take(&mut self.decided);
        // Those of which it matters whose they are, and what was thought of them.
        let mut of_owner = BTreeMap::new();
        for &(connection, _) in in_path {
            let settled = match before.get(&connection) {
                Some(settled @ Verdict::Settled(_)) => Some(*settled),
                _ => policy.decide_by_place(connection).map(|decision| Verdict::Settled(is_alone(decision))),
            };
            match settled {
                Some(settled) => _ = self.decided.insert(connection, settled),
                None => _ = of_owner.insert(connection, before.get(&connection).copied()),
            }
        }
        if !of_owner.is_empty() {
            self.decide_by_owner(&policy, &of_owner, list);
        }
        self.policy = Some(policy);
        let decided = |connection| self.decided.get(connection).is_some_and(|verdict| verdict.is_alone());
        let wanted = in_path.iter().map(|(connection, is_alone)| (*connection, decided(connection), *is_alone));
        wanted.filter(|(_, wanted, is)| wanted != is).map(|(connection, wanted, _)| (connection, wanted)).collect()
    }

    fn decide_by_owner(
        &mut self,
        policy: &Policy,
        connections: &BTreeMap<Connection, Option<Verdict>>,
        list: impl FnOnce() -> Result<Vec<TcpSocket>, SocketDiagError>,
    ) {
        let sockets = list().inspect_err(|error| tracing::debug!(%error, "nobody is known to have a connection")).ok();
        let mut found = BTreeMap::new();
        for socket in sockets.iter().flatten().filter(|socket| connections.contains_key(&socket.connection)) {
            found.insert(socket.connection, socket);
        }
        let open: Vec<&TcpSocket> = found.values().copied().filter(|socket| socket.inode != 0).collect();
        let owners = self.owners.of(policy, &open);
        let owners: BTreeMap<Connection, &Owner> = open.iter().map(|socket| socket.connection).zip(&owners).collect();
        for (&connection, before) in connections {
            let holder = if sockets.is_some() { Holder::of(found.get(&connection).copied()) } else { Holder::ToCome };
            let nobody = Owner::default();
            let owner = owners.get(&connection).copied().unwrap_or(&nobody);
            let alone = is_alone(policy.decide(connection, owner));
            self.decided.insert(connection, Verdict::of(alone, &holder, *before));
        }
    }

    /// The rules. Users who were not there are looked up again after a while.
    fn read_policy(&mut self, now: Instant, config: &Config) -> Result<Policy, PolicyError> {
        let look_up_at = self.look_up_at;
        if let Some(policy) = self.policy.take_if(|_| look_up_at.is_none_or(|at| now < at)) {
            return Ok(policy);
        }
        let before = self.policy.take();
        let policy = config.policy(Duration::ZERO)?;
        self.look_up_at = (!policy.problems().is_empty()).then(|| now + RETRY);
        if before.is_some_and(|before| before != policy) {
            self.decided.clear();
        }
        let problem = (!policy.problems().is_empty()).then(|| policy.problems().join("; "));
        if problem != self.problem && self.is_wanted {
            problem.iter().for_each(|problem| tracing::warn!(problem, "connections of these users are not left alone"));
        }
        self.problem = problem;
        Ok(policy)
    }

    /// Users whom the rules name and who are not there, or why there are no rules.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
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

impl Verdict {
    fn of(alone: bool, holder: &Holder, before: Option<Self>) -> Self {
        let in_vain = match before {
            Some(Self::Pending { in_vain, .. }) => in_vain,
            _ => 0,
        };
        match holder {
            Holder::Found => Self::Settled(alone),
            Holder::ToCome => Self::Pending { alone, in_vain },
            Holder::Nobody if in_vain + 1 < MOST_IN_VAIN => Self::Pending { alone, in_vain: in_vain + 1 },
            Holder::Nobody => Self::Settled(alone),
        }
    }

    const fn is_alone(self) -> bool {
        match self {
            Self::Settled(alone) | Self::Pending { alone, .. } => alone,
        }
    }
}

impl Holder {
    fn of(socket: Option<&TcpSocket>) -> Self {
        match socket {
            Some(socket) if socket.inode != 0 => Self::Found,
            // Its process has not come to it. After the process has closed it the state is another one.
            Some(socket) if matches!(socket.info.tcpi_state, TcpState::Established | TcpState::CloseWait) => {
                Self::ToCome
            }
            _ => Self::Nobody,
        }
    }
}

fn is_alone(decision: Decision) -> bool {
    decision.action == Action::LeaveAlone && decision.rule.is_some()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
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
        let mut exempt = Exemptions::new(Instant::ZERO, &config);
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
        exempt.configure(now, &config);
        assert_eq!(exempt.poll_timeout(), Some(now));
        assert_eq!(exempt.decide(now, &config, &[alone(database)]), [acted(database)]);
        assert_eq!(exempt.poll_timeout(), None);
    }
    /// A connection of this process over loopback, and its socket as the kernel tells of it.
    struct Open {
        near: TcpStream,
        _far: TcpStream,
    }

    impl Open {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            Self { near, _far: listener.accept().unwrap().0 }
        }

        fn connection(&self) -> Connection {
            Connection { local: self.near.local_addr().unwrap(), remote: self.near.peer_addr().unwrap() }
        }

        fn socket(&self) -> TcpSocket {
            SocketDiag::open().unwrap().find(self.connection()).unwrap().unwrap()
        }

        /// Left alone, if it is known that this process has it.
        fn config(&self) -> Config {
            let name = std::fs::read_to_string("/proc/self/comm").unwrap();
            let text = format!("[[flow]]\nremote = \"127.0.0.1\"\nprocess = {:?}\nleave_alone = true\n", name.trim());
            Config::parse(Path::new("agent.toml"), &text).unwrap()
        }
    }

    #[test]
    fn it_is_asked_again_whose_a_connection_is_until_that_is_known() {
        let open = Open::new();
        let (connection, socket, config) = (open.connection(), open.socket(), open.config());
        let now = Instant::from_secs(1);
        let in_path = [(connection, false)];
        let mut exempt = Exemptions::new(now, &config);
        let mut look = |sockets: Result<TcpSocket, SocketDiagError>| {
            exempt.decide_with(now, &config, &in_path, || sockets.map(|socket| vec![socket]))
        };
        for _ in 0..3 * MOST_IN_VAIN {
            assert_eq!(look(Err(SocketDiagError::Answer("none"))), []);
            assert_eq!(look(Ok(TcpSocket { inode: 0, ..socket.clone() })), [], "nobody has accepted it yet");
        }
        assert_eq!(look(Ok(socket)), [(connection, true)]);
        assert_eq!(look(Err(SocketDiagError::Answer("none"))), [(connection, true)], "that is settled");
    }

    #[test]
    fn who_has_a_connection_without_a_socket_is_asked_a_few_times() {
        let open = Open::new();
        let (connection, socket, config) = (open.connection(), open.socket(), open.config());
        let now = Instant::from_secs(1);
        for (looks, found) in [(MOST_IN_VAIN - 1, vec![(connection, true)]), (MOST_IN_VAIN, Vec::new())] {
            let mut exempt = Exemptions::new(now, &config);
            let mut look = |sockets| exempt.decide_with(now, &config, &[(connection, false)], || Ok(sockets));
            (0..looks).for_each(|_| assert_eq!(look(Vec::new()), []));
            assert_eq!(look(vec![socket.clone()]), found, "after {looks}");
        }
    }

    #[test]
    fn the_next_look_is_the_later_the_longer_one_takes() {
        let text = "[[flow]]\nport = 5432\nleave_alone = true\n";
        let config = Config::parse(Path::new("agent.toml"), text).unwrap();
        let now = Instant::from_secs(1);
        let mut exempt = Exemptions::new(now, &config);
        exempt.decide(now, &config, &[]);
        exempt.handle_done(now, Duration::from_millis(1));
        assert_eq!(exempt.poll_timeout(), Some(now + LOOK));
        exempt.handle_done(now, Duration::from_millis(100));
        assert_eq!(exempt.poll_timeout(), Some(now + Duration::from_secs(2)));
        exempt.configure(now, &Config::default());
        exempt.decide(now, &Config::default(), &[]);
        exempt.handle_done(now, Duration::from_millis(100));
        assert_eq!(exempt.poll_timeout(), None, "there is nothing to find");
    }
}
