//! Links as state machines without I/O.
//!
//! The same link carries the simulator's packets in virtual time and, between the TUN devices of real kernels, real packets in wall-clock
//! time: it uses only a frame's length ([`Frame`]), takes `now` as an argument, and draws randomness from a seed. [`Link`] documents the
//! verbs and the order of calls.
//!
//! - [`PointToPoint`]: one direction of a link between two nodes, described by a [`LinkConfig`]: rate, queue, loss, delay,
//!   jitter, outages.
//! - [`Capacity`]: the ideal capacity of such a link.
//! - [`cell`]: a radio cell, a half-duplex medium shared by moving stations.
//!
//! ```
//! use holdover_base::{BitRate, Duration, Instant};
//! use holdover_link::{Link, LinkConfig, PointToPointEvent, PointToPoint, QueueLimit, Rate};
//!
//! let config = LinkConfig {
//!     rate: Rate::Fixed(BitRate::from_mbps(10)),
//!     delay: Duration::from_millis(50),
//!     queue_limit: QueueLimit::Packets(1),
//!     ..LinkConfig::default()
//! };
//! let mut link = PointToPoint::new(&config, 1)?;
//! for number in 0..3 {
//!     link.handle_packet(Instant::ZERO, vec![number; 1250]);
//! }
//! // One is being sent, one waits, and the third finds the queue full.
//! assert!(matches!(link.poll_event(), Some(PointToPointEvent::Dropped { frame, .. }) if frame[0] == 2));
//! let mut arrivals = Vec::new();
//! while let Some((now, _)) = link.poll_timeout() {
//!     link.handle_timeout(now);
//!     while let Some(delivery) = link.poll_deliver(now) {
//!         arrivals.push((delivery.at.as_millis(), delivery.frame[0]));
//!     }
//! }
//! assert_eq!(arrivals, [(51, 0), (52, 1)]);
//! # Ok::<(), holdover_link::ConfigError>(())
//! ```
//!
//! # In a discrete-event simulator
//!
//! A link needs one entry in the event queue, for the time of [`Link::poll_timeout`]. After a frame has entered, that time has changed only
//! if the link was idle before, or if the frame overtakes: compare, and update the event queue only then. At that time, call
//! `handle_timeout`, take all deliveries and events, and schedule the next one. So a frame costs one event however long it queues, and none
//! while it waits during an outage. At the same instant, deliveries precede the events that report a cut: a frame that arrives as the link
//! goes down has arrived.

#![forbid(unsafe_code)]

mod arq;
mod bit_errors;
mod capacity;
pub mod cell;
mod codel;
mod config;
mod error;
mod frame;
mod impairments;
mod jitter;
mod link;
mod loss;
mod outage;
mod point_to_point;
mod queue;
mod rate;
mod reordering;
mod statistics;
mod timeline;
mod trace;
mod transmitter;
mod wire;

pub use arq::Arq;
pub use bit_errors::{BitErrorBursts, BitErrors, Dwell};
pub use capacity::Capacity;
pub use codel::CoDel;
pub use config::LinkConfig;
pub use error::ConfigError;
pub use frame::Frame;
pub use holdover_wire::Compression;
pub use jitter::{Jitter, JitterDistribution};
pub use link::{Delivery, DropCause, Link, Timer};
pub use loss::{GilbertElliott, Loss};
pub use outage::{Alternating, InFlightFate, Length, Outage, OutagePolicy, Outages, QueuedFate};
pub use point_to_point::{PointToPoint, PointToPointEvent, first_difference};
pub use queue::QueueLimit;
pub use rate::Rate;
pub use reordering::Reordering;
pub use statistics::{Drops, QueueStatistics, Statistics, Tally};
pub use trace::{AtEnd, ConditionTrace, DeliveryTrace, TraceError};
