//! The daemon: one thread, one poll loop around the engine.
//!
//! It ends on SIGTERM and SIGINT, or when it has drained, and the programs go with it. When it is killed, pinned programs go on until the
//! next process takes them over (with clsact they let everything pass). Packets that wait stay in their files for it in any case.

use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use holdover_base::{Duration, Instant};
use holdover_filter::Presence;
use holdover_gateway::divert::Source;
use holdover_host::clock;
use holdover_host::control_socket::{ControlSocketError, Ownership, listen};
use holdover_host::log::with_causes;
use holdover_host::notify::Notifier;
use holdover_host::open_files;
use holdover_host::privileges::{self, CapabilitySet};
use holdover_host::scrape::{self, Scrapes};
use holdover_host::session::{Bounds, Sessions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::config::{Config, Mode};
use crate::control::{LONGEST_REQUEST, Request, Response};
use crate::engine::{ByMac, Engine, EngineError};
use crate::metrics;
use crate::path::is_bpf_fs;
use crate::presence::{HookAnswer, SecretError, Sources, Told};
use crate::status::{MobileLine, Status};

/// With what the daemon starts.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// What is in force.
    pub config: Config,
    /// The mobile-facing interface.
    pub interface: String,
    /// The control socket.
    pub socket: PathBuf,
}

/// The daemon cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The engine cannot work.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A secret of the configuration, or the socket that it is for, cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The control socket cannot be had.
    #[error(transparent)]
    Control(#[from] ControlSocketError),
    /// Signals cannot be waited for.
    #[error("signals of the system: {0}")]
    Signals(#[source] io::Error),
    /// Waiting failed.
    #[error("waiting for packets: {0}")]
    Wait(#[source] io::Error),
    /// The privileges that are not needed could not be given up.
    #[error("giving up privileges: {0}")]
    Privileges(#[source] io::Error),
}

/// Callers of the control socket.
const CONTROL: Bounds = Bounds {
    mark: b"\n",
    question_bytes: LONGEST_REQUEST,
    callers: 16,
    time: Duration::from_secs(5),
    backlog_bytes: 1 << 20,
};

/// Becomes readable when SIGTERM or SIGINT comes.
///
/// # Errors
/// [`DaemonError::Signals`].
pub fn stop_signal() -> Result<UnixStream, DaemonError> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let register = || {
        let (reader, writer) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(reader)
    };
    register().map_err(DaemonError::Signals)
}

/// Mounts a BPF file system where the configuration wants programs pinned and there is none. To be called before privileges are given up.
/// Without one the programs go with the process, which is told when they are loaded.
pub fn mount_pins(config: &Config) {
    let directory = &config.programs.directory;
    // Anywhere else a file system could be mounted over something.
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
        tracing::warn!(directory = %directory.display(), %error, "no BPF file system: programs go with the process");
    }
}

/// Gives up every privilege that the daemon does not need, for good. To be called before the first thread is started.
///
/// # Errors
/// [`DaemonError::Privileges`].
pub fn give_up_privileges() -> Result<(), DaemonError> {
    let needed = CapabilitySet::BPF | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::PERFMON;
    privileges::drop_all_but(needed).map_err(|errno| DaemonError::Privileges(errno.into()))
}

/// The daemon.
pub struct Daemon {
    engine: Engine,
    sources: Sources,
    mode: Mode,
    began: Instant,
    stop: UnixStream,
    control: Sessions<UnixListener>,
    metrics: Option<Scrapes>,
    notifier: Notifier,
    watchdog_due: Option<Instant>,
    /// When it ends although something waits.
    drained_by: Option<Instant>,
    _ownership: Ownership,
}

/// What has something to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    Stop,
    Diverted,
    Heard,
    Watch,
    Sources,
    Handoff,
    Control,
    Metrics,
}

impl Daemon {
    /// Opens everything.
    ///
    /// # Errors
    /// Something that it cannot do without is missing.
    pub fn open(setup: Setup, stop: UnixStream) -> Result<Self, DaemonError> {
        // Mobile hosts for which packets wait have a file each, up to a bound.
        open_files::raise_limit();
        let (listener, ownership) = listen(&setup.socket)?;
        let now = clock::now();
        let notifier = Notifier::from_environment();
        let engine = Engine::open(now, &setup.interface, &setup.config)?;
        let sources = Sources::open(now, engine.mobile_facing(), &setup.config)?;
        Ok(Self {
            engine,
            sources,
            mode: setup.config.mobiles.mode,
            began: now,
            stop,
            control: Sessions::new(listener, CONTROL),
            metrics: setup
                .config
                .metrics
                .enabled
                .then(|| scrape::listen_if_possible(setup.config.metrics.listen))
                .flatten(),
            watchdog_due: notifier.watchdog().map(|every| now + every),
            notifier,
            drained_by: None,
            _ownership: ownership,
        })
    }

    /// Goes on until it is told to stop.
    ///
    /// # Errors
    /// Something that it cannot do without has failed.
    pub fn run(mut self) -> Result<(), DaemonError> {
        self.notifier.tell("READY=1");
        tracing::info!(interface = self.engine.interface(), mode = ?self.mode, "the gateway is running");
        let result = loop {
            match self.step() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.notifier.tell("STOPPING=1");
        self.engine.flush(clock::now());
        self.engine.unpin();
        let waiting_bytes = self.engine.diverter().waiting_bytes();
        tracing::info!(waiting_bytes, "the gateway stops");
        result
    }

    /// Waits for news and acts on it; whether to go on.
    fn step(&mut self) -> Result<bool, DaemonError> {
        let ready = self.wait()?;
        let now = clock::now();
        for token in ready {
            match token {
                Token::Stop => return Ok(false),
                Token::Diverted => drop(self.engine.handle_diverted(now)?),
                Token::Heard => self.engine.handle_heard(now),
                Token::Watch => self.engine.handle_watch(now)?,
                Token::Sources => self.hear_sources(now),
                Token::Handoff => self.engine.handle_handoff(now),
                Token::Control => self.serve_control(now),
                Token::Metrics => self.serve_metrics(now),
            }
        }
        let due = self.sources.handle_timeout(now);
        self.tell_engine(now, due);
        self.engine.advance(now)?;
        self.control.hang_up(now);
        if let Some(metrics) = &mut self.metrics {
            metrics.hang_up(now);
        }
        if let Some(every) = self.notifier.watchdog()
            && self.watchdog_due.is_some_and(|due| due <= now)
        {
            self.notifier.tell("WATCHDOG=1");
            self.watchdog_due = Some(now + every);
        }
        let is_drained = self.drained_by.is_some_and(|by| self.engine.diverter().waiting_bytes() == 0 || now >= by);
        Ok(!is_drained)
    }

    /// Sleeps until something has something to say, or is due.
    fn wait(&self) -> Result<Vec<Token>, DaemonError> {
        let [diverted, heard, connections, watch] = self.engine.descriptors();
        let mut waited_for = vec![(Token::Stop, PollFd::new(&self.stop, PollFlags::IN))];
        // The carrier before packets, so that what was diverted by its loss is known to be.
        let descriptors =
            [(Token::Watch, watch), (Token::Diverted, diverted), (Token::Heard, heard), (Token::Heard, connections)];
        for (token, descriptor) in descriptors {
            waited_for.push((token, PollFd::from_borrowed_fd(descriptor, PollFlags::IN)));
        }
        waited_for.extend(self.sources.descriptors().map(|descriptor| (Token::Sources, descriptor)));
        let handoff = self.engine.handoff_descriptor().into_iter();
        waited_for.extend(handoff.map(|fd| (Token::Handoff, PollFd::from_borrowed_fd(fd, PollFlags::IN))));
        let add = |token: Token| move |(descriptor, flags)| (token, PollFd::from_borrowed_fd(descriptor, flags));
        waited_for.extend(self.control.descriptors().map(add(Token::Control)));
        waited_for.extend(self.metrics.iter().flat_map(Sessions::descriptors).map(add(Token::Metrics)));
        let (tokens, mut descriptors): (Vec<Token>, Vec<PollFd<'_>>) = waited_for.into_iter().unzip();
        match poll(&mut descriptors, Some(&self.patience())) {
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
    fn patience(&self) -> Timespec {
        let sessions =
            self.control.poll_timeout().into_iter().chain(self.metrics.as_ref().and_then(Sessions::poll_timeout));
        let sessions = sessions.chain(self.sources.poll_timeout());
        let deadlines = sessions.chain(self.watchdog_due).chain(self.drained_by);
        let at = deadlines.chain([self.engine.poll_timeout()]).min().unwrap_or(Instant::ZERO);
        let wait = at.saturating_since(clock::now());
        Timespec { tv_sec: i64::try_from(wait.as_secs()).unwrap_or(0), tv_nsec: (wait.as_nanos() % 1_000_000_000) as _ }
    }

    fn status(&self, now: Instant) -> Status {
        let running_s = now.saturating_since(self.began).as_secs_f64();
        Status::of(&self.engine, self.sources.counters(), self.mode, running_s, self.drained_by.is_some())
    }

    fn serve_control(&mut self, now: Instant) {
        for (caller, question) in self.control.handle_ready(now) {
            let answer = match Request::parse(&question) {
                Ok(request) => self.answer(now, &request),
                Err(message) => Response::Refused { message },
            };
            self.control.answer(now, caller, &answer.to_line(), false);
        }
    }

    fn answer(&mut self, now: Instant, request: &Request) -> Response {
        match *request {
            Request::Status => Response::Status(Box::new(self.status(now))),
            Request::Mobiles => {
                let mobiles = self.engine.mobiles().into_iter();
                let line = |(address, (seen, status))| MobileLine::of(now, address, seen, Option::as_ref(&status));
                Response::Mobiles { mobiles: mobiles.map(line).collect() }
            }
            Request::Mobile { address, presence } => match self.command(now, address, presence.to_presence()) {
                Ok(()) => Response::Noted,
                Err(message) => Response::Refused { message },
            },
            Request::Handoff { address } => match self.engine.claim(now, address) {
                Ok(()) => Response::Noted,
                Err(message) => Response::Refused { message },
            },
            Request::Drain { within } => {
                self.engine.drain(now);
                self.drained_by = Some(now + within.0);
                let waiting = self.status(now).waiting;
                tracing::info!(waiting, %within, "draining");
                Response::Draining { waiting }
            }
        }
    }

    /// A person, or a script, reports about a mobile host.
    fn command(&mut self, now: Instant, mobile: IpAddr, presence: Presence) -> Result<(), String> {
        if !self.engine.serves(mobile) {
            return Err(format!("{mobile} is no mobile host behind {}: [mobiles] networks", self.engine.interface()));
        }
        tracing::info!(%mobile, %presence, "reported by command");
        match self.engine.report(now, mobile, Source::Command, presence) {
            Ok(true) => Ok(()),
            Ok(false) => Err("as many mobile hosts are known as there is room for: [buffer] most_mobiles".to_owned()),
            Err(error) => Err(with_causes(&error)),
        }
    }

    /// Sources of reports are readable.
    fn hear_sources(&mut self, now: Instant) {
        let engine = &self.engine;
        let told = self.sources.handle_ready(now, &|address| engine.serves(address));
        self.tell_engine(now, told);
        for (caller, mobile, presence) in self.sources.requests(now) {
            let answer = match self.command(now, mobile, presence) {
                Ok(()) => HookAnswer::Noted,
                Err(why) => HookAnswer::Refused(why),
            };
            self.sources.answer(now, caller, &answer);
        }
    }

    /// What cannot be noted, as there is no room for another mobile host, is told by the log, and changes nothing else.
    fn tell_engine(&mut self, now: Instant, told: Vec<Told>) {
        let mut by_mac = ByMac::default();
        for one in told {
            let noted = self.engine.handle_told(now, one, &mut by_mac);
            if let Err(error) = &noted {
                tracing::debug!(error = with_causes(error), ?one, "a report is not noted");
            }
            self.sources.handle_noted(now, &one, noted.unwrap_or(false));
        }
    }

    fn serve_metrics(&mut self, now: Instant) {
        let status = self.status(now);
        let Some(sessions) = &mut self.metrics else { return };
        for (caller, request) in sessions.handle_ready(now) {
            let answer = scrape::respond(&request, || metrics::encode_status(&status));
            sessions.answer(now, caller, &answer, false);
        }
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("engine", &self.engine).finish_non_exhaustive()
    }
}
