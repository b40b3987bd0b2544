//! Packets as values and as bytes, and captures.

mod captures;
mod corpus;
mod forward;
mod fragments;
mod kernel_packets;
mod malformed;
mod round_trip;
mod support;
