//! **Registration**: a mobile host reports to a gateway in the path of its packets that it fades, is about to go, or is back, before the
//! gateway could find out by itself.
//!
//! The [`Registrant`] is the mobile host's half and the [`Registrar`] the gateway's. Each report and each answer is one datagram of
//! [`LENGTH`] bytes, authenticated by HMAC-SHA256 (RFC 2104) with a [`Key`] that the two share. An answer is never longer than the report
//! that it answers, so that nobody can use the gateway to amplify a flood.
//!
//! # Replay
//!
//! A report names a nonce of the gateway's and a counter. The gateway knows one nonce for each key; a report with another one is answered
//! with a fresh nonce, and repeated with that. Under one nonce, counters have to grow. So a report that was recorded is of no use later,
//! whether the gateway or the mobile host has been restarted in between, and neither needs a clock that is right.
//!
//! # The order of calls
//!
//! [`Registrant::report`] when something has changed, [`Registrant::handle_datagram`] for answers; then [`Registrant::poll_transmit`] until
//! `None`, and [`Registrant::poll_timeout`] for when to call that again. [`Registrar::handle_datagram`] gives the answer and the report.

mod message;
mod registrant;
mod registrar;

pub use message::{Key, KeyError, LENGTH, NONCE};
pub use registrant::{Registrant, RegistrantCounters};
pub use registrar::{Registered, Registrar, RegistrarCounters};

#[cfg(test)]
mod tests;
