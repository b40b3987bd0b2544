//! The gateway's daemon: it runs on a Linux router in the path between fixed hosts and mobile hosts that come and go, and terminates no
//! connection, except in its mode `split`. It buffers packets for mobile hosts while they are absent, and makes their TCP connections resume at once when they return.
//!
//! | module | purpose |
//! | --- | --- |
//! | [`path`] | eBPF programs on the mobile-facing interface, which divert packets and report mobile hosts |
//! | `packet_files` | buffered packets, in files that outlive the process |
//! | `waker` | TCP connections of mobile hosts: release of the ACKs that the programs hold back |
//! | `sender`, `icmp_errors` | releases packets, probes mobile hosts, sends ICMP errors |
//! | `interface`, `watch` | the mobile-facing interface, its carrier and its neighbours |
//! | `presence` | reports about mobile hosts: a bridge, leases, mobile hosts themselves, scripts over HTTP |
//! | `split` | mode `split`: connections end here, in sockets with the addresses of others |
//! | `handoff` | buffered packets and records of connections go to the gateway that a mobile host has moved to |
//! | `cluster` | gateways agree in etcd which of them owns a mobile host |
//! | `engine` | connects these with the state machines: [`holdover_gateway::divert`], [`holdover_mobility::wake`] |
//! | [`daemon`] | the poll loop, the control socket ([`control`]), Prometheus ([`metrics`]) |
//! | [`bench`](mod@bench) | what the programs and maps of a process cost, measured from outside |
//! | [`config`], [`network`] | the configuration |
//!
//! `docs/architecture.md` follows a packet through it.

// This crate does I/O; the bans protect the state machines below it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod bench;
mod cluster;
pub mod config;
pub mod control;
pub mod daemon;
mod engine;
pub mod features;
mod handoff;
mod icmp_errors;
mod interface;
pub mod metrics;
pub mod network;
mod packet_files;
pub mod path;
mod presence;
mod sender;
mod split;
pub mod status;
mod waker;
mod watch;

pub use cluster::{ClusterStatus, GatewayLine, OwnershipCounters};
pub use engine::{EngineError, Unsendable};
pub use handoff::HandoffCounters;
pub use presence::{ReportCounters, SecretError};
pub use split::{SplitStatus, Unsplit};
pub use waker::Woken;
