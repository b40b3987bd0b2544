//! A path that is cut in the middle of a transfer.

use holdover_base::{Duration, Instant};
use holdover_tcp::Endpoint;
use holdover_wire::Packet;

use crate::PacketEndpoint;

/// An endpoint whose packets are lost in both directions from [`Gate::cut`] on, for a time. An outage at a fixed time
/// could come after the transfer on a fast machine, and during the handshake on a slow one.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) endpoint: Endpoint,
    cut_until: Instant,
    lost: u64,
}

impl Gate {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, cut_until: Instant::ZERO, lost: 0 }
    }

    /// Everything is lost from now on, for `span`.
    pub(super) fn cut(&mut self, now: Instant, span: Duration) {
        self.cut_until = now + span;
    }

    /// Packets lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

impl PacketEndpoint for Gate {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        if now < self.cut_until {
            self.lost += 1;
        } else {
            self.endpoint.handle_packet(now, &packet);
        }
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        while let Some(outgoing) = self.endpoint.poll_transmit(now) {
            if now >= self.cut_until {
                return Some(outgoing.packet);
            }
            self.lost += 1;
        }
        None
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
    }
}
