//! The daemon: one thread, one poll loop, around the machines that decide.
//!
//! It ends on SIGTERM and SIGINT, and reads its configuration again on SIGHUP. Whatever way it ends, its engines go with it, and with
//! them everything that they have in the path of packets.

mod address_changes;
mod core;
mod dry_run;
mod exemptions;
mod gateway;
mod link;
mod next_hops;
mod silence;
mod sleep;
mod timeouts;
mod wifi;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use holdover_base::{Duration, Instant};
use holdover_host::clock::{self, Utc};
use holdover_host::control_line;
use holdover_host::control_socket::{ControlSocketError, Ownership, Requesters, listen, requesters};
use holdover_host::log::with_causes;
use holdover_host::poll_loop::{self, Interests, PollLoop, SignalInput, WaitError};
use holdover_host::privileges::{self, CapabilitySet};
use holdover_host::scrape::Scrapes;
use holdover_host::session::SessionId;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use self::address_changes::AddressChanges;
use self::core::Core;
pub use self::dry_run::{DryEngine, DryRun};
use self::exemptions::Exemptions;
use self::gateway::GatewayReports;
use self::next_hops::NextHops;
use self::sleep::Sleep;
use self::timeouts::Timeouts;
use self::wifi::Wifi;
use crate::config::{Config, ConfigError};
use crate::control::{Refusal, Request, Response};
use crate::link_watch::endpoints::Endpoints;
use crate::link_watch::kernel::{Change, Interfaces};
use crate::link_watch::logind::LogindOptions;
use crate::link_watch::netlink::{Monitor, MonitorError};
use crate::link_watch::schedule::{Schedule, ScheduleWatch};
use crate::metrics;
use crate::path_engine::Attach;
use crate::sockets::{SocketDiag, owner};
use crate::status::{ActionLine, ConnectionStatus, Status};

/// With what the daemon starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// What is in force.
    pub config: Config,
    /// The file to read again on SIGHUP; `None` for the one at its usual place, if there is one.
    pub config_path: Option<PathBuf>,
    /// The interfaces to look after, whatever the configuration says; empty if that decides.
    pub interfaces: Vec<String>,
    /// The control socket.
    pub socket: PathBuf,
    /// Whether nothing is done but said. To be told to those who ask; it is [`Attach`] that decides.
    pub dry_run: bool,
    /// The address of the bus on which logind is heard; `None` for the system's.
    pub system_bus: Option<String>,
}

/// The daemon cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The kernel's news of links cannot be had.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// A file is not what it should be.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another agent has the control socket.
    #[error("an agent is running already{}: it has {}", process(*pid), path.display())]
    AlreadyRunning {
        /// The socket.
        path: PathBuf,
        /// The process, as it calls itself; `None` if it is not known.
        pid: Option<u32>,
    },
    /// This process or this kernel lacks what the agent needs, and will not get it while it runs.
    #[error("the agent cannot work here: {problem}")]
    CannotWork {
        /// What is missing, and what to do about it.
        problem: String,
    },
    /// The control socket would take the place of something else.
    #[error("{} is there and is not a socket; it is left as it is, and the control socket needs another place (--socket)", path.display())]
    NotASocket {
        /// What is there.
        path: PathBuf,
    },
    /// The control socket cannot be made.
    #[error("the control socket {} cannot be made; it needs root, or another place (--socket)", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Signals of the system cannot be waited for.
    #[error("signals of the system: {0}")]
    Signals(#[source] io::Error),
    /// Waiting failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The privileges that are not needed could not be given up.
    #[error("giving up privileges: {0}")]
    Privileges(#[source] io::Error),
}

impl From<ControlSocketError> for DaemonError {
    fn from(error: ControlSocketError) -> Self {
        match error {
            ControlSocketError::AlreadyRunning { path, pid } => Self::AlreadyRunning { path, pid },
            ControlSocketError::NotASocket { path } => Self::NotASocket { path },
            ControlSocketError::Refused { path, source } => Self::Socket { path, source },
        }
    }
}

/// What is kept: eBPF programs and their maps (`CAP_BPF`, `CAP_PERFMON`), putting them in the path of packets (`CAP_NET_ADMIN`), raw
/// packets (`CAP_NET_RAW`), and which process a connection belongs to (`CAP_SYS_PTRACE`, `CAP_DAC_READ_SEARCH`).
const KEPT: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH);

/// ` (pid 4711)`, where it is known.
fn process(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// What tells the daemon to stop, and to read its configuration again.
#[derive(Debug)]
pub struct Orders {
    /// It is to stop.
    pub stop: SignalInput,
    /// It is to read its configuration again.
    pub reload: SignalInput,
}

impl Orders {
    /// SIGTERM and SIGINT, and SIGHUP.
    ///
    /// # Errors
    /// [`DaemonError::Signals`].
    pub fn from_signals() -> Result<Self, DaemonError> {
        let (stop, reload) = (SignalInput::stop(), SignalInput::reload());
        Ok(Self { stop: stop.map_err(DaemonError::Signals)?, reload: reload.map_err(DaemonError::Signals)? })
    }
}

/// Gives up every privilege that the daemon does not need, for good. To be called before the first thread is started.
///
/// # Errors
/// [`DaemonError::Privileges`].
pub fn give_up_privileges() -> Result<(), DaemonError> {
    privileges::drop_all_but(KEPT).map_err(|errno| DaemonError::Privileges(errno.into()))
}

/// The daemon.
pub struct Daemon<A: Attach> {
    core: Core<A>,
    setup: Setup,
    interfaces: Interfaces,
    monitor: Monitor,
    /// What tunnels run over.
    endpoints: Endpoints,
    sleep: Sleep,
    /// Readable when the calendar has jumped, which waking up from sleep counts as.
    calendar: Option<OwnedFd>,
    control: Requesters,
    /// The right to the control socket. Dropped after the engines, which come before it: the next agent finds the path free.
    _ownership: Ownership,
    metrics: Option<Scrapes>,
    /// What was answered last.
    scraped: Option<Scraped>,
    /// Who wants to hear of every action.
    followers: Vec<SessionId>,
    /// What the rules of connections make of them.
    timeouts: Timeouts,
    /// What they leave alone.
    exemptions: Exemptions,
    /// What becomes of connections whose address is gone.
    address_changes: AddressChanges,
    wifi: Wifi,
    /// Who asks next hops for a sign of life.
    next_hops: NextHops,
    /// Reports to the gateway in the path of a link's packets.
    gateway: GatewayReports,
    /// Dropped last: a signal after that ends the process at once.
    orders: Orders,
}

/// Everyone on this host may ask for metrics, and looking at all connections takes its time: a second request within this time gets the same answer.
const SAME_SCRAPE: Duration = Duration::from_secs(1);

/// The metrics at some time.
struct Scraped {
    at: Instant,
    text: String,
}

/// A timetable is looked at so often even if nothing is due: should the calendar jump without a word, it is late by no more.
const GLANCE: Duration = Duration::from_secs(30);

/// What a descriptor of the poll loop is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Token {
    /// The daemon is to stop.
    Stop,
    /// It is to read its configuration again.
    Reload,
    /// The kernel reports about links.
    Monitor,
    /// The calendar has jumped.
    Calendar,
    /// logind announces sleep.
    Logind,
    /// A Wi-Fi interface reports.
    Wifi,
    /// The control socket and its conversations.
    Control,
    /// The endpoint for Prometheus and its conversations.
    Metrics,
    /// A new connection may get a user timeout.
    Timeouts,
    /// A next hop replies.
    NextHops,
    /// The gateway replies.
    Gateway,
    /// The engine of this interface has something to do.
    Engine(String),
}

impl<A: Attach> Daemon<A> {
    /// Opens everything, and looks at the interfaces that there are.
    ///
    /// # Errors
    /// Something that it cannot do without is missing. That an engine cannot be attached to an interface is no reason if it could be
    /// to others: it is tried again.
    pub fn open(setup: Setup, mut attach: A, orders: Orders) -> Result<Self, DaemonError> {
        attach.check().map_err(|error| DaemonError::CannotWork { problem: with_causes(&error) })?;
        let schedule = read_schedule(&setup.config)?;
        let (listener, ownership) = listen(&setup.socket)?;
        let control = requesters(listener);
        let metrics = setup.config.metrics.listen_if_possible();
        let (now, utc) = (clock::now(), clock::utc());
        let core = Core::new(now, attach, setup.config.clone(), setup.interfaces.clone(), setup.dry_run);
        let mut daemon = Self {
            core,
            orders,
            interfaces: Interfaces::new(),
            monitor: Monitor::open()?,
            endpoints: Endpoints::default(),
            sleep: Sleep::new(LogindOptions { address: setup.system_bus.clone(), only_listens: setup.dry_run }),
            calendar: watch_calendar(),
            control,
            _ownership: ownership,
            metrics,
            scraped: None,
            followers: Vec::new(),
            timeouts: Timeouts::start(now, &setup.config, setup.dry_run),
            exemptions: Exemptions::new(now, &setup.config),
            address_changes: AddressChanges::default(),
            wifi: Wifi::default(),
            next_hops: NextHops::default(),
            gateway: GatewayReports::start(&setup.config.gateway, setup.dry_run),
            setup,
        };
        daemon.sleep.follow(daemon.setup.config.signals.suspend);
        daemon.monitor.refresh(now, &mut daemon.interfaces)?;
        daemon.tell_changes(now);
        let config = daemon.setup.config.clone();
        daemon.core.configure(now, utc, config, schedule);
        NextHops::handle_interfaces(&mut daemon.core, &daemon.interfaces);
        Ok(daemon)
    }

    /// Goes on until it is told to stop.
    ///
    /// # Errors
    /// Something that it cannot do without has failed.
    pub fn run(mut self) -> Result<(), DaemonError> {
        let links = self.core.looked_after();
        for awaited in self.setup.interfaces.iter().filter(|name| !links.contains(name)) {
            tracing::warn!(interface = awaited, "there is no such interface yet");
        }
        tracing::info!(links = links.join(", "), dry_run = self.setup.dry_run, "the agent is running");
        let result = poll_loop::run(&mut self);
        self.timeouts.give_up(self.setup.config.user_timeouts.restore_on_exit);
        tracing::info!("the agent stops");
        result
    }

    /// Everything whose time has come.
    fn handle_timeout(&mut self, now: Instant, utc: Utc) -> Result<(), DaemonError> {
        if self.monitor.poll_timeout().is_some_and(|at| at <= now) {
            self.monitor.handle_timeout(now, &mut self.interfaces)?;
            self.tell_changes(now);
        }
        self.look_at_wifi(now);
        let may_sleep = self.sleep.handle_timeout(now);
        if let Some(event) = may_sleep {
            self.core.handle_sleep_foreseen(now, event);
        }
        self.core.handle_timeout(now);
        if self.next_hops.handle_below(now, &mut self.interfaces) {
            self.tell_changes(now);
        }
        self.next_hops.ask(&mut self.core, &self.interfaces);
        if may_sleep.is_some() {
            self.sleep.allow();
        }
        self.core.handle_time(now, utc);
        self.timeouts.handle_timeout(now, &self.setup.config);
        if self.exemptions.poll_timeout().is_some_and(|at| at <= now) {
            let began = clock::now();
            let decisions = self.exemptions.decide(now, &self.setup.config, &self.core.in_path(now));
            self.core.leave_alone(&decisions);
            let done = clock::now();
            self.exemptions.handle_done(done, done.saturating_since(began));
        }
        self.end_what_cannot_go_on(now, utc);
        self.gateway.report(now, |interface| self.core.outlook(interface), &self.interfaces);
        Ok(())
    }

    /// Sends what was done to those who follow.
    fn tell_followers(&mut self, now: Instant, utc: Utc) {
        for action in self.core.take_actions(now, utc) {
            let line = control_line::write(&Response::Action(action));
            for &follower in &self.followers {
                self.control.answer(now, follower, &line, true);
            }
        }
    }

    /// Connections whose address is gone for good.
    fn end_what_cannot_go_on(&mut self, now: Instant, utc: Utc) {
        let config = &self.setup.config;
        if self.address_changes.poll_timeout(config).is_none_or(|at| at > now) {
            return;
        }
        let in_path = self.core.in_path(now).into_iter();
        let left_alone = in_path.filter_map(|(connection, is_alone)| is_alone.then_some(connection)).collect();
        let ended = self.address_changes.handle_timeout((now, utc), config, &left_alone, self.setup.dry_run);
        self.core.note_actions(ended);
    }

    fn hear_logind(&mut self, now: Instant) {
        let has_links = !self.core.looked_after().is_empty();
        for event in self.sleep.handle_ready(now, self.setup.config.signals.suspend, has_links) {
            self.core.handle_sleep_foreseen(now, event);
        }
    }

    fn tell_changes(&mut self, now: Instant) {
        self.endpoints.refresh(now, &mut self.interfaces);
        self.next_hops.resolve_below(now, &mut self.interfaces);
        let mut has_more = false;
        while let Some(change) = self.interfaces.poll_change() {
            has_more |= matches!(change, Change::Appeared { .. });
            self.core.handle_change(now, change);
        }
        NextHops::handle_interfaces(&mut self.core, &self.interfaces);
        self.address_changes.handle_interfaces(now, &self.interfaces);
        if has_more {
            self.follow_wifi(now);
        }
    }

    /// A file that is not what it should be changes nothing.
    fn reload(&mut self, now: Instant, utc: Utc) {
        let read = match &self.setup.config_path {
            Some(path) => Config::read(path),
            None => Config::read_default(),
        };
        let read = read.and_then(|config| Ok((read_schedule(&config)?, config)));
        match read {
            Ok((schedule, config)) => {
                if config.metrics != self.setup.config.metrics {
                    self.metrics = None;
                    self.metrics = config.metrics.listen_if_possible();
                }
                self.timeouts.configure(now, &self.setup.config, &config, self.setup.dry_run);
                if config.flow != self.setup.config.flow {
                    self.exemptions.configure(now, &config);
                }
                if config.gateway != self.setup.config.gateway {
                    self.gateway = GatewayReports::start(&config.gateway, self.setup.dry_run);
                }
                self.setup.config = config.clone();
                if !config.signals.suspend
                    && let Some(event) = self.sleep.forget()
                {
                    self.core.handle_sleep_foreseen(now, event);
                }
                self.core.configure(now, utc, config, schedule);
                NextHops::handle_interfaces(&mut self.core, &self.interfaces);
                self.sleep.follow(self.setup.config.signals.suspend);
                tracing::info!(links = self.core.looked_after().join(", "), "configuration read");
            }
            Err(error) => tracing::error!(%error, "the configuration is left as it was"),
        }
    }

    fn serve_control(&mut self, now: Instant, utc: Utc) {
        for (caller, question) in self.control.handle_ready(now) {
            let (answer, goes_on) = match control_line::parse(&question) {
                Ok(Request::Signal(signal)) => {
                    let heard = self.core.handle_command(now, &signal);
                    let links = heard.as_ref().map(|links| links.join(", ")).unwrap_or_default();
                    tracing::info!(event = %signal.event, links, "signalled");
                    let answer = heard.map_or_else(Response::from, |links| Response::Signalled { links });
                    (control_line::write(&answer), false)
                }
                Ok(Request::Status) => {
                    let mut status = self.core.status(now, utc);
                    status.user_timeouts = self.timeouts.status();
                    let problem = &mut status.user_timeouts.problem;
                    *problem = problem.take().or_else(|| self.exemptions.problem().map(str::to_owned));
                    describe(&mut status.connections, &self.timeouts);
                    (control_line::write(&Response::Status(Box::new(status))), false)
                }
                Ok(Request::Actions { follow }) => {
                    if follow {
                        self.followers.push(caller);
                    }
                    let line = |action: &ActionLine| control_line::write(&Response::Action(action.clone()));
                    (self.core.actions().flat_map(line).collect(), follow)
                }
                Err(error) => (control_line::write(&Response::from(Refusal::from(error))), false),
            };
            self.control.answer(now, caller, &answer, goes_on);
        }
    }

    fn serve_metrics(&mut self, now: Instant, utc: Utc) {
        let Some(metrics) = &mut self.metrics else { return };
        metrics.handle_ready(now, || {
            let scraped = self.scraped.take().filter(|scraped| now.saturating_since(scraped.at) < SAME_SCRAPE);
            let scraped = scraped.unwrap_or_else(|| {
                let status = Status { user_timeouts: self.timeouts.status(), ..self.core.status(now, utc) };
                Scraped { at: now, text: metrics::encode_status(&status) }
            });
            self.scraped.insert(scraped).text.clone()
        });
    }
}

impl<A: Attach> PollLoop for Daemon<A> {
    type Token = Token;
    type Error = DaemonError;

    fn interests(&self) -> Interests<'_, Token> {
        let mut interests = Interests::new();
        interests.add_readable(Token::Stop, [self.orders.stop.descriptor()]);
        interests.add_readable(Token::Reload, [self.orders.reload.descriptor()]);
        // Before the monitor: an association ends before the carrier goes, and is made before the operational state is up. An agent that
        // was busy for a while and heard of the carrier first would take the association's older news for another outage.
        interests.add_readable(Token::Wifi, self.wifi.descriptor());
        interests.add_readable(Token::Monitor, [self.monitor.as_fd()]);
        interests.add_readable(Token::Calendar, self.calendar.as_ref().map(|calendar| calendar.as_fd()));
        interests.add_readable(Token::Logind, self.sleep.descriptor());
        interests.add_sessions(Token::Control, &self.control);
        if let Some(metrics) = &self.metrics {
            interests.add_sessions(Token::Metrics, metrics.sessions());
        }
        for (interface, descriptor) in self.core.descriptors() {
            interests.add_readable(Token::Engine(interface.to_owned()), [descriptor]);
        }
        interests.add_readable(Token::NextHops, self.next_hops.descriptors());
        interests.add_readable(Token::Gateway, self.gateway.descriptor());
        interests.add_readable(Token::Timeouts, self.timeouts.descriptor());

        interests.add_deadlines(self.core.poll_timeout());
        interests.add_deadlines(self.timeouts.poll_timeout());
        interests.add_deadlines(self.exemptions.poll_timeout());
        interests.add_deadlines(self.monitor.poll_timeout());
        interests.add_deadlines(self.sleep.poll_timeout());
        interests.add_deadlines(self.next_hops.poll_timeout());
        interests.add_deadlines(self.gateway.poll_timeout());
        interests.add_deadlines(self.address_changes.poll_timeout(&self.setup.config));
        let (now, Utc(utc)) = (clock::now(), clock::utc());
        interests
            .add_deadlines(self.core.poll_time(Utc(utc)).map(|Utc(at)| now + at.saturating_since(utc).min(GLANCE)));
        interests
    }

    fn handle_ready(&mut self, now: Instant, ready: Vec<Token>) -> Result<ControlFlow<()>, DaemonError> {
        let utc = clock::utc();
        // Before anything that has happened since it woke up.
        if let Some(slept) = self.sleep.handle_clocks() {
            self.core.handle_sleep(now, slept);
        }
        for token in ready {
            match token {
                Token::Stop => return Ok(ControlFlow::Break(())),
                Token::Reload => {
                    self.orders.reload.clear();
                    self.reload(now, utc);
                }
                Token::Monitor => {
                    self.monitor.handle_ready(now, &mut self.interfaces)?;
                    self.tell_changes(now);
                }
                // Set again, it is not readable any more.
                Token::Calendar => self.calendar = watch_calendar(),
                Token::Logind => self.hear_logind(now),
                Token::Wifi => self.hear_wifi(now),
                Token::Control => self.serve_control(now, utc),
                Token::Metrics => self.serve_metrics(now, utc),
                Token::Timeouts => self.timeouts.handle_ready(now),
                Token::NextHops => self.next_hops.handle_ready(now, &mut self.core, &self.interfaces),
                Token::Gateway => self.gateway.handle_ready(now),
                Token::Engine(interface) => self.core.handle_ready(now, &interface),
            }
        }
        self.handle_timeout(now, utc)?;
        self.tell_followers(now, utc);
        self.control.hang_up(now);
        if let Some(metrics) = &mut self.metrics {
            metrics.handle_timeout(now);
        }
        self.followers.retain(|&follower| self.control.is_there(follower));
        Ok(ControlFlow::Continue(()))
    }
}

fn read_schedule(config: &Config) -> Result<Option<ScheduleWatch>, ConfigError> {
    let schedule = config.signals.schedule.as_deref().map(Schedule::read).transpose()?;
    Ok(schedule.map(ScheduleWatch::new))
}

/// A timer by the calendar that never fires, but is readable when the calendar jumps or the machine wakes up (`timerfd_create(2)`,
/// `TFD_TIMER_CANCEL_ON_SET`).
fn watch_calendar() -> Option<OwnedFd> {
    let never = Timespec { tv_sec: i64::MAX / 1_000_000_000, tv_nsec: 0 };
    let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC).ok()?;
    let value = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: never };
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    timerfd_settime(timer.as_fd(), flags, &value).ok()?;
    Some(timer)
}

/// What only the kernel's sockets tell: whose a connection is, and how far its timer has backed off.
fn describe(connections: &mut [ConnectionStatus], timeouts: &Timeouts) {
    let sockets = SocketDiag::open().and_then(|mut diag| diag.connections()).unwrap_or_default();
    let sockets: BTreeMap<(SocketAddr, SocketAddr), _> =
        sockets.iter().map(|socket| ((socket.connection.local, socket.connection.remote), socket)).collect();
    let found = |status: &ConnectionStatus| sockets.get(&(status.local, status.remote)).copied();
    let inodes: BTreeSet<u32> = connections.iter().filter_map(found).map(|socket| socket.inode).collect();
    let owners = owner::processes_of(&inodes);
    for connection in connections {
        let Some(socket) = found(connection) else { continue };
        connection.rto_ms = Some(socket.info.tcpi_rto.as_secs_f64() * 1e3);
        connection.backoff = Some(socket.info.tcpi_backoff.into());
        connection.user_timeout = timeouts.given(socket.cookie);
        connection.process =
            owners.get(&socket.inode).and_then(|processes| processes.first()).map(|first| first.comm.clone());
    }
}

#[cfg(test)]
mod tests;
