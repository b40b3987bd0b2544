//! Mobile IP (RFC 5944) without I/O: a mobile node, a foreign agent and a home agent, each a separate state machine.
//!
//! A foreign agent advertises itself ([`advertisement`]). A [`MobileNode`] that hears it sends a registration request, which the
//! [`ForeignAgent`] relays to the [`HomeAgent`]; the reply takes the same path back. Once it has accepted the request, the home agent sends
//! the node's packets to the care-of address of the foreign agent, through a tunnel, until the registration's lifetime has passed.
//!
//! The machines return events ([`MobileEvent`], [`HomeEvent`]) and messages with their destinations; links, tunnels and geometry are left
//! to the caller. The order of calls is the same for all three: `handle_*`, then `poll_transmit` and `poll_event` until `None`, then
//! `poll_timeout`.
//!
//! Messages are in the formats of the RFC. Their authentication extensions are empty, and identifications are not checked against replays.

mod foreign_agent;
mod home_agent;
mod message;
mod mobile_node;

pub use foreign_agent::{ForeignAgent, Towards};
pub use home_agent::{HomeAgent, HomeEvent};
pub use message::{Advertisement, Code, Lifetime, Message, PORT, advertisement};
pub use mobile_node::{MobileEvent, MobileNode, MobileNodeConfig, RegisterOn, View};
