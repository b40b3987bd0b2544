//! What the host's TCP sends again during a silence. A peer is probed with a copy of it: the first probe that gets
//! through brings the data, instead of asking for it a round trip earlier.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::tcp_mut;
use holdover_flow::Flow;
use holdover_host::packet_tap::PacketTap;
use holdover_mobility::{Connection, Direction, EchoClock};
use holdover_wire::{Checksums, Packet};

use super::Interface;

/// The short segments of the host's TCP on one interface, as they leave.
#[derive(Debug)]
pub(super) struct Retransmitted {
    tap: PacketTap,
    /// The last one of each connection.
    last: BTreeMap<Connection, Packet>,
    asked_at: Instant,
}

/// Bytes of a packet that a probe may take: a keystroke, a command, a small message. Probes are sent up to 40 times a
/// second.
const LONGEST: u32 = 256;

/// The most connections of which a segment is kept.
const MOST_CONNECTIONS: usize = 64;

/// A tap that has not been asked for this long is closed: probes are sent once a second at least.
const CLOSE_AFTER: Duration = Duration::from_secs(3);

impl Retransmitted {
    /// Opens the tap in the calling thread's network namespace.
    ///
    /// # Errors
    /// See [`PacketTap::open`].
    pub(super) fn open(now: Instant, interface: &Interface) -> io::Result<Self> {
        Ok(Self { tap: PacketTap::open(interface.index as i32, LONGEST)?, last: BTreeMap::new(), asked_at: now })
    }

    /// Whether no probe was asked for lately.
    pub(super) fn is_unused(&self, now: Instant) -> bool {
        now.saturating_since(self.asked_at) >= CLOSE_AFTER
    }

    /// The host's first unacknowledged segment, with the present time of its timestamp clock, so that its answer is a
    /// valid measurement of the round trip. `None` if it is long or has not been sent since the tap was opened.
    pub(super) fn copy(&mut self, now: Instant, connection: Connection, flow: &Flow) -> Option<Packet> {
        self.asked_at = now;
        self.receive();
        let half = flow.half(Direction::Incoming);
        let mut packet = self.last.get(&connection)?.clone();
        let segment = tcp_mut(&mut packet)?;
        if half.acked() != Some(segment.seq) {
            return None;
        }
        if let Some(timestamps) = &mut segment.options.timestamps {
            let [first, newest] = half.stamps()?;
            timestamps.val = EchoClock::between(first, newest).at(now)?;
        }
        Some(packet)
    }

    /// Reads what has left since the last time. An interface that is down or gone has sent nothing.
    fn receive(&mut self) {
        let mut buffer = [0; LONGEST as usize];
        while let Ok(Some(bytes)) = self.tap.receive(&mut buffer) {
            // Devices that compute checksums get packets without.
            let Ok(packet) = Packet::parse_with(Bytes::copy_from_slice(bytes), Checksums::Ignore) else { continue };
            let Some(segment) = packet.tcp().filter(|segment| !segment.payload.is_empty()) else { continue };
            let connection = Connection {
                local: (packet.src, segment.src_port).into(),
                remote: (packet.dst, segment.dst_port).into(),
            };
            if self.last.len() < MOST_CONNECTIONS || self.last.contains_key(&connection) {
                self.last.insert(connection, packet);
            }
        }
    }
}
