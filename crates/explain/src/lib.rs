//! Where each connection of a capture lost its time.
//!
//! A capture ([`read_capture`]) becomes a list of packets, the packets become [`Conversation`]s, and each conversation's time is
//! divided ([`account`]) among what it was spent on: moving data, waiting for a retransmission timer, slow start, a closed
//! window, an application that had nothing to send, and outages, as far as somebody says when those were: a capture alone
//! does not show whether a link is down or merely silent.
//!
//! The accounting works on any capture of both directions, ours or another's, from any place on the path. It is best at the
//! sender, where what is seen is what the sender knew.

#![forbid(unsafe_code)]

mod account;
mod capture;
mod conversation;

pub use account::{Account, Cause, Outage, Span, account};
pub use capture::{CaptureReadError, Captured, Contents, read_capture};
pub use conversation::{Conversation, Sighting, conversations};
