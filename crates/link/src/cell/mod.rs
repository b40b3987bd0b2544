//! A radio cell: a half-duplex medium that a base station and its stations share, frame by frame.
//!
//! The model is the distributed coordination function of IEEE 802.11 ([`Dcf`]): a station with a frame waits for the medium to
//! be idle, backs off, and exchanges RTS, CTS, data and acknowledgment. Frames go between the base station and one station,
//! or from the base station to all. Every node has one frame in its MAC and the others in a drop-tail buffer, so that a
//! 20-packet buffer holds 20 besides the one that is being sent. (ns-2's `DropTail` refuses the packet that would fill it: its
//! `limit_` of 20 holds 19.)
//!
//! Within the cell's range every frame arrives, beyond it none does ([`Radio`]). A base station does not know that a station has moved
//! away: it retries up to the retry limit, and all its other frames wait.
//!
//! Cells with the same channel number contend for one medium ([`contend`]), as all wireless nodes of ns-2.1b7 do; others have
//! one each.
//!
//! Not modelled: propagation time (0.13 us over 40 m), bit errors within the range, capture, hidden stations and EIFS. A station out of
//! range hears no other station and is heard by none, so its attempts take no airtime. A frame that arrives while others already count down
//! their backoff contends when the medium is next idle.

mod buffer;
mod channel;
mod config;
mod dcf;
mod hop;
mod medium;
mod motion;
mod radio;
mod sender;
mod statistics;

pub use channel::contend;
pub use config::{CellConfig, JoinError, LeavePolicy};
pub use dcf::{Contention, Dcf};
pub use hop::{CellEvent, Hop, Node, Reception, StationId};
pub use medium::Cell;
pub use motion::{Motion, Position, Velocity};
pub use radio::{Radio, Watts};
pub use statistics::CellStatistics;
