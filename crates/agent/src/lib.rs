//! The agent on the mobile host: it tracks the state of links, and keeps the host's TCP connections fast across
//! outages, with an unmodified kernel and unmodified peers.

// This crate does I/O: clocks, sockets, threads and files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod config;
pub mod containers;
pub mod control;
pub mod daemon;
pub mod engine;
pub mod features;
pub mod link_watch;
pub mod metrics;
mod next_hop;
pub mod outcomes;
mod pace;
pub mod path_engine;
pub mod policy;
pub mod sockets;
pub mod status;
pub mod user_timeout;
mod written_as_text;
