//! Rules, as written and as used.

use core::fmt;
use core::str::FromStr;

use holdover_base::Duration;
use holdover_flow::{Ends, Selector, SelectorEnd};
use holdover_wire::UserTimeout;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern::Pattern;
use super::place::{Addresses, Prefix};
use super::{Action, Owner, RuleProblem, TimeoutWish};
use crate::sockets::owner::UserError;
use holdover_host::ports::Ports;
use holdover_host::time_text::Time;
use holdover_host::words::{List, Word};

/// A `[[flow]]` of the configuration: which connections, and what is done for them. A connection matches if it matches
/// all fields; a list matches if one of its elements does. Exactly one of `hold`, `fail_fast` and `leave_alone` is the
/// action.
///
/// A rule without addresses does not match connections within this host.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FlowRule {
    /// The port of either end.
    #[serde(skip_serializing_if = "List::is_empty")]
    pub port: List<Ports>,
    /// The port of this host's end.
    #[serde(skip_serializing_if = "List::is_empty")]
    pub local_port: List<Ports>,
    /// The port of the peer's end.
    #[serde(skip_serializing_if = "List::is_empty")]
    pub remote_port: List<Ports>,
    /// This host's address.
    #[serde(skip_serializing_if = "List::is_empty")]
    pub local: List<Addresses>,
    /// The peer's address.
    #[serde(skip_serializing_if = "List::is_empty")]
    pub remote: List<Addresses>,
    /// A process that has the connection open, by its name, or by its program's path if there is a slash in it.
    #[serde(skip_serializing_if = "List::is_empty")]
    pub process: List<Pattern>,
    /// The user who owns the socket, by name or number.
    #[serde(skip_serializing_if = "List::is_empty")]
    pub user: List<UserName>,
    /// Its cgroup, or an ancestor: `"/system.slice/mosquitto.service"`.
    #[serde(skip_serializing_if = "List::is_empty")]
    pub cgroup: List<Pattern>,

    /// The connection is kept this long without its peer, and never shorter than the kernel would keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Time>,
    /// The connection ends when data has not been acknowledged, or the peer's window has been shut, for this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_fast: Option<Time>,
    /// Nothing is changed.
    #[serde(skip_serializing_if = "is_false")]
    pub leave_alone: bool,

    /// The time is sent to the peer in the TCP User Timeout option (RFC 5482), and the peer's option is honoured. Only
    /// for connections established while the agent runs.
    #[serde(skip_serializing_if = "is_false")]
    pub advertise: bool,
    /// How far the peer's option may lengthen the time. Missing: not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept: Option<Time>,
    /// A user timeout set by the application is replaced. Otherwise it is kept.
    #[serde(skip_serializing_if = "is_false")]
    pub replace: bool,
}

/// A user, by name or number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserName(Box<str>);

/// A text that cannot be a user's name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid user \"{0}\": expected {expected}", expected = UserName::EXPECTED)]
pub struct UserNameError(Box<str>);

/// A checked rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rule {
    /// One for each combination of its addresses and ports.
    pub(crate) selectors: Vec<Selector>,
    processes: Vec<Pattern>,
    users: Vec<u32>,
    cgroups: Vec<Pattern>,
    action: Action,
    /// Its text, for messages.
    name: String,
}

/// The most milliseconds that the kernel can represent in 31 bits, less what it adds.
const LONGEST: Duration = Duration::from_secs(24 * 86_400);

impl FlowRule {
    /// The rules that apply where none of the user's matches: ssh and rsync are kept through a working day. Everything
    /// else is left to the kernel.
    pub fn built_in() -> Vec<Self> {
        let hold = Some(Time(Duration::from_secs(8 * 3_600)));
        let on_port = |port| Self { port: List(vec![Ports::one(port)]), hold, ..Self::default() };
        vec![on_port(22), on_port(873)]
    }

    /// The rule as used. Unknown users are left out of it, and passed to `unknown`.
    pub(super) fn check(
        &self,
        at_least: Duration,
        uid_of: &mut dyn FnMut(&str) -> Result<u32, UserError>,
        unknown: &mut dyn FnMut(UserError),
    ) -> Result<Rule, RuleProblem> {
        let users: Vec<u32> =
            self.user.0.iter().filter_map(|user| user.number(uid_of).map_err(&mut *unknown).ok()).collect();
        // A rule that names no user matches any; one whose users are all unknown matches none.
        let is_for_nobody = users.is_empty() && !self.user.is_empty();
        Ok(Rule {
            selectors: if is_for_nobody { Vec::new() } else { self.selectors() },
            processes: self.process.0.clone(),
            users,
            cgroups: self.cgroup.0.clone(),
            action: self.action(at_least)?,
            name: self.to_string(),
        })
    }

    fn action(&self, at_least: Duration) -> Result<Action, RuleProblem> {
        let (timeout, fails_fast) = match (self.hold, self.fail_fast, self.leave_alone) {
            (Some(hold), None, false) => (checked("hold", hold)?.max(at_least), false),
            (None, Some(fail_fast), false) => (checked("fail_fast", fail_fast)?, true),
            (None, None, true) => {
                let set = [("advertise", self.advertise), ("accept", self.accept.is_some()), ("replace", self.replace)];
                return match set.into_iter().find(|(_, is_set)| *is_set) {
                    Some((field, _)) => Err(RuleProblem::Useless { field, needs: "hold or fail_fast" }),
                    None => Ok(Action::LeaveAlone),
                };
            }
            _ => return Err(RuleProblem::NotOneAction),
        };
        if self.accept.is_some() && !self.advertise {
            return Err(RuleProblem::Useless { field: "accept", needs: "advertise" });
        }
        let accept = self.accept.map(|accept| checked("accept", accept)).transpose()?;
        Ok(Action::UserTimeout(TimeoutWish {
            timeout,
            fails_fast,
            advertise: UserTimeout::from_duration(timeout).filter(|_| self.advertise),
            accept: accept.unwrap_or(timeout).max(timeout),
            replace: self.replace,
        }))
    }

    /// All combinations of addresses and ports.
    fn selectors(&self) -> Vec<Selector> {
        let prefixes = |list: &List<Addresses>| match list.is_empty() {
            true => vec![Prefix::ALL],
            false => list.0.iter().flat_map(|addresses| addresses.prefixes()).collect(),
        };
        let ports = |list: &List<Ports>| if list.is_empty() { vec![Ports::ALL] } else { list.0.clone() };
        let (locals, remotes) = (prefixes(&self.local), prefixes(&self.remote));
        let (local_ports, remote_ports) = (ports(&self.local_port), ports(&self.remote_port));
        let both = local_ports.iter().flat_map(|local| remote_ports.iter().map(move |remote| (*local, *remote)));
        let ends: Vec<(Ports, Ports)> = match self.port.is_empty() {
            true => both.collect(),
            false => both
                .flat_map(|(local, remote)| {
                    let either = self.port.0.iter();
                    either.flat_map(move |port| {
                        [(common(local, *port), Some(remote)), (Some(local), common(remote, *port))]
                    })
                })
                .filter_map(|(local, remote)| local.zip(remote))
                .collect(),
        };
        let within_host = !self.local.is_empty() || !self.remote.is_empty();
        let mut selectors = Vec::new();
        for local in &locals {
            for remote in &remotes {
                selectors.extend(ends.iter().map(|(local_ports, remote_ports)| {
                    Selector::new(end(*local, *local_ports), end(*remote, *remote_ports), within_host)
                }));
            }
        }
        selectors
    }
}

/// As in a file, on one line.
impl fmt::Display for FlowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let mut list = |name: &str, words: Vec<String>| {
            if !words.is_empty() {
                parts.push(format!("{name} {}", words.join(" or ")));
            }
        };
        list("port", self.port.0.iter().map(Ports::to_string).collect());
        list("local port", self.local_port.0.iter().map(Ports::to_string).collect());
        list("remote port", self.remote_port.0.iter().map(Ports::to_string).collect());
        list("local", self.local.0.iter().map(Addresses::to_string).collect());
        list("remote", self.remote.0.iter().map(Addresses::to_string).collect());
        list("process", self.process.0.iter().map(Pattern::to_string).collect());
        list("user", self.user.0.iter().map(UserName::to_string).collect());
        list("cgroup", self.cgroup.0.iter().map(Pattern::to_string).collect());
        list("hold", self.hold.iter().map(|time| time.0.to_string()).collect());
        list("fail fast", self.fail_fast.iter().map(|time| time.0.to_string()).collect());
        if self.leave_alone {
            parts.push("leave alone".to_owned());
        }
        f.write_str(&parts.join(", "))
    }
}

impl Rule {
    /// Whether it applies to connections with these ends. The kernel decides by the same selectors, in the same C.
    pub(crate) fn selects(&self, ends: &Ends) -> bool {
        self.selectors.iter().any(|selector| selector.selects(ends))
    }

    /// Whether it depends on the connection's owner.
    pub(crate) const fn needs_owner(&self) -> bool {
        !self.processes.is_empty() || !self.users.is_empty() || !self.cgroups.is_empty()
    }

    /// Whether it depends on the owner's processes.
    pub(crate) const fn needs_processes(&self) -> bool {
        !self.processes.is_empty()
    }

    pub(crate) fn fits_owner(&self, owner: &Owner) -> bool {
        let process = |pattern: &Pattern| owner.processes.iter().any(|process| pattern.fits_process(process));
        let cgroup = |pattern: &Pattern| owner.cgroup.as_deref().is_some_and(|cgroup| pattern.fits_cgroup(cgroup));
        (self.processes.is_empty() || self.processes.iter().any(process))
            && (self.users.is_empty() || owner.uid.is_some_and(|uid| self.users.contains(&uid)))
            && (self.cgroups.is_empty() || self.cgroups.iter().any(cgroup))
    }

    pub(crate) const fn action(&self) -> Action {
        self.action
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

fn checked(field: &'static str, Time(time): Time) -> Result<Duration, RuleProblem> {
    let is_fine = Duration::from_secs(1) <= time && time <= LONGEST;
    if is_fine { Ok(time) } else { Err(RuleProblem::Time { field, time }) }
}

const fn end(addresses: Prefix, ports: Ports) -> SelectorEnd {
    let (prefix, mask) = addresses.bits_and_mask();
    SelectorEnd { prefix, mask, first_port: ports.first, last_port: ports.last }
}

/// The intersection of two ranges.
fn common(one: Ports, other: Ports) -> Option<Ports> {
    let common = Ports { first: one.first.max(other.first), last: one.last.min(other.last) };
    (common.first <= common.last).then_some(common)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl UserName {
    fn number(&self, uid_of: &mut dyn FnMut(&str) -> Result<u32, UserError>) -> Result<u32, UserError> {
        self.0.parse().or_else(|_| uid_of(&self.0))
    }
}

impl Word for UserName {
    const NAME: &'static str = "User";
    const EXPECTED: &'static str = "a user's name or number";
    const MAY_BE_NUMBER: bool = true;
}

impl FromStr for UserName {
    type Err = UserNameError;

    fn from_str(text: &str) -> Result<Self, UserNameError> {
        // `passwd(5)`: a colon ends the name; a slash would be a separator in the path of a home directory.
        let is_fine = !text.is_empty() && !text.contains(|letter: char| letter.is_control() || ":/".contains(letter));
        is_fine.then(|| Self(text.into())).ok_or_else(|| UserNameError(text.into()))
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
