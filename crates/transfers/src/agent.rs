//! How the agent gets into the path of a phone's packets.

use std::sync::mpsc;

use holdover_agent::engine::{Engine, EngineError, EngineOptions};
use holdover_host::clock;
use holdover_mobility::Mechanisms;
use holdover_sim::{NodeId, Observer, World, WorldConfig};
use holdover_testbed::NamespaceError;
use holdover_testbed::world::{AgentThread, Heard, LinkEvents, RealError, RealOptions, RealOutcome, RealWorld};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::Sender;

/// The place of the agent: eBPF at the interface, or a filter before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentPath {
    /// At the phone's interface, as eBPF: as on a real phone.
    Ebpf,
    /// Between the phone's interface and its link, as a filter of packets.
    Filter,
}

/// A world with agents could not be made, or has ceased to work.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The world.
    #[error(transparent)]
    Real(#[from] RealError),
    /// An agent could not be put on a host, or the kernel has refused something to it.
    #[error("the agent on host {host}")]
    Agent {
        /// The host's name.
        host: String,
        /// The error.
        source: Box<EngineError>,
    },
    /// The thread of an agent got nowhere.
    #[error("the agent on host {host}")]
    Thread {
        /// The host's name.
        host: String,
        /// Why it ended.
        source: NamespaceError,
    },
}

/// A world on this machine's kernel, with agents on some of its phones.
#[derive(Debug)]
pub struct KernelRun {
    real: RealWorld,
    agents: Agents,
}

/// Agents on hosts of a world, each on a thread of its own, by the names of the hosts.
#[derive(Debug, Default)]
pub struct Agents(Vec<(String, AgentThread<Option<EngineError>>)>);

impl AgentPath {
    /// The best that this kernel and this user allow, and why not a better one.
    pub fn best() -> (Self, Option<EngineError>) {
        match Engine::probe() {
            Ok(()) => (Self::Ebpf, None),
            Err(why) => (Self::Filter, Some(why)),
        }
    }

    /// The description of a host with the agent.
    pub fn mechanisms(self) -> Mechanisms {
        Mechanisms { wake: self == Self::Filter, ..Mechanisms::default() }
    }

    /// Where the agent is, for pages and messages.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Ebpf => "eBPF at the phone's interface, as on a real phone",
            Self::Filter => "a filter of packets between the phone's interface and its link",
        }
    }
}

impl KernelRun {
    /// Makes the world real, and puts the agents on their hosts.
    ///
    /// # Errors
    /// The world could not be made, or an agent not be started.
    pub fn new(config: WorldConfig, sender: Sender, agent: AgentPath) -> Result<Self, KernelError> {
        let phones: Vec<NodeId> = config.mechanisms.iter().map(|host| host.node).collect();
        let options = RealOptions { congestion: Some(sender.congestion()), ..RealOptions::default() };
        let mut run = Self { real: RealWorld::new(config, &options)?, agents: Agents::default() };
        if agent == AgentPath::Ebpf {
            phones.into_iter().try_for_each(|phone| run.agents.start(&mut run.real, phone))?;
        }
        Ok(run)
    }

    /// See [`RealWorld::run`].
    ///
    /// # Errors
    /// The world's.
    pub fn run<O: Observer>(
        &mut self,
        observer: &mut O,
        watch: impl FnMut(&World) -> bool,
    ) -> Result<RealOutcome, KernelError> {
        Ok(self.real.run(observer, watch)?)
    }

    /// The world.
    pub fn world(&self) -> &World {
        self.real.world()
    }

    /// Ends the world and its agents.
    ///
    /// # Errors
    /// An agent has failed.
    pub fn finish(self) -> Result<(), KernelError> {
        drop(self.real);
        self.agents.finish()
    }
}

impl Agents {
    /// Puts one on a host that has a kernel, before the world runs. [`Self::finish`] returns the reason if it fails.
    ///
    /// # Errors
    /// Its thread could not be started.
    pub fn start(&mut self, real: &mut RealWorld, phone: NodeId) -> Result<(), KernelError> {
        let host = real.world().config().nodes[phone.0 as usize].name.clone();
        let (attached, is_attached) = mpsc::channel();
        let Some(interface) = real.interface(phone) else { return Ok(()) };
        let body = move |events: LinkEvents| match Engine::attach(interface, &options()) {
            Ok(engine) => {
                // The starting thread waits for this message.
                let _ = attached.send(());
                serve(engine, &events)
            }
            Err(error) => Some(error),
        };
        let Some(agent) = real.start_agent(phone, body) else { return Ok(()) };
        self.0.push((host, agent?));
        // Nothing comes if it has failed.
        let _ = is_attached.recv();
        Ok(())
    }

    /// Waits for them to end; their world is gone.
    ///
    /// # Errors
    /// One of them has failed.
    pub fn finish(self) -> Result<(), KernelError> {
        for (host, agent) in self.0 {
            match agent.join() {
                Ok(None) => {}
                Ok(Some(source)) => return Err(KernelError::Agent { host, source: Box::new(source) }),
                Err(source) => return Err(KernelError::Thread { host, source }),
            }
        }
        Ok(())
    }
}

/// A handful of connections.
fn options() -> EngineOptions {
    EngineOptions { most_connections: 1024, ..EngineOptions::default() }
}

/// Serves until the world is gone. Returns what the kernel has refused, if it has.
fn serve(mut engine: Engine, events: &LinkEvents) -> Option<EngineError> {
    loop {
        loop {
            match events.hear() {
                Heard::Event(event) => engine.handle_link(clock::now(), event),
                Heard::Nothing => break,
                Heard::End => return None,
            }
        }
        engine.handle_ready(clock::now());
        let now = clock::now();
        if engine.poll_timeout().is_some_and(|at| at <= now) {
            engine.handle_timeout(now);
        }
        while engine.poll_action().is_some() {}
        if let Some(error) = engine.poll_error() {
            return Some(error);
        }
        let span = engine.poll_timeout().map(|at| at.saturating_since(clock::now()).as_nanos());
        let timeout = span
            .map(|nanos| Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ });
        let mut fds = [PollFd::new(events, PollFlags::IN), PollFd::new(&engine, PollFlags::IN)];
        // After an interruption, or any other error, the loop goes through one more turn.
        let _ = poll(&mut fds, timeout.as_ref());
    }
}
