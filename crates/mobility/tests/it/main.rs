//! The mechanisms in simulated worlds and in packet scripts.

mod ends;
mod exact;
mod identity;
mod reconnect_acks;
mod retransmission_trigger;
mod support;
mod user_timeout;
