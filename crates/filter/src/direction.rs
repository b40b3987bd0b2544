//! The direction of packets.

/// The direction of a packet through a filter, relative to the link beside it (see the [crate](crate)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the link: from the host's own TCP; in the network, from a fixed host to a mobile one.
    Outgoing,
    /// From the link: to the host's own TCP; in the network, from a mobile host to a fixed one.
    Incoming,
}

impl Direction {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Outgoing, Self::Incoming];

    /// The opposite direction.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Outgoing => Self::Incoming,
            Self::Incoming => Self::Outgoing,
        }
    }
}
