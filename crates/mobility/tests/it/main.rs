//! The mechanisms in simulated worlds and in packet scripts.

mod exact;
mod freeze;
mod reconnect_acks;
mod script;
mod support;
mod timestamp_echo;
