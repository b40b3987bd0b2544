//! **Registration**: a mobile host reports to a gateway in the path of its packets that its link fades, that it is about to leave, or that
//! it is back, before the gateway could detect that by itself.
//!
//! The [`Registrant`] is the mobile host's half and the [`Registrar`] the gateway's. Each report and each answer is one datagram of
//! [`LENGTH`] bytes, authenticated by HMAC-SHA256 (RFC 2104) with a shared [`Key`]. An answer is never longer than its report, so that the
//! gateway cannot be used to amplify a flood.
//!
//! # Replay
//!
//! A report contains a nonce of the gateway and a counter. The gateway has one nonce for each key; it answers a report with another one
//! with a fresh nonce, with which the mobile host repeats the report. Under one nonce, counters have to grow. So replays of recorded
//! reports are rejected, even if the gateway or the mobile host has been restarted in between, and neither needs a correct clock.
//!
//! # The order of calls
//!
//! [`Registrant::report`] when something has changed, [`Registrant::handle_datagram`] for answers; then [`Registrant::poll_transmit`] until
//! `None`, and [`Registrant::poll_timeout`] for when to call that again. [`Registrar::handle_datagram`] returns the answer and the report.

mod message;
mod registrant;
mod registrar;

pub use message::{Key, KeyError, LENGTH, NONCE};
pub use registrant::{Registrant, RegistrantCounters};
pub use registrar::{Registered, Registrar, RegistrarCounters};

#[cfg(test)]
mod tests;
