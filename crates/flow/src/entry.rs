//! Entries of flow tables for many connections: the 128 bytes that every packet needs. A connection has *details*, a
//! [`Flow`], only while it needs them (`c/entry.h`).

use holdover_base::Instant;
use holdover_filter::Direction;
use holdover_wire::Packet;

use crate::layout::{ENTRY_DETAILED, Entry, Flow, Rules, Side, UNKNOWN_SHIFT};
use crate::segment::{self, Form};
use crate::{ffi, key};

/// The result for a packet of a connection without details.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Followed {
    /// The packet passed and was noted.
    Noted,
    /// The same, and the connection needs details from now on: it is bulk.
    Bulk,
}

impl Entry {
    /// An entry before the first packet.
    pub fn new() -> Self {
        Self { outgoing: Side::default(), incoming: Side::default(), ..ffi::zeroed_entry() }
    }

    /// Notes a packet, which passes unchanged.
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

    /// The flow as far as the entry has it: without segment boundaries, times of ACKs shown, SACK blocks and rates.
    pub fn expand(&self) -> Flow {
        let mut flow = Flow::new();
        ffi::expand(&mut flow, self);
        flow
    }

    /// The entry for a flow; `None` if the flow holds ACKs or has orders.
    pub fn of(flow: &Flow) -> Option<Self> {
        ffi::is_at_rest(flow).then(|| {
            let mut entry = Self::new();
            ffi::compact(&mut entry, flow);
            entry
        })
    }

    /// The entry for a flow that another gateway has handed on, over the link of this number. ACKs that the flow holds are in its
    /// details only; `is_detailed` says that these are added to the flow table at the same time.
    pub fn handed_on(flow: &Flow, link_number: u16, is_detailed: bool) -> Self {
        let mut entry = Self::new();
        ffi::compact(&mut entry, flow);
        entry.link_number = link_number;
        entry.flags |= if is_detailed { ENTRY_DETAILED } else { 0 };
        entry
    }

    /// Whether the connection has details, which are newer than the entry.
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
    /// Before the first packet: the window's shift is unknown.
    fn default() -> Self {
        Self { window_shift: UNKNOWN_SHIFT as u8, ..ffi::zeroed_entry().outgoing }
    }
}
