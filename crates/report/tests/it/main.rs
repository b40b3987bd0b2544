//! A recorded run, looked at from outside.

// Files are read and programs are started here.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod captures;
mod exports;
mod figures;
mod files;
mod page;
mod worlds;
