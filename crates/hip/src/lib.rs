//! Host identity: transport connections are bound to who a host is, not to where it is. A [`Shim`] stands between a host's TCP
//! and its links, holds the map from identities to locators, and keeps it true when a host moves (RFC 8046).
//!
//! What is here is what the readdressing of a mobile host needs: UPDATE packets with real formats and lengths, the check that
//! the new address is reachable, retransmission, and the moment at which both ends may send again. Associations are there from
//! the start: the base exchange (RFC 7401 section 4.1), rekeying and rendezvous servers are not modelled, nor is cryptography:
//! MAC and signature have their lengths, and nobody forges. Both hosts moving at once is not supported, as the mobility
//! extension itself does not without a rendezvous server.

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
