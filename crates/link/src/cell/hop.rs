//! Frames of a cell, and events.

use holdover_base::Instant;

use super::radio::Watts;
use crate::link::DropCause;

/// The name of a station, chosen by the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StationId(pub u32);

/// A node of the cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Node {
    /// The base station.
    Base,
    /// A station.
    Station(StationId),
}

/// A frame with sender and receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hop<F> {
    /// From the base station to one station.
    Down {
        /// The receiver.
        to: StationId,
        /// The frame.
        frame: F,
    },
    /// From a station to the base station.
    Up {
        /// The sender.
        from: StationId,
        /// The frame.
        frame: F,
    },
    /// From the base station to all stations within range: once, unacknowledged.
    Broadcast {
        /// The frame.
        frame: F,
    },
}

/// A frame that was received.
#[derive(Clone, PartialEq, Debug)]
pub struct Reception<F> {
    /// The end of its last bit.
    pub at: Instant,
    /// The sender.
    pub from: Node,
    /// The receiver.
    pub to: Node,
    /// The frame.
    pub frame: F,
    /// Received power.
    pub power: Watts,
    /// How far the power is above the receive threshold, as a share of it: below 0.02 is less than 2 % above the
    /// minimum. A station compares it with a threshold to predict that it is about to leave the cell.
    pub margin: f64,
}

/// An event of a cell.
#[derive(Clone, PartialEq, Debug)]
pub enum CellEvent<F> {
    /// A station came into range.
    InRange {
        /// The time.
        at: Instant,
        /// The station.
        station: StationId,
    },
    /// A station went out of range.
    OutOfRange {
        /// The time.
        at: Instant,
        /// The station.
        station: StationId,
    },
    /// A frame was dropped.
    Dropped {
        /// The time.
        at: Instant,
        /// The cause.
        cause: DropCause,
        /// The frame.
        hop: Hop<F>,
    },
    /// A frame was not sent because its station left; it is handed back to the caller.
    HandedBack {
        /// The time.
        at: Instant,
        /// The frame.
        hop: Hop<F>,
    },
}
