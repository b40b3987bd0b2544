//! The engine as the daemon sees it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;

use holdover_base::Instant;
use holdover_mobility::silence::{Survey, Traffic};
use holdover_mobility::wake::WakeConfig;
use holdover_mobility::{Action, Connection, WakeOutcome};

use super::interface::Interface;
use super::lock::InterfaceLock;
use super::{Engine, EngineError, EngineOptions};
use crate::link_watch::{Families, LinkChange};
use crate::path_engine::{Attach, Counters, PathConnection, PathEngine, Retry};
use holdover_host::log::with_causes;

/// Attaches engines to interfaces of the calling thread's network namespace that have no other such engine: see
/// [`EngineError::Held`].
#[derive(Clone, Debug)]
pub struct KernelAttach {
    /// The path of this agent's control socket, for other agents.
    pub control_socket: PathBuf,
}

impl Attach for KernelAttach {
    type Engine = Engine;
    type Error = EngineError;

    fn check(&mut self) -> Result<(), EngineError> {
        Engine::probe()
    }

    fn retry(&self, error: &EngineError) -> Retry {
        match error {
            EngineError::Held { .. } => Retry::Soon,
            EngineError::Kind { .. } => Retry::Never,
            _ => Retry::Later,
        }
    }

    fn attach(&mut self, interface: &str, config: &WakeConfig) -> Result<Engine, EngineError> {
        let lock = self.lock(interface)?;
        let mut engine = Engine::attach(interface, &EngineOptions { wake: *config, ..EngineOptions::default() })?;
        engine.lock = Some(lock);
        Ok(engine)
    }

    fn attach_again(&mut self, engine: &mut Engine) -> Result<(), EngineError> {
        // It has a new index, and so another lock.
        engine.lock = None;
        let lock = self.lock(&engine.interface.name)?;
        engine.attach_again()?;
        engine.lock = Some(lock);
        Ok(())
    }
}

impl KernelAttach {
    fn lock(&self, interface: &str) -> Result<InterfaceLock, EngineError> {
        let found = Interface::find(interface)?;
        InterfaceLock::take(interface, found.index, &self.control_socket)
    }
}

impl PathEngine for Engine {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn handle_link(&mut self, now: Instant, change: LinkChange) {
        self.handle_change(now, change);
    }

    fn handle_absent(&mut self, now: Instant, absent: &BTreeSet<IpAddr>) {
        self.handle_absent(now, absent);
    }

    fn handle_ready(&mut self, now: Instant) {
        self.handle_ready(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.poll_action()
    }

    fn poll_outcome(&mut self) -> Option<WakeOutcome> {
        self.poll_outcome()
    }

    fn alternative_at(&self, connection: Connection) -> Option<Instant> {
        self.stack(connection).own_timers.get(&connection).copied()
    }

    fn contradicts_down(&self) -> Families {
        self.stacks.iter().filter(|stack| stack.control.contradicts_down()).map(|stack| stack.family).collect()
    }

    fn poll_trouble(&mut self) -> Option<String> {
        self.poll_error().map(|error| with_causes(&error))
    }

    fn connections(&mut self, now: Instant) -> Vec<PathConnection> {
        let connections = Engine::connections(self).into_iter();
        connections
            .map(|status| PathConnection {
                connection: status.connection,
                bytes_sent: status.bytes_out,
                bytes_received: status.bytes_in,
                idle: Some(now.saturating_since(status.seen_at)),
                round_trip: status.round_trip,
                held_bytes: status.held.into(),
                is_exempt: status.is_exempt,
            })
            .collect()
    }

    fn counters(&self) -> Counters {
        let counters = Engine::counters(self);
        Counters {
            packets: counters.seen,
            rewritten: counters.lowered + counters.refreshed + counters.shrunk,
            held: counters.withheld,
            injected: counters.injected,
            unsent: self.failures,
            fragments: counters.alone_fragment,
            vlan: counters.alone_vlan,
            extension_headers: counters.alone_header,
            signed: counters.alone_signed,
            multipath: counters.alone_multipath,
            other: counters.alone_malformed,
            evicted: self.evicted,
            map_full: counters.alone_full,
        }
    }

    fn traffic(&self) -> Traffic {
        self.path.traffic()
    }

    fn survey(&mut self) -> Survey {
        Engine::survey(self)
    }

    fn handle_silence(&mut self, now: Instant, since: Instant) {
        Engine::handle_silence(self, now, since);
    }

    fn end_silence(&mut self, now: Instant) {
        Engine::end_silence(self, now);
    }

    fn is_silent(&self) -> bool {
        self.stacks.iter().any(|stack| stack.control.silent_since().is_some())
    }

    fn ask_peer(&mut self, now: Instant, connection: Connection) {
        Engine::ask_peer(self, now, connection);
    }

    fn leave_alone(&mut self, connection: Connection, alone: bool) {
        self.leave_alone(connection, alone);
    }
}
