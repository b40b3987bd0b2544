//! The engine's table of connections: which ones are evicted, and what is looked up for those that stay.

use std::collections::BTreeMap;

use holdover_base::{Duration, Instant};
use holdover_flow::Order;
use holdover_mobility::{Connection, Direction};
use holdover_wire::TcpState;

use super::Engine;

/// How long closed connections are remembered, for retransmissions.
const LINGER: Duration = Duration::from_secs(60);

/// The most connections looked up at once, which takes a few milliseconds.
const MOST_LEARNT: usize = 2_048;

/// The fraction of connections evicted when the table is full: those idle for longest.
const EVICTED_PART: usize = 16;

impl Engine {
    /// Evicts connections, and looks up what their packets have not shown.
    pub(super) fn tend(&mut self, now: Instant) {
        let mut all: Vec<(Instant, Connection)> = Vec::new();
        let mut over = Vec::new();
        let mut unknown = BTreeMap::new();
        self.path.for_each(|connection, flow| {
            let seen_at = flow.seen_at();
            if (flow.is_over() || flow.is_unanswered()) && now.saturating_since(seen_at) >= LINGER {
                over.push(connection);
                return;
            }
            let lacks = Direction::BOTH.map(|direction| flow.half(direction).lacks_window_shift());
            if lacks.contains(&true) && unknown.len() < MOST_LEARNT {
                unknown.insert(connection, lacks);
            }
            // Evict closed and unanswered connections first.
            let is_idle_since = if flow.is_over() || flow.is_unanswered() { Instant::ZERO } else { seen_at };
            all.push((is_idle_since, connection));
        });
        let full = self.path.alone_full();
        if full != self.tended_full || all.len() >= self.options.most_connections as usize {
            self.tended_full = full;
            let evicted = all.len().div_ceil(EVICTED_PART);
            if evicted < all.len() {
                all.select_nth_unstable(evicted);
            }
            self.evicted += evicted as u64;
            over.extend(all.iter().take(evicted).map(|&(_, connection)| connection));
        }
        for connection in over {
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
