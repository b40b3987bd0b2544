//! Comparators: mechanisms of base stations from the literature, by packet scripts, in simulated worlds, and on random packets.

mod ebsn;
mod invariants;
mod mechanisms;
mod nearby;
mod repeating_links;
mod snoop;
mod support;
mod tawcf;
mod worlds;
