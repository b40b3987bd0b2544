//! The simulator from its users' view: worlds are described, run and examined.

mod access;
mod captures;
mod cells;
mod conservation;
mod control;
mod cpus;
mod determinism;
mod efficiency;
mod errors;
mod ethernet;
mod external;
mod fast_open;
mod fork;
mod gateways;
mod identity;
mod identity_moves;
mod latencies;
mod marking;
mod path_mtu;
mod prediction;
mod registration;
mod routing;
mod scale;
mod support;
mod theory;
