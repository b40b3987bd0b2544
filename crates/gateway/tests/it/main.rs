//! The mechanisms of routers: packet scripts, and worlds.

mod support;
mod tables;
