//! The traits of mechanisms: filters in the packet path, on a host or on a node in the network.
//!
//! A [`SegmentFilter`] sees every packet and may rewrite, drop or inject some. A [`Chain`] runs several in order. Both
//! stand beside a link that comes and goes; [`Direction`] is relative to that link:
//!
//! ```text
//!   mobile host      its TCP ── outgoing ──▶ [chain] ── outgoing ──▶ link ─ ─ ▶ the network
//!   network          fixed host ── outgoing ──▶ [chain] ── outgoing ──▶ link ─ ─ ▶ mobile host
//! ```
//!
//! The same filter can run on a mobile host and on a router at the other end of its link. A [`Connection`] names the
//! end on the near side of the link first: the host's own, or the fixed host's.
//!
//! A [`LinkEvent`] reports a change of the link as a whole, or of the path to one peer. In the network, with many
//! mobile hosts, [`Presence`] reports where one of them is. An [`EndpointMechanism`] is a filter that also steers the
//! connections of the host's own TCP; only hosts have those.
//!
//! Mechanisms of different nodes exchange [`ControlMessage`]s.

#![forbid(unsafe_code)]

mod agenda;
mod bounded;
mod chain;
mod connection;
mod connections;
mod control;
mod direction;
mod filter;
mod last_sent;
mod link_event;
mod outcome;
mod presence;
mod window_scale;

pub use agenda::Agenda;
pub use bounded::{Bounded, LIMIT, LINGER};
pub use chain::Chain;
pub use connection::{Connection, tcp_mut};
pub use connections::{Noted, Table};
pub use control::{CONTROL_PORT, ControlMessage};
pub use direction::Direction;
pub use filter::{Action, EndpointMechanism, Injected, SegmentFilter, Stored, Verdict};
pub use last_sent::{LastSent, SentNumbers};
pub use link_event::LinkEvent;
pub use outcome::{Resumed, WakeOutcome};
pub use presence::Presence;
pub use window_scale::WindowScale;
