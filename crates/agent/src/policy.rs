//! How long each connection waits for a peer that does not answer: rules in order; the first matching rule applies.
//!
//! Needs are opposite: an ssh session is to survive an afternoon in a tunnel, a database client is to notice within seconds
//! that its server is gone. So a rule has conditions (ports, addresses, process, user, cgroup) and one of three actions:
//! **hold** the connections for a time without their peer, let them **fail fast**, or **leave them alone**. Connections
//! without a matching rule are left alone.
//!
//! # What the kernel does by itself
//!
//! Linux gives up unacknowledged data by `tcp_retries2` (15): at the first retransmission later than 924.6 s after the
//! first one, which is 924 to 1045 s, because retransmissions are up to two minutes apart. A shut window is probed, and
//! given up after 15 consecutive probes without an answer, which takes 924 s on a fast path and up to 1920 s on a slow one;
//! while probes are answered, never. A connection with keep-alive is given up two hours and eleven minutes after the peer's
//! last packet.
//!
//! `TCP_USER_TIMEOUT` replaces all of these limits: the one for data, the number of keep-alive probes, and it ends a
//! connection whose window stays shut for that time *although* the peer answers. It does not lift the limit of 15 probes
//! without an answer: a connection that was cut off while the peer's window was shut is not held longer than by the kernel.
//!
//! **Hold is never below the kernel's own limits**: a time shorter than the longest of the above ([`longest_patience`]) is
//! raised to it, keep-alive is checked for each socket, and while probes of a shut window are answered the time does not
//! run. **Fail fast** is as short as written, also for a window that stays shut.

mod owners;
pub(crate) mod pattern;
mod place;
mod rule;

use holdover_base::Duration;
use holdover_flow::Ends;
use holdover_mobility::Connection;
use holdover_wire::UserTimeout;

use crate::sockets::owner::{Process, UserError};
use holdover_host::log::with_causes;

pub use holdover_host::ports::{Ports, PortsError};
pub use holdover_host::words::List;
pub use pattern::{Pattern, PatternError};
pub use place::{Addresses, PlaceError, Prefix};
pub use rule::{FlowRule, UserName, UserNameError};

pub(crate) use owners::Owners;
pub(crate) use rule::Rule;

/// The rules in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    /// How many of them are the user's.
    configured: usize,
    /// Users who could not be looked up, and their rules.
    problems: Vec<String>,
}

/// Options of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyOptions {
    /// After the user's rules come those of [`FlowRule::built_in`].
    pub built_in: bool,
    /// No hold is shorter: [`longest_patience`].
    pub at_least: Duration,
}

/// The owner of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// The number of the user whose socket it is.
    pub uid: Option<u32>,
    /// The path of its cgroup from the root of the hierarchy.
    pub cgroup: Option<String>,
    /// The processes that have it open.
    pub processes: Vec<Process>,
}

/// The verdict on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The matching rule, for [`Policy::rule_name`]; `None` if no rule matches.
    pub rule: Option<usize>,
    /// Its action.
    pub action: Action,
}

/// The action of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing is changed.
    LeaveAlone,
    /// The connection gets a user timeout.
    UserTimeout(TimeoutWish),
}

/// A user timeout and its options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeoutWish {
    /// How long the peer may be silent.
    pub timeout: Duration,
    /// Whether it is a fail_fast rule.
    pub fails_fast: bool,
    /// The timeout advertised to the peer in the option of RFC 5482. `None`: the option is neither sent nor honoured.
    pub advertise: Option<UserTimeout>,
    /// How far the peer's option may lengthen the timeout (U_LIMIT of RFC 5482 section 3.1); `timeout` at least.
    pub accept: Duration,
    /// A timeout that the application has set itself is replaced.
    pub replace: bool,
}

/// An invalid rule.
#[derive(Debug, thiserror::Error)]
#[error("flow rule {number}: {problem}")]
pub struct PolicyError {
    /// Its number, from 1.
    pub number: usize,
    /// The problem.
    pub problem: RuleProblem,
}

/// A problem of a rule.
#[derive(Debug, thiserror::Error)]
pub enum RuleProblem {
    /// No action, or more than one.
    #[error("expected exactly one of hold, fail_fast and leave_alone")]
    NotOneAction,
    /// A time that the kernel cannot represent.
    #[error("{field} = \"{time}\" is not between 1 s and 24 days (576 h)")]
    Time {
        /// The field.
        field: &'static str,
        /// Its value.
        time: Duration,
    },
    /// A field without effect.
    #[error("{field} has no effect without {needs}")]
    Useless {
        /// The field.
        field: &'static str,
        /// The missing field.
        needs: &'static str,
    },
}

/// The longest silence that a kernel tolerates by itself without keep-alive: `tcp_retries2` probes of a zero window and
/// the wait after the last, each as long as an RTO can be (`tcp_rto_max_ms`, 120 s). Data is given up sooner.
pub const fn longest_patience(tcp_retries2: u32, rto_max: Duration) -> Duration {
    Duration::from_millis(rto_max.as_millis().saturating_mul(tcp_retries2 as u64 + 1))
}

impl Policy {
    /// The policy of these rules, in their order. `uid_of` looks up users ([`uid_of`](crate::sockets::owner::uid_of)).
    ///
    /// An unknown user is left out of the rule, and [`Self::problems`] reports it. A rule left without any user matches
    /// no connection; the other rules are not affected.
    ///
    /// # Errors
    ///
    /// The first invalid rule.
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

    /// Unknown users in rules: `flow rule 2: there is no user "berta"`. They may exist later.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The verdict on a connection whose owner is known.
    pub fn decide(&self, connection: Connection, owner: &Owner) -> Decision {
        let ends = Ends::new(connection);
        Decision::of(self.rules.iter().enumerate().find(|(_, rule)| rule.selects(&ends) && rule.fits_owner(owner)))
    }

    /// The verdict on a connection by its addresses; `None` if it depends on the owner.
    pub fn decide_by_place(&self, connection: Connection) -> Option<Decision> {
        let ends = Ends::new(connection);
        let first = self.rules.iter().enumerate().find(|(_, rule)| rule.selects(&ends));
        match first {
            Some((_, rule)) if rule.needs_owner() => None,
            decided => Some(Decision::of(decided)),
        }
    }

    /// Whether any rule depends on processes, which takes a look at all of them.
    pub(crate) fn needs_processes(&self) -> bool {
        self.rules.iter().any(Rule::needs_processes)
    }

    /// A rule's name for the user.
    pub fn rule_name(&self, rule: usize) -> String {
        if rule < self.configured {
            return format!("flow rule {}", rule + 1);
        }
        match self.rules.get(rule) {
            Some(found) => format!("{} (built in)", found.name()),
            None => "a former rule".to_owned(),
        }
    }

    /// The built-in rules, in order, as text.
    pub fn built_in_rules(&self) -> impl Iterator<Item = String> {
        self.rules.iter().skip(self.configured).map(|rule| rule.name().to_owned())
    }

    /// Checks that each rule has one action, and no field without effect. Users are not looked up.
    ///
    /// # Errors
    ///
    /// The first invalid rule.
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

#[cfg(test)]
mod tests;
