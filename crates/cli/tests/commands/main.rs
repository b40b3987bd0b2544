//! The commands as a user has them: the program is run, and what it prints, writes and exits with is looked at.

// Tests look at files and processes.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod agent;
mod demo;
mod doctor;
mod explain;
mod gateway;
mod gateway_and_agent;
mod kernel;
mod packetdrill;
mod reproduce;
mod run;
mod scenario;
mod support;
mod sweep;
