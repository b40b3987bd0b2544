//! Agents on external hosts: programs that run on a host beside its kernel, as on a real one, and get link events from the world instead of
//! netlink.
//!
//! The agent's thread is inside the host's namespace. Packets pass the host's chain unchanged: the agent acts on them by means of the
//! host's kernel.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;

use holdover_base::Instant;
use holdover_mobility::{Chain, Direction, LinkEvent, SegmentFilter, Verdict};
use holdover_sim::NodeId;
use holdover_wire::Packet;

use super::{HostError, RealError, RealWorld};
use crate::NamespaceError;
use crate::shell::Waker;

/// The link events of a host for its agent. Its descriptor is readable when there is an event, or when the world has ended.
#[derive(Debug)]
pub struct LinkEvents {
    events: Receiver<LinkEvent>,
    waker: Waker,
}

/// The result of a query for events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// An event of the link, just now.
    Event(LinkEvent),
    /// No event now.
    Nothing,
    /// No further events: the world has ended.
    End,
}

/// A running agent. It ends when its world is dropped; then wait for it with [`AgentThread::join`].
#[derive(Debug)]
pub struct AgentThread<T> {
    handle: JoinHandle<Result<T, NamespaceError>>,
}

/// Passes all packets, and records link events.
struct Note(Sender<LinkEvent>);

/// The world's side of an agent's events, sent after the host's interfaces have changed.
#[derive(Debug)]
pub(super) struct AgentPort {
    noted: Receiver<LinkEvent>,
    /// `None` only while it is dropped.
    events: Option<Sender<LinkEvent>>,
    waker: Waker,
}

impl RealWorld {
    /// Starts an agent on a host that has a kernel, before the run: `body` runs on a thread inside the host's namespace, whose interface is
    /// [`RealWorld::interface`]. It must return soon after [`Heard::End`]. The host's mechanisms in the world's description are not used,
    /// but its foresight is. `None` if there is no such host.
    ///
    /// # Errors
    ///
    /// [`RealError::Host`] if no thread can be started in the namespace.
    pub fn start_agent<T, F>(&mut self, node: NodeId, body: F) -> Option<Result<AgentThread<T>, RealError>>
    where
        T: Send + 'static,
        F: FnOnce(LinkEvents) -> T + Send + 'static,
    {
        let namespace = self.namespace(node)?.clone();
        let waker = match Waker::new() {
            Ok(waker) => waker,
            Err(source) => return Some(Err(RealError::Call { call: "eventfd", source })),
        };
        let (sender, events) = mpsc::channel();
        let (note, noted) = mpsc::channel();
        let mut chain = Chain::new();
        chain.push(Box::new(Note(note)));
        if !self.world.edit_chain(node, |own| *own = chain) {
            return None;
        }
        self.agents.push(AgentPort { noted, events: Some(sender), waker: waker.clone() });
        let handle = namespace.spawn_inside(move || body(LinkEvents { events, waker }));
        let failed = |source: NamespaceError| self.failed(node, HostError::from(source));
        Some(handle.map(|handle| AgentThread { handle }).map_err(failed))
    }
}

impl LinkEvents {
    /// The next event. Call it until [`Heard::Nothing`] before waiting for the descriptor.
    pub fn hear(&self) -> Heard {
        match self.events.try_recv() {
            Ok(event) => return Heard::Event(event),
            Err(TryRecvError::Disconnected) => return Heard::End,
            Err(TryRecvError::Empty) => {}
        }
        // Later events wake the thread again; earlier ones are read by the second `try_recv`.
        self.waker.rest();
        match self.events.try_recv() {
            Ok(event) => Heard::Event(event),
            Err(TryRecvError::Disconnected) => Heard::End,
            Err(TryRecvError::Empty) => Heard::Nothing,
        }
    }
}

impl AsFd for LinkEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl<T> AgentThread<T> {
    /// The result of the agent, if its thread entered the namespace. Its world must have ended. A panic of the agent continues here.
    pub fn join(self) -> Result<T, NamespaceError> {
        self.handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl SegmentFilter for Note {
    fn handle_packet(&mut self, _now: Instant, _direction: Direction, _packet: &mut Packet) -> Verdict {
        Verdict::Pass
    }

    fn handle_link(&mut self, _now: Instant, event: LinkEvent) {
        // The receiver ends with the world, as this end does.
        let _ = self.0.send(event);
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Note")
    }
}

impl AgentPort {
    /// Sends the recorded events to the agent.
    pub(super) fn tell(&self) {
        for event in self.noted.try_iter() {
            // An agent that has ended receives no more events.
            let _ = self.events.as_ref().map(|events| events.send(event));
            self.waker.wake();
        }
    }
}

impl Drop for AgentPort {
    /// The channel closes first, so that the agent finds it closed when it wakes.
    fn drop(&mut self) {
        self.events = None;
        self.waker.wake();
    }
}
