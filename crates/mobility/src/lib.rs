//! Mechanisms of a mobile host for its TCP connections on a link that comes and goes. One file per mechanism; each can be used alone,
//! and together with the others.
//!
//! A [`SegmentFilter`] is in the path of packets and works in front of any TCP, also that of an unmodified kernel. An [`EndpointMechanism`]
//! steers the connections of our own TCP ([`holdover_tcp`]) by their verbs. Changes of the link are reported to both as [`LinkEvent`]s. A
//! [`Chain`] runs several in order, and [`Mechanisms`] describes one.
//!
//! Every ACK that a mechanism sends or passes covers only bytes that the host's TCP has acknowledged or would have acknowledged; no
//! mechanism invents SACK blocks.
//!
//! [`silence`] detects that a link carries no packets, without a [`LinkEvent`], from the packets of TCP and probes.
//!
//! [`mobile_ip`] and [`registration`] are protocols: Mobile IP, by which mobile hosts register their location with the agents of the
//! network, and reports of a mobile host about its link to a gateway in its path.

#![forbid(unsafe_code)]

pub mod ack_stall;
mod ack_train;
pub mod delayed_dupacks;
pub mod ebsn;
mod echo_clock;
pub mod fast_retransmit;
pub mod freeze;
pub mod hold_back;
pub mod hold_open;
mod mechanisms;
pub mod mobile_ip;
pub mod new_cell_window;
mod peer_numbers;
pub mod probe;
pub mod reconnect_acks;
pub mod registration;
pub mod release;
pub mod retransmission_trigger;
mod round_trip;
pub mod silence;
pub mod timestamp_echo;
pub mod unreachable_poke;
pub mod user_timeout;
pub mod wake;

pub use echo_clock::EchoClock;
pub use holdover_filter::{
    Action, Chain, Connection, Direction, EndpointMechanism, Injected, LinkEvent, Resumed, SegmentFilter, Verdict,
    WakeOutcome,
};
pub use mechanisms::{CombinationError, Mechanisms};
