//! The daemon: one thread, one poll loop around the engine.
//!
//! It ends on SIGTERM and SIGINT, or when it has drained, and the programs end with it. When it is killed, pinned
//! programs continue until the next process takes them over (with clsact they pass everything). Buffered packets stay
//! in their files in any case.

use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::Source;
use holdover_host::clock;
use holdover_host::control_line;
use holdover_host::control_socket::{ControlSocketError, Ownership, Requesters, listen, requesters};
use holdover_host::ebpf::pins::is_bpf_fs;
use holdover_host::log::with_causes;
use holdover_host::notify::Notifier;
use holdover_host::open_files;
use holdover_host::poll_loop::{self, Interests, PollLoop, SignalInput, WaitError};
use holdover_host::privileges::{self, CapabilitySet};
use holdover_host::scrape::Scrapes;

use crate::config::{self, Config, Mode};
use crate::control::{Request, Response};
use crate::engine::{ByMac, Engine, EngineError};
use crate::metrics;
use crate::presence::{HookAnswer, SecretError, SourceReport, Sources};
use crate::status::{MobileLine, Status};

/// Time for the end of the process, after split connections have ended.
const STOP_ROOM: Duration = Duration::from_secs(20);

/// The daemon's start parameters.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// The configuration.
    pub config: Config,
    /// The mobile-facing interface.
    pub interface: String,
    /// The control socket.
    pub socket: PathBuf,
}

/// The daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A secret in the configuration, or the socket that uses it, is not available.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The control socket is not available.
    #[error(transparent)]
    Control(#[from] ControlSocketError),
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

/// Readable after SIGTERM or SIGINT.
///
/// # Errors
/// [`DaemonError::Signals`].
pub fn stop_signal() -> Result<SignalInput, DaemonError> {
    SignalInput::stop().map_err(DaemonError::Signals)
}

/// Mounts a BPF file system if the configuration pins programs and there is none. Call it before privileges are
/// dropped. Without one the programs end with the process, which is logged when they are loaded.
pub fn mount_pins(config: &Config) {
    let directory = &config.programs.directory;
    // Elsewhere a mount could hide another file system.
    if !config.programs.pinned || is_bpf_fs(directory) || directory != Path::new("/sys/fs/bpf") {
        return;
    }
    let Ok(path) = std::ffi::CString::new(directory.as_os_str().as_bytes()) else { return };
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: the texts end with zeros, and live until the call returns.
    let result =
        unsafe { libc::mount(c"bpf".as_ptr(), path.as_ptr(), c"bpf".as_ptr(), flags, c"mode=0700".as_ptr().cast()) };
    if result != 0 {
        let error = io::Error::last_os_error();
        tracing::warn!(directory = %directory.display(), %error, "no BPF file system: programs end with the process");
    }
}

/// Drops every unneeded privilege, permanently. Call it before the first thread is started.
///
/// # Errors
/// [`DaemonError::Privileges`].
pub fn give_up_privileges() -> Result<(), DaemonError> {
    // Split connections keep source ports below 1024.
    let needed = CapabilitySet::BPF
        | CapabilitySet::NET_ADMIN
        | CapabilitySet::NET_BIND_SERVICE
        | CapabilitySet::NET_RAW
        | CapabilitySet::PERFMON;
    privileges::drop_all_but(needed).map_err(|errno| DaemonError::Privileges(errno.into()))
}

/// The daemon.
pub struct Daemon {
    engine: Engine,
    sources: Sources,
    presence: config::PresenceSources,
    mode: Mode,
    began: Instant,
    control: Requesters,
    metrics: Option<Scrapes>,
    /// When draining ends even if packets are left.
    drained_by: Option<Instant>,
    /// The time that split connections have to end after a request to stop.
    split_drain: Duration,
    /// Set at a request to stop: when the daemon ends even if split connections are left.
    stops_by: Option<Instant>,
    _ownership: Ownership,
    /// Dropped last: a later signal ends the process at once.
    stop: SignalInput,
}

/// The purpose of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token {
    /// Stop.
    Stop,
    /// Packets were diverted.
    Diverted,
    /// The programs report about mobile hosts and connections.
    Heard,
    /// The kernel reports about the interface.
    Watch,
    /// Echo requests were answered.
    Echo,
    /// Reports from outside the path.
    Sources,
    /// Another gateway has sent a datagram.
    Handoff,
    /// The store of the cluster has replied.
    Cluster,
    /// The control socket and its sessions.
    Control,
    /// The endpoint for Prometheus and its sessions.
    Metrics,
}

impl Daemon {
    /// Opens everything.
    ///
    /// # Errors
    /// Something essential is missing.
    pub fn open(setup: Setup, stop: SignalInput) -> Result<Self, DaemonError> {
        // Mobile hosts with buffered packets have a file each, up to a bound.
        open_files::raise_limit();
        let (listener, ownership) = listen(&setup.socket)?;
        let now = clock::now();
        let engine = Engine::open(now, &setup.interface, &setup.config)?;
        let sources = Sources::open(now, engine.mobile_facing(), &setup.config)?;
        Ok(Self {
            engine,
            sources,
            presence: setup.config.presence.clone(),
            mode: setup.config.mobiles.mode,
            began: now,
            stop,
            control: requesters(listener),
            metrics: setup.config.metrics.listen_if_possible(),
            drained_by: None,
            split_drain: setup.config.split.drain.0,
            stops_by: None,
            _ownership: ownership,
        })
    }

    /// Runs until it is stopped.
    ///
    /// # Errors
    /// Something essential has failed.
    pub fn run(mut self) -> Result<(), DaemonError> {
        tracing::info!(interface = self.engine.interface(), mode = %self.mode, "the gateway is running");
        let result = poll_loop::run(&mut self);
        self.engine.flush(clock::now());
        self.engine.finish_handoffs();
        self.engine.unpin();
        let waiting_bytes = self.engine.diverter().waiting_bytes();
        tracing::info!(waiting_bytes, "the gateway is stopping");
        result
    }

    fn status(&self, now: Instant) -> Status {
        let running_s = now.saturating_since(self.began).as_secs_f64();
        Status::of(now, &self.engine, self.sources.counters(), self.mode, running_s, self.drained_by.is_some())
    }

    fn serve_control(&mut self, now: Instant) {
        for (caller, question) in self.control.handle_ready(now) {
            let answer = match control_line::parse(&question) {
                Ok(request) => self.answer(now, &request),
                Err(error) => Response::from(error),
            };
            self.control.answer(now, caller, &control_line::write(&answer), false);
        }
    }

    fn answer(&mut self, now: Instant, request: &Request) -> Response {
        match *request {
            Request::Status => Response::Status(Box::new(self.status(now))),
            Request::Mobiles => {
                let mobiles = self.engine.mobiles().into_iter();
                let line = |(address, (seen, status))| {
                    MobileLine::of(now, &self.engine, address, seen, Option::as_ref(&status))
                };
                Response::Mobiles { mobiles: mobiles.map(line).collect() }
            }
            Request::Mobile { address, presence } => match self.command(now, address, presence.to_presence()) {
                Ok(()) => Response::Noted,
                Err(message) => Response::Refused { message },
            },
            Request::Handoff { address } => match self.engine.claim(now, address, now) {
                Ok(()) => Response::Noted,
                Err(message) => Response::Refused { message },
            },
            Request::Drain { within } => {
                self.engine.drain(now);
                self.engine.stop_splitting(now);
                self.drained_by = Some(now + within.0);
                let waiting = self.status(now).waiting;
                tracing::info!(waiting, %within, "draining");
                Response::Draining { waiting }
            }
        }
    }

    fn handle_input(&mut self, now: Instant, token: Token) -> Result<ControlFlow<()>, DaemonError> {
        match token {
            Token::Stop => return Ok(self.handle_stop(now)),
            Token::Diverted => drop(self.engine.handle_diverted(now)?),
            Token::Heard => self.engine.handle_heard(now),
            Token::Watch => {
                if self.engine.handle_watch(now)? {
                    self.sources.follow(now, self.engine.mobile_facing(), &self.presence);
                }
            }
            Token::Echo => self.engine.handle_echo(now),
            Token::Sources => self.hear_sources(now),
            Token::Handoff => self.engine.handle_handoff(now),
            Token::Cluster => self.engine.handle_cluster(now),
            Token::Control => self.serve_control(now),
            Token::Metrics => self.serve_metrics(now),
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A first request to stop: split connections have some time to end. A second request ends them at once.
    fn handle_stop(&mut self, now: Instant) -> ControlFlow<()> {
        if self.stops_by.is_some() {
            return ControlFlow::Break(());
        }
        self.stop.clear();
        let open = self.engine.stop_splitting(now);
        if open == 0 || self.split_drain == Duration::ZERO {
            return ControlFlow::Break(());
        }
        tracing::info!(open, "waiting for split connections to end");
        self.stops_by = Some(now + self.split_drain);
        // systemd would kill the process after TimeoutStopSec.
        let micros = (self.split_drain + STOP_ROOM).as_micros();
        Notifier::from_environment().notify(&format!("EXTEND_TIMEOUT_USEC={micros}"));
        ControlFlow::Continue(())
    }

    /// A user, or a script, reports about a mobile host.
    fn command(&mut self, now: Instant, mobile: IpAddr, presence: Presence) -> Result<(), String> {
        if !self.engine.serves(mobile) {
            return Err(format!("{mobile} is no mobile host behind {}: [mobiles] networks", self.engine.interface()));
        }
        tracing::info!(%mobile, %presence, "reported by command");
        match self.engine.report(now, mobile, Source::Command, presence) {
            Ok(true) => Ok(()),
            Ok(false) => Err("no room for another mobile host: [buffer] most_mobiles".to_owned()),
            Err(error) => Err(with_causes(&error)),
        }
    }

    /// Sources of reports are readable.
    fn hear_sources(&mut self, now: Instant) {
        let engine = &self.engine;
        let reports = self.sources.handle_ready(now, &|address| engine.serves(address));
        self.pass_reports(now, reports);
        for (caller, mobile, presence) in self.sources.requests(now) {
            let answer = match self.command(now, mobile, presence) {
                Ok(()) => HookAnswer::Noted,
                Err(why) => HookAnswer::Refused(why),
            };
            self.sources.answer(now, caller, &answer);
        }
    }

    /// Without room for another mobile host a report is logged and ignored.
    fn pass_reports(&mut self, now: Instant, reports: Vec<SourceReport>) {
        let mut by_mac = ByMac::default();
        for one in reports {
            let noted = self.engine.handle_source_report(now, &one, &mut by_mac);
            if let Err(error) = &noted {
                tracing::debug!(error = with_causes(error), ?one, "ignored a report");
            }
            self.sources.handle_noted(now, &one, noted.unwrap_or(false));
        }
    }

    fn serve_metrics(&mut self, now: Instant) {
        let Some(mut metrics) = self.metrics.take() else { return };
        metrics.handle_ready(now, || metrics::encode_status(&self.status(now)));
        self.metrics = Some(metrics);
    }
}

impl PollLoop for Daemon {
    type Token = Token;
    type Error = DaemonError;

    fn interests(&self) -> Interests<'_, Token> {
        let [diverted, heard, connections, watch] = self.engine.descriptors();
        let mut interests = Interests::new();
        interests.add_readable(Token::Stop, [self.stop.descriptor()]);
        // The carrier before packets, so that packets diverted by its loss are recognized.
        interests.add_readable(Token::Watch, [watch]);
        interests.add_readable(Token::Diverted, [diverted]);
        interests.add_readable(Token::Heard, [heard, connections]);
        interests.add_readable(Token::Echo, self.engine.echo_descriptors());
        for (descriptor, flags) in self.sources.descriptors() {
            interests.add(Token::Sources, descriptor, flags);
        }
        interests.add_readable(Token::Handoff, self.engine.handoff_descriptor());
        interests.add_readable(Token::Cluster, self.engine.cluster_descriptor());
        interests.add_sessions(Token::Control, &self.control);
        if let Some(metrics) = &self.metrics {
            interests.add_sessions(Token::Metrics, metrics.sessions());
        }
        interests.add_deadlines(self.sources.poll_timeout().into_iter().chain(self.drained_by).chain(self.stops_by));
        interests.add_deadlines([self.engine.poll_timeout()]);
        interests
    }

    /// Requests are answered last, so that an answer describes the state in effect: packets for absent hosts are diverted by then.
    fn handle_ready(&mut self, now: Instant, ready: Vec<Token>) -> Result<ControlFlow<()>, DaemonError> {
        let (asks, others): (Vec<Token>, Vec<Token>) =
            ready.into_iter().partition(|token| matches!(token, Token::Control | Token::Metrics));
        for token in others {
            if self.handle_input(now, token)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let due = self.sources.handle_timeout(now);
        self.pass_reports(now, due);
        self.engine.advance(now)?;
        if !asks.is_empty() {
            for token in asks {
                // It cannot end the daemon.
                let _ = self.handle_input(now, token)?;
            }
            self.engine.advance(now)?;
        }
        self.control.hang_up(now);
        if let Some(metrics) = &mut self.metrics {
            metrics.handle_timeout(now);
        }
        let is_split = self.engine.split_connections() > 0;
        let is_empty = self.engine.diverter().waiting_bytes() == 0 && !is_split;
        let is_drained = self.drained_by.is_some_and(|by| is_empty || now >= by);
        let has_stopped = self.stops_by.is_some_and(|by| !is_split || now >= by);
        Ok(if is_drained || has_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("engine", &self.engine).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The capabilities in a line of `/proc/thread-self/status`, such as `CapEff:`.
    fn capabilities(name: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let value = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(value.trim(), 16).unwrap()
    }

    // Claim: The gateway's process keeps CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON and CAP_BPF, and loses
    // all other capabilities, effective and permitted; those that it starts inherit none.
    #[test]
    fn other_capabilities_are_dropped() {
        // Their numbers in linux/capability.h.
        let kept = [10, 12, 13, 38, 39].into_iter().fold(0, |kept, number| kept | 1_u64 << number);
        // This thread alone drops its capabilities: other tests keep theirs.
        let look = || {
            let before = capabilities("CapPrm:");
            give_up_privileges().unwrap();
            (before, ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"].map(capabilities), capabilities("NoNewPrivs:"))
        };
        let (before, [permitted, effective, inheritable, ambient], no_new) = std::thread::spawn(look).join().unwrap();
        assert_eq!(permitted, before & kept);
        assert_eq!((effective & !kept, ambient, no_new), (0, 0, 1));
        // The test proves nothing if there was nothing to drop.
        assert!(inheritable == 0 || before & !kept == 0, "{inheritable:x}");
        if before & !kept == 0 {
            holdover_testbed::harness::skip("this process has no other capabilities");
        }
    }
}
