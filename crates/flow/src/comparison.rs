//! For tests that compare a program in the kernel with this crate: the steps of the program's shell that the shell of a
//! process does not need, or has its own means for.

use holdover_filter::Direction;

use crate::{ffi, key};
use crate::layout::{FRAME_LEN, Flow, Link};

/// Whether packets over a link need details of their flows: while the link changes, or orders apply to it.
pub fn needs_details(link: &Link) -> bool {
    ffi::needs_details(link)
}

/// Notes the Ethernet header of the last packet in `direction`.
pub fn note_frame(flow: &mut Flow, direction: Direction, frame: [u8; FRAME_LEN]) {
    ffi::note_frame(flow, key::to_raw(direction), &frame);
}
