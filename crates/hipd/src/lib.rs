//! `holdover hip`: two hosts with unmodified kernels and programs talk over HIP, and their connections go on when an address changes.
//!
//! [`files`] and [`invitation`] are what people deal with, [`core`] is what the daemon decides, without I/O, and [`daemon`] puts a TUN
//! device, sockets, the system's addresses and the control socket ([`control`]) around it.

// This crate is an I/O floor: clocks, sockets and files are what it is for.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod control;
pub mod core;
pub mod daemon;
pub mod features;
pub mod files;
pub mod invitation;
pub mod metrics;
pub mod random;
pub mod status;
