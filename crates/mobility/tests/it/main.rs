//! The mechanisms in simulated worlds and in packet scripts.

mod combinations;
mod delayed_dupacks;
mod ebsn;
mod ends;
mod exact;
mod exact_ends;
mod fast_retransmit;
mod freeze;
mod identity;
mod mobile_ip;
mod new_cell_window;
mod probe;
mod probe_worlds;
mod reconnect_acks;
mod retransmission_trigger;
mod script;
mod support;
mod timestamp_echo;
mod traps;
mod user_timeout;
mod wake;
mod wake_script;
mod wake_until_it_works;
