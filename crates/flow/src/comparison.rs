//! For tests that compare a program in the kernel with this crate: the steps of the program's shell that the shell of a
//! process does not need, or has its own means for.

use holdover_base::Instant;
use holdover_filter::Direction;

use crate::layout::{FRAME_LEN, Flow, Link};
use crate::{ffi, key};

/// Whether packets over a link need details of their flows: while the link changes, or orders apply to it.
pub fn needs_details(link: &Link) -> bool {
    ffi::needs_details(link)
}

/// Notes the Ethernet header of a packet in `direction`, unless header prediction took the packet.
pub fn note_frame(flow: &mut Flow, now: Instant, direction: Direction, frame: [u8; FRAME_LEN]) {
    if flow.seen_at() == now {
        ffi::note_frame(flow, now.as_nanos(), key::to_raw(direction), &frame);
    }
}
