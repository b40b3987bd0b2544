//! The engine's table of connections: which ones are evicted, and what is looked up for those that stay.

use std::collections::BTreeMap;

use holdover_base::Instant;
use holdover_flow::Order;
use holdover_flow::eviction::{self, Candidate, Use};
use holdover_mobility::{Connection, Direction};
use holdover_wire::TcpState;

use super::Engine;

/// The most connections looked up at once, which takes a few milliseconds.
const MOST_LEARNT: usize = 2_048;

impl Engine {
    /// Evicts connections, and looks up what their packets have not shown.
    pub(super) fn tend(&mut self, now: Instant) {
        let (mut candidates, mut lingered) = (Vec::new(), 0);
        let mut unknown = BTreeMap::new();
        self.path.for_each(|connection, flow| {
            let candidate = Candidate { connection, seen_at: flow.seen_at(), use_of: Use::at_host(flow) };
            candidates.push(candidate);
            if candidate.has_lingered(now) {
                lingered += 1;
                return;
            }
            let lacks = Direction::BOTH.map(|direction| flow.half(direction).lacks_window_shift());
            if lacks.contains(&true) && unknown.len() < MOST_LEARNT {
                unknown.insert(connection, lacks);
            }
        });
        let full = self.path.alone_full();
        let most = self.options.most_connections as usize;
        let has_room = eviction::has_room(candidates.len(), most, full != self.tended_full);
        self.tended_full = full;
        let removed = eviction::choose(now, candidates, has_room);
        self.evicted += (removed.len() - lingered) as u64;
        for connection in removed {
            unknown.remove(&connection);
            self.path.forget(connection);
        }
        if !unknown.is_empty() {
            self.learn_window_shifts(now, &unknown);
        }
    }

    /// Looks up window shifts in the kernel, for connections older than the agent or opened by a peer.
    fn learn_window_shifts(&mut self, now: Instant, unknown: &BTreeMap<Connection, [bool; 2]>) {
        // Optional: ignore failures.
        let Ok(sockets) = self.sockets.connections() else { return };
        for socket in sockets {
            // The peer's options are not known yet.
            if socket.info.tcpi_state == TcpState::SynSent {
                continue;
            }
            let Some(lacks) = unknown.get(&socket.connection) else { continue };
            let shifts = [socket.info.tcpi_rcv_wscale, socket.info.tcpi_snd_wscale];
            for ((direction, is_lacking), shift) in Direction::BOTH.into_iter().zip(lacks).zip(shifts) {
                if *is_lacking {
                    self.path.order(now, socket.connection, direction, Order::WindowShift(shift));
                }
            }
        }
    }
}
