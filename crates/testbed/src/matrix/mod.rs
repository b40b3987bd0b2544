//! The kernel matrix: the project's TCP against the kernel's, under every combination of settings that matters to either.
//!
//! [`Combination`] is one set of settings. [`every_combination`] is their whole product, [`every_pair`] a selection in which every pair of
//! values occurs at least once. [`run`] transfers data under one combination, in a separate network namespace, and compares the results of
//! both sides and the kernel's counters with the expected ones.

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
