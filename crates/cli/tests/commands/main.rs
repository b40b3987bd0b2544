//! The commands as users have them: each test runs the program, and checks its output, files and exit status.

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
