//! The project's TCP as an endpoint of the shell.

use holdover_base::Instant;
use holdover_tcp::Endpoint;
use holdover_wire::Packet;

use crate::PacketEndpoint;

impl PacketEndpoint for Endpoint {
    fn handle_packet(&mut self, now: Instant, packet: Packet) {
        Self::handle_packet(self, now, &packet);
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        Self::poll_transmit(self, now).map(|outgoing| outgoing.packet)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        Self::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }
}
