//! Entries of flow tables with room for many connections: what every packet touches, 128 bytes each. A connection has *details*, a [`Flow`],
//! only while it needs them (`c/entry.h`).

use holdover_base::Instant;
use holdover_filter::Direction;
use holdover_wire::Packet;

use crate::layout::{ENTRY_DETAILED, Entry, Flow, Link, Rules, Side, UNKNOWN_SHIFT};
use crate::segment::{self, Form};
use crate::{ffi, key};

/// What was done to a packet of a connection without details.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Followed {
    /// It passed, and was noted.
    Noted,
    /// The same, and the connection is to have details from now on: it is bulk.
    Bulk,
}

impl Entry {
    /// An entry before the first packet.
    pub fn new() -> Self {
        Self { outgoing: Side::default(), incoming: Side::default(), ..ffi::zeroed_entry() }
    }

    /// A packet passes, as it is.
    pub fn follow(
        &mut self,
        now: Instant,
        rules: &Rules,
        direction: Direction,
        packet: &Packet,
        form: Form,
    ) -> Followed {
        let Some(segment) = packet.tcp() else { return Followed::Noted };
        let read = segment::read(now, packet, segment, form);
        if ffi::follow(self, rules, &read, key::to_raw(direction)) { Followed::Bulk } else { Followed::Noted }
    }

    /// Whether packets over a link need details of their flows: while something happens to it, or is ordered.
    pub fn lacks_details(link: &Link) -> bool {
        ffi::needs_details(link)
    }

    /// The flow as far as the entry has it: without where segments begin, which ACKs were shown when, SACK blocks, and rates.
    pub fn expand(&self) -> Flow {
        let mut flow = Flow::new();
        ffi::expand(&mut flow, self);
        flow
    }

    /// The entry that stands for a flow; `None` if that holds something, or is under orders.
    pub fn of(flow: &Flow) -> Option<Self> {
        ffi::is_at_rest(flow).then(|| {
            let mut entry = Self::new();
            ffi::compact(&mut entry, flow);
            entry
        })
    }

    /// Whether the connection has details, which are newer.
    pub const fn is_detailed(&self) -> bool {
        self.flags & ENTRY_DETAILED != 0
    }
}

impl Default for Entry {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Side {
    /// Before the first packet: the window's shift is not known.
    fn default() -> Self {
        Self { window_shift: UNKNOWN_SHIFT as u8, ..ffi::zeroed_entry().outgoing }
    }
}
