//! Mechanisms of base stations and gateways for the TCP connections of mobile hosts. One file per mechanism.
//!
//! Each is a [`SegmentFilter`](holdover_filter::SegmentFilter) in the path between fixed hosts and mobile hosts: *outgoing* packets go to
//! the mobile host, *incoming* ones come from it, and `local` in a [`Connection`](holdover_filter::Connection) is the fixed host. The
//! location of a mobile host is reported to a filter as [`Presence`](holdover_filter::Presence). [`Mechanisms`] describes the mechanisms of
//! a router.
//!
//! Except where a mechanism terminates connections, no ACK reaches a fixed host that acknowledges more than the mobile host has.

#![forbid(unsafe_code)]

pub mod blocking_buffer;
pub mod buffer_freeze;
mod cache;
pub mod copy_and_forward;
pub mod daemon;
pub mod divert;
pub mod ebsn;
mod fifo;
mod flow_path;
pub mod freeze;
pub mod handoff;
pub mod m_tcp;
mod mechanisms;
pub mod prefixes;
pub mod snoop;
pub mod split;
mod stragglers;
pub mod supervisor;
pub mod tawcf;
mod timer;
mod warning_sign;

pub use mechanisms::{ConfigError, Mechanisms};
pub use stragglers::STRAGGLERS;
pub use warning_sign::WarningSign;
