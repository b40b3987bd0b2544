//! **Handoff of connections between supervisor hosts**: the state of a mobile host's connections moves to the supervisor host that is now
//! in the path of its packets (M-TCP, section 4.3). The base stations of [`crate::buffer_freeze`] do the same, with records of their own.
//!
//! - [`ConnectionRecord`]: the state of a split connection for another supervisor host, in at most [`ConnectionRecord::MAX_BYTES`].
//! - [`SplitRecord`]: a split connection with the data in its buffers (I-TCP), which travels in [pieces](Piece).
//! - [`Unsplit`]: the state of a connection that is not split, or a copy of one of its packets, for another base station.
//! - [`Message`]: the messages between supervisor hosts, or base stations.
//! - `RecordRequests` (`requests.rs`): requests and answers, with their retransmissions.
//! - `Ownership` (`ownership.rs`): the same where records hold data that exists nowhere else (I-TCP), so that at most one node may continue.
//!
//! The *new* supervisor host sends the request: its link layer, or a packet of an unknown connection, shows that a mobile host has arrived.
//! It asks all its peers, as it need not know which of them served the host. The one that has the connections stops them, sends a record of
//! each, and sends nothing on them from then on.
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
//! Messages may be lost, duplicated, delayed and reordered. Each side repeats unanswered messages. Requests carry numbers that grow with
//! time, so that an old one does not move connections back to a former supervisor host; records carry an epoch that grows with each
//! handoff, so that an old one is not taken for the newest.

mod arriving;
mod checksum;
mod message;
mod ownership;
mod record;
mod refusal;
mod repeat;
mod requests;
mod sending;
mod split_record;
mod unsplit;

pub(crate) use checksum::{checked, crc32};
pub use message::{Body, Message, MessageError};
pub(crate) use ownership::{Conclusion, Ownership, OwnershipEvent};
pub use record::{ConnectionRecord, HalfRecord, RecordError};
pub(crate) use refusal::refusal_of;
pub use repeat::Repeat;
pub use requests::HandoffConfig;
pub(crate) use requests::{Event, RecordRequests, Whereabouts, salt_of};
pub use split_record::{Piece, RecordAge, SplitRecord};
pub use unsplit::{CopyRecord, StateRecord, Unsplit};
