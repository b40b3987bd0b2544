//! Links as state machines without I/O.
//!
//! The same link carries the simulator's packets in virtual time and, between the TUN devices of real kernels, real ones on
//! the wall clock: it looks at nothing but a frame's length ([`Frame`]), takes `now` as an argument, and draws what is random
//! from a seed. [`Link`] has the verbs and the order to call them in.
//!
//! - [`PointToPoint`]: one direction of a link between two nodes, described by a [`LinkConfig`]: rate, queue, loss, delay,
//!   jitter, outages.
//! - [`Capacity`]: what such a link could carry at best.
//! - [`cell`]: a radio cell, a half-duplex medium that stations share and move in.

#![forbid(unsafe_code)]

mod capacity;
pub mod cell;
mod config;
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

pub use capacity::Capacity;
pub use config::{ConfigError, LinkConfig};
pub use frame::Frame;
pub use jitter::{Jitter, JitterDistribution};
pub use link::{Delivery, DropCause, Link, Timer};
pub use loss::{GilbertElliott, Loss};
pub use outage::{Alternating, InFlightFate, Length, Outage, OutagePolicy, Outages, QueuedFate};
pub use point_to_point::{LinkEvent, PointToPoint};
pub use queue::QueueLimit;
pub use rate::Rate;
pub use reordering::Reordering;
pub use statistics::{Drops, QueueStatistics, Statistics, Tally};
pub use trace::{AtEnd, ConditionTrace, DeliveryTrace, TraceError};
