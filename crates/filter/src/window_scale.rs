//! The shift of a host's window field (RFC 7323 section 2.2), read from SYNs.

use holdover_wire::{Flags, Segment};

use crate::Direction;

/// The Window Scale options of both ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowScale {
    host: Option<u8>,
    peer: Option<u8>,
}

impl WindowScale {
    /// Notes a segment.
    pub fn note(&mut self, direction: Direction, segment: &Segment) {
        if segment.flags.contains(Flags::SYN) {
            match direction {
                Direction::Outgoing => self.host = segment.options.window_scale,
                Direction::Incoming => self.peer = segment.options.window_scale,
            }
        }
    }

    /// The window field that offers `bytes` in a segment of the host; at least one unit. Scaling needs the option in
    /// both SYNs.
    pub fn field(&self, bytes: u32) -> u16 {
        let shift = self.host.filter(|_| self.peer.is_some()).unwrap_or(0).min(14);
        u16::try_from(bytes >> shift).unwrap_or(u16::MAX).max(1)
    }
}
