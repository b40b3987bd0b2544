//! The kernel matrix: the project's TCP against the kernel's, under every combination of settings that matters to either.
//!
//! [`Combination`] is one set of settings. [`every_combination`] is their whole product, [`every_pair`] a selection in which
//! every two settings meet at least once. [`run`] transfers data under one combination, in a network namespace of its own,
//! and compares what both sides and the kernel's counters say about it with what they should.

mod application;
mod checks;
mod combination;
mod covering;
mod gate;
mod run;
mod stream;

pub use application::Application;
pub use combination::{Combination, Family, Flow, Mtu, Opening, Path, every_combination, every_pair};
pub use run::{Outcome, RunError, RunOptions, run};
pub use stream::{Digest, Sink, Source};
