//! Virtual time, units and seeded randomness.
//!
//! Nothing here (or in any crate up to the simulator) reads a clock or a global random source. `now` and randomness are
//! arguments, so that a run is a pure function of its inputs and can be repeated to the byte.

#![forbid(unsafe_code)]

mod rng;
mod time;
mod unit_error;
mod units;

pub use rng::Rng;
pub use time::{Duration, Instant};
pub use unit_error::UnitError;
pub use units::{BitRate, ByteCount};
