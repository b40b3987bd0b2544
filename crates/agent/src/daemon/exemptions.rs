//! Connections that the rules of `[[flow]]` exempt in the path of packets.

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_mobility::Connection;
use holdover_wire::TcpState;

use crate::config::Config;
use crate::containers::Containers;
use crate::pace;
use crate::policy::{Action, Decision, Owner, Owners, Policy, PolicyError};
use crate::sockets::{SocketDiagError, TcpSocket};

/// Exempt connections in the path. This is independent of user timeouts, except for the rules.
pub(super) struct Exemptions {
    /// The rules, once read.
    policy: Option<Policy>,
    problem: Option<String>,
    /// When unknown users are looked up again.
    look_up_at: Option<Instant>,
    /// Whether any rule exempts connections.
    is_wanted: bool,
    owners: Owners,
    /// The verdicts on connections in the path.
    decided: BTreeMap<Connection, Verdict>,
    /// When they are checked next; `None` if no rule exempts anything.
    look_at: Option<Instant>,
}

/// Whether a connection is exempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// As long as it is in the path.
    Settled(bool),
    /// For now: the rule depends on its owner, who is unknown.
    Pending {
        alone: bool,
        /// Consecutive checks without a process that could own it.
        in_vain: u8,
    },
}

/// The owner of a connection, as far as its socket shows.
enum Holder {
    /// A process has it open.
    Found,
    /// It is not accepted yet, or the kernel did not answer.
    ToCome,
    /// It has no socket, or no process has it open any more.
    Missing,
}

/// A forwarded connection has no socket; a new one may not have it yet.
const MOST_IN_VAIN: u8 = 5;

/// How often new connections in the path are checked, if any rule exempts connections.
const LOOK: Duration = Duration::from_secs(1);

/// The interval between attempts to read the rules.
const RETRY: Duration = Duration::from_secs(60);

impl Exemptions {
    /// The exemptions of a configuration.
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

    /// Applies another configuration: former exemptions are checked once more.
    pub(super) fn configure(&mut self, now: Instant, config: &Config) {
        let was_wanted = self.is_wanted;
        *self = Self::new(now, config);
        self.look_at = (was_wanted || self.is_wanted).then_some(now);
    }

    /// The time of the next check.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.look_at
    }

    /// Returns the changes for the connections in the path, given their current exemptions.
    ///
    /// Each connection is decided once, or, if the rule depends on its owner, once that is known. The path may have
    /// lost an exemption since: with its engine, or for lack of room.
    pub(super) fn decide(
        &mut self,
        now: Instant,
        config: &Config,
        in_path: &[(Connection, bool)],
        containers: &mut Containers,
    ) -> Vec<(Connection, bool)> {
        self.decide_with(now, config, in_path, |wanted| {
            let found = containers.sockets_of(wanted.iter().copied())?;
            Ok(found.into_iter().map(|(connection, placed)| (connection, placed.socket)).collect())
        })
    }

    /// The check of all connections and its consequences took this long: the next check is delayed accordingly.
    pub(super) fn handle_done(&mut self, now: Instant, took: Duration) {
        self.look_at = self.look_at.map(|at| at.max(now + pace::rest(took, Duration::ZERO)));
    }

    fn decide_with(
        &mut self,
        now: Instant,
        config: &Config,
        in_path: &[(Connection, bool)],
        find: impl FnOnce(&[Connection]) -> Result<BTreeMap<Connection, TcpSocket>, SocketDiagError>,
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
        // Connections whose rule depends on their owner, and their current verdicts.
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
            self.decide_by_owner(&policy, &of_owner, find);
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
        find: impl FnOnce(&[Connection]) -> Result<BTreeMap<Connection, TcpSocket>, SocketDiagError>,
    ) {
        let wanted: Vec<Connection> = connections.keys().copied().collect();
        let sockets = find(&wanted);
        let sockets =
            sockets.inspect_err(|error| tracing::debug!(%error, "cannot find the owners of connections")).ok();
        let found = sockets.as_ref();
        // A container's socket may have other addresses than its connection in the path.
        let open = found.into_iter().flatten().filter(|(_, socket)| socket.inode != 0);
        let (places, open): (Vec<Connection>, Vec<&TcpSocket>) = open.map(|(place, socket)| (*place, socket)).unzip();
        let owners = self.owners.of(policy, &open);
        let owners: BTreeMap<Connection, &Owner> = places.into_iter().zip(&owners).collect();
        for (&connection, before) in connections {
            let holder = found.map_or(Holder::ToCome, |found| Holder::of(found.get(&connection)));
            let nobody = Owner::default();
            let owner = owners.get(&connection).copied().unwrap_or(&nobody);
            let alone = is_alone(policy.decide(connection, owner));
            self.decided.insert(connection, Verdict::of(alone, &holder, *before));
        }
    }

    /// Reads the rules. Unknown users are looked up again after a while.
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
            problem.iter().for_each(|problem| tracing::warn!(problem, "connections of this user are not exempt"));
        }
        self.problem = problem;
        Ok(policy)
    }

    /// Unknown users in the rules, or why there are no rules.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    fn fail(&mut self, now: Instant, error: &PolicyError) {
        let problem = error.to_string();
        if self.problem.as_ref() != Some(&problem) {
            tracing::error!(problem, "no connection is exempt; trying again");
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
            Holder::Missing if in_vain + 1 < MOST_IN_VAIN => Self::Pending { alone, in_vain: in_vain + 1 },
            Holder::Missing => Self::Settled(alone),
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
            // Its process has not accepted it. After closing, the state is another one.
            Some(socket) if matches!(socket.info.tcpi_state, TcpState::Established | TcpState::CloseWait) => {
                Self::ToCome
            }
            _ => Self::Missing,
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
    use crate::sockets::SocketDiag;

    fn decide(
        exempt: &mut Exemptions,
        now: Instant,
        config: &Config,
        in_path: &[(Connection, bool)],
    ) -> Vec<(Connection, bool)> {
        exempt.decide(now, config, in_path, &mut Containers::default())
    }

    fn connection(remote: &str) -> Connection {
        Connection { local: "192.0.2.7:1024".parse().unwrap(), remote: remote.parse().unwrap() }
    }

    #[test]
    fn exemptions_are_decided_once() {
        let text = "[[flow]]\nport = 5432\nleave_alone = true\n[[flow]]\nport = 22\nhold = \"8 h\"\n\
                    [[flow]]\nport = 443\nuser = \"root\"\nleave_alone = true\n";
        let config = Config::parse(Path::new("agent.toml"), text).unwrap();
        let mut exempt = Exemptions::new(Instant::ZERO, &config);
        let [database, ssh, web] = ["198.51.100.1:5432", "198.51.100.1:22", "198.51.100.1:443"].map(connection);
        let now = Instant::from_secs(1);
        let acted = |connection| (connection, false);
        let alone = |connection| (connection, true);
        assert_eq!(decide(&mut exempt, now, &config, &[acted(database), acted(ssh)]), [alone(database)]);
        // No process here owns that connection: a rule with a user does not match it.
        assert_eq!(decide(&mut exempt, now, &config, &[alone(database), acted(ssh), acted(web)]), []);
        assert_eq!(exempt.decided.len(), 3);
        assert_eq!(exempt.poll_timeout(), Some(now + LOOK));
        assert_eq!(decide(&mut exempt, now, &config, &[acted(database)]), [alone(database)], "the path has lost it");
        assert_eq!(exempt.decided.len(), 1, "forgotten with the connection");
        assert_eq!(decide(&mut exempt, now, &config, &[alone(ssh)]), [acted(ssh)], "no rule matches it any more");
        // Without rules there is one more check, for former exemptions.
        let config = Config::default();
        exempt.configure(now, &config);
        assert_eq!(exempt.poll_timeout(), Some(now));
        assert_eq!(decide(&mut exempt, now, &config, &[alone(database)]), [acted(database)]);
        assert_eq!(exempt.poll_timeout(), None);
    }
    /// A connection of this process over loopback, and its socket as the kernel reports it.
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

        /// A rule that exempts connections of this process.
        fn config(&self) -> Config {
            let name = std::fs::read_to_string("/proc/self/comm").unwrap();
            let text = format!("[[flow]]\nremote = \"127.0.0.1\"\nprocess = {:?}\nleave_alone = true\n", name.trim());
            Config::parse(Path::new("agent.toml"), &text).unwrap()
        }
    }

    // Claim: The owner of a connection is looked up again until it is known, in at most a twentieth of the time.
    // Tests: `exemptions::a_longer_check_delays_the_next_one`
    #[test]
    fn an_unknown_owner_is_looked_up_again() {
        let open = Open::new();
        let (connection, socket, config) = (open.connection(), open.socket(), open.config());
        let now = Instant::from_secs(1);
        let in_path = [(connection, false)];
        let mut exempt = Exemptions::new(now, &config);
        let mut look = |sockets: Result<TcpSocket, SocketDiagError>| {
            let find = |socket: TcpSocket| BTreeMap::from([(socket.connection, socket)]);
            exempt.decide_with(now, &config, &in_path, |_| sockets.map(find))
        };
        for _ in 0..3 * MOST_IN_VAIN {
            assert_eq!(look(Err(SocketDiagError::Answer("none"))), []);
            assert_eq!(look(Ok(TcpSocket { inode: 0, ..socket.clone() })), [], "not accepted yet");
        }
        assert_eq!(look(Ok(socket)), [(connection, true)]);
        assert_eq!(look(Err(SocketDiagError::Answer("none"))), [(connection, true)], "the verdict is final");
    }

    #[test]
    fn the_owner_of_a_connection_without_socket_is_looked_up_a_few_times() {
        let open = Open::new();
        let (connection, socket, config) = (open.connection(), open.socket(), open.config());
        let now = Instant::from_secs(1);
        for (looks, found) in [(MOST_IN_VAIN - 1, vec![(connection, true)]), (MOST_IN_VAIN, Vec::new())] {
            let mut exempt = Exemptions::new(now, &config);
            let mut look = |sockets| exempt.decide_with(now, &config, &[(connection, false)], |_| Ok(sockets));
            (0..looks).for_each(|_| assert_eq!(look(BTreeMap::new()), []));
            assert_eq!(look(BTreeMap::from([(connection, socket.clone())])), found, "after {looks}");
        }
    }

    #[test]
    fn a_longer_check_delays_the_next_one() {
        let text = "[[flow]]\nport = 5432\nleave_alone = true\n";
        let config = Config::parse(Path::new("agent.toml"), text).unwrap();
        let now = Instant::from_secs(1);
        let mut exempt = Exemptions::new(now, &config);
        decide(&mut exempt, now, &config, &[]);
        exempt.handle_done(now, Duration::from_millis(1));
        assert_eq!(exempt.poll_timeout(), Some(now + LOOK));
        exempt.handle_done(now, Duration::from_millis(100));
        assert_eq!(exempt.poll_timeout(), Some(now + Duration::from_secs(2)));
        exempt.configure(now, &Config::default());
        decide(&mut exempt, now, &Config::default(), &[]);
        exempt.handle_done(now, Duration::from_millis(100));
        assert_eq!(exempt.poll_timeout(), None, "no rule exempts anything");
    }
}
