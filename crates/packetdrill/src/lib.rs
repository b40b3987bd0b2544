//! packetdrill scripts against Holdover's TCP, in virtual time.
//!
//! [packetdrill](https://github.com/google/packetdrill) is a language for tests of a TCP: system calls, packets that arrive and
//! packets that are expected to leave, each at its time, with assertions about `tcp_info` between them. Its scripts are written for
//! a kernel; here a [`Script`] runs against the endpoint of `holdover-tcp` with a layer of sockets around it, and [`run`] says
//! in a [`Report`] what came of it.
//!
//! Nothing is read or started here: scripts are text, files that their commands name come from the caller, and commands are not
//! run but understood (`shell`). A script is bounded: it ends after a day of virtual time, or after a great number of steps.
//!
//! - `lexer`, `parser`, `ast`: text to a [`Script`], or a [`ScriptError`] with its place;
//! - `settings`: sysctls and routes, and the `Config` that follows from them;
//! - `code`: the part of Python in which assertions are written;
//! - `kernel`: sockets around the endpoint;
//! - `run`: events in their order, and the comparison.

#![forbid(unsafe_code)]

mod ast;
mod code;
mod constants;
mod error;
mod kernel;
mod lexer;
mod parser;
mod report;
mod run;
mod settings;
mod shell;

pub use ast::Script;
pub use error::ScriptError;
pub use report::{Difference, IpVersion, Report, Verdict};
pub use run::{RunOptions, default_defines, run};
pub use shell::ReadFile;
