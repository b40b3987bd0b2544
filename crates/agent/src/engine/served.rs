//! The engine as the daemon sees it.

use std::os::fd::{AsFd as _, BorrowedFd};

use holdover_base::{Duration, Instant};
use holdover_mobility::wake::WakeConfig;
use holdover_mobility::{Connection, Deed, LinkEvent};

use super::{Engine, EngineError, EngineOptions};
use crate::log::with_causes;
use crate::path_engine::{Attach, Counters, PathConnection, PathEngine};

/// Puts engines on interfaces of the calling thread's network namespace.
#[derive(Clone, Copy, Default, Debug)]
pub struct KernelAttach;

impl Attach for KernelAttach {
    type Engine = Engine;
    type Error = EngineError;

    fn attach(&mut self, interface: &str, config: &WakeConfig) -> Result<Engine, EngineError> {
        Engine::attach(interface, &EngineOptions { wake: *config, ..EngineOptions::default() })
    }

    fn attach_again(&mut self, engine: &mut Engine) -> Result<(), EngineError> {
        engine.attach_again()
    }
}

impl PathEngine for Engine {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn handle_link(&mut self, now: Instant, event: LinkEvent) {
        self.handle_link(now, event);
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

    fn poll_deed(&mut self) -> Option<Deed> {
        self.poll_deed()
    }

    fn contradicts_down(&self) -> bool {
        self.control.contradicts_down()
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
                is_left_alone: status.is_left_alone,
            })
            .collect()
    }

    fn round_trip(&self, connection: Connection) -> Option<Duration> {
        self.path.raw(connection).and_then(|raw| raw.fast().smoothed_round_trip())
    }

    fn counters(&self) -> Counters {
        let counters = Engine::counters(self);
        Counters {
            packets: counters.seen,
            rewritten: counters.lowered + counters.refreshed + counters.drawn_in,
            held: counters.withheld,
            injected: counters.injected,
            unsent: self.failures,
            fragments: counters.alone_fragment,
            vlan: counters.alone_vlan,
            extension_headers: counters.alone_header,
            other: counters.alone_malformed,
            evicted: self.evicted,
            map_full: counters.alone_full,
        }
    }

    fn leave_alone(&mut self, connection: Connection, alone: bool) {
        self.leave_alone(connection, alone);
    }
}
