//! ESP in BEET mode (RFC 7402 section 3 and appendix B, RFC 4303): data between two hosts with an association.
//!
//! A security association has one direction: [`Outbound`] seals, [`Inbound`] opens. In BEET mode the inner addresses are fixed, the HITs of
//! both hosts, and are not sent: [`Outbound::seal`] takes an IPv6 packet between HITs and encrypts its payload, [`Inbound::open`] restores
//! the packet. Sequence numbers have 64 bits, as RFC 7402 section 3.3.6 requires; the upper half is not sent, but authenticated.

mod engine;
mod gcm;
mod replay;
mod security_association;
mod suite;
mod wireshark;

pub use gcm::{Gcm, GcmProvider};
pub use replay::ReplayWindow;
pub use security_association::{Decrypted, Inbound, OpenError, Opening, Outbound, SealError, Sealing};
pub use suite::{EspKeys, EspSuite};
pub use wireshark::esp_sa;
