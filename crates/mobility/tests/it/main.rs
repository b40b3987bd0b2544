//! The mechanisms in simulated worlds and in packet scripts.

mod exact;
mod fast_retransmit;
mod freeze;
mod new_cell_window;
mod reconnect_acks;
mod script;
mod support;
mod timestamp_echo;
