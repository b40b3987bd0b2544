//! The engine's part in silence of its link, which [`holdover_mobility::silence`] detects.

use holdover_base::Instant;
use holdover_mobility::silence::{Survey, Surveyor};
use holdover_mobility::wake::{Beside, PeerProbe, PeerProbes, SocketState};
use holdover_mobility::{Connection, Direction, Injected};
use holdover_wire::Packet;

use super::Engine;
use crate::link_watch::Family;
use crate::sockets::SocketDiag;

impl Engine {
    /// The state of the connections, for silence detection.
    pub fn survey(&mut self) -> Survey {
        self.read_copies();
        let mut surveyor = Surveyor::default();
        self.path.for_each(|connection, flow| {
            let own = &self.stack(connection).own_segments;
            surveyor.note(connection, flow, || own.is_sent_again(connection, flow));
        });
        surveyor.finish()
    }

    /// Nothing has arrived since then, although data was sent: the next packet wakes the waiting connections.
    pub fn handle_silence(&mut self, now: Instant, since: Instant) {
        self.path.set_now(now);
        self.read_notices(now);
        self.peer_probes = PeerProbes::default();
        for stack in &mut self.stacks {
            stack.control.handle_silence(since, &mut self.path.of(stack.family));
        }
        self.send(now);
    }

    /// A packet has arrived after a silence: wakes the waiting connections.
    pub fn end_silence(&mut self, now: Instant) {
        self.path.set_now(now);
        self.read_notices(now);
        for stack in &mut self.stacks {
            // The timers read at the last link-up are outdated.
            stack.own_timers.clear();
            stack.own_segments.begin_return();
            stack.control.end_silence(now, &mut self.path.of(stack.family));
        }
        self.send(now);
    }

    /// Probes a peer, as described in [`PeerProbes`].
    pub fn ask_peer(&mut self, now: Instant, connection: Connection) {
        self.read_notices(now);
        let Some(flow) = self.path.flow(connection).filter(|flow| !flow.is_over()) else { return };
        let stack = &self.stacks[Family::of_connection(connection).index()];
        let release = self.peer_probes.release(now, connection, &flow, &stack.control, &stack.own_segments);
        for injected in release.packets {
            self.send_one(now, 0, connection, injected);
        }
        if !release.is_followed {
            return;
        }
        let Self { stacks, sockets, interface, .. } = self;
        let own = &mut stacks[Family::of_connection(connection).index()].own_segments;
        match own.peer_probe(now, connection, &flow, |connection| socket_of(sockets, interface.index, connection)) {
            Some(PeerProbe::Copy(packet)) => self.failures += u64::from(!self.send_copy(now, connection, packet)),
            Some(PeerProbe::KeepAlive(packet)) => {
                self.send_one(now, 0, connection, Injected { direction: Direction::Outgoing, packet });
            }
            None => {}
        }
    }

    /// Sends a copy of the host's data with a message that makes the host's TCP retransmit, or instead of a probe, unless the
    /// next hop is unknown. Returns what is left to send.
    pub(super) fn with_own_data(
        &mut self,
        now: Instant,
        connection: Connection,
        injected: Injected,
    ) -> Option<Injected> {
        let Self { stacks, sockets, path, interface, .. } = self;
        let stack = &mut stacks[Family::of_connection(connection).index()];
        if !stack.own_segments.has(connection) || stack.next_hops.is_unresolved(now) {
            return Some(injected);
        }
        let Some(flow) = path.flow(connection) else { return Some(injected) };
        let socket = |connection| socket_of(sockets, interface.index, connection);
        match stack.own_segments.beside(now, connection, &injected, &flow, socket) {
            Beside::Nothing => Some(injected),
            Beside::Before(copy) => {
                self.send_copy(now, connection, copy);
                Some(injected)
            }
            Beside::Instead(copy) => (!self.send_copy(now, connection, copy)).then_some(injected),
        }
    }

    /// Sends a copy of the host's data, which is not repeated if the link refuses it. Returns false if the connection is gone.
    fn send_copy(&mut self, now: Instant, connection: Connection, packet: Packet) -> bool {
        let Some(frame) = self.frame(now, connection, Direction::Outgoing) else { return false };
        let injected = Injected { direction: Direction::Outgoing, packet };
        let sent = self.injector.send(&injected, &frame[..self.interface.frame_len as usize]);
        self.failures += u64::from(sent.is_err());
        true
    }
}

/// Whether the kernel has a socket of a connection over an interface.
fn socket_of(sockets: &mut SocketDiag, interface: u32, connection: Connection) -> SocketState {
    match sockets.find_over(connection, interface) {
        Ok(Some(_)) => SocketState::Open,
        Ok(None) => SocketState::Gone,
        Err(_) => SocketState::Unknown,
    }
}
