//! Host identity: transport connections are bound to a host's identity, not to its location.
//!
//! HIPv2 (RFC 7401) and ESP for it (RFC 7402), without I/O: [`codec`] parses and emits packets, [`identity`] holds keys
//! and their tags, [`crypto`] the computations, [`host`] a host's state machine and its associations (base exchange,
//! readdressing of RFC 8046, rekeying), [`esp`] the data between two hosts. `docs/hip.md` lists the choices where the
//! RFCs leave one.
//!
//! [`Shim`] is an older model of readdressing alone, used by the simulator's worlds. It sits between a host's TCP and
//! its links, maps identities to locators, and updates the map when a host moves: UPDATE packets with real formats and
//! lengths, the reachability check of the new address, retransmission, and the time at which both ends may send again.
//! Associations exist from the start; MAC and signature have their lengths, without forgery.

#![forbid(unsafe_code)]

pub mod codec;
pub mod crypto;
pub mod esp;
pub mod fuzz;
pub mod host;
pub mod identity;

mod association;
mod message;
mod shim;

pub use message::{Identity, LocatorSet, MessageError, PROTOCOL, Update};
pub use shim::{Attachment, Event, Role, Shim, ShimConfig};
