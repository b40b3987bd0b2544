//! Bindings to the C functions (`c/native.c`), and records as bytes: all unsafe code of this crate.
//!
//! The C functions access only what their arguments point to, and keep no pointer.

#![allow(unsafe_code)]

use crate::layout::{
    Ends, Entry, FRAME_LEN, Finding, Flow, Holding, Key, Link, Notice, Order, Packet, Prediction, Rules, Selector,
    Verdict,
};

mod c {
    use super::{Ends, Entry, FRAME_LEN, Flow, Key, Link, Order, Packet, Prediction, Rules, Selector, Verdict};

    unsafe extern "C" {
        pub(super) fn flow_handle_segment(
            flow: *mut Flow,
            place: *mut [Prediction; 2],
            key: *const Key,
            link: *const Link,
            rules: *const Rules,
            packet: *const Packet,
            verdict: *mut Verdict,
            direction: u32,
            is_new: u32,
        ) -> u32;
        pub(super) fn flow_handle_order(flow: *mut Flow, place: *mut [Prediction; 2], order: *const Order);
        pub(super) fn flow_free_prediction(prediction: *mut Prediction, key: *const Key);
        pub(super) fn flow_prediction_number(key: *const Key, direction: u32) -> u32;
        pub(super) fn flow_is_active(prediction: *const Prediction, key: *const Key) -> u32;
        pub(super) fn flow_find_at_host(flow: *const Flow, packet: *const Packet, direction: u32) -> u32;
        pub(super) fn flow_is_calm(link: *const Link) -> u32;
        pub(super) fn flow_is_stalling(link: *const Link, flow: *const Flow, now: u64) -> u32;
        pub(super) fn flow_holding(link: *const Link, rules: *const Rules, flow: *const Flow, now: u64) -> u32;
        pub(super) fn flow_follow(entry: *mut Entry, rules: *const Rules, packet: *const Packet, direction: u32)
        -> u32;
        pub(super) fn flow_expand(flow: *mut Flow, entry: *const Entry, epoch: u32);
        pub(super) fn flow_compact(entry: *mut Entry, flow: *const Flow);
        pub(super) fn flow_needs_details(link: *const Link) -> u32;
        pub(super) fn flow_is_at_rest(flow: *const Flow) -> u32;
        pub(super) fn flow_pass_between(
            flow: *mut Flow,
            key: *const Key,
            link: *const Link,
            rules: *const Rules,
            packet: *const Packet,
            verdict: *mut Verdict,
            direction: u32,
        ) -> u32;
        pub(super) fn flow_find_between(flow: *const Flow, packet: *const Packet) -> u32;
        pub(super) fn flow_is_under_way(flow: *const Flow) -> u32;
        pub(super) fn flow_lower(
            flow: *const Flow,
            packet: *const Packet,
            verdict: *mut Verdict,
            ack: u32,
            direction: u32,
        );
        pub(super) fn flow_note_frame(flow: *mut Flow, frame: *const [u8; FRAME_LEN], now: u64, direction: u32);
        pub(super) fn flow_selects(selector: *const Selector, ends: *const Ends) -> u32;
        pub(super) fn flow_diverts(course: u32, rule: u32, is_tcp: u32) -> u32;
    }

    #[cfg(test)]
    unsafe extern "C" {
        pub(super) fn flow_note_run(flow: *mut Flow, start: u32, end: u32, size: u32);
        pub(super) fn flow_before_last(flow: *const Flow, acked: u32, wanted: u32, limit: *mut u32) -> u32;
        pub(super) static flow_layout: [u32; crate::layout::LAYOUT.len()];
    }
}

/// Handles a segment. Returns the verdict, or `None` if header prediction took the segment, which passes unchanged.
pub(crate) fn handle_segment(
    flow: &mut Flow,
    place: &mut [Prediction; 2],
    key: &Key,
    (link, rules): (&Link, &Rules),
    packet: &Packet,
    direction: u8,
    is_new: bool,
) -> Option<Verdict> {
    let mut verdict = Verdict::default();
    // SAFETY: all arguments are references of the declared types, whose layout is C's.
    let is_predicted = unsafe {
        c::flow_handle_segment(flow, place, key, link, rules, packet, &raw mut verdict, direction.into(), is_new.into())
    };
    (is_predicted == 0).then_some(verdict)
}

/// Carries out an order.
pub(crate) fn handle_order(flow: &mut Flow, place: &mut [Prediction; 2], order: &Order) {
    // SAFETY: as above.
    unsafe { c::flow_handle_order(flow, place, order) }
}

/// Frees a prediction if it belongs to the flow.
pub(crate) fn free_prediction(prediction: &mut Prediction, key: &Key) {
    // SAFETY: as above.
    unsafe { c::flow_free_prediction(prediction, key) }
}

/// The index of a flow's prediction for packets in a direction.
pub(crate) fn prediction_number(key: &Key, direction: u8) -> u32 {
    // SAFETY: as above.
    unsafe { c::flow_prediction_number(key, direction.into()) }
}

/// Whether packets of the flow are predicted.
pub(crate) fn is_active(prediction: &Prediction, key: &Key) -> bool {
    // SAFETY: as above.
    unsafe { c::flow_is_active(prediction, key) != 0 }
}

/// The effect of a packet on the flow table of a host.
pub(crate) fn find_at_host(known: Option<&Flow>, packet: &Packet, direction: u8) -> Finding {
    let known = known.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: as above; without a flow the pointer is null, which the function expects.
    to_finding(unsafe { c::flow_find_at_host(known, packet, direction.into()) })
}

/// The effect of a packet on the flow table of a node between two hosts.
pub(crate) fn find_between(known: Option<&Flow>, packet: &Packet) -> Finding {
    let known = known.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: as above.
    to_finding(unsafe { c::flow_find_between(known, packet) })
}

const fn to_finding(finding: u32) -> Finding {
    match finding {
        0 => Finding::FlowUnseen,
        1 => Finding::FlowKnown,
        2 => Finding::FlowBegins,
        _ => Finding::FlowEnds,
    }
}

/// Whether the link is up, without a change pending.
pub(crate) fn is_calm(link: &Link) -> bool {
    // SAFETY: as above.
    unsafe { c::flow_is_calm(link) != 0 }
}

/// Whether the ACKs of a flow are stalled at `now`, in ns.
pub(crate) fn is_stalling(link: &Link, flow: &Flow, now: u64) -> bool {
    // SAFETY: as above.
    unsafe { c::flow_is_stalling(link, flow, now) != 0 }
}

/// The treatment of a flow's ACKs at `now`, in ns.
pub(crate) fn holding(link: &Link, rules: &Rules, flow: &Flow, now: u64) -> Holding {
    // SAFETY: as above.
    let holding = unsafe { c::flow_holding(link, rules, flow, now) };
    match holding {
        0 => Holding::HoldNothing,
        1 => Holding::HoldLast,
        _ => Holding::HoldAll,
    }
}

/// The changes to a packet of a receiver whose ACKs go in `direction`, if its ACK is lowered to `ack`.
pub(crate) fn lower(flow: &Flow, direction: u8, packet: &Packet, ack: u32) -> Verdict {
    let mut verdict = Verdict::default();
    // SAFETY: as above.
    unsafe { c::flow_lower(flow, packet, &raw mut verdict, ack, direction.into()) };
    verdict
}

/// Notes the Ethernet header of a packet; `now` in ns.
pub(crate) fn note_frame(flow: &mut Flow, now: u64, direction: u8, frame: &[u8; FRAME_LEN]) {
    // SAFETY: as above.
    unsafe { c::flow_note_frame(flow, frame, now, direction.into()) }
}

/// Notes a segment of an entry without details. Returns whether the flow needs details from now on.
pub(crate) fn follow(entry: &mut Entry, rules: &Rules, packet: &Packet, direction: u8) -> bool {
    // SAFETY: as above.
    unsafe { c::flow_follow(entry, rules, packet, direction.into()) != 0 }
}

/// Fills a zeroed flow from an entry.
pub(crate) fn expand(flow: &mut Flow, entry: &Entry) {
    // SAFETY: as above.
    unsafe { c::flow_expand(flow, entry, 0) }
}

/// Fills an entry from a flow.
pub(crate) fn compact(entry: &mut Entry, flow: &Flow) {
    // SAFETY: as above.
    unsafe { c::flow_compact(entry, flow) }
}

/// Whether packets over the link need details of their flows.
pub(crate) fn needs_details(link: &Link) -> bool {
    // SAFETY: as above.
    unsafe { c::flow_needs_details(link) != 0 }
}

/// Whether an entry can stand for the flow.
pub(crate) fn is_at_rest(flow: &Flow) -> bool {
    // SAFETY: as above.
    unsafe { c::flow_is_at_rest(flow) != 0 }
}

/// Handles a segment between two hosts. Returns the verdict, or `None` if its receiver would refuse the segment, which
/// passes unchanged.
pub(crate) fn pass_between(
    flow: &mut Flow,
    key: &Key,
    (link, rules): (&Link, &Rules),
    packet: &Packet,
    direction: u8,
) -> Option<Verdict> {
    let mut verdict = Verdict::default();
    // SAFETY: as above.
    let is_refused =
        unsafe { c::flow_pass_between(flow, key, link, rules, packet, &raw mut verdict, direction.into()) };
    (is_refused == 0).then_some(verdict)
}

/// Whether the handshake is complete and neither end has closed.
pub(crate) fn is_under_way(flow: &Flow) -> bool {
    // SAFETY: as above.
    unsafe { c::flow_is_under_way(flow) != 0 }
}

/// Whether a selector applies to a connection with these ends.
pub(crate) fn selects(selector: &Selector, ends: &Ends) -> bool {
    // SAFETY: as above.
    unsafe { c::flow_selects(selector, ends) != 0 }
}

/// Whether a packet for a mobile host is diverted, by the numbers of `c/course.h`.
pub(crate) fn diverts(course: u32, rule: u32, is_tcp: bool) -> bool {
    // SAFETY: a function of numbers.
    unsafe { c::flow_diverts(course, rule, is_tcp.into()) != 0 }
}

/// A zeroed entry.
pub(crate) fn zeroed_entry() -> Entry {
    // SAFETY: all bit patterns are valid for integers.
    unsafe { std::mem::zeroed() }
}

/// A zeroed flow.
pub(crate) fn zeroed_flow() -> Flow {
    // SAFETY: all bit patterns are valid for integers.
    unsafe { std::mem::zeroed() }
}

/// Parses a notice of the kernel; `None` if there are too few bytes.
pub(crate) fn notice_from_bytes(bytes: &[u8]) -> Option<Notice> {
    if bytes.len() < size_of::<Notice>() {
        return None;
    }
    // SAFETY: there are enough bytes, and any bytes are a notice: integers without padding. It need not be aligned.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast::<Notice>()) })
}

/// An order as bytes for the kernel.
pub(crate) fn order_to_bytes(order: &Order) -> [u8; size_of::<Order>()] {
    // SAFETY: integers without padding: all bytes are written.
    unsafe { std::mem::transmute_copy(order) }
}

/// The ends of a connection as bytes for the kernel.
pub(crate) fn ends_to_bytes(ends: &Ends) -> [u8; size_of::<Ends>()] {
    // SAFETY: integers without padding: all bytes are written.
    unsafe { std::mem::transmute_copy(ends) }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::c;
    use crate::layout::{Flow, LAYOUT};

    /// A flow as bytes.
    pub(crate) type FlowBytes = [u8; size_of::<Flow>()];

    pub(crate) fn flow_to_bytes(flow: &Flow) -> FlowBytes {
        // SAFETY: integers without padding: all bytes are written.
        unsafe { std::mem::transmute_copy(flow) }
    }

    pub(crate) fn flow_from_bytes(bytes: &FlowBytes) -> Flow {
        // SAFETY: as many bytes, and any bytes are a flow.
        unsafe { std::mem::transmute_copy(bytes) }
    }

    pub(crate) fn note_run(flow: &mut Flow, start: u32, end: u32, size: u32) {
        // SAFETY: as in the module above.
        unsafe { c::flow_note_run(flow, start, end, size) }
    }

    pub(crate) fn before_last(flow: &Flow, acked: u32, wanted: u32) -> Option<u32> {
        let mut limit = 0;
        // SAFETY: as in the module above.
        let is_known = unsafe { c::flow_before_last(flow, acked, wanted, &raw mut limit) };
        (is_known != 0).then_some(limit)
    }

    // Claim: Structures of the flow path have the same sizes and offsets in Rust and in C (`crates/flow`).
    #[test]
    fn structures_are_laid_out_as_the_c_compiler_does() {
        // SAFETY: the same generator has written both lists, with as many entries.
        assert_eq!(unsafe { c::flow_layout }, LAYOUT);
    }
}
