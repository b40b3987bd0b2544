//! The gateway's daemon: it stands on a Linux router in the path between fixed hosts and mobile hosts that come and go, terminates and
//! rewrites nothing, and keeps the packets of mobile hosts while they are away.
//!
//! | module | what for |
//! | --- | --- |
//! | [`path`] | eBPF programs on the mobile-facing interface, which divert packets and hear mobile hosts |
//! | `store` | packets that wait, in files that outlive the process |
//! | `sender`, `too_big` | releases packets, probes mobile hosts, tells senders of an MTU |
//! | `interface`, `watch` | the mobile-facing interface, its carrier and its neighbours |
//! | `engine` | joins these with what decides: [`holdover_gateway::divert`] |
//! | [`daemon`] | the poll loop, the control socket ([`control`]), Prometheus ([`metrics`]) |
//! | [`config`], [`network`] | what it is told |
//!
//! `docs/architecture.md` follows a packet through it.

// This crate is I/O; the bans protect the state machines below it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod config;
pub mod control;
pub mod daemon;
mod engine;
pub mod features;
mod interface;
pub mod metrics;
pub mod network;
pub mod path;
mod sender;
pub mod status;
mod store;
mod too_big;
mod watch;

pub use engine::{EngineError, Unsendable};
