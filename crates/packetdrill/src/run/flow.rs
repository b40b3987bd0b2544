//! Script numbering of the connection under test: sequence numbers relative to its SYNs, and the script's own
//! timestamps.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use holdover_wire::{Flags, Packet, Segment, Seq};

/// Maps between numbers in the script and on the wire.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// The local initial sequence number: the script's, and the wire's once known.
    pub(super) script_isn: u32,
    pub(super) live_isn: Option<Seq>,
    /// The peer's initial sequence number, chosen by the script.
    pub(super) remote_isn: Option<u32>,
    /// Sent timestamps, by script number.
    timestamps: BTreeMap<u32, u32>,
    first_timestamp: Option<(u32, u32)>,
}

impl Flow {
    pub(super) fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local,
            remote,
            script_isn: 0,
            live_isn: None,
            remote_isn: None,
            timestamps: BTreeMap::new(),
            first_timestamp: None,
        }
    }

    /// The segment, if the packet belongs to this connection.
    pub(super) fn segment_of<'a>(&self, packet: &'a Packet) -> Option<&'a Segment> {
        let segment = packet.tcp()?;
        let from = SocketAddr::new(packet.src, segment.src_port);
        let to = SocketAddr::new(packet.dst, segment.dst_port);
        ((from, to) == (self.local, self.remote)).then_some(segment)
    }

    /// The offset from local script numbers to wire numbers. Those of a SYN count from the script's ISN, all others from 0.
    pub(super) fn local_offset(&self, is_syn: bool) -> u32 {
        let live = self.live_isn.unwrap_or_default().value();
        if is_syn { live.wrapping_sub(self.script_isn) } else { live }
    }

    pub(super) fn remote_offset(&self, is_syn: bool) -> u32 {
        if is_syn { 0 } else { self.remote_isn.unwrap_or(0) }
    }

    /// The sequence and acknowledgment numbers of a local segment in script numbers.
    pub(super) fn numbers(&self, segment: &Segment) -> (u32, u32) {
        let is_syn = segment.flags.contains(Flags::SYN);
        let seq = segment.seq.value().wrapping_sub(self.local_offset(is_syn));
        let acks = segment.flags.contains(Flags::ACK);
        let ack = if acks { segment.ack.value().wrapping_sub(self.remote_offset(is_syn)) } else { segment.ack.value() };
        (seq, ack)
    }

    /// Records a sent timestamp that the script calls `script`. Returns the actual timestamp in script numbers.
    pub(super) fn note_timestamp(&mut self, script: u32, live: u32) -> u32 {
        self.timestamps.insert(script, live);
        let (first_script, first_live) = *self.first_timestamp.get_or_insert((script, live));
        first_script.wrapping_add(live.wrapping_sub(first_live))
    }

    /// A local timestamp in script numbers, as far as known.
    pub(super) fn script_timestamp(&self, live: u32) -> u32 {
        self.first_timestamp.map_or(live, |(script, first)| script.wrapping_add(live.wrapping_sub(first)))
    }

    /// The wire timestamp for the script's number; `None` if no such timestamp was sent.
    pub(super) fn live_timestamp(&self, script: u32, scaled: bool) -> Option<u32> {
        let exact = self.timestamps.get(&script).copied();
        let interpolated = || {
            let (first_script, first_live) = self.first_timestamp.filter(|_| scaled)?;
            Some(script.wrapping_sub(first_script).wrapping_add(first_live))
        };
        exact.or_else(interpolated)
    }
}
