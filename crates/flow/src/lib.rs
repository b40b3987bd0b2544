//! The **flow path**: the handling of every TCP packet on a link that comes and goes. For each flow it tracks what was
//! acknowledged and how much of that its sender was shown, and decides whether an ACK passes, is lowered or is
//! withheld.
//!
//! It has one source, in C (`c/flow.h`), which is compiled twice: by clang for the kernel, where eBPF programs are the
//! shell around it (`crates/agent/bpf`), and by this crate for processes, where the shell is [`Flow::handle_packet`]. The
//! structures, flags and counters that both share are declared in C only; `build.rs` generates Rust from them.
//!
//! [`Selector`]s, which connections a rule applies to, are independent of the flow path and have one source in the same
//! way (`c/selector.h`), as has the decision which packets for a mobile host are diverted ([`Course`], `c/course.h`).
//!
//! The flow path is a function of its arguments. It allocates nothing, sends nothing and has no timer. Everything else is
//! in a *controller* (`wake` in `mobility`): it handles [`Notice`]s, reads flows from a [`FlowTable`], and changes them by
//! [`Order`]s.
//!
//! ```text
//!   packet  -->  Flow::handle_packet  -->  Verdict (pass, maybe rewritten; drop)
//!                    |         ^
//!                  Notice    Order, LinkState
//!                    v         |
//!                   controller (timers, link events, packets of its own)
//! ```

#![deny(unsafe_code)]

pub mod comparison;
mod course;
mod entry;
pub mod eviction;
mod ffi;
mod flow;
mod half;
mod key;
mod layout;
mod link;
mod memory;
mod notice;
mod order;
mod prediction;
mod prefix;
mod record;
mod rules;
mod segment;
mod selector;
mod table;
#[cfg(test)]
mod tests;

pub use course::{ConnectionRule, Course};
pub use entry::Followed;
pub use flow::Environment;
pub use half::Half;
pub use layout::{
    Counter, Ends, Entry, FRAME_LEN, Finding, Flow, Key, Link, Prediction, Rules, STATUS_CALM, STATUS_CALM_IPV6,
    STATUS_FRAMES, STATUS_LISTENS, STATUS_NUMBER, Selector,
};
pub use link::{Holds, LATE_ARRIVALS, LONGEST_LEAD, LinkState, Stall, USUAL_LEAD};
pub use memory::{FlowsBetween, HostFlows};
pub use notice::{CUT_FLUSH, Notice, NoticeRecord, Report};
pub use order::{Order, OrderRecord, WindowLimit};
pub use prediction::{PREDICTIONS, Place};
pub use prefix::{MAPPED_PREFIX_LEN, first_of, has_prefix, mapped, prefix_mask};
pub use record::FlowRecord;
pub use rules::HoldBack;
pub use segment::Form;
pub use selector::SelectorEnd;
pub use table::FlowTable;
