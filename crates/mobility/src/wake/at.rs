//! Names for the halves of a connection.

use holdover_filter::Connection;
use holdover_wire::Packet;

use crate::{Direction, Injected};

/// One half of a connection: the one whose ACKs go in `direction`.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) connection: Connection,
    pub(super) direction: Direction,
}

impl At {
    /// The connection from the view of the receiver of the data, which makes the ACKs.
    pub(super) fn receiver(self) -> Connection {
        self.connection.of_sender_going(self.direction)
    }

    /// A packet in the direction of the ACKs.
    pub(super) fn inject(self, packet: Packet) -> Injected {
        Injected { direction: self.direction, packet }
    }
}
