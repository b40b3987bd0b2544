//! The mechanisms of routers: packet scripts, and worlds.

mod as_they_came;
mod base_stations;
mod blocking_buffer;
mod buffer_freeze;
mod copy_and_forward;
mod crowd;
mod daemon;
mod handoff;
mod honesty;
mod m_tcp;
mod m_tcp_script;
mod moved_in;
mod prefixes;
#[path = "../../../wire/tests/it/support/received.rs"]
mod received;
mod roaming;
mod script;
mod split;
mod split_handoff;
mod supervisor;
mod support;
mod thesis;
mod uploads;
mod worlds;
