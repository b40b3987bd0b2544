//! **Handoff of connections between supervisor hosts**: the state of a mobile host's connections moves to the supervisor host that
//! its packets pass now (M-TCP, section 4.3).
//!
//! - [`Record`]: what one supervisor host tells another of a connection, in at most [`Record::MAX_BYTES`].
//! - [`Message`]: what they say to each other.
//! - `Exchange` (`exchange.rs`): requests and answers between supervisor hosts, with their retransmissions.
//!
//! The *new* supervisor host asks: it knows that a mobile host has come, by its link layer or by a packet of a connection that it does
//! not know. It asks all its peers, as it need not know where the host has been. The one that has the connections stops them,
//! sends a record of each, and says nothing on them from then on.
//!
//! ```text
//!   new                                 old
//!    | ------ ask (id, mobile host) ---> |   shuts the fixed hosts' windows, stops
//!    | <----- give (id, 1 of 2, record)- |   again until taken
//!    | <----- give (id, 2 of 2, record)- |
//!    | ------ taken (id, 1) -----------> |   forgets the record
//!    | ------ taken (id, 2) -----------> |
//! ```
//!
//! Messages may get lost, doubled, late, and overtake each other. Each side repeats what was not answered. Questions carry numbers
//! that grow with time, so that an old one does not call connections back to where the mobile host has left; records
//! carry an epoch that grows with each handoff, so that an old one is not taken for the newest.

mod checksum;
mod exchange;
mod message;
mod record;

pub use exchange::HandoffConfig;
pub(crate) use exchange::{Event, Exchange, Standing};
pub use message::{Body, Message, MessageError};
pub use record::{HalfRecord, Record, RecordError};
