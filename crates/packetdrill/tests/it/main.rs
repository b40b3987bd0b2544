//! Scripts of our own, as they are and with one thing made wrong; what is not run; and texts that are no scripts.

// Tests read files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod grammar;
mod hostile;
mod scripts;
