//! The daemon: one thread, one poll loop, around the state machines.
//!
//! It ends on SIGTERM and SIGINT, and reloads its configuration on SIGHUP. However it ends, its engines end with it,
//! and so does everything that they have in the path of packets.

mod address_changes;
mod carriers;
mod core;
mod dry_run;
mod exemptions;
mod gateway;
mod link;
mod modem;
mod next_hops;
mod silence;
mod sleep;
mod sockets;
mod timeouts;
mod wifi;

use std::io;
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
use self::modem::ModemLinks;
use self::next_hops::NextHops;
use self::sleep::Sleep;
use self::timeouts::Timeouts;
use self::wifi::Wifi;
use crate::config::{Config, ConfigError};
use crate::containers::Containers;
use crate::control::{Refusal, Request, Response};
use crate::link_watch::Signal;
use crate::link_watch::endpoints::Endpoints;
use crate::link_watch::kernel::{Change, Interfaces};
use crate::link_watch::logind::LogindOptions;
use crate::link_watch::netlink::{Monitor, MonitorError};
use crate::link_watch::schedule::{Schedule, ScheduleWatch};
use crate::metrics;
use crate::path_engine::Attach;
use crate::status::{ActionLine, Status};

/// The daemon's start parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The configuration.
    pub config: Config,
    /// The file to reload on SIGHUP; `None` for the default one, if it exists.
    pub config_path: Option<PathBuf>,
    /// The interfaces to manage, overriding the configuration; empty if the configuration decides.
    pub interfaces: Vec<String>,
    /// The control socket.
    pub socket: PathBuf,
    /// Whether this is a dry run, for status requests; [`Attach`] implements it.
    pub dry_run: bool,
    /// The address of the bus with logind; `None` for the system bus.
    pub system_bus: Option<String>,
}

/// The daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The kernel's notifications about links are not available.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// A file is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another agent owns the control socket.
    #[error("an agent is running already{}: it owns {}", process(*pid), path.display())]
    AlreadyRunning {
        /// The socket.
        path: PathBuf,
        /// The pid of the process; `None` if unknown.
        pid: Option<u32>,
    },
    /// This process or kernel lacks what the agent needs, permanently.
    #[error("the agent cannot run here: {problem}")]
    CannotWork {
        /// The missing prerequisites, and how to get them.
        problem: String,
    },
    /// The control socket is not available for another reason.
    #[error(transparent)]
    Control(ControlSocketError),
    /// Signal handlers cannot be installed.
    #[error("cannot handle signals: {0}")]
    Signals(#[source] io::Error),
    /// `poll(2)` failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// Unneeded privileges could not be dropped.
    #[error("cannot drop privileges: {0}")]
    Privileges(#[source] io::Error),
}

impl From<ControlSocketError> for DaemonError {
    fn from(error: ControlSocketError) -> Self {
        match error {
            ControlSocketError::AlreadyRunning { path, pid } => Self::AlreadyRunning { path, pid },
            other => Self::Control(other),
        }
    }
}

/// The capabilities kept: for eBPF programs and their maps (`CAP_BPF`, `CAP_PERFMON`), attaching them
/// (`CAP_NET_ADMIN`), raw packets (`CAP_NET_RAW`), and the process of a connection (`CAP_SYS_PTRACE`,
/// `CAP_DAC_READ_SEARCH`).
const KEPT: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH);

/// ` (pid 4711)`, if known.
fn process(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// The inputs that make the daemon stop, and reload its configuration.
#[derive(Debug)]
pub struct Orders {
    /// Stop.
    pub stop: SignalInput,
    /// Reload the configuration.
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

/// Drops every privilege that the configuration does not need, permanently. Call it before the first thread is started.
///
/// # Errors
/// [`DaemonError::Privileges`].
pub fn give_up_privileges(config: &Config) -> Result<(), DaemonError> {
    // `setns(2)` into containers.
    let more = if config.containers.enabled { CapabilitySet::SYS_ADMIN } else { CapabilitySet::empty() };
    privileges::drop_all_but(KEPT | more).map_err(|errno| DaemonError::Privileges(errno.into()))
}

/// The daemon.
pub struct Daemon<A: Attach> {
    core: Core<A>,
    setup: Setup,
    interfaces: Interfaces,
    monitor: Monitor,
    /// The endpoints of tunnels.
    endpoints: Endpoints,
    sleep: Sleep,
    /// Readable when calendar time has jumped, also by waking from sleep.
    calendar: Option<OwnedFd>,
    control: Requesters,
    /// Ownership of the control socket. Dropped after the engines, which precede it: the next agent finds the path
    /// free.
    _ownership: Ownership,
    metrics: Option<Scrapes>,
    /// The last answer.
    scraped: Option<Scraped>,
    /// Sessions that follow all actions.
    followers: Vec<SessionId>,
    /// User timeouts by the rules.
    timeouts: Timeouts,
    /// Exemptions by the rules.
    exemptions: Exemptions,
    containers: Containers,
    /// The lost addresses, and the end of connections on them.
    address_changes: AddressChanges,
    wifi: Wifi,
    modems: ModemLinks,
    /// Probes of next hops.
    next_hops: NextHops,
    /// Reports to the gateway in the path of a link's packets.
    gateway: GatewayReports,
    /// Dropped last: a later signal ends the process at once.
    orders: Orders,
}

/// Every user of this host may request metrics, and listing all connections takes time: a second request within this
/// time gets the same answer.
const SAME_SCRAPE: Duration = Duration::from_secs(1);

/// The metrics at some time.
struct Scraped {
    at: Instant,
    text: String,
}

/// The interval between checks of a timetable without a due entry: limits its delay if calendar time jumps without
/// notification.
const GLANCE: Duration = Duration::from_secs(30);

/// The purpose of a descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Token {
    /// Stop.
    Stop,
    /// Reload the configuration.
    Reload,
    /// The kernel reports about links.
    Monitor,
    /// Calendar time has jumped.
    Calendar,
    /// logind announces sleep.
    Logind,
    /// A Wi-Fi interface reports.
    Wifi,
    /// ModemManager reports.
    Modems,
    /// The control socket and its sessions.
    Control,
    /// The endpoint for Prometheus and its sessions.
    Metrics,
    /// A new connection may get a user timeout.
    Timeouts,
    /// A next hop replies.
    NextHops,
    /// The gateway replies.
    Gateway,
    /// The engine of this interface is ready.
    Engine(String),
}

impl<A: Attach> Daemon<A> {
    /// Opens everything, and lists the interfaces.
    ///
    /// # Errors
    /// Something essential is missing. An engine that cannot be attached to one interface, but could be to others, is
    /// no error: it is tried again.
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
            containers: Containers::new(setup.config.containers.enabled),
            address_changes: AddressChanges::default(),
            wifi: Wifi::default(),
            modems: ModemLinks::new(setup.system_bus.clone(), setup.dry_run),
            next_hops: NextHops::default(),
            gateway: GatewayReports::start(&setup.config.gateway, setup.dry_run),
            setup,
        };
        daemon.sleep.follow(daemon.setup.config.signals.suspend);
        daemon.monitor.refresh(now, &mut daemon.interfaces)?;
        daemon.report_changes(now);
        daemon.modems.configure(now, &daemon.setup.config.signals.modem);
        let config = daemon.setup.config.clone();
        daemon.core.configure(now, utc, config, schedule);
        NextHops::handle_interfaces(&mut daemon.core, &daemon.interfaces);
        Ok(daemon)
    }

    /// Runs until it is stopped.
    ///
    /// # Errors
    /// Something essential has failed.
    pub fn run(mut self) -> Result<(), DaemonError> {
        let links = self.core.managed_links();
        for awaited in self.setup.interfaces.iter().filter(|name| !links.contains(name)) {
            tracing::warn!(interface = awaited, "the interface does not exist yet");
        }
        tracing::info!(links = links.join(", "), dry_run = self.setup.dry_run, "the agent is running");
        let result = poll_loop::run(&mut self);
        self.timeouts.give_up(self.setup.config.user_timeouts.restore_on_exit);
        tracing::info!("the agent is stopping");
        result
    }

    /// Handles deadlines.
    fn handle_timeout(&mut self, now: Instant, utc: Utc) -> Result<(), DaemonError> {
        if self.monitor.poll_timeout().is_some_and(|at| at <= now) {
            self.monitor.handle_timeout(now, &mut self.interfaces)?;
            self.report_changes(now);
        }
        self.check_carriers(now);
        self.measure_wifi_levels(now);
        let may_sleep = self.sleep.handle_timeout(now);
        if let Some(event) = may_sleep {
            self.core.handle_sleep_foreseen(now, event);
        }
        self.core.handle_timeout(now);
        let is_due = self.endpoints.poll_timeout().is_some_and(|at| at <= now);
        if self.next_hops.handle_below(now, &mut self.interfaces) || is_due {
            self.report_changes(now);
        }
        self.next_hops.ask(&mut self.core, &self.interfaces);
        if may_sleep.is_some() {
            self.sleep.allow();
        }
        self.core.handle_time(now, utc);
        self.timeouts.handle_timeout(now, &self.setup.config);
        if self.exemptions.poll_timeout().is_some_and(|at| at <= now) {
            let began = clock::now();
            let decisions =
                self.exemptions.decide(now, &self.setup.config, &self.core.in_path(now), &mut self.containers);
            self.core.leave_alone(&decisions);
            let done = clock::now();
            self.exemptions.handle_done(done, done.saturating_since(began));
        }
        self.end_what_cannot_go_on(now, utc);
        self.gateway.report(now, |interface| self.core.outlook(interface), &self.interfaces);
        Ok(())
    }

    /// Sends new actions to followers.
    fn notify_followers(&mut self, now: Instant, utc: Utc) {
        for action in self.core.take_actions(now, utc) {
            let line = control_line::write(&Response::Action(action));
            for &follower in &self.followers {
                self.control.answer(now, follower, &line, true);
            }
        }
    }

    /// Ends connections whose address is gone.
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

    fn read_logind(&mut self, now: Instant) {
        let has_links = !self.core.managed_links().is_empty();
        for event in self.sleep.handle_ready(now, self.setup.config.signals.suspend, has_links) {
            self.core.handle_sleep_foreseen(now, event);
        }
    }

    fn report_signals(&mut self, now: Instant, signals: Vec<Signal>) {
        signals.into_iter().for_each(|signal| self.core.handle_change(now, Change::Signal(signal)));
    }

    fn report_changes(&mut self, now: Instant) {
        self.endpoints.refresh(now, &mut self.interfaces);
        self.next_hops.resolve_below(now, &mut self.interfaces);
        if let Some(absent) = self.address_changes.handle_interfaces(now, &self.interfaces) {
            self.core.handle_absent(now, absent);
        }
        let mut has_more = false;
        while let Some(change) = self.interfaces.poll_change() {
            has_more |= matches!(change, Change::Appeared { .. });
            self.core.handle_change(now, change);
        }
        self.core.handle_returned(now);
        NextHops::handle_interfaces(&mut self.core, &self.interfaces);
        if has_more {
            self.follow_wifi(now);
        }
    }

    /// An invalid file changes nothing.
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
                if config.containers != self.setup.config.containers {
                    self.containers = Containers::new(config.containers.enabled);
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
                let withdrawn = self.modems.configure(now, &config.signals.modem);
                self.report_signals(now, withdrawn);
                self.core.configure(now, utc, config, schedule);
                NextHops::handle_interfaces(&mut self.core, &self.interfaces);
                self.sleep.follow(self.setup.config.signals.suspend);
                tracing::info!(links = self.core.managed_links().join(", "), "configuration read");
            }
            Err(error) => tracing::error!(%error, "invalid configuration; keeping the current one"),
        }
    }

    fn serve_control(&mut self, now: Instant, utc: Utc) {
        for (caller, question) in self.control.handle_ready(now) {
            let (answer, has_more) = match control_line::parse(&question) {
                Ok(Request::Signal(signal)) => {
                    let heard = self.core.handle_command(now, &signal);
                    let links = heard.as_ref().map(|links| links.join(", ")).unwrap_or_default();
                    tracing::info!(event = %signal.event, links, "link event reported by command");
                    let answer = heard.map_or_else(Response::from, |links| Response::Signalled { links });
                    (control_line::write(&answer), false)
                }
                Ok(Request::Status) => {
                    let mut status = self.core.status(now, utc);
                    status.user_timeouts = self.timeouts.status();
                    let problem = &mut status.user_timeouts.problem;
                    *problem = problem.take().or_else(|| self.exemptions.problem().map(str::to_owned));
                    sockets::describe(&mut status, &self.timeouts, &mut self.containers);
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
            self.control.answer(now, caller, &answer, has_more);
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
        // Before the monitor: an association ends before the carrier, and begins before the operational state is up. A
        // busy agent that read the carrier first would take the older event of the association for another outage.
        interests.add_readable(Token::Wifi, self.wifi.descriptor());
        interests.add_readable(Token::Modems, self.modems.descriptor());
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
        interests.add_deadlines(self.interfaces.carrier_check_at());
        interests.add_deadlines(self.endpoints.poll_timeout());
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
        // Before events since the wake-up.
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
                    self.report_changes(now);
                }
                // Setting it again clears the readable state.
                Token::Calendar => self.calendar = watch_calendar(),
                Token::Logind => self.read_logind(now),
                Token::Wifi => self.read_wifi(now),
                Token::Modems => {
                    let signals = self.modems.handle_ready(now);
                    self.report_signals(now, signals);
                }
                Token::Control => self.serve_control(now, utc),
                Token::Metrics => self.serve_metrics(now, utc),
                Token::Timeouts => self.timeouts.handle_ready(now),
                Token::NextHops => self.next_hops.handle_ready(now, &mut self.core, &self.interfaces),
                Token::Gateway => self.gateway.handle_ready(now),
                Token::Engine(interface) => self.core.handle_ready(now, &interface),
            }
        }
        self.handle_timeout(now, utc)?;
        self.notify_followers(now, utc);
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

/// A calendar timer that never fires, but is readable when calendar time jumps or the machine wakes up
/// (`timerfd_create(2)`, `TFD_TIMER_CANCEL_ON_SET`).
fn watch_calendar() -> Option<OwnedFd> {
    let never = Timespec { tv_sec: i64::MAX / 1_000_000_000, tv_nsec: 0 };
    let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC).ok()?;
    let value = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: never };
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    timerfd_settime(timer.as_fd(), flags, &value).ok()?;
    Some(timer)
}

#[cfg(test)]
mod tests;
