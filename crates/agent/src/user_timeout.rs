//! User timeouts by policy, in the kernel: for new connections, and for those that are already open.
//!
//! Two eBPF programs set them (`bpf/user_timeout.bpf.c`), transparently for applications. One is attached to a cgroup (v2),
//! and runs when a connection of a process in it is established; it also writes the option of RFC 5482 and reads the
//! peer's. The other one iterates over all TCP sockets of the network namespace: at the start, when the policy has changed,
//! after user space has found a connection's owner, and every few minutes, to catch changes by applications.
//!
//! Connections of the network namespace in which [`UserTimeouts::attach`] was called are handled, whichever processes
//! own them. Containers have network namespaces of their own, which are handled on request
//! ([`UserTimeoutOptions::containers`]): new connections wherever they are, open ones where [`Containers`] finds processes.
//!
//! **After its end.** Programs and links end with the process, even if it is killed: later connections are not handled.
//! Sockets keep their timeout on purpose: a connection that is held through an outage must not die because the agent is
//! updated meanwhile. [`UserTimeouts::restore`] restores all of them. Timeouts of a killed agent are recognized by their
//! value (they end in 617 ms), and taken over.
//!
//! [`policy`](crate::policy) describes the timeouts, and the kernel's own limits. The order of calls:
//! [`attach`](UserTimeouts::attach), then [`handle_ready`](UserTimeouts::handle_ready) when the descriptor is readable and
//! [`handle_timeout`](UserTimeouts::handle_timeout) at [`poll_timeout`](UserTimeouts::poll_timeout), from a thread in the
//! same network namespace.

mod error;
mod kernel;
mod program;

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use holdover_base::{Duration, Instant};
use holdover_mobility::Connection;
use holdover_wire::UserTimeout;

use self::kernel::KernelWish;
use self::program::Program;
use crate::containers::Containers;
use crate::pace;
use crate::policy::{Decision, Owner, Owners, Policy, longest_patience};
use crate::sockets::TcpSocket;
use holdover_host::clock;

pub use self::error::UserTimeoutError;

/// The policy in force. See the module's documentation.
#[derive(Debug)]
pub struct UserTimeouts {
    program: Program,
    policy: Policy,
    containers: Containers,
    owners: Owners,
    pass_interval: Duration,
    next_pass: Instant,
    asked: Questions,
    given: BTreeMap<u64, Given>,
}

/// Options for attaching.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserTimeoutOptions {
    /// The cgroup whose processes' new connections are handled, descendants included. `None` for all: the root of the
    /// hierarchy.
    pub cgroup: Option<PathBuf>,
    /// The interval between passes through all open connections.
    pub pass_interval: Duration,
    /// Whether connections of other network namespaces are handled.
    pub containers: bool,
}

/// The user timeout of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    /// The rule, for [`Policy::rule_name`].
    pub rule: Option<usize>,
    /// The timeout that was set; `None` for none.
    pub timeout: Option<Duration>,
    /// The application has set one itself, which was kept.
    pub is_applications: bool,
    /// The value of the option sent to the peer (RFC 5482).
    pub advertised: Option<UserTimeout>,
    /// The timeout requested by the peer's option.
    pub peer_asked: Option<Duration>,
}

/// Counters since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UserTimeoutCounters {
    /// Timeouts set on new connections.
    pub set: u64,
    /// Timeouts set on connections that already existed.
    pub set_open: u64,
    /// Connections whose application has set a timeout, which was kept.
    pub applications_own: u64,
    /// Timeouts refused by the kernel.
    pub refused: u64,
    /// Connections referred to user space because the rule depends on their owner.
    pub asked: u64,
    /// Those without room in the queue; the next pass finds them.
    pub not_asked: u64,
    /// Segments with the option of RFC 5482 sent.
    pub options_sent: u64,
    /// Segments with the option received.
    pub options_received: u64,
}

/// Open queries about owners.
#[derive(Debug)]
struct Questions {
    /// Sockets whose owner is needed, by cookie.
    by_cookie: BTreeMap<u64, Question>,
    /// No query is answered before this time.
    not_before: Instant,
}

/// A socket whose owner is needed.
#[derive(Clone, Copy, Debug)]
struct Question {
    due: Instant,
    /// The wait until the next attempt.
    wait: Duration,
}

/// The delay of answers: connections come in groups, and finding their owners takes a look at all processes.
const ANSWER_AFTER: Duration = Duration::from_millis(50);

/// A connection that no process has accepted yet has no owner.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The wait after a failure of the system.
const RETRY_AFTER: Duration = Duration::from_secs(10);

impl Default for UserTimeoutOptions {
    /// All processes, five minutes, and no containers.
    fn default() -> Self {
        Self { cgroup: None, pass_interval: Duration::from_secs(300), containers: false }
    }
}

/// The longest silence that this network namespace's kernel tolerates by itself ([`longest_patience`]), from
/// `tcp_retries2` and `tcp_rto_max_ms` (120 s before Linux 6.15).
///
/// # Errors
///
/// [`UserTimeoutError::Namespace`].
pub fn kernel_patience() -> Result<Duration, UserTimeoutError> {
    const RETRIES: &str = "/proc/sys/net/ipv4/tcp_retries2";
    let text = fs::read_to_string(RETRIES);
    let text = text.map_err(|source| UserTimeoutError::Namespace { what: RETRIES, source })?;
    let retries = text.trim().parse().unwrap_or(15);
    let rto_max = fs::read_to_string("/proc/sys/net/ipv4/tcp_rto_max_ms").ok();
    let rto_max_ms = rto_max.and_then(|text| text.trim().parse().ok()).unwrap_or(120_000);
    Ok(longest_patience(retries, Duration::from_millis(rto_max_ms)))
}

impl UserTimeouts {
    /// Whether the kernel accepts the program for new connections, and the one for open ones. Attaches nothing.
    pub fn probe() -> (Result<(), UserTimeoutError>, Result<(), UserTimeoutError>) {
        (Program::probe_new(), Program::probe_open())
    }

    /// Loads and attaches the programs, and sets the timeouts of open connections.
    ///
    /// # Errors
    ///
    /// See [`UserTimeoutError`]; nothing is attached then.
    pub fn attach(now: Instant, policy: Policy, options: &UserTimeoutOptions) -> Result<Self, UserTimeoutError> {
        let table = kernel::table(&policy)?;
        let mut program = Program::load(options)?;
        program.set_table(&table)?;
        program.attach(options.cgroup.as_deref())?;
        let mut this = Self {
            program,
            policy,
            containers: Containers::new(options.containers),
            owners: Owners::new(),
            pass_interval: options.pass_interval,
            next_pass: now,
            asked: Questions { by_cookie: BTreeMap::new(), not_before: now },
            given: BTreeMap::new(),
        };
        this.pass(now)?;
        this.handle_ready(now);
        Ok(this)
    }

    /// Applies another policy, to new and open connections.
    ///
    /// # Errors
    ///
    /// See [`UserTimeoutError`]. If the policy has too many rules, the former one stays in force.
    pub fn set_policy(&mut self, now: Instant, policy: Policy) -> Result<(), UserTimeoutError> {
        let table = kernel::table(&policy)?;
        self.program.set_table(&table)?;
        self.policy = policy;
        self.asked.by_cookie.clear();
        self.pass(now)?;
        self.handle_ready(now);
        Ok(())
    }

    /// The policy in force.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Handles its readable descriptor: connections whose owner is needed.
    pub fn handle_ready(&mut self, now: Instant) {
        while let Some(cookie) = self.program.next_question() {
            self.asked.note(now, cookie);
        }
    }

    /// Handles a deadline.
    ///
    /// # Errors
    ///
    /// See [`UserTimeoutError`]; it is retried later.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), UserTimeoutError> {
        self.handle_ready(now);
        let is_answering = self.asked.due().is_some_and(|at| at <= now);
        let began = clock::now();
        let answers = if is_answering { self.answer(now) } else { Ok(BTreeMap::new()) };
        let result = answers.and_then(|answers| match answers.is_empty() && now < self.next_pass {
            true => Ok(()),
            false => self.pass_with(now, answers),
        });
        if is_answering {
            self.asked.rest(now, clock::now().saturating_since(began));
        }
        if result.is_err() {
            let later = now + RETRY_AFTER;
            self.next_pass = self.next_pass.max(later);
            self.asked.by_cookie.values_mut().for_each(|question| question.due = question.due.max(later));
        }
        result
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.asked.due().into_iter().chain([self.next_pass]).min()
    }

    /// Why connections of some containers could not be reached the last time.
    pub fn containers_problem(&self) -> Option<&str> {
        self.containers.problem()
    }

    /// The timeouts of connections, as of the last pass, by the cookies of their sockets ([`TcpSocket::cookie`]). New
    /// connections appear with the next pass.
    pub const fn given(&self) -> &BTreeMap<u64, Given> {
        &self.given
    }

    /// Passes through all open connections now.
    ///
    /// # Errors
    ///
    /// See [`UserTimeoutError`].
    pub fn pass(&mut self, now: Instant) -> Result<(), UserTimeoutError> {
        self.pass_with(now, BTreeMap::new())
    }

    /// Counters since the start.
    ///
    /// # Errors
    ///
    /// [`UserTimeoutError::Map`].
    pub fn counters(&self) -> Result<UserTimeoutCounters, UserTimeoutError> {
        self.program.counters()
    }

    /// The verdict of the kernel's table on a connection: the rule, and whether it depends on the owner. For a test that
    /// the table is that of the policy.
    ///
    /// # Errors
    ///
    /// [`UserTimeoutError::Program`].
    pub fn decide_for_test(&mut self, connection: Connection) -> Result<KernelVerdict, UserTimeoutError> {
        self.program.decide(connection)
    }

    /// Detaches, and restores the former timeout of every connection. Containers that cannot be reached are logged.
    ///
    /// # Errors
    ///
    /// See [`UserTimeoutError`].
    pub fn restore(mut self) -> Result<(), UserTimeoutError> {
        self.program.detach();
        self.program.pass(kernel::Pass::Restore, &mut self.containers)?;
        if let Some(problem) = self.containers.problem() {
            tracing::error!(problem, "cannot restore the user timeouts of some containers");
        }
        Ok(())
    }

    fn pass_with(&mut self, now: Instant, wishes: BTreeMap<u64, KernelWish>) -> Result<(), UserTimeoutError> {
        self.program.put_decisions(&wishes)?;
        let records = self.program.pass(kernel::Pass::Apply, &mut self.containers);
        self.program.drop_decisions(wishes.keys());
        self.given = records?.iter().map(|record| (record.cookie, Given::of(record))).collect();
        self.next_pass = now + self.pass_interval;
        self.handle_ready(now);
        Ok(())
    }

    /// Answers due queries, as far as possible.
    fn answer(&mut self, now: Instant) -> Result<BTreeMap<u64, KernelWish>, UserTimeoutError> {
        let open = self.containers.connections()?;
        let open: BTreeMap<u64, &TcpSocket> =
            open.iter().map(|placed| (placed.socket.cookie, &placed.socket)).collect();
        self.asked.by_cookie.retain(|cookie, _| open.contains_key(cookie));
        let mut ready = Vec::new();
        for (cookie, question) in self.asked.by_cookie.iter_mut().filter(|(_, question)| question.due <= now) {
            if open[cookie].inode == 0 {
                question.wait = Duration::from_nanos(question.wait.as_nanos() * 2).min(self.pass_interval);
                question.due = now + question.wait;
            } else {
                ready.push(open[cookie]);
            }
        }
        let decisions = self.decide_all(&ready);
        for socket in &ready {
            self.asked.by_cookie.remove(&socket.cookie);
        }
        Ok(ready.iter().zip(decisions).map(|(socket, decision)| (socket.cookie, KernelWish::of(decision))).collect())
    }

    fn decide_all(&mut self, sockets: &[&TcpSocket]) -> Vec<Decision> {
        let owners = self.owners.of(&self.policy, sockets);
        let decide = |(socket, owner): (&&TcpSocket, &Owner)| self.policy.decide(socket.connection, owner);
        sockets.iter().zip(&owners).map(decide).collect()
    }
}

/// The verdict of the kernel's table of rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelVerdict {
    /// No rule matches.
    NoRule,
    /// This rule matches.
    Rule(usize),
    /// This rule matches if the connection's owner does.
    DependsOnOwner(usize),
}

impl Questions {
    fn note(&mut self, now: Instant, cookie: u64) {
        self.by_cookie.entry(cookie).or_insert(Question { due: now + ANSWER_AFTER, wait: FIRST_WAIT });
    }

    /// When the next queries are due.
    fn due(&self) -> Option<Instant> {
        self.by_cookie.values().map(|question| question.due).min().map(|due| due.max(self.not_before))
    }

    /// Delays further answers after work of this duration.
    fn rest(&mut self, now: Instant, took: Duration) {
        self.not_before = now + took + pace::rest(took, ANSWER_AFTER);
    }
}

impl Given {
    fn of(record: &kernel::KernelRecord) -> Self {
        let given = &record.given;
        let time = |ms: u32| (ms != 0).then(|| Duration::from_millis(ms.into()));
        Self {
            rule: given.wish.rule(),
            timeout: time(given.set_ms),
            is_applications: given.is_applications != 0,
            advertised: (given.wish.advertise != 0).then(|| UserTimeout::from_wire(given.wish.advertise)),
            peer_asked: time(given.peer_ms),
        }
    }
}

/// Readable when there are connections whose owner is needed.
impl AsFd for UserTimeouts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_take_long_are_far_apart() {
        let now = Instant::from_secs(1);
        let mut asked = Questions { by_cookie: BTreeMap::new(), not_before: now };
        assert_eq!(asked.due(), None);
        asked.note(now, 1);
        assert_eq!(asked.due(), Some(now + ANSWER_AFTER));
        asked.rest(now, Duration::from_millis(100));
        asked.note(now, 2);
        assert_eq!(asked.due(), Some(now + Duration::from_millis(2_100)));
        // Answers that take no time are still given in groups.
        asked.rest(now, Duration::ZERO);
        assert_eq!(asked.due(), Some(now + ANSWER_AFTER));
    }
}
