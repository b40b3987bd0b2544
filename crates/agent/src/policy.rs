//! How long each connection is to wait for a peer that does not answer: rules in order; the first matching rule applies.
//!
//! Wishes are opposite: an ssh session is to live through an afternoon in a tunnel, a database client is to notice within seconds
//! that its server is gone. So a rule says which connections it is for (ports, addresses, process, user, cgroup) and one of three
//! things: **hold** them for so long without their peer, let them **fail fast**, or **leave them alone**. What no rule is for is
//! left alone.
//!
//! # What the kernel does by itself
//!
//! Linux gives up data that is not acknowledged by `tcp_retries2` (15): at the first retransmission later than 924.6 s after the
//! first one, which is 924 to 1045 s, because retransmissions are up to two minutes apart. A window that stays shut is probed, and
//! after 15 probes in a row without an answer, which takes 924 s on a fast path and up to 1920 s on a slow one, it gives up as well;
//! while probes are answered it never does. A connection with keep-alive is given up two hours and eleven minutes after the peer was
//! last heard of.
//!
//! `TCP_USER_TIMEOUT` takes the place of all of these limits at once: of that for data, of the number of keep-alive probes, and it
//! ends a connection whose window stays shut for so long *although* the peer answers. It does not lift the limit of 15 probes
//! without an answer: a connection that was cut off while the peer's window was shut is not held for longer than the kernel does.
//!
//! **Hold is never below what the kernel would do**: a time that is shorter than the longest of the above
//! ([`longest_patience`]) is raised to it, keep-alive is looked at socket by socket, and while a shut window is answered the time
//! does not run. **Fail fast** is as short as it says, also for a window that stays shut.

mod owners;
pub(crate) mod pattern;
mod place;
mod rule;
mod text;

use std::net::{IpAddr, SocketAddr};

use holdover_base::Duration;
use holdover_mobility::Connection;
use holdover_wire::UserTimeout;

use crate::sockets::owner::{Process, UserError};
use holdover_host::log::with_causes;

pub use pattern::{Pattern, PatternError};
pub use place::{Addresses, PlaceError, Ports, Prefix};
pub use rule::{FlowRule, UserName, UserNameError};
pub use text::List;

pub(crate) use owners::Owners;
pub(crate) use rule::Rule;

/// The rules in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    /// How many of them are the user's.
    configured: usize,
    /// Users who could not be looked up, and in which rules.
    problems: Vec<String>,
}

/// What a policy is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyOptions {
    /// After the user's rules come those of [`FlowRule::built_in`].
    pub built_in: bool,
    /// No hold is shorter: [`longest_patience`].
    pub at_least: Duration,
}

/// Who has a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// The number of the user whose socket it is.
    pub uid: Option<u32>,
    /// The path of its cgroup from the root of the hierarchy.
    pub cgroup: Option<String>,
    /// The processes that have it open.
    pub processes: Vec<Process>,
}

/// What is to be done for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The rule that says so, for [`Policy::rule_name`]; `None` if none is for this connection.
    pub rule: Option<usize>,
    /// What it says.
    pub action: Action,
}

/// What a rule says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing is touched.
    LeaveAlone,
    /// The connection gets a user timeout.
    UserTimeout(TimeoutWish),
}

/// A user timeout and what belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeoutWish {
    /// So long the peer's silence is borne.
    pub timeout: Duration,
    /// Whether it is there to be short.
    pub fails_fast: bool,
    /// The timeout that is advertised to the peer in the option of RFC 5482. `None`: the option is neither sent nor heeded.
    pub advertise: Option<UserTimeout>,
    /// How far the peer's option may lengthen the timeout (U_LIMIT of RFC 5482 section 3.1); `timeout` at least.
    pub accept: Duration,
    /// A timeout that the application has set itself is replaced.
    pub replace: bool,
}

/// A rule cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("flow rule {number}: {problem}")]
pub struct PolicyError {
    /// Which one, from 1.
    pub number: usize,
    /// What is wrong.
    pub problem: RuleProblem,
}

/// What is wrong with a rule.
#[derive(Debug, thiserror::Error)]
pub enum RuleProblem {
    /// It says nothing, or two things.
    #[error("one of hold, fail_fast and leave_alone is needed, and only one")]
    NotOneAction,
    /// A time that the kernel cannot count.
    #[error("{field} = \"{time}\" is not between 1 s and 24 days (576 h)")]
    Time {
        /// The field.
        field: &'static str,
        /// Its value.
        time: Duration,
    },
    /// Something that means nothing without something else.
    #[error("{field} is of no use without {needs}")]
    Useless {
        /// The field.
        field: &'static str,
        /// What it needs.
        needs: &'static str,
    },
}

/// The longest that a kernel bears silence by itself where keep-alive is not in use: `tcp_retries2` probes of a zero window and the
/// wait after the last, each as long as an RTO can be (`tcp_rto_max_ms`, 120 s). Data is given up sooner.
pub const fn longest_patience(tcp_retries2: u32, rto_max: Duration) -> Duration {
    Duration::from_millis(rto_max.as_millis().saturating_mul(tcp_retries2 as u64 + 1))
}

/// Whether a connection stays within this host: from or to a loopback address, or between two ends with the same address.
pub fn is_within_host(connection: Connection) -> bool {
    let (local, remote) = (connection.local.ip().to_canonical(), connection.remote.ip().to_canonical());
    local.is_loopback() || remote.is_loopback() || local == remote
}

impl Policy {
    /// The policy that consists of these rules, in their order. `uid_of` looks up users
    /// ([`uid_of`](crate::sockets::owner::uid_of)).
    ///
    /// A user who cannot be looked up is left out of the rule, and [`Self::problems`] says so. A rule that is left without any user
    /// applies to no connection; the other rules apply as they would without it.
    ///
    /// # Errors
    ///
    /// The first rule that cannot be used.
    pub fn new(
        rules: &[FlowRule],
        options: PolicyOptions,
        uid_of: &mut dyn FnMut(&str) -> Result<u32, UserError>,
    ) -> Result<Self, PolicyError> {
        let configured = rules.len();
        let built_in = if options.built_in { FlowRule::built_in() } else { Vec::new() };
        let mut problems = Vec::new();
        let rules = rules
            .iter()
            .chain(&built_in)
            .zip(1..)
            .map(|(rule, number)| {
                let mut unknown =
                    |error: UserError| problems.push(format!("flow rule {number}: {}", with_causes(&error)));
                rule.check(options.at_least, uid_of, &mut unknown).map_err(|problem| PolicyError { number, problem })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { rules, configured, problems })
    }

    /// What keeps rules from applying to all the users they name: `flow rule 2: there is no user "berta"`. They may be there later.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// What is to be done for a connection of which everything is known.
    pub fn decide(&self, connection: Connection, owner: &Owner) -> Decision {
        let fits = |rule: &&(usize, &Rule)| rule.1.fits_place(connection) && rule.1.fits_owner(owner);
        Decision::of(self.rules.iter().enumerate().find(|rule| fits(&rule)))
    }

    /// What is to be done for a connection of which the addresses are known; `None` if that depends on whose it is.
    pub fn decide_by_place(&self, connection: Connection) -> Option<Decision> {
        let first = self.rules.iter().enumerate().find(|(_, rule)| rule.fits_place(connection));
        match first {
            Some((_, rule)) if rule.needs_owner() => None,
            decided => Some(Decision::of(decided)),
        }
    }

    /// Whether any rule asks for processes, which takes a look at all of them.
    pub(crate) fn needs_processes(&self) -> bool {
        self.rules.iter().any(Rule::needs_processes)
    }

    /// What the user calls a rule.
    pub fn rule_name(&self, rule: usize) -> String {
        if rule < self.configured {
            return format!("flow rule {}", rule + 1);
        }
        match self.rules.get(rule) {
            Some(found) => format!("{} (built in)", found.name()),
            None => "a former rule".to_owned(),
        }
    }

    /// What the rules that are built in say, in order, in words.
    pub fn built_in_rules(&self) -> impl Iterator<Item = String> {
        self.rules.iter().skip(self.configured).map(|rule| rule.name().to_owned())
    }

    /// Whether each rule says one thing, and nothing that is of no use. Users are not looked up.
    ///
    /// # Errors
    ///
    /// The first rule that cannot be used.
    pub fn check(rules: &[FlowRule]) -> Result<(), PolicyError> {
        let options = PolicyOptions { built_in: false, at_least: Duration::ZERO };
        Self::new(rules, options, &mut |_| Ok(0)).map(drop)
    }

    /// The rules, in order.
    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }
}

impl Decision {
    fn of(rule: Option<(usize, &Rule)>) -> Self {
        match rule {
            Some((index, rule)) => Self { rule: Some(index), action: rule.action() },
            None => Self { rule: None, action: Action::LeaveAlone },
        }
    }
}

/// An address as rules compare it: IPv4 within IPv6, as `::ffff:192.0.2.1`.
pub(crate) fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Whether a connection's end has one of these addresses and ports.
pub(crate) fn is_at(end: SocketAddr, prefix: Prefix, ports: Ports) -> bool {
    prefix.contains(end.ip()) && ports.contains(end.port())
}

#[cfg(test)]
mod tests;
