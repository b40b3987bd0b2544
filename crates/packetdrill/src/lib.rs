//! packetdrill scripts against Holdover's TCP, in virtual time.
//!
//! [packetdrill](https://github.com/google/packetdrill) is a language for tests of a TCP: timed system calls, incoming packets and expected
//! outgoing packets, with assertions about `tcp_info`. Its scripts are written for a kernel; here a [`Script`] runs against the endpoint of
//! `holdover-tcp` with a socket layer around it, and [`run`] returns the result in a [`Report`].
//!
//! The crate reads no files and starts no programs: scripts are passed as text, the caller supplies the files named by their commands, and
//! commands are interpreted rather than run (`shell`). Scripts are bounded in virtual time (a day) and in steps.
//!
//! - `token`, `lexer`, `conditional`, `parser`, `ast`: from text to a [`Script`], or to a [`ScriptError`] with its position;
//! - `settings`: sysctls and routes, and the resulting `Config`;
//! - `code`: the subset of Python used for assertions;
//! - `kernel`: sockets around the endpoint;
//! - `run`: runs the events in order and compares the results.

#![forbid(unsafe_code)]

mod ast;
mod code;
mod conditional;
mod constants;
mod error;
mod kernel;
mod lexer;
mod parser;
mod report;
mod run;
mod settings;
mod shell;
mod token;

pub use ast::Script;
pub use error::ScriptError;
pub use report::{Difference, IpVersion, Report, Verdict};
pub use run::{RunOptions, default_defines, run};
pub use shell::ReadFile;
