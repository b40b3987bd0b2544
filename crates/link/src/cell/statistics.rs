//! Counters of a cell.

use holdover_base::Duration;

use crate::statistics::{QueueStatistics, Statistics};

/// Counters of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CellStatistics {
    /// Frames from the base station, broadcasts included (`duplicated` counts their further receivers), and its buffer.
    pub down: Statistics,
    /// Frames from stations. `queue` adds up their buffers, its high-water marks are those of the fullest one.
    pub up: Statistics,
    /// Frames handed back.
    pub handed_back: u64,
    /// Unanswered attempts.
    pub unanswered: u64,
    /// Attempts of single senders whose data frames were damaged by bit errors.
    pub damaged: u64,
    /// Collisions, each counted once for all participants.
    pub collisions: u64,
    /// Time in which a node was sending or an exchange was under way.
    pub airtime: Duration,
}

pub(super) fn add_queues(sum: &mut QueueStatistics, one: QueueStatistics) {
    sum.packets += one.packets;
    sum.bytes += one.bytes;
    sum.high_water_packets = sum.high_water_packets.max(one.high_water_packets);
    sum.high_water_bytes = sum.high_water_bytes.max(one.high_water_bytes);
    sum.packet_nanos += one.packet_nanos;
    sum.byte_nanos += one.byte_nanos;
}
