//! Scenario files: what they accept, refuse and mean, and the documents about them.

mod documents;
mod errors;
mod examples;
mod path_mtu;
mod round_trip;
mod router_filter;
mod senders;
