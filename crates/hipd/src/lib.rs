//! `holdover hip`: hosts with unmodified kernels and programs communicate over HIP, and their connections survive
//! changes of address.
//!
//! [`files`], [`invitation`] and [`dns`] are the interface to people, [`core`] makes the daemon's decisions, without I/O, and
//! [`daemon`] adds a TUN device, sockets, the system's addresses and the control socket ([`control`]).

// This crate does I/O: clocks, sockets and files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod control;
pub mod core;
pub mod daemon;
pub mod dns;
pub mod features;
pub mod files;
pub mod fuzz;
pub mod gcm;
pub mod invitation;
pub mod metrics;
pub mod random;
pub mod status;
