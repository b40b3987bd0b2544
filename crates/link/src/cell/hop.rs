//! Who sends what to whom in a cell.

use holdover_base::Instant;

use super::radio::Watts;
use crate::link::DropCause;

/// The name of a station, which the caller chooses.
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

/// A frame and the way it takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hop<F> {
    /// From the base station to one station.
    Down {
        /// To whom.
        to: StationId,
        /// The frame.
        frame: F,
    },
    /// From a station to the base station.
    Up {
        /// From whom.
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
    /// When its last bit came.
    pub at: Instant,
    /// From whom.
    pub from: Node,
    /// Who has it.
    pub to: Node,
    /// The frame.
    pub frame: F,
    /// With what power.
    pub power: Watts,
    /// By which part of the receive threshold the power lies above it: below 0.02 is less than 2 % above the minimum. With a
    /// threshold on it a station predicts that it is about to leave the cell.
    pub margin: f64,
}

/// What the operator of a cell should know.
#[derive(Clone, PartialEq, Debug)]
pub enum CellEvent<F> {
    /// A station came into range.
    InRange {
        /// When.
        at: Instant,
        /// Who.
        station: StationId,
    },
    /// A station went out of range.
    OutOfRange {
        /// When.
        at: Instant,
        /// Who.
        station: StationId,
    },
    /// A frame was dropped.
    Dropped {
        /// When.
        at: Instant,
        /// Why.
        cause: DropCause,
        /// The frame.
        hop: Hop<F>,
    },
    /// A frame could not be sent because its station left; it is the caller's again.
    HandedBack {
        /// When.
        at: Instant,
        /// The frame.
        hop: Hop<F>,
    },
}
