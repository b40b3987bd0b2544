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
mod timeouts;
mod wifi;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use holdover_base::{Duration, Instant};
use holdover_host::clock::{self, Utc};
use holdover_host::control_socket::{ControlSocketError, Ownership, listen};
use holdover_host::log::with_causes;
use holdover_host::notify::Notifier;
use holdover_host::privileges::{self, CapabilitySet};
use holdover_host::scrape::{self, Scrapes};
use holdover_host::session::{Bounds, SessionId, Sessions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use self::address_changes::AddressChanges;
use self::core::Core;
pub use self::dry_run::{DryEngine, DryRun};
use self::exemptions::Exemptions;
use self::gateway::GatewayReports;
use self::next_hops::NextHops;
use self::timeouts::Timeouts;
use self::wifi::Wifi;
use crate::config::{Config, ConfigError, Metrics};
use crate::control::{LONGEST_REQUEST, Request, Response};
use crate::link_watch::endpoints::Endpoints;
use crate::link_watch::kernel::{Change, Interfaces};
use crate::link_watch::logind::{Announcement, Inhibitor, Logind, LogindOptions};
use crate::link_watch::netlink::{Monitor, MonitorError};
use crate::link_watch::schedule::{Schedule, ScheduleWatch};
use crate::link_watch::suspend::SuspendWatch;
use crate::metrics;
use crate::path_engine::Attach;
use crate::sockets::{SocketDiag, owner};
use crate::status::{ConnectionStatus, Status};

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
    #[error("waiting for news: {0}")]
    Wait(#[source] io::Error),
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

/// What tells the daemon to stop, and to read its configuration again: each by a byte.
#[derive(Debug)]
pub struct Orders {
    /// It is to stop.
    pub stop: UnixStream,
    /// It is to read its configuration again.
    pub reload: UnixStream,
}

impl Orders {
    /// SIGTERM and SIGINT, and SIGHUP.
    ///
    /// # Errors
    /// [`DaemonError::Signals`].
    pub fn from_signals() -> Result<Self, DaemonError> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let pipe = |signals: &[i32]| {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            for &signal in signals {
                signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
            }
            Ok(reader)
        };
        let (stop, reload) = (pipe(&[SIGTERM, SIGINT]), pipe(&[SIGHUP]));
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
    orders: Orders,
    interfaces: Interfaces,
    monitor: Monitor,
    /// What tunnels run over.
    endpoints: Endpoints,
    suspend: SuspendWatch,
    /// Who announces sleep.
    logind: Option<Logind>,
    /// While it is there, the machine waits with it.
    inhibitor: Option<Inhibitor>,
    /// Readable when the calendar has jumped, which waking up from sleep counts as.
    calendar: Option<OwnedFd>,
    control: Sessions<UnixListener>,
    /// The right to the control socket. Dropped after the engines, which come before it: the next agent finds the path free.
    _ownership: Ownership,
    metrics: Option<Scrapes>,
    /// What was answered last.
    scraped: Option<Scraped>,
    /// Who wants to hear of every action.
    followers: Vec<SessionId>,
    notifier: Notifier,
    watchdog_due: Option<Instant>,
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
}

/// Callers of the control socket.
const CONTROL: Bounds = Bounds {
    mark: b"\n",
    question_bytes: LONGEST_REQUEST,
    callers: 16,
    time: Duration::from_secs(5),
    backlog_bytes: 1 << 20,
};

/// Everyone on this host may ask for metrics, and looking at all connections takes its time: a second request within this time gets the same answer.
const SAME_SCRAPE: Duration = Duration::from_secs(1);

/// The metrics at some time.
struct Scraped {
    at: Instant,
    text: String,
}

/// A timetable is looked at so often even if nothing is due: should the calendar jump without a word, it is late by no more.
const GLANCE: Duration = Duration::from_secs(30);

/// What has something to say.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Stop,
    Reload,
    Monitor,
    Calendar,
    Logind,
    Wifi,
    Control,
    Metrics,
    Timeouts,
    NextHops,
    Gateway,
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
        let notifier = Notifier::from_environment();
        let schedule = read_schedule(&setup.config)?;
        let (listener, ownership) = listen(&setup.socket)?;
        let control = Sessions::new(listener, CONTROL);
        let metrics = listen_for_scrapes(&setup.config.metrics);
        let (now, utc) = (clock::now(), clock::utc());
        let core = Core::new(now, attach, setup.config.clone(), setup.interfaces.clone(), setup.dry_run);
        let mut daemon = Self {
            core,
            orders,
            interfaces: Interfaces::new(),
            monitor: Monitor::open()?,
            endpoints: Endpoints::default(),
            suspend: SuspendWatch::new(clock::slept()),
            logind: None,
            inhibitor: None,
            calendar: watch_calendar(),
            control,
            _ownership: ownership,
            metrics,
            scraped: None,
            followers: Vec::new(),
            watchdog_due: notifier.watchdog().map(|every| now + every),
            timeouts: Timeouts::start(now, &setup.config, setup.dry_run),
            exemptions: Exemptions::new(now, &setup.config),
            address_changes: AddressChanges::default(),
            notifier,
            wifi: Wifi::default(),
            next_hops: NextHops::default(),
            gateway: GatewayReports::start(&setup.config.gateway, setup.dry_run),
            setup,
        };
        daemon.follow_logind();
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
        self.notifier.tell("READY=1");
        let links = self.core.looked_after();
        for awaited in self.setup.interfaces.iter().filter(|name| !links.contains(name)) {
            tracing::warn!(interface = awaited, "there is no such interface yet");
        }
        tracing::info!(links = links.join(", "), dry_run = self.setup.dry_run, "the agent is running");
        let result = loop {
            match self.step() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.notifier.tell("STOPPING=1");
        self.timeouts.give_up(self.setup.config.user_timeouts.restore_on_exit);
        tracing::info!("the agent stops");
        result
    }

    /// Waits for news and acts on it; whether to go on.
    fn step(&mut self) -> Result<bool, DaemonError> {
        let ready = self.wait()?;
        let (now, utc) = (clock::now(), clock::utc());
        // Before anything that has happened since it woke up.
        if let Some(slept) = self.suspend.handle_clocks(clock::slept()) {
            self.inhibitor = None;
            self.core.handle_sleep(now, slept);
        }
        for token in ready {
            match token {
                Token::Stop => return Ok(false),
                Token::Reload => {
                    drain(&mut self.orders.reload);
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
        if self.monitor.poll_timeout().is_some_and(|at| at <= now) {
            self.monitor.handle_timeout(now, &mut self.interfaces)?;
            self.tell_changes(now);
        }
        self.look_at_wifi(now);
        let may_sleep = self.suspend.handle_timeout(now);
        if let Some(event) = may_sleep {
            self.core.handle_sleep_foreseen(now, event);
        }
        self.core.handle_timeout(now);
        if self.next_hops.handle_below(now, &mut self.interfaces) {
            self.tell_changes(now);
        }
        self.next_hops.ask(&mut self.core, &self.interfaces);
        if may_sleep.is_some() {
            self.inhibitor = None;
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
        for action in self.core.take_actions(now, utc) {
            let line = Response::Action(action).to_line();
            for &follower in &self.followers {
                self.control.answer(now, follower, &line, true);
            }
        }
        self.control.hang_up(now);
        if let Some(metrics) = &mut self.metrics {
            metrics.hang_up(now);
        }
        self.followers.retain(|&follower| self.control.is_there(follower));
        if let Some(every) = self.notifier.watchdog()
            && self.watchdog_due.is_some_and(|due| due <= now)
        {
            self.notifier.tell("WATCHDOG=1");
            self.watchdog_due = Some(now + every);
        }
        Ok(true)
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

    /// Sleeps until something has something to say, or is due.
    fn wait(&self) -> Result<Vec<Token>, DaemonError> {
        let mut waited_for = vec![
            (Token::Stop, PollFd::new(&self.orders.stop, PollFlags::IN)),
            (Token::Reload, PollFd::new(&self.orders.reload, PollFlags::IN)),
        ];
        // Before the monitor: an association ends before the carrier goes, and is made before the operational state is up. An agent that
        // was busy for a while and heard of the carrier first would take the association's older news for another outage.
        let wifi = self.wifi.descriptor().into_iter();
        waited_for.extend(wifi.map(|descriptor| (Token::Wifi, PollFd::from_borrowed_fd(descriptor, PollFlags::IN))));
        waited_for.push((Token::Monitor, PollFd::new(&self.monitor, PollFlags::IN)));
        waited_for.extend(self.calendar.iter().map(|calendar| (Token::Calendar, PollFd::new(calendar, PollFlags::IN))));
        let add =
            |token: Token| move |(descriptor, flags)| (token.clone(), PollFd::from_borrowed_fd(descriptor, flags));
        waited_for.extend(self.logind.iter().map(|logind| (Token::Logind, PollFd::new(logind, PollFlags::IN))));
        waited_for.extend(self.control.descriptors().map(add(Token::Control)));
        waited_for.extend(self.metrics.iter().flat_map(Sessions::descriptors).map(add(Token::Metrics)));
        let engines = self.core.descriptors().map(|(interface, descriptor)| {
            (Token::Engine(interface.to_owned()), PollFd::from_borrowed_fd(descriptor, PollFlags::IN))
        });
        waited_for.extend(engines);
        let next_hops = self.next_hops.descriptors();
        waited_for.extend(next_hops.map(|fd| (Token::NextHops, PollFd::from_borrowed_fd(fd, PollFlags::IN))));
        let gateway = self.gateway.descriptor().into_iter();
        waited_for.extend(gateway.map(|fd| (Token::Gateway, PollFd::from_borrowed_fd(fd, PollFlags::IN))));
        let timeouts = self.timeouts.descriptor().into_iter();
        waited_for
            .extend(timeouts.map(|descriptor| (Token::Timeouts, PollFd::from_borrowed_fd(descriptor, PollFlags::IN))));
        let (tokens, mut descriptors): (Vec<Token>, Vec<PollFd<'_>>) = waited_for.into_iter().unzip();
        match poll(&mut descriptors, self.patience().as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(errno) => return Err(DaemonError::Wait(errno.into())),
        }
        let ready = tokens.into_iter().zip(&descriptors).filter(|(_, descriptor)| !descriptor.revents().is_empty());
        let mut ready: Vec<Token> = ready.map(|(token, _)| token).collect();
        ready.dedup();
        Ok(ready)
    }

    /// How long nothing is due.
    fn patience(&self) -> Option<Timespec> {
        let (now, Utc(utc)) = (clock::now(), clock::utc());
        let until_time = self.core.poll_time(Utc(utc)).map(|Utc(at)| at.saturating_since(utc).min(GLANCE));
        let sessions =
            self.control.poll_timeout().into_iter().chain(self.metrics.as_ref().and_then(Sessions::poll_timeout));
        let deadlines =
            sessions.chain(self.core.poll_timeout()).chain(self.timeouts.poll_timeout()).chain(self.watchdog_due);
        let deadlines = deadlines.chain(self.exemptions.poll_timeout()).chain(self.monitor.poll_timeout());
        let deadlines = deadlines.chain(self.suspend.poll_timeout());
        let deadlines = deadlines.chain(self.next_hops.poll_timeout()).chain(self.gateway.poll_timeout());
        let deadlines = deadlines.chain(self.address_changes.poll_timeout(&self.setup.config));
        let wait = deadlines.map(|at| at.saturating_since(now)).chain(until_time).min()?;
        let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
        Some(Timespec { tv_sec: seconds, tv_nsec: (wait.as_nanos() % 1_000_000_000) as _ })
    }

    /// From when on sleep is of interest.
    fn follow_logind(&mut self) {
        if self.setup.config.signals.suspend && self.logind.is_none() {
            let options = LogindOptions { address: self.setup.system_bus.clone(), only_listens: self.setup.dry_run };
            let followed = Logind::follow(options);
            self.logind = followed.inspect_err(|error| tracing::warn!(%error, "sleep is not foreseen")).ok();
        }
    }

    fn hear_logind(&mut self, now: Instant) {
        let Some(logind) = &mut self.logind else { return };
        while let Some(announcement) = logind.poll_announcement() {
            let event = match announcement {
                // If it is of no interest, or there is nothing to prepare, it may sleep at once.
                Announcement::Soon { .. } if !self.setup.config.signals.suspend => None,
                Announcement::Soon { inhibitor, slept } => {
                    let event = self.suspend.handle_soon(now, slept);
                    if event.is_some() && !self.core.looked_after().is_empty() {
                        self.inhibitor = inhibitor;
                    }
                    event
                }
                Announcement::Over => {
                    self.inhibitor = None;
                    self.suspend.handle_over()
                }
            };
            if let Some(event) = event {
                self.core.handle_sleep_foreseen(now, event);
            }
        }
        if logind.has_ended() {
            self.logind = None;
            self.forget_sleep(now);
        }
    }

    /// Nobody will say that it is over.
    fn forget_sleep(&mut self, now: Instant) {
        self.inhibitor = None;
        if let Some(event) = self.suspend.handle_over() {
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
                    self.metrics = listen_for_scrapes(&config.metrics);
                }
                self.timeouts.configure(now, &self.setup.config, &config, self.setup.dry_run);
                if config.flow != self.setup.config.flow {
                    self.exemptions.configure(now, &config);
                }
                if config.gateway != self.setup.config.gateway {
                    self.gateway = GatewayReports::start(&config.gateway, self.setup.dry_run);
                }
                self.setup.config = config.clone();
                if !config.signals.suspend {
                    self.forget_sleep(now);
                }
                self.core.configure(now, utc, config, schedule);
                NextHops::handle_interfaces(&mut self.core, &self.interfaces);
                self.follow_logind();
                tracing::info!(links = self.core.looked_after().join(", "), "configuration read");
            }
            Err(error) => tracing::error!(%error, "the configuration is left as it was"),
        }
    }

    fn serve_control(&mut self, now: Instant, utc: Utc) {
        for (caller, question) in self.control.handle_ready(now) {
            let (answer, goes_on) = match Request::parse(&question) {
                Ok(Request::Signal(signal)) => {
                    let heard = self.core.handle_command(now, &signal);
                    let links = heard.as_ref().map(|links| links.join(", ")).unwrap_or_default();
                    tracing::info!(event = %signal.event, links, "signalled");
                    (heard.map_or_else(Response::from, |links| Response::Signalled { links }).to_line(), false)
                }
                Ok(Request::Status) => {
                    let mut status = self.core.status(now, utc);
                    status.user_timeouts = self.timeouts.status();
                    let problem = &mut status.user_timeouts.problem;
                    *problem = problem.take().or_else(|| self.exemptions.problem().map(str::to_owned));
                    describe(&mut status.connections, &self.timeouts);
                    (Response::Status(Box::new(status)).to_line(), false)
                }
                Ok(Request::Actions { follow }) => {
                    if follow {
                        self.followers.push(caller);
                    }
                    (
                        self.core.actions().flat_map(|action| Response::Action(action.clone()).to_line()).collect(),
                        follow,
                    )
                }
                Err(refusal) => (Response::from(refusal).to_line(), false),
            };
            self.control.answer(now, caller, &answer, goes_on);
        }
    }

    fn serve_metrics(&mut self, now: Instant, utc: Utc) {
        let Some(sessions) = &mut self.metrics else { return };
        for (caller, request) in sessions.handle_ready(now) {
            let text = || {
                let scraped = self.scraped.take().filter(|scraped| now.saturating_since(scraped.at) < SAME_SCRAPE);
                let scraped = scraped.unwrap_or_else(|| {
                    let status = Status { user_timeouts: self.timeouts.status(), ..self.core.status(now, utc) };
                    Scraped { at: now, text: metrics::encode_status(&status) }
                });
                self.scraped.insert(scraped).text.clone()
            };
            sessions.answer(now, caller, &scrape::respond(&request, text), false);
        }
    }
}

fn read_schedule(config: &Config) -> Result<Option<ScheduleWatch>, ConfigError> {
    let schedule = config.signals.schedule.as_deref().map(Schedule::read).transpose()?;
    Ok(schedule.map(ScheduleWatch::new))
}

fn listen_for_scrapes(config: &Metrics) -> Option<Scrapes> {
    config.enabled.then(|| scrape::listen_if_possible(config.listen)).flatten()
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

fn drain(orders: &mut UnixStream) {
    let mut bytes = [0; 64];
    while matches!(orders.read(&mut bytes), Ok(1..)) {}
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
