//! Packet scripts of readdressing, seen from both sides.

mod exchange;
mod pair;
