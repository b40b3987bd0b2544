//! Compares the analysis of captures of simulated worlds, and of links' traces, with their known outages.

mod link_trace;
mod worlds;
