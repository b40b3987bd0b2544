//! The segment that the host's TCP retransmits during a silence. A peer is probed with a copy of it: the first probe
//! that arrives delivers the data, a round trip earlier than a retransmission after a keep-alive's answer.

use std::io;

use bytes::Bytes;
use holdover_base::{Duration, Instant};
use holdover_filter::tcp_mut;
use holdover_flow::Flow;
use holdover_host::packet_tap::PacketTap;
use holdover_mobility::{Connection, Direction, EchoClock};
use holdover_wire::{Checksums, Packet, Seq};

use super::Interface;

/// The first unacknowledged segment of the probed connection, as the host's TCP sends it.
#[derive(Debug)]
pub(super) struct Retransmitted {
    tap: PacketTap,
    segment: Option<(Connection, Packet)>,
    copies: u32,
    asked_at: Instant,
}

/// Bytes of a packet that a probe may take: a keystroke, a command, a small message.
const LONGEST: u32 = 256;

/// The most copies in a silence: 20 s at the usual rate, 128 kB. A link that holds packets delivers all of them, and the
/// peer answers each (RFC 2883).
const MOST_COPIES: u32 = 500;

/// A tap unused for this long is closed. Probes are at most 3 s apart.
const CLOSE_AFTER: Duration = Duration::from_secs(10);

impl Retransmitted {
    /// Opens the tap in the calling thread's network namespace.
    ///
    /// # Errors
    /// See [`PacketTap::open`].
    pub(super) fn open(now: Instant, interface: &Interface) -> io::Result<Self> {
        let tap = PacketTap::open(interface.index as i32, LONGEST)?;
        Ok(Self { tap, segment: None, copies: 0, asked_at: now })
    }

    /// Whether no copy was requested for [`CLOSE_AFTER`].
    pub(super) fn is_unused(&self, now: Instant) -> bool {
        now.saturating_since(self.asked_at) >= CLOSE_AFTER
    }

    /// A copy of the host's first unacknowledged segment, with the current time of its timestamp clock, so that the
    /// answer is a valid measurement of the round trip. `None` if the segment is long, has not been sent since the tap
    /// was opened, or has options that a copy would lack (MPTCP).
    pub(super) fn copy(&mut self, now: Instant, connection: Connection, flow: &Flow) -> Option<Packet> {
        self.asked_at = now;
        let half = flow.half(Direction::Incoming);
        let first = half.acked()?;
        self.receive(connection, first);
        let (of, mut packet) = self.segment.clone()?;
        let segment = tcp_mut(&mut packet)?;
        if of != connection || segment.seq != first || segment.options.unknown > 0 || self.copies >= MOST_COPIES {
            return None;
        }
        if let Some(timestamps) = &mut segment.options.timestamps {
            let [first, newest] = half.stamps()?;
            timestamps.val = EchoClock::between(first, newest).at(now)?;
        }
        self.copies += 1;
        Some(packet)
    }

    /// Reads the packets sent since the last call, and keeps the connection's segment that begins at `first`. An
    /// interface that is down or gone has sent nothing.
    fn receive(&mut self, connection: Connection, first: Seq) {
        let mut buffer = [0; LONGEST as usize];
        while let Ok(Some(bytes)) = self.tap.receive(&mut buffer) {
            // Packets for devices with checksum offload have no checksum yet.
            let Ok(packet) = Packet::parse_with(Bytes::copy_from_slice(bytes), Checksums::Ignore) else { continue };
            let Some(segment) = packet.tcp() else { continue };
            let is_its = (packet.src, segment.src_port) == (connection.local.ip(), connection.local.port())
                && (packet.dst, segment.dst_port) == (connection.remote.ip(), connection.remote.port());
            if is_its && segment.seq == first && !segment.payload.is_empty() {
                self.segment = Some((connection, packet));
            }
        }
    }
}
