//! Holdover's own scripts, unchanged and with one error each; unsupported scripts; and invalid texts.

// Tests read files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod grammar;
mod hostile;
mod scripts;
mod sockets;
