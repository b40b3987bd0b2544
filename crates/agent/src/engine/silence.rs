//! The engine's part in silence of its link, which [`crate::link_watch::silence`] detects.

use holdover_base::Instant;
use holdover_mobility::{Connection, Direction, Injected};

use super::Engine;
use super::retransmitted::Retransmitted;
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
        self.retransmitted = None;
        for stack in &mut self.stacks {
            // The timers read at the last link-up are outdated.
            stack.own_timers.clear();
            stack.control.end_silence(now, &mut self.path.of(stack.family));
        }
        self.send(now);
    }

    /// Probes a peer, with the first unacknowledged segment of the host if that is short.
    pub fn ask_peer(&mut self, now: Instant, connection: Connection) {
        if self.retransmitted.is_none() {
            let opened = Retransmitted::open(now, &self.interface);
            self.retransmitted =
                opened.inspect_err(|error| tracing::debug!(%error, "cannot see outgoing packets")).ok();
        }
        let Some(flow) = self.path.flow(connection).filter(|flow| !flow.is_over()) else { return };
        let copy = self.retransmitted.as_mut().and_then(|retransmitted| retransmitted.copy(now, connection, &flow));
        // The host may have dropped the connection without a packet (user timeout): data that its application takes for lost must not
        // arrive.
        let copy = copy.filter(|_| self.sockets.find(connection).is_ok_and(|socket| socket.is_some()));
        if let Some(packet) = copy.or_else(|| flow.keep_alive(connection)) {
            self.send_one(now, 0, connection, Injected { direction: Direction::Outgoing, packet });
        }
    }
}
