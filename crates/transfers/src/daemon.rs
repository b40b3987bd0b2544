//! The agent's whole daemon on a phone, in the phone's network namespace, with the notifications of the phone's kernel.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use holdover_agent::config::{Config, Time};
use holdover_agent::control::{self, Client, ClientError, EventKind, Request, SignalRequest};
use holdover_agent::daemon::{Daemon, DaemonError, Orders, Setup};
use holdover_agent::engine::{Engine, EngineError, EngineOptions};
use holdover_agent::path_engine::Attach;
use holdover_agent::status::Status;
use holdover_host::poll_loop::SignalInput;
use holdover_mobility::LinkEvent;
use holdover_mobility::wake::WakeConfig;
use holdover_sim::NodeId;
use holdover_testbed::NamespaceError;
use holdover_testbed::world::{AgentThread, Heard, LinkEvents, RealError, RealWorld};
use rustix::event::{PollFd, PollFlags, poll};

/// A daemon at work. It ends with its world.
pub struct Agent {
    thread: AgentThread<Result<(), DaemonFailed>>,
    directory: Directory,
}

/// The daemon could not be started, or has failed.
#[derive(Debug, thiserror::Error)]
pub enum DaemonFailed {
    /// The world.
    #[error(transparent)]
    Real(#[from] RealError),
    /// The daemon itself.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The thread that it runs on.
    #[error("its thread")]
    Thread(#[from] NamespaceError),
    /// Its control socket, or what stops it, could not be made.
    #[error("its control socket and what stops it")]
    Plumbing(#[from] io::Error),
    /// Its control socket.
    #[error("it does not answer")]
    Silent(#[from] ClientError),
    /// It runs, and has no engine at the phone's interface.
    #[error("it does not manage {interface}: {why}")]
    Idle {
        /// The phone's interface.
        interface: &'static str,
        /// The daemon's reason.
        why: String,
    },
}

/// Engines with room for a few thousand connections. The default allocates 100 MB for each daemon, while other
/// cells are measured.
struct SmallTable;

/// A directory of this run's own, removed with it.
struct Directory(PathBuf);

impl Agent {
    /// Starts the daemon on `phone`, before the world runs. The world's foresight, if there is any, is signalled to it.
    ///
    /// # Errors
    /// It could not be started, or does not manage the phone's interface.
    pub fn start(real: &mut RealWorld, phone: NodeId) -> Result<Self, DaemonFailed> {
        let directory = Directory::new()?;
        let socket = directory.0.join("agent.sock");
        let interface = real.interface(phone).unwrap_or_default();
        let (opened, is_open) = mpsc::channel();
        let setup = setup(socket.clone());
        let body = move |events: LinkEvents| -> Result<(), DaemonFailed> {
            let (stop, stop_reader) = UnixStream::pair()?;
            let (_reload, reload_reader) = UnixStream::pair()?;
            let orders = Orders {
                stop: SignalInput::from_stream(stop_reader)?,
                reload: SignalInput::from_stream(reload_reader)?,
            };
            let socket = setup.socket.clone();
            let daemon = Daemon::open(setup, SmallTable, orders)?;
            let warner = std::thread::spawn(move || warn(&events, &socket, stop));
            // Its receiver waits for it.
            let _ = opened.send(());
            let ran = daemon.run();
            warner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(ran?)
        };
        let Some(thread) = real.start_agent(phone, body) else {
            return Err(DaemonFailed::Idle { interface, why: "the phone has no kernel".to_owned() });
        };
        let agent = Self { thread: thread?, directory };
        if is_open.recv().is_ok() {
            looks_after(&socket, interface)?;
        }
        Ok(agent)
    }

    /// The daemon's status. Call it before the world ends.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status(&self) -> Result<Status, DaemonFailed> {
        Ok(control::status(&self.directory.0.join("agent.sock"))?)
    }

    /// Waits for its end; its world is gone.
    ///
    /// # Errors
    /// It has failed.
    pub fn finish(self) -> Result<(), DaemonFailed> {
        let ended = self.thread.join()?;
        drop(self.directory);
        ended
    }
}

impl Attach for SmallTable {
    type Engine = Engine;
    type Error = EngineError;

    fn attach(&mut self, interface: &str, config: &WakeConfig) -> Result<Engine, EngineError> {
        Engine::attach(interface, &EngineOptions { wake: *config, most_connections: 4096, ..EngineOptions::default() })
    }

    fn attach_again(&mut self, engine: &mut Engine) -> Result<(), EngineError> {
        engine.attach_again()
    }
}

/// The default configuration, but for what reaches beyond the namespace or has a port: the user timeouts' program at the root
/// of all cgroups, logind, and the metrics.
fn setup(socket: PathBuf) -> Setup {
    let mut config = Config::default();
    config.user_timeouts.enabled = false;
    config.metrics.enabled = false;
    Setup {
        config,
        config_path: None,
        interfaces: Vec::new(),
        socket,
        dry_run: false,
        system_bus: Some("unix:path=/nowhere".to_owned()),
    }
}

/// Asks the daemon whether its engine is attached to `interface`.
fn looks_after(socket: &Path, interface: &'static str) -> Result<(), DaemonFailed> {
    let idle = |why: &str| DaemonFailed::Idle { interface, why: why.to_owned() };
    let status = control::status(socket)?;
    let link = status.links.iter().find(|link| link.interface == interface);
    match link.ok_or_else(|| idle("it is none of its links"))?.problem.as_deref() {
        Some(problem) => Err(idle(problem)),
        None => Ok(()),
    }
}

/// Signals the cuts that the world predicts, until the world is gone; then stops the daemon.
fn warn(events: &LinkEvents, socket: &Path, mut stop: UnixStream) -> Result<(), DaemonFailed> {
    let warned = loop {
        match events.hear() {
            Heard::Event(LinkEvent::Fading { lead }) => {
                let signal = SignalRequest { event: EventKind::Fading, interface: None, lead: lead.map(Time) };
                if let Err(error) = Client::ask(socket, &Request::Signal(signal)).and_then(Client::answer) {
                    break Err(error.into());
                }
            }
            // Everything else it learns from the kernel.
            Heard::Event(_) => {}
            Heard::Nothing => {
                // An interruption is one turn more, and there is no other error.
                let _ = poll(&mut [PollFd::new(events, PollFlags::IN)], None);
            }
            Heard::End => break Ok(()),
        }
    };
    stop.write_all(b"x")?;
    warned
}

impl Directory {
    fn new() -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("holdover-links-{}-{number}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that cannot be removed stays in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
