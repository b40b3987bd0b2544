//! The simulator as its users see it: worlds are described, run and looked at.

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
mod gateways;
mod identity;
mod marking;
mod prediction;
mod registration;
mod routing;
mod scale;
mod support;
mod theory;
