//! How the agent gets into the path of a phone's packets.

use std::os::fd::AsFd as _;
use std::sync::mpsc;

use holdover_agent::clock;
use holdover_agent::engine::{Counters, Engine, EngineError, EngineOptions};
use holdover_base::Duration;
use holdover_mobility::Mechanisms;
use holdover_sim::NodeId;
use holdover_testbed::world::{AgentThread, Heard, INTERFACE, LinkEvents, RealError, RealWorld};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

/// Where the agent stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AgentPath {
    /// On the phone's interface, as eBPF: as on a real phone.
    Ebpf,
    /// Between the phone's interface and its link, as a filter of packets.
    Filter,
}

/// The agent of a phone, at work on a thread of its own.
pub(crate) type Agent = AgentThread<Counters>;

/// The agent could not be put on a phone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error(transparent)]
    World(#[from] RealError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the agent's thread has ended")]
    Gone,
}

impl AgentPath {
    /// The best that this kernel and this user allow, and why not a better one.
    pub(crate) fn best() -> (Self, Option<EngineError>) {
        match Engine::probe() {
            Ok(()) => (Self::Ebpf, None),
            Err(error) => (Self::Filter, Some(error)),
        }
    }

    /// What the description of a world says of a host with the agent.
    pub(super) fn mechanisms(self) -> Mechanisms {
        Mechanisms { wake: self == Self::Filter, ..Mechanisms::default() }
    }

    /// As what it stands there.
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::Ebpf => "eBPF on the phone's interface, as on a real phone",
            Self::Filter => "a filter of packets between the phone's interface and its link",
        }
    }

    /// Puts the agent on a host of a world that has not begun to run; `None` if it is in the world's description.
    pub(crate) fn start(self, world: &mut RealWorld, host: NodeId) -> Result<Option<Agent>, AgentError> {
        if self == Self::Filter {
            return Ok(None);
        }
        let (sender, started) = mpsc::channel();
        let thread = world.start_agent(host, move |events| {
            match Engine::attach(INTERFACE, &EngineOptions::default()) {
                Ok(mut engine) => {
                    // Whoever has started this thread waits for it.
                    let _ = sender.send(Ok(()));
                    attend(&mut engine, &events);
                    engine.counters()
                }
                Err(error) => {
                    let _ = sender.send(Err(error));
                    Counters::default()
                }
            }
        });
        let thread = thread.ok_or(AgentError::Gone)??;
        started.recv().map_err(|_| AgentError::Gone)??;
        Ok(Some(thread))
    }
}

/// Runs an engine until its world is gone.
fn attend(engine: &mut Engine, events: &LinkEvents) {
    loop {
        loop {
            match events.hear() {
                Heard::Event(event) => engine.handle_link(clock::now(), event),
                Heard::Nothing => break,
                Heard::End => return,
            }
        }
        engine.handle_ready(clock::now());
        if engine.poll_timeout().is_some_and(|at| at <= clock::now()) {
            engine.handle_timeout(clock::now());
        }
        let wait = engine.poll_timeout().map_or(Duration::from_secs(1), |at| at.saturating_since(clock::now()));
        let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: (wait.as_nanos() % 1_000_000_000) as i64 };
        let mut fds = [PollFd::new(events, PollFlags::IN), PollFd::from_borrowed_fd(engine.as_fd(), PollFlags::IN)];
        // A signal is the only thing that can make this fail.
        let _ = poll(&mut fds, Some(&wait));
    }
}
