//! Links and radio cells: scripts, properties and theory.

mod arq;
mod bit_errors;
mod cell;
mod codel;
mod common;
mod compression;
mod delivery_trace;
mod point_to_point;
mod properties;
mod theory;
