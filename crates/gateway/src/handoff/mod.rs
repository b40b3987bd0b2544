//! **Handoff of connections between supervisor hosts**: the state of a mobile host's connections moves to the supervisor host that is now
//! in the path of its packets (M-TCP, section 4.3). The nodes of I-TCP ([`crate::split`]) and the base stations of
//! [`crate::buffer_freeze`] do the same, with records of their own.
//!
//! - [`ConnectionRecord`]: the state of a split connection for another supervisor host, in at most [`ConnectionRecord::MAX_BYTES`].
//! - [`SplitRecord`]: a split connection with the data in its buffers (I-TCP).
//! - [`UnsplitRecord`]: a connection that is not split, with copies of packets (BUFFER-FREEZE).
//! - [`Record`]: one of the three, which travels in [pieces](Piece).
//! - [`Message`]: the messages between supervisor hosts, or base stations.
//! - `Ownership` (`ownership.rs`): requests and answers with their retransmissions, so that at most one node owns a mobile host.
//! - `Node` (`peers.rs`): a node that hands connections on.
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
mod config;
mod kept;
mod message;
mod ownership;
mod peers;
mod record;
mod record_kinds;
mod repeat;
mod sending;
mod split_record;
mod unsplit;

pub(crate) use checksum::{checked, crc32};
pub use config::HandoffConfig;
pub(crate) use config::salt_of;
pub use message::{Body, Message, MessageError};
pub(crate) use ownership::Whereabouts;
pub(crate) use peers::{Node, Peers, Stopped, of_mobile};
pub use record::{ConnectionRecord, HalfRecord, RecordAge, RecordError};
pub use record_kinds::{Record, RecordKind};
pub use repeat::Repeat;
pub use split_record::{Piece, SplitRecord};
pub use unsplit::UnsplitRecord;
