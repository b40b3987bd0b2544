//! The floor on which mechanisms stand: what is in the path of packets, on a host or in a box of the network.
//!
//! A [`SegmentFilter`] sees every packet and may rewrite, drop or add some. A [`Chain`] lines several up. Both stand beside a
//! link that comes and goes, and [`Direction`] is named after that link:
//!
//! ```text
//!   mobile host      its TCP ── outgoing ──▶ [chain] ── outgoing ──▶ link ─ ─ ▶ the network
//!   network          fixed host ── outgoing ──▶ [chain] ── outgoing ──▶ link ─ ─ ▶ mobile host
//! ```
//!
//! So one filter serves both: what a mobile host does about packets that cross the link, a router at the other end of the same
//! link can do too. [`Connection`] names the end on the near side of the link first: the host's own, or the fixed host's.
//!
//! What happens to a link is a [`LinkEvent`], of the link as a whole or of the way to one peer. In the network, where many mobile
//! hosts come and go, it is the [`Presence`] of one of them. An [`EndpointMechanism`] is a filter that also steers the connections
//! of the host's own TCP; only a host has those.
//!
//! Mechanisms of different nodes speak to each other by [`ControlMessage`]s.

#![forbid(unsafe_code)]

mod agenda;
mod chain;
mod connections;
mod control;
mod filter;
mod last_sent;
mod link_event;
mod outcome;
mod presence;
mod window_scale;

pub use agenda::Agenda;
pub use chain::Chain;
pub use connections::{Connection, LIMIT, Noted, Table, tcp_mut};
pub use control::{CONTROL_PORT, ControlMessage};
pub use filter::{Action, Direction, EndpointMechanism, Injected, SegmentFilter, Verdict};
pub use last_sent::{LastSent, SentNumbers};
pub use link_event::LinkEvent;
pub use outcome::{Resumed, WakeOutcome};
pub use presence::Presence;
pub use window_scale::WindowScale;
