//! Host identity: transport connections are bound to who a host is, not to where it is.
//!
//! HIPv2 (RFC 7401) and ESP for it (RFC 7402), without I/O: [`codec`] reads and writes packets, [`identity`] has keys and their
//! tags, [`crypto`] what is computed with them, [`host`] the machine of a host and its associations (base exchange,
//! readdressing of RFC 8046, rekeying), [`esp`] what goes between two hosts. `docs/hip.md` has what was chosen where the RFCs
//! leave a choice.
//!
//! [`Shim`] is an older model of readdressing alone, which the simulator's worlds use. It stands between a host's TCP and its
//! links, holds the map from identities to locators, and keeps it true when a host moves: UPDATE packets with real formats and
//! lengths, the check that the new address is reachable, retransmission, and the moment at which both ends may send again.
//! Associations are there from the start; MAC and signature have their lengths, and nobody forges.

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
