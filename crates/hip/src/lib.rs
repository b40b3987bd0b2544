//! Host identity: transport connections are bound to a host's identity, not to its location.
//!
//! HIPv2 (RFC 7401) and ESP for it (RFC 7402), without I/O: [`codec`] parses and emits packets, [`identity`] holds keys
//! and their tags, [`crypto`] the computations, [`host`] a host's state machine and its associations (base exchange,
//! readdressing of RFC 8046, rekeying), [`esp`] the data between two hosts. `docs/hip.md` lists the choices where the
//! RFCs leave one.

#![forbid(unsafe_code)]

pub mod codec;
pub mod crypto;
pub mod esp;
pub mod fuzz;
pub mod host;
pub mod identity;
mod predictable_rng;

pub use predictable_rng::PredictableRng;
