//! The engine's part in silence of its link, which [`crate::link_watch::silence`] detects.

use holdover_base::Instant;
use holdover_flow::Flow;
use holdover_mobility::{Connection, Direction, Injected};
use holdover_wire::Packet;

use super::Engine;
use super::retransmitted::Purpose;
use crate::link_watch::silence::{Survey, Unanswered};

impl Engine {
    /// The state of the connections, for silence detection.
    pub fn survey(&mut self) -> Survey {
        let mut survey = Survey::default();
        self.path.for_each(|connection, flow| {
            let is_of_no_use = flow.is_over() || flow.is_unanswered() || flow.is_exempt();
            if is_of_no_use {
                return;
            }
            if flow.heard_at() > survey.heard_at {
                (survey.heard_at, survey.recent) = (flow.heard_at(), Some(connection));
                survey.round_trip = flow.smoothed_round_trip().unwrap_or_default();
            }
            if flow.awaits_ack() {
                let (heard_at, round_trip) = (flow.heard_at(), flow.smoothed_round_trip());
                survey.unanswered.push(Unanswered { connection, heard_at, round_trip });
            }
        });
        survey
    }

    /// Nothing has arrived since then, although data was sent: the next packet wakes the waiting connections.
    pub fn handle_silence(&mut self, now: Instant, since: Instant) {
        self.path.set_now(now);
        self.hear(now);
        for stack in &mut self.stacks {
            stack.control.handle_silence(since, &mut self.path.of(stack.family));
        }
        self.send(now);
    }

    /// A packet has arrived after a silence: wakes the waiting connections.
    pub fn end_silence(&mut self, now: Instant) {
        self.path.set_now(now);
        self.hear(now);
        for stack in &mut self.stacks {
            // The timers read at the last link-up are outdated.
            stack.own_timers.clear();
            stack.control.end_silence(now, &mut self.path.of(stack.family));
        }
        self.send(now);
    }

    /// Probes a peer, with the first unacknowledged segment of the host if that is short.
    pub fn ask_peer(&mut self, now: Instant, connection: Connection) {
        self.hear(now);
        let Some(flow) = self.path.flow(connection).filter(|flow| !flow.is_over()) else { return };
        let probe = || flow.keep_alive(connection);
        if let Some(packet) = self.copy_of_own_data(now, connection, &flow).or_else(probe) {
            self.send_one(now, 0, connection, Injected { direction: Direction::Outgoing, packet });
        }
    }

    /// What is sent for a packet of the controller's: a probe may carry the host's data, and a message that makes the
    /// host's TCP retransmit follows a copy of them.
    pub(super) fn with_own_data(
        &mut self,
        now: Instant,
        connection: Connection,
        injected: Injected,
    ) -> (Option<Injected>, Option<Injected>) {
        let Some(flow) = self.path.flow(connection) else { return (None, Some(injected)) };
        let purpose = Purpose::of(&injected, &flow);
        let is_wanted = match purpose {
            Purpose::Probe => true,
            Purpose::Poke => !self.retransmitted.is_under_way(now, connection, &flow),
            Purpose::Other => false,
        };
        let copy = if is_wanted { self.copy_of_own_data(now, connection, &flow) } else { None };
        let copy = copy.map(|packet| Injected { direction: Direction::Outgoing, packet });
        let is_replaced = purpose == Purpose::Probe && copy.is_some();
        (copy, Some(injected).filter(|_| !is_replaced))
    }

    /// A copy of the host's first unacknowledged segment, if it is short.
    fn copy_of_own_data(&mut self, now: Instant, connection: Connection, flow: &Flow) -> Option<Packet> {
        let copy = self.retransmitted.copy(now, connection, flow)?;
        // The host may have given up without a packet (a user timeout): what its application takes for lost must not arrive.
        self.sockets.find(connection).is_ok_and(|socket| socket.is_some()).then_some(copy)
    }
}
