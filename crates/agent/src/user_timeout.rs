//! User timeouts by policy, in the kernel: for connections as they are made, and for those that are open already.
//!
//! Two eBPF programs do it (`bpf/user_timeout.bpf.c`), without the applications' knowledge. One is attached to a cgroup (v2), and is
//! called when a connection of a process in it has been established; it also writes the option of RFC 5482 and reads the peer's. The
//! other one goes through all TCP sockets of the network namespace: at the start, when the policy has changed, after user space has
//! found out whose a connection is, and every few minutes, so that what applications change meanwhile is not missed.
//!
//! Only connections of the network namespace in which [`UserTimeouts::attach`] was called are touched, whichever processes have
//! them; containers have their own.
//!
//! **What stays when it ends.** Programs and links go with the process, even if it is killed: no connection that is made afterwards
//! is touched. Sockets keep the timeout that they have been given, which is the point of it: a connection that is held through an
//! outage shall not die because the agent is updated meanwhile. [`UserTimeouts::restore`] gives all of them back what they had
//! before. Timeouts of an agent that was killed are known by their value (they end in 617 ms), and taken over.
//!
//! What the timeouts mean, and what the kernel does by itself, is said in [`policy`](crate::policy). The order of calls:
//! [`attach`](UserTimeouts::attach), then [`handle_ready`](UserTimeouts::handle_ready) when the descriptor is readable and
//! [`handle_timeout`](UserTimeouts::handle_timeout) at [`poll_timeout`](UserTimeouts::poll_timeout), from a thread in the same network
//! namespace.

mod error;
mod kernel;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use holdover_base::{Duration, Instant};
use holdover_mobility::Connection;
use holdover_wire::UserTimeout;

use self::kernel::KernelWish;
use self::program::Program;
use crate::pace;
use crate::policy::{Decision, Owner, Owners, Policy, longest_patience};
use crate::sockets::{SocketDiag, TcpSocket};
use holdover_host::clock;

pub use self::error::UserTimeoutError;

/// The policy at work. See the module's documentation.
#[derive(Debug)]
pub struct UserTimeouts {
    program: Program,
    policy: Policy,
    diag: SocketDiag,
    owners: Owners,
    pass_interval: Duration,
    next_pass: Instant,
    asked: Questions,
    /// What somebody wants left alone, whatever the policy says.
    left_alone: BTreeSet<u64>,
    given: BTreeMap<u64, Given>,
}

/// How to attach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserTimeoutOptions {
    /// The cgroup whose processes' new connections are looked after, with those in it. `None` for all: the root of the hierarchy.
    pub cgroup: Option<PathBuf>,
    /// From one pass through all open connections to the next.
    pub pass_interval: Duration,
}

/// What a connection has been given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    /// The rule, for [`Policy::rule_name`].
    pub rule: Option<usize>,
    /// The timeout that was set, `None` for none.
    pub timeout: Option<Duration>,
    /// The application has set one itself, which was left as it is.
    pub is_applications: bool,
    /// What the option says that the peer is sent (RFC 5482).
    pub advertised: Option<UserTimeout>,
    /// What the peer's option asked for.
    pub peer_asked: Option<Duration>,
}

/// What has been done since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UserTimeoutCounters {
    /// Timeouts set on new connections.
    pub set: u64,
    /// Timeouts set on connections that were open already.
    pub set_open: u64,
    /// Connections left as they are because their application has set a timeout.
    pub applications_own: u64,
    /// Timeouts that the kernel did not take.
    pub refused: u64,
    /// Connections of which user space was told because their owner matters.
    pub asked: u64,
    /// Those for which there was no room; the next pass comes upon them.
    pub not_asked: u64,
    /// Segments with the option of RFC 5482 sent.
    pub options_sent: u64,
    /// Segments with the option received.
    pub options_received: u64,
}

/// What is not known yet.
#[derive(Debug)]
struct Questions {
    /// Sockets whose owner matters, by cookie.
    by_cookie: BTreeMap<u64, Question>,
    /// Before this nothing is answered.
    not_before: Instant,
}

/// A socket whose owner matters.
#[derive(Clone, Copy, Debug)]
struct Question {
    due: Instant,
    /// From this try to the next.
    wait: Duration,
}

/// From a question to its answer: connections come in groups, and to look for their owners takes a look at all processes.
const ANSWER_AFTER: Duration = Duration::from_millis(50);

/// A connection that no process has accepted yet has no owner.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// What has failed for reasons of the system's fails again if it is tried at once.
const RETRY_AFTER: Duration = Duration::from_secs(10);

impl Default for UserTimeoutOptions {
    /// All processes, and five minutes.
    fn default() -> Self {
        Self { cgroup: None, pass_interval: Duration::from_secs(300) }
    }
}

/// How long this network namespace's kernel bears silence by itself ([`longest_patience`]), from `tcp_retries2` and
/// `tcp_rto_max_ms` (120 s before Linux 6.15).
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
    /// Whether the kernel takes the program for new connections, and the one for those that are open. Nothing is attached.
    pub fn probe() -> (Result<(), UserTimeoutError>, Result<(), UserTimeoutError>) {
        (Program::probe_new(), Program::probe_open())
    }

    /// Loads the programs, attaches them, and gives the connections that are open what they are to have.
    ///
    /// # Errors
    ///
    /// See [`UserTimeoutError`]; nothing is attached then.
    pub fn attach(now: Instant, policy: Policy, options: &UserTimeoutOptions) -> Result<Self, UserTimeoutError> {
        let table = kernel::table(&policy)?;
        let mut program = Program::load(options.pass_interval)?;
        program.set_table(&table)?;
        program.attach(options.cgroup.as_deref())?;
        let mut this = Self {
            program,
            policy,
            diag: SocketDiag::open()?,
            owners: Owners::new(),
            pass_interval: options.pass_interval,
            next_pass: now,
            asked: Questions { by_cookie: BTreeMap::new(), not_before: now },
            left_alone: BTreeSet::new(),
            given: BTreeMap::new(),
        };
        this.pass(now)?;
        this.handle_ready(now);
        Ok(this)
    }

    /// Puts another policy in force, for new connections and for those that are open.
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

    /// The descriptor is readable: connections whose owner matters.
    pub fn handle_ready(&mut self, now: Instant) {
        while let Some(cookie) = self.program.next_question() {
            self.asked.note(now, cookie);
        }
    }

    /// A deadline has passed.
    ///
    /// # Errors
    ///
    /// See [`UserTimeoutError`]; it is tried again later.
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

    /// Leaves a connection alone from now on, and gives it back what it had, or no longer does.
    ///
    /// # Errors
    ///
    /// See [`UserTimeoutError`].
    pub fn leave_alone(&mut self, now: Instant, connection: Connection, alone: bool) -> Result<(), UserTimeoutError> {
        let Some(socket) = self.diag.find(connection)? else { return Ok(()) };
        let wish = if alone {
            self.left_alone.insert(socket.cookie);
            KernelWish::leave_alone()
        } else {
            self.left_alone.remove(&socket.cookie);
            KernelWish::of(self.decide_all(&[&socket])[0])
        };
        self.pass_with(now, BTreeMap::from([(socket.cookie, wish)]))
    }

    /// What connections have been given, as of the last pass, by the cookies of their sockets ([`TcpSocket::cookie`]). New ones
    /// appear with the next pass.
    pub const fn given(&self) -> &BTreeMap<u64, Given> {
        &self.given
    }

    /// Goes through all open connections now.
    ///
    /// # Errors
    ///
    /// See [`UserTimeoutError`].
    pub fn pass(&mut self, now: Instant) -> Result<(), UserTimeoutError> {
        self.pass_with(now, BTreeMap::new())
    }

    /// What has been done since the start.
    ///
    /// # Errors
    ///
    /// [`UserTimeoutError::Map`].
    pub fn counters(&self) -> Result<UserTimeoutCounters, UserTimeoutError> {
        let [set, set_open, applications_own, refused, asked, not_asked, options_sent, options_received] =
            self.program.counters()?;
        Ok(UserTimeoutCounters {
            set,
            set_open,
            applications_own,
            refused,
            asked,
            not_asked,
            options_sent,
            options_received,
        })
    }

    /// What the kernel's copy of the rules says of a connection: the rule, and whether that depends on whose the connection is. It
    /// is what [`Policy::decide_by_place`] says, which a test holds it to.
    ///
    /// # Errors
    ///
    /// [`UserTimeoutError::Program`].
    pub fn decide_in_kernel(&mut self, connection: Connection) -> Result<KernelVerdict, UserTimeoutError> {
        self.program.decide(connection)
    }

    /// Detaches, and gives every connection back the timeout that it had before.
    ///
    /// # Errors
    ///
    /// See [`UserTimeoutError`].
    pub fn restore(mut self) -> Result<(), UserTimeoutError> {
        self.program.detach();
        self.program.pass(kernel::PASS_RESTORE).map(drop)
    }

    fn pass_with(&mut self, now: Instant, mut wishes: BTreeMap<u64, KernelWish>) -> Result<(), UserTimeoutError> {
        wishes.extend(self.left_alone.iter().map(|cookie| (*cookie, KernelWish::leave_alone())));
        self.program.put_decisions(&wishes)?;
        let records = self.program.pass(kernel::PASS_APPLY);
        self.program.drop_decisions(wishes.keys());
        self.given = records?.iter().map(|record| (record.cookie, Given::of(record))).collect();
        // The cookies of connections that have ended.
        self.left_alone.retain(|cookie| self.given.contains_key(cookie));
        self.next_pass = now + self.pass_interval;
        self.handle_ready(now);
        Ok(())
    }

    /// Answers the questions that are due, as far as that is possible.
    fn answer(&mut self, now: Instant) -> Result<BTreeMap<u64, KernelWish>, UserTimeoutError> {
        let open = self.diag.connections()?;
        let open: BTreeMap<u64, &TcpSocket> = open.iter().map(|socket| (socket.cookie, socket)).collect();
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

/// What the kernel's copy of the rules says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelVerdict {
    /// No rule is for the connection.
    NoRule,
    /// This one.
    Rule(usize),
    /// This one, if the connection's owner fits.
    DependsOnOwner(usize),
}

impl Questions {
    fn note(&mut self, now: Instant, cookie: u64) {
        self.by_cookie.entry(cookie).or_insert(Question { due: now + ANSWER_AFTER, wait: FIRST_WAIT });
    }

    /// When the next ones are to be answered.
    fn due(&self) -> Option<Instant> {
        self.by_cookie.values().map(|question| question.due).min().map(|due| due.max(self.not_before))
    }

    /// Answers, from `now` on, have taken so long.
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

/// Readable when connections have been made whose owner matters.
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
        // Those that take no time are answered in groups all the same.
        asked.rest(now, Duration::ZERO);
        assert_eq!(asked.due(), Some(now + ANSWER_AFTER));
    }
}
