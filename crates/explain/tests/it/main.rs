//! Captures of simulated worlds, and links' traces, against what is known of them.

mod link_trace;
mod worlds;
