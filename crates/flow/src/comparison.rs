//! For tests that compare a program in the kernel with this crate: the steps of the program's shell that the shell of a
//! process does not need, or has its own means for.

use holdover_base::Instant;
use holdover_filter::Direction;
use holdover_wire::{Packet, Segment};

use crate::ffi;
use crate::layout::{FRAME_LEN, Flow, Link};
use crate::segment::{self, Form};

/// Whether this packet of the host creates a flow.
pub fn begins_flow(packet: &Packet, segment: &Segment) -> bool {
    ffi::begins_flow(&segment::read(Instant::ZERO, packet, segment, Form::of(segment)))
}

/// Whether a packet of either end begins another connection with the addresses of `flow`, on a node between them.
pub fn begins_between(flow: &Flow, packet: &Packet, segment: &Segment) -> bool {
    ffi::begins_between(flow, &segment::read(Instant::ZERO, packet, segment, Form::of(segment)))
}

/// Whether packets over a link need details of their flows: while the link changes, or orders apply to it.
pub fn needs_details(link: &Link) -> bool {
    ffi::needs_details(link)
}

/// Stores the Ethernet header of the last packet in `direction`.
pub fn note_frame(flow: &mut Flow, direction: Direction, frame: [u8; FRAME_LEN]) {
    match direction {
        Direction::Outgoing => flow.frame_out = frame,
        Direction::Incoming => flow.frame_in = frame,
    }
}
