//! The mechanisms in simulated worlds and in packet scripts.

mod as_they_came;
mod combinations;
mod delayed_dupacks;
mod ebsn;
mod ends;
mod exact;
mod exact_ends;
mod fast_retransmit;
mod freeze;
mod hold_open;
mod identity;
mod mobile_ip;
mod new_cell_window;
mod probe;
mod probe_worlds;
#[path = "../../../wire/tests/it/support/received.rs"]
mod received;
mod reconnect_acks;
mod retransmission_trigger;
mod script;
mod storms;
mod support;
mod timestamp_echo;
mod traps;
mod user_timeout;
mod wake;
mod wake_flapping;
mod wake_hold_back;
mod wake_link;
mod wake_own_data;
mod wake_poke;
mod wake_release;
mod wake_script;
mod wake_silence;
mod wake_stall;
mod wake_until_it_works;
