//! The mechanisms in simulated worlds and in packet scripts.

mod exact;
mod reconnect_acks;
mod support;
mod traps;
mod wake;
mod wake_script;
